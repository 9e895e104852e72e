"""Births and deaths, compiled and in torch: against Kruskal by hand, SciPy and GUDHI."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse.csgraph import minimum_spanning_tree

from tda_bias.topology import persistence
from tda_bias.topology.persistence import (
    births_deaths,
    n_births,
    n_deaths,
    padded_births_deaths,
)
from tda_bias.types import InputError
from tests.support.gudhi_sets import gudhi_sets


@contextmanager
def by(path: str):
    """Large input is for the kernels, small input for torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persistence, "_LARGE", 0 if path == "compiled" else 10**9)
        yield


@pytest.fixture(scope="module", params=["compiled", "torch"])
def path(request):
    with by(request.param):
        yield


both_paths = pytest.mark.usefixtures("path")


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


@both_paths
@pytest.mark.parametrize(
    ("pattern", "attention", "message"),
    [
        (np.zeros((4, 2, 3)), "causal", "must have the shape"),
        (np.zeros((0, 0)), "causal", "must have the shape"),
        (np.where(np.eye(4, k=-1), np.nan, 0.5), "causal", "NaN or infinite"),
        (np.where(np.eye(4, k=-1), np.inf, 0.5), "bidirectional", "NaN or infinite"),
        (np.ones((3, 3), dtype=int), "causal", "floating-point"),
        (np.ones((3, 3)), "masked", "`attention` must be one of .*; got 'masked'"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern, attention, message):
    with pytest.raises(InputError, match=message):
        births_deaths(pattern, attention=attention)


# -- the definition --


@both_paths
@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
def test_births_and_deaths_are_those_of_kruskal(n):
    for pattern in random_patterns(4, n, seed=n):
        births, deaths = kruskal(symmetric_lower(pattern))
        found = births_deaths(pattern)
        np.testing.assert_array_equal(found.births, births)
        np.testing.assert_array_equal(found.deaths, deaths)
        assert (len(births), len(deaths)) == (n_births(n), n_deaths(n))


@both_paths
def test_of_two_directions_the_larger_weight_counts():
    pattern = np.random.default_rng(1).dirichlet(np.ones(7), size=7)
    births, deaths = kruskal(np.maximum(pattern, pattern.T))
    found = births_deaths(pattern, attention="bidirectional")
    np.testing.assert_array_equal(found.births, births)
    np.testing.assert_array_equal(found.deaths, deaths)


@both_paths
def test_causal_reading_ignores_the_diagonal_and_the_upper_triangle():
    pattern = random_patterns(6)
    noisy = pattern + np.triu(np.full((6, 6), 9.0))
    found, expected = births_deaths(noisy), births_deaths(pattern)
    np.testing.assert_array_equal(found.births, expected.births)
    np.testing.assert_array_equal(found.deaths, expected.deaths)


@both_paths
def test_leading_axes_and_kinds_are_kept():
    pattern = random_patterns(2, 3, 5)
    as_numpy = births_deaths(pattern)
    as_torch = births_deaths(torch.from_numpy(pattern))
    assert as_numpy.births.shape == (2, 3, 4)
    assert as_numpy.deaths.shape == (2, 3, 6)
    assert isinstance(as_torch.births, torch.Tensor)
    np.testing.assert_array_equal(as_torch.deaths.numpy(), as_numpy.deaths)


@both_paths
def test_half_precision_is_computed_in_single():
    pattern = torch.from_numpy(random_patterns(5)).half().requires_grad_()
    found = births_deaths(pattern)
    assert found.births.dtype == torch.float32
    assert not found.births.requires_grad
    np.testing.assert_array_equal(found.births, births_deaths(pattern.float()).births)


# -- properties --

patterns = hnp.arrays(
    np.float64,
    st.integers(2, 9).map(lambda n: (n, n)),
    # Few distinct values: ties everywhere, zeros among them.
    elements=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]) | st.floats(0, 1),
)


@both_paths
@settings(max_examples=30)
@given(patterns)
def test_births_are_the_weights_of_scipys_spanning_tree(pattern):
    weights = symmetric_lower(pattern)
    # SciPy drops zeros and minimises: shift and turn around.
    shifted = np.where(np.eye(len(weights)), 0.0, 2.0 - weights)
    tree = minimum_spanning_tree(shifted).toarray()
    expected = np.sort(2.0 - tree[tree > 0])
    np.testing.assert_allclose(births_deaths(pattern).births, expected, rtol=0, atol=1e-15)


# -- padding --


@settings(max_examples=25)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_texts_in_a_padded_batch_have_the_sets_they_have_alone(lengths):
    n = max(lengths)
    rng = np.random.default_rng(len(lengths))
    weights = rng.random((len(lengths), 2, n, n))
    weights = weights + weights.swapaxes(-1, -2)
    of_births, of_deaths = padded_births_deaths(torch.from_numpy(weights), torch.tensor(lengths))
    for text, length in enumerate(lengths):
        for head in range(2):
            births, deaths = kruskal(weights[text, head, :length, :length])
            for found, expected in ((of_births, births), (of_deaths, deaths)):
                sets = found[text, head]
                np.testing.assert_array_equal(sets[: len(expected)], expected)
                assert torch.isinf(sets[len(expected) :]).all()


@both_paths
def test_a_large_batch_is_the_same_in_pieces(monkeypatch):
    pattern = random_patterns(20, 6)
    whole = births_deaths(pattern)
    monkeypatch.setattr("tda_bias.topology.persistence._CHUNK_ELEMENTS", 100)
    monkeypatch.setattr(persistence, "_TASK_ELEMENTS", 100)
    pieces = births_deaths(pattern)
    np.testing.assert_array_equal(whole.births, pieces.births)
    np.testing.assert_array_equal(whole.deaths, pieces.deaths)


# -- the two ways, and GUDHI --

some_weights = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 7)).map(lambda s: (*s, s[1])),
    # Negative and minus zero too: weights are compared through their bits.
    elements=st.sampled_from([-1.5, -0.0, 0.0, 0.25, 1e-40, 3.0]) | st.floats(-1, 1, width=32),
)


@both_paths
@settings(max_examples=30)
@given(some_weights, st.sampled_from(["causal", "bidirectional"]), st.booleans())
def test_births_and_deaths_are_gudhis_to_the_last_digit_also_on_ties(pattern, attention, double):
    pattern = pattern.astype(np.float64) if double else pattern
    ours = births_deaths(pattern, attention=attention)
    births, deaths = gudhi_sets(pattern, attention)
    assert ours.births.dtype == ours.deaths.dtype == pattern.dtype
    np.testing.assert_array_equal(ours.births, births)
    np.testing.assert_array_equal(ours.deaths, deaths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [17, 161])
def test_larger_matrices_that_are_not_contiguous_are_read_alike(n, dtype):
    pattern = torch.from_numpy(random_patterns(3, n + 2)).to(dtype).mT[:, 1:-1, 1:-1].mT
    with by("compiled"):
        ours = births_deaths(pattern)
    with by("torch"):
        reference = births_deaths(pattern)
    np.testing.assert_array_equal(ours.births, reference.births)
    np.testing.assert_array_equal(ours.deaths, reference.deaths)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_the_result_and_a_late_nan_is_seen(monkeypatch, threads):
    monkeypatch.setattr(persistence, "_TASK_ELEMENTS", 200)
    pattern = random_patterns(40, 6)
    with by("torch"):
        expected = births_deaths(pattern)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with by("compiled"):
            ours = births_deaths(pattern)
            pattern[-1, 0, 5] = np.nan  # above the diagonal: not read, but wrong
            with pytest.raises(InputError, match="NaN or infinite"):
                births_deaths(pattern)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(ours.deaths, expected.deaths)
