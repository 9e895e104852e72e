"""The words a preference is about: x, and the classes of y; published lists or a user's file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tda_bias.runs.files import read_text
from tda_bias.runs.settings import parse_yaml
from tda_bias.types import InputError


@dataclass(frozen=True)
class WordList:
    """Words for x.

    Attributes:
        name: Of the list, or the file's.
        source: Where the words come from.
        words: The words, in the order of the source.
    """

    name: str
    source: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class WordClasses:
    """Classes of words for y.

    Attributes:
        name: Of the attribute, or the file's.
        source: Where the words come from.
        classes: Words of each class, at least two classes; no word stands in two of them.
        shared: Words that stood in several classes and were dropped from all.
    """

    name: str
    source: str
    classes: Mapping[str, tuple[str, ...]]
    shared: tuple[str, ...]


def load_words(source: str | Path = "occupations") -> WordList:
    """Words for x.

    Args:
        source: ``occupations`` (120), ``professions`` or ``people`` (StereoSet's targets of
            profession, and of race and religion as persons), or a text file with one word per line;
            empty lines and what follows a ``#`` do not count.

    Raises:
        InputError: if there is no such list or file, or it is empty or holds a word twice.
    """
    published = _published("words.yaml")
    if source in published:
        entry = published[str(source)]
        return WordList(str(source), entry["source"], tuple(entry["words"]))
    lines = read_text(source, setting="words", named=tuple(published)).splitlines()
    words = [word for line in lines if (word := line.split("#")[0].strip())]
    if not words:
        raise InputError(f"`words` {source} is empty")
    _refuse_repeated(words, f"`words` {source}")
    return WordList(Path(source).name, str(source), tuple(words))


def load_classes(source: str | Path = "gender") -> WordClasses:
    """Word classes for y.

    Args:
        source: ``gender``, ``pronouns``, ``race``, ``religion``, ``disability``, or a YAML file of
            the form ``class: [word, ...]``.

    Raises:
        InputError: if there is no such list or file, it has fewer than two classes, a class has no
            word of its own, or something in it is not a word.
    """
    published = _published("classes.yaml")
    if source in published:
        entry = published[str(source)]
        return _classes(str(source), entry["source"], entry["classes"])
    text = read_text(source, setting="classes", named=tuple(published))
    content = parse_yaml(text, f"`classes` {source}")
    if not isinstance(content, dict):
        raise InputError(f"`classes` {source} must hold `class: [word, ...]` lines")
    return _classes(Path(source).name, str(source), content)


def named_words() -> tuple[str, ...]:
    """Lists of words x that need no file."""
    return tuple(_published("words.yaml"))


def named_classes() -> tuple[str, ...]:
    """Word classes that need no file."""
    return tuple(_published("classes.yaml"))


def _classes(name: str, source: str, content: Mapping[Any, Any]) -> WordClasses:
    where = f"`classes` {name}"
    if len(content) < 2:
        raise InputError(f"{where} must have at least 2 classes; it has {len(content)}")
    given: dict[str, list[str]] = {}
    for label, words in content.items():
        if not isinstance(words, list) or not words:
            raise InputError(f"{where}: the class {label!r} must be a list of words")
        for word in words:
            # YAML reads a bare no, yes or on as a truth value.
            if not isinstance(word, str) or not word.strip():
                raise InputError(f"{where}: {word!r} in {label!r} is not a word; put it in quotes")
        given[str(label)] = [word.strip() for word in words]
        _refuse_repeated(given[str(label)], f"{where}: the class {label!r}")
    counts = Counter(word for words in given.values() for word in words)
    shared = tuple(word for word, count in counts.items() if count > 1)
    kept = {label: tuple(w for w in words if w not in shared) for label, words in given.items()}
    for label, members in kept.items():
        if not members:
            raise InputError(f"{where}: every word of {label!r} stands in another class too")
    return WordClasses(name, source, kept, shared)


def _refuse_repeated(words: list[str], where: str) -> None:
    repeated = [word for word, count in Counter(words).items() if count > 1]
    if repeated:
        raise InputError(f"{where} holds {repeated[0]!r} twice")


def _published(file: str) -> dict[str, Any]:
    text = files("pvf.data").joinpath(file).read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def load_x_weights(path: str | Path, x: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
    """Weights of x from a CSV with the columns ``x,weight``.

    Returns:
        A weight for each x, 0 where the file has none, and the x without one.

    Raises:
        InputError: naming the line, if a weight is not a number from 0 on or a word stands twice.
    """
    reader = csv.DictReader(read_text(path, setting="x_weights", named=()).splitlines())
    if not {"x", "weight"} <= set(reader.fieldnames or ()):
        raise InputError(f"`x_weights` {path} must have the columns x,weight")
    weights: dict[str, float] = {}
    for row in reader:
        where = f"`x_weights` {path} line {reader.line_num}"
        word = (row["x"] or "").strip()
        if word in weights:
            raise InputError(f"{where}: {word!r} stands twice")
        try:
            weights[word] = float(row["weight"] or "")
        except ValueError:
            weights[word] = np.nan
        if not (np.isfinite(weights[word]) and weights[word] >= 0):
            raise InputError(f"{where}: the weight must be 0 or more; got {row['weight']!r}")
    missing = [word for word in x if word not in weights]
    if len(missing) == len(x):
        raise InputError(f"`x_weights` {path} has none of the words; the first is {x[0]!r}")
    return np.array([weights.get(word, 0.0) for word in x]), missing
