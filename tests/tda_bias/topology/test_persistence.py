"""Births and deaths: against Kruskal by hand, SciPy and GUDHI."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse.csgraph import minimum_spanning_tree

from tda_bias.topology.persistence import births_deaths, n_births, n_deaths, ragged_births_deaths
from tda_bias.types import InputError


def random_patterns(*shape: int, seed: int = 0) -> np.ndarray:
    n = shape[-1]
    scores = np.random.default_rng(seed).normal(size=(*shape, n)) * 2
    scores[..., np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] = -np.inf
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True)


def kruskal(weights: np.ndarray) -> tuple[list[float], list[float]]:
    """Edges in descending weight; one that joins two components is a birth, any other a death."""
    n = len(weights)
    component = list(range(n))
    births, deaths = [], []
    edges = [(weights[i, j], i, j) for i in range(n) for j in range(i)]
    for weight, i, j in sorted(edges, reverse=True):
        if component[i] == component[j]:
            deaths.append(weight)
            continue
        births.append(weight)
        old, new = component[i], component[j]
        component = [new if c == old else c for c in component]
    return sorted(births), sorted(deaths)


def symmetric_lower(pattern: np.ndarray) -> np.ndarray:
    lower = np.tril(pattern, -1)
    return lower + lower.T


# -- bad input --


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (0, 0)])
def test_a_pattern_that_is_not_square_is_refused(shape):
    with pytest.raises(InputError, match="must have the shape"):
        births_deaths(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_pattern_with_nan_or_infinity_is_refused(bad):
    pattern = random_patterns(4)
    pattern[2, 1] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        births_deaths(pattern)


@pytest.mark.parametrize(
    ("option", "value"), [("attention", "masked"), ("combine", "min"), ("backend", "ripser")]
)
def test_an_unknown_option_is_refused_with_the_allowed_ones(option, value):
    with pytest.raises(InputError, match=f"`{option}` must be one of .*; got '{value}'"):
        births_deaths(random_patterns(3), **{option: value})


def test_whole_numbers_are_refused():
    with pytest.raises(InputError, match="floating-point"):
        births_deaths(np.ones((3, 3), dtype=int))


# -- the definition --


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
def test_births_and_deaths_are_those_of_kruskal(n):
    for pattern in random_patterns(4, n, seed=n):
        births, deaths = kruskal(symmetric_lower(pattern))
        found = births_deaths(pattern)
        np.testing.assert_array_equal(found.births, births)
        np.testing.assert_array_equal(found.deaths, deaths)
        assert (len(births), len(deaths)) == (n_births(n), n_deaths(n))


@pytest.mark.parametrize("combine", ["max", "mean"])
def test_bidirectional_patterns_combine_both_directions(combine):
    pattern = np.random.default_rng(1).dirichlet(np.ones(7), size=7)
    joined = np.maximum(pattern, pattern.T) if combine == "max" else (pattern + pattern.T) / 2
    births, deaths = kruskal(joined)
    found = births_deaths(pattern, attention="bidirectional", combine=combine)
    np.testing.assert_array_equal(found.births, births)
    np.testing.assert_array_equal(found.deaths, deaths)


def test_causal_reading_ignores_the_diagonal_and_the_upper_triangle():
    pattern = random_patterns(6)
    noisy = pattern + np.triu(np.full((6, 6), 9.0))
    found, expected = births_deaths(noisy), births_deaths(pattern)
    np.testing.assert_array_equal(found.births, expected.births)
    np.testing.assert_array_equal(found.deaths, expected.deaths)


def test_leading_axes_and_kinds_are_kept():
    pattern = random_patterns(2, 3, 5)
    as_numpy = births_deaths(pattern)
    as_torch = births_deaths(torch.from_numpy(pattern))
    assert as_numpy.births.shape == (2, 3, 4)
    assert as_numpy.deaths.shape == (2, 3, 6)
    assert isinstance(as_torch.births, torch.Tensor)
    np.testing.assert_array_equal(as_torch.deaths.numpy(), as_numpy.deaths)


def test_half_precision_is_computed_in_single():
    pattern = torch.from_numpy(random_patterns(5)).half()
    found = births_deaths(pattern)
    assert found.births.dtype == torch.float32
    np.testing.assert_array_equal(found.births, births_deaths(pattern.float()).births)


# -- properties --

patterns = hnp.arrays(
    np.float64,
    st.integers(2, 9).map(lambda n: (n, n)),
    # Few distinct values: ties everywhere, zeros among them.
    elements=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]) | st.floats(0, 1),
)


@given(patterns)
def test_births_and_deaths_together_are_all_edges(pattern):
    found = births_deaths(pattern)
    edges = pattern[np.tril_indices(len(pattern), -1)]
    np.testing.assert_array_equal(
        np.sort(np.concatenate([found.births, found.deaths])), np.sort(edges)
    )


@given(patterns, st.randoms(use_true_random=False))
def test_renaming_the_tokens_changes_nothing(pattern, random):
    order = list(range(len(pattern)))
    random.shuffle(order)
    weights = symmetric_lower(pattern)
    found = births_deaths(weights, attention="bidirectional")
    renamed = births_deaths(weights[np.ix_(order, order)], attention="bidirectional")
    np.testing.assert_array_equal(found.births, renamed.births)
    np.testing.assert_array_equal(found.deaths, renamed.deaths)


@given(patterns)
def test_both_backends_agree_also_on_ties(pattern):
    ours, reference = births_deaths(pattern), births_deaths(pattern, backend="gudhi")
    np.testing.assert_array_equal(ours.births, reference.births)
    np.testing.assert_array_equal(ours.deaths, reference.deaths)


@given(patterns)
def test_births_are_the_weights_of_scipys_spanning_tree(pattern):
    weights = symmetric_lower(pattern)
    # SciPy drops zeros and minimises: shift and turn around.
    shifted = np.where(np.eye(len(weights)), 0.0, 2.0 - weights)
    tree = minimum_spanning_tree(shifted).toarray()
    expected = np.sort(2.0 - tree[tree > 0])
    np.testing.assert_allclose(births_deaths(pattern).births, expected, rtol=0, atol=1e-15)


# -- padding --


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.sampled_from(["mst", "gudhi"]))
def test_texts_in_a_padded_batch_have_the_sets_they_have_alone(lengths, backend):
    n = max(lengths)
    rng = np.random.default_rng(len(lengths))
    weights = rng.random((len(lengths), 2, n, n))
    weights = weights + weights.swapaxes(-1, -2)
    found = ragged_births_deaths(torch.from_numpy(weights), torch.tensor(lengths), backend=backend)
    for text, length in enumerate(lengths):
        for head in range(2):
            births, deaths = kruskal(weights[text, head, :length, :length])
            np.testing.assert_array_equal(found.births[text, head, : len(births)], births)
            np.testing.assert_array_equal(found.deaths[text, head, : len(deaths)], deaths)
            assert torch.isinf(found.births[text, head, len(births) :]).all()
            assert torch.isinf(found.deaths[text, head, len(deaths) :]).all()


def test_a_large_batch_is_the_same_in_pieces(monkeypatch):
    pattern = random_patterns(20, 6)
    whole = births_deaths(pattern)
    monkeypatch.setattr("tda_bias.topology.persistence._CHUNK_ELEMENTS", 100)
    pieces = births_deaths(pattern)
    np.testing.assert_array_equal(whole.births, pieces.births)
    np.testing.assert_array_equal(whole.deaths, pieces.deaths)
