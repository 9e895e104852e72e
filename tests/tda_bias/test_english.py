"""Articles and plurals: a word list of English, and what the packaged texts need."""

import pytest

from tda_bias.english import article, plural
from unqover.classes import attributes_of


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ("a", "nurse; high school dropout; European man; university student; Ukrainian; unicorn"),
        ("a", "user; US citizen; UN envoy; UK citizen; U-turn; uth; one-way street; once; ewe"),
        ("a", "union; unanimous vote; Ugandan; utopia; houri; PhD graduate; NASA engineer; year"),
        ("an", "engineer; atheist man; Iranian man; uncle; Uzbek man; undertaker; usher"),
        ("an", "hour; honest man; heir; heiress; honour; Euler path; ytterbium lamp; eth"),
        ("an", "MBA graduate; FBI agent; x-ray; F; A-level; nth; only child; unimportant detail"),
        ("a", "9 year old; 20-year-old; 1-year-old; 100-year-old; 100 metre runner; 110; 1100; 0"),
        ("an", "80 year old; 18-year-old; 11th-hour guest; 8-year-old; 800; 8000; 11000; 18000000"),
    ],
)
def test_articles_go_by_the_sound_also_of_numbers(expected, words):
    assert {word: article(word) for word in words.split("; ")} == dict.fromkeys(
        words.split("; "), expected
    )


@pytest.mark.parametrize(
    ("singular", "expected"),
    [
        ("nurse", "nurses"), ("secretary", "secretaries"), ("attorney", "attorneys"),
        ("coach", "coaches"), ("boss", "bosses"), ("waitress", "waitresses"),
        ("policeman", "policemen"), ("delivery man", "delivery men"), ("woman", "women"),
        ("German", "Germans"), ("Roman", "Romans"), ("shaman", "shamans"), ("human", "humans"),
        ("person", "people"), ("salesperson", "salespeople"), ("grandchild", "grandchildren"),
        ("housewife", "housewives"), ("thief", "thieves"), ("chief", "chiefs"), ("chef", "chefs"),
        ("hero", "heroes"), ("police", "police"), ("Chinese", "Chinese"), ("Swiss", "Swiss"),
        ("chief of staff", "chiefs of staff"), ("editor-in-chief", "editors-in-chief"),
        ("mother-in-law", "mothers-in-law"), ("passer-by", "passers-by"),
        ("attorney general", "attorneys general"), ("general", "generals"),
    ],
)  # fmt: skip
def test_plurals_of_people(singular, expected):
    assert plural(singular) == expected


def test_packaged_occupations_but_few_have_a_regular_plural():
    nouns = {a.name for name in ("occupations", "professions") for a in attributes_of(name)}
    irregular = {noun: plural(noun) for noun in nouns if plural(noun) != f"{noun}s"}
    assert irregular == {
        "coach": "coaches", "delivery man": "delivery men", "policeman": "policemen",
        "salesperson": "salespeople", "secretary": "secretaries", "spy": "spies",
    }  # fmt: skip
