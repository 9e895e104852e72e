"""The type of a pair, and the words in which texts differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.pairs.pair import checked, differing_spans, is_evaluation_only
from tda_bias.types import InputError
from tests.support.pairs import pair


def test_texts_that_cannot_be_compared_are_refused():
    with pytest.raises(InputError, match="`less` must be a text that is not empty"):
        checked(pair("He ran", "  "))
    with pytest.raises(InputError, match="`more` and `less` are the same text"):
        checked(pair("He ran", " He  ran "))
    with pytest.raises(InputError, match="`context` must be left out"):
        checked(pair("He ran", "She ran", context=" "))
    with pytest.raises(InputError, match="`group` must be a text"):
        checked(pair("He ran", "She ran", group=""))


def test_evaluation_sets_are_known_by_their_names():
    assert is_evaluation_only("CrowS-Pairs")
    assert is_evaluation_only("crows_pairs_dev")
    assert not is_evaluation_only("scarecrows")


def test_both_texts_continue_the_context():
    own = pair(" ran.", "sat. ", context="She ")
    assert own.texts() == ("She ran.", "She sat.")
    assert pair("a b", "a c").texts() == ("a b", "a c")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("I am fat.", "I am father."), ("fat", "father")),
        (("He is a cook.", "She is a cook."), ("He", "She")),
        (("the old man said", "the woman said", "the man said"), ("old man", "woman", "man")),
        (("I don't go", "I do go"), ("don't", "do")),
        (("a very good cook", "a good cook"), ("very", "")),
        (("a b x c d", "a b y e d"), ("x c", "y e")),
        (("one", "one two"), ("", "two")),
    ],
)
def test_differing_words_are_those_between_common_beginnings_and_ends(texts, expected):
    spans = differing_spans(texts)
    assert tuple(text[a:b] for text, (a, b) in zip(texts, spans, strict=True)) == expected


@given(st.lists(st.sampled_from(["a", "bb", "c.", "d-e"]), min_size=0, max_size=6), st.data())
def test_replacing_the_differing_words_makes_texts_equal(common, data):
    """Cutting the found range out of every text leaves the same words."""
    fills = [
        data.draw(st.lists(st.sampled_from(["x", "yy", "a"]), min_size=1, max_size=3))
        for _ in range(3)
    ]
    cut = data.draw(st.integers(0, len(common)))
    texts = [" ".join([*common[:cut], *fill, *common[cut:]]) for fill in fills]
    rest = {
        " ".join((text[:a] + " " + text[b:]).split())
        for text, (a, b) in zip(texts, differing_spans(texts), strict=True)
    }
    assert len(rest) == 1


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        # Vowel signs belong to their words; Chinese has no spaces.
        (
            (
                "\u0935\u0939 \u0918\u0930 \u091c\u093e\u0924\u093e \u0939\u0948",
                "\u0935\u0939 \u0918\u0930 \u091c\u093e\u0924\u0940 \u0939\u0948",
            ),
            ("\u091c\u093e\u0924\u093e", "\u091c\u093e\u0924\u0940"),
        ),
        (
            ("\u5979\u5728\u5bb6\u505a\u996d\u3002", "\u5979\u5728\u5bb6\u5403\u996d\u3002"),
            ("\u505a", "\u5403"),
        ),
    ],
)
def test_differing_words_of_other_scripts_are_whole_words(texts, expected):
    spans = differing_spans(texts)
    assert tuple(text[a:b] for text, (a, b) in zip(texts, spans, strict=True)) == expected
