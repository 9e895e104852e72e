"""Word probabilities to preferences p[x, context, class]; whatever follows needs no model.

Source: [BVF] equation 8, [PCF] equations 10-11: the probability of a class is the sum over its
words (or their mean), divided by the sum over all classes, the union mass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from pvf.config import Aggregate
from pvf.record import CLASS_COLUMNS, WORD_COLUMNS, PreferencesRecord
from pvf.templates import Template
from tda_bias.runs.files import RECORD
from tda_bias.runs.record import updated
from tda_bias.runs.result import Recorded
from tda_bias.runs.run import Run, open_run
from tda_bias.runs.text import counted
from tda_bias.runs.writing import writing_run
from tda_bias.types import InputError

_KEYS = ["x", "template"]


@dataclass(frozen=True)
class ClassPreferences:
    """Preferences of one model.

    Attributes:
        p: Sums to 1 over classes.
        union_mass: Probability of all words of all classes together, before dividing by it.
        zero_mass: Where that is 0; p is uniform there.
    """

    p: Float[np.ndarray, "x context y"]
    union_mass: Float[np.ndarray, "x context"]
    zero_mass: Bool[np.ndarray, "x context"]


def class_preferences(
    word_probs: Float[np.ndarray, "... word"],
    class_of: Int[np.ndarray, " word"],
    *,
    aggregate: Aggregate = "sum",
) -> tuple[Float[np.ndarray, "... y"], Float[np.ndarray, "..."]]:
    """Preferences and union mass from word probabilities.

    Args:
        word_probs: Probability of each word at the slot.
        class_of: Index of each word's class, 0 to K - 1, every class at least once.
        aggregate: ``sum`` of the words of a class (the papers' equation), or ``mean``, which gives
            classes with few words the same weight as classes with many.

    Returns:
        Preferences, uniform where no word has any probability; and the sum over all words, whatever
        the aggregate.
    """
    member = np.eye(int(class_of.max()) + 1)[class_of]
    if aggregate == "mean":
        member = member / member.sum(0)
    mass = word_probs @ member
    total = mass.sum(-1, keepdims=True)
    empty = np.broadcast_to(total == 0, mass.shape)
    uniform = np.full_like(mass, 1.0 / mass.shape[-1])
    p = np.divide(mass, total, out=uniform, where=~empty)
    return p, word_probs.sum(-1)


@dataclass(frozen=True)
class Preferences(Recorded):
    """Word probabilities at the slot of every template for every x, and where they come from.

    Attributes:
        x: The words whose preferences these are.
        templates: The contexts, with their counts.
        classes: Names of the classes of y.
        words: The words of y that were read.
        class_of: Index of each word's class.
        log_prob: Log-probability of each word, by the chain rule over its tokens.
        continued: Probability, given the word, that what follows makes it a longer listed word.
        record: Model, settings, counts of what was left out.
    """

    x: tuple[str, ...]
    templates: tuple[Template, ...]
    classes: tuple[str, ...]
    words: tuple[str, ...]
    class_of: Int[np.ndarray, " word"]
    log_prob: Float[np.ndarray, "x context word"]
    continued: Float[np.ndarray, "x context word"]
    record: PreferencesRecord

    def __repr__(self) -> str:
        return (
            f"Preferences({self.model}: {len(self.x)} x, "
            f"{counted(len(self.templates), 'template')}, "
            f"{counted(len(self.words), 'word')} of {', '.join(self.classes)})"
        )

    @property
    def counts(self) -> Float[np.ndarray, " context"]:
        """Counts of the templates."""
        return np.array([template.count for template in self.templates])

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.record.model.name

    @property
    def word_probs(self) -> Float[np.ndarray, "x context word"]:
        """Probability of each word and of no longer listed one."""
        return np.asarray(np.exp(self.log_prob) * np.maximum(1.0 - self.continued, 0.0))

    def by_class(self, aggregate: Aggregate = "sum") -> ClassPreferences:
        """Preferences over the classes."""
        p, mass = class_preferences(self.word_probs, self.class_of, aggregate=aggregate)
        return ClassPreferences(p, mass, mass == 0)

    def only(self, words: Sequence[str]) -> Preferences:
        """The same prompts with some of the words, as if only these had been listed.

        Raises:
            InputError: if one of them was not read, or a class keeps none.
        """
        missing = [word for word in words if word not in self.words]
        if missing:
            raise InputError(
                f"`words`: {missing[0]!r} was not read; read were {len(self.words)} words such as "
                f"{', '.join(self.words[:5])}"
            )
        kept = [index for index, word in enumerate(self.words) if word in words]
        if len(set(self.class_of[kept])) < len(self.classes):
            raise InputError("`words` must leave every class at least one word")
        log_prob = self.log_prob[..., kept]
        chosen = tuple(self.words[index] for index in kept)
        # What continues a word is not listed any more; words never continue each other here,
        # because both would have to be among the few that are kept.
        for shorter, longer in self.record.words.continued:
            if shorter in chosen and longer in chosen:
                raise InputError(f"`words` must not hold both {shorter!r} and {longer!r}")
        return replace(
            self,
            words=chosen,
            class_of=self.class_of[kept],
            log_prob=log_prob,
            continued=np.zeros_like(log_prob),
        )

    def geometric_mean(self) -> Preferences:
        """The same with the geometric mean over a word's tokens in place of their product.

        It takes away the penalty for long words, and what it adds up are no probabilities.

        Raises:
            InputError: if a word was read in several written forms.
        """
        lengths = self.record.words.tokens_of_each
        several = [word for word in self.words if len(lengths[word]) > 1]
        if several:
            raise InputError(
                f"`forms`: {several[0]!r} is written in several ways, so that its number of tokens "
                "is not defined"
            )
        tokens = np.array([lengths[word][0] for word in self.words])
        return replace(
            self, log_prob=self.log_prob / tokens, continued=np.zeros_like(self.continued)
        )

    # -- files --

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``words.parquet``, ``preferences.parquet`` and ``run.json``: all, or none.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        read = {
            "x": self.x,
            "templates": [{"template": t.text, "count": t.count} for t in self.templates],
            "classes": {
                label: [w for w, c in zip(self.words, self.class_of, strict=True) if c == number]
                for number, label in enumerate(self.classes)
            },
        }
        with writing_run(folder, updated(self.record, {"read": read})) as run:
            run.table("words.parquet", self._word_table())
            run.table("preferences.parquet", self._class_table())
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> Preferences:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, "pvf")
        record = run.record_as(PreferencesRecord)
        read = record.read
        if read is None:
            raise InputError(f"{run.folder / RECORD} does not say what was read; {run.again}")
        words = [word for members in read.classes.values() for word in members]
        sizes = [len(members) for members in read.classes.values()]
        keys = pd.MultiIndex.from_product(
            [read.x, [t.template for t in read.templates], words], names=[*_KEYS, "word"]
        )
        table = run.table("words.parquet", WORD_COLUMNS)
        _check_order(run, table, keys)
        _check_tokens(run, record, words)
        shape = (len(read.x), len(read.templates), len(words))
        log_prob, continued = (
            table[name].to_numpy().reshape(shape) for name in ("log_prob", "continued")
        )
        run.table("preferences.parquet", CLASS_COLUMNS)
        return cls(
            x=read.x,
            templates=tuple(Template(t.template, t.count) for t in read.templates),
            classes=tuple(read.classes),
            words=tuple(words),
            class_of=np.repeat(np.arange(len(sizes)), sizes),
            log_prob=log_prob,
            continued=continued,
            record=record,
        )

    def _word_table(self) -> pd.DataFrame:
        labels = [self.classes[number] for number in self.class_of]
        keys = pd.MultiIndex.from_product(
            [self.x, [t.text for t in self.templates], self.words], names=[*_KEYS, "word"]
        )
        table = keys.to_frame(index=False)
        table["class"] = np.tile(labels, len(table) // len(labels))
        table["log_prob"] = self.log_prob.reshape(-1)
        table["continued"] = self.continued.reshape(-1)
        return table

    def _class_table(self) -> pd.DataFrame:
        by_class = self.by_class()
        keys = pd.MultiIndex.from_product([self.x, [t.text for t in self.templates]], names=_KEYS)
        table = keys.to_frame(index=False)
        for number, label in enumerate(self.classes):
            table[f"p_{label}"] = by_class.p[..., number].reshape(-1)
        table["union_mass"] = by_class.union_mass.reshape(-1)
        return table


def _check_order(run: Run, table: pd.DataFrame, keys: pd.MultiIndex) -> None:
    """Make sure that a table's rows are those that the record names, in this order."""
    expected = keys.to_frame(index=False)
    if len(table) != len(expected) or any(
        (table[name].to_numpy() != expected[name].to_numpy()).any() for name in expected
    ):
        raise InputError(
            f"{run.folder / 'words.parquet'} holds other words or templates than {RECORD}; "
            f"{run.again}"
        )


def _check_tokens(run: Run, record: PreferencesRecord, words: Sequence[str]) -> None:
    """Make sure that the record counts the tokens of every word."""
    x = record.read.x if record.read is not None else ()
    counted = record.words.tokens_of_x
    if not set(words) <= set(record.words.tokens_of_each) or not (
        counted is None or set(x) <= set(counted)
    ):
        raise InputError(f"{run.folder / RECORD} does not count every word's tokens; {run.again}")


def combined_forms(
    log_prob: Float[np.ndarray, "... form"],
    continued: Float[np.ndarray, "... form"],
    word_of: Int[np.ndarray, " form"],
) -> tuple[Float[np.ndarray, "... word"], Float[np.ndarray, "... word"]]:
    """Words from their written forms: probabilities add up, each form once."""
    member = np.eye(int(word_of.max()) + 1)[word_of]
    prob = np.exp(log_prob) @ member
    longer = (np.exp(log_prob) * continued) @ member
    with np.errstate(divide="ignore"):
        total = np.log(prob)
    return total, np.divide(longer, prob, out=np.zeros_like(longer), where=prob > 0)


def continued_words(
    sequences: Sequence[tuple[int, ...]], words: Sequence[str], word_of: Sequence[int]
) -> list[tuple[str, str]]:
    """Pairs of words of which the first is, in tokens, the beginning of the second."""
    pairs = {
        (words[word_of[i]], words[word_of[j]])
        for i, shorter in enumerate(sequences)
        for j, longer in enumerate(sequences)
        if len(shorter) < len(longer) and longer[: len(shorter)] == shorter
    }
    return sorted(pair for pair in pairs if pair[0] != pair[1])


def same_prompts(several: Mapping[str, Preferences]) -> None:
    """Refuse to compare models that were asked different things.

    Raises:
        InputError: naming the first two that differ.
    """
    first_name, first = next(iter(several.items()))
    for name, other in several.items():
        if (other.x, other.templates, other.classes) != (first.x, first.templates, first.classes):
            raise InputError(
                f"{first_name} and {name} cannot be compared: they were read with other words, "
                "templates or classes"
            )
