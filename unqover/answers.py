"""Answers of a model, saved; whatever follows needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.runs.files import RECORD
from tda_bias.runs.record import updated
from tda_bias.runs.result import Recorded
from tda_bias.runs.run import Run, open_run
from tda_bias.runs.text import counted
from tda_bias.runs.writing import writing_run
from tda_bias.types import InputError
from unqover.record import ANSWER_COLUMNS, CELLS, KEYS, MASSES, AnswersRecord

_FILE = "answers.parquet"


@dataclass(frozen=True)
class Answers(Recorded):
    """Log-probabilities of two subjects as answers.

    Attributes:
        name: Of the class.
        factors: What subjects differ in.
        subjects: Names.
        levels: Levels of each subject, one per factor.
        first: First subject of each pair.
        second: Second subject of each pair.
        templates: Names of templates.
        attributes: Names of attributes.
        kinds: Their kinds.
        sensitive: Which of them no summary prints.
        log_prob: NaN where a template does not ask about an attribute.
        mass: Probability of the two subjects together.
        n_tokens: ``(template, subject)`` tokens of the subject's name.
        record: Everything the numbers depend on.
    """

    name: str
    factors: tuple[str, ...]
    subjects: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    templates: tuple[str, ...]
    attributes: tuple[str, ...]
    kinds: tuple[str, ...]
    sensitive: tuple[bool, ...]
    log_prob: Float[np.ndarray, "pair template attribute order polarity subject"]
    mass: Float[np.ndarray, "pair template attribute order polarity"]
    n_tokens: Int[np.ndarray, "template subject"]
    record: AnswersRecord

    def __repr__(self) -> str:
        return (
            f"Answers({self.model}: {self.name}, {counted(len(self.subjects), 'subject')}, "
            f"{counted(len(self.attributes), 'attribute')}, "
            f"{counted(len(self.templates), 'template')})"
        )

    @property
    def model(self) -> str:
        """Name by which the model was asked for."""
        return self.record.model.name

    @property
    def combinations(self) -> list[str]:
        """Each subject's levels of all factors, in one string."""
        return [" ".join(levels) for levels in self.levels]

    def level_of(self, factor: int) -> list[str]:
        """Each subject's level of one factor."""
        return [levels[factor] for levels in self.levels]

    def save(self, folder: str | Path) -> None:
        """Write ``answers.parquet`` and ``run.json``: both, or none.

        Raises:
            InputError: if the folder cannot be written.
        """
        lists = {
            "subjects": list(zip(self.subjects, self.levels, strict=True)),
            "factors": self.factors,
            "templates": self.templates,
            "attributes": list(zip(self.attributes, self.kinds, self.sensitive, strict=True)),
            "tokens": self.n_tokens.tolist(),
        }
        with writing_run(folder, updated(self.record, {"lists": lists})) as run:
            run.table(_FILE, self._table())

    @classmethod
    def load(cls, folder: str | Path) -> Answers:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, "unqover")
        record = run.record_as(AnswersRecord)
        lists = record.lists
        if lists is None:
            raise InputError(f"{run.folder / RECORD} does not say what was asked; {run.again}")
        table = run.table(_FILE, ANSWER_COLUMNS)
        subjects, levels = zip(*lists.subjects, strict=True)
        attributes, kinds, sensitive = zip(*lists.attributes, strict=True)
        place = _places(run, table, (subjects, subjects, lists.templates, attributes))
        pairs, pair = np.unique(np.stack(place[:2]), axis=1, return_inverse=True)
        shape = (pairs.shape[1], len(lists.templates), len(attributes))
        log_prob, mass = np.full((*shape, 8), np.nan), np.full((*shape, 4), np.nan)
        index = (pair.reshape(-1), place[2], place[3])
        log_prob[index] = table[list(CELLS)].to_numpy()
        mass[index] = table[list(MASSES)].to_numpy()
        return cls(
            name=record.design.name,
            factors=lists.factors,
            subjects=subjects,
            levels=levels,
            first=pairs[0].astype(int),
            second=pairs[1].astype(int),
            templates=lists.templates,
            attributes=attributes,
            kinds=kinds,
            sensitive=sensitive,
            log_prob=log_prob.reshape(*shape, 2, 2, 2),
            mass=mass.reshape(*shape, 2, 2),
            n_tokens=np.array(lists.tokens),
            record=record,
        )

    def _table(self) -> pd.DataFrame:
        asked = np.isfinite(self.log_prob).any((-3, -2, -1))
        pair, template, attribute = np.nonzero(asked)
        names = (
            _named(self.subjects, self.first[pair]),
            _named(self.subjects, self.second[pair]),
            _named(self.templates, template),
            _named(self.attributes, attribute),
        )
        table = pd.DataFrame(dict(zip(KEYS, names, strict=True)))
        flat = self.log_prob[asked].reshape(len(pair), 8)
        for column, name in enumerate(CELLS):
            table[name] = flat[:, column]
        mass = self.mass[asked].reshape(len(pair), 4)
        for column, name in enumerate(MASSES):
            table[name] = mass[:, column]
        return table


def _named(names: Sequence[str], codes: np.ndarray) -> Any:
    return pd.Categorical.from_codes(codes, categories=pd.Index(names))


def _places(run: Run, table: pd.DataFrame, names: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Places of each row among the names of every key.

    Raises:
        InputError: if a row names what the record does not, or a question stands twice.
    """
    place = [
        pd.Index(listed).get_indexer(pd.Index(table[key].astype(object)))
        for key, listed in zip(KEYS, names, strict=True)
    ]
    if (
        not len(table)
        or min(codes.min() for codes in place) < 0
        or table.duplicated(list(KEYS)).any()
    ):
        raise InputError(
            f"{run.folder / _FILE} does not hold the questions that {RECORD} names, each once; "
            f"{run.again}"
        )
    return place
