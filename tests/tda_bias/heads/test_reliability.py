"""Controls: length, adjustment and reliability, each against its definition."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from tda_bias.heads.group_result import (
    adjust_for_length,
    random_halves,
    split_half_relative,
    split_half_reliability,
    uniform_pattern,
)
from tda_bias.heads.group_statistic import GroupLayout, group_statistic
from tda_bias.topology.persistence import births_deaths


def clusters(n: int = 7, heads: int = 4, steps: int = 6, seed: int = 0):
    rng = np.random.default_rng(seed)
    return tuple(np.sort(rng.random((n, heads, steps)), axis=-1) for _ in range(3))


def lengths(n: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(8, 40, size=(n, 2))


def gram_of(*parts: np.ndarray) -> tuple[np.ndarray, GroupLayout]:
    """Inner products about an origin that means nothing."""
    texts = np.moveaxis(np.concatenate(parts) - 0.3, 1, 0)
    n = len(parts[0])
    return texts @ texts.mT / texts.shape[-1], GroupLayout(n, n * (len(parts) - 2))


@pytest.mark.parametrize("n", [3, 5, 9])
def test_uniform_attention_has_sets_in_closed_form(n):
    """Token i hangs on one edge of weight 1 / (i + 1); its other i - 1 edges close cycles."""
    births, deaths = vars(births_deaths(uniform_pattern(n, "causal"))).values()
    np.testing.assert_allclose(births, sorted(1 / (i + 1) for i in range(1, n)))
    closing = [1 / (i + 1) for i in range(1, n) for _ in range(i - 1)]
    np.testing.assert_allclose(deaths, sorted(closing))
    uniform = births_deaths(uniform_pattern(n, "bidirectional"), attention="bidirectional")
    for values in vars(uniform).values():
        np.testing.assert_allclose(values, 1 / n)


def test_adjusting_replaces_q_by_its_residual_plus_the_mean():
    stat, n_tokens = group_statistic(*clusters()), lengths()
    adjusted = adjust_for_length(stat, n_tokens)
    length = n_tokens.T.reshape(-1).astype(float)
    design = np.column_stack([np.ones_like(length), length])
    for head in range(4):
        q = np.concatenate([stat.q_stereotype[:, head], stat.q_anti[:, head]])
        coefficients, *_ = np.linalg.lstsq(design, q, rcond=None)
        expected = q - design @ coefficients + q.mean()
        found = np.concatenate([adjusted.q_stereotype[:, head], adjusted.q_anti[:, head]])
        np.testing.assert_allclose(found, expected, atol=1e-12)
        difference = expected[7:].mean() - expected[:7].mean()
        np.testing.assert_allclose(adjusted.S[head], difference / stat.var_unrelated[head])
    np.testing.assert_array_equal(adjusted.var_anti, stat.var_anti)


def test_adjusting_removes_an_effect_that_is_only_length():
    """Anti-stereotype texts are longer, and distance grows with length alone."""
    rng = np.random.default_rng(0)
    n_tokens = np.column_stack([rng.integers(8, 15, 30), rng.integers(12, 40, 30)])
    direction = rng.normal(size=(2, 30, 1, 5))
    s, a = (d * np.sqrt(n)[:, None, None] for d, n in zip(direction, n_tokens.T, strict=True))
    stat = group_statistic(s, a, rng.normal(size=(30, 1, 5)))
    adjusted = adjust_for_length(stat, n_tokens)
    assert abs(adjusted.relative[0]) < 0.5 * abs(stat.relative[0])


def test_halves_are_disjoint_and_of_equal_size():
    member = random_halves(9, 50, np.random.default_rng(0))
    assert member.shape == (50, 2, 9)
    assert (member.sum(2) == 4).all()
    assert not (member[:, 0] & member[:, 1]).any()


@pytest.mark.parametrize("adjust", [False, True])
def test_the_statistic_of_a_half_is_the_one_computed_from_its_contexts_alone(adjust):
    s, a, u = clusters(n=9)
    n_tokens = lengths(9)
    halves = random_halves(9, 10, np.random.default_rng(1))
    found = split_half_relative(*gram_of(s, a), halves, n_tokens if adjust else None)
    for split in range(10):
        for half in range(2):
            chosen = halves[split, half]
            stat = group_statistic(s[chosen], a[chosen], u)
            if adjust:
                stat = adjust_for_length(stat, n_tokens[chosen])
            np.testing.assert_allclose(found[split, half], stat.relative, atol=1e-10)


def test_halves_are_the_same_in_pieces(monkeypatch):
    s, a, _ = clusters(n=9)
    halves = random_halves(9, 10, np.random.default_rng(1))
    whole = split_half_relative(*gram_of(s, a), halves)
    monkeypatch.setattr("tda_bias.heads.group_result._BLOCK", 100)
    pieces = split_half_relative(*gram_of(s, a), halves)
    np.testing.assert_allclose(whole, pieces, atol=1e-12)


def test_reliability_is_the_corrected_mean_correlation_of_halves():
    halves = np.random.default_rng(0).random((5, 2, 12))
    halves[:, 1] += 2 * halves[:, 0]
    mean = np.mean([spearmanr(x, y).statistic for x, y in halves])
    np.testing.assert_allclose(split_half_reliability(halves), 2 * mean / (1 + mean))


def test_reliability_is_one_for_the_same_order_and_undefined_without_variation():
    same = np.tile(np.arange(6.0), (4, 2, 1))
    assert split_half_reliability(same) == pytest.approx(1.0)
    assert np.isnan(split_half_reliability(np.ones((4, 2, 6))))
    opposed = same.copy()
    opposed[:, 1] *= -1
    assert split_half_reliability(opposed) == pytest.approx(-1.0)


def test_reliability_leaves_out_undefined_heads():
    halves = np.random.default_rng(0).random((3, 2, 8))
    expected = split_half_reliability(halves[:, :, 1:])
    halves[1, 0, 0] = np.nan
    assert split_half_reliability(halves) == pytest.approx(expected)
