"""What a model answered, saved; whatever follows needs no model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.records.files import atomic, prepare_folder, to_json, write_text
from tda_bias.records.record import reading_run

_KEYS = ["x1", "x2", "template", "attribute"]
# Order of mention, polarity, whose score: the last three axes.
_CELLS = [
    f"lp_{order}_{polarity}_{subject}"
    for order, polarity, subject in product(("12", "21"), ("pos", "neg"), ("x1", "x2"))
]


@dataclass(frozen=True)
class Answers:
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
    record: dict[str, Any]

    @property
    def model(self) -> str:
        """What the model was asked for as."""
        return str(self.record["model"]["name"])

    @property
    def combinations(self) -> list[str]:
        """Each subject's levels of all factors, in one string."""
        return [" ".join(own) for own in self.levels]

    def level_of(self, factor: int) -> list[str]:
        """Each subject's level of one factor."""
        return [own[factor] for own in self.levels]

    def save(self, folder: Path) -> None:
        """Write ``answers.parquet`` and ``run.json``.

        Raises:
            InputError: if the folder cannot be written.
        """
        prepare_folder(folder)
        with atomic(folder / "answers.parquet") as path:
            self._table().to_parquet(path, index=False)
        lists = {
            "subjects": [list(pair) for pair in zip(self.subjects, self.levels, strict=True)],
            "factors": self.factors,
            "templates": self.templates,
            "attributes": [
                list(own) for own in zip(self.attributes, self.kinds, self.sensitive, strict=True)
            ],
            "tokens": self.n_tokens.tolist(),
        }
        write_text(folder / "run.json", to_json({**self.record, "lists": lists}))

    @classmethod
    def load(cls, folder: str | Path) -> Answers:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no such run.
        """
        folder = Path(folder)
        with reading_run(folder, "unqover"):
            record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            table = pd.read_parquet(folder / "answers.parquet")
            lists = record.pop("lists")
            subjects, levels = zip(*lists["subjects"], strict=True)
            attributes, kinds, sensitive = zip(*lists["attributes"], strict=True)
            place = [
                pd.Categorical(table[key], names).codes
                for key, names in zip(
                    _KEYS, (subjects, subjects, lists["templates"], attributes), strict=True
                )
            ]
            pairs, pair = np.unique(np.stack(place[:2]), axis=1, return_inverse=True)
            shape = (pairs.shape[1], len(lists["templates"]), len(attributes))
            log_prob, mass = np.full((*shape, 8), np.nan), np.full((*shape, 4), np.nan)
            index = (pair.reshape(-1), place[2], place[3])
            log_prob[index] = table[_CELLS].to_numpy()
            mass[index] = table[_mass_columns()].to_numpy()
            return cls(
                name=record["design"]["class"],
                factors=tuple(lists["factors"]),
                subjects=subjects,
                levels=tuple(tuple(own) for own in levels),
                first=pairs[0].astype(int),
                second=pairs[1].astype(int),
                templates=tuple(lists["templates"]),
                attributes=attributes,
                kinds=kinds,
                sensitive=sensitive,
                log_prob=log_prob.reshape(*shape, 2, 2, 2),
                mass=mass.reshape(*shape, 2, 2),
                n_tokens=np.array(lists["tokens"]),
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
        table = pd.DataFrame(dict(zip(_KEYS, names, strict=True)))
        flat = self.log_prob[asked].reshape(len(pair), 8)
        for column, name in enumerate(_CELLS):
            table[name] = flat[:, column]
        mass = self.mass[asked].reshape(len(pair), 4)
        for column, name in enumerate(_mass_columns()):
            table[name] = mass[:, column]
        return table


def _named(names: Sequence[str], codes: np.ndarray) -> Any:
    return pd.Categorical.from_codes(codes, categories=pd.Index(names))


def _mass_columns() -> list[str]:
    return [f"mass_{o}_{p}" for o, p in product(("12", "21"), ("pos", "neg"))]
