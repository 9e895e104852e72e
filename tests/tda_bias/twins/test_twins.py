"""The object: looking up, selecting, counting, hashing."""

from dataclasses import replace

import pytest

from tda_bias.twins import Excluded, Twins
from tda_bias.twins.twins import content
from tda_bias.types import Triple

A = Triple("a", "race", "A is here.", "s", "t", "u", "line 1")
B = Triple("b", "race", "B is here.", "s", "t", "u", "line 2")
C = Triple("c", "race", "C is here.", "s", "t", "u", "line 3")
TWINS = Twins(
    pairs=((A, (B, C)), (B, (C,))),
    excluded=(Excluded(C, "why"), Excluded(replace(C, context="C?"), "why"), Excluded(A, "else")),
    made={"source": "made"},
)


def test_twins_are_found_by_what_a_triple_says_not_where_it_stands():
    assert TWINS.of(replace(A, source="elsewhere")) == (B, C)
    assert TWINS.of(replace(A, group="other")) == ()
    assert TWINS.of(C) == ()


def test_iterating_gives_triples_with_their_twins():
    assert list(TWINS) == [(A, (B, C)), (B, (C,))]
    assert len(TWINS) == 2
    assert TWINS
    assert not Twins(())


def test_selecting_keeps_the_twins_of_the_selected_and_counts_only_them():
    some = TWINS.only([replace(B, source="x"), C])
    assert list(some) == [(B, (C,))]
    assert some.reasons() == {"why": 1}
    assert some.made == TWINS.made
    assert some.of(A) == ()


def test_reasons_are_counted_the_most_frequent_first():
    assert list(TWINS.reasons().items()) == [("why", 2), ("else", 1)]


def test_the_record_counts_triples_and_twins():
    record = TWINS.record()
    assert (record["triples"], record["twins"]) == (2, 3)
    assert record["excluded"] == {"why": 2, "else": 1}
    assert record["source"] == "made"


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


def test_content_leaves_out_the_source_alone():
    assert content(A) == content(replace(A, source=""))
    for name in ("group", "category", "context", "stereotype", "anti_stereotype", "unrelated"):
        assert content(replace(A, **{name: "x"})) != content(A)
