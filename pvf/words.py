"""Words x, classes of words y, and context templates, published or a user's."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from tda_bias.store.files import csv_objects, delimiter_of, read_text
from tda_bias.store.settings import parse_yaml
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd

NAMED_TEMPLATES = ("gender", "race")
_COMMENT = re.compile(r"(?:^|\s)#")  # "C# developer" is a word
X_SLOT, Y_SLOT = "[X]", "[Y]"


@dataclass(frozen=True)
class WordList:
    """Words for x, in the order of their source."""

    name: str
    source: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class WordClasses:
    """Two or more classes of words for y.

    ``shared`` words stood in several classes and were dropped from all. A list that is not
    ``printed`` is offensive: commands and messages name neither its words nor its classes.
    """

    name: str
    source: str
    classes: Mapping[str, tuple[str, ...]]
    shared: tuple[str, ...]
    printed: bool = True

    def said(self, label: str) -> str:
        """A class as messages name it."""
        return repr(label) if self.printed else f"class {list(self.classes).index(label) + 1}"


@dataclass(frozen=True)
class Template:
    """A sentence with one ``[X]`` and, after it, one ``[Y]``; its count is its weight.

    Whether a space stands before the word in the slot is what the template says: "[X]说[Y]" has
    none.
    """

    text: str
    count: float

    def prompt(self, word: str) -> str:
        """The text up to the slot of y, with x filled in and no space at the end."""
        return self.filled(word).split(Y_SLOT)[0].rstrip()

    @property
    def joint(self) -> str:
        """What stands between the prompt and the word in the slot: a space, or nothing."""
        return " " if self.text.split(Y_SLOT)[0][-1:].isspace() else ""

    def filled(self, word: str) -> str:
        """The text with x filled in."""
        return self.text.replace(X_SLOT, word)


def load_words(source: str | Path = "occupations") -> WordList:
    """Words for x.

    ``source`` is ``occupations`` (120), ``targets:CATEGORY`` (StereoSet's targets of gender,
    profession, race, religion, or ``all``; those of race and religion as persons),
    ``professions`` or ``people`` (the same of profession, and of race and religion),
    ``winogender`` (60), ``titles`` (all of the earlier paper's), or a text file with one word per
    line; empty lines and what follows a ``#`` at the beginning or after a space do not count.

    Raises:
        InputError: if there is no such list or file, or it is empty or holds a word twice.
    """
    published = packaged("words.yaml")
    if source in published:
        return WordList(str(source), published[str(source)]["source"], _published(str(source)))
    lines = read_text(source, setting="words", named=tuple(published)).splitlines()
    words = [word for line in lines if (word := _COMMENT.split(line)[0].strip())]
    if not words:
        raise InputError(f"`words` {source} is empty")
    _refuse_repeated(words, f"`words` {source}")
    return WordList(Path(source).name, str(source), tuple(words))


def _published(name: str) -> tuple[str, ...]:
    """The words of a list of the package, which may be made of others."""
    entry = packaged("words.yaml")[name]
    if "words" in entry:
        return tuple(entry["words"])
    return tuple(word for part in entry["of"] for word in _published(part))


def load_classes(source: str | Path = "gender") -> WordClasses:
    """Word classes for y.

    ``source`` is ``gender``, ``pronouns``, ``race``, ``religion``, ``disability``, or a YAML file
    of the form ``class: [word, ...]``.

    Raises:
        InputError: if there is no such list or file, it has fewer than two classes, a class has no
            word of its own, or something in it is not a word.
    """
    published = packaged("classes.yaml")
    if source in published:
        entry = published[str(source)]
        found = _classes(str(source), entry["source"], entry["classes"])
        return replace(found, printed=is_printed(found.name, found.source))
    text = read_text(source, setting="classes", named=tuple(published))
    content = parse_yaml(text, f"`classes` {source}")
    return _classes(Path(source).name, str(source), content)


def is_printed(name: str, source: str) -> bool:
    """Tell whether the words of a list may be printed; a user's own may."""
    entry = packaged("classes.yaml").get(name, {})
    return source != entry.get("source") or bool(entry.get("printed", True))


def _classes(name: str, source: str, content: Any) -> WordClasses:
    where = f"`classes` {name}"
    if not isinstance(content, dict):
        raise InputError(f"{where} must hold `class: [word, ...]` lines")
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


def load_templates(source: str | Path = "gender") -> list[Template]:
    """Templates with their counts.

    ``source`` is ``gender`` or ``race`` (the ten most frequent published ones), or a CSV file with
    the columns ``template,count``.

    Raises:
        InputError: naming the line, if a template lacks a slot, has one twice or in the wrong
            order, a count is not a positive number, or a template stands twice.

    Source: [BVF] "Bias and Volatility", appendix D.
    """
    if source in NAMED_TEMPLATES:
        text = _packaged_text(f"templates_{source}.csv")
    else:
        text = read_text(source, setting="templates", named=NAMED_TEMPLATES)
    templates: dict[str, Template] = {}
    where, delimiter = f"`templates` {source}", delimiter_of(source) or ","
    rows = csv_objects(text, where, columns=("template", "count"), delimiter=delimiter)
    for where, row in rows:
        template, count = row["template"].strip(), _number(row["count"])
        if fault := _fault_of(template):
            raise InputError(f"{where}: {fault}; got {template!r}")
        if template in templates:
            raise InputError(f"{where}: the template stands twice")
        if not 0 < count < math.inf:
            raise InputError(f"{where}: the count must be a positive number; got {row['count']!r}")
        templates[template] = Template(template, count)
    if not templates:
        raise InputError(f"`templates` {source} has no template")
    return list(templates.values())


def _fault_of(template: str) -> str:
    for slot in (X_SLOT, Y_SLOT):
        if slot not in template:
            return f"the template lacks {slot}"
        if template.count(slot) > 1:
            return f"the template has more than one {slot}"
    if template.index(X_SLOT) > template.index(Y_SLOT):
        return f"{X_SLOT} must come before {Y_SLOT}"
    return ""


def load_x_weights(path: str | Path, x: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Weights of x from a CSV with the columns ``x,weight``.

    Returns:
        A weight for each x, 0 where the file has none, and the x without one.

    Raises:
        InputError: as ``numbers_by_x``, or if no x has a weight.
    """
    weights = numbers_by_x(path, "x_weights", ("x", "weight"))["weight"]
    missing = [word for word in x if word not in weights]
    if len(missing) == len(x):
        raise InputError(f"`x_weights` {path} has none of the words; the first is {x[0]!r}")
    return weights.reindex(list(x), fill_value=0.0).to_numpy(), missing


def word_frequencies(words: Iterable[str]) -> list[float] | None:
    """Zipf frequencies: log10 of occurrences in a billion English words, 0 where there are none.

    From the package wordfreq (the extra ``frequency``); None where it is not installed.
    """
    try:
        from wordfreq import zipf_frequency
    except ImportError:
        return None
    return [float(zipf_frequency(word, "en")) for word in words]


def numbers_by_x(path: str | Path, setting: str, columns: Sequence[str]) -> pd.DataFrame:
    """A user's CSV of numbers that belong to words x: one row per x, NaN where a field is empty.

    ``setting`` names the file in messages; ``columns`` are those it must have, ``x`` among them.

    Raises:
        InputError: naming the line, if a column is missing, a word is empty or stands twice, a
            value is not a number, or a ``weight`` not one from 0 on.
    """
    import pandas as pd

    source, delimiter = f"`{setting}` {path}", delimiter_of(path) or ","
    rows: dict[str, dict[str, float]] = {}
    text = read_text(path, setting=setting, named=())
    for where, row in csv_objects(text, source, columns=columns, delimiter=delimiter):
        word = row.pop("x").strip()
        if not word or word in rows:
            raise InputError(f"{where}: the word {word!r} is empty or stands twice")
        rows[word] = {name: _number(value) for name, value in row.items()}
        for name, value in rows[word].items():
            if name == "weight" and not 0 <= value < math.inf:
                raise InputError(f"{where}: weight must be 0 or more; got {row[name]!r}")
            if row[name].strip() and not math.isfinite(value):
                raise InputError(f"{where}: {name} must be a number; got {row[name]!r}")
    if not rows:
        raise InputError(f"{source} has no row")
    return pd.DataFrame.from_dict(rows, orient="index")


def _number(text: str) -> float:
    """A number as a user wrote it; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@cache
def packaged(file: str) -> dict[str, Any]:
    """The content of a YAML file of the package."""
    content: dict[str, Any] = yaml.safe_load(_packaged_text(file))
    return content


def _packaged_text(file: str) -> str:
    """A file of the package."""
    return files("pvf").joinpath("data", file).read_text(encoding="utf-8")


def _refuse_repeated(words: list[str], where: str) -> None:
    repeated = [word for word, count in Counter(words).items() if count > 1]
    if repeated:
        raise InputError(f"{where} holds {repeated[0]!r} twice")
