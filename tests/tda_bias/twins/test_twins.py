"""Twins as an object, and as a file: its exact form, the way back, and what is refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.twins import Twins, load_twins, make_twins, save_twins
from tda_bias.twins.twins import NOT_IN_FILE
from tda_bias.types import InputError, Triple

A = Triple("a", "race", "A is here.", "s", "t", "u", "line 1")
B = Triple("b", "race", "B is here.", "s", "t", "u", "line 2")
C = Triple("c", "race", "C is here.", "s", "t", "u", "line 3")
TWINS = Twins(
    pairs=((A, (B, C)), (B, (C,))),
    excluded={C: "why", replace(C, context="C?"): "why", A: "else"},
    made={"source": "made"},
)


def test_twins_are_found_by_what_a_triple_says_not_where_it_stands():
    assert TWINS.of(replace(A, source="elsewhere")) == (B, C)
    assert TWINS.of(replace(A, group="other")) == TWINS.of(C) == ()


def test_selecting_keeps_the_twins_of_the_selected_and_counts_only_them():
    some = TWINS.only([replace(B, source="x"), C])
    assert list(some) == [(B, (C,))]
    assert some.made == TWINS.made
    assert some.of(A) == ()
    # The most frequent reason first.
    assert (some.why(), TWINS.why()) == ("why (1)", "why (2), else (1)")


def test_the_hash_is_of_the_texts_and_not_of_their_order_or_source():
    same = Twins(pairs=((B, (C,)), (replace(A, source="x"), (B, C))))
    assert same.hash() == TWINS.hash()


@pytest.mark.parametrize(
    "pairs",
    [
        ((A, (B, C)),),
        ((A, (C, B)), (B, (C,))),
        ((A, (B, replace(C, unrelated="v"))), (B, (C,))),
        ((A, (B, C)), (replace(B, group="d"), (C,))),
    ],
)
def test_the_hash_changes_with_any_text_target_or_twin(pairs):
    assert Twins(pairs=pairs).hash() != TWINS.hash()


# -- as a file -------------------------------------------------------------------------------------


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

_NOT_AMONG = r"line 2: the original is not among the triples \(profession, nurse: 'The nurse is ou"
_ALLOWED = r"line 2: unknown key `note`; allowed are target, bias_type, original, twin, twin_target"
_TEXTS = r"line 2: unknown key `twin.text`; allowed are context, stereotype, anti-stereotype, unrel"


def twin(**changes) -> dict:
    return {**LINE, "twin": {**LINE["twin"], **changes}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: not a JSON object"),
        ("[1]", r"line 2: expected a JSON object, got list"),
        ({**LINE, "note": "x"}, _ALLOWED),
        (twin(text="x"), _TEXTS),
        (twin(anti_stereotype="x"), r"unknown key `twin.anti_stereotype`"),
        (without(LINE, "original"), r"line 2: `original` is missing"),
        ({**LINE, "twin": without(TEXTS, "unrelated")}, r"line 2: `twin.unrelated` is missing"),
        (twin(stereotype=3), r"`twin.stereotype` must be .* string"),
        (twin(stereotype=" "), r"`twin.stereotype` must be a text that is not empty"),
        ({**LINE, "twin": TEXTS}, r"line 2: the twin has the original's context, 'The nurse is"),
        ({**LINE, "original": {**TEXTS, "context": "The nurse is out."}}, _NOT_AMONG),
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


# -- read --


def test_lines_with_the_same_original_are_several_twins(tmp_path):
    second = {**LINE, "twin": {**TEXTS, "context": "The mover is in."}, "twin_target": "mover"}
    twins = load_twins(write(tmp_path, LINE, "", second), [OTHER, ORIGINAL])
    assert [twin.group for twin in twins.of(ORIGINAL)] == ["tailor", "mover"]
    first = twins.of(ORIGINAL)[0]
    assert (first.context, first.category) == ("The tailor is in.", "profession")
    assert twins.excluded == {OTHER: NOT_IN_FILE}
    assert twins.record()["source"] == "file"


def test_the_twin_target_may_be_left_out(tmp_path):
    for line in (without(LINE, "twin_target"), {**LINE, "twin_target": None}):
        [other] = load_twins(write(tmp_path, line), [ORIGINAL]).of(ORIGINAL)
        assert other.group == "nurse"


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
    tailor = replace(ORIGINAL, group="tailor", context="The tailor is in.")
    save_twins(tmp_path / "a.jsonl", Twins(((ORIGINAL, (tailor,)),)))
    [line] = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == LINE


@given(
    st.text(min_size=1).filter(
        lambda t: t.strip() and not any("\ud800" <= c <= "\udfff" for c in t)
    )
)
def test_any_text_survives_the_file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("twins") / "a.jsonl"
    other = Triple("x", "race", f"{text} twin", text, text, text)
    original = Triple("y", "race", text, text, text, text)
    save_twins(path, Twins(((original, (other,)),)))
    assert load_twins(path, [original]).of(original)[0].texts() == other.texts()
