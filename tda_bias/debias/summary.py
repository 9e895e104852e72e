"""Results of an experiment on targets that no training saw, in tables and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.debias.experiment import Results
from tda_bias.debias.protocol import RANDOM, Condition, Protocol, conditions
from tda_bias.debias.texts import Answers
from tda_bias.debias.training import (
    OTHER,
    Check,
    Trained,
    Trajectory,
    keeps_pairs,
    least_biased,
    passes,
    points_of_pairs,
)
from tda_bias.runs.text import counted, interval_text
from tda_bias.stats.clusters import FEWEST_CLUSTERS, cluster_mean
from tda_bias.stats.resampling import share_reached

UNTOUCHED = "untouched"
# Columns that have a value before.
_BEFORE = ("rms", "sum", "lms", "lms_token", "spread")
# What users would do instead: conditions are compared with it item by item.
PEER = "cda-lora"
_LEVEL = 0.05
# Shorter trainings test the program.
_ENOUGH_STEPS = 10


def conditions_table(
    results: Results,
    groups: Sequence[str],
    protocol: Protocol,
    *,
    matched: Mapping[Condition, Sequence[tuple[float, np.ndarray]]],
) -> pd.DataFrame:
    """One row per condition; random sets are one row, the mean over them. Groups are targets.

    Args:
        results: The trainings.
        groups: The target of every item.
        protocol: The protocol.
        matched: Fold by fold what ``at_equal_entropy`` gives, of conditions that have it.

    Returns:
        ``condition how heads targets folds``; of the items of test targets, each from the training
        that never saw its target: mean beta per token ``before`` and ``beta`` with ``low high``,
        ``change`` with ``change_low change_high``, limits of before and after added up, ``both_low
        both_high``, root mean squares ``rms_before rms``, means of
        sums ``sum_before sum``, language-model scores in percent ``lms_before lms`` by sums and
        ``lms_token_before lms_token`` per token; ``perplexity``, the change in percent on
        passages that nothing was chosen on; points gained on each set of minimal pairs, ``pairs
        ...``; and ``guard``. ``beta_at_lms``: where the language-model score has fallen by a
        point, or at the last check where it has not (``lms_fell``), and for rankings ``p``, the
        rank of its size among random sets. Item by item, ``beta`` less the mean of the random
        sets, with limits that hold their variation too, ``than_random than_random_low
        than_random_high``, and less CDA by LoRA, ``than_cda ...``. Of a model that is merely less
        sure: ``beta_at_entropy``, beta where the entropy of its predictions is what it was, by a
        ``temperature``, and ``spread_before spread``, beta in standard deviations of the items'
        log-odds. And ``parameters`` that could change.

        Limits are of 95 %. Targets of a fold share a model, so folds are the clusters, and fewer
        than five have no interval; the untouched model's are targets.
    """
    one, *_ = results.values()
    folds = [own.training.fold for own in one]
    target = np.array(groups)[np.concatenate([fold.test for fold in folds])]
    of_fold = _fold_of_item(one)
    about = {"targets": len(np.unique(target))}
    rows = [condition_row(*entry, protocol) | about for entry in results.items()]
    random = [row for row in rows if row["condition"] == RANDOM]
    for row, condition in zip(rows, results, strict=True):
        if condition in matched:
            temperature, gaps = zip(*matched[condition], strict=True)
            row["temperature"] = float(np.mean(temperature))
            row["beta_at_entropy"] = np.concatenate(gaps).mean()
    of_draws = np.array([_items(own, "gap") for c, own in results.items() if c.name == RANDOM])
    drawn = cluster_mean(of_draws.mean(1))  # other sets would have another mean
    peer = next((_items(own, "gap") for c, own in results.items() if c.name == PEER), None)
    for row, trained in zip(rows, results.values(), strict=True):
        if row["condition"] == RANDOM:
            continue
        apart = cluster_mean(_items(trained, "gap") - of_draws.mean(0), of_fold).plus(drawn)
        row["than_random"] = apart.mean
        row["than_random_low"], row["than_random_high"] = apart.limits()
        if peer is not None and row["condition"] != PEER:
            less = _items(trained, "gap") - peer
            row["than_cda"] = less.mean()
            row["than_cda_low"], row["than_cda_high"] = cluster_mean(less, of_fold).limits()
        if row["condition"] in protocol.by:
            # (1 + random sets that leave as little or less) / (1 + random sets)
            sizes = np.abs([other["beta_at_lms"] for other in random])
            row["p"] = float(share_reached(-sizes, -abs(row["beta_at_lms"])))
    first = rows[0]  # of a ranking, which is compared with random sets: it has all columns
    low, high = cluster_mean(_items(one, "gap", before=True), target).limits()
    untouched = {
        "condition": UNTOUCHED, "how": "none", "heads": 0, **about, "guard": "pass",
        "perplexity": 0.0, "before": first["before"], "beta": first["before"], "low": low,
        "high": high, "folds": first["folds"], "change": 0.0, "beta_at_entropy": first["before"],
        "temperature": 1.0,
        **{name: first[f"{name}_before"] for name in _BEFORE},
        **{f"{name}_before": first[f"{name}_before"] for name in _BEFORE},
    }  # fmt: skip
    others = [row for row in rows if row["condition"] != RANDOM]
    return pd.DataFrame([untouched, *others, _mean_of(random)]).reindex(columns=[*first])


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
    pairs = {f"pairs {name}": float(np.mean([p[name] for p in points])) for name in points[0]}
    row |= pairs
    gained = [row["lms"] - row["lms_before"], row["lms_token"] - row["lms_token_before"]]
    kept = passes(protocol, [*gained, *pairs.values()], float(np.mean(ppl)))
    row["guard"] = "pass" if kept else "fail"
    row["folds"] = len(np.unique(of_fold))
    return row


def _mean_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Random sets as one row: means, and of what is a size the mean size."""
    means = dict(rows[0])
    for name, value in means.items():
        if isinstance(value, str) or name in ("heads", "targets", "folds"):
            continue
        values = np.array([row[name] for row in rows])
        sizes = name in ("beta", "sum", "beta_at_lms", "spread")
        means[name] = float(np.abs(values).mean() if sizes else values.mean())
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
    """Gaps of the test items where the language-model score of all of them has fallen by a point.

    Folds go on check by check together; between two checks every item's gap is interpolated along
    the score.

    Returns:
        Fold by fold; and whether the score fell so far at all: where it did not, they are those of
        the last check.
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
    """The bias left on test targets and its price, by condition, random set and check.

    Returns:
        Columns ``condition draw check perplexity`` (change in percent on the watched
        passages, mean over folds), and ``beta`` over the items of all test targets.
    """
    rows = []
    for condition, trained in results.items():
        own = [one.trajectory for one in trained]
        for number, checks in enumerate(_check_by_check(own)):
            answers = Answers.together([check.test for check in checks])
            before = [t.first.log_ppl for t in own]
            lost = np.expm1(np.subtract([check.log_ppl for check in checks], before))
            rows.append(
                {
                    "condition": condition.name,
                    "draw": max(condition.draw, 0),
                    "check": number,
                    "perplexity": 100 * float(np.mean(lost)),
                    "beta": float(answers.gap.mean()),
                }
            )
    return pd.DataFrame(rows)


def others_table(results: Results, groups: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Beta of other categories, by condition: did another bias change? Groups are items' targets.

    Returns:
        ``condition category items before beta change low high``: means over items and folds,
        limits of the change over targets, with the variation of trainings.
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
    for own, named in _each(results):
        heads, t = own.training.heads, own.trajectory
        validation = {
            f"validation_{name}{when}": getattr(check, name)
            for name in ("beta", "loss", "lms", "lms_per_token")
            for when, check in (("_before", t.first), ("", t.chosen))
        }
        rows.append(
            {
                **named,
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
    for own, named in _each(results):
        test, t = own.training.fold.test, own.trajectory
        columns = {
            "id": [ids[i] for i in test], "group": [groups[i] for i in test],
            "beta_before": t.first.test.gap, "beta": t.chosen.test.gap,
        }  # fmt: skip
        tables.append(pd.DataFrame({**named, **columns}))
    return pd.concat(tables, ignore_index=True)


def recommended(results: Results, protocol: Protocol) -> str:
    """The condition whose model is saved: the least beta on the validation targets, over folds.

    No control. Every chosen check passed the guards there; sets of pairs must pass too, where some
    condition's do. Test targets have no say.
    """
    return least_biased(
        [
            (
                condition.name,
                float(np.mean([abs(own.trajectory.chosen.beta) for own in trained])),
                all(keeps_pairs(own.trajectory, protocol) for own in trained),
            )
            for condition, trained in results.items()
            if not condition.is_control
        ]
    )


def broken(results: Results) -> list[str]:
    """Trainings that ended because numbers became undefined, and at which step."""
    return [
        f"{own.training.condition.part}, fold {own.training.fold.number}: {own.trajectory.ended}; "
        "its last good check counts"
        for own, _ in _each(results)
        if "nan" in own.trajectory.ended.lower() or "became inf" in own.trajectory.ended
    ]


# -- in words --------------------------------------------------------------------------------------


def verdict(
    row: Mapping[Any, Any],
    table: pd.DataFrame,
    protocol: Protocol,
    *,
    quantity: str = "beta",
    unchanged: int = 0,
) -> str:
    """Say whether there is less bias, and whether choosing heads helped, in plain words.

    The first is said of the condition of a row, the second of the rankings of a table. In
    ``unchanged`` trainings of the condition no check passed the guards. The ``quantity`` is that of
    ``result.quantity_of``.
    """
    interval = interval_text(row["change_low"], row["change_high"], 3, sign="+")
    text = (
        f"On targets it never saw, training {row['condition']} changed {quantity} per token "
        f"from {row['before']:.3f} to {row['beta']:.3f} (change {row['change']:+.3f}, 95 %: "
        f"{interval}) at {row['perplexity']:+.1f} % perplexity: {_less_or_not(row)}"
    )
    if row["guard"] == "fail":
        scores = f"{row['lms_before']:.1f} to {row['lms']:.1f}"
        text += (
            f" It costs more than the guards allow (language-model score {scores}): not for use."
        )
    if unchanged:
        trainings = counted(unchanged, "training")
        text += f" In {trainings} no check passed the guards: there the model stays as it was."
    text += f" {_helped(table, protocol)}"
    if protocol.train_items is not None:
        steps = protocol.epochs * -(-protocol.train_items // protocol.batch)
        if steps < _ENOUGH_STEPS:
            text += f" {counted(steps, 'step')} a training: this tests the program, not the method."
    return text


def _less_or_not(row: Mapping[Any, Any]) -> str:
    less = abs(row["beta"]) < abs(row["before"])
    left = "less of the bias is left" if less else "no less of the bias is left"
    if row["folds"] < FEWEST_CLUSTERS:
        folds = counted(int(row["folds"]), "fold is", "folds are")
        return f"{left}, and {folds} too few to say more."
    # Where beta has changed its sign, its size need not have changed.
    turned = row["before"] * row["beta"] < 0
    needed = ("change", "both") if turned else ("change",)
    if all(row[f"{name}_low"] > 0 or row[f"{name}_high"] < 0 for name in needed):
        return f"{left}."
    return f"{left}, which may be chance."


def _helped(table: pd.DataFrame, protocol: Protocol) -> str:
    controls = {condition.name for condition in conditions(protocol) if condition.is_control}
    compared = [name for name in protocol.by if name not in controls] or list(protocol.by)
    ranked = table[table["condition"].isin(compared)]
    # Few random sets give few values of p: of equal ones, what leaves least.
    best = ranked.iloc[int(np.lexsort((ranked["beta_at_lms"].abs(), ranked["p"]))[0])]
    if best["p"] * len(ranked) < _LEVEL:
        helped = "Choosing heads helped"
    elif len(ranked) / (1 + protocol.n_random) >= _LEVEL:
        helped = "Whether choosing heads helped cannot be told from so few random sets"
    else:
        helped = "Choosing heads did not help beyond chance"
    random = float(table.loc[table["condition"] == RANDOM, "beta_at_lms"].iloc[0])
    return (
        f"{helped}: where the language-model score has fallen by a point (or at the last check) "
        f"the best ranking "
        f"({best['condition']}) leaves {abs(best['beta_at_lms']):.3f}, as many random heads "
        f"{random:.3f} on average (p {best['p']:.2f} of {counted(protocol.n_random, 'random set')}"
        f", before correcting for {counted(len(ranked), 'ranking')})."
    )
