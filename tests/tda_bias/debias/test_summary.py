"""Tables of conditions by hand: ranks among random sets, and words that follow from numbers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tda_bias.debias.finding import verdict
from tda_bias.debias.protocol import (
    CONTROLS,
    Protocol,
    conditions,
)
from tda_bias.debias.summary import (
    at_equal_language,
    broken,
    conditions_table,
    frontier_table,
    others_table,
    recommended,
)
from tda_bias.debias.training import Check, Trajectory
from tda_bias.stats.clusters import cluster_mean
from tests.support.trainings import (
    BEFORE,
    GROUPS,
    SCATTER,
    answers,
    of_folds,
    result,
    study,
    trajectories,
    with_language,
)


def by_name(results, protocol):
    return conditions_table(results, GROUPS, protocol, matched={}).set_index("condition")


def test_p_is_the_share_of_random_sets_that_leave_as_little():
    protocol = Protocol(n_random=4)
    for effect, expected in ((0.1, 1 / 5), (0.35, 3 / 5), (0.3, 3 / 5), (0.9, 1.0)):
        table = by_name(study(effect, [0.2, 0.3, 0.5, 0.6]), protocol)
        assert table.loc["effect", "p"] == pytest.approx(expected)
    # Less than nothing is as far from 0 as so much of it.
    table = by_name(study(-0.25, [0.2, 0.3, 0.5, 0.6]), protocol)
    assert table.loc["effect", "p"] == pytest.approx(2 / 5)


def test_the_table_has_means_over_items_of_test_targets_and_the_untouched_model():
    table = by_name(study(0.5, [0.4, 0.6]), Protocol(n_random=2))
    mean = BEFORE[:12].mean()
    expected = {
        "before": mean, "beta": 0.5 * mean, "sum": 5 * mean, "lms": 80,
        "rms": 0.5 * np.sqrt((BEFORE[:12] ** 2).mean()), "perplexity": 100 * np.expm1(0.005),
        "parameters": 2,
    }  # fmt: skip
    assert table.loc["effect", [*expected]].to_dict() == pytest.approx(expected)
    assert table.loc["untouched", "beta"] == pytest.approx(mean)
    assert table.loc["random", "beta"] == pytest.approx(0.5 * mean)
    row = table.loc["effect"]
    assert row["low"] <= row["beta"] <= row["high"]
    assert row["change_low"] <= row["change"] <= row["change_high"] < 0
    # It is not that the change of the untouched model is known to be 0: there is none.
    assert table.loc["untouched", "change"] == 0
    assert table.loc["untouched", ["change_low", "change_high"]].isna().all()


def test_a_condition_is_held_against_random_sets_item_by_item_and_there_might_be_other_sets():
    shares = np.array([0.4, 0.6, 0.9])
    results = study(0.2, shares)
    table = by_name(results, Protocol(n_random=3))
    left, of_folds_before = BEFORE[:12].mean() * shares, BEFORE[:12].reshape(6, 2).mean(1)
    for name, share in (("effect", 0.2), ("all", 0.9)):
        row, apart = table.loc[name], share - shares.mean()
        assert row["than_random"] == pytest.approx(apart * BEFORE[:12].mean())
        # Variances of means: six folds of one size, and three sets. Satterthwaite's df.
        own, sets = stats.sem(apart * of_folds_before) ** 2, stats.sem(left) ** 2
        df = (own + sets) ** 2 / (own**2 / 5 + sets**2 / 2)
        half = stats.t.ppf(0.975, df) * np.sqrt(own + sets)
        assert row["than_random_high"] == pytest.approx(row["than_random"] + half)
        assert row["than_random_low"] == pytest.approx(row["than_random"] - half)
    assert table.loc[["untouched", "random"], "than_random"].isna().all()
    alone = by_name(study(0.2, [0.4]), Protocol(n_random=1)).loc["effect"]
    assert np.isnan(alone["than_random_low"])  # one set says nothing of another


@pytest.mark.parametrize("sign", [1, -1])
def test_the_row_of_random_sets_has_their_mean_within_its_limits(monkeypatch, sign):
    monkeypatch.setattr("tests.support.trainings.BEFORE", sign * BEFORE)
    row = by_name(study(0.1, [0.5, 0.7]), Protocol(n_random=2)).loc["random"]
    assert row["before"] == pytest.approx(sign * abs(BEFORE[:12].mean()))
    assert row["beta"] == pytest.approx(0.6 * row["before"])
    assert row["low"] < row["beta"] < row["high"]
    assert row["beta_at_lms"] == pytest.approx(abs(row["beta"]))


def test_targets_of_a_fold_share_a_model_and_are_one_cluster():
    results = study(0.5, [0.4, 0.6])
    row = by_name(results, Protocol(n_random=2)).loc["effect"]
    expected = cluster_mean(-0.5 * BEFORE[:12], np.arange(12) // 2).limits()
    assert tuple(row[["change_low", "change_high"]]) == pytest.approx(expected)
    table = by_name(of_folds(results, 2), Protocol(n_random=2))
    assert table.loc["effect", "folds"] == 2
    ends = [f"{name}{end}" for name in ("", "change_") for end in ("low", "high")]
    assert table.loc["effect", ends].isna().all()
    # No training stands between the untouched model and its targets.
    assert np.isfinite(table.loc["untouched", ["low", "high"]].astype(float)).all()


def test_p_compares_where_the_language_model_score_has_fallen_by_a_point():
    """Half of what was taken off had cost a point: there the other half was still left."""
    results = study(0.2, [0.5, 0.7])
    with_language(results, 0.78)
    table = by_name(results, Protocol(n_random=2))
    assert table.loc["effect", "beta_at_lms"] == pytest.approx(0.6 * BEFORE[:12].mean())
    assert table.loc["effect", "lms_fell"] == 1
    assert table.loc["random", "lms_fell"] == 0
    assert table.loc["effect", "p"] == pytest.approx(2 / 3)
    assert table.loc[["untouched", "all", "random"], "p"].isna().all()


def test_beta_is_also_given_in_spreads_of_the_log_odds():
    row = by_name(study(0.5, [0.5]), Protocol(n_random=1)).loc["effect"]
    before = BEFORE[:12]
    odds = 0.5 * before + np.tile(SCATTER[:2], 6)
    assert row["spread"] == pytest.approx(0.5 * before.mean() / odds.std())
    assert row["parameters"] == 2


def of_effect(table, protocol, **more):
    """The verdict on ``effect``."""
    (row,) = table[table["condition"] == "effect"].to_dict("records")
    return verdict(row, table, protocol, **{"steps": 14, **more})


def test_beta_at_equal_entropy_is_the_mean_over_the_items_of_all_folds():
    results = study(0.5, [0.5])
    first = next(iter(results))
    matched = {first: [(1.1, np.full(3, 0.2)), (1.3, np.full(9, 0.6))]}
    table = conditions_table(results, GROUPS, Protocol(n_random=1), matched=matched)
    rows = table.set_index("condition")
    assert rows.loc[first.name, "temperature"] == pytest.approx(1.2)
    assert rows.loc[first.name, "beta_at_entropy"] == pytest.approx(0.5)
    assert rows.loc["untouched", "beta_at_entropy"] == pytest.approx(BEFORE[:12].mean())
    assert rows["beta_at_entropy"].drop([first.name, "untouched"]).isna().all()


@pytest.mark.parametrize(
    ("changes", "language", "per_token", "expected"),
    [
        ({}, 0.8, 0.8, ""),
        ({"ppl": 0.011}, 0.8, 0.8, "perplexity +1.11 %"),
        ({"ppl": 0.0099}, 0.8, 0.8, ""),
        ({"pairs": (0.7, 0.688)}, 0.8, 0.8, "blimp -1.20 points"),
        ({"pairs": (0.7, 0.69)}, 0.8, 0.8, ""),
        ({}, 0.79, 0.8, ""),  # exactly a point, whatever rounding makes of it
        ({}, 0.7899, 0.8, "language-model score -1.01 points"),
        ({}, 0.8, 0.7899, "language-model score per token -1.01 points"),
    ],
)
def test_every_guard_alone_decides_and_is_named(changes, language, per_token, expected):
    protocol = Protocol(n_random=1)
    results = study(0.5, [0.5], **changes)
    with_language(results, language, per_token=per_token)
    table = conditions_table(results, GROUPS, protocol, matched={})
    guard = table.set_index("condition")["guard"]
    assert guard["effect"] == ("fail" if expected else "pass")
    assert guard["all"] == "pass"
    said = of_effect(table, protocol).partition("It costs more than the guards allow (")[2]
    assert said.partition("): not for use.")[0] == expected


def test_the_recommended_ranking_has_the_least_loss_on_validation_targets():
    protocol = Protocol(by=("effect", "mediation"))

    def beside(mediation, **changes):
        rankings = result("effect", 0.1, loss=0.15, **changes)
        return recommended(rankings | result("mediation", 0.9, loss=mediation), protocol)

    assert beside(0.2) == "effect"
    assert beside(0.1) == "mediation"
    assert beside(0.2, pairs=(0.7, 0.68)) == "mediation"
    # Where no ranking keeps the pairs, the loss alone decides.
    fails = result("effect", 0.1, loss=0.15) | result("mediation", 0.9, loss=0.2)
    for trajectory in trajectories(fails, "effect") + trajectories(fails, "mediation"):
        trajectory.after["pairs blimp"] = np.array([0.1])
    assert recommended(fails, protocol) == "effect"


def test_the_change_of_other_categories_has_limits_over_targets_and_trainings():
    results = result("effect", 0.5) | result("random", 0.5)
    before = np.random.default_rng(3).normal(0.1, 0.3, 14)
    shifts = np.array([0.1, 0.3, 0.2, 0.2, 0.1, 0.3])
    for shift, trajectory in zip(shifts, trajectories(results), strict=True):
        trajectory.before["other race"], trajectory.after["other race"] = before, before + shift
    groups = {"race": [f"t{n // 2}" for n in range(14)]}
    (row,) = others_table(results, groups).to_dict("records")
    assert (row["condition"], row["category"], row["items"]) == ("effect", "race", 14)
    assert row["change"] == pytest.approx(0.2)
    # All items change alike: what varies are the trainings.
    half = stats.t.ppf(0.975, 5) * stats.sem(shifts)
    assert (row["low"], row["high"]) == pytest.approx((0.2 - half, 0.2 + half))
    assert row["beta"] == pytest.approx(before.mean() + 0.2)


def test_a_fold_that_ended_earlier_stays_where_it_was_in_the_frontier():
    results = study(0.5, [0.5])
    longer = trajectories(results)[0]
    longer.checks.append(Check(9, 0.4, 0.1, 80.0, 70.0, 3.02, answers(0.1 * BEFORE[:2], 0.5)))
    table = frontier_table(results)
    last = table[(table["condition"] == "effect") & (table["check"] == 2)].iloc[0]
    assert last["perplexity"] == pytest.approx(100 * (np.expm1(0.02) + 5 * np.expm1(0.005)) / 6)
    expected = np.concatenate([0.1 * BEFORE[:2], 0.5 * BEFORE[2:12]])
    assert last["beta"] == pytest.approx(expected.mean())
    of_folds = (expected - BEFORE[:12]).reshape(6, 2).mean(1)
    assert last["change"] == pytest.approx(of_folds.mean())
    limits = stats.t.interval(0.95, 5, of_folds.mean(), stats.sem(of_folds))
    assert tuple(last[["change_low", "change_high"]]) == pytest.approx(limits)
    assert last["lms"] == last["lms_token"] == pytest.approx(75)  # 50 % of two items, 80 of ten


def test_of_rankings_with_the_same_p_the_sentence_names_the_one_that_leaves_least():
    protocol = Protocol(by=("effect", "mediation"), n_random=3)
    results = study(0.3, [0.8] * 3) | result("mediation", 0.2)
    table = conditions_table(results, GROUPS, protocol, matched={})
    assert "the best ranking (mediation) leaves" in of_effect(table, protocol)


@pytest.mark.parametrize(
    ("share", "random", "folds", "said", "not_said"),
    [
        (0.2, [0.8] * 3, 6, "cannot be told from so few random sets", "nan"),
        (0.2, [0.8] * 20, 6, ": less of the bias is left. Choosing heads helped", "guard"),
        (0.2, [0.8] * 19, 6, ": less of the bias is left. Choosing heads helped", "guard"),
        (0.2, [0.8] * 18, 6, "cannot be told from so few random sets", "nan"),
        (0.8, [0.7] * 20, 6, "did not help beyond chance", "nan"),
        (0.8, [0.7] * 19, 6, "did not help beyond chance", "nan"),
        (0.2, [0.8] * 20, 2, "2 folds are too few to say more", "nan"),
        (0.2, [0.8], 1, "1 fold is too few to say more", "nan"),
        (0.2, [0.8], 1, "of 1 random set, before correcting for 1 ranking)", "nan"),
        (0.2, [0.8], 4, "no interval", "nan"),
        # The preset smoke may leave .100 of .095.
        (1.06, [0.8], 6, "no less of the bias is left", "chance;"),
        (-1.2, [0.8], 2, "no less of the bias is left", "chance;"),
        (1.0, [0.8], 6, "no less of the bias is left, which may be chance", "nan"),
    ],
)
def test_the_sentence_follows_from_the_numbers(share, random, folds, said, not_said):
    protocol = Protocol(n_random=len(random))
    table = conditions_table(of_folds(study(share, random), folds), GROUPS, protocol, matched={})
    text = of_effect(table, protocol)
    assert said in text
    assert not_said not in text


def test_a_bias_that_changes_its_sign_is_not_surely_less():
    """From .080 to -.079 the change is far from 0, the size is not."""
    results, protocol = study(-0.99, [0.8]), Protocol(n_random=1)
    for number, trajectory in enumerate(trajectories(results)):
        check = trajectory.checks[1]
        shifted = check.test.gap + 0.03 * (-1) ** number
        trajectory.checks[1] = replace(check, test=replace(check.test, gap=shifted))
    table = conditions_table(results, GROUPS, protocol, matched={})
    row = table.set_index("condition").loc["effect"]
    assert row["change_high"] < 0
    of_folds = (0.01 * BEFORE[:12]).reshape(6, 2).mean(1) + 0.03 * np.array([1, -1] * 3)
    expected = stats.t.interval(0.95, 5, of_folds.mean(), stats.sem(of_folds))
    assert tuple(row[["both_low", "both_high"]]) == pytest.approx(expected)
    assert "less of the bias is left, which may be chance." in of_effect(table, protocol)


def test_costs_trainings_without_a_passing_check_and_a_handful_of_steps_are_said():
    protocol = Protocol(n_random=1)
    table = conditions_table(study(0.5, [0.5]), GROUPS, protocol, matched={})
    plain = of_effect(table, protocol, steps=10)
    dear = table.copy()
    dear.loc[dear["condition"] == "effect", ["guard", "lms_before", "lms"]] = ["fail", 40.3, 33.3]
    for expected, text in (
        ("more than the guards allow (language-model score -7.00 points)",
         of_effect(dear, protocol)),
        ("In 1 training no check passed the guards with less loss",
         of_effect(table, protocol, unchanged=1)),
        ("9 steps a training: this tests the program", of_effect(table, protocol, steps=9)),
    ):  # fmt: skip
        assert expected in text
        assert expected not in plain


def test_controls_are_neither_recommended_nor_named_the_best_ranking():
    protocol = Protocol(by=("effect", "bottom"), n_random=2, controls=CONTROLS)
    results = study(0.9, [0.8, 0.8])
    for control in ("bottom", *CONTROLS):
        results |= result(control, 0.1, loss=0.0)
    assert recommended(results, protocol) == "effect"
    assert recommended(results, Protocol(by=("bottom",))) == "bottom"
    table = conditions_table(results, GROUPS, protocol, matched={})
    assert "the best ranking (effect) leaves" in of_effect(table, protocol)


def test_every_condition_of_a_protocol_is_there():
    controls = ("all", "placebo", "cda", "leace")
    protocol = Protocol(by=("effect", "bottom"), n_random=2, controls=controls)
    listed = [(condition.part, condition.how, condition.goal) for condition in conditions(protocol)]
    assert listed == [
        ("effect", "tune", "gaps"), ("bottom", "tune", "gaps"), ("random 0", "tune", "gaps"),
        ("random 1", "tune", "gaps"), ("all", "tune", "gaps"), ("placebo", "tune", "placebo"),
        ("cda", "full", "cda"), ("leace", "leace", "gaps"),
    ]  # fmt: skip


def test_a_training_whose_numbers_became_undefined_is_named_with_its_step():
    results = study(0.5, [0.5])
    assert broken(results) == []
    second = trajectories(results, "random")[1]
    second.ended = "undefined numbers in the loss or its gradient at step 7"
    assert broken(results) == [
        "random 0, fold 1: undefined numbers in the loss or its gradient at step 7; its last good "
        "check counts"
    ]


def test_values_at_equal_language_are_interpolated_between_checks_over_all_folds():
    def fold(*scores):
        gaps = (0.8, 0.4, 0.2)
        tests = [answers(np.full(2, g), s) for g, s in zip(gaps, scores, strict=False)]
        return Trajectory([Check(0, 1.0, 0.1, 80.0, 70.0, 3.0, test) for test in tests])

    # Scores of both folds together: 80, 79.5, 78.5; the point is lost half-way to the last check.
    both, fell = at_equal_language([fold(0.8, 0.80, 0.78), fold(0.8, 0.79, 0.79)])
    assert fell
    np.testing.assert_allclose(both, np.full((2, 2), 0.3))
    never, fell = at_equal_language([fold(0.8, 0.8, 0.8), fold(0.8, 0.795)])
    assert not fell
    np.testing.assert_allclose(never, [[0.2, 0.2], [0.4, 0.4]])
