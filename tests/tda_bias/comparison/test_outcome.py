"""The change of an outcome: by brute force, by its properties, and calibrated."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.comparison.outcome import Guard, is_kept, paired_change
from tda_bias.stats.clusters import cluster_mean
from tests.support.measures import paired


def made_up(rng, clusters=8, size=3, effect=0.0):
    cluster = np.repeat(np.arange(clusters), size)
    shared = rng.normal(size=clusters)[cluster]
    before = rng.normal(size=len(cluster))
    after = before + effect + shared + rng.normal(size=len(cluster))
    return paired(before, after, cluster, weight=rng.uniform(0.5, 2, len(cluster)))


def test_p_is_the_share_of_all_exchanges_of_whole_clusters_that_reach_the_change():
    table = made_up(np.random.default_rng(1), clusters=7, effect=0.5)
    found = paired_change(table)
    weight = table["weight"]
    change = ((table["after"] - table["before"]) * weight).groupby(table["cluster"]).sum()
    literal = [
        sum(sign * own for sign, own in zip(signs, change, strict=True)) / weight.sum()
        for signs in product((1, -1), repeat=7)
    ]
    assert found.change == pytest.approx(change.sum() / weight.sum(), rel=1e-12)
    assert found.p == np.mean(np.abs(literal) >= abs(found.change) - 1e-12)


def test_the_interval_is_that_of_the_weighted_changes_over_clusters():
    table = made_up(np.random.default_rng(3))
    found = paired_change(table, confidence=0.9)
    change = (table["after"] - table["before"]).to_numpy()
    expected = cluster_mean(change, table["cluster"], weight=table["weight"].to_numpy()).limits(0.9)
    assert (found.low, found.high) == pytest.approx(expected)


def test_a_model_that_changes_nothing_has_p_1_and_no_interval_but_keeps_its_guard():
    values = np.arange(24.0)
    guard = Guard(0.1, 1, "0.1")
    found = paired_change(paired(values, values, np.arange(24) // 2), guard=guard)
    assert (found.change, found.p, found.worst) == (0, 1, 0)
    assert is_kept(guard, found.worst)
    assert np.isnan([found.low, found.high]).all()
    assert "no item differs" in found.reason


@pytest.mark.parametrize(("clusters", "over"), [(4, "items"), (5, "clusters")])
def test_fewer_than_five_clusters_are_said_and_items_are_drawn_instead(clusters, over):
    found = paired_change(made_up(np.random.default_rng(5), clusters=clusters))
    assert (found.over, found.clusters, found.items) == (over, clusters, 3 * clusters)


def test_items_without_a_value_are_left_out_and_none_at_all_has_a_reason():
    table = made_up(np.random.default_rng(6))
    lacking = pd.concat([table, table.assign(after=np.nan)], ignore_index=True)
    found, expected = (paired_change(own) for own in (lacking, table))
    assert replace(found, worst=0) == replace(expected, worst=0)
    nothing = paired_change(table.assign(after=np.nan))
    assert np.isnan(nothing.change)
    assert nothing.reason == "no item has a value"


@pytest.mark.parametrize("n", [1, 4])
def test_few_items_have_a_change_no_interval_and_keep_no_guard(n):
    guard = Guard(9.0, 1, "9")
    table = paired(np.ones(n), 1.0 + np.arange(1, n + 1), np.arange(n))
    found = paired_change(table, guard=guard)
    assert not is_kept(guard, found.worst)
    assert found.change == (n + 1) / 2
    assert np.isnan([found.low, found.high]).all()
    assert found.reason == "fewer than five items have no interval"


def test_a_distance_has_no_p_because_it_cannot_be_below_0():
    found = paired_change(paired(np.zeros(8), np.ones(8), np.arange(8)), tested=False)
    assert np.isnan(found.p)
    assert "nothing to test" in found.reason


@pytest.mark.parametrize("worse", [1, -1])
def test_a_guard_is_kept_where_the_bound_on_the_worse_side_is_within_the_margin(worse):
    rng = np.random.default_rng(7)
    table = paired(np.zeros(40), worse + rng.normal(size=40), np.arange(40))
    found = paired_change(table, guard=Guard(0.1, worse, "0.1"))
    two_sided = paired_change(table, confidence=0.9)
    expected = two_sided.high if worse > 0 else two_sided.low
    assert found.worst == pytest.approx(expected)
    assert is_kept(Guard(abs(found.worst) + 0.01, worse, ""), found.worst)
    assert not is_kept(Guard(abs(found.worst) - 0.01, worse, ""), found.worst)
    assert not is_kept(Guard(1.0, worse, ""), float("nan"))


def test_few_comparisons_cannot_rule_out_a_loss_even_where_nothing_is_lost():
    """The bound of a share of which none was seen: the p of 0 losses in n is .05 there."""
    guard = Guard(1.0, -1, "1 point", wins=2)
    few, many = (
        paired_change(paired(np.full(n, 50.0), np.full(n, 50.0), np.arange(n)), guard=guard)
        for n in (12, 400)
    )
    assert stats.binom.pmf(0, 24, -few.worst / 100) == pytest.approx(0.05)
    assert not is_kept(guard, few.worst)
    assert is_kept(guard, many.worst)
    # One gain among many items that stay as they are promises none.
    after = np.full(12, 50.0)
    after[3] = 100
    found = paired_change(paired(np.full(12, 50.0), after, np.arange(12)), guard=guard)
    assert found.worst == pytest.approx(few.worst)


@pytest.mark.slow
def test_p_is_uniform_where_nothing_changes_and_items_of_a_cluster_go_together():
    pvalues, naive = [], []
    for seed in range(400):
        table = made_up(np.random.default_rng(seed), clusters=20, size=6)
        pvalues.append(paired_change(table, n_flips=199, seed=seed).p)
        naive.append(stats.ttest_1samp(table["after"] - table["before"], 0).pvalue)
    below = np.mean(np.array(pvalues) <= 0.05)
    assert 0.025 <= below <= 0.08
    assert stats.kstest(pvalues, "uniform").pvalue > 0.01
    # The same items as if they were independent: what clustering is for.
    assert np.mean(np.array(naive) <= 0.05) > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("trainings", [1, 5])  # three are in benchmarks/calibration.csv
def test_intervals_cover_the_true_change_and_guards_fail_as_often_as_they_say(trainings):
    covered, kept = [], []
    guard = Guard(0.5, 1, "")
    for seed in range(800):
        rng = np.random.default_rng(seed)
        table = made_up(rng, clusters=10, size=4, effect=0.5)
        for number in range(2, trainings + 1):
            table[f"after_{number}"] = table["after"] + 0.2 * rng.normal()
        if trainings > 1:
            table["after"] += 0.2 * rng.normal()
        found = paired_change(table.assign(weight=1.0), guard=guard, n_flips=99, seed=seed)
        covered.append(found.low <= 0.5 <= found.high)
        # The truth lies on the margin: passing it is the error that is bounded.
        kept.append(is_kept(guard, found.worst))
    assert 0.93 <= np.mean(covered) <= 0.975
    assert 0.03 <= np.mean(kept) <= 0.075


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
    change = paired_change(table)
    names = ["after", "after_2", "after_3"]
    known = table[["cluster", "weight", "before"]]
    each = [paired_change(known.assign(after=table[name])).change for name in names]
    assert change.change == pytest.approx(np.mean(each))
    assert change.spread == pytest.approx(np.std(each, ddof=1))
    assert np.isnan(paired_change(made_up(np.random.default_rng(0))).spread)


def test_the_variance_between_trainings_is_added_to_that_between_clusters():
    table = trained(np.random.default_rng(13), 5, clusters=12, between=0.8)
    found = paired_change(table)
    change = table[["after", "after_2", "after_3", "after_4", "after_5"]].mean(axis=1)
    weight = table["weight"].to_numpy()
    clusters = cluster_mean((change - table["before"]).to_numpy(), table["cluster"], weight=weight)
    both = [clusters.error**2, found.spread**2 / 5]
    df = sum(both) ** 2 / (both[0] ** 2 / clusters.df + both[1] ** 2 / 4)
    half = stats.t.ppf(0.975, df) * np.sqrt(sum(both))
    assert (found.low, found.high) == pytest.approx((found.change - half, found.change + half))
