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
from tda_bias.config import CurveConfig
from tda_bias.heads.result import HeadBias
from tda_bias.models.language_model import model_record
from tda_bias.scores.perplexity import Windows, log_perplexity
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import share_reached
from tda_bias.stats.seeds import generator
from tda_bias.store.cache import Cache, Part, texts_hash
from tda_bias.store.record import RunRecord
from tda_bias.store.result import Result
from tda_bias.types import HeadId, InputError, Progress, RankBy, Triple

Quantity = Literal["beta", "log_odds"]
RANDOM = "random"
# Rankings that are estimated, and not a map of the run.
FIRST_ORDER = ("importance", "effect")
# A model may lose so much: 2 % of its perplexity.
ALLOWED_LOSS = float(np.log(1.02))


class PruneCurveRecord(RunRecord):
    """Everything needed to repeat a run."""

    command: str = "ablate curve"
    run: str | None = None  # folder of the run whose heads are ranked, as it was given
    category: str | None = None
    quantity: str  # what was brought to 0: beta or log_odds
    choosing: tuple[str, ...]  # targets on which the number of heads was chosen
    precision: str = "float32"
    # Of the neutral text: how many of how many, their width and stride.
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


@dataclass(frozen=True, repr=False)
class PruneCurve(Result):
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


def sizes(n_heads: int, most: int) -> list[int]:
    """1, 2, 4, ... heads, at most half of all."""
    powers = (2**power for power in range(most.bit_length()))
    return [k for k in powers if 2 * k <= n_heads]


def split_targets(
    triples: Sequence[Triple], *, seed: int = 0
) -> tuple[Bool[np.ndarray, " triple"], tuple[str, ...]]:
    """Half of the targets, drawn: which triples are theirs, and their names."""
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

    ``effect``: by how far removing a head brings mean beta (without twins the mean log-odds) toward
    0; ``importance``: by what removing it does to the loss. The ablator is on the targets that
    choose, and on no others.
    """
    (now,) = ablator.without([()])
    summary, estimates = now.summary(), ablator.first_order()
    mean = summary.get("beta", summary["log_odds"])
    change = estimates.beta if "beta" in summary else estimates.effect
    toward_zero = -np.sign(mean or 1.0) * change
    return {"effect": by_value(toward_zero), "importance": by_value(estimates.importance)}


def named_rankings(
    names: Sequence[str],
    run: HeadBias,
    category: str,
    ablator: Ablator,
    choosing: Bool[np.ndarray, " triple"],
) -> dict[str, list[HeadId]]:
    """Orders of all heads by the names of rankings: maps of a run, and ``FIRST_ORDER``.

    The run's maps are of all of its targets. First-order estimates look only at the ablator's
    triples of the targets that choose.
    """
    estimated: dict[str, list[HeadId]] = {}
    if set(names) & set(FIRST_ORDER):
        estimated = first_order_rankings(ablator.only(choosing))
    of_run = [name for name in names if name not in FIRST_ORDER]
    orders = {name: ranked_heads(run, category, by=cast(RankBy, name)) for name in of_run}
    return {name: (estimated | orders)[name] for name in names}


def by_value(values: Float[np.ndarray, "layer head"]) -> list[HeadId]:
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
    config: CurveConfig | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> PruneCurve:
    """Remove heads in the order of every ranking, and of random ones.

    The ablator is on all triples; ``choosing`` are those of the targets on which the number of
    heads is chosen. The perplexity is that of ``windows`` of neutral text. With
    fewer than 19 random orders no p can reach .05.

    Raises:
        InputError: if there is no ranking, one is too short, or a head does not exist.
        ShareDone: if the parts are shared by several processes and another one gathers.
    """
    config = config or CurveConfig()
    n_random, most, seed = config.n_random, config.most, config.seed
    heads = [HeadId(layer.number, h) for layer in ablator.layers for h in range(layer.n_heads)]
    steps = sizes(len(heads), most)
    if not rankings:
        raise InputError("there is no ranking to remove heads by")
    for name, order in rankings.items():
        if len(order) < max(steps) or len(set(order)) < len(order):
            raise InputError(
                f"the ranking {name} must name {max(steps)} heads or more, each once; it has "
                f"{len(set(order))}"
            )
    rng = generator(seed, "random orders")
    orders = {(name, 0): order for name, order in rankings.items()}
    orders |= {
        (RANDOM, draw): [heads[i] for i in rng.permutation(len(heads))] for draw in range(n_random)
    }
    places = [(*place, k) for place in orders for k in steps]
    removed = [(), *(tuple(orders[name, draw][:k]) for name, draw, k in places)]
    removals = ablator.removals(removed)
    perplexities = _perplexities(ablator, removed, windows)
    arrays = (cache or Cache()).each([*removals, *perplexities], progress=progress)
    outcomes = ablator.outcomes(removed, islice(arrays, len(removals)))
    losses = [float(of_part["mean"]) for of_part in arrays]
    quantity: Quantity = "beta" if np.isfinite(outcomes[0].twin_log_odds).any() else "log_odds"
    target = np.array([triple.group for triple in ablator.triples])
    measured = [
        _values(outcome, choosing, target) | {"log_ppl": loss}
        for outcome, loss in zip(outcomes, losses, strict=True)
    ]
    places += [(*place, 0) for place in orders]
    measured = [*measured[1:], *[measured[0]] * len(orders)]
    by = ["ranking", "draw", "k"]
    index = pd.MultiIndex.from_tuples(places, names=by)
    curve = pd.DataFrame(measured, index=index).sort_index().reset_index()
    record = PruneCurveRecord(
        model=model_record(ablator.model, weights=ablator.model.weight_hash()),
        quantity=quantity,
        choosing=tuple(sorted(set(target[choosing]))),
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
    """One part per set of heads: the log-perplexity of the model without them."""
    cost = float(sum(map(len, windows.ids)))
    about = {"windows": texts_hash([(list(window),) for window in windows.ids]), **ablator.about}

    def part(number: int, heads: Sequence[HeadId]) -> Part:
        def computed() -> dict[str, np.ndarray]:
            with ablator.removed(heads):
                return {"mean": np.array(log_perplexity(ablator.model, windows).mean)}

        depends_on = {"heads": [str(head) for head in heads], **about}
        return Part(f"perplexity {number}", cost, lambda: depends_on, computed)

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
    test = f"{quantity}_test"
    random = np.array([abs(row[test]) for (name, _), row in picked.items() if name == RANDOM])
    base = curve[curve["k"] == 0].iloc[0]
    rows = []
    for name in names:
        row = picked[name, 0]
        rows.append(
            {
                "ranking": name,
                "k": int(row["k"]),
                "before_choose": base[f"{quantity}_choose"],
                "choose": row[f"{quantity}_choose"],
                "before_test": base[test],
                **{f"test{end}": row[f"{test}{end}"] for end in ("", "_low", "_high")},
                "d_log_ppl": row["log_ppl"] - base["log_ppl"],
                "random_test": float(random.mean()),
                "p_random": float(share_reached(-random, -abs(row[test]))),
            }
        )
    return pd.DataFrame(rows)


def _choice(of_draw: pd.DataFrame, quantity: Quantity) -> pd.Series[Any]:
    """The number of heads with the least left on the choosing targets, at an allowed loss."""
    base = float(of_draw.loc[of_draw["k"] == 0, "log_ppl"].iloc[0])
    allowed = of_draw[of_draw["log_ppl"] <= base + ALLOWED_LOSS]
    left = allowed[f"{quantity}_choose"].abs().to_numpy(float)
    return allowed.iloc[int(np.argmin(left))]
