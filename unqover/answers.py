"""Answers of a model with their record, saved; whatever follows needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.show.text import counted
from tda_bias.store.files import RECORD
from tda_bias.store.record import RunRecord, SourceOfRun
from tda_bias.store.result import Result, RunWriter
from tda_bias.store.run import Run
from tda_bias.types import InputError
from unqover.questions import DesignRecord

_FILE = "answers.parquet"
_KEYS = ("x1", "x2", "template", "attribute")
# Order of mention, polarity, whose score: the last three axes.
_ASKED = [f"{order}_{polarity}" for order, polarity in product(("12", "21"), ("pos", "neg"))]
_CELLS = [f"lp_{asked}_{subject}" for asked, subject in product(_ASKED, ("x1", "x2"))]
_MASSES = [f"mass_{asked}" for asked in _ASKED]
_COLUMNS = {**dict.fromkeys(_KEYS, str), **dict.fromkeys([*_CELLS, *_MASSES], float)}


class AnswersRecord(RunRecord):
    """Everything needed to ask the same questions again.

    ``tokens`` has, by template, the tokens of every subject's name.
    """

    command: str = "unqover"
    ask: str
    design: DesignRecord
    questions: int
    tokens: tuple[tuple[int, ...], ...]

    def reads(self) -> list[SourceOfRun]:
        """The class of subjects."""
        asked = f"{self.design.name} ({self.design.source})"
        return [*super().reads(), SourceOfRun(name="unqover", source=asked)]


@dataclass(frozen=True, repr=False)
class Answers(Result):
    """Log-probabilities of two subjects as answers.

    Attributes:
        log_prob: NaN where a template does not ask about an attribute.
        mass: Probability of the two subjects together.
    """

    COMMAND = "unqover"
    RECORD = AnswersRecord

    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    log_prob: Float[np.ndarray, "pair template attribute order polarity subject"]
    mass: Float[np.ndarray, "pair template attribute order polarity"]
    record: AnswersRecord

    def __repr__(self) -> str:
        return (
            f"Answers({self.model}: {self.asked.name}, {counted(len(self.subjects), 'subject')}, "
            f"{counted(len(self.attributes), 'attribute')}, "
            f"{counted(len(self.asked.templates), 'template')})"
        )

    @property
    def model(self) -> str:
        """Name by which the model was asked for."""
        return self.record.model.name

    @property
    def asked(self) -> DesignRecord:
        """The questions: names and kinds of what was asked about."""
        return self.record.design

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the subjects."""
        return self.record.design.subjects

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return self.record.design.attributes

    @property
    def n_tokens(self) -> Int[np.ndarray, "template subject"]:
        """Tokens of every subject's name."""
        return np.array(self.record.tokens)

    @property
    def combinations(self) -> list[str]:
        """Each subject's levels of all factors, in one string."""
        return [" ".join(levels) for levels in self.asked.levels]

    def level_of(self, factor: int) -> list[str]:
        """Each subject's level of one factor."""
        return [levels[factor] for levels in self.asked.levels]

    def _write(self, run: RunWriter) -> None:
        known = np.isfinite(self.log_prob).any((-3, -2, -1))
        pair, template, attribute = np.nonzero(known)
        keys = (
            (self.subjects, self.first[pair]),
            (self.subjects, self.second[pair]),
            (self.asked.templates, template),
            (self.attributes, attribute),
        )
        table = pd.DataFrame(
            {
                key: pd.Categorical.from_codes(codes, categories=pd.Index(names))
                for key, (names, codes) in zip(_KEYS, keys, strict=True)
            }
        )
        table[_CELLS] = self.log_prob[known].reshape(len(pair), 8)
        table[_MASSES] = self.mass[known].reshape(len(pair), 4)
        run.table(_FILE, table)

    @classmethod
    def _read(cls, run: Run, record: AnswersRecord) -> dict[str, np.ndarray]:
        asked, table = record.design, run.table(_FILE, _COLUMNS)
        lists = (asked.subjects, asked.subjects, asked.templates, asked.attributes)
        place = [_codes(table[key], names) for key, names in zip(_KEYS, lists, strict=True)]
        if not len(table) or min(codes.min() for codes in place) < 0:
            raise InputError(
                f"{run.folder / _FILE} does not hold the questions that {RECORD} names, each once; "
                f"{run.again}"
            )
        pairs, pair = np.unique(np.stack(place[:2]), axis=1, return_inverse=True)
        shape = (pairs.shape[1], len(asked.templates), len(asked.attributes))
        log_prob, mass = np.full((*shape, 8), np.nan), np.full((*shape, 4), np.nan)
        index = (pair.reshape(-1), place[2], place[3])
        log_prob[index] = table[_CELLS].to_numpy()
        mass[index] = table[_MASSES].to_numpy()
        first, second = pairs.astype(int)
        return {
            "first": first,
            "second": second,
            "log_prob": log_prob.reshape(*shape, 2, 2, 2),
            "mass": mass.reshape(*shape, 2, 2),
        }


def _codes(column: pd.Series, names: Sequence[str]) -> np.ndarray:
    """The place of each row's name in a list; -1 where it is not there."""
    return np.asarray(pd.Index(names).get_indexer(pd.Index(column.astype(object))))
