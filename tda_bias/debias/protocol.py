"""The protocol of a comparison: what is trained on what and when it stops, fixed before it begins.

Targets are dealt into folds. A fold's targets test; of the others one in four stops the training
and the rest choose heads and train. Nothing is chosen or stopped on a target that tests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Int
from pydantic import BaseModel, ConfigDict, Field

from tda_bias.debias.learners import How
from tda_bias.debias.loss import LossName
from tda_bias.models.precision import Precision
from tda_bias.stats.resampling import generator
from tda_bias.types import MAX_SEED, InputError, Triple

Preset = Literal["smoke", "paper"]
Ranking = Literal[
    "evidence", "published", "importance", "effect", "mediation", "gates", "bottom", "file"
]
N_FOLDS, _FEWEST_TARGETS = 5, 4
# Steps are about as large where numbers are near 1 (gates) as a tenth of a typical weight.
RATES: dict[How, tuple[float, ...]] = {
    "gates": (0.03, 0.01, 0.1),
    "tune": (3e-4, 1e-4, 1e-3),
    "lora": (1e-3, 3e-4, 3e-3),
    "full": (1e-5, 3e-6, 3e-5),
}


class Protocol(BaseModel):
    """Everything that decides a comparison's numbers beside the model and the texts.

    The same grid of rates, the same stops and the same folds hold for every arm.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: How = "gates"
    by: tuple[Ranking, ...] = ("effect",)
    top: int = Field(27, ge=1)
    n_random: int = Field(20, ge=1)
    controls: bool = True
    n_folds: int = Field(N_FOLDS, ge=2)
    folds_run: int = Field(5, ge=1)
    epochs: int = Field(3, ge=1)
    checks_per_epoch: int = Field(1, ge=1)
    n_rates: int = Field(1, ge=1, le=3)
    batch: int = Field(12, ge=1)
    passages: int = Field(4, ge=1)
    train_items: int | None = Field(None, ge=4)
    check_items: int | None = Field(None, ge=4)
    loss: LossName = "twins"
    delta: float = Field(0.5, gt=0)
    scale: float = Field(4.0, gt=0)
    precision: Precision = "float32"
    kl: float = Field(1.0, ge=0)
    l1: float = Field(5e-4, ge=0)
    patience: int = Field(3, ge=1)
    allowed_loss: float = Field(0.02, gt=0)
    equal_losses: tuple[float, ...] = (0.01, 0.02)
    seed: int = Field(0, ge=0, le=MAX_SEED)

    def rates(self, how: How) -> tuple[float, ...]:
        """Learning rates that are tried; the stop targets decide."""
        return RATES[how][: self.n_rates]


PRESETS: dict[Preset, dict[str, Any]] = {
    "smoke": {
        "by": ("effect",), "n_random": 3, "controls": False, "folds_run": 1, "epochs": 2,
        "train_items": 36, "check_items": 36,
    },
    "paper": {
        "by": ("evidence", "published", "importance", "effect", "mediation", "gates", "bottom"),
        "n_random": 20, "controls": True, "folds_run": 5, "epochs": 4, "checks_per_epoch": 2,
        "n_rates": 3,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Fold:
    """One deal of the targets.

    Attributes:
        number: From 0; -1 for the final fit, which tests on nothing.
        train: Items that choose heads and train.
        stop: Items that stop the training.
        test: Items that are only looked at.
    """

    number: int
    train: Int[np.ndarray, " item"]
    stop: Int[np.ndarray, " item"]
    test: Int[np.ndarray, " item"]


FINAL = -1


def folds(triples: Sequence[Triple], protocol: Protocol) -> list[Fold]:
    """The folds that are run, and behind them the final fit where there are several.

    Targets are dealt so that folds have about as many items. The final fit trains on the targets
    of all folds but those that stop it; what it is worth is what the folds show.

    Raises:
        InputError: if there are fewer targets than folds, or too few to train, stop and test.
    """
    target = np.array([triple.group for triple in triples])
    names, size = np.unique(target, return_counts=True)
    fewest = max(protocol.n_folds, _FEWEST_TARGETS)
    if len(names) < fewest:
        raise InputError(
            f"targets that train, stop and test must be others: {fewest} are needed at least; the "
            f"data has {len(names)} ({', '.join(names[:5])}); give more data"
        )
    rng = generator(protocol.seed, "folds")
    order = rng.permutation(len(names))
    dealt: list[list[str]] = [[] for _ in range(protocol.n_folds)]
    load = np.zeros(protocol.n_folds)
    for index in order[np.argsort(-size[order], kind="stable")]:
        smallest = int(np.argmin(load))
        dealt[smallest].append(str(names[index]))
        load[smallest] += size[index]
    all_folds = [
        _fold(number, dealt[number], names, target, rng)
        for number in range(min(protocol.folds_run, protocol.n_folds))
    ]
    if len(all_folds) > 1:
        all_folds.append(_fold(FINAL, [], names, target, rng))
    return [_shortened(fold, protocol) for fold in all_folds]


def _fold(
    number: int,
    test: Sequence[str],
    names: np.ndarray,
    target: np.ndarray,
    rng: np.random.Generator,
) -> Fold:
    rest = [str(name) for name in names if name not in test]
    n_stop = max(1, round(len(rest) / 4))
    stop = [rest[i] for i in rng.permutation(len(rest))[:n_stop]]
    train = [name for name in rest if name not in stop]
    return Fold(number, *(np.flatnonzero(np.isin(target, part)) for part in (train, stop, test)))


def _shortened(fold: Fold, protocol: Protocol) -> Fold:
    """At most so many items of each part, spread over its targets, which stand in order."""
    most = (protocol.train_items, protocol.check_items, protocol.check_items)
    parts = zip((fold.train, fold.stop, fold.test), most, strict=True)
    return Fold(fold.number, *(_spread(part, n) for part, n in parts))


def _spread(items: Int[np.ndarray, " item"], most: int | None) -> Int[np.ndarray, " kept"]:
    if most is None or most >= len(items):
        return items
    return np.asarray(items[np.linspace(0, len(items) - 1, most).round().astype(int)])


def protocol_hash(protocol: Protocol, about: dict[str, Any]) -> str:
    """Hash of a protocol with what it is applied to: model, texts, folds, heads of a file."""
    text = json.dumps({**protocol.model_dump(mode="json"), **about}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
