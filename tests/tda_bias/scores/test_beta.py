"""Beta and its tests: by hand, by enumeration, and by simulation."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tda_bias.scores.beta import TwinSets, beta_table, exchange_test, twin_table, with_beta
from tda_bias.scores.likelihood import TripleLikelihood
from tda_bias.scores.stereoset import item_table
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import smallest_effect
from tda_bias.stats.sign_flips import flip_pvalue
from tda_bias.types import InputError, Triple


def rng(seed=0):
    return np.random.default_rng(seed)


def likelihood(totals, tokens=(4, 4, 4)):
    return TripleLikelihood(
        tuple(np.full(n, total / n) for total, n in zip(totals, tokens, strict=True))
    )


def items_of(rows):
    """Items from (category, group, log-probabilities s a)."""
    triples = [Triple(group, category, "c", "s", "a", "u") for category, group, *_ in rows]
    return item_table(triples, [likelihood((*row[2], -9.0), *row[3:]) for row in rows])


def twins_of(rows):
    """Twins from lists of log-probabilities s a, a list for each item."""
    return twin_table([[likelihood((*one[0], -9.0), *one[1:]) for one in row] for row in rows])


ITEMS = items_of(
    [
        ("gender", "he", (-1.0, -3.0)),  # 2
        ("gender", "he", (-2.0, -1.0)),  # -1
        ("gender", "she", (-6.0, -8.0), (2, 4, 4)),  # 2; per token -3 - -2 = -1
        ("gender", "she", (-5.0, -5.0)),  # 0, without a twin
    ]
)
TWINS = twins_of(
    [
        [((-2.0, -2.5),)],  # 0.5
        [((-3.0, -3.0),), ((-1.0, -3.0),)],  # 0, 2
        [((-4.0, -8.0), (4, 2, 4))],  # 4; per token -1 - -4 = 3
        [],
    ]
)


def made_up(n=40, twins=1, groups=4, wording=10.0, noise=1.0, effect=0.0, seed=0):
    """Items whose log-odds share their wording with their twins, and an effect of the target."""
    generator = rng(seed)
    shared = generator.normal(2.0, wording, (n, 1))
    odds = shared + generator.normal(0, noise, (n, 1 + twins))
    odds[:, 0] += effect
    rows = [("gender", f"g{i % groups}", (odds[i, 0] - 50, -50.0)) for i in range(n)]
    others = [[((value - 50, -50.0),) for value in odds[i, 1:]] for i in range(n)]
    return items_of(rows), twins_of(others)


def overall(table, scoring="sum"):
    found = table[(table["scoring"] == scoring) & (table["group"] == "all")]
    return found.iloc[-1]


def test_items_without_any_twin_are_refused():
    with pytest.raises(InputError, match="no item has a twin: there is nothing to compare it with"):
        beta_table(ITEMS, twin_table([[], [], [], []]))


def test_beta_by_hand():
    found = with_beta(ITEMS, TWINS)
    np.testing.assert_allclose(found["beta_sum"], [1.5, -2.0, -2.0, np.nan])
    np.testing.assert_allclose(found["beta_mean"], [1.5 / 4, -2.0 / 4, -4.0, np.nan])
    np.testing.assert_allclose(found["log_prob_s_twin"], [-2.0, -2.0, -4.0, np.nan])
    np.testing.assert_allclose(found["log_prob_a_twin"], [-2.5, -3.0, -8.0, np.nan])
    assert found["twins"].tolist() == [1, 2, 1, 0]


def test_the_table_by_hand():
    found = beta_table(ITEMS, TWINS)
    row = overall(found)
    beta = np.array([1.5, -2.0, -2.0])
    assert (row["items"], row["left_out"], row["targets"]) == (3, 1, 2)
    assert row["twins"] == pytest.approx(4 / 3)
    assert row["log_odds"] == pytest.approx(1.0)
    assert row["log_odds_twin"] == pytest.approx((0.5 + 1 + 4) / 3)
    assert row["beta"] == pytest.approx(beta.mean())
    assert row["ss_twin"] == pytest.approx(100 / 3)
    assert row["smallest"] == pytest.approx(beta.std(ddof=1) * smallest_effect(3))
    assert row["r"] == pytest.approx(stats.pearsonr([2, -1, 2], [0.5, 1, 4]).statistic)
    assert row["explained"] == pytest.approx(row["r"] ** 2)
    assert set(found["group"]) == {"all", "he", "she"}
    assert np.isnan(found.loc[found["group"] == "all", "q"]).all()
    groups = found[(found["scoring"] == "sum") & (found["group"] != "all")]
    np.testing.assert_allclose(
        groups["q"], stats.false_discovery_control(groups["p"].astype(float))
    )


def test_of_one_item_there_is_a_mean_and_nothing_that_needs_a_spread():
    items, twins = made_up(n=5, groups=5)
    row = beta_table(items, twins).set_index(["scoring", "group"]).loc["sum", "g3"]
    assert row["items"] == 1
    assert np.isfinite(row["beta"])
    assert row["p"] == 1.0  # both arrangements of one pair are equally far from 0
    assert np.isnan(row[["beta_low", "beta_low_targets", "r", "smallest"]].astype(float)).all()


def test_a_group_whose_items_have_no_twins_is_listed_and_undefined():
    items = items_of([("gender", "he", (-1.0, -3.0)), ("gender", "she", (-1.0, -2.0))])
    found = beta_table(items, twins_of([[((-1.0, -2.0),)], []]))
    row = found.set_index(["scoring", "group"]).loc["sum", "she"]
    assert (row["items"], row["left_out"]) == (0, 1)
    assert np.isnan(row[["beta", "p", "q", "ss_twin", "twins"]].astype(float)).all()


def test_the_same_word_in_two_categories_is_two_targets():
    items = items_of([(c, "x", (-1.0 - i, -2.0)) for c in ("gender", "race") for i in range(3)])
    twins = twins_of([[((-1.0, -2.0 - i),)] for i in range(6)])
    found = beta_table(items, twins)
    every = found[(found["category"] == "all") & (found["scoring"] == "sum")].iloc[0]
    assert (every["targets"], every["items"]) == (2, 6)
    own = found[(found["category"] == "race") & (found["group"] == "all")].iloc[0]
    assert np.isnan(own["beta_low_targets"])  # one target cannot be resampled


# -- exchanging triples and twins ------------------------------------------------------------------


def enumerated(sets):
    """p of the mean and of the share, arrangement by arrangement."""

    def statistics(first):
        beta = []
        for values, size, chosen in zip(sets.values, sets.size, first, strict=True):
            others = [values[k] for k in range(size) if k != chosen]
            beta.append(values[chosen] - np.mean(others))
        positive = [0.5 if b == 0 else float(b > 0) for b in beta]
        return abs(np.mean(beta)), abs(100 * np.mean(positive) - 50)

    null = np.array([statistics(first) for first in product(*map(range, sets.size))])
    return (null >= np.array(statistics([0] * len(sets.size))) - 1e-9).mean(0)


@pytest.mark.parametrize(("n", "twins"), [(12, 1), (5, 1), (6, 3), (4, 2), (1, 4)])
def test_few_sets_are_enumerated(n, twins):
    sets = TwinSets.of(*made_up(n=n, twins=twins, wording=1.0, seed=n), "sum")
    found = exchange_test(sets, rng=rng())
    np.testing.assert_allclose(found, enumerated(sets))


def test_with_one_twin_it_is_scipys_paired_permutation_test():
    sets = TwinSets.of(*made_up(n=9, wording=3.0, effect=0.5, seed=2), "sum")
    expected = stats.permutation_test(
        tuple(sets.values.T),
        lambda x, y, axis: (x - y).mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    p, _ = exchange_test(sets, rng=rng())
    assert p == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("twins", [1, 3])
def test_random_exchanges_give_what_enumeration_gives(twins, monkeypatch):
    sets = TwinSets.of(*made_up(n=6, twins=twins, wording=2.0, effect=0.8, seed=5), "sum")
    exact = exchange_test(sets, rng=rng())
    monkeypatch.setattr("tda_bias.stats.sign_flips.ENUMERATED", 1)
    drawn = exchange_test(sets, rng=rng())
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=0.012)


@settings(max_examples=12)
@given(st.integers(0, 50), st.sampled_from([1, 2]))
def test_whatever_a_triple_shares_with_its_twins_changes_nothing(seed, twins):
    """A wording difference, however large, is no bias."""
    sets = TwinSets.of(*made_up(n=7, twins=twins, seed=seed), "sum")
    wording = rng(seed + 1).normal(0, 100, (7, 1))
    more = TwinSets(sets.values + wording, sets.size)
    np.testing.assert_allclose(more.contrasts, sets.contrasts, atol=1e-10)
    assert exchange_test(more, rng=rng(3)) == exchange_test(sets, rng=rng(3))


@pytest.mark.slow
def test_a_planted_interaction_is_found_as_often_as_the_table_says():
    n, found, raw = 60, 0, 0
    for seed in range(300):
        items, twins = made_up(n=n, wording=20.0, effect=0.0, seed=seed)
        sets = TwinSets.of(items, twins, "sum")
        effect = smallest_effect(n) * np.sqrt(2)  # beta is the difference of two noises of SD 1
        planted = TwinSets(sets.values + np.array([effect, 0.0]), sets.size)
        found += exchange_test(planted, rng=rng(seed))[0] < 0.05
        raw += stats.ttest_1samp(planted.values[:, 0] - 2.0, 0).pvalue < 0.05
    assert found / 300 == pytest.approx(0.8, abs=0.07)
    assert raw / 300 < 0.12  # the same effect cannot be seen without twins


# -- intervals -------------------------------------------------------------------------------------


def test_intervals_are_over_items_and_over_whole_targets():
    items, twins = made_up(n=30, effect=0.3, groups=7)
    row = overall(beta_table(items, twins))
    beta = with_beta(items, twins)["beta_sum"].to_numpy()
    for over, cluster in (("", None), ("_targets", items["group"])):
        own = (row[f"beta_low{over}"], row[f"beta_high{over}"])
        assert own == pytest.approx(cluster_mean(beta, cluster).limits())
        low, high = cluster_mean((beta > 0).astype(float), cluster).share_limits()
        own = (row[f"ss_twin_low{over}"], row[f"ss_twin_high{over}"])
        assert own == pytest.approx((100 * low, 100 * high))


def test_p_over_targets_flips_whole_targets_of_which_there_must_be_five():
    items, twins = made_up(n=30, effect=1.0, groups=7)
    row = overall(beta_table(items, twins))
    beta = with_beta(items, twins)["beta_sum"].to_numpy()
    for name, values in (("p_targets", beta), ("p_ss_twin_targets", np.sign(beta))):
        assert row[name] == flip_pvalue(values, items["group"], rng=rng())  # 2^7 flips: all
    few = overall(beta_table(*made_up(n=30, groups=4)))
    assert np.isnan([few["p_targets"], few["beta_low_targets"]]).all()


def test_numbers_of_a_group_do_not_depend_on_which_others_there_are():
    items, twins = made_up(n=40)
    every = beta_table(items, twins)
    kept = items["group"] == "g1"
    place = np.cumsum(kept) - 1
    some = twins[kept.to_numpy()[twins["item"]]]
    alone = beta_table(
        items[kept].reset_index(drop=True), some.assign(item=place[some["item"]].to_numpy()),
    )  # fmt: skip
    for scoring in ("sum", "mean"):
        one, other = (
            t.set_index(["scoring", "group"]).loc[(scoring, "g1")].drop("q") for t in (every, alone)
        )
        pd.testing.assert_series_equal(one, other)
