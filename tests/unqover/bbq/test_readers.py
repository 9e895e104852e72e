"""BBQ's five forms: what is read of each, and that everything else is refused in one line."""

import json
from collections import Counter

import datasets
import pytest

from tda_bias.types import InputError
from tests.support.bbq import bbq_folder, rows, write_rows
from unqover.bbq.readers import CATEGORIES, load_bbq

ES_HEAD = (
    "instance_id,template_id,question_polarity,context_condition,category,stereotyped_groups,"
    "answer_info.ans0,answer_info.ans1,answer_info.ans2,context,question,ans0,ans1,ans2,label\n"
)
ES_ROW = (
    "7,3,neg,ambig,Manos,['zurdo'],\"['zurda', 'zurdo']\",\"['diestra', 'diestro']\","
    "\"['unknown', 'unknown']\",Una persona zurda y otra diestra.,¿Quién?,La persona zurda,"
    "La persona diestra,unknown,2\n"
)
KO_HEAD = "sample_id\tcontext\tquestion\tchoices\tbiased_answer\tanswer\n"
KO_ROW = "hand-001a-002-{}\t손자와 할머니\t누가?\t['손자', '할머니', '알 수 없음']\t{}\t{}\n"


def changed(**changes) -> dict:
    return {**rows()[0], "example_id": 999, **changes}


# -- BBQ's own form --


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 3}, "line 49: `label` must be less than or equal to 2; got 3"),
        ({"label": "2"}, "line 49: `label` must be a valid integer; got 2"),
        ({"question_polarity": "negative"}, "line 49: `question_polarity` must be one of neg, non"),
        ({"context_condition": None}, "line 49: `context_condition` must be one of ambig, dis"),
        ({"answer_info": {"ans0": ["a"]}}, "line 49: `answer_info` is missing"),
        ({"context": " "}, "line 49: `context` must be a text that is not empty"),
        ({"ans1": "\u200b"}, "line 49: `ans1` must be a text that is not empty"),
        ({"example_id": 0}, "line 49: the item 0 of Hands stands in .* line 1 too"),
        ({"additional_metadata": {"stereotyped_groups": "left"}}, "line 49: `additional_metadata`"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_file_line_and_key(tmp_path, change, message):
    path = write_rows(tmp_path, changed(**change))
    with pytest.raises(InputError, match=rf"Hands.jsonl {message}"):
        load_bbq(path)


def test_a_row_without_a_key_or_without_an_answer_for_unknown_is_refused(tmp_path):
    lacking = changed()
    del lacking["question"]
    with pytest.raises(InputError, match="line 49: `question` is missing"):
        load_bbq(write_rows(tmp_path, lacking))
    named = changed(answer_info={f"ans{n}": ["x", "x"] for n in range(3)}, ans0="a", ans1="b",
                    ans2="c")  # fmt: skip
    with pytest.raises(InputError, match='line 49: one of three answers must be that of "unknown"'):
        load_bbq(write_rows(tmp_path, named))


def test_the_answer_for_unknown_is_also_known_by_its_wording(tmp_path):
    info = {**rows()[0]["answer_info"], "ans2": ["x", "x"]}
    read = load_bbq(write_rows(tmp_path, changed(answer_info=info, ans2="Can't be determined")))
    assert read.items[-1].unknown == 2


def test_items_without_a_single_target_are_left_out_by_name_and_not_lost(tmp_path):
    both = {"stereotyped_groups": ["left handed", "right handed"]}
    wrong = changed(example_id=1000, label=0)
    read = load_bbq(write_rows(tmp_path, changed(additional_metadata=both), wrong))
    assert len(read.items) == 48
    assert [(one.id, one.reason) for one in read.left_out] == [
        ("999", "no single person of the stereotyped groups"),
        ("1000", "the right answer is not of ambiguous texts"),
    ]
    (tmp_path / "none.jsonl").write_text(json.dumps(changed(additional_metadata=both)))
    with pytest.raises(InputError, match="of none of 1 items a single target can be told"):
        load_bbq(tmp_path / "none.jsonl")


def test_categories_are_chosen_in_any_case_and_others_are_refused(tmp_path):
    write_rows(tmp_path, name="Age.jsonl", category="Age")
    write_rows(tmp_path, name="SES.jsonl", category="SES")
    write_rows(tmp_path, name="answers_Age.jsonl", category="Age")  # no file of BBQ's
    assert load_bbq(tmp_path).categories == ["Age", "SES"]
    assert load_bbq(tmp_path, categories=["ses"]).categories == ["SES"]
    with pytest.raises(InputError, match="'ages' does not occur .* Age, SES; did you mean Age?"):
        load_bbq(tmp_path, categories=["ages"])
    with pytest.raises(InputError, match="has no file of BBQ in the language 'ko'"):
        load_bbq(tmp_path, language="ko")


def test_a_file_of_another_language_is_refused_by_form_name_and_wording(tmp_path):
    english = write_rows(tmp_path)
    with pytest.raises(InputError, match="'Not known' is of the language en.*give --language en"):
        load_bbq(english, language="es")
    with pytest.raises(InputError, match="is BBQ's JSON Lines; .* give --language en or es"):
        load_bbq(english, language="ko")
    dutch = write_rows(tmp_path, name="Age_nl.jsonl", unknown="Niet bekend")
    with pytest.raises(InputError, match="JSON Lines in nl; .* give --language nl"):
        load_bbq(dutch)
    assert len(load_bbq(dutch, language="nl").items) == 48
    catalan = tmp_path / "Manos_ca.csv"
    catalan.write_text(ES_HEAD + ES_ROW)
    with pytest.raises(InputError, match="EsBBQ's CSV in ca; `language` is 'es'; give .* ca"):
        load_bbq(catalan, language="es")


def test_without_a_file_english_comes_from_the_hub_and_others_must_be_given(monkeypatch, tmp_path):
    asked = []

    def split(name, config, split, **_):
        asked.append((name, config, split))
        found = datasets.Dataset.from_list(rows(category=config))
        return found

    monkeypatch.setattr("unqover.bbq.readers.hub_split", split)
    assert load_bbq(categories=["religion"]).categories == ["Religion"]
    assert asked == [("heegyu/bbq", "Religion", "test")]
    assert load_bbq().categories == list(CATEGORIES)
    with pytest.raises(
        InputError, match="language 'ko' .* give --data PATH, or name it in TDABIAS"
    ):
        load_bbq(language="ko")
    monkeypatch.setenv("TDABIAS_BBQ", str(write_rows(tmp_path)))
    assert load_bbq().categories == ["Hands"]


# -- EsBBQ and KoBBQ --


def test_esbbq_puts_unknown_into_words_in_turn(tmp_path):
    path = tmp_path / "Manos_es.csv"
    path.write_text(ES_HEAD + ES_ROW + ES_ROW.replace("7,3", "8,3"))
    read = load_bbq(path, language="es")
    assert [one.answers[2] for one in read.items] == ["No se puede saber",
                                                      "No hay información suficiente"]  # fmt: skip
    first = read.items[0]
    assert (first.template, first.target, first.first, first.unknown) == ("3", 0, 0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("['zurdo']", "zurdo"), "line 2: `stereotyped_groups` must be a list of texts; got 'zu"),
        (("unknown,2", "unknown,x"), "line 2: `label` must be a valid integer"),
        (("ambig,", "unclear,"), "line 2: `context_condition` must be one of ambig, disambig"),
        ((ES_ROW, ES_ROW.replace("7,3,", "7,")), "line 2: 14 fields, where the heading has 15"),
        ((",label", ",right"), "has no column `label`"),
    ],
)
def test_a_wrong_row_of_csv_is_named(tmp_path, change, message):
    path = tmp_path / "Manos_es.csv"
    path.write_text((ES_HEAD + ES_ROW).replace(*change))
    with pytest.raises(InputError, match=message):
        load_bbq(path, language="es")


def test_kobbq_says_bias_and_condition_in_its_ids(tmp_path):
    path = tmp_path / "samples.tsv"
    lines = [("amb-bsd", "할머니", "알 수 없음"), ("amb-cnt", "손자", "알 수 없음"),
             ("dis-bsd", "할머니", "손자")]  # fmt: skip
    path.write_text(KO_HEAD + "".join(KO_ROW.format(*line) for line in lines))
    read = load_bbq(path, language="ko")
    assert [one.target for one in read.items] == [1, 1, 1]
    assert [one.biased for one in read.items] == [1, 0, 1]
    assert [one.aligned for one in read.items] == [None, None, False]
    assert {one.cluster for one in read.items} == {"hand 001"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("amb-xxx", "손자", "손자"), "line 2: `sample_id` must be CATEGORY-TEMPLATE-VARIANT-amb"),
        (("amb-bsd", "그들", "손자"), "line 2: `biased_answer` must be one of `choices`"),
        (("amb-bsd", "손자", "그들"), "line 2: `answer` must be one of `choices`"),
    ],
)
def test_a_wrong_row_of_tsv_is_named(tmp_path, line, message):
    path = tmp_path / "samples.tsv"
    path.write_text(KO_HEAD + KO_ROW.format(*line))
    with pytest.raises(InputError, match=message):
        load_bbq(path, language="ko")


# -- the published files --


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "language", "number"),
    [
        ("TDABIAS_BBQ", "en", {"Age": 3680, "Religion": 1200, "Sexual_orientation": 864}),
        ("TDABIAS_ESBBQ", "es", {"Nationality": 504, "Religion": 648}),
        ("TDABIAS_ESBBQ", "ca", {"Nationality": 504, "Religion": 648}),
    ],
)
def test_published_files_are_read_whole_and_mention_both_first_alike(name, language, number):
    read = load_bbq(bbq_folder(name), language=language)
    counts = Counter(one.category for one in read.items)
    assert {category: counts[category] for category in number} == number
    assert not [one for one in read.left_out if one.category in number]
    # The designs are balanced: every template mentions each side first as often.
    for category in number if language == "en" else ("Religion",):
        own = [one for one in read.items if one.category == category]
        assert Counter(one.first == one.target for one in own)[True] == len(own) / 2


@pytest.mark.real
def test_kobbq_is_read_whole():
    read = load_bbq(bbq_folder("TDABIAS_KOBBQ"), language="ko")
    assert len(read.items) == 2280
    assert len({one.cluster for one in read.items}) == 269
    found = [one for one in read.items if one.first is not None]
    assert len(found) > 0.98 * len(read.items)


def test_every_category_of_bbq_is_read_from_its_file_by_its_name_in_any_case(tmp_path):
    for name in CATEGORIES:
        write_rows(tmp_path, name=f"{name}.jsonl", templates=1, category=name)
    (tmp_path / "preds_Age.jsonl").write_text("published answers are no items")
    for name in CATEGORIES:
        asked = load_bbq(str(tmp_path), categories=[name.lower()])
        assert (asked.categories, len(asked.items), asked.left_out) == ([name], 8, ())
    assert load_bbq(str(tmp_path)).categories == sorted(CATEGORIES)
