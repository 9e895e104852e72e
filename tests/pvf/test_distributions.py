import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pvf.distributions import (
    compare_tails,
    density,
    describe,
    fit_normal,
    hill,
    survival,
    weighted_ecdf,
    weighted_quantiles,
)
from tda_bias.types import InputError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pvf_unqover.json").read_text())
(TOY,) = GOLDEN["distribution_cases"]
VALUES = np.array(TOY["input"]["values"])


def test_the_fit_is_the_reference_one():
    expected = TOY["expected"]
    found = fit_normal(VALUES, n_draws=99, rng=np.random.default_rng(0))
    assert found.mean == pytest.approx(expected["mean"], abs=1e-10)
    assert found.sd == pytest.approx(expected["sd_mle"], abs=1e-10)
    assert found.skew == pytest.approx(expected["skew"], abs=1e-10)
    assert found.excess_kurtosis == pytest.approx(expected["excess_kurtosis"], abs=1e-10)
    assert found.ks == pytest.approx(expected["ks_normal"], abs=1e-10)


def test_the_hill_index_is_the_reference_one():
    found = hill(VALUES, TOY["input"]["hill_k"])
    assert found.gamma == pytest.approx(TOY["expected"]["hill_gamma"], abs=1e-10)
    assert found.alpha == pytest.approx(TOY["expected"]["hill_alpha"], abs=1e-10)
    assert found.low < found.gamma < found.high


def test_normal_values_pass_and_exponential_ones_fail_the_normal_tests():
    generator = np.random.default_rng(1)
    normal = fit_normal(generator.normal(size=150), rng=generator)
    skewed = fit_normal(generator.exponential(size=150), rng=generator)
    assert min(normal.ks_p, normal.shapiro_p) > 0.05
    assert max(skewed.ks_p, skewed.shapiro_p) < 0.01


@pytest.mark.slow
def test_the_bootstrapped_ks_p_is_uniform_under_normality():
    generator = np.random.default_rng(2)
    found = [
        fit_normal(generator.normal(size=40), n_draws=99, rng=generator).ks_p for _ in range(200)
    ]
    assert stats.kstest(found, "uniform").pvalue > 0.01


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 4)), min_size=1, max_size=12))
def test_weights_act_like_repeated_values(pairs):
    values, weights = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    repeated = np.repeat(values, weights.astype(int))
    found, share = weighted_ecdf(values, weights)
    for value in np.unique(values):
        assert share[found == value].max() == pytest.approx(np.mean(repeated <= value))
    for level, quantile in zip(
        (0.2, 0.5, 0.9), weighted_quantiles(values, weights, (0.2, 0.5, 0.9)), strict=True
    ):
        assert np.mean(repeated <= quantile) >= level - 1e-9
        assert np.mean(repeated < quantile) <= level + 1e-9


def test_the_description_is_the_weighted_one():
    s, weights = np.array([[-0.5, 0.5, 1.0]]), np.array([[0.2, 0.3, 0.5]])
    (row,) = describe(s, weights).to_dict("records")
    assert row["mean"] == pytest.approx(0.55)
    assert row["sd"] == pytest.approx(np.sqrt(0.2 * 1.05**2 + 0.3 * 0.05**2 + 0.5 * 0.45**2))
    assert row["share_positive"] == pytest.approx(0.8)
    assert (row["q05"], row["q25"], row["q50"], row["q95"]) == (-0.5, 0.5, 0.5, 1.0)


def test_the_density_uses_silverman_on_the_effective_number():
    values, weights = np.array([0.1, 0.4, 0.8]), np.array([0.6, 0.2, 0.2])
    found = density(values, weights)
    n = 1 / np.sum(weights**2)
    assert found.factor == pytest.approx((n * 3 / 4) ** (-1 / 5))
    with pytest.raises(InputError, match="at least two different values"):
        density(np.ones(3), np.ones(3))


@pytest.mark.parametrize(("draw", "winner"), [("exponential", "exponential"), ("pareto", "Pareto")])
def test_the_tail_that_made_the_values_wins(draw, winner):
    generator = np.random.default_rng(4)
    values = (
        generator.exponential(1, 2000) + 1
        if draw == "exponential"
        else generator.pareto(2, 2000) + 1
    )
    found = {(c.first, c.second): c for c in compare_tails(values, threshold=1.0)}
    direct = found["exponential", "Pareto"]
    assert direct.p < 0.001
    assert (direct.z > 0) == (winner == "exponential")


def test_the_tail_likelihoods_are_those_of_the_definitions():
    generator = np.random.default_rng(5)
    values = generator.exponential(1, 50) + 0.5
    comparison = next(c for c in compare_tails(values, threshold=0.5) if c.first == "exponential")
    rate, alpha = 1 / (values.mean() - 0.5), 50 / np.log(values / 0.5).sum()
    exponential = np.log(rate) - rate * (values - 0.5)
    pareto = np.log(alpha) + alpha * np.log(0.5) - (alpha + 1) * np.log(values)
    difference = exponential - pareto
    assert comparison.ratio == pytest.approx(difference.sum())
    assert comparison.z == pytest.approx(difference.sum() / (difference.std() * np.sqrt(50)))


def test_too_few_values_have_no_tail():
    with pytest.raises(InputError, match="a tail needs at least 5"):
        compare_tails(np.array([0.0, 0.1, 0.2]))
    with pytest.raises(InputError, match="`k` must lie between 1 and 2; got 3"):
        hill(np.array([0.0, 0.1, 0.2, 0.3]), 3)
    with pytest.raises(InputError, match="at least 3 values"):
        fit_normal(np.ones(9), rng=np.random.default_rng(0))


def test_survival_counts_zeros_among_all():
    values, share = survival(np.array([0.0, 0.5, 0.2, 0.0]))
    np.testing.assert_allclose(values, [0.2, 0.5])
    np.testing.assert_allclose(share, [0.5, 0.25])
