"""One look at a trained model on targets that no training saw."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.comparison.paired import PairedItems
from tda_bias.debias.experiment import PROTOCOL
from tda_bias.debias.saved_model import ABOUT, LOOK, look_of_run
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.scores.pair_scores import compared, pair_items
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import Finding, counted, interval_text, number_text, p_text, short_name
from tda_bias.sources import hash_of
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import LEVEL
from tda_bias.stats.seeds import generator
from tda_bias.store.files import now, read_text, to_json, write_text
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.twins.told_apart import told_apart
from tda_bias.types import InputError, Triple


@dataclass(frozen=True)
class Look:
    """Answers of a trained model, and of the one it was made from, to new items.

    Attributes:
        table: One row per item: ``group`` (its target) and ``before after``, of both models: beta
            per token of triples with twins, or the log-odds of pairs, nats.
        summary: Means ``before after`` and their ``change`` with 95 % limits over targets ``low
            high`` and ``p``, two-sided: signs of whole targets flipped; ``smallest``: the change
            that a t-test finds four times out of five; and whether the size of the mean is
            measurably ``less``: the change is, and where the mean has changed its sign, before and
            after added up are not 0.
    """

    table: pd.DataFrame
    summary: dict[str, Any]

    def finding(self, model: str) -> Finding:
        """The verdict on a trained model."""
        found = self.summary
        unit = "nats per token" if found["quantity"] == "beta" else "nats"
        verdict = (
            f"{model} is less biased than the model it was trained from on other targets too."
            if found["less"]
            else f"On other targets {model} is not measurably less biased than the model it was "
            "trained from."
        )
        limits = interval_text(found["low"], found["high"], 3, sign="+")
        said = (
            f"Mean {found['quantity']} of {found['items']} items of "
            f"{counted(found['targets'], 'target')} that no training saw: {found['before']:.3f} "
            f"before, {found['after']:.3f} after ({unit}; change {found['change']:+.3f}, 95 % "
            f"{limits}, p {p_text(found['p'])})."
        )
        return Finding(
            result=[verdict, said],
            control=["This was the look: there is no second."],
            power=[
                f"With {counted(found['targets'], 'target')} a change of "
                f"{number_text(found['smallest'], 3)} {unit} is found four times out of five."
            ],
            brief=Brief(
                about=[short_name(model), f"{found['items']} items of other targets"],
                said=verdict,
                lines=[
                    Line(
                        f"{found['quantity']}",
                        f"{found['after']:.3f}",
                        f"{unit} of {found['before']:.3f}",
                    ),
                    Line(
                        "change", f"{found['change']:+.3f}", f"({limits}, p {p_text(found['p'])})"
                    ),
                    Line("targets", str(found["targets"]), "that no training saw"),
                    Line("would have found", number_text(found["smallest"], 3), unit),
                ],
                remarks=["This was the look: there is no second."],
            ),
        )


def refuse_second_look(folder: Path, protocol: str) -> None:
    """Refuse a model of a protocol of which one has been confirmed or refuted already.

    Raises:
        InputError: saying when.
    """
    places = [folder / LOOK, look_of_run(folder.resolve().parent, protocol)]
    taken = next((path for path in places if path.exists()), None)
    if taken is None:
        return
    try:
        look = json.loads(taken.read_text(encoding="utf-8"))
        when, pairs = look["when"], look["pairs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{taken} cannot be read ({error})") from None
    raise InputError(
        f"{folder}, or another model of its run, was looked at on {when} ({pairs}): a second look "
        "with the same protocol would be chosen among two; train with another protocol, or use "
        "tdabias compare, which confirms nothing"
    )


def note_look(folder: Path, source: str, protocol: str) -> None:
    """Write down that a look was taken, before its result is seen: in all models of the run."""
    entry = to_json({"when": now(), "pairs": source, "hash": hash_of(_text(source))})
    run, models = folder.resolve().parent, [folder]
    if (run / PROTOCOL).is_file():  # the model is where it was saved
        models += [path.parent for path in run.glob(f"model*/{ABOUT}")]
        write_text(look_of_run(run, protocol), entry)
    for model in models:
        write_text(model / LOOK, entry)


def read_items(source: str, about: dict[str, Any]) -> list[Triple] | PairSet:
    """Triples, or pairs, of a file; none of a target that a training of the run saw.

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
    items: list[Triple] | PairSet, load: Sequence[Callable[[], LanguageModel]], *, seed: int = 0
) -> Look:
    """Compare the untouched model and the trained one, loaded in this order, on ``read_items``.

    Raises:
        InputError: if no triple has a twin, or fewer than two targets are left.
    """
    (group, before), (_, after) = (_read(items, load_model()) for load_model in load)
    if len(set(group)) < 2:
        raise InputError(f"a confirmation needs two targets or more; got {len(set(group))}")
    paired, change = PairedItems(before, after, np.asarray(group)), after - before
    mean = paired.change()
    low, high = mean.limits()
    p = paired.p_change(rng=generator(seed, "signs of targets"))
    both_low, both_high = cluster_mean(before + after, group).limits()
    fell = abs(after.mean()) < abs(before.mean()) and p < LEVEL
    sure = after.mean() * before.mean() > 0 or both_low > 0 or both_high < 0
    summary = {
        "quantity": "beta" if isinstance(items, list) else "log-odds",
        "items": len(change), "targets": len(set(group)),
        "before": float(before.mean()), "after": float(after.mean()),
        "change": float(change.mean()), "low": low, "high": high, "p": p,
        "smallest": mean.smallest(), "less": bool(fell and sure),
    }  # fmt: skip
    return Look(pd.DataFrame({"group": group, "before": before, "after": after}), summary)


def _read(
    items: list[Triple] | PairSet, model: LanguageModel
) -> tuple[list[str], Float[np.ndarray, " item"]]:
    """The target of each item that can be read, and what the model says of it."""
    if not isinstance(items, list):
        table = compared(pair_items(model, items))
        table = table[table["log_odds"].notna()]
        return table["group"].astype(str).tolist(), table["log_odds"].to_numpy(float)
    twins = told_apart(model.token_ids, items, make_twins(items)).twins
    kept = [triple for triple in items if twins is not None and twins.of(triple)]
    if twins is None or not kept:
        raise InputError("no triple of `pairs` has a twin; give pairs instead")
    texts = TwinTexts(model, kept, [twins.of(triple) for triple in kept])
    return [triple.group for triple in kept], texts.answers(range(len(kept))).gap
