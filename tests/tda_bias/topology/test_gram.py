"""Patterns of a group to Gram matrices: against step functions held in full."""

import errno

import numpy as np
import pytest
import torch

from tda_bias.topology import gram as module
from tda_bias.topology import persistence, room
from tda_bias.topology.gram import GroupSampler
from tda_bias.topology.persistence import births_deaths
from tda_bias.topology.steps import step_columns
from tda_bias.types import InputError

N_TOKENS = np.array([9, 5, 12, 3, 12, 7])
LAYERS, HEADS = 3, 2


def causal_patterns(dtype=torch.float64) -> list[torch.Tensor]:
    """One tensor (layer, head, n, n) per text."""
    generator = torch.Generator().manual_seed(0)
    patterns = []
    for n in N_TOKENS.tolist():
        scores = torch.randn(LAYERS, HEADS, n, n, generator=generator, dtype=torch.float64)
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        patterns.append(scores.masked_fill(later, -torch.inf).softmax(-1).to(dtype))
    return patterns


def batches(patterns: list[torch.Tensor], *parts: list[int]) -> list[tuple]:
    """Padded batches of some texts each; NaN where there is no token."""
    result = []
    for texts in parts:
        n = max(patterns[text].shape[-1] for text in texts)
        padded = torch.full((len(texts), LAYERS, HEADS, n, n), torch.nan, dtype=patterns[0].dtype)
        for place, text in enumerate(texts):
            length = patterns[text].shape[-1]
            padded[place, :, :, :length, :length] = patterns[text]
        lengths = torch.tensor([patterns[text].shape[-1] for text in texts])
        result.append((padded, torch.tensor(texts), lengths))
    return result


@pytest.fixture(params=[0, 10**9], ids=["compiled", "torch"])
def path(request, monkeypatch):
    monkeypatch.setattr(persistence, "_LARGE", request.param)


both_paths = pytest.mark.usefixtures("path")


def sampler(attention="causal") -> GroupSampler:
    return GroupSampler(N_TOKENS, n_layers=LAYERS, attention=attention)


def layers_of(parts: list) -> list:
    """Of every layer alone the Gram matrices of both dimensions, and the sums of both."""
    layers = []
    for part in parts:
        for first in range(0, len(part[0][0]), HEADS):
            rows = slice(first, first + HEADS)
            layers.append([[dim[kind][rows] for dim in part] for kind in range(2)])
    assert len(layers) == LAYERS
    return layers


def sampled(batches: list[tuple], **options) -> list:
    group = sampler(**options)
    for batch in batches:
        group.add(*batch)
    return layers_of(list(group.layers()))


def literal(patterns, **options) -> np.ndarray:
    """(dim, layer, head, text, text) products of full rows minus their mean over texts."""
    sets = [births_deaths(pattern.numpy(), **options) for pattern in patterns]
    grams = []
    for of_dim in ([s.births for s in sets], [s.deaths for s in sets]):
        n = max(values.shape[-1] for values in of_dim)
        full = [step_columns(torch.from_numpy(values), n, 0, n) for values in of_dim]
        rows = np.stack(full, axis=2)
        rows -= rows.mean(2, keepdims=True)
        grams.append(rows @ rows.swapaxes(-1, -2) / n)
    return np.array(grams)


def grams_of(layers) -> np.ndarray:
    return np.stack([np.stack([g.numpy() for g in layer[0]]) for layer in layers], axis=1)


ALL = [[0, 1, 2, 3, 4, 5]]
SOME = [[4, 0], [5], [2, 1, 3]]


# -- bad input --


def test_a_full_disk_is_one_line(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    monkeypatch.setattr(room, "MOST_BYTES", 0)
    group = sampler()
    with pytest.raises(
        InputError, match=r"needs 0\.0 GB in .*: No space left on device; let TMPDIR"
    ):
        group.add(*batches(causal_patterns(), [0])[0])


# -- the definition --


@both_paths
@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
def test_products_are_those_of_all_step_functions(attention):
    patterns = causal_patterns()
    if attention == "bidirectional":
        patterns = [pattern + pattern.mT.square() for pattern in patterns]
    layers = sampled(batches(patterns, *SOME), attention=attention)
    expected = literal(patterns, attention=attention)
    np.testing.assert_allclose(grams_of(layers), expected, rtol=0, atol=1e-15)


@both_paths
def test_sums_are_those_of_births_and_of_deaths():
    patterns = causal_patterns()
    for layer, (_, sums) in enumerate(sampled(batches(patterns, *SOME))):
        for head in range(HEADS):
            for text, pattern in enumerate(patterns):
                sets = births_deaths(pattern[layer, head].numpy())
                expected = [sets.births.sum(), sets.deaths.sum()]
                np.testing.assert_allclose([s[head, text] for s in sums], expected, rtol=1e-12)


@both_paths
def test_half_precision_is_computed_in_single():
    half = causal_patterns(torch.bfloat16)
    layers = sampled(batches(half, *SOME))
    expected = literal([pattern.double() for pattern in half])
    np.testing.assert_allclose(grams_of(layers), expected, rtol=0, atol=1e-12)


def test_both_paths_agree_in_single_precision(monkeypatch):
    parts = batches(causal_patterns(torch.float32), *SOME)
    monkeypatch.setattr(persistence, "_LARGE", 0)
    found = grams_of(sampled(parts))
    monkeypatch.setattr(persistence, "_LARGE", 10**9)
    np.testing.assert_allclose(found, grams_of(sampled(parts)), rtol=0, atol=1e-15)


# -- nothing else changes it --


def test_nothing_comes_before_the_last_text():
    group = sampler()
    *first, last = batches(causal_patterns(), *SOME)
    for batch in first:
        group.add(*batch)
    with pytest.raises(ValueError, match="3 texts of the group are missing"):
        next(group.layers())
    group.add(*last)
    assert len(layers_of(list(group.layers()))) == LAYERS


@both_paths
@pytest.mark.parametrize("working_bytes", [1, 6000, 128_000_000])
def test_a_file_and_few_rows_at_a_time_give_the_same(working_bytes, monkeypatch):
    parts = batches(causal_patterns(), *SOME)
    expected = grams_of(sampled(parts))
    monkeypatch.setattr(module, "WORKING_BYTES", working_bytes)
    monkeypatch.setattr(room, "MOST_BYTES", 0)
    np.testing.assert_array_equal(grams_of(sampled(parts)), expected)


@both_paths
@pytest.mark.parametrize("threads", [1, 3])
def test_order_batches_and_threads_do_not_change_a_digit(threads):
    patterns = causal_patterns()
    expected = grams_of(sampled(batches(patterns, *ALL)))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = grams_of(sampled(batches(patterns, *SOME)))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found, expected)


@both_paths
def test_identical_texts_have_no_distance():
    patterns = causal_patterns()
    patterns[4] = patterns[2]
    for layer in sampled(batches(patterns, *SOME)):
        for gram in layer[0]:
            distance = gram[:, 2, 2] - 2 * gram[:, 2, 4] + gram[:, 4, 4]
            assert (distance.abs() < 1e-15 * gram.diagonal(dim1=1, dim2=2).sum(1)).all()
