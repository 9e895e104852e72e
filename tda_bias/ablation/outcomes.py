"""What ablations come to: whether the top heads change more than random heads of their layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tda_bias.ablation.finding import comes_closer, random_orders, smallest_of_curve, unit_of
from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy, size_needed
from tda_bias.show.names import named
from tda_bias.show.text import counted, interval_text, number_text
from tda_bias.show.verdict import Control, Outcome
from tda_bias.stats.resampling import LEVEL, least_pvalue

# Whether a model still reads: the first that was measured.
_LANGUAGE = ("log_ppl_context", "log_ppl_unrelated")


def ablation_outcomes(study: AblationStudy) -> list[Outcome]:
    """The change of each primary outcome when the top heads are ablated together."""
    tests = {row["outcome"]: row for row in study.set_tests.to_dict("records")}
    return [_outcome(study, tests, name) for name in study.primary]


def _outcome(study: AblationStudy, tests: Mapping[str, Mapping[Any, Any]], outcome: str) -> Outcome:
    record, test = study.record, tests[outcome]
    unit, column = unit_of(outcome), f"d_{outcome}"
    heads = counted(record.top, "top head")
    base = number_text(record.base.get(outcome), 3)
    needed = size_needed(study.effects, outcome)
    limits = []
    if not record.survivors:
        limits.append("by its ranking no head of the run survives")
    if outcome == "log_odds":
        limits.append("without twins: wording is in it")
    return Outcome(
        question="tests",
        name=f"{heads} ablated: {named(f'{outcome}_{record.category}')}",
        about=f"change when the {heads} are ablated together, compared with random heads of the "
        "same layers",
        value=test["effect"],
        unit=unit,
        neutral_is="no change",
        p=test["p"],
        clusters=record.n_random,
        cluster="random set",
        impossible=least_pvalue(record.n_random) >= LEVEL,
        confounded=_confounded(tests),
        category=record.category,
        lines=[
            f"from {base}",
            f"random heads {test['random_mean']:+.3f} (SD {test['random_sd']:.3f})",
        ],
        limits=limits,
        power=f"p < .05 from a change of {needed:.3f} {unit}".rstrip() if needed == needed else "",
        items=study.effects[["kind", "heads", column]].rename(columns={column: "change"}),
    )


def _confounded(tests: Mapping[str, Mapping[Any, Any]]) -> tuple[Control, ...]:
    """``capability`` where text becomes less probable, and by more than with random heads."""
    language = next((tests[name] for name in _LANGUAGE if name in tests), None)
    costs = language is not None and language["effect"] > 0 and language["p"] < LEVEL
    return ("capability",) if costs else ()


def curve_outcomes(curve: PruneCurve) -> list[Outcome]:
    """Of every ranking what ablating its heads changes on targets that chose nothing."""
    return [_of_ranking(curve, row) for row in curve.chosen.to_dict("records")]


def _of_ranking(curve: PruneCurve, row: Mapping[Any, Any]) -> Outcome:
    record, orders = curve.record, random_orders(curve)
    quantity = "_".join(filter(None, [record.quantity, record.category]))
    left = interval_text(row["test_low"], row["test_high"])
    own = curve.curve[curve.curve["ranking"] == row["ranking"]]
    return Outcome(
        question="tests",
        name=f"Heads by {row['ranking']} ablated: {named(quantity)}",
        about="change on targets that chose nothing, compared with what random orders of heads "
        "leave",
        value=row["test"] - row["before_test"],
        unit=unit_of(record.quantity),
        neutral_is="no change",
        p=row["p_random"],
        # Where nothing comes closer to 0 there is nothing that random orders could do as well.
        p_corrected=min(1.0, row["p_random"] * len(curve.chosen)) if comes_closer(row) else 1.0,
        clusters=orders,
        cluster="random order",
        impossible=smallest_of_curve(curve) >= LEVEL,
        category=record.category or "",
        lines=[
            f"{row['before_test']:.2f} to {row['test']:.2f} ({left})",
            f"random orders leave {row['random_test']:.2f}",
            f"{counted(int(row['k']), 'head')}, log-perplexity {row['d_log_ppl']:+.3f}",
        ],
        limits=["without twins: wording is in it"] if record.quantity == "log_odds" else [],
        items=own.drop(columns=["ranking", "draw"]).rename(columns={"k": "heads"}),
    )
