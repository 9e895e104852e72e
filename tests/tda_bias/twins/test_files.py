"""Twins as a file: the exact form, the way back, and everything that is refused in one line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.triples import load_triples
from tda_bias.twins import Twins, load_twins, make_twins, save_twins
from tda_bias.twins.files import NOT_IN_FILE
from tda_bias.types import InputError, Triple

ORIGINAL = Triple("nurse", "profession", "The nurse is in.", "She sang.", "She boxed.", "Iron.")
OTHER = Triple("cook", "profession", "The cook is in.", "He sang.", "He boxed.", "Iron.")
TEXTS = {
    "context": "The nurse is in.",
    "stereotype": "She sang.",
    "anti-stereotype": "She boxed.",
    "unrelated": "Iron.",
}
LINE = {
    "target": "nurse",
    "bias_type": "profession",
    "original": TEXTS,
    "twin": {**TEXTS, "context": "The tailor is in."},
    "twin_target": "tailor",
}


def write(folder, *lines):
    path = folder / "twins.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def without(keys: dict, name: str) -> dict:
    return {key: value for key, value in keys.items() if key != name}


# -- refused --


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: not JSON"),
        ("[1]", r"line 2: expected a JSON object, got list"),
        ('{"target": "a", "target": "b"}', r"line 2: the key 'target' stands twice"),
        (
            {**LINE, "note": "x"},
            r"line 2: unknown key `note`; allowed are target, bias_type, "
            r"original, twin, twin_target",
        ),
        (
            {**LINE, "twin": {**TEXTS, "text": "x"}},
            r"line 2: unknown key `twin.text`; allowed are "
            r"context, stereotype, anti-stereotype, unrelated",
        ),
        (
            {**LINE, "twin": {**TEXTS, "anti_stereotype": "x"}},
            r"unknown key `twin.anti_stereotype`",
        ),
        (without(LINE, "original"), r"line 2: `original` is missing"),
        (without(LINE, "bias_type"), r"line 2: `bias_type` is missing"),
        ({**LINE, "twin": without(TEXTS, "unrelated")}, r"line 2: `twin.unrelated` is missing"),
        (
            {**LINE, "original": without(TEXTS, "anti-stereotype")},
            r"`original.anti-stereotype` is "
            r"missing",
        ),
        ({**LINE, "bias_type": "age"}, r"line 2: `bias_type` must be 'gender', .*; got 'age'"),
        (
            {**LINE, "twin": {**LINE["twin"], "stereotype": 3}},
            r"`twin.stereotype` must be .* string",
        ),
        (
            {**LINE, "twin": {**LINE["twin"], "stereotype": " "}},
            r"`twin.stereotype` must be a text "
            r"that is not empty",
        ),
        (
            {**LINE, "twin": TEXTS},
            r"line 2: the twin has the original's context, 'The nurse is in.'",
        ),
        (
            {**LINE, "original": {**TEXTS, "context": "The nurse is out."}},
            r"line 2: the original is "
            r"not among the triples \(profession, nurse: 'The nurse is out.'\)",
        ),
        ({**LINE, "target": "cook"}, r"line 2: the original is not among the triples"),
        ({**LINE, "bias_type": "race"}, r"line 2: the original is not among the triples"),
        (LINE, r"line 2: this twin stands twice"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, line, message):
    with pytest.raises(InputError, match=message) as error:
        load_twins(write(tmp_path, LINE, line), [ORIGINAL])
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_file_without_twins_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"`twins` .*twins.jsonl holds no twin"):
        load_twins(write(tmp_path, "", " "), [ORIGINAL])


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="`twins` must be auto, none or a readable file"):
        load_twins(tmp_path / "none.jsonl", [ORIGINAL])


# -- read --


def test_lines_with_the_same_original_are_several_twins(tmp_path):
    second = {**LINE, "twin": {**TEXTS, "context": "The mover is in."}, "twin_target": "mover"}
    twins = load_twins(write(tmp_path, LINE, "", second), [OTHER, ORIGINAL])
    assert [twin.group for twin in twins.of(ORIGINAL)] == ["tailor", "mover"]
    assert twins.of(ORIGINAL)[0].context == "The tailor is in."
    assert twins.of(ORIGINAL)[0].category == "profession"
    assert [(e.triple, e.reason) for e in twins.excluded] == [(OTHER, NOT_IN_FILE)]
    assert twins.record()["source"] == "file"


def test_the_twin_target_may_be_left_out(tmp_path):
    for line in (without(LINE, "twin_target"), {**LINE, "twin_target": None}):
        [twin] = load_twins(write(tmp_path, line), [ORIGINAL]).of(ORIGINAL)
        assert twin.group == "nurse"


def test_a_file_corrected_by_hand_is_read_as_it_says(tmp_path):
    twins = make_twins([ORIGINAL], k=1)
    save_twins(tmp_path / "a.jsonl", twins)
    text = (tmp_path / "a.jsonl").read_text(encoding="utf-8")
    corrected = text.replace(twins.of(ORIGINAL)[0].context, "The candlestick maker is in.")
    (tmp_path / "a.jsonl").write_text(corrected, encoding="utf-8")
    read = load_twins(tmp_path / "a.jsonl", [ORIGINAL])
    assert read.of(ORIGINAL)[0].context == "The candlestick maker is in."
    assert read.hash() != twins.hash()


# -- written --


def test_a_line_has_the_documented_form(tmp_path):
    twin = Triple("tailor", "profession", "The tailor is in.", "She sang.", "She boxed.", "Iron.")
    save_twins(tmp_path / "a.jsonl", Twins(((ORIGINAL, (twin,)),)))
    [line] = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == LINE


def test_what_was_written_is_read_again(tmp_path):
    triples = load_triples("starter")
    twins = make_twins(triples, tagger="rule")
    save_twins(tmp_path / "a.jsonl", twins)
    read = load_twins(tmp_path / "a.jsonl", triples)
    assert read.hash() == twins.hash()
    assert [t for t, _ in read] == triples


@given(
    st.text(min_size=1).filter(
        lambda t: t.strip() and not any("\ud800" <= c <= "\udfff" for c in t)
    )
)
def test_any_text_survives_the_file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("twins") / "a.jsonl"
    twin = Triple("x", "race", f"{text} twin", text, text, text)
    original = Triple("y", "race", text, text, text, text)
    save_twins(path, Twins(((original, (twin,)),)))
    assert load_twins(path, [original]).of(original)[0].texts() == twin.texts()


@pytest.mark.real
def test_stereoset_twins_are_read_again(stereoset, tmp_path):
    triples = load_triples(stereoset)
    twins = make_twins(triples, tagger="rule")
    save_twins(tmp_path / "a.jsonl", twins)
    assert load_twins(tmp_path / "a.jsonl", triples).hash() == twins.hash()
