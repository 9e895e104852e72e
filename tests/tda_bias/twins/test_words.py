"""Words in the place of words: case, articles, apostrophes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.twins.words import in_case_of, replaced


def put(text: str, old: str, new: str) -> str:
    """The text with the first place of a word taken by another."""
    start = text.index(old)
    return replaced(text, [(start, start + len(old), new)])


@pytest.mark.parametrize(
    ("word", "like", "expected"),
    [
        ("father", "mother", "father"),
        ("father", "Mother", "Father"),
        ("father", "MOTHER", "FATHER"),
        ("an", "A", "An"),
        ("Cape Verde", "Spain", "Cape Verde"),
        ("chess player", "Nurse", "Chess player"),
        ("chess player", "NURSE", "CHESS PLAYER"),
        ("Norwegian", "arab", "Norwegian"),
    ],
)
def test_a_word_takes_the_capitals_of_another(word, like, expected):
    assert in_case_of(word, like) == expected


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("He is an engineer.", "engineer", "nurse", "He is a nurse."),
        ("He is a nurse.", "nurse", "engineer", "He is an engineer."),
        ("A nurse came.", "nurse", "engineer", "An engineer came."),
        ("AN ENGINEER CAME", "ENGINEER", "NURSE", "A NURSE CAME"),
        ("IS AN AUNT", "AUNT", "UNCLE", "IS AN UNCLE"),
        ('He is an "engineer".', "engineer", "nurse", 'He is a "nurse".'),
        # A slip of the original is mended.
        ("I need a assistant.", "assistant", "entrepreneur", "I need an entrepreneur."),
        ("next to an Hispanic family", "Hispanic", "Bengali", "next to a Bengali family"),
        # Words between the article and the new word keep theirs.
        ("She is an old nurse.", "nurse", "engineer", "She is an old engineer."),
        ("Vitamin a engineer", "engineer", "nurse", "Vitamin a nurse"),
        ("the pizza engineer", "engineer", "nurse", "the pizza nurse"),
    ],
)
def test_the_article_before_a_new_word_fits_it(text, old, new, expected):
    assert put(text, old, new) == expected


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("the ladies' hats", "ladies", "gentlemen", "the gentlemen's hats"),
        ("the gentlemen's hats", "gentlemen", "ladies", "the ladies' hats"),
        (
            "the software developers' desks",
            "software developers",
            "policemen",
            "the policemen's desks",
        ),
        ("the policemen's desks", "policemen", "nurses", "the nurses' desks"),
        ("THE LADIES' HATS", "LADIES", "GENTLEMEN", "THE GENTLEMEN'S HATS"),
        ("the ladies\u2019 hats", "ladies", "gentlemen", "the gentlemen\u2019s hats"),
        ("the boys' room", "boys", "girls", "the girls' room"),
        ("the men's room", "men", "women", "the women's room"),
        ("the actor's hat", "actor", "actress", "the actress's hat"),
        ("the nurse's hat", "nurse", "chess player", "the chess player's hat"),
        ("Charles' girlfriend", "Charles", "Jessica", "Jessica's girlfriend"),
        ("she's here", "she", "he", "he's here"),
        ("the princess's crown", "princess", "prince", "the prince's crown"),
    ],
)
def test_the_apostrophe_of_a_possessive_fits_the_new_word(text, old, new, expected):
    assert put(text, old, new) == expected


def test_several_places_are_replaced_at_once():
    text = "A nurse saw an actor, and an aunt."
    spans = [(text.index(w), text.index(w) + len(w)) for w in ("nurse", "actor", "aunt")]
    new = ("engineer", "man", "uncle")
    changed = replaced(text, [(*span, word) for span, word in zip(spans, new, strict=True)])
    assert changed == "An engineer saw a man, and an uncle."


@given(st.text(max_size=40), st.data())
def test_what_is_not_replaced_stays_as_it_is(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert replaced(text, []) == text
    without_articles = text.replace("a", "o").replace("A", "O").replace("'", "-")
    kept = replaced(without_articles, [(start, end, "XY")])
    assert kept == without_articles[:start] + "XY" + without_articles[end:]
