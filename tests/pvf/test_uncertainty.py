"""Intervals of risks, by leaving out literally and by simulation; their distributions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pvf.risk import decompose
from pvf.uncertainty import describe, normal_fit, risk_intervals, weighted_quantiles, x_intervals
from tda_bias.stats.clusters import cluster_mean, jackknife_mean
from tests.support.golden import GOLDEN

NAMES = ("R", "R_p", "R_v")


def preferences(seed=0, *, n_x=6, n_contexts=7, classes=3):
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=(n_x, n_contexts))


@pytest.mark.parametrize(("classes", "one_sided"), [(3, False), (2, False), (2, True)])
def test_intervals_over_templates_leave_each_out_of_the_definition(classes, one_sided):
    p, counts, x_weights = preferences(classes=classes), np.arange(1.0, 8), np.arange(1.0, 7)
    options = {"criterion": "l2", "one_sided": one_sided}
    risk = decompose(p, context_weights=counts, x_weights=x_weights, **options)
    found = risk_intervals(risk, over="templates", **options)
    for place, name in enumerate(NAMES):
        without = [
            getattr(
                decompose(
                    np.delete(p, c, axis=1),
                    context_weights=np.delete(counts, c),
                    x_weights=x_weights,
                    **options,
                ),
                name,
            )
            for c in range(7)
        ]
        sure = jackknife_mean(np.log(getattr(risk, name)), np.log(without), counts)
        np.testing.assert_allclose(found[:, place], np.exp(sure.limits()))


def test_intervals_over_x_are_those_of_its_weighted_mean_and_over_both_hold_both_variances():
    risk = decompose(preferences(), x_weights=np.arange(1.0, 7))
    over_x, over_templates, over_both = (
        np.diff(np.log(risk_intervals(risk, over=over)), axis=0)[0]
        for over in ("x", "templates", "both")
    )
    for place, (whole, each) in enumerate(
        ((risk.R, risk.r), (risk.R_p, risk.r_p), (risk.R_v, risk.r_v))
    ):
        mean = cluster_mean(each, weight=risk.x_weights)
        expected = 2 * stats.t.ppf(0.975, mean.df) * mean.error / whole
        assert over_x[place] == pytest.approx(expected)
        assert over_both[place] > max(over_x[place], over_templates[place]) * 0.9


def test_intervals_of_every_x_are_those_of_that_x_alone():
    p, counts = preferences(), np.arange(1.0, 8)
    every = x_intervals(decompose(p, context_weights=counts))
    for i in (0, 4):
        alone = decompose(p[i : i + 1], context_weights=counts)
        one = risk_intervals(alone, over="templates")
        np.testing.assert_allclose(every[:, :, i], one)


def test_a_risk_of_0_and_what_does_not_vary_have_no_interval():
    p = np.repeat(preferences(n_contexts=1), 8, axis=1)
    risk = decompose(p)
    assert np.isnan(x_intervals(risk)).all()


def test_contexts_left_out_for_some_x_stay_out():
    p, weights = preferences(n_x=8, n_contexts=8), np.ones((8, 8))
    weights[0, :2], weights[1, 1:] = 0, 0
    risk = decompose(p, context_weights=weights)
    every = x_intervals(risk)
    alone = x_intervals(decompose(p[:1, 2:]))
    np.testing.assert_allclose(every[:, :, 0], alone[:, :, 0])
    assert np.isnan(every[:, :, 1]).all()  # its only context cannot be left out
    assert np.isfinite(risk_intervals(risk, over="both")).all()


@pytest.mark.parametrize(("over", "n_x", "n_contexts"), [("x", 4, 9), ("templates", 9, 4)])
def test_fewer_than_five_have_no_interval(over, n_x, n_contexts):
    risk = decompose(preferences(n_x=n_x, n_contexts=n_contexts))
    assert np.isnan([risk_intervals(risk, over=over), risk_intervals(risk, over="both")]).all()


@pytest.mark.slow
@pytest.mark.parametrize("n_contexts", [10, 30])
def test_intervals_over_both_cover_the_truth(n_contexts):
    """Of a population of x and of templates, of which a sample of each was seen."""
    generator, runs = np.random.default_rng(3), 600

    def drawn(n_x, n_contexts):
        lean = 0.5 + generator.normal(0, 0.5, (n_x, 1)) + generator.normal(0, 0.5, (1, n_contexts))
        p = 1 / (1 + np.exp(-lean))
        return decompose(np.stack([p, 1 - p], axis=-1))

    whole, covered = drawn(2000, 2000), np.zeros(3)
    truth = [whole.R, whole.R_p, whole.R_v]
    for _ in range(runs):
        low, high = risk_intervals(drawn(40, n_contexts), over="both")
        covered += (low <= truth) & (truth <= high)
    assert (covered / runs >= 0.91).all()
    assert (covered / runs <= 0.98).all()


# -- distributions ---------------------------------------------------------------------------------


def test_normal_fits_are_the_reference_ones_and_nothing_where_nothing_varies():
    (toy,) = GOLDEN["distribution_cases"]
    values = np.array(toy["input"]["values"])
    found = normal_fit(values, n_draws=99, rng=np.random.default_rng(0))
    names = {"sd": "sd_mle", "ks": "ks_normal"}
    for name in ("mean", "sd", "skew", "excess_kurtosis", "ks"):
        expected = toy["expected"][names.get(name, name)]
        assert found[name] == pytest.approx(expected, abs=1e-10)
    assert normal_fit(np.ones(5), rng=np.random.default_rng(0)) == {}


def test_normal_values_pass_and_exponential_ones_fail_the_normal_tests():
    generator = np.random.default_rng(1)
    normal = normal_fit(generator.normal(size=150), rng=generator)
    skewed = normal_fit(generator.exponential(size=150), rng=generator)
    assert min(normal["ks_p"], normal["shapiro_p"]) > 0.05
    assert max(skewed["ks_p"], skewed["shapiro_p"]) < 0.01


@pytest.mark.slow
def test_the_bootstrapped_ks_p_is_uniform_under_normality():
    generator = np.random.default_rng(2)
    found = [
        normal_fit(generator.normal(size=40), n_draws=99, rng=generator)["ks_p"] for _ in range(200)
    ]
    assert stats.kstest(found, "uniform").pvalue > 0.01


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 4)), min_size=1, max_size=12))
def test_weights_act_like_repeated_values(pairs):
    values, weights = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    repeated = np.repeat(values, weights.astype(int))
    levels = (0.2, 0.5, 0.9)
    for level, quantile in zip(levels, weighted_quantiles(values, weights, levels), strict=True):
        assert np.mean(repeated <= quantile) >= level - 1e-9
        assert np.mean(repeated < quantile) <= level + 1e-9


def test_the_description_is_the_weighted_one():
    s, weights = np.array([[-0.5, 0.5, 1.0]]), np.array([[0.2, 0.3, 0.5]])
    (row,) = describe(s, weights).to_dict("records")
    assert row["sd"] == pytest.approx(np.sqrt(0.2 * 1.05**2 + 0.3 * 0.05**2 + 0.5 * 0.45**2))
    assert row["share_positive"] == pytest.approx(0.8)
    assert (row["q05"], row["q25"], row["q50"], row["q95"]) == (-0.5, 0.5, 0.5, 1.0)
