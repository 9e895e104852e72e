"""Whom an answer means, who is mentioned first, and which items a limit keeps."""

from collections import Counter

import pytest

from tda_bias.types import InputError
from tests.support.bbq import item, of_items, write_rows
from unqover.bbq.items import mentioned_first, normal, scenes, target_of, words_of
from unqover.bbq.readers import load_bbq


@pytest.mark.parametrize(
    ("groups", "labels", "target"),
    [
        (["Muslim"], {0: ["Jewish", "Jewish"], 2: ["Muslim", "Muslim"]}, 2),
        (["low SES"], {0: ["the coach", "highSES"], 1: ["the farmhand", "lowSES"]}, 1),
        (["F"], {0: ["girl", "girl"], 1: ["boy", "boy"]}, 0),
        (["Black"], {0: ["Ann", "F-Black"], 1: ["Sue", "F-White"]}, 0),
        (["F-Black"], {0: ["Ann", "F-Black"], 1: ["Sam", "M-Black"]}, 0),  # the whole label first
        (["old"], {0: ["the grandson", "nonOld"], 1: ["the grandfather", "old"]}, 1),
        (["low SES"], {0: ["Ann", "lowSES-Latino"], 1: ["Sue", "highSES-Latino"]}, 0),
        (["Latino"], {0: ["Ann", "lowSES-White"], 1: ["Sue", "lowSES-Latino"]}, 1),
        (["trans"], {0: ["the cis man", "nonTrans"], 1: ["the trans man", "trans_M"]}, 1),
        (["Disabled"], {0: ["a runner", "nonDisabled"], 1: ["a singer", "disabled"]}, 1),
        (["Kenyan"], {0: ["Kenyan", "Africa"], 1: ["Swede", "Europe"]}, 0),
        (["F"], {0: ["Ann", "F-Black"], 1: ["Sue", "F-White"]}, None),
        (["Latino"], {0: [], 1: ["Sue", "F-White"]}, None),  # labels that the data lack
        (["tall"], {0: ["short", "short"], 1: ["thin", "thin"]}, None),
        ([], {0: ["short", "short"], 1: ["", ""]}, None),
    ],
)
def test_the_target_is_the_single_person_of_the_stereotyped_groups(groups, labels, target):
    assert target_of(groups, labels) == target


def test_biased_is_the_target_of_a_negative_question_and_else_the_other_person():
    for unknown in range(3):
        for target in {0, 1, 2} - {unknown}:
            bystander = ({0, 1, 2} - {unknown, target}).pop()
            for polarity, biased in (("neg", target), ("nonneg", bystander)):
                one = item(unknown=unknown, target=target, polarity=polarity, label=unknown)
                assert (one.biased, one.other) == (biased, target + bystander - biased)
                clear = item(unknown=unknown, target=target, polarity=polarity, label=biased,
                             condition="disambiguated")  # fmt: skip
                assert (one.aligned, clear.aligned) == (None, True)


@pytest.mark.parametrize(
    ("context", "answers", "first"),
    [
        ("A left cook met a right cook.", ("The left one", "The right one"), 0),
        ("A right cook met a left cook.", ("The left one", "The right one"), 1),
        # Short words that both texts are full of do not decide.
        ("Invité a un amigo de España y a uno del Perú.", ("El del Perú", "El de España"), 1),
        # Particles follow a name.
        ("할머니와 손자를 봤습니다.", ("손자", "할머니"), 1),
        ("Somebody met a right cook.", ("The left one", "The right one"), None),
    ],
)
def test_who_is_mentioned_first_is_found_by_the_words_that_one_answer_has(context, answers, first):
    given = dict(enumerate(answers))
    assert mentioned_first(context, given, {0: [], 1: []}) == first


def test_a_label_decides_who_is_mentioned_before_the_words_of_answers_do():
    answers = {0: "The middle-aged guy", 1: "The middle schooler"}
    labels = {0: ["middle-aged guy", "old"], 1: ["middle schooler", "nonOld"]}
    text = "They interviewed a middle schooler and a middle-aged guy."
    assert mentioned_first(text, answers, labels) == 1


def test_answers_are_compared_without_case_and_punctuation_and_unknown_in_its_language():
    assert normal(" The Left  one. ") == normal("the left one")
    for language, text in (("en", "can't answer"), ("es", "no se sabe"), ("ko", "알 수 없음")):
        assert words_of(language).means_unknown(text)
    assert not words_of("es").means_unknown("Can't answer")


def test_a_scene_is_the_items_in_a_row_whose_texts_begin_alike(tmp_path):
    items = load_bbq(write_rows(tmp_path)).items
    assert Counter(map(len, scenes(items))) == {4: 12}
    assert [one for scene in scenes(items) for one in scene] == list(items)


def test_a_limit_takes_whole_scenes_of_all_templates_and_both_orders_of_mention(tmp_path):
    asked = load_bbq(write_rows(tmp_path, templates=6))
    few = asked.limited(27)
    assert len(few.items) == 24
    assert Counter(one.template for one in few.items) == dict.fromkeys("123456", 4)
    assert Counter(one.first == one.target for one in few.items) == {True: 12, False: 12}
    assert len(few.others) == 24
    assert asked.limited(None) == asked
    assert asked.limited(1000).items == asked.items
    with pytest.raises(InputError, match="`limit` 3 is below the 4 items that share a text"):
        asked.limited(3)


def test_a_limit_is_of_each_category():
    kinds = [item(id=str(n), template=str(n), category=name, context=f"A {n} met a {n + 1}.")
             for name in "ab" for n in range(5)]  # fmt: skip
    few = of_items(kinds).limited(2)
    assert Counter(one.category for one in few.items) == {"a": 2, "b": 2}
