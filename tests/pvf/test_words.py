"""Word lists: the published ones as published, and what a user's file may not be."""

from pathlib import Path

import pytest

from pvf.words import load_classes, load_words
from tda_bias.types import InputError


def write(folder: Path, text: str) -> Path:
    path = folder / "list"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "count"), [("occupations", 120), ("professions", 30)])
def test_published_words_are_complete(name, count):
    found = load_words(name)
    assert len(set(found.words)) == len(found.words) == count
    assert found.source


def test_the_gender_lists_lose_the_word_they_share():
    found = load_classes("gender")
    assert found.shared == ("canary",)
    assert {label: len(words) for label, words in found.classes.items()} == {
        "male": 39,
        "female": 39,
    }


@pytest.mark.parametrize(
    ("name", "classes", "words"), [("pronouns", 2, 2), ("race", 5, 7), ("religion", 6, 6)]
)
def test_published_classes_are_complete(name, classes, words):
    found = load_classes(name)
    assert len(found.classes) == classes
    assert sum(map(len, found.classes.values())) == words
    assert found.shared == ()


def test_a_text_file_gives_its_words(tmp_path):
    found = load_words(write(tmp_path, "nurse # a comment\n\n tailor\n"))
    assert found.words == ("nurse", "tailor")


def test_a_yaml_file_gives_its_classes(tmp_path):
    found = load_classes(write(tmp_path, "young: [boy, girl, child]\nold: [man, woman, child]"))
    assert found.classes == {"young": ("boy", "girl"), "old": ("man", "woman")}
    assert found.shared == ("child",)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("# nothing", "is empty"), ("nurse\nnurse", "holds 'nurse' twice")],
)
def test_unusable_words_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_words(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold `class: "),
        ("a: [x]", "at least 2 classes; it has 1"),
        ("a: [x]\nb: []", "the class 'b' must be a list of words"),
        ("a: [x]\nb: y", "the class 'b' must be a list of words"),
        ("a: [x]\nb: [no]", "False in 'b' is not a word; put it in quotes"),
        ("a: [x, x]\nb: [y]", "the class 'a' holds 'x' twice"),
        ("a: [x, y]\nb: [y]", "every word of 'b' stands in another class too"),
        ("a: [x", r"is not YAML \(line"),
    ],
)
def test_unusable_classes_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        load_classes(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(
        InputError, match="must be occupations, professions, people or a readable file; 'jobs'"
    ):
        load_words("jobs")
    with pytest.raises(
        InputError, match="must be gender, pronouns, race, religion, disability or a"
    ):
        load_classes("age")
