from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pvf.config import RiskConfig
from pvf.report import comparison, load_report, risk_items, risk_report
from pvf.risk import decompose
from pvf.words import load_x_weights
from tda_bias.types import InputError
from tests.support.preferences import made_up

QUICK = RiskConfig(n_resamples=100)


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


def test_tokens_of_x_are_a_column_where_the_run_knows_them():
    preferences = made_up()
    assert "tokens" not in risk_report(preferences, config=QUICK).by_x
    tokens = {x: i + 1 for i, x in enumerate(preferences.x)}
    words = preferences.record.words.model_copy(update={"tokens_of_x": tokens})
    found = risk_report(preferences.with_record(words=words), config=QUICK).by_x
    assert found["tokens"].tolist() == [1, 2, 3, 4, 5]


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
    alone = decompose(made_up().only(["he", "she"]).by_class().p, context_weights=made_up().counts)
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
    report = risk_report(preferences, config=RiskConfig(n_resamples=100, min_mass=least))
    assert report.controls["prompts_left_out"] == (mass < least).sum() > 0
    i = int(np.argmin(mass.min(1)))
    kept = mass[i] >= least
    alone = decompose(
        preferences.by_class().p[i : i + 1, kept], context_weights=preferences.counts[kept]
    )
    assert report.by_x["r"][i] == pytest.approx(alone.R)
    with pytest.raises(InputError, match="`min_mass` 0.9 leaves 'job0' no template"):
        risk_report(preferences, config=RiskConfig(n_resamples=100, min_mass=0.9))


def test_a_report_is_saved_and_computed_anew_with_its_settings(tmp_path):
    config = RiskConfig(n_resamples=100, criterion="l1", template_weights="uniform")
    report = risk_report(made_up(), config=config)
    made_up().save(tmp_path)
    report.save(tmp_path)
    found = load_report(tmp_path)
    assert found.config == config
    pd.testing.assert_frame_equal(found.by_x, report.by_x)
    pd.testing.assert_frame_equal(found.summary, report.summary)
    saved = pd.read_csv(tmp_path / "by_x.csv")
    pd.testing.assert_frame_equal(saved, report.by_x)


def test_one_template_has_no_intervals_but_a_report():
    report = risk_report(made_up(n_contexts=1), config=QUICK)
    assert "r_low" not in report.by_x
    assert "R_low_templates" not in report.summary
    assert np.isfinite(report.summary["R_low_x"][0])


def test_several_models_stand_in_one_table():
    reports = {f"m{i}": risk_report(made_up(i), config=QUICK) for i in range(2)}
    table = comparison(reports)
    assert list(table["row"]) == ["measured"] * 4 + ["reference"] * 5


def test_the_same_weights_twice_are_refused():
    first = risk_report(made_up(), config=QUICK)
    again = replace(first)
    with pytest.raises(InputError, match="before and after have the same weights"):
        comparison({"before": first, "after": again})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,weight\njob0,1\n", "must have the columns x,weight"),
        ("x,weight\njob0,-1\n", "line 2: the weight must be 0 or more; got '-1'"),
        ("x,weight\njob0,many\n", "line 2: the weight must be 0 or more; got 'many'"),
        ("x,weight\njob0,1\njob0,2\n", "line 3: 'job0' stands twice"),
        ("x,weight\nelse,1\n", "has none of the words"),
    ],
)
def test_unusable_weights_are_refused_with_their_line(tmp_path, text, message):
    path = tmp_path / "w.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_x_weights(path, ("job0", "job1"))


def test_words_without_a_weight_get_none(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("x,weight\njob1,3\nelse,5\n")
    weights, missing = load_x_weights(path, ("job0", "job1"))
    assert weights.tolist() == [0, 3]
    assert missing == ["job0"]


def test_means_over_words_are_the_risks_of_the_report():
    preferences = made_up()
    found = risk_items(preferences)
    risk = risk_report(preferences, config=RiskConfig(n_resamples=100)).risk
    assert found["x"].tolist() == list(preferences.x)
    for name in ("R", "R_p", "R_v"):
        assert found[name].mean() == pytest.approx(getattr(risk, name), rel=1e-12)
