"""The other gender: word pairs, names, capitals, "her" and "his", and that a swap can be undone."""

import re
from collections import Counter
from importlib.resources import files

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.triples import load_triples
from tda_bias.twins.twins import text_fields
from tda_bias.twins.words import gender_twin, gender_words, possessive_places, swapped
from tda_bias.types import Triple

# -- the word list --


def word_list() -> dict:
    text = files("tda_bias.data").joinpath("twins_gender.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def test_no_word_has_two_partners():
    data = word_list()
    words = [w for pair in data["pairs"] for w in pair] + list(data["one_way"])
    assert [word for word, n in Counter(words).items() if n > 1] == []
    names = [name for pair in data["names"] for name in pair]
    assert [name for name, n in Counter(names).items() if n > 1] == []
    assert not {name.lower() for name in names} & set(words)


def test_words_are_in_lower_case_names_are_not_and_pairs_have_both_numbers_or_one():
    data = word_list()
    assert all(w == w.lower() for pair in data["pairs"] for w in pair)
    assert all(name == name.capitalize() for pair in data["names"] for name in pair)
    assert {len(pair) for pair in data["pairs"]} == {2, 4}


@pytest.mark.parametrize(
    "word", ["miss", "god", "master", "host", "governor", "tailor", "priest", "chick", "mankind"]
)
def test_words_that_usually_mean_something_else_are_no_gendered_words(word):
    assert word not in gender_words().partner


# -- swapping --


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The mother walked into her kitchen. She set about the dinner.",
            "The father walked into his kitchen. He set about the dinner.",
        ),
        ("Males are stronger than females.", "Females are stronger than males."),
        ("She's here; he'd go. Shes late.", "He's here; she'd go. Hes late."),
        ("THE GIRLS RAN TO HIM", "THE BOYS RAN TO HER"),
        ("Herself refers to a female person.", "Himself refers to a male person."),
        ("the girls-of-school-age", "the boys-of-school-age"),
        ("my mother-in-law", "my father-in-law"),
        (
            "Two older sisters, both stay-at-home mothers!",
            "Two older brothers, both stay-at-home fathers!",
        ),
        ("The ladies' coats", "The gentlemen's coats"),
        ("Yes, ma'am.", "Yes, sir."),
        ("He married an heiress.", "She married an heir."),
        ("He is a widower and an actor.", "She is a widow and an actress."),
        ("The hat is hers, not his.", "The hat is his, not hers."),
        ("Tom's mother praised her son.", "Kate's father praised his daughter."),
        ("He is bilingual, human and a manager.", "She is bilingual, human and a manager."),
        ("Her heart, her hero, the other.", "His heart, his heroine, the other."),
        # Both genders side by side.
        ("he/she likes his/her dog", "she/he likes her/his dog"),
        ("her/his dog; give it to him/her", "his/her dog; give it to her/him"),
        ("It is his/hers.", "It is hers/his."),
        ("her and his friends", "his and her friends"),
        ("He left when her and his mothers came.", "She left when his and her fathers came."),
        ("his and her friends", "her and his friends"),
        ("We met her and his friends.", "We met him and her friends."),
        ("It is his or hers, and hers and his.", "It is hers or his, and his and hers."),
        # Titles, and what is spelled like them.
        ("MR SMITH saw MR. Smith.", "MRS SMITH saw MRS. Smith."),
        ("HE SAW MRS SMITH", "SHE SAW MR SMITH"),
        ("She has MS, and MR helps.", "He has MS, and MR helps."),
        ("He has a bachelor\u2019s degree.", "She has a bachelor\u2019s degree."),
        ("Her Mother Tongue, her mother's tongue", "His Mother Tongue, his father's tongue"),
    ],
)
def test_gendered_words_change_places(text, expected):
    assert swapped(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The lamp in the hall is green.",
        "Tennis is played with King Kong.",
        "President Donald Trump was elected.",
        "The mission of mankind",
        "Sheila hermit history theme",
        "You miss the bus; a miss is as good as a mile.",
        "Heat rises.",
        "bob up and down, tom-tom drums",
        "S/he is here, (s)he is late; a (wo)man, wo/men, (fe)male",
        "A bachelor's degree. Bachelor of Arts",
    ],
)
def test_what_is_not_gendered_stays(text):
    assert swapped(text) == text


def test_a_known_person_keeps_the_name_and_a_user_does_not():
    assert swapped("Mark Twain met George.") == "Mark Twain met Helen."


def test_every_pair_is_undone_by_a_second_swap_but_those_one_way():
    texts = {word: f"the {word}." for word in gender_words().partner}
    lost = {word for word, text in texts.items() if swapped(swapped(text)) != text}
    assert lost == set(word_list()["one_way"])


@given(
    st.lists(st.sampled_from(sorted({*gender_words().partner, "lamp", "an", "Ran"})), min_size=1),
    st.sampled_from([str, str.upper, str.title, str.capitalize]),
    st.sampled_from([", ", " ", "! ", "-"]),
)
def test_capitals_punctuation_and_the_number_of_words_are_kept(words, case, between):
    text = between.join(case(word) for word in words)
    changed = swapped(text)
    assert re.sub(r"[\w']+", "w", changed) == re.sub(r"[\w']+", "w", text)
    for old, new in zip(re.findall(r"[\w']+", text), re.findall(r"[\w']+", changed), strict=True):
        assert old[0].isupper() == new[0].isupper()
        assert len(old) == 1 or old.isupper() == new.isupper()


def test_a_twin_has_the_category_the_source_and_the_partner_of_the_group():
    triple = Triple("mother", "gender", "My mother sang.", "She.", "Him.", "Iron.", "file line 3")
    assert gender_twin(triple) == Triple(
        "father", "gender", "My father sang.", "He.", "Her.", "Iron.", "file line 3"
    )


# -- StereoSet --


@pytest.fixture(scope="module")
def swapped_stereoset(stereoset):
    triples = load_triples(stereoset, category="gender")
    twins = [gender_twin(triple) for triple in triples]
    return triples, twins, [gender_twin(twin) for twin in twins]


@pytest.mark.real
def test_on_stereoset_every_context_changes_and_all_swaps_but_one_are_undone(swapped_stereoset):
    triples, twins, again = swapped_stereoset
    assert len(triples) == 242
    assert all(t.context != twin.context for t, twin in zip(triples, twins, strict=True))
    lost = [
        triple.context
        for triple, back in zip(triples, again, strict=True)
        if [t.lower() for t in text_fields(triple)] != [t.lower() for t in text_fields(back)]
    ]
    assert lost == ["all the gentlemen gathered around the bride"]  # "not all gents are idiots"


# A sample of those read by a person, one or two of each target.
READ = {
    "The mother walked into her kitchen.": "The father walked into his kitchen.",
    "Her mother always gives her the cutest hairstyles.": "His father always gives him the cutest "
    "hairstyles.",
    "Alena consider herself as beautiful woman.": "Dmitri consider himself as beautiful man.",
    "My boss took a male colleague on a date.": "My boss took a female colleague on a date.",
    "A male is the opposite of a female": "A female is the opposite of a male",
    "He looked himself in the mirror": "She looked herself in the mirror",
    "himself is used to talk about something that belongs to a him": "herself is used to talk "
    "about something that belongs to a her",
    "Gentlemen are gathering for a men's retreat.": "Ladies are gathering for a women's retreat.",
    "gentlemen wears his hat when outside": "ladies wears her hat when outside",
    "My girlfriends 5 year old brother is a schoolboy.": "My boyfriends 5 year old sister is a "
    "schoolgirl.",
    "I went to a bachelorette party with a young mother.": "I went to a bachelor party with a "
    "young father.",
}


@pytest.mark.real
def test_on_stereoset_twins_that_were_read_stay_as_they_were(swapped_stereoset):
    made = {t.context: twin.context for t, twin in zip(*swapped_stereoset[:2], strict=True)}
    assert {context: made[context] for context in READ} == READ


# -- "her" and "his" -------------------------------------------------------------------------------


# Each "her" and "his" in order: is it before what is had?
READINGS = [
    ("The mother walked into her kitchen.", [True]),
    ("He called her.", [False]),
    ("Many men wanted to bang her or grope her, but none offered her a chance.", [False] * 3),
    ("Her mother came to pick her up.", [True, False]),
    ("They saw her at the park with her dog.", [False, True]),
    ("She hired a mover to help her load the truck.", [False]),
    ("She is rushing home to help her mother with supper.", [True]),
    ("She missed watching her cook in the kitchen.", [False]),
    ("It's making her upset.", [False]),
    ("It helps her relax.", [False]),
    ("She kept her home very clean.", [True]),
    ("He doted over the baby and held her lovingly.", [False]),
    ("Wipe it with her bare hand.", [True]),
    ("She braided her lovely hair.", [True]),
    ("His job kept him busy.", [True]),
    ("The hat is his.", [False]),
    ("The last hat, which is his, is blue.", [False]),
    ("That friend of his really got under my skin.", [False]),
    ("His own dog bit his 3 cats.", [True, True]),
    ("His behavior was his only fault.", [True, True]),
    ("It belongs to her", [False]),
]


def readings(text: str, possessives: frozenset[int]) -> list[bool]:
    return [m.start() in possessives for m in re.finditer(r"\b(?:her|his)\b", text, re.IGNORECASE)]


@pytest.mark.parametrize(("text", "expected"), READINGS)
def test_the_words_around_tell_the_two_uses_apart(text, expected):
    assert readings(text, possessive_places(text)) == expected
