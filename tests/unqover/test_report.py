"""Tables of a run, against the arrays they come from."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.stats.clusters import jackknife_mean
from tests.support.answers import FEW
from unqover.bias import aggregates, comparative, factorial, groups_of, scores, sums
from unqover.config import InferenceConfig
from unqover.finding import unqover_finding
from unqover.report import (
    _joint_table,
    attribute_table,
    bias_items,
    bias_report,
    cells_of,
    without_factors,
)

FAST = InferenceConfig(n_flips=19, n_bootstrap=100)


@pytest.fixture(scope="module")
def leaning(made_up):
    """A report of a model that leans; nobody changes it."""
    return bias_report(made_up(lean=0.7), config=FAST)


def arrays_of(answers):
    C = comparative(scores(answers.log_prob, "two_way")).C
    return C, sums(C, answers.first, answers.second, len(answers.subjects))


def test_tables_hold_the_aggregates(leaning, tmp_path):
    report, answers = leaning, leaning.answers
    C, own = arrays_of(answers)
    both = aggregates(own)
    row = report.summary.set_index(["scale", "compared"]).loc[("two_way", "subjects")]
    assert row["mu"] == pytest.approx(both.mu)
    assert row["eta"] == pytest.approx(both.mean_eta)
    assert row["comparisons"] == C.size
    wide = report.subjects.pivot_table("gamma", "subject", "attribute", sort=False)
    np.testing.assert_allclose(
        wide.loc[list(answers.subjects), list(answers.attributes)], both.gamma
    )
    _, group = groups_of(answers.level_of(0))
    table = report.groups.set_index(["group", "attribute"])["gamma"]
    by_group = aggregates(own, group).gamma
    for a, attribute in enumerate(answers.attributes):
        assert table[("female", attribute)] == pytest.approx(by_group[0, a])
    answers.save(tmp_path)
    report.save(tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "groups.csv"), report.groups)
    assert not (tmp_path / "joint.csv").exists()


def test_two_groups_are_one_contrast_with_one_p(leaning, made_up):
    """Of names and of descriptions: what mirrors a test is none of its own."""
    joint = bias_report(made_up("gender_race", subjects=10, lean=0.7), config=FAST)
    two_races = bias_report(made_up("gender_race", subjects=4, lean=0.7), config=FAST)
    for report, factor in ((leaning, "gender"), (joint, "gender"), (two_races, "race")):
        tested = report.groups[report.groups["factor"] == factor]
        one, other = (of.reset_index() for _, of in tested.groupby("group", sort=False))
        np.testing.assert_allclose(one["gamma"], -other["gamma"])
        for end in ("", "_log_odds"):
            assert one[f"p{end}"].notna().all()
            pd.testing.assert_series_equal(one[f"p{end}"], other[f"p{end}"])
            pd.testing.assert_series_equal(one[f"q{end}"], other[f"q{end}"])
            np.testing.assert_allclose(one[f"low{end}"], -other[f"high{end}"])
        if report is not joint:  # whose first factor has five levels
            assert "of 5 with p < .05" in unqover_finding(report).result[1]


def literal_measure(answers, C, in_x1):
    """[Extending]: avg over x1 of max over a of |avg over x2 and templates of C(x1, x2, a, t)|."""
    largest = []
    for x1 in range(len(answers.subjects)):
        if not in_x1[x1]:
            continue
        of_attributes = []
        for a in range(len(answers.attributes)):
            values = []
            for p, (i, j) in enumerate(zip(answers.first, answers.second, strict=True)):
                for t in range(len(answers.asked.templates)):
                    if i == x1 and not in_x1[j]:
                        values.append(C[p, t, a])
                    elif j == x1 and not in_x1[i]:
                        values.append(-C[p, t, a])
            of_attributes.append(abs(sum(values) / len(values)))
        largest.append(max(of_attributes))
    return sum(largest) / len(largest)


@pytest.mark.parametrize(
    ("name", "subjects"), [("gender", 4), ("gender_race", 8), ("gender_race_names", 3)]
)
def test_x1_rows_are_the_published_measure_with_x1_from_one_set_only(made_up, name, subjects):
    answers = made_up(name, subjects=subjects, attributes=3, lean=0.3)
    report = bias_report(answers, config=FAST)
    rows = report.summary.set_index(["scale", "compared"])
    sets = {level for levels in answers.asked.levels for level in levels}
    if name == "gender_race_names":
        sets |= set(answers.combinations)
    found = {c.removeprefix("x1 ") for c in report.summary["compared"] if c.startswith("x1 ")}
    assert found == sets
    for scale in ("two_way", "log_odds"):
        C = comparative(scores(answers.log_prob, scale)).C
        for level in sets:
            in_x1 = [
                level in levels or level == " ".join(levels) for levels in answers.asked.levels
            ]
            row = rows.loc[(scale, f"x1 {level}")]
            assert row["mu"] == pytest.approx(literal_measure(answers, C, in_x1))
            assert row["comparisons"] == sum(in_x1) * (len(in_x1) - sum(in_x1)) * C[0].size
            assert row["mu_low"] <= row["mu"] <= row["mu_high"]


def test_intervals_of_one_set_leave_out_each_subject_of_either_side(made_up):
    answers = made_up("gender_race", subjects=8, attributes=3, lean=0.3)
    C = comparative(scores(answers.log_prob, "two_way")).C
    is_woman = np.array([levels[1] == "woman" for levels in answers.asked.levels])
    without = []
    for lost in range(len(is_woman)):
        kept = (answers.first != lost) & (answers.second != lost)
        numbers = answers.first[kept], answers.second[kept]
        in_x1 = is_woman & (np.arange(len(is_woman)) != lost)
        group = np.where(in_x1, np.arange(len(is_woman)), -1)
        across = is_woman[numbers[0]] != is_woman[numbers[1]]
        given = sums(C[kept][across], numbers[0][across], numbers[1][across], len(is_woman))
        without.append(aggregates(given, group).mu)
    row = bias_report(answers, config=FAST).summary.set_index(["scale", "compared"])
    row = row.loc[("two_way", "x1 woman")]
    # Four women and four men: each leaves a quarter of its side out.
    expected = jackknife_mean(row["mu"], np.array(without), np.full(8, 1 / 4)).limits()
    assert (row["mu_low"], row["mu_high"]) == pytest.approx((max(expected[0], 0.0), expected[1]))


def test_pairs_within_the_set_do_not_count_where_a_class_compares_all(tmp_path, made_up):
    path = tmp_path / "all.yaml"
    path.write_text(FEW.replace("compare: across", "compare: all"))
    answers = made_up(str(path))
    C = comparative(scores(answers.log_prob, "two_way")).C
    rows = bias_report(answers, config=FAST).summary.set_index(["scale", "compared"])["mu"]
    in_x1 = [levels == ("female",) for levels in answers.asked.levels]
    assert len(answers.first) == 6  # Mary and Ann are compared, too
    assert rows[("two_way", "x1 female")] == pytest.approx(literal_measure(answers, C, in_x1))


def test_a_model_without_bias_is_at_chance_and_one_with_bias_above(made_up):
    none = bias_report(made_up(), config=FAST).summary.iloc[0]
    assert none["mu_p"] > 0.05
    assert none["mu_chance"] > 0.05  # far from 0 all the same
    much = bias_report(made_up(subjects=6, lean=1.5), config=FAST)
    assert much.summary.iloc[0]["mu_p"] == 0.05  # the least that 19 flips can give
    assert (much.groups["q"] < 0.05).mean() > 0.5


def test_joint_classes_report_main_effects_interaction_and_single_factors(made_up):
    answers = made_up("gender_race", subjects=8)
    report = bias_report(answers, config=FAST)
    assert list(report.joint["part"]) == ["race", "gender", "interaction"]
    assert report.joint["share"].sum() == pytest.approx(1)
    compared = set(report.summary["compared"])
    assert {c for c in compared if not c.startswith("x1 ")} == {
        "subjects", "race", "race alone", "gender", "gender alone",
    }  # fmt: skip
    rows = report.summary.set_index(["scale", "compared"])
    n = 5 * 5
    # 4 races x 2 genders: 4 pairs differ in gender alone, 12 in race alone, 28 pairs in all.
    assert rows.loc[("two_way", "gender alone"), "comparisons"] == 4 * n
    assert rows.loc[("two_way", "race alone"), "comparisons"] == 12 * n
    assert rows.loc[("two_way", "subjects"), "comparisons"] == 28 * n
    assert set(report.groups["factor"]) == {"race", "gender", "combination"}
    names = bias_report(made_up("gender_race_names", subjects=3), config=FAST)
    assert "combination" in set(names.summary["compared"])
    assert not names.joint.empty


def test_a_joint_class_may_lack_comparisons(made_up):
    answers = made_up("gender_race", subjects=6, attributes=3)
    whole = bias_report(answers, config=FAST).joint
    answers.log_prob[:, 0, 1] = np.nan  # a template that does not ask about an attribute
    answers.log_prob[3, :, 2] = np.nan  # a pair without scores for another
    found = bias_report(answers, config=FAST).joint
    assert list(found["part"]) == list(whole["part"])
    assert found.notna().all(axis=None)
    assert found["share"].sum() == pytest.approx(1)


def test_residuals_hold_nothing_of_the_factors_taken_out(made_up):
    answers = made_up("gender_race", subjects=6, attributes=3)
    C = comparative(scores(answers.log_prob, "two_way")).C
    left = without_factors(answers, C, [0, 1])
    _, gamma, _ = cells_of(answers, left)
    parts = factorial(gamma)
    np.testing.assert_allclose(parts.main[0], 0, atol=1e-12)
    np.testing.assert_allclose(parts.main[1], 0, atol=1e-12)
    before = factorial(cells_of(answers, C)[1])
    np.testing.assert_allclose(parts.interaction, before.interaction, atol=1e-12)


@pytest.mark.slow
def test_p_of_an_interaction_is_uniform_beside_large_main_effects(made_up):
    """What main effects explain must not hide, or make, an interaction."""
    from scipy import stats

    values = []
    for seed in range(60):
        answers = made_up("gender_race", subjects=8, attributes=3, noise=0.5, seed=seed)
        lean = np.array([0.8 * (own[1] == "man") for own in answers.asked.levels])
        answers.log_prob[:, :, :, :, 0, 0] += lean[answers.first][:, None, None, None]
        answers.log_prob[:, :, :, :, 0, 1] += lean[answers.second][:, None, None, None]
        config = InferenceConfig(n_flips=99, n_bootstrap=100)
        C = comparative(scores(answers.log_prob, "two_way")).C
        values.append(_joint_table(answers, C, config).set_index("part")["p"])
    table = pd.DataFrame(values)
    assert (table["gender"] == 0.01).all()
    for part in ("race", "interaction"):
        assert stats.kstest(table[part], "uniform").pvalue > 0.01
        assert (table[part] <= 0.05).mean() < 0.15


def test_an_interaction_is_found(made_up):
    answers = made_up("gender_race_names", subjects=6, noise=0.2)
    special = [own == ("Black", "female") for own in answers.asked.levels]
    lean = np.array(special, float)
    answers.log_prob[:, :, :, :, 0, 0] += lean[answers.first][:, None, None, None]
    answers.log_prob[:, :, :, :, 0, 1] += lean[answers.second][:, None, None, None]
    joint = bias_report(answers, config=FAST).joint.set_index("part")
    assert joint.loc["interaction", "p"] == 0.05  # the least that 19 flips can give
    assert (
        joint.loc["interaction", "mean_square"] > 5 * joint.loc["interaction", "mean_square_chance"]
    )


def test_attributes_join_heads_like_risks(leaning):
    answers = leaning.answers
    table = attribute_table(answers)
    assert list(table.columns) == ["x", "r", "r_p", "r_v", "s_female"]
    C, _ = arrays_of(answers)
    for a, row in enumerate(table.itertuples()):
        assert row.s_female == pytest.approx(C[..., a].mean())  # x1 is female in every pair
        assert row.r == pytest.approx(np.abs(C[..., a]).mean())
        assert row.r_p == pytest.approx(abs(C[..., a].mean()))
        assert row.r_v == pytest.approx(row.r - row.r_p)
        assert row.r_v >= -1e-12


def test_controls_name_position_mass_and_ties(made_up):
    answers = made_up()
    answers.log_prob[0, 0, 0] = -1.0
    answers.log_prob[0, 0, 1, 0, 0, 0] = np.nan
    n = bias_report(answers, config=FAST).controls
    assert n["ties"] == 1
    assert n["left_out"] == 1
    assert n["comparisons"] == answers.log_prob[..., 0, 0, 0].size - 1
    assert n["equal_tokens_share"] == 1
    S = scores(answers.log_prob, "two_way")
    assert n["first_mentioned_mean"] == pytest.approx(
        np.nanmean([S[..., 0, :, 0], S[..., 1, :, 1]])
    )


def test_means_over_subjects_are_mu_and_eta_without_who_was_never_compared(leaning):
    answers = leaning.answers
    found, row = bias_items(answers), leaning.summary.iloc[0]
    assert found["mu"].mean() == pytest.approx(row["mu"], rel=1e-12)
    assert found["eta"].mean() == pytest.approx(row["eta"], rel=1e-12)
    lost = answers.log_prob.copy()
    lost[(answers.first == 0) | (answers.second == 0)] = np.nan
    found = bias_items(replace(answers, log_prob=lost))
    assert answers.subjects[0] not in found["subject"].tolist()
    assert np.isfinite(found[["mu", "eta"]]).all(axis=None)
