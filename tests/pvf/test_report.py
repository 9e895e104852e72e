from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pvf.brief import risk_brief
from pvf.config import RiskConfig
from pvf.finding import mass_warning, risk_finding
from pvf.papers import paper_name, risk_table, unlike_the_papers, write_risk_tables
from pvf.plots import extreme_words
from pvf.preferences import SourceRecord
from pvf.reference import Reference, load_reference
from pvf.report import (
    comparison,
    load_report,
    risk_options,
    risk_report,
)
from pvf.risk import decompose
from pvf.tables import risk_items
from pvf.word_tokens import word_tokens
from pvf.words import Template, load_classes, packaged
from tda_bias.crossref.crossref import WordScores
from tda_bias.store.run import open_run, with_parts
from tda_bias.types import InputError
from tdabias_cli.main import run
from tdabias_cli.page import Names, RunSaid, _section
from tests.support.preferences import as_published, made_up, renamed


def test_the_report_is_the_decomposition_of_the_preferences():
    preferences = made_up()
    report = risk_report(preferences)
    expected = decompose(preferences.by_class().p, context_weights=preferences.counts)
    measured = report.summary.iloc[0]
    assert [*measured[["R", "R_p", "R_v"]]] == [expected.R, expected.R_p, expected.R_v]
    np.testing.assert_array_equal(report.by_x["r"], expected.r)
    np.testing.assert_array_equal(report.by_x["s_female"], expected.mean_s[:, 1])
    mass = preferences.by_class().union_mass @ expected.context_weights
    np.testing.assert_allclose(report.by_x["union_mass"], mass)

    found = risk_items(preferences)
    assert found["x"].tolist() == list(preferences.x)
    for name in ("R", "R_p", "R_v"):
        assert found[name].mean() == pytest.approx(getattr(report.risk, name), rel=1e-12)


def test_pronouns_and_reference_models_stand_beside_the_measured_row():
    report = risk_report(made_up())
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
    report = risk_report(preferences, x_weights=weights)
    p, counts = preferences.by_class().p, preferences.counts
    variants = report.variants.set_index("variant")
    for templates, w_c in (("counts", counts), ("uniform", None)):
        for label, w_x in (("uniform", None), ("given", weights)):
            expected = decompose(p, context_weights=w_c, x_weights=w_x).R
            name = f"template weights {templates}, x weights {label}"
            assert variants["R"][name] == pytest.approx(expected)
    averaged = preferences.by_class("mean").p
    expected = decompose(averaged, context_weights=counts, x_weights=weights).R
    assert variants["R"]["aggregate mean"] == pytest.approx(expected)
    np.testing.assert_allclose(variants["R"], variants["R_p"] + variants["R_v"])
    # The published code, literally: only what deviates to the side of the mean is a risk.
    s, w = 2 * p - 1, counts / counts.sum()
    sides = [np.argmax(w @ of_x) for of_x in s]
    r = [w @ np.maximum(of_x[:, side], 0) for of_x, side in zip(s, sides, strict=True)]
    one_sided = np.average(r, weights=weights)
    assert variants["R"]["definition one_sided"] == pytest.approx(one_sided)


def test_a_report_is_saved_and_computed_anew_with_its_settings(tmp_path):
    config = RiskConfig(confidence=0.9)
    report = risk_report(made_up(), config=config)
    made_up().save(tmp_path)
    report.save(tmp_path)
    found = load_report(tmp_path)
    assert found.config == config
    pd.testing.assert_frame_equal(found.by_x, report.by_x)
    pd.testing.assert_frame_equal(found.summary, report.summary)
    saved = pd.read_csv(tmp_path / "by_x.csv")
    pd.testing.assert_frame_equal(saved, report.by_x)


def test_words_of_weight_0_are_not_counted_and_weights_of_no_file_have_no_command(tmp_path):
    report = risk_report(made_up(), x_weights=np.array([1.0, 0, 2, 0, 1]))
    toward = sum(report.risk.mean_s[word, 0] > 0 for word in (0, 2, 4))
    said = f"over 3 weighted words. {toward} of 3 words lean to male, {3 - toward} to female."
    assert said in risk_finding(report).result[0]
    assert set(extreme_words(report)) == {"job0", "job2", "job4"}
    report.save(tmp_path)
    with pytest.raises(InputError, match="`x_weights` are of no file"):
        risk_options(open_run(tmp_path))


def test_several_models_stand_in_one_table_but_not_one_twice_or_of_other_questions():
    first, other = (risk_report(made_up(i)) for i in range(2))
    table = comparison({"a": first, "b": other})
    assert list(table["row"]) == ["measured"] * 4 + ["reference"] * 5
    with pytest.raises(InputError, match="before and after have the same weights"):
        comparison({"before": first, "after": replace(first)})
    other = replace(other, preferences=renamed(other.preferences, classes=("x", "y")))
    with pytest.raises(InputError, match="a and b cannot be compared"):
        comparison({"a": first, "b": other})


def test_other_words_y_or_weights_of_x_are_another_measure_and_what_a_tokenizer_lacks_is_not():
    weighted, alike, other = ([2.0, 0, 1, 1, 1], [20.0, 0, 10, 10, 10], [1.0, 0, 1, 1, 1])
    first = risk_report(made_up(0), x_weights=np.array(weighted))
    for preferences, weights in (
        (made_up(1), None),
        (made_up(1), other),
        (made_up(1, words=("he", "she"), class_of=(0, 1)), weighted),
    ):
        second = risk_report(preferences, x_weights=weights and np.array(weights))
        with pytest.raises(InputError, match="a and b cannot be compared: they have other words"):
            comparison({"a": first, "b": second})
    lacking = made_up(1, words=("he", "she"), class_of=(0, 1))
    words = lacking.record.words.model_copy(update={"not_read": {"him": "several tokens"}})
    lacking = lacking.with_record(words=words)
    comparison({"a": first, "b": risk_report(lacking, x_weights=np.array(alike))})


def test_hardly_any_mass_is_a_warning_that_names_the_likely_cause():
    def warned(words, template, factor=1e-6):
        made = made_up(words=words)
        made = renamed(
            made, templates=[Template(f"{template}{c}[Y]", 1.0) for c in ("", " ", "  ")]
        )
        return mass_warning(replace(made, log_prob=made.log_prob + np.log(factor)))

    english, chinese = ("he", "him", "she"), ("他", "他们", "她")
    assert warned(english, "The [X] said", factor=1.0) == []
    (spaced,) = warned(chinese, "[X]说")
    assert "has one before [Y]: write [X]说[Y]" in spaced
    (joined,) = warned(english, "The [X] said")
    assert "a template has no space before [Y]" in joined
    made = made_up()
    faint = replace(made, log_prob=made.log_prob - 20)
    (other,) = mass_warning(faint)
    assert "do not lead to these words" in other
    assert other in risk_finding(risk_report(faint)).control


def test_an_offensive_list_is_kept_in_files_and_never_printed(tmp_path, capsys):
    listed = load_classes("disability")
    names = tuple(listed.classes)
    made = made_up(words=names, class_of=range(len(names)))
    classes = {name: (name,) for name in names}
    words = made.record.words.model_copy(
        update={
            "y": SourceRecord(name=listed.name, source=listed.source),
            "not_read": {names[0]: "several tokens"},
        }
    )
    read = made.record.read.model_copy(update={"classes": classes})
    made = made.with_record(words=words, read=read)
    report = risk_report(made, reference=Reference.of(np.full(7, 1 / 7), "even", "even.csv"))
    report.save(tmp_path)
    assert f"s_{names[2]}" in (tmp_path / "by_x.csv").read_text()
    texts = [repr(made), repr(report), report._repr_html_()]
    for options in ([], ["--verbose"], ["--format", "json"], ["--format", "csv"]):
        assert run(["show", str(tmp_path), *options]) == 0
        texts.append(capsys.readouterr().out)
    assert "7 classes of disability" in texts[3]
    # Pictures, the page with its record and tables, LaTeX, and tables that are joined with heads.
    assert run(["figures", str(tmp_path), "--as", "svg", "--out", str(tmp_path / "drawn")]) == 0
    texts += [path.read_text() for path in (tmp_path / "drawn").iterdir()]
    [opened] = with_parts([tmp_path])
    names_of = Names.given([opened], None)
    said = RunSaid.of(opened, names_of)
    section = _section(said, [opened], names_of)
    tables = [*section.tables.values(), *(one.items for one in said.outcomes)]
    texts += [section.record, *(table.to_csv() for table in tables)]
    assert "s_class 1" in section.tables["by_x"]
    texts.append(" ".join(map(str, WordScores.load(tmp_path).by_x.columns)))
    assert "class 3" in "".join(texts)
    printed = "\n".join(texts).lower()
    assert [name for name in names if name in printed] == []
    own = replace(listed, name="mine", source="mine.yaml", printed=True)
    assert own.said(names[0]) == repr(names[0])


def test_messages_do_not_name_an_offensive_list_either(subwords, tmp_path):
    listed = load_classes("disability")
    with pytest.raises(InputError, match="no word of class 1 can be read") as caught:
        word_tokens(subwords, listed, one_token=True)
    (tmp_path / "r.csv").write_text("x,else\ncook,1\n")
    with pytest.raises(InputError, match="'else' is no class; .* 7 that are not named") as other:
        load_reference(tmp_path / "r.csv", ("cook",), (), tuple(listed.classes), printed=False)
    for name in listed.classes:
        assert name not in str(caught.value) + str(other.value)


# -- published rows --------------------------------------------------------------------------------


def test_published_values_are_those_of_the_papers():
    risk = packaged("published.yaml")["risk"]["tables"]
    assert len(risk["gender"]["rows"]) == 12
    for table in risk.values():
        assert table["source"]
        for name, R, R_p, R_v in table["rows"]:
            # Baichuan is misprinted in the paper.
            slack = 0.001 if name == "Baichuan-13B" else 0.00025
            assert pytest.approx(R_p + R_v, abs=slack) == R, name


@pytest.fixture(scope="module")
def published_report():
    return risk_report(as_published())


def test_risk_stands_among_published_rows(published_report):
    about = published_report.preferences.record.model.model_copy(update={"name": "gpt2"})
    preferences = published_report.preferences.with_record(model=about)
    table = risk_table({"gpt2": replace(published_report, preferences=preferences)}, "gender")
    assert len(table) == 13
    ours = table[table["from"] == "here"].iloc[0]
    assert ours["R"] == pytest.approx(float(published_report.summary.iloc[0]["R"]))
    assert ours["the same as"] == "GPT-2"
    assert table["R"].is_monotonic_decreasing
    assert paper_name("smollm2-135m") == ""
    assert paper_name("THUDM/chatglm2-6b") == ""  # cannot be loaded


def test_several_runs_of_one_model_stand_in_the_table_by_their_folders(published_report, tmp_path):
    runs = []
    for name in ("word", "bare"):
        published_report.save(tmp_path / name)
        runs.append(open_run(tmp_path / name))
    write_risk_tables(runs, tmp_path / "out", pytest.fail)
    table = pd.read_csv(tmp_path / "out" / "risk_gender.csv")
    ours = table.loc[table["from"] == "here", "model"]
    assert sorted(ours) == sorted(str(run.folder) for run in runs)


def test_only_what_was_measured_as_the_papers_did_stands_in_their_table(published_report):
    preferences = published_report.preferences
    first = Template("The [X] thought that [Y]", 5.0)

    def reasons(table="gender", **changes):
        return unlike_the_papers(replace(published_report, **changes), table)

    def renamed_reasons(**names):
        return reasons(preferences=renamed(preferences, **names))

    assert reasons() == []
    other_x = renamed_reasons(x=("pilot of a ship", *preferences.x[1:]))
    assert other_x == ["words x are others than the papers' 120 occupations"]
    other_y = renamed_reasons(classes=("men", "women"))
    assert other_y == ["words y are others than the papers' of gender"]
    templates = renamed_reasons(templates=(first, *preferences.templates[1:]))
    assert templates == ["templates are others than the papers' ten"]
    assert reasons(x_weights=np.arange(1.0, 121.0)) == ["words x have weights"]
    assert "words y are others" in reasons("race")[0]
    assert reasons("gender, in Chinese") == ["its templates or words are not published"]


def test_a_word_that_leans_to_neither_class_is_not_counted_as_one_of_the_second():
    report = risk_report(made_up(n_x=12, n_contexts=8))
    leans = [1.0] * 5 + [-1.0] * 4 + [0.0] * 3
    report = replace(report, by_x=report.by_x.assign(s_male=leans))
    (line,) = [one for one in risk_brief(report).lines if one.label == "lean to male"]
    assert (line.value, line.rest) == ("5", "words, 4 to female, 3 to neither")
    assert (
        "5 of 12 words lean to male, 4 to female, 3 to neither." in risk_finding(report).result[0]
    )
