"""The test of a change: by brute force, by its properties, and calibrated."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.comparison.outcome import Guard
from tda_bias.comparison.paired import _intervals, _totals, is_kept, paired_change
from tda_bias.stats.resampling import holm
from tests.support.measures import paired


def made_up(rng, clusters=8, size=3, effect=0.0):
    cluster = np.repeat(np.arange(clusters), size)
    shared = rng.normal(size=clusters)[cluster]
    before = rng.normal(size=len(cluster))
    after = before + effect + shared + rng.normal(size=len(cluster))
    return paired(before, after, cluster, weight=rng.uniform(0.5, 2, len(cluster)))


def test_p_is_the_share_of_all_exchanges_of_whole_clusters_that_reach_the_change():
    table = made_up(np.random.default_rng(1), clusters=7, effect=0.5)
    found = paired_change(table, n_resamples=100)
    weight = table["weight"]
    change = ((table["after"] - table["before"]) * weight).groupby(table["cluster"]).sum()
    literal = [
        sum(sign * own for sign, own in zip(signs, change, strict=True)) / weight.sum()
        for signs in product((1, -1), repeat=7)
    ]
    assert found.change == pytest.approx(change.sum() / weight.sum(), rel=1e-12)
    assert found.p == np.mean(np.abs(literal) >= abs(found.change) - 1e-12)


def test_before_and_after_are_weighted_means():
    table = made_up(np.random.default_rng(2))
    found = paired_change(table, n_resamples=100)
    for name in ("before", "after"):
        expected = np.average(table[name], weights=table["weight"])
        assert getattr(found, name) == pytest.approx(expected, rel=1e-12)


def test_intervals_are_scipys_of_whole_clusters():
    """Equal weights and clusters of one item: the mean of differences, drawn by SciPy alone."""
    rng = np.random.default_rng(3)
    table = paired(np.zeros(30), rng.exponential(size=30), np.arange(30))
    found = paired_change(table, n_resamples=20_000)
    theirs = stats.bootstrap((table["after"],), np.mean, n_resamples=20_000, rng=7)
    np.testing.assert_allclose(
        [found.low, found.high], theirs.confidence_interval, atol=0.03, rtol=0
    )


def test_exchanging_the_models_changes_the_signs_and_nothing_else():
    table = made_up(np.random.default_rng(4), effect=0.4)
    found = paired_change(table, n_resamples=500)
    back = paired_change(
        table.rename(columns={"before": "after", "after": "before"}), n_resamples=500
    )
    assert back.p == found.p
    assert back.change == pytest.approx(-found.change)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low), abs=0.1)


def test_a_model_that_changes_nothing_has_p_1_and_an_interval_of_0():
    values = np.arange(24.0)
    found = paired_change(paired(values, values, np.arange(24) // 2), n_resamples=100)
    assert (found.change, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_fewer_than_six_clusters_are_said_and_items_are_drawn_instead():
    rng = np.random.default_rng(5)
    few = paired_change(made_up(rng, clusters=5), n_resamples=100)
    enough = paired_change(made_up(rng, clusters=6), n_resamples=100)
    assert (few.over, few.clusters, few.items) == ("items", 5, 15)
    assert (enough.over, enough.clusters) == ("clusters", 6)


def test_items_without_a_value_are_left_out_and_none_at_all_has_a_reason():
    table = made_up(np.random.default_rng(6))
    lacking = pd.concat([table, table.assign(after=np.nan)], ignore_index=True)
    found, expected = (paired_change(own, n_resamples=100) for own in (lacking, table))
    assert replace(found, worst=0) == replace(expected, worst=0)
    nothing = paired_change(table.assign(after=np.nan))
    assert np.isnan(nothing.change)
    assert nothing.reason == "no item has a value"


def test_one_item_has_a_change_and_no_interval():
    found = paired_change(paired([1.0], [2.0], [0]), n_resamples=100)
    assert found.change == 1
    assert np.isnan([found.low, found.high]).all()
    assert found.reason == "one item or cluster has no interval"


def test_a_distance_has_no_p_because_it_cannot_be_below_0():
    found = paired_change(paired(np.zeros(8), np.ones(8), np.arange(8)), tested=False)
    assert np.isnan(found.p)
    assert "nothing to test" in found.reason


@pytest.mark.parametrize("worse", [1, -1])
def test_a_guard_is_kept_where_the_bound_on_the_worse_side_is_within_the_margin(worse):
    rng = np.random.default_rng(7)
    table = paired(np.zeros(40), worse + rng.normal(size=40), np.arange(40))
    found = paired_change(table, guard=Guard(0.1, worse, "0.1"), n_resamples=1000)
    two_sided = paired_change(table, confidence=0.9, n_resamples=1000)
    expected = two_sided.high if worse > 0 else two_sided.low
    assert found.worst == pytest.approx(expected, abs=0.05)
    assert is_kept(Guard(abs(found.worst) + 0.01, worse, ""), found.worst)
    assert not is_kept(Guard(abs(found.worst) - 0.01, worse, ""), found.worst)
    assert not is_kept(Guard(1.0, worse, ""), float("nan"))


def test_few_comparisons_cannot_rule_out_a_loss_even_where_nothing_is_lost():
    """The bound of a share of which none was seen: the p of 0 losses in n is .05 there."""
    guard = Guard(1.0, -1, "1 point", wins=2)
    few, many = (
        paired_change(
            paired(np.full(n, 50.0), np.full(n, 50.0), np.arange(n)), guard=guard, n_resamples=100
        )
        for n in (12, 400)
    )
    assert stats.binom.pmf(0, 24, -few.worst / 100) == pytest.approx(0.05)
    assert not is_kept(guard, few.worst)
    assert is_kept(guard, many.worst)
    # One gain among many items that stay as they are: BCa alone would promise a gain.
    after = np.full(12, 50.0)
    after[3] = 100
    found = paired_change(paired(np.full(12, 50.0), after, np.arange(12)), guard=guard)
    assert found.worst == pytest.approx(few.worst)


def test_holm_is_the_literal_step_down_and_leaves_undefined_ones():
    p = np.array([0.01, np.nan, 0.04, 0.03])
    np.testing.assert_allclose(holm(p), [0.03, np.nan, 0.06, 0.06])


@pytest.mark.slow
def test_p_is_uniform_where_nothing_changes_and_items_of_a_cluster_go_together():
    pvalues = []
    for seed in range(400):
        table = made_up(np.random.default_rng(seed), clusters=20, size=6)
        pvalues.append(paired_change(table, n_resamples=2, n_flips=199, seed=seed).p)
    below = np.mean(np.array(pvalues) <= 0.05)
    assert 0.025 <= below <= 0.08
    assert stats.kstest(pvalues, "uniform").pvalue > 0.01
    # The same items as if they were independent: what clustering is for.
    naive = [
        stats.ttest_1samp(
            (lambda t: t["after"] - t["before"])(
                made_up(np.random.default_rng(seed), clusters=20, size=6)
            ),
            0,
        ).pvalue
        for seed in range(400)
    ]
    assert np.mean(np.array(naive) <= 0.05) > 0.15


@pytest.mark.slow
@pytest.mark.parametrize(("clusters", "least"), [(10, 0.85), (40, 0.91)])
def test_intervals_cover_the_true_change_and_guards_fail_as_often_as_they_say(clusters, least):
    covered, kept = [], []
    guard = Guard(0.5, 1, "")
    for seed in range(300):
        rng = np.random.default_rng(seed)
        table = made_up(rng, clusters=clusters, size=4, effect=0.5).assign(weight=1.0)
        found = paired_change(table, guard=guard, n_resamples=400, n_flips=99, seed=seed)
        covered.append(found.low <= 0.5 <= found.high)
        # The truth lies on the margin: passing it is the error that is bounded.
        kept.append(is_kept(guard, found.worst))
    assert least <= np.mean(covered) <= 0.985
    assert np.mean(kept) <= (0.12 if clusters == 10 else 0.09)


# -- several trainings -----------------------------------------------------------------------------


def trained(rng, trainings, *, clusters=10, size=3, between=0.0):
    """Changes with noise of items and, shared by all items, of trainings."""
    table = made_up(rng, clusters=clusters, size=size)
    for number in range(1, trainings + 1):
        noise = rng.normal(scale=0.3, size=len(table))
        values = table["before"] + 0.5 + between * rng.normal() + noise
        table["after" if number == 1 else f"after_{number}"] = values
    return table


def test_the_change_of_several_trainings_is_the_mean_of_theirs_and_spread_their_deviation():
    table = trained(np.random.default_rng(11), 3, between=1.0)
    change = paired_change(table, n_resamples=100)
    names = ["after", "after_2", "after_3"]
    each = [
        paired_change(
            table[["cluster", "weight", "before", name]].rename(columns={name: "after"}),
            n_resamples=100,
        ).change
        for name in names
    ]
    assert change.change == pytest.approx(np.mean(each))
    assert change.spread == pytest.approx(np.std(each, ddof=1))
    assert np.isnan(paired_change(made_up(np.random.default_rng(0)), n_resamples=100).spread)


def test_trainings_that_agree_have_the_interval_of_one():
    table = made_up(np.random.default_rng(12), clusters=9)
    again = table.assign(after_2=table["after"], after_3=table["after"])
    first, second = (paired_change(t, n_resamples=4000) for t in (table, again))
    assert (second.low, second.high) == pytest.approx((first.low, first.high), abs=0.12)
    assert second.spread == 0


def test_resamples_draw_clusters_and_trainings_independently():
    """The literal nested bootstrap, its percentile limits against ours."""
    table = trained(np.random.default_rng(13), 5, clusters=12, between=0.8)
    rng, literal = np.random.default_rng(0), []
    names = ["after", "after_2", "after_3", "after_4", "after_5"]
    parts = {cluster: part for cluster, part in table.groupby("cluster")}
    for _ in range(3000):
        drawn = pd.concat([parts[c] for c in rng.choice(list(parts), len(parts))])
        mean = drawn[rng.choice(names, len(names))].mean(axis=1)
        literal.append(np.average(mean - drawn["before"], weights=drawn["weight"]))
    totals = _totals(table, table["cluster"].factorize()[0], ["before", *names])
    intervals = _intervals(totals, 0.95, n_resamples=4000, rng=np.random.default_rng(1))
    np.testing.assert_allclose(
        intervals.limits("percentile"), np.quantile(literal, [0.025, 0.975]), atol=0.08, rtol=0
    )
    assert intervals.standard_error == pytest.approx(np.std(literal), rel=0.08)


def test_trainings_that_differ_widen_the_interval():
    rng = np.random.default_rng(14)
    alike, unlike = (
        paired_change(trained(rng, 5, between=between), n_resamples=1000) for between in (0.0, 1.0)
    )
    assert unlike.high - unlike.low > 2 * (alike.high - alike.low)


def test_an_item_that_one_training_lacks_is_left_out():
    table = trained(np.random.default_rng(15), 2)
    table.loc[0, "after_2"] = np.nan
    assert paired_change(table, n_resamples=100).items == len(table) - 1
