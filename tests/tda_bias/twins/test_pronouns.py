""" "her" and "his": before what is had, or not; by the tagger and by the rule."""

import csv
import os
import re
import sys
from pathlib import Path

import pytest

from tda_bias.triples import load_triples
from tda_bias.twins import pronouns
from tda_bias.twins.pronouns import possessive_by_rule, pronoun_reader
from tda_bias.twins.twins import text_fields
from tda_bias.types import InputError

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


def test_an_unknown_pipeline_is_refused_where_a_tagger_is_asked_for(monkeypatch):
    monkeypatch.setattr(pronouns, "_installed_pipeline", lambda: None)
    with pytest.raises(InputError, match=r"`tagger` spacy needs spaCy and an English pipeline"):
        pronoun_reader("spacy")
    assert pronoun_reader("auto").name == "rule"


def test_without_spacy_the_rule_reads(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    monkeypatch.setattr(pronouns, "_installed_pipeline", pronouns._installed_pipeline.__wrapped__)
    assert pronoun_reader("auto").name == "rule"


def test_the_tagger_is_named_with_its_version():
    assert re.fullmatch(r"en_core_web_sm\w* \d+\.\d+\.\d+", pronoun_reader("auto").name)


@pytest.mark.parametrize(("text", "expected"), READINGS)
def test_the_rule_tells_the_two_uses_apart(text, expected):
    assert readings(text, possessive_by_rule(text)) == expected


@pytest.mark.parametrize(("text", "expected"), READINGS)
def test_the_tagger_tells_the_two_uses_apart(text, expected):
    assert readings(text, *pronoun_reader("spacy").read([text])) == expected


def test_texts_are_read_in_order_whatever_stands_between_them():
    texts = ["No pronoun.", "Her hat.", "", "Her hat.", "He saw her."]
    expected = [[], [True], [], [True], [False]]
    for name in ("spacy", "rule"):
        found = pronoun_reader(name).read(texts)
        assert [readings(t, p) for t, p in zip(texts, found, strict=True)] == expected


def disagreements(texts: list[str]) -> tuple[int, int]:
    """How many places rule and tagger read, and how many differently."""
    both = [pronoun_reader(name).read(texts) for name in ("rule", "spacy")]
    pairs = [
        pair
        for text, a, b in zip(texts, *both, strict=True)
        for pair in zip(readings(text, a), readings(text, b), strict=True)
    ]
    return len(pairs), sum(a != b for a, b in pairs)


@pytest.mark.real
def test_rule_and_tagger_agree_on_stereoset(stereoset):
    triples = load_triples(stereoset)
    of_gender = [text for t in triples if t.category == "gender" for text in text_fields(t)]
    others = [text for t in triples if t.category != "gender" for text in text_fields(t)]
    assert disagreements(of_gender) == (171, 0)
    assert disagreements(others) == (506, 1)


@pytest.mark.real
def test_rule_and_tagger_agree_on_texts_that_neither_was_made_for():
    folder = os.environ.get("TDABIAS_PAIRS", "")
    if not folder:
        pytest.skip("set TDABIAS_PAIRS to the folder with CrowS-Pairs and WinoBias")
    path = Path(folder) / "crows_pairs" / "crows_pairs_anonymized.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    texts = [row[name] for row in rows for name in ("sent_more", "sent_less")]
    for file in sorted((Path(folder) / "winobias").glob("*.dev")):
        lines = file.read_text(encoding="utf-8").splitlines()
        texts += [re.sub(r"^\d+ |[\[\]]", "", line) for line in lines]
    read, different = disagreements(texts)
    assert read > 1300
    assert different / read < 0.01
