"""The bias that is left, and the perplexity lost, as more and more heads are removed.

Heads are removed in the order of a ranking, 1, 2, 4, ... together. The targets are split in two: on
one half the number of heads is chosen, on the other, never looked at for that, its value is read.
Random orders choose in the same way; a ranking is worth something if it does better than they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from pydantic import Field

from tda_bias.ablation.ablator import Ablator, Outcomes
from tda_bias.ablation.head_weights import ranked_heads
from tda_bias.heads.result import HeadBias
from tda_bias.models.language_model import model_record
from tda_bias.progress import Progress
from tda_bias.runs.cache import Cache, Part, texts_hash
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.text import counted
from tda_bias.scores.perplexity import Windows, log_perplexity
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import generator
from tda_bias.types import HeadId, InputError, RankBy, Triple

Quantity = Literal["beta", "log_odds"]
MOST_HEADS = 64
RANDOM = "random"
# Rankings that are estimated, and not a map of the run.
FIRST_ORDER = ("importance", "effect")
# A model may lose so much: 2 % of its perplexity.
ALLOWED_LOSS = float(np.log(1.02))


class PruneCurveRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        run: Folder of the run whose heads are ranked, as it was given.
        category: Its category.
        quantity: What was brought to 0: ``beta`` or ``log_odds``.
        choosing: Targets on which the number of heads was chosen.
        precision: Of matrix products while heads were removed.
        windows: Of the neutral text: how many of how many, their width and stride.
        twins: How twins came about; None without.
    """

    command: str = "ablate curve"
    run: str | None = None
    category: str | None = None
    quantity: str
    choosing: tuple[str, ...]
    precision: str = "float32"
    windows: dict[str, Any] = Field(default_factory=dict)
    twins: dict[str, Any] | None = None


_CURVE = {
    "ranking": str, "draw": int, "k": int, "log_ppl": float,
    **{f"log_odds_{name}": float for name in ("choose", "test", "test_low", "test_high")},
}  # fmt: skip
_CHOSEN = {
    "ranking": str, "k": int,
    **{name: float for name in ("choose", "test", "d_log_ppl", "p_random")},
}  # fmt: skip


@dataclass(frozen=True)
class PruneCurve(SavedResult):
    """Result of ``prune_curve``.

    Attributes:
        curve: One row per ranking, draw (of ``random``) and number of heads ``k``: ``log_ppl``,
            and of each quantity (``log_odds`` and, with twins, ``beta``) the mean over the items of
            the targets that ``choose`` and of the others, ``test``, the latter with ``_low`` and
            ``_high`` over targets (NaN for fewer than five). k = 0 is the unchanged model.
        chosen: One row per ranking: the number of heads chosen, its values, those of the unchanged
            model, and ``p_random``, of (1 + random orders that do at least as well on the other
            targets, each with its own choice) / (1 + random orders).
        record: Everything needed to repeat the run.
    """

    COMMAND = "ablate curve"
    RECORD = PruneCurveRecord
    TABLES = (("curve", "curve.csv", _CURVE), ("chosen", "chosen.csv", _CHOSEN))
    SHOWN = (("what is left at the number of heads that was chosen", "chosen"),)

    curve: pd.DataFrame
    chosen: pd.DataFrame
    record: PruneCurveRecord

    def __repr__(self) -> str:
        rankings = counted(len(self.chosen), "ranking")
        about = f"{self.record.category}, {self.record.quantity}, {rankings}"
        return f"PruneCurve({self.record.model.name}: {about})"


def sizes(n_heads: int, most: int = MOST_HEADS) -> list[int]:
    """1, 2, 4, ... heads, at most half of all."""
    powers = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return [k for k in powers if 2 * k <= n_heads]


def split_targets(
    triples: Sequence[Triple], *, seed: int = 0
) -> tuple[Bool[np.ndarray, " triple"], tuple[str, ...]]:
    """Half of the targets, drawn: which triples are theirs, and their names.

    Raises:
        InputError: if there are fewer than four targets.
    """
    targets = sorted({triple.group for triple in triples})
    if len(targets) < 4:
        raise InputError(
            f"a prune curve splits targets in two halves and needs at least 4; got {len(targets)}"
        )
    order = generator(seed, "split targets").permutation(len(targets))
    chosen = {targets[i] for i in order[: len(targets) // 2]}
    mask = np.array([triple.group in chosen for triple in triples])
    return mask, tuple(sorted(chosen))


def first_order_rankings(ablator: Ablator) -> dict[str, list[HeadId]]:
    """Orders of all heads from first-order estimates, what is removed first in front.

    Args:
        ablator: On the targets that choose, and on no others.

    Returns:
        ``effect``: by how far removing a head brings mean beta (without twins the mean log-odds)
        toward 0; ``importance``: by what removing it does to the loss, most first.
    """
    (now,) = ablator.without([()])
    summary, estimates = now.summary(), ablator.first_order()
    mean = summary.get("beta", summary["log_odds"])
    change = estimates.beta if "beta" in summary else estimates.effect
    toward_zero = -np.sign(mean or 1.0) * change
    return {"effect": _order(toward_zero), "importance": _order(estimates.importance)}


def named_rankings(
    names: Sequence[str],
    run: HeadBias,
    category: str,
    ablator: Ablator,
    choosing: Bool[np.ndarray, " triple"],
) -> dict[str, list[HeadId]]:
    """Orders of all heads by the names of rankings.

    Args:
        names: Maps of the run, and ``FIRST_ORDER``.
        run: Whose maps rank heads, from all of its targets.
        category: Of the run.
        ablator: On all triples.
        choosing: Triples of the targets that choose; the others are not looked at.
    """
    orders: dict[str, list[HeadId]] = {}
    if set(names) & set(FIRST_ORDER):
        orders |= first_order_rankings(ablator.only(choosing))
    for name in names:
        if name not in FIRST_ORDER:
            orders[name] = ranked_heads(run, category, by=cast(RankBy, name))
    return {name: orders[name] for name in names}


def _order(values: Float[np.ndarray, "layer head"]) -> list[HeadId]:
    """Heads by value, largest first; undefined ones (layers without attention) are left out."""
    places = np.argwhere(np.isfinite(values))
    worth = values[tuple(places.T)]
    return [HeadId(int(a), int(b)) for a, b in places[np.argsort(-worth, kind="stable")]]


def prune_curve(
    ablator: Ablator,
    rankings: Mapping[str, Sequence[HeadId]],
    windows: Windows,
    *,
    choosing: Bool[np.ndarray, " triple"],
    n_random: int = 20,
    most: int = MOST_HEADS,
    seed: int = 0,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> PruneCurve:
    """Remove heads in the order of every ranking, and of random ones.

    Args:
        ablator: On all triples.
        rankings: Orders of heads by name, what is removed first in front.
        windows: Of neutral text, for the perplexity.
        choosing: Triples of the targets on which the number of heads is chosen.
        n_random: Random orders, at least 19: with fewer no p can reach .05.
        most: Heads removed at most.
        seed: Of random orders.
        cache: Where finished batches of texts and perplexities are kept.
        progress: Called with tokens done and all, each as often as it is read: those of texts,
            then those of windows. Of several processes, with those of this one's share.

    Raises:
        InputError: if there is no ranking, one is too short, a head does not exist, or ``n_random``
            is too small.
        ShareDone: if the parts are shared by several processes and another one gathers.
    """
    heads = [HeadId(layer.number, h) for layer in ablator.layers for h in range(layer.n_heads)]
    steps = sizes(len(heads), most)
    if not rankings:
        raise InputError("there is no ranking to remove heads by")
    if n_random < 19:
        raise InputError(f"`n_random` must be at least 19; got {n_random}")
    for name, order in rankings.items():
        if len(order) < max(steps) or len(set(order)) < len(order):
            raise InputError(
                f"the ranking {name} must name {max(steps)} heads or more, each once; it has "
                f"{len(set(order))}"
            )
    rng = generator(seed, "random orders")
    orders: list[tuple[str, int, Sequence[HeadId]]] = [
        (n, 0, order) for n, order in rankings.items()
    ]
    orders += [
        (RANDOM, i, [heads[j] for j in rng.permutation(len(heads))]) for i in range(n_random)
    ]
    sets = {(name, draw, k): tuple(order[:k]) for name, draw, order in orders for k in steps}
    removed = [(), *sets.values()]
    removals, perplexities = ablator.removals(removed), _perplexities(ablator, removed, windows)
    arrays = (cache or Cache()).each([*removals, *perplexities], progress=progress)
    outcomes = ablator.outcomes(removed, islice(arrays, len(removals)))
    losses = [float(of_part["mean"]) for of_part in arrays]
    quantity: Quantity = "beta" if np.isfinite(outcomes[0].twin_log_odds).any() else "log_odds"
    target = np.array([triple.group for triple in ablator.triples])
    measured = [
        _values(outcome, choosing, target) | {"log_ppl": loss}
        for outcome, loss in zip(outcomes, losses, strict=True)
    ]
    rows = [{"ranking": name, "draw": draw, "k": 0, **measured[0]} for name, draw, _ in orders]
    rows += [
        {"ranking": name, "draw": draw, "k": k, **values}
        for (name, draw, k), values in zip(sets, measured[1:], strict=True)
    ]
    curve = pd.DataFrame(rows).sort_values(["ranking", "draw", "k"], ignore_index=True)
    names = tuple(sorted(set(target[choosing])))
    record = PruneCurveRecord(
        model=model_record(ablator.model, weights=ablator.model.weight_hash()),
        quantity=quantity,
        choosing=names,
        precision=ablator.precision,
        windows={
            "read": len(windows.ids), "of": windows.of, "width": windows.width,
            "stride": windows.stride,
        },
    )  # fmt: skip
    return PruneCurve(curve, _chosen(curve, quantity, list(rankings)), record)


def _perplexities(
    ablator: Ablator, sets: Sequence[Sequence[HeadId]], windows: Windows
) -> list[Part]:
    """One part per set of heads."""
    ids = texts_hash([(list(window),) for window in windows.ids])
    cost = float(sum(map(len, windows.ids)))

    def part(number: int, heads: Sequence[HeadId]) -> Part:
        def computed() -> dict[str, np.ndarray]:
            with ablator.removed(heads):
                return {"mean": np.array(log_perplexity(ablator.model, windows).mean)}

        about = {"heads": [str(head) for head in heads], "windows": ids, **ablator.about}
        return Part(f"perplexity {number}", cost, lambda: about, computed)

    return [part(number, heads) for number, heads in enumerate(sets)]


def _values(
    outcome: Outcomes, choosing: Bool[np.ndarray, " triple"], target: np.ndarray
) -> dict[str, float]:
    """Means of log-odds and beta on both halves of the targets, 95 % limits on the other."""
    row: dict[str, float] = {}
    quantities = {"log_odds": outcome.log_odds}
    if np.isfinite(outcome.twin_log_odds).any():
        quantities["beta"] = outcome.beta
    for name, values in quantities.items():
        row[f"{name}_choose"] = cluster_mean(values[choosing]).mean
        test = cluster_mean(values[~choosing], target[~choosing])
        low, high = test.limits()
        row |= {f"{name}_test": test.mean, f"{name}_test_low": low, f"{name}_test_high": high}
    return row


def _chosen(curve: pd.DataFrame, quantity: Quantity, names: Sequence[str]) -> pd.DataFrame:
    """The choice of every ranking, and how random orders fare with theirs."""
    of_each: Any = curve.groupby(["ranking", "draw"])
    picked = {place: _choice(of_draw, quantity) for place, of_draw in of_each}
    random = np.array(
        [abs(row[f"{quantity}_test"]) for (name, _), row in picked.items() if name == RANDOM]
    )
    base = curve[curve["k"] == 0].iloc[0]
    rows = []
    for name in names:
        row = picked[name, 0]
        left = abs(row[f"{quantity}_test"])
        rows.append(
            {
                "ranking": name,
                "k": int(row["k"]),
                "before_choose": base[f"{quantity}_choose"],
                "choose": row[f"{quantity}_choose"],
                "before_test": base[f"{quantity}_test"],
                **{f"test{end}": row[f"{quantity}_test{end}"] for end in ("", "_low", "_high")},
                "d_log_ppl": row["log_ppl"] - base["log_ppl"],
                "random_test": float(random.mean()),
                "p_random": (1 + int(np.sum(random <= left + 1e-12))) / (1 + len(random)),
            }
        )
    return pd.DataFrame(rows)


def _choice(of_draw: pd.DataFrame, quantity: Quantity) -> pd.Series[Any]:
    """The number of heads with the least left on the choosing targets, at an allowed loss."""
    base = float(of_draw.loc[of_draw["k"] == 0, "log_ppl"].iloc[0])
    allowed = of_draw[of_draw["log_ppl"] <= base + ALLOWED_LOSS]
    left = allowed[f"{quantity}_choose"].abs().to_numpy(float)
    return allowed.iloc[int(np.argmin(left))]
