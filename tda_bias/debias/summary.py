"""Results of an experiment on targets that no training saw, in tables and in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.debias.experiment import ConditionResult
from tda_bias.debias.protocol import RANDOM, Protocol, conditions
from tda_bias.debias.training import at_loss
from tda_bias.runs.text import counted, interval_text
from tda_bias.stats.resampling import (
    FEWEST_CLUSTERS,
    ClusterBootstrap,
    generator,
    permutation_pvalue,
    tolerance,
)

UNTOUCHED = "untouched"
# The language-model score may lose so many points.
ALLOWED_LMS = 1.0
_LEVEL = 0.05


def conditions_table(
    results: Sequence[ConditionResult],
    groups: Sequence[str],
    protocol: Protocol,
    *,
    n_resamples: int = 2000,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """One row per condition; random sets are one row, the mean over them.

    Args:
        results: Every condition over the folds.
        groups: The target of every item.
        protocol: The protocol.
        n_resamples: Bootstrap resamples of whole targets.
        confidence: Coverage of the percentile intervals; fewer than six targets have none.

    Returns:
        ``condition how heads targets``; of the items of test targets, each from the training that
        never saw its target: mean beta per token ``before`` and ``beta`` with ``low high``,
        ``change`` with ``change_low change_high``, root mean squares ``rms_before rms``, means of
        sums ``sum_before sum``, language-model score ``lms_before lms`` in percent;
        ``perplexity``, the change in percent on passages that nothing was chosen on, and
        ``guard``. Interpolated to a loss of 1 and 2 % of the perplexity: ``beta_at_1 beta_at_2
        rms_at_1 rms_at_2``, and the rank p of their sizes among random sets, ``p`` (|beta| at
        1 %), ``p_at_2``, ``p_rms``; and ``beta`` item by item less the mean of the random sets,
        with limits over targets, ``than_random than_random_low than_random_high``. What compares
        with random sets is NaN for these, placebo, retention and the untouched model.
    """
    tests = np.concatenate([fold.test for fold in results[0].folds])
    target = np.array(groups)[tests]
    rng = generator(protocol.seed, "resamples of targets")
    drawn = ClusterBootstrap.of(target, n_resamples, rng)
    limits = partial(drawn.limits, confidence=confidence)
    n_targets = len(np.unique(target))
    rows = [_row(result, limits, protocol) | {"targets": n_targets} for result in results]
    of_random = [result for result in results if result.condition.name == RANDOM]
    left_by_random = np.mean([_at_best(result, "gap") for result in of_random], axis=0)
    random = [row for row in rows if row["condition"] == RANDOM]
    for row, result in zip(rows, results, strict=True):
        if result.condition.faces_random:
            less = _at_best(result, "gap") - left_by_random
            low, high = limits(less)
            row |= _rank_p(row, random)
            row |= {"than_random": less.mean(), "than_random_low": low, "than_random_high": high}
    first = rows[0]  # of a ranking, which is held against random sets: it has all columns
    low, high = limits(_before(results[0]))
    untouched = {
        "condition": UNTOUCHED, "how": "none", "heads": 0, "targets": n_targets, "guard": "pass",
        "perplexity": 0.0, "before": first["before"], "beta": first["before"], "low": low,
        "high": high, **dict.fromkeys(("change", "change_low", "change_high"), 0.0),
        **{name: first[f"{name}_before"] for name in ("rms", "sum", "lms")},
        **{f"{name}_before": first[f"{name}_before"] for name in ("rms", "sum", "lms")},
    }  # fmt: skip
    others = [row for row in rows if row["condition"] != RANDOM]
    table = pd.DataFrame([untouched, *others, _mean_of(random)])
    return table.reindex(columns=[*first])


def _row(
    result: ConditionResult,
    limits: Callable[[Float[np.ndarray, " item"]], tuple[float, float]],
    protocol: Protocol,
) -> dict[str, Any]:
    before, after = _before(result), _at_best(result, "gap")
    ppl = [np.expm1(t.report_log_ppl[1] - t.report_log_ppl[0]) for t in result.trajectories]
    low, high = limits(after)
    change_low, change_high = limits(after - before)
    row: dict[str, Any] = {
        "condition": result.condition.name,
        "how": result.condition.how,
        "heads": len(result.heads[0]),
        "before": before.mean(),
        "beta": after.mean(),
        "low": low,
        "high": high,
        "change": (after - before).mean(),
        "change_low": change_low,
        "change_high": change_high,
        "rms_before": _rms(before),
        "rms": _rms(after),
        "sum_before": _at(result, "total", first=True).mean(),
        "sum": _at_best(result, "total").mean(),
        "lms_before": 100 * _at(result, "language", first=True).mean(),
        "lms": 100 * _at_best(result, "language").mean(),
        "perplexity": 100 * float(np.mean(ppl)),
    }
    kept = _within(row["perplexity"], 100 * protocol.allowed_loss)
    kept &= _within(row["lms_before"] - row["lms"], ALLOWED_LMS)
    row["guard"] = "pass" if kept else "fail"
    for loss in (1, 2):
        level = np.concatenate([at_loss(t, loss / 100) for t in result.trajectories])
        row |= {f"beta_at_{loss}": level.mean(), f"rms_at_{loss}": _rms(level)}
    return row


def _within(lost: float, allowed: float) -> bool:
    """Allow a loss or not: one rule for the guard and for the model that is saved."""
    return bool(lost <= allowed + tolerance(allowed))


def _rank_p(row: dict[str, Any], random: Sequence[dict[str, Any]]) -> dict[str, float]:
    """(1 + random sets that leave as little or less) / (1 + random sets)."""
    p_values = {}
    for name, column in (("p", "beta_at_1"), ("p_at_2", "beta_at_2"), ("p_rms", "rms_at_1")):
        left, others = abs(row[column]), np.abs([row_of_draw[column] for row_of_draw in random])
        count = np.sum(others <= left + tolerance(left))
        p_values[name] = float(permutation_pvalue(count, len(random), exact=False))
    return p_values


def _mean_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Random sets as one row: means, and of what is a size the mean size."""
    means = dict(rows[0])
    for name, value in means.items():
        if isinstance(value, str) or name in ("heads", "targets"):
            continue
        values = np.array([row[name] for row in rows])
        sizes = name in ("beta", "sum", "beta_at_1", "beta_at_2")
        means[name] = float(np.abs(values).mean() if sizes else values.mean())
    passed = sum(row["guard"] == "pass" for row in rows)
    means["guard"] = f"{passed} of {len(rows)} pass"
    return means


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _before(result: ConditionResult) -> np.ndarray:
    return _at(result, "gap", first=True)


def _at_best(result: ConditionResult, name: str) -> np.ndarray:
    return _at(result, name, first=False)


def _at(result: ConditionResult, name: str, *, first: bool) -> np.ndarray:
    return np.concatenate([getattr(t, name)[0 if first else t.best] for t in result.trajectories])


def frontier_table(results: Sequence[ConditionResult]) -> pd.DataFrame:
    """The bias left on test targets and its price, by condition, random set and check.

    A fold whose training ended earlier stays at its last check.

    Returns:
        Columns ``condition draw check perplexity`` (change in percent on the watched
        passages, mean over folds), ``beta rms`` over the items of all test targets.
    """
    rows = []
    for result in results:
        longest = max(len(t.step) for t in result.trajectories)
        for check in range(longest):
            places = [min(check, len(t.step) - 1) for t in result.trajectories]
            pairs = list(zip(result.trajectories, places, strict=True))
            gap = np.concatenate([t.gap[n] for t, n in pairs])
            lost = [np.expm1(t.log_ppl[n] - t.log_ppl[0]) for t, n in pairs]
            rows.append(
                {
                    "condition": result.condition.name,
                    "draw": max(result.condition.draw, 0),
                    "check": check,
                    "perplexity": 100 * float(np.mean(lost)),
                    "beta": float(gap.mean()),
                    "rms": _rms(gap),
                }
            )
    return pd.DataFrame(rows)


def trainings_table(results: Sequence[ConditionResult]) -> pd.DataFrame:
    """One row per training: ``condition draw fold rate steps best ended heads``.

    And of the validation targets the loss and the language-model score, before and at the best
    check.
    """
    rows: list[dict[str, Any]] = []
    for result in results:
        for fold, t, rate, heads in zip(
            result.folds, result.trajectories, result.rates, result.heads, strict=True
        ):
            rows.append(
                {
                    "condition": result.condition.name,
                    "draw": max(result.condition.draw, 0),
                    "fold": fold.number,
                    "rate": rate,
                    "steps": t.step[-1],
                    "best": t.step[t.best],
                    "validation_loss_before": t.validation_loss[0],
                    "validation_loss": t.validation_loss[t.best],
                    "validation_lms_before": 100 * t.validation_language[0],
                    "validation_lms": 100 * t.validation_language[t.best],
                    "ended": t.ended,
                    "heads": " ".join(map(str, heads)) if len(heads) <= 64 else f"{len(heads)}",
                }
            )
    return pd.DataFrame(rows)


def items_table(
    results: Sequence[ConditionResult], groups: Sequence[str], ids: Sequence[str]
) -> pd.DataFrame:
    """One row per condition, random set and test item: ``beta_before beta``, nats per token."""
    tables = []
    for result in results:
        for fold, t in zip(result.folds, result.trajectories, strict=True):
            tables.append(
                pd.DataFrame(
                    {
                        "condition": result.condition.name,
                        "draw": max(result.condition.draw, 0),
                        "fold": fold.number,
                        "id": [ids[i] for i in fold.test],
                        "group": [groups[i] for i in fold.test],
                        "beta_before": t.gap[0],
                        "beta": t.gap[t.best],
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


def recommended(results: Sequence[ConditionResult]) -> str:
    """The condition whose model is saved: the least loss on the validation targets, over folds.

    No control, and of the others such as keep the language-model score on the validation targets;
    where none does, as lose least of it. Test targets have no say.
    """
    allowed = [result for result in results if not result.condition.is_control]
    lost = [_lost_language(result) for result in allowed]
    most = max(ALLOWED_LMS, min(lost))
    keeping = [
        result for result, points in zip(allowed, lost, strict=True) if _within(points, most)
    ]
    best = min(keeping, key=lambda r: np.mean([t.validation_loss[t.best] for t in r.trajectories]))
    return best.condition.name


def _lost_language(result: ConditionResult) -> float:
    """Points of the language-model score lost on the validation targets, mean over folds."""
    scores = [(t.validation_language, t.best) for t in result.trajectories]
    return 100 * float(np.mean([score[0] - score[best] for score, best in scores]))


def broken(results: Sequence[ConditionResult]) -> list[str]:
    """Trainings that ended because numbers became undefined, and at which step."""
    return [
        f"{result.condition.part}, fold {fold.number}: {t.ended}; its last good check counts"
        for result in results
        for fold, t in zip(result.folds, result.trajectories, strict=True)
        if "nan" in t.ended.lower() or "became inf" in t.ended
    ]


# -- in words --------------------------------------------------------------------------------------


def verdict(table: pd.DataFrame, name: str, protocol: Protocol) -> str:
    """Say whether there is less bias, and whether choosing heads helped, in plain words."""
    row = table[table["condition"] == name].to_dict("records")[0]
    interval = interval_text(row["change_low"], row["change_high"], 3, sign="+")
    text = (
        f"On targets it never saw, training {name} changed beta per token from "
        f"{row['before']:.3f} to {row['beta']:.3f} (change {row['change']:+.3f}, 95 %: {interval}) "
        f"at {row['perplexity']:+.1f} % perplexity: {_less_or_not(row)}"
    )
    if row["guard"] == "fail":
        scores = f"{row['lms_before']:.1f} to {row['lms']:.1f}"
        text += (
            f" It costs more than the guard allows (language-model score {scores}): not for use."
        )
    return f"{text} {_helped(table, protocol)}"


def _less_or_not(row: Mapping[Any, Any]) -> str:
    less = abs(row["beta"]) < abs(row["before"])
    left = "less of the bias is left" if less else "no less of the bias is left"
    if row["targets"] < FEWEST_CLUSTERS:
        targets = counted(int(row["targets"]), "target is", "targets are")
        return f"{left}, and {targets} too few to say more."
    if row["change_low"] > 0 or row["change_high"] < 0:
        return f"{left}."
    return f"{left}, which may be chance."


def _helped(table: pd.DataFrame, protocol: Protocol) -> str:
    controls = {condition.name for condition in conditions(protocol) if condition.is_control}
    compared = [name for name in protocol.by if name not in controls] or list(protocol.by)
    ranked = table[table["condition"].isin(compared)]
    # Few random sets give few values of p: of equal ones, what leaves least.
    best = ranked.iloc[int(np.lexsort((ranked["beta_at_1"].abs(), ranked["p"]))[0])]
    if best["p"] * len(ranked) < _LEVEL:
        helped = "Choosing heads helped"
    elif len(ranked) / (1 + protocol.n_random) >= _LEVEL:
        helped = "Whether choosing heads helped cannot be told from so few random sets"
    else:
        helped = "Choosing heads did not help beyond chance"
    random = float(table.loc[table["condition"] == RANDOM, "beta_at_1"].iloc[0])
    return (
        f"{helped}: at 1 % perplexity (or the last check, where less is lost) the best ranking "
        f"({best['condition']}) leaves {abs(best['beta_at_1']):.3f}, as many random heads "
        f"{random:.3f} on average (p {best['p']:.2f} of {counted(protocol.n_random, 'random set')}"
        f", before correcting for {counted(len(ranked), 'ranking')})."
    )
