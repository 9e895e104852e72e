"""Flag complexes against a second engine, and landscapes and products against their definitions."""

import gudhi
import numpy as np
import pytest
import torch
from gudhi.hera import wasserstein_distance as by_hera

from tda_bias.topology.flag import (
    N_LANDSCAPES,
    RESOLUTION,
    ended,
    flag_distance,
    flag_pairs,
    landscapes,
    lifetimes,
    squared_distances,
)
from tda_bias.topology.vectors import DistanceSampler, VectorSampler
from tda_bias.types import InputError


def weights(n: int, seed: int = 0) -> np.ndarray:
    """Symmetric weights of edges between n tokens, as attention has them."""
    pattern = np.tril(np.random.default_rng(seed).dirichlet(np.ones(n), n), -1)
    return pattern + pattern.T


def by_simplex_tree(one: np.ndarray) -> list[np.ndarray]:
    distances = 1 - one
    np.fill_diagonal(distances, 0)
    tree = gudhi.RipsComplex(distance_matrix=distances).create_simplex_tree(max_dimension=2)
    tree.compute_persistence()
    pairs = [tree.persistence_intervals_in_dimension(dim).reshape(-1, 2) for dim in (0, 1)]
    return [of_dim[np.lexsort(of_dim.T[::-1])] for of_dim in pairs]


@pytest.mark.parametrize("n", [2, 3, 4, 7, 15, 30])
def test_pairs_are_those_of_gudhis_other_engine(n):
    found = flag_pairs(np.stack([weights(n, seed) for seed in range(4)]))
    for seed, of_matrix in enumerate(found):
        for pairs, expected in zip(of_matrix, by_simplex_tree(weights(n, seed)), strict=True):
            np.testing.assert_allclose(pairs, expected)


def test_a_token_is_a_component_that_never_dies():
    [(components, cycles)] = flag_pairs(np.zeros((1, 1, 1)))
    assert components.tolist() == [[0.0, np.inf]]
    assert cycles.shape == (0, 2)


def test_weights_beyond_1_are_one_line():
    with pytest.raises(InputError, match="from 0 to 1"):
        flag_pairs(2 * np.ones((1, 3, 3)))


def literal_landscapes(pairs: np.ndarray) -> np.ndarray:
    """The k-th largest of the tents over the points, as GUDHI scales them: by the root of 2."""
    t = np.linspace(0, 1, RESOLUTION)
    tents = [np.maximum(0, np.minimum(t - birth, death - t)) for birth, death in ended(pairs)]
    tents += [np.zeros(RESOLUTION)] * N_LANDSCAPES
    return np.sqrt(2) * np.sort(tents, axis=0)[::-1][:N_LANDSCAPES].ravel()


def test_landscapes_are_the_largest_tents():
    diagrams = [of_dim for pairs in flag_pairs(weights(14)[None]) for of_dim in pairs]
    for found, pairs in zip(landscapes([*diagrams, np.zeros((0, 2))]), diagrams, strict=False):
        np.testing.assert_allclose(found, literal_landscapes(pairs), atol=2 / RESOLUTION)


def test_distances_are_heras():
    diagrams = [flag_pairs(weights(9, seed)[None])[0][1] for seed in range(5)]
    squared = squared_distances(diagrams)
    for i, first in enumerate(diagrams):
        for j, second in enumerate(diagrams):
            expected = by_hera(first, second, order=2, internal_p=2, delta=1e-9)
            assert squared[i, j] == pytest.approx(expected**2, abs=1e-8)
    assert flag_distance(diagrams[0], np.zeros((0, 2))) > 0


# -- products --

LENGTHS = [4, 6, 4, 5]


def patterns(rows: int = 3) -> torch.Tensor:
    """Two layers of three heads on four texts; beyond a text's length, NaN."""
    widest = max(LENGTHS)
    made = torch.full((len(LENGTHS), 2, rows, widest, widest), torch.nan)
    for text, n in enumerate(LENGTHS):
        for layer in range(2):
            for head in range(rows):
                seed = 100 * text + 10 * layer + head
                drawn = np.random.default_rng(seed).dirichlet(np.ones(n), n)
                made[text, layer, head, :n, :n] = torch.from_numpy(np.tril(drawn))
    return made


def of_text(made: torch.Tensor, text: int, row: int) -> np.ndarray:
    n = LENGTHS[text]
    pattern = np.tril(made[text, row // 3, row % 3, :n, :n].numpy(), -1)
    return pattern + pattern.T


class FirstWeights:
    """The first three weights of a pattern, in one dimension."""

    dims = ("weights",)

    def __init__(self, scaled: bool) -> None:
        self.scaled = scaled

    def __call__(self, some, texts):
        values = some[:, :, :3, 0].numpy().astype(float)
        return [(values, values.sum(2))]


@pytest.mark.parametrize("scaled", [False, True])
def test_products_of_vectors_are_literal_and_batches_do_not_matter(scaled):
    made = patterns()
    values = np.array([[made[t, r // 3, r % 3, :3, 0].numpy() for t in range(4)] for r in range(6)])
    centred = (values - values.mean(1, keepdims=True)).astype(float)
    if scaled:
        centred /= np.where(centred.std(1, keepdims=True) > 0, centred.std(1, keepdims=True), 1)
    for batches in ([[0, 1, 2, 3]], [[3, 0], [2], [1]]):
        sampler = VectorSampler(4, n_layers=2, read=FirstWeights(scaled))
        for batch in batches:
            length = torch.tensor([LENGTHS[text] for text in batch])
            sampler.add(made[batch], torch.tensor(batch), length)
        (gram,), (sums,) = zip(*(dims[0] for dims in sampler.layers()), strict=True)
        np.testing.assert_allclose(gram, centred @ centred.transpose(0, 2, 1) / 3, atol=1e-6)
        np.testing.assert_allclose(sums, values.sum(2), rtol=1e-6)
    assert sampler.n_steps == [3]


def test_missing_texts_are_noticed():
    sampler = VectorSampler(4, n_layers=2, read=FirstWeights(False))
    sampler.add(patterns()[:1], torch.tensor([0]), torch.tensor([4]))
    with pytest.raises(ValueError, match="3 texts"):
        next(sampler.layers())


def test_products_of_distances_give_the_distances_back_and_other_heads_nothing():
    made = patterns()
    sampler = DistanceSampler(4, n_layers=2, attention="causal", rows=[1, 5])
    sampler.add(made, torch.arange(4), torch.tensor(LENGTHS))
    layers = [*sampler.layers()]
    for dim in (0, 1):
        gram = torch.cat([dims[dim][0] for dims in layers]).numpy()
        sums = torch.cat([dims[dim][1] for dims in layers]).numpy()
        for row in range(6):
            pairs = [flag_pairs(of_text(made, t, row)[None])[0][dim] for t in range(4)]
            if row not in (1, 5):
                assert not gram[row].any()
                assert not sums[row].any()
                continue
            np.testing.assert_allclose(sums[row], [lifetimes(of) for of in pairs], rtol=1e-6)
            squares = np.diag(gram[row])
            found = squares[:, None] + squares - 2 * gram[row]
            np.testing.assert_allclose(found, squared_distances(pairs), atol=1e-7)
            np.testing.assert_allclose(gram[row].sum(0), 0, atol=1e-12)
    assert sampler.n_steps[0] == max(LENGTHS)
