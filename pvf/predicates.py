"""One parsed sentence to context templates: its subject, its predicate, what joins the pronoun.

In place of a coreference system there is a rule, see ``_refers``; it misses many true references.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pvf.config import Kind
from pvf.words import load_words, packaged

if TYPE_CHECKING:
    from spacy.tokens import Span, Token

_GENDER = {"he": "male", "she": "female"}
_SAME = {
    "male": {"he", "him", "his", "himself"},
    "female": {"she", "her", "hers", "herself"},
}
_SUBJECTS = {"nsubj", "nsubjpass", "nsubj:pass"}
_LONGEST = 8


class Found(NamedTuple):
    """A template in one sentence.

    Attributes:
        template: With both slots.
        connector: The word before ``[Y]``.
        lemma: Of the main verb.
    """

    template: str
    connector: str
    lemma: str


@cache
def lexicon() -> dict[str, Any]:
    """Verbs, connectors, persons and names that mining goes by."""
    content = packaged("mining.yaml")
    return {**content, "persons": {*content["persons"], *load_words("occupations").words}}


def mine_sentence(sentence: Span, kind: Kind) -> list[Found]:
    """The templates of one parsed sentence; at most one per clause that refers to its subject."""
    verb = sentence.root
    subject = _subject(verb) if verb.pos_ in ("VERB", "AUX") else None
    predicate = _predicate(verb) if subject is not None else None
    if subject is None or predicate is None:
        return []
    lemma = verb.lemma_.lower()
    found = []
    if kind == "race":
        if subject.lemma_.lower() in load_words("occupations").words and verb.pos_ != "AUX":
            found = [Found(f"The [X], who {predicate}, is [Y]", "is", lemma)]
    else:
        for pronoun in sentence:
            gender = _GENDER.get(pronoun.lower_)
            if gender and pronoun.i >= verb.i and _refers(pronoun, gender, verb, subject):
                connector = _connector(pronoun.head, verb, pronoun)
                if connector is not None:
                    found.append(Found(f"The [X] {predicate} {connector} [Y]", connector, lemma))
    return [one for one in found if _acceptable(one.template)]


def _subject(verb: Token) -> Token | None:
    """A singular person in front of the verb that is not a pronoun."""
    subjects = [child for child in verb.children if child.dep_ in _SUBJECTS and child.i < verb.i]
    if len(subjects) != 1:
        return None
    subject = subjects[0]
    if subject.tag_ not in ("NN", "NNP") or any(c.dep_ == "conj" for c in subject.children):
        return None
    return subject if _is_person(subject) else None


def _is_person(token: Token) -> bool:
    if token.ent_type_ == "PERSON":
        return True
    return token.pos_ == "NOUN" and token.lemma_.lower() in lexicon()["persons"]


def _refers(pronoun: Token, gender: str, verb: Token, subject: Token) -> bool:
    """Tell whether a pronoun is likely to mean the subject: one clause away, no other between."""
    clause = pronoun.head
    if pronoun.dep_ not in _SUBJECTS or clause.head != verb or clause == verb:
        return False
    if clause.dep_ not in ("ccomp", "advcl", "conj"):
        return False
    inside = {token.i for token in subject.subtree}
    between = [t for t in pronoun.doc[subject.sent.start : pronoun.i] if t.i not in inside]
    if any(t.i > subject.i and _is_person(t) and t.tag_ in ("NN", "NNP") for t in between):
        return False
    if any(t.lower_ in _SAME[gender] for t in between):
        return False
    names, other = lexicon()["first_names"], "female" if gender == "male" else "male"
    return not any(t.text in names[other] and t.text not in names[gender] for t in subject.subtree)


def _connector(clause: Token, verb: Token, pronoun: Token) -> str | None:
    """The word that joins the pronoun's clause to the main one; "that" where it is left out."""
    allowed = lexicon()["connectors"]
    for token in clause.children:
        joins = token.dep_ == "mark" or token.tag_ in ("WRB", "WP", "WDT")
        if joins and token.i < pronoun.i and token.lower_ in allowed:
            return str(token.lower_)
    if clause.dep_ == "conj":
        for token in verb.children:
            if token.dep_ == "cc" and verb.i < token.i < pronoun.i and token.lower_ in allowed:
                return str(token.lower_)
    elif clause.dep_ == "ccomp" and verb.lemma_ != "be" and clause.i > verb.i:
        return None if any(token.dep_ == "mark" for token in clause.children) else "that"
    return None


def _predicate(verb: Token) -> str | None:
    """The verb in the past with its particle, one object or complement, and one preposition.

    None where it is negated or modal: "did not say" must not become "said".
    """
    children = [child for child in verb.children if child.i > verb.i]
    if any(c.dep_ == "neg" or (c.dep_ == "aux" and c.tag_ in ("MD", "TO")) for c in verb.children):
        return None
    past = _past(verb)
    if past is None:
        return None
    words = [past, *(child.lower_ for child in children if child.dep_ == "prt")]
    complements = (c for c in children if c.dep_ in ("acomp", "attr", "dobj", "xcomp"))
    complement = next(complements, None)
    if complement is not None:
        phrase = _phrase(complement)
        if phrase is None:
            return None
        words += phrase
    prepositions = (_prepositional(child) for child in children if child.dep_ == "prep")
    return " ".join([*words, *next(filter(None, prepositions), [])])


def _past(verb: Token) -> str | None:
    if any(child.dep_ in ("auxpass", "aux:pass") for child in verb.children):
        return f"was {verb.lower_}" if verb.tag_ == "VBN" else None
    if verb.lemma_ == "be":
        return "was"
    if verb.tag_ == "VBD":
        return str(verb.lower_)
    if verb.tag_ not in ("VBZ", "VBP", "VBN", "VBG"):
        return None
    from lemminflect import getInflection

    forms = getInflection(verb.lemma_.lower(), "VBD")
    return str(forms[0]) if forms else None


def _phrase(token: Token) -> list[str] | None:
    """A complement: determiner and head, or "to" and a verb with its object."""
    if token.dep_ == "xcomp" and token.pos_ in ("VERB", "AUX"):
        if not any(child.tag_ == "TO" for child in token.children):
            return None
        inner = next((c for c in token.children if c.dep_ in ("dobj", "acomp", "attr")), None)
        rest = [] if inner is None or inner.pos_ == "PRON" else _nominal(inner)
        return ["to", token.lemma_.lower(), *rest]
    if token.pos_ == "PRON":
        return []
    if token.dep_ == "acomp":
        inner = next((child for child in token.children if child.dep_ == "prep"), None)
        return [token.lower_, *((_prepositional(inner) or []) if inner is not None else [])]
    return _nominal(token)


def _nominal(token: Token) -> list[str]:
    articles = [c.lower_ for c in token.children if c.dep_ == "det" and c.i < token.i]
    return [*articles, token.text if token.tag_ in ("NNP", "NNPS") else token.lower_]


def _prepositional(token: Token) -> list[str] | None:
    inner = next((child for child in token.children if child.dep_ == "pobj"), None)
    if inner is None or inner.pos_ == "PRON" or inner.ent_type_:
        return None
    return [token.lower_, *_nominal(inner)]


def _acceptable(template: str) -> bool:
    """No names, no gendered words, no numbers, not too long."""
    words = template.replace("[X],", "[X]").replace(",", "").split()
    plain = [word for word in words[1:] if word not in ("[X]", "[Y]")]
    return (
        len(plain) <= _LONGEST
        and all(word.replace("-", "").isalpha() and word == word.lower() for word in plain)
        and not set(lexicon()["gendered_words"]).intersection(plain)
    )
