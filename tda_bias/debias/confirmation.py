"""One look at a trained model on targets that its training never saw in any role."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.debias.saving import ABOUT
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.runs.files import now, read_text, write_text
from tda_bias.runs.text import Finding, counted, interval_text, p_text
from tda_bias.scores.pair_scores import compared, pair_items
from tda_bias.sources import hash_of
from tda_bias.stats.clusters import cluster_mean, flip_pvalue
from tda_bias.stats.resampling import generator
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.types import InputError, Triple

LOOKS = "looks.json"


@dataclass(frozen=True)
class Look:
    """Answers of a trained model, and of the one it was made from, to new items.

    Attributes:
        quantity: ``beta`` per token of triples with twins, or ``log-odds`` of pairs, nats.
        group: Target of each item.
        before: Of the untouched model.
        after: Of the trained one.
        p: Two-sided, of the change of the mean: signs of whole targets flipped.
        limits: 95 % limits of the change, over targets.
    """

    quantity: str
    group: tuple[str, ...]
    before: Float[np.ndarray, " item"]
    after: Float[np.ndarray, " item"]
    p: float
    limits: tuple[float, float]

    def table(self) -> pd.DataFrame:
        """One row per item: ``group before after``."""
        return pd.DataFrame({"group": self.group, "before": self.before, "after": self.after})

    def summary(self) -> dict[str, Any]:
        """Means of both models, and the change with its interval and p."""
        change = self.after - self.before
        low, high = self.limits
        return {
            "quantity": self.quantity, "items": len(change), "targets": len(set(self.group)),
            "before": float(self.before.mean()), "after": float(self.after.mean()),
            "change": float(change.mean()), "low": low, "high": high, "p": self.p,
        }  # fmt: skip

    def finding(self, model: str) -> Finding:
        """The verdict on a trained model."""
        found = self.summary()
        unit = "nats per token" if self.quantity == "beta" else "nats"
        less = abs(found["after"]) < abs(found["before"]) and self.p < 0.05
        verdict = (
            f"{model} is less biased than the model it was trained from on other targets too."
            if less
            else f"On other targets {model} is not measurably less biased than the model it was "
            "trained from."
        )
        limits = interval_text(found["low"], found["high"], 3, sign="+")
        said = (
            f"Mean {self.quantity} of {found['items']} items of "
            f"{counted(found['targets'], 'target')} that no training saw: {found['before']:.3f} "
            f"before, {found['after']:.3f} after ({unit}; change {found['change']:+.3f}, 95 % "
            f"{limits}, p {p_text(self.p)})."
        )
        return Finding(result=[verdict, said], control=["This was the look: there is no second."])


def read_about(folder: Path) -> dict[str, Any]:
    """The record that a model folder has of its training.

    Raises:
        InputError: if `tdabias debias` did not write it.
    """
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        seen = {str(t).casefold() for targets in about["targets"].values() for t in targets}
        return about | {"seen": seen}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{folder} is no model that `tdabias debias` saved") from None


def refuse_second_look(folder: Path, about: dict[str, Any]) -> None:
    """Refuse a model whose protocol has been confirmed or refuted already.

    Raises:
        InputError: saying when.
    """
    for look in _looks(folder):
        if look["protocol"] == about["protocol"]:
            raise InputError(
                f"{folder} was looked at on {look['when']} ({look['pairs']}): a second look with "
                "the same protocol would be chosen among two; train with another protocol, or use "
                "tdabias compare, which confirms nothing"
            )


def _looks(folder: Path) -> list[dict[str, Any]]:
    try:
        looks: list[dict[str, Any]] = json.loads((folder / LOOKS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / LOOKS} cannot be read ({error})") from None
    return looks


def note_look(folder: Path, about: dict[str, Any], source: str) -> None:
    """Write down that a look was taken, before its result is seen."""
    content = hash_of(_text(source))
    entry = {"protocol": about["protocol"], "when": now(), "pairs": source, "hash": content}
    write_text(folder / LOOKS, json.dumps([*_looks(folder), entry], indent=2) + "\n")


def read_items(source: str, about: dict[str, Any]) -> list[Triple] | PairSet:
    """Triples, or pairs, of a file; none of a target that the training saw.

    Raises:
        InputError: if the file cannot be read, or shares targets with the training.
    """
    first = next((line for line in _text(source).splitlines() if line.strip()), "")
    items: list[Triple] | PairSet
    if '"anti-stereotype"' in first or '"data"' in first:
        items = load_triples(source, category=about["category"])
        groups = {triple.group for triple in items}
    else:
        items = load_pairs(source)
        groups = {pair.group for pair in items.pairs}
    shared = sorted(group for group in groups if group.casefold() in about["seen"])
    if shared:
        raise InputError(
            f"`pairs` {source} shares {counted(len(shared), 'target')} with the training "
            f"({', '.join(shared[:3])}): what was trained on them cannot be confirmed on them"
        )
    return items


def _text(source: str) -> str:
    return read_text(source, setting="pairs", named=("a file",))


def look(
    items: list[Triple] | PairSet,
    load: Sequence[Callable[[], LanguageModel]],
    *,
    batch_size: int = 32,
    seed: int = 0,
    n_resamples: int = 9999,
) -> Look:
    """Compare the two models on the items.

    Args:
        items: From ``read_items``.
        load: Gives the untouched model, and the trained one.
        batch_size: Texts per forward pass.
        seed: Of the flips.
        n_resamples: Flips of signs, where there are too many to enumerate.

    Raises:
        InputError: if no triple has a twin, or fewer than two targets are left.
    """
    quantity = "beta" if isinstance(items, list) else "log-odds"
    read = _beta if isinstance(items, list) else _log_odds
    (group, before), (_, after) = (read(items, load_model(), batch_size) for load_model in load)
    if len(set(group)) < 2:
        raise InputError(f"a confirmation needs two targets or more; got {len(set(group))}")
    change = after - before
    rng = generator(seed, "signs of targets")
    p = flip_pvalue(change, group, n_resamples=n_resamples, rng=rng)
    limits = cluster_mean(change, group).limits()
    return Look(quantity, tuple(group), before, after, p, limits)


def _beta(triples: Any, model: LanguageModel, size: int) -> tuple[list[str], np.ndarray]:
    twins = make_twins(triples)
    kept = [triple for triple in triples if twins.of(triple)]
    if not kept:
        raise InputError("no triple of `pairs` has a twin; give pairs instead")
    texts = TwinTexts(model, kept, [twins.of(triple) for triple in kept], batch_size=size)
    return [t.group for t in kept], texts.answers(range(len(kept))).gap


def _log_odds(pairs: Any, model: LanguageModel, size: int) -> tuple[list[str], np.ndarray]:
    table = compared(pair_items(model, pairs, batch_size=size))
    table = table[table["log_odds"].notna()]
    return table["group"].astype(str).tolist(), table["log_odds"].to_numpy(float)
