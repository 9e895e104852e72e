"""Word probabilities to preferences p[x, context, class]; whatever follows needs no model.

Source: [BVF] equation 8, [PCF] equations 10-11: the probability of a class is the sum over its
words (or their mean), divided by the sum over all classes, the union mass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from pydantic import Field

from pvf.config import ScoreConfig
from pvf.words import Template, is_printed
from tda_bias.show.text import counted
from tda_bias.store.files import RECORD
from tda_bias.store.record import RecordPart, RunRecord, SourceOfRun
from tda_bias.store.result import Result, RunWriter
from tda_bias.store.run import Run
from tda_bias.types import InputError

PRONOUNS = ("he", "she")
Aggregate = Literal["sum", "mean"]
_WORDS = "words.parquet"
_WORD_COLUMNS = {"x": str, "template": str, "word": str, "log_prob": float, "continued": float}


# -- the record ------------------------------------------------------------------------------------


class SourceRecord(RecordPart):
    """A list of words: its name, and where it comes from."""

    name: str
    source: str


class WordsRecord(RecordPart):
    """The lists of words of a run, and what became of them.

    Attributes:
        shared_by_classes: Words in several classes, dropped from all.
        not_read: Words left out, with the reason.
        tokens_of_each: Tokens of every word of y.
        tokens_by_template: The same for templates in which they are others: a word may stand there
            without a space before it.
        tokens_of_x: Tokens that each x adds to a prompt.
        continued: Pairs of words of which the first begins the second.
    """

    x: SourceRecord
    y: SourceRecord
    shared_by_classes: tuple[str, ...] = ()
    not_read: dict[str, str] = Field(default_factory=dict)
    tokens_of_each: dict[str, int]
    tokens_by_template: dict[str, dict[str, int]] = Field(default_factory=dict)
    tokens_of_x: dict[str, int] | None = None
    continued: tuple[tuple[str, str], ...] = ()


class ReadRecord(RecordPart):
    """Words x, templates with their counts, and words y by class, in the order of the tables."""

    x: tuple[str, ...] = Field(min_length=1)
    templates: tuple[tuple[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]], ...]
    classes: dict[str, tuple[str, ...]] = Field(min_length=2)


class PreferencesRecord(RunRecord):
    """Everything needed to read the same preferences again.

    ``prompts`` has their number, tokens and hash.
    """

    command: str = "pvf"
    read_config: ScoreConfig | None = None
    words: WordsRecord
    read: ReadRecord
    prompts: dict[str, Any] = Field(default_factory=dict)

    def reads(self) -> list[SourceOfRun]:
        """The lists of words."""
        lists = [f"{one.name} ({one.source})" for one in (self.words.x, self.words.y)]
        return [*super().reads(), SourceOfRun(name="pvf", source="; ".join(lists))]

    @property
    def printed(self) -> bool:
        """Whether words and classes of y may be printed: not those of an offensive list."""
        return is_printed(self.words.y.name, self.words.y.source)

    def concealed(self) -> dict[str, str]:
        """What is printed in the place of words, classes and their columns that are not printed.

        Empty for lists that may be printed.
        """
        if self.printed:
            return {}
        lost = (*self.words.shared_by_classes, *self.words.not_read)
        words = [*chain.from_iterable(self.read.classes.values()), *lost]
        said = {word: f"word {number}" for number, word in enumerate(dict.fromkeys(words), start=1)}
        for number, label in enumerate(self.read.classes, start=1):
            said[label] = f"class {number}"
            said |= {f"{part}_{label}": f"{part}_class {number}" for part in ("s", "reference")}
        return said


# -- preferences -----------------------------------------------------------------------------------


class ClassPreferences(NamedTuple):
    """Preferences over classes, which sum to 1; uniform where no word has any probability.

    ``union_mass`` is the probability of all words of all classes together, before dividing by it.
    """

    p: Float[np.ndarray, "... y"]
    union_mass: Float[np.ndarray, "..."]


def class_preferences(
    word_probs: Float[np.ndarray, "... word"],
    class_of: Int[np.ndarray, " word"],
    *,
    aggregate: Aggregate = "sum",
) -> ClassPreferences:
    """Preferences and union mass from word probabilities.

    ``class_of`` is the number of each word's class. A class is the sum of its words (the papers'
    equation), or their mean (their code).
    """
    member = np.eye(int(class_of.max()) + 1)[class_of]
    if aggregate == "mean":
        member = member / member.sum(0)
    mass = word_probs @ member
    total = mass.sum(-1, keepdims=True)
    uniform = np.full_like(mass, 1.0 / mass.shape[-1])
    p = np.divide(mass, total, out=uniform, where=np.broadcast_to(total != 0, mass.shape))
    return ClassPreferences(p, word_probs.sum(-1))


def word_probabilities(
    log_prob: Float[np.ndarray, "... word"], continued: Float[np.ndarray, "... word"]
) -> Float[np.ndarray, "... word"]:
    """Probability of each word and of no longer listed one, as ``Preferences`` has them."""
    return np.asarray(np.exp(log_prob) * np.maximum(1.0 - continued, 0.0))


@dataclass(frozen=True, repr=False)
class Preferences(Result):
    """Word probabilities at the slot of every template for every x, and where they come from.

    Attributes:
        log_prob: Log-probability of each word, by the chain rule over its tokens.
        continued: Probability, given the word, that what follows makes it a longer listed word.
    """

    COMMAND = "pvf"
    RECORD = PreferencesRecord

    log_prob: Float[np.ndarray, "x context word"]
    continued: Float[np.ndarray, "x context word"]
    record: PreferencesRecord

    def __repr__(self) -> str:
        return (
            f"Preferences({self.model}: {len(self.x)} x, "
            f"{counted(len(self.templates), 'template')}, "
            f"{counted(len(self.words), 'word')} of {self.classes_text(', ')})"
        )

    @property
    def x(self) -> tuple[str, ...]:
        """The words whose preferences these are."""
        return self.record.read.x

    @property
    def templates(self) -> tuple[Template, ...]:
        """The contexts, with their counts."""
        return tuple(Template(*template) for template in self.record.read.templates)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes of y."""
        return tuple(self.record.read.classes)

    @property
    def printed(self) -> bool:
        """Whether words and classes of y may be printed: not those of an offensive list."""
        return self.record.printed

    @property
    def printed_classes(self) -> tuple[str, ...]:
        """Names of the classes as pictures show them: numbers where they are not printed."""
        said = self.record.concealed()
        return tuple(said.get(label, label) for label in self.classes)

    def classes_text(self, joint: str) -> str:
        """The names of the classes; their number where they are not printed."""
        if self.printed:
            return joint.join(self.classes)
        return f"{counted(len(self.classes), 'class', 'classes')} of {self.record.words.y.name}"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of y that were read, class by class."""
        return tuple(chain.from_iterable(self.record.read.classes.values()))

    @property
    def class_of(self) -> Int[np.ndarray, " word"]:
        """Index of each word's class."""
        sizes = [len(members) for members in self.record.read.classes.values()]
        return np.repeat(np.arange(len(sizes)), sizes)

    @property
    def counts(self) -> Float[np.ndarray, " context"]:
        """Counts of the templates, which are their weights."""
        return np.array([count for _, count in self.record.read.templates])

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.record.model.name

    @property
    def word_probs(self) -> Float[np.ndarray, "x context word"]:
        """Probability of each word and of no longer listed one."""
        return word_probabilities(self.log_prob, self.continued)

    def by_class(self, aggregate: Aggregate = "sum") -> ClassPreferences:
        """Preferences over the classes."""
        return class_preferences(self.word_probs, self.class_of, aggregate=aggregate)

    def pronouns_alone(self) -> Preferences | None:
        """The same with he and she only; None where these are all, or are not the two classes."""
        classes = {
            label: tuple(word for word in members if word in PRONOUNS)
            for label, members in self.record.read.classes.items()
        }
        if [len(kept) for kept in classes.values()] != [1, 1] or len(self.words) == 2:
            return None
        log_prob = self.log_prob[..., [word in PRONOUNS for word in self.words]]
        read = self.record.read.model_copy(update={"classes": classes})
        return replace(
            self,
            log_prob=log_prob,
            continued=np.zeros_like(log_prob),  # "heiress" is not listed any more
            record=self.record.model_copy(update={"read": read}),
        )

    def geometric_mean(self) -> Preferences:
        """The same with the geometric mean over a word's tokens in place of their product.

        It takes away the penalty for long words, and what it adds up are no probabilities.
        """
        words = self.record.words
        of_each = [
            words.tokens_by_template.get(t.text, words.tokens_of_each) for t in self.templates
        ]
        log_prob = self.log_prob / np.array([[n[word] for word in self.words] for n in of_each])
        return replace(self, log_prob=log_prob, continued=np.zeros_like(log_prob))

    def _write(self, run: RunWriter) -> None:
        words = _keys(self.record.read)
        labels = np.array(self.classes, dtype=object)[self.class_of]
        words["class"] = np.tile(labels, len(words) // len(labels))
        words["log_prob"] = self.log_prob.reshape(-1)
        words["continued"] = self.continued.reshape(-1)
        run.table(_WORDS, words)

    @classmethod
    def _read(cls, run: Run, record: PreferencesRecord) -> dict[str, np.ndarray]:
        keys, table = _keys(record.read), run.table(_WORDS, _WORD_COLUMNS)
        if not len(keys) or not table[[*keys]].astype(object).equals(keys.astype(object)):
            raise InputError(
                f"{run.folder / _WORDS} holds other words or templates than {RECORD}; {run.again}"
            )
        shape = (len(record.read.x), len(record.read.templates), -1)
        return {name: table[name].to_numpy().reshape(shape) for name in ("log_prob", "continued")}


def _keys(read: ReadRecord) -> pd.DataFrame:
    """The columns that name the rows of a table: every x in every template, with every word."""
    texts = [text for text, _ in read.templates]
    every = read.x, texts, chain.from_iterable(read.classes.values())
    return pd.MultiIndex.from_product(every, names=("x", "template", "word")).to_frame(index=False)
