"""Results of an experiment on targets that no training saw, in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from pydantic import field_validator

from tda_bias.debias.protocol import RANDOM, Condition, Protocol
from tda_bias.debias.texts import Answers
from tda_bias.debias.training import (
    OTHER,
    PAIRS,
    UNDEFINED,
    Check,
    Results,
    Trained,
    Trajectory,
    best_of,
    keeps_pairs,
    passes,
    points_of_pairs,
)
from tda_bias.show.names import named
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import share_reached
from tda_bias.store.record import RunRecord

UNTOUCHED = "untouched"
# Columns that have a value before.
_BEFORE = ("rms", "sum", "lms", "lms_token", "spread")
# Controls of earlier versions, which saved runs name.
_PAST_CONTROLS = ("equalise", "cda-lora")


class DebiasRecord(RunRecord):
    """Everything needed to repeat an experiment, and its outcome.

    Attributes:
        category: Of the triples.
        protocol: The protocol, as it was fixed before the first step.
        protocol_hash: Its hash, with what it was applied to.
        fixed: When that was written, in UTC.
        folds: Targets that train, validate and test, fold by fold.
        neutral: Source and revision of the neutral text.
        matching: Whether random heads were of the same layers as the first ranking's.
        recommended: The condition whose model is saved: chosen on validation targets, or asked for.
        unchanged: Whether that model is the original: no check passed the guards with less loss.
        verdict: The outcome, in words.
        broken: Trainings in which numbers became undefined, and at which step.
        twins: How twins came about; None without.
    """

    command: str = "debias"
    category: str
    protocol: Protocol
    protocol_hash: str
    fixed: str
    folds: list[dict[str, Any]]
    neutral: dict[str, Any]
    matching: str
    recommended: str
    unchanged: bool = False
    verdict: str
    broken: tuple[str, ...] = ()
    twins: dict[str, Any] | None = None

    @field_validator("protocol", mode="before")
    @classmethod
    def _without_past_controls(cls, given: Any) -> Any:
        """Of a saved run: its tables hold conditions that are no controls any more."""
        if not isinstance(given, dict):
            return given
        controls = [name for name in given.get("controls", ()) if name not in _PAST_CONTROLS]
        return {**given, "controls": controls}


def conditions_table(
    results: Results,
    groups: Sequence[str],
    protocol: Protocol,
    *,
    matched: Mapping[Condition, Sequence[tuple[float, np.ndarray]]],
) -> pd.DataFrame:
    """One row per condition; random sets are one row, the mean over them.

    ``groups`` are the targets of all items; ``matched`` is fold by fold what ``at_equal_entropy``
    gives, of conditions that have it.

    Returns:
        ``condition how heads folds``; of the items of test targets, each from the training that
        never saw its target: mean beta per token ``before`` and ``beta`` with ``low high``,
        ``change`` with ``change_low change_high``, limits of before and after added up, ``both_low
        both_high``, root mean squares ``rms_before rms``, means of sums ``sum_before sum``,
        language-model scores in percent ``lms_before lms`` by sums and ``lms_token_before
        lms_token`` per token; ``perplexity``, the change in percent on passages that nothing was
        chosen on; points gained on each set of minimal pairs, ``pairs ...``; and ``guard``.
        ``beta_at_lms``: where the language-model score has fallen by a point, or at the last check
        where it has not (``lms_fell``), and for rankings ``p``, the rank of its size among random
        sets. Item by item, ``beta`` less the mean of the random sets, with limits that hold their
        variation too, ``than_random than_random_low than_random_high``. Of a model that is merely
        less sure: ``beta_at_entropy``, beta where the entropy of its predictions is what it was, by
        a ``temperature``, and ``spread_before spread``, beta in standard deviations of the items'
        log-odds. And ``parameters`` that could change.

        Limits are of 95 %. Targets of a fold share a model, so folds are the clusters, and fewer
        than five have no interval; the untouched model's are targets.
    """
    rows = {own[0]: condition_row(*own, protocol) for own in results.items()}
    random = [row for condition, row in rows.items() if condition.name == RANDOM]
    of_draws = np.array([_items(own, "gap") for c, own in results.items() if c.name == RANDOM])
    for condition, of_folds in matched.items():
        temperature, gaps = zip(*of_folds, strict=True)
        rows[condition]["temperature"] = float(np.mean(temperature))
        rows[condition]["beta_at_entropy"] = np.concatenate(gaps).mean()
    others = {condition: row for condition, row in rows.items() if condition.name != RANDOM}
    for condition, row in others.items():
        row |= _than_random(results[condition], of_draws)
        if condition.name in protocol.by:
            # (1 + random sets that leave as little or less) / (1 + random sets)
            sizes = np.abs([other["beta_at_lms"] for other in random])
            row["p"] = float(share_reached(-sizes, -abs(row["beta_at_lms"])))
    first, *_ = rows.values()  # of a ranking, which is compared with random sets: has all columns
    one, *_ = results.values()
    listed = [_untouched_row(first, one, groups), *others.values(), _mean_of(random)]
    return pd.DataFrame(listed).reindex(columns=[*first])


def _than_random(
    trained: Sequence[Trained], of_draws: Float[np.ndarray, "draw item"]
) -> dict[str, float]:
    """Item by item less the mean of random sets; other sets would have another mean."""
    apart = cluster_mean(_items(trained, "gap") - of_draws.mean(0), _fold_of_item(trained))
    apart = apart.plus(cluster_mean(of_draws.mean(1)))
    low, high = apart.limits()
    return {"than_random": apart.mean, "than_random_low": low, "than_random_high": high}


def _untouched_row(
    first: Mapping[str, Any], trained: Sequence[Trained], groups: Sequence[str]
) -> dict[str, Any]:
    """The untouched model, on the test items of any condition."""
    target = np.array(groups)[np.concatenate([own.training.fold.test for own in trained])]
    low, high = cluster_mean(_items(trained, "gap", before=True), target).limits()
    return {
        "condition": UNTOUCHED, "how": "none", "heads": 0, "folds": first["folds"],
        "before": first["before"], "beta": first["before"], "low": low, "high": high,
        "change": 0.0, "perplexity": 0.0, "guard": "pass",
        "beta_at_entropy": first["before"], "temperature": 1.0,
        **{name: first[f"{name}_before"] for name in _BEFORE},
        **{f"{name}_before": first[f"{name}_before"] for name in _BEFORE},
    }  # fmt: skip


def condition_row(
    condition: Condition, trained: Sequence[Trained], protocol: Protocol
) -> dict[str, Any]:
    """The row of one condition, or of one random set, without what compares it with others."""
    of_fold = _fold_of_item(trained)
    before, after = _items(trained, "gap", before=True), _items(trained, "gap")
    own = [one.trajectory for one in trained]
    ppl = [np.expm1(t.after["log_ppl"] - t.before["log_ppl"]) for t in own]
    level, fell = at_equal_language(own)
    low, high = cluster_mean(after, of_fold).limits()
    change_low, change_high = cluster_mean(after - before, of_fold).limits()
    both_low, both_high = cluster_mean(after + before, of_fold).limits()
    row: dict[str, Any] = {
        "condition": condition.name,
        "how": condition.how,
        "heads": len(trained[0].training.heads),
        "before": before.mean(),
        "beta": after.mean(),
        "low": low,
        "high": high,
        "change": (after - before).mean(),
        "change_low": change_low,
        "change_high": change_high,
        "both_low": both_low,
        "both_high": both_high,
        "rms_before": _rms(before),
        "rms": _rms(after),
        "sum_before": _items(trained, "total", before=True).mean(),
        "sum": _items(trained, "total").mean(),
        "lms_before": 100 * _items(trained, "language", before=True).mean(),
        "lms": 100 * _items(trained, "language").mean(),
        "lms_token_before": 100 * _items(trained, "language_per_token", before=True).mean(),
        "lms_token": 100 * _items(trained, "language_per_token").mean(),
        "perplexity": 100 * float(np.mean(ppl)),
        "guard": "",
        "p": np.nan,
        "beta_at_lms": np.concatenate(level).mean(),
        "lms_fell": float(fell),
        "beta_at_entropy": np.nan,
        "temperature": np.nan,
        "spread_before": before.mean() / _items(trained, "odds", before=True).std(),
        "spread": after.mean() / _items(trained, "odds").std(),
        "parameters": float(np.mean([t.after["parameters"] for t in own])),
    }
    points = [points_of_pairs(t) for t in own]
    row |= {f"{PAIRS}{name}": float(np.mean([p[name] for p in points])) for name in points[0]}
    row["guard"] = "fail" if failing_guards(row, protocol) else "pass"
    row["folds"] = len(np.unique(of_fold))
    return row


def failing_guards(row: Mapping[Any, Any], protocol: Protocol) -> list[str]:
    """In words each guard that a condition fails, with the change; none where all pass."""
    points = {
        "language-model score": row["lms"] - row["lms_before"],
        "language-model score per token": row["lms_token"] - row["lms_token_before"],
    }
    points |= {
        name.removeprefix(PAIRS): change for name, change in row.items() if name.startswith(PAIRS)
    }
    said = [
        f"{name} {change:+.2f} points"
        for name, change in points.items()
        if not passes(protocol, [change])
    ]
    if not passes(protocol, [], row["perplexity"] / 100):
        said.append(f"perplexity {row['perplexity']:+.2f} %")
    return said


def _mean_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Random sets as one row: means, also of limits, and the mean size of what is ranked by it."""
    means = dict(rows[0])
    for name, value in means.items():
        if isinstance(value, str) or name in ("heads", "folds"):
            continue
        values = np.array([row[name] for row in rows])
        means[name] = float(np.abs(values).mean() if name == "beta_at_lms" else values.mean())
    passed = sum(row["guard"] == "pass" for row in rows)
    means["guard"] = f"{passed} of {len(rows)} pass"
    return means


def _fold_of_item(trained: Sequence[Trained]) -> Int[np.ndarray, " item"]:
    """The number of the fold that tests each item: items of a fold share a model."""
    folds = [one.training.fold for one in trained]
    return np.repeat([fold.number for fold in folds], [len(fold.test) for fold in folds])


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _items(
    trained: Sequence[Trained], name: str, *, before: bool = False
) -> Float[np.ndarray, " item"]:
    """Answers to the test items of all folds: at the chosen checks, or of the untouched model."""
    own = [one.trajectory for one in trained]
    return np.concatenate([getattr((t.first if before else t.chosen).test, name) for t in own])


def at_equal_language(trainings: Sequence[Trajectory]) -> tuple[list[np.ndarray], bool]:
    """Gaps of the test items, fold by fold, where the language-model score of all has fallen by 1.

    Folds go on check by check together; between two checks every item's gap is interpolated along
    the score. Where the score did not fall so far, which is said too, they are of the last check.
    """
    answers = [[check.test for check in of_folds] for of_folds in _check_by_check(trainings)]
    score = [100 * float(Answers.together(own).language.mean()) for own in answers]
    level = score[0] - 1.0
    for n in range(1, len(score)):
        low, high = score[n], score[n - 1]
        if low <= level:
            share = (high - level) / (high - low)
            both = zip(answers[n - 1], answers[n], strict=True)
            return [(1 - share) * a.gap + share * b.gap for a, b in both], True
    return [own.gap for own in answers[-1]], False


def _check_by_check(trainings: Sequence[Trajectory]) -> Iterator[list[Check]]:
    """The checks of all folds; one whose training ended earlier stays at its last check."""
    for n in range(max(len(t.checks) for t in trainings)):
        yield [t.checks[min(n, len(t.checks) - 1)] for t in trainings]


def frontier_table(results: Results) -> pd.DataFrame:
    """The bias left on test targets and its price, check by check: all after equal steps.

    ``condition draw check``; ``perplexity``, the change in percent on the watched passages, mean
    over folds; ``beta`` of the items of all test targets, its ``change`` with limits over folds,
    ``change_low change_high``, and the language-model scores ``lms lms_token`` in percent.
    """
    rows = []
    for condition, trained in results.items():
        own = [one.trajectory for one in trained]
        before, of_fold = _items(trained, "gap", before=True), _fold_of_item(trained)
        log_ppl = [t.first.log_ppl for t in own]
        for number, checks in enumerate(_check_by_check(own)):
            answers = Answers.together([check.test for check in checks])
            change = cluster_mean(answers.gap - before, of_fold)
            low, high = change.limits()
            lost = np.expm1(np.subtract([check.log_ppl for check in checks], log_ppl))
            rows.append(
                {
                    "condition": condition.name,
                    "draw": max(condition.draw, 0),
                    "check": number,
                    "perplexity": 100 * float(np.mean(lost)),
                    "beta": float(answers.gap.mean()),
                    "change": change.mean,
                    "change_low": low,
                    "change_high": high,
                    "lms": 100 * float(answers.language.mean()),
                    "lms_token": 100 * float(answers.language_per_token.mean()),
                }
            )
    return pd.DataFrame(rows)


def others_table(results: Results, groups: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Beta of other categories, by condition: did another bias change? Groups are items' targets.

    ``condition category items before beta change low high`` are means over items and folds, with
    limits of the change over targets, which hold the variation of trainings.
    """
    rows: list[dict[str, Any]] = []
    for category, of_items in groups.items():
        for condition, trained in results.items():
            name, own = f"{OTHER}{category}", [one.trajectory for one in trained]
            if name not in own[0].after:
                continue
            before, after = (
                np.array([getattr(t, when)[name] for t in own]) for when in ("before", "after")
            )
            change = after - before
            sure = cluster_mean(change.mean(0), of_items)
            if len(own) > 1:  # the trainings of the folds are a sample too
                sure = sure.plus(cluster_mean(change.mean(1)))
            low, high = sure.limits()
            rows.append(
                {
                    "condition": condition.name, "category": category,
                    "items": after.shape[1], "before": before.mean(), "beta": after.mean(),
                    "change": change.mean(), "low": low, "high": high,
                }
            )  # fmt: skip
    columns = ["condition", "category", "items", "before", "beta", "change", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _each(results: Results) -> Iterator[tuple[Trained, dict[str, Any]]]:
    """Every training, and the columns that name it."""
    for condition, trained in results.items():
        for own in trained:
            fold = own.training.fold.number
            draw = max(condition.draw, 0)
            yield own, {"condition": condition.name, "draw": draw, "fold": fold}


def trainings_table(results: Results) -> pd.DataFrame:
    """One row per training: ``condition draw fold settings steps best ended heads``.

    And of the validation targets beta, the loss and the language-model scores, before and at the
    best check.
    """
    rows: list[dict[str, Any]] = []
    for own, labels in _each(results):
        heads, t = own.training.heads, own.trajectory
        validation = {
            f"validation_{name}{when}": getattr(check, name)
            for name in ("beta", "loss", "lms", "lms_per_token")
            for when, check in (("_before", t.first), ("", t.chosen))
        }
        rows.append(
            {
                **labels,
                "settings": str(own.training.trial),
                "steps": t.checks[-1].step,
                "best": t.chosen.step,
                **validation,
                "ended": t.ended,
                "heads": " ".join(map(str, heads)) if len(heads) <= 64 else f"{len(heads)}",
            }
        )
    return pd.DataFrame(rows)


def items_table(results: Results, groups: Sequence[str], ids: Sequence[str]) -> pd.DataFrame:
    """One row per condition, random set and test item: ``beta_before beta``, nats per token."""
    tables = []
    for own, labels in _each(results):
        test, t = own.training.fold.test, own.trajectory
        columns = {
            "id": [ids[i] for i in test], "group": [groups[i] for i in test],
            "beta_before": t.first.test.gap, "beta": t.chosen.test.gap,
        }  # fmt: skip
        tables.append(pd.DataFrame({**labels, **columns}))
    return pd.concat(tables, ignore_index=True)


def recommended(results: Results, protocol: Protocol) -> str:
    """The condition whose model is saved: the least loss on the validation targets, over folds.

    It is one of the rankings. Every chosen check passed the guards there; sets of pairs must pass
    too, where some ranking's do. Test targets have no say.
    """
    return best_of(
        [
            (
                condition.name,
                float(np.mean([own.trajectory.chosen.loss for own in trained])),
                all(keeps_pairs(own.trajectory, protocol) for own in trained),
            )
            for condition, trained in results.items()
            if condition.name in protocol.choosing
        ]
    )


def broken(results: Results) -> list[str]:
    """Trainings that ended because numbers became undefined, and at which step."""
    return [
        f"{own.training.condition.part}, fold {own.training.fold.number}: {own.trajectory.ended}; "
        "its last good check counts"
        for own, _ in _each(results)
        if own.trajectory.ended.startswith(UNDEFINED)
    ]


def quantity_of(twins: Mapping[str, Any] | None) -> str:
    """Name of the quantity that a run reports: the target effect, or without twins the log-odds."""
    return named("log_odds" if twins is None else "beta")
