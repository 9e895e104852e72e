"""The one interval over clusters: literal matrices, SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import fractional_matrix_power

from tda_bias.stats.clusters import (
    FEWEST_CLUSTERS,
    cluster_mean,
    jackknife_mean,
    resampled_error,
    student_quantile,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def literal(y, cluster, weight=None):
    """CR2 and its df by matrices (Bell & McCaffrey 2002) where sqrt(w) makes errors alike."""
    root = np.sqrt(np.ones(len(y)) if weight is None else weight)
    x, y = root[:, None], root * y
    bread = np.linalg.inv(x.T @ x)
    hat = x @ bread @ x.T
    residual_maker = np.eye(len(y)) - hat
    residuals = residual_maker @ y
    meat, vectors = 0.0, []
    for label in np.unique(cluster):
        rows = np.flatnonzero(np.asarray(cluster) == label)
        adjusted = fractional_matrix_power(residual_maker[np.ix_(rows, rows)], -0.5).real
        score = bread @ x[rows].T @ adjusted
        meat += (score @ residuals[rows]).item() ** 2
        vectors.append((score @ residual_maker[rows])[0])
    gram = np.array(vectors) @ np.array(vectors).T
    return np.sqrt(meat), np.trace(gram) ** 2 / (gram**2).sum()


@pytest.mark.parametrize("n", [3, 8, 40])
def test_the_smallest_mean_is_found_four_times_out_of_five(n):
    from statsmodels.stats.power import TTestPower

    y = rng(n).normal(size=n)
    effect = cluster_mean(y).smallest() / y.std(ddof=1)
    assert TTestPower().power(effect, n, 0.05) == pytest.approx(0.8, abs=1e-9)


def test_no_smallest_mean_where_nothing_varies_and_of_one_cluster():
    assert np.isnan(cluster_mean(np.ones(5)).smallest())
    assert np.isnan(cluster_mean(np.arange(5.0), ["a"] * 5).smallest())


CLUSTERS = np.repeat(list("abcdefg"), [1, 2, 3, 3, 5, 8, 4])


@pytest.mark.parametrize("weighted", [False, True])
def test_error_and_degrees_of_freedom_are_those_of_the_matrices_of_cr2(weighted):
    y = rng().normal(size=len(CLUSTERS)) + rng(1).normal(size=7)[np.unique(CLUSTERS, True, True)[2]]
    weight = rng(2).uniform(0.2, 3, len(y)) if weighted else None
    order = rng(3).permutation(len(y))
    found = cluster_mean(
        y[order], CLUSTERS[order], weight=weight if weight is None else weight[order]
    )
    error, df = literal(y, CLUSTERS, weight)
    assert found.mean == pytest.approx(np.average(y, weights=weight))
    assert (found.error, found.df) == (pytest.approx(error), pytest.approx(df))
    half = stats.t.ppf(0.95, df) * error
    assert found.limits(0.9) == pytest.approx((found.mean - half, found.mean + half))
    assert (found.clusters, found.items) == (7, 26)


def test_items_without_clusters_have_students_interval_and_so_have_clusters_of_one_size():
    y = rng(4).exponential(size=12)
    expected = stats.ttest_1samp(y, 0).confidence_interval(0.95)
    assert cluster_mean(y).limits() == pytest.approx(tuple(expected))
    assert cluster_mean(y).df == pytest.approx(11)
    y = rng(5).normal(size=(8, 3))
    found = cluster_mean(y.ravel(), np.repeat(np.arange(8), 3))
    expected = stats.ttest_1samp(y.mean(1), 0).confidence_interval(0.95)
    assert found.limits() == pytest.approx(tuple(expected))


def test_items_without_a_value_and_their_clusters_are_left_out():
    y, cluster = rng(6).normal(size=20), np.repeat(np.arange(10), 2)
    lacking = y.copy()
    lacking[[0, 1, 4]] = np.nan
    kept = np.isfinite(lacking)
    assert cluster_mean(lacking, cluster) == cluster_mean(y[kept], cluster[kept])
    assert cluster_mean(lacking, cluster).clusters == 9


@pytest.mark.parametrize(
    ("values", "cluster"),
    [
        (np.empty(0), None),
        (np.full(9, np.nan), None),
        (np.arange(9.0), np.zeros(9)),
        (np.arange(9.0), np.arange(9) % (FEWEST_CLUSTERS - 1)),
    ],
)
def test_there_is_no_interval_without_items_for_one_cluster_or_for_too_few(values, cluster):
    found = cluster_mean(values, cluster)
    assert np.isnan([*found.limits(), *found.share_limits()]).all()
    assert np.isnan(found.mean) == (np.isfinite(values).sum() == 0)


def test_what_does_not_vary_has_no_interval_but_a_share_of_all_has():
    found = cluster_mean(np.full(30, 0.1), np.repeat(np.arange(6), 5))
    assert found.error == 0
    assert np.isnan(found.limits()).all()
    low, high = cluster_mean(np.ones(30), np.repeat(np.arange(6), 5)).share_limits()
    t2 = stats.t.ppf(0.975, 5) ** 2
    assert (low, high) == (pytest.approx(30 / (30 + t2)), pytest.approx(1))


def test_a_share_has_wilsons_interval_with_t_for_z():
    won = np.repeat([1.0, 0.0], [13, 27])
    found = cluster_mean(won)
    t = stats.t.ppf(0.975, 39)
    # Wilson's limits are where the score statistic is t; n - 1 items give the standard error.
    for limit in found.share_limits():
        assert abs(13 / 40 - limit) / np.sqrt(limit * (1 - limit) / 39) == pytest.approx(t)
    near_one = cluster_mean(np.repeat([1.0, 0.0], [39, 1])).share_limits()
    assert 0 < near_one[0] < near_one[1] < 1


def test_a_second_sample_adds_its_variance_and_takes_degrees_of_freedom():
    one, other = cluster_mean(rng(7).normal(size=20)), cluster_mean(rng(8).normal(size=3))
    both = one.plus(other)
    variances = one.error**2, other.error**2
    assert both.error**2 == pytest.approx(sum(variances))
    expected = sum(variances) ** 2 / (variances[0] ** 2 / 19 + variances[1] ** 2 / 2)
    assert both.df == pytest.approx(expected)
    constant = cluster_mean(np.ones(20))
    assert constant.plus(cluster_mean(np.ones(3))) == constant


@pytest.mark.parametrize("weight", [None, np.array([1.0, 2, 3, 1, 5, 4, 2])])
def test_the_jackknife_of_a_mean_is_its_cr2(weight):
    """Leaving out is exact for a mean."""
    y = rng(9).normal(size=7)
    given = np.ones(7) if weight is None else weight
    without = [np.average(np.delete(y, k), weights=np.delete(given, k)) for k in range(7)]
    found = jackknife_mean(np.average(y, weights=weight), np.array(without), weight)
    expected = cluster_mean(y, weight=weight)
    assert found.limits() == pytest.approx(expected.limits())
    assert np.isnan(jackknife_mean(0.0, np.array([1.0, -np.inf, *y])).limits()).all()


def test_a_jackknife_of_what_differs_by_rounding_has_no_interval():
    without = 0.1 + 1e-17 * np.arange(8) + np.spacing(0.1) * np.array([0, 1, 0, 1, 0, 1, 0, 1])
    assert np.ptp(without) > 0
    found = jackknife_mean(0.1, without)
    assert (found.mean, found.error) == (0.1, 0)
    assert np.isnan(found.limits()).all()


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_a_quantile_leaves_half_of_the_rest_above_it(confidence):
    assert stats.t.sf(student_quantile(7, confidence), 7) == pytest.approx((1 - confidence) / 2)


# -- the bootstrap ---------------------------------------------------------------------------------


def test_a_resampled_error_is_the_deviation_over_literal_draws_within_strata():
    values, strata = rng(12).normal(size=(9, 2)), np.array([0, 1, 0, 1, 1, 2, 2, 0, 2])

    def mean(weight):
        return weight @ values / weight.sum()

    found = resampled_error(mean, strata, n_resamples=60, rng=rng(13))
    twin, draws = rng(13), []
    for _ in range(60):
        drawn = [twin.choice(np.flatnonzero(strata == one), 3) for one in range(3)]
        draws.append(values[np.concatenate(drawn)].mean(0))
    np.testing.assert_allclose(found, np.std(draws, axis=0, ddof=1))


def test_a_resampled_error_of_a_mean_is_scipys_bootstrap():
    values = rng(14).normal(size=30)
    found = resampled_error(
        lambda weight: np.average(values, weights=weight),
        np.zeros(30, dtype=int), n_resamples=4000, rng=rng(15),
    )  # fmt: skip
    reference = stats.bootstrap((values,), np.mean, n_resamples=4000, rng=rng(16))
    assert found == pytest.approx(reference.standard_error, rel=0.05)


def test_a_resampled_error_is_over_draws_in_which_the_number_is_defined():
    """And NaN where the number does not vary."""

    def statistic(weight):
        return np.array([weight[0] if weight[1] > 0 else np.nan, 0.1 + 0.2 * weight.sum()])

    found = resampled_error(statistic, np.zeros(4, dtype=int), n_resamples=300, rng=rng(17))
    twin = rng(17)
    draws = [np.bincount(twin.choice(np.arange(4), 4), minlength=4) for _ in range(300)]
    known = [weight[0] for weight in draws if weight[1] > 0]
    assert len(known) < 300
    assert found[0] == pytest.approx(np.std(known, ddof=1))
    assert np.isnan(found[1])


@given(
    st.lists(st.floats(-3, 3), min_size=6, max_size=20, unique=True),
    st.floats(-3, 3),
)
def test_p_is_below_05_where_the_interval_excludes_the_neutral_value(values, neutral):
    mean = cluster_mean(np.array(values))
    low, high = mean.limits()
    p = mean.pvalue(neutral)
    if np.isnan(low):
        assert np.isnan(p)
    elif abs(p - 0.05) > 1e-9:
        assert (p < 0.05) == (not low <= neutral <= high)


@given(st.integers(5, 30), st.integers(0, 30), st.floats(0.05, 0.95))
def test_p_of_a_share_agrees_with_its_interval(n, wins, neutral):
    mean = cluster_mean(np.array([1.0] * min(wins, n) + [0.0] * (n - min(wins, n))))
    low, high = mean.share_limits()
    p = mean.share_pvalue(neutral)
    if abs(p - 0.05) > 1e-9:
        assert (p < 0.05) == (not low <= neutral <= high)


def test_fewer_clusters_than_an_interval_needs_have_no_p_either():
    mean = cluster_mean(np.array([1.0, 0.0, 1.0, 1.0]))
    assert np.isnan(mean.pvalue())
    assert np.isnan(mean.share_pvalue())
