from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pvf.config import RiskConfig
from pvf.papers import paper_name, published, risk_table, unlike_the_papers
from pvf.report import comparison, load_report, risk_items, risk_report
from pvf.risk import decompose
from pvf.words import Template
from tda_bias.types import InputError
from tests.support.preferences import as_published, made_up, renamed

QUICK = RiskConfig()


def test_the_report_is_the_decomposition_of_the_preferences():
    preferences = made_up()
    report = risk_report(preferences, config=QUICK)
    expected = decompose(preferences.by_class().p, context_weights=preferences.counts)
    measured = report.summary.iloc[0]
    assert (measured["R"], measured["R_p"], measured["R_v"]) == (
        expected.R,
        expected.R_p,
        expected.R_v,
    )
    np.testing.assert_array_equal(report.by_x["r"], expected.r)
    np.testing.assert_array_equal(report.by_x["s_female"], expected.mean_s[:, 1])
    mass = preferences.by_class().union_mass @ expected.context_weights[0]
    np.testing.assert_allclose(report.by_x["union_mass"], mass)


def test_pronouns_and_reference_models_stand_beside_the_measured_row():
    report = risk_report(made_up(), config=QUICK)
    assert list(report.summary["name"]) == [
        "model-0",
        "model-0, he and she alone",
        "ideally unbiased",
        "stereotyped",
        "randomly stereotyped",
        "randomly initialised",
        "the same, these templates",
    ]
    pronouns = made_up().pronouns_alone().by_class().p
    alone = decompose(pronouns, context_weights=made_up().counts)
    assert report.summary["R"][1] == alone.R
    last = report.summary.iloc[-1]
    assert last["R_p"] + last["R_v"] == pytest.approx(last["R"])
    assert last["R_p"] > 0.1  # three contexts


def test_variants_change_one_choice_at_a_time():
    preferences, weights = made_up(), np.arange(1.0, 6)
    report = risk_report(preferences, config=QUICK, x_weights=weights)
    p, counts = preferences.by_class().p, preferences.counts
    variants = report.variants.set_index("variant")["R"]
    for templates, w_c in (("counts", counts), ("uniform", None)):
        for label, w_x in (("uniform", None), ("given", weights)):
            expected = decompose(p, context_weights=w_c, x_weights=w_x).R
            name = f"template weights {templates}, x weights {label}"
            assert variants[name] == pytest.approx(expected)
    one_sided = decompose(p, context_weights=counts, x_weights=weights, one_sided=True)
    assert variants["definition one_sided"] == pytest.approx(one_sided.R)
    averaged = preferences.by_class("mean").p
    expected = decompose(averaged, context_weights=counts, x_weights=weights).R
    assert variants["aggregate mean"] == pytest.approx(expected)


def test_prompts_with_little_mass_can_be_left_out():
    preferences = made_up(n_contexts=8)
    mass = preferences.by_class().union_mass
    least = float(np.quantile(mass, 0.1))
    report = risk_report(preferences, config=RiskConfig(min_mass=least))
    assert report.controls["prompts_left_out"] == (mass < least).sum() > 0
    i = int(np.argmin(mass.min(1)))
    kept = mass[i] >= least
    alone = decompose(
        preferences.by_class().p[i : i + 1, kept], context_weights=preferences.counts[kept]
    )
    assert report.by_x["r"][i] == pytest.approx(alone.R)
    unread = preferences.log_prob.copy()
    unread[:, 0] = -50  # a template that no word keeps
    without = replace(preferences, log_prob=unread)
    found = risk_report(without, config=RiskConfig(min_mass=least))
    assert (found.risk.context_weights[:, 0] == 0).all()
    with pytest.raises(InputError, match="`min_mass` 0.9 leaves 'job0' no template"):
        risk_report(preferences, config=RiskConfig(min_mass=0.9))


def test_a_report_is_saved_and_computed_anew_with_its_settings(tmp_path):
    config = RiskConfig(criterion="l1", template_weights="uniform")
    report = risk_report(made_up(), config=config)
    made_up().save(tmp_path)
    report.save(tmp_path)
    found = load_report(tmp_path)
    assert found.config == config
    pd.testing.assert_frame_equal(found.by_x, report.by_x)
    pd.testing.assert_frame_equal(found.summary, report.summary)
    saved = pd.read_csv(tmp_path / "by_x.csv")
    pd.testing.assert_frame_equal(saved, report.by_x)


def test_several_models_stand_in_one_table_but_not_one_twice_or_of_other_questions():
    first, other = (risk_report(made_up(i), config=QUICK) for i in range(2))
    table = comparison({"a": first, "b": other})
    assert list(table["row"]) == ["measured"] * 4 + ["reference"] * 5
    with pytest.raises(InputError, match="before and after have the same weights"):
        comparison({"before": first, "after": replace(first)})
    other = replace(other, preferences=renamed(other.preferences, classes=("x", "y")))
    with pytest.raises(InputError, match="a and b cannot be compared"):
        comparison({"a": first, "b": other})


def test_means_over_words_are_the_risks_of_the_report():
    preferences = made_up()
    found = risk_items(preferences)
    risk = risk_report(preferences, config=RiskConfig()).risk
    assert found["x"].tolist() == list(preferences.x)
    for name in ("R", "R_p", "R_v"):
        assert found[name].mean() == pytest.approx(getattr(risk, name), rel=1e-12)


# -- published rows --------------------------------------------------------------------------------


def test_published_values_are_those_of_the_papers():
    risk = published()["risk"]["tables"]
    assert len(risk["gender"]["rows"]) == 12
    for table in risk.values():
        assert table["source"]
        for name, R, R_p, R_v in table["rows"]:
            # Baichuan is misprinted in the paper.
            slack = 0.001 if name == "Baichuan-13B" else 0.00025
            assert pytest.approx(R_p + R_v, abs=slack) == R, name


@pytest.fixture(scope="module")
def published_report():
    return risk_report(as_published(), config=QUICK)


def test_risk_stands_among_published_rows(published_report):
    table = risk_table({"gpt2": published_report}, "gender")
    assert len(table) == 13
    ours = table[table["from"] == "here"].iloc[0]
    assert ours["R"] == pytest.approx(float(published_report.summary.iloc[0]["R"]))
    assert ours["the same as"] == "GPT-2"
    assert table["R"].is_monotonic_decreasing
    assert paper_name("smollm2-135m") == ""
    with pytest.raises(InputError, match="`table` must be one of gender, race"):
        risk_table({}, "age")


def test_only_what_was_measured_as_the_papers_did_stands_in_their_table(published_report):
    preferences = published_report.preferences

    def reasons(changed=preferences, table="gender", weights=None, **settings):
        config = RiskConfig(**settings)
        return unlike_the_papers(risk_report(changed, config=config, x_weights=weights), table)

    assert reasons() == []
    other_x = renamed(preferences, x=("pilot of a ship", *preferences.x[1:]))
    assert reasons(other_x) == ["words x are others than the papers' 120 occupations"]
    other_y = renamed(preferences, classes=("men", "women"))
    assert reasons(other_y) == ["words y are others than the papers' of gender"]
    first = Template("The [X] thought that [Y]", 5.0)
    templates = renamed(preferences, templates=(first, *preferences.templates[1:]))
    assert reasons(templates) == ["templates are others than the papers' ten"]
    assert reasons(criterion="l1") == ["criterion is l1, the papers' linf"]
    assert reasons(weights=np.arange(1.0, 121.0)) == ["words x have weights"]
    assert "words y are others" in reasons(table="race")[0]
    assert reasons(table="gender, in Chinese") == ["its templates or words are not published"]
    with pytest.raises(InputError, match="cannot stand in the papers' table of race: words y are"):
        risk_table({"gpt2": published_report}, "race")
