"""What the arms of a comparison did on targets that they never saw, and whether choosing helped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.debias.protocol import Protocol
from tda_bias.debias.study import RANDOM, ArmResult
from tda_bias.debias.training import at_loss
from tda_bias.runs.text import counted
from tda_bias.stats.resampling import generator, permutation_pvalue, times_drawn, tolerance

UNTOUCHED = "untouched"
# The language-model score may lose so many points.
ALLOWED_LMS = 1.0
_LEVEL = 0.05
# An interval over fewer says little.
_FEWEST_TARGETS = 5


def arms_table(
    results: Sequence[ArmResult],
    groups: Sequence[str],
    protocol: Protocol,
    *,
    n_resamples: int = 2000,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """One row per arm; random sets are one row, the mean over them.

    Args:
        results: Every arm over the folds.
        groups: The target of every item.
        protocol: The protocol.
        n_resamples: Bootstrap resamples of whole targets.
        confidence: Coverage of the percentile intervals.

    Returns:
        ``arm how heads targets``; of the items of test targets, each from the training that never
        saw its target: mean beta per token ``before`` and ``beta`` with ``low high``, ``change``
        with ``change_low change_high``, root mean squares ``rms_before rms``, means of sums
        ``sum_before sum``, language-model score ``lms_before lms`` in percent; ``perplexity``, the
        change in percent on passages that nothing was chosen on, and ``guard``. Interpolated to a
        loss of 1 and 2 % of the perplexity: ``beta_at_1 beta_at_2 rms_at_1 rms_at_2``, and the rank
        p of their sizes among random sets, ``p`` (|beta| at 1 %), ``p_at_2``, ``p_rms``; and
        ``beta`` item by item less the mean of the random sets, with limits over targets,
        ``than_random than_random_low than_random_high``. What compares with random sets is NaN for
        these, placebo, retention and the untouched model.
    """
    tests = np.concatenate([fold.test for fold in results[0].folds])
    target = np.array(groups)[tests]
    rng = generator(protocol.seed, "resamples of targets")
    names, unit = np.unique(target, return_inverse=True)
    drawn = rng.integers(len(names), size=(n_resamples, len(names)))
    often = times_drawn(drawn, len(names))[:, unit]
    rows = [_row(result, often, confidence, protocol) for result in results]
    for row in rows:
        row["targets"] = len(names)
    random = [row for row in rows if row["arm"] == RANDOM]
    left_by_random = np.mean([_at_best(r, "gap") for r in results if r.arm.name == RANDOM], axis=0)
    for row, result in zip(rows, results, strict=True):
        if result.arm.goal == "gaps" and result.arm.name != RANDOM:
            less = _at_best(result, "gap") - left_by_random
            low, high = _limits(less, often, confidence)
            row |= _rank_p(row, random)
            row |= {"than_random": less.mean(), "than_random_low": low, "than_random_high": high}
    merged = [row for row in rows if row["arm"] != RANDOM]
    first = rows[0]  # of a ranking, which is held against random sets: it has all columns
    untouched = {"arm": UNTOUCHED, "how": "none", "heads": 0, "guard": "pass", "perplexity": 0.0}
    untouched["targets"] = len(names)
    untouched |= {name: first[f"{name}_before"] for name in ("rms", "sum", "lms")}
    untouched |= {"before": first["before"], "beta": first["before"], "change": 0.0}
    low, high = _limits(_before(results[0]), often, confidence)
    untouched |= {"low": low, "high": high, "change_low": 0.0, "change_high": 0.0}
    untouched |= {f"{name}_before": first[f"{name}_before"] for name in ("rms", "sum", "lms")}
    table = pd.DataFrame([untouched, *merged, _mean_of(random)])
    return table.reindex(columns=[*first])


def _row(
    result: ArmResult,
    often: Float[np.ndarray, "draw item"],
    confidence: float,
    protocol: Protocol,
) -> dict[str, Any]:
    before, after = _before(result), _at_best(result, "gap")
    ppl = [np.expm1(t.report_log_ppl[1] - t.report_log_ppl[0]) for t in result.trajectories]
    low, high = _limits(after, often, confidence)
    change_low, change_high = _limits(after - before, often, confidence)
    row: dict[str, Any] = {
        "arm": result.arm.name,
        "how": result.arm.how,
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
    kept = row["perplexity"] <= 100 * protocol.allowed_loss
    row["guard"] = "pass" if kept and row["lms"] >= row["lms_before"] - ALLOWED_LMS else "fail"
    for loss in (1, 2):
        level = np.concatenate([at_loss(t, loss / 100) for t in result.trajectories])
        row |= {f"beta_at_{loss}": level.mean(), f"rms_at_{loss}": _rms(level)}
    return row


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


def _before(result: ArmResult) -> np.ndarray:
    return _at(result, "gap", first=True)


def _at_best(result: ArmResult, name: str) -> np.ndarray:
    return _at(result, name, first=False)


def _at(result: ArmResult, name: str, *, first: bool) -> np.ndarray:
    return np.concatenate([getattr(t, name)[0 if first else t.best] for t in result.trajectories])


def _limits(
    values: Float[np.ndarray, " item"], often: Float[np.ndarray, "draw item"], confidence: float
) -> tuple[float, float]:
    """Percentile interval of a mean over items, whole targets resampled."""
    drawn = often @ values / often.sum(1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def frontier_table(results: Sequence[ArmResult]) -> pd.DataFrame:
    """Per arm, random set and check: what was left on test targets, at what perplexity.

    A fold whose training ended earlier stays at its last check.

    Returns:
        Columns ``arm draw check perplexity`` (change in percent on the watched passages, mean over
        folds), ``beta rms`` over the items of all test targets.
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
                    "arm": result.arm.name,
                    "draw": max(result.arm.draw, 0),
                    "check": check,
                    "perplexity": 100 * float(np.mean(lost)),
                    "beta": float(gap.mean()),
                    "rms": _rms(gap),
                }
            )
    return pd.DataFrame(rows)


def trainings_table(results: Sequence[ArmResult]) -> pd.DataFrame:
    """One row per training: ``arm draw fold rate steps best ended heads``.

    And of the stop targets the loss and the language-model score, before and at the best check.
    """
    rows: list[dict[str, Any]] = []
    for result in results:
        for fold, t, rate, heads in zip(
            result.folds, result.trajectories, result.rates, result.heads, strict=True
        ):
            rows.append(
                {
                    "arm": result.arm.name,
                    "draw": max(result.arm.draw, 0),
                    "fold": fold.number,
                    "rate": rate,
                    "steps": t.step[-1],
                    "best": t.step[t.best],
                    "stop_loss_before": t.stop_loss[0],
                    "stop_loss": t.stop_loss[t.best],
                    "stop_lms_before": 100 * t.stop_language[0],
                    "stop_lms": 100 * t.stop_language[t.best],
                    "ended": t.ended,
                    "heads": " ".join(map(str, heads)) if len(heads) <= 64 else f"{len(heads)}",
                }
            )
    return pd.DataFrame(rows)


def items_table(
    results: Sequence[ArmResult], groups: Sequence[str], ids: Sequence[str]
) -> pd.DataFrame:
    """One row per arm, random set and item of a test target: ``beta_before beta``, per token."""
    tables = []
    for result in results:
        for fold, t in zip(result.folds, result.trajectories, strict=True):
            tables.append(
                pd.DataFrame(
                    {
                        "arm": result.arm.name,
                        "draw": max(result.arm.draw, 0),
                        "fold": fold.number,
                        "id": [ids[i] for i in fold.test],
                        "group": [groups[i] for i in fold.test],
                        "beta_before": t.gap[0],
                        "beta": t.gap[t.best],
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


def recommended(results: Sequence[ArmResult]) -> str:
    """The arm whose model is saved: the least loss on the stop targets, over folds.

    Only arms that train heads for the gaps and are no control, and of these such as keep the
    language-model score on the stop targets; where none does, as lose least of it. Test targets
    have no say.
    """
    allowed = [
        result
        for result in results
        if result.arm.goal == "gaps"
        and result.arm.name not in (RANDOM, "bottom")
        and result.arm.how != "full"
    ]
    lost = [_lost_language(result) for result in allowed]
    most = max(ALLOWED_LMS, min(lost))
    keeping = [
        result
        for result, points in zip(allowed, lost, strict=True)
        if points <= most + tolerance(most)
    ]
    best = min(keeping, key=lambda r: np.mean([t.stop_loss[t.best] for t in r.trajectories]))
    return best.arm.name


def _lost_language(result: ArmResult) -> float:
    """Points of the language-model score that an arm lost on the stop targets, over folds."""
    lost = [t.stop_language[0] - t.stop_language[t.best] for t in result.trajectories]
    return 100 * float(np.mean(lost))


def broken(results: Sequence[ArmResult]) -> list[str]:
    """Trainings that ended because numbers became undefined, and at which step."""
    return [
        f"{result.arm.part}, fold {fold.number}: {t.ended}; its last good check counts"
        for result in results
        for fold, t in zip(result.folds, result.trajectories, strict=True)
        if "nan" in t.ended.lower() or "became inf" in t.ended
    ]


# -- in words --------------------------------------------------------------------------------------


def verdict(table: pd.DataFrame, name: str, protocol: Protocol) -> str:
    """Whether there is less bias, and whether choosing heads helped, in plain words."""
    rows = table.set_index("arm")
    row, random = rows.loc[name], rows.loc[RANDOM]
    less = abs(row["beta"]) < abs(row["before"])
    sure = row["change_high"] < 0 if row["before"] > 0 else row["change_low"] > 0
    said = (
        f"On targets it never saw, training {name} changed beta per token from "
        f"{row['before']:.3f} to {row['beta']:.3f} (change {row['change']:+.3f}, 95 % "
        f"{row['change_low']:+.3f} to {row['change_high']:+.3f}) at {row['perplexity']:+.1f} % "
        "perplexity"
    )
    if row["targets"] < _FEWEST_TARGETS:
        targets = counted(int(table["targets"].iloc[0]), "target is", "targets are")
        said += f"; {targets} too few to say more."
    else:
        said += ": less of the bias is left." if less and sure else "; that may be chance."
    if row["guard"] == "fail":
        scores = f"{row['lms_before']:.1f} to {row['lms']:.1f}"
        said += (
            f" It costs more than the guard allows (language-model score {scores}): not for use."
        )
    ranked = table[table["arm"].isin(protocol.by)]
    # Few random sets give few values of p: of equal ones, what leaves least.
    best = ranked.iloc[int(np.lexsort((ranked["beta_at_1"].abs(), ranked["p"]))[0])]
    lowest = len(ranked) / (1 + protocol.n_random)
    if best["p"] * len(ranked) < _LEVEL:
        helped = "Choosing heads helped"
    elif lowest >= _LEVEL:
        helped = "Whether choosing heads helped cannot be told from so few random sets"
    else:
        helped = "Choosing heads did not help beyond chance"
    return (
        f"{said} {helped}: at 1 % perplexity the best ranking ({best['arm']}) leaves "
        f"{abs(best['beta_at_1']):.3f}, as many random heads {random['beta_at_1']:.3f} on average "
        f"(p {best['p']:.2f} of {counted(protocol.n_random, 'random set')}, before correcting for "
        f"{counted(len(ranked), 'ranking')})."
    )
