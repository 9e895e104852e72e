"""Documents to mine: text files, JSON Lines, both compressed or not, or a `datasets` name."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from tda_bias.types import InputError

# Documents that a streamed data set keeps in memory to draw from.
_SHUFFLE_BUFFER = 10_000
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}")
_MARKUP = re.compile(r"^\s*(?:[=#*|{}<>!]|\d+\s*$)")


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
            record: Any = json.loads(line)
            text = record[field]
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
