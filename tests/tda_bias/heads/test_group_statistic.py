"""The group statistic: against its definition, its identity, and what swaps do to it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.heads.group_statistic import group_statistic, unstable_heads
from tda_bias.types import InputError


def clusters(seed: int, n: int = 5, k: int = 5, steps: int = 7, heads: int = 3):
    rng = np.random.default_rng(seed)
    return tuple(np.sort(rng.random((m, heads, steps)), axis=-1) for m in (n, n, k))


def variance(f: np.ndarray) -> np.ndarray:
    """Mean over texts of the mean squared difference to the cluster's centre."""
    centre = f.mean(0)
    return np.mean([((one - centre) ** 2).mean(-1) for one in f], axis=0)


def literal_S(s: np.ndarray, a: np.ndarray, u: np.ndarray) -> np.ndarray:
    return (variance(a) - variance(s)) / variance(u)


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (lambda s, a, u: (s[1:], a, u), r"same shape \(n, ..., steps\)"),
        (lambda s, a, u: (s, a, u[..., 1:]), "same shape"),
        (lambda s, a, u: (s[:1], a[:1], u), "at least 2 texts per role; got 1 and 5"),
        (lambda s, a, u: (s * np.nan, a, u), "NaN or infinite"),
    ],
)
def test_clusters_that_cannot_be_compared_are_refused(spoiled, message):
    with pytest.raises(InputError, match=message):
        group_statistic(*spoiled(*clusters(0)))


@given(st.integers(0, 10_000), st.integers(2, 8), st.integers(2, 8), st.integers(1, 9))
def test_S_and_the_variances_are_the_defined_ones(seed, n, k, steps):
    s, a, u = clusters(seed, n, k, steps)
    found = group_statistic(s, a, u)
    np.testing.assert_allclose(found.var_stereotype, variance(s), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found.var_anti, variance(a), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found.var_unrelated, variance(u), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found.S, literal_S(s, a, u), rtol=1e-7, atol=1e-9)
    by_q = (found.q_anti.mean(0) - found.q_stereotype.mean(0)) / found.var_unrelated
    np.testing.assert_allclose(by_q, found.S, rtol=1e-7, atol=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 7), st.data())
def test_swapping_two_texts_changes_S_by_the_swap_matrix_entry(seed, n, data):
    s, a, u = clusters(seed, n)
    i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    before = group_statistic(s, a, u)
    swapped_s, swapped_a = s.copy(), a.copy()
    swapped_s[i], swapped_a[j] = a[j], s[i]
    entry = 2 * (before.q_stereotype[i] - before.q_anti[j]) / (n * before.var_unrelated)
    np.testing.assert_allclose(
        literal_S(swapped_s, swapped_a, u), before.S + entry, rtol=1e-7, atol=1e-9
    )


@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(-5, 5))
def test_the_unit_and_the_origin_of_the_weights_do_not_matter(seed, factor, shift):
    s, a, u = clusters(seed)
    plain, moved = (
        group_statistic(s, a, u),
        group_statistic(*(f * factor + shift for f in (s, a, u))),
    )
    np.testing.assert_allclose(plain.S, moved.S, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(plain.relative, moved.relative, rtol=1e-5, atol=1e-7)
    assert (np.abs(plain.relative) <= 1).all()


def test_identical_texts_are_undefined_with_a_reason_and_not_zero():
    s, a, u = clusters(0)
    s[:, 0], a[:, 0], u[:, 1] = 0.5, 0.5, 0.25
    found = group_statistic(s, a, u)
    assert np.isnan(found.relative[0])
    assert found.reason[0].startswith("pooled variance below")
    assert np.isnan(found.S[1])
    assert found.reason[1] == "unrelated texts do not vary"
    assert found.reason[2] == ""
    assert np.isfinite(found.S[2])


def test_heads_whose_unrelated_texts_hardly_vary_are_flagged():
    variances = np.ones((2, 3, 4))
    variances[0, 1, 2] = 0.9e-3
    flagged = unstable_heads(variances)
    assert flagged[0, 1, 2]
    assert flagged.sum() == 1
