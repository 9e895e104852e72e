"""Ablations at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tda_bias.ablation.finding import (
    better_rankings,
    limits_of_answers,
    random_orders,
    smallest_of_curve,
    what_was_read,
)
from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy, end_of
from tda_bias.heads.finding import NOISY
from tda_bias.show.brief import Brief, Line
from tda_bias.show.names import named
from tda_bias.show.text import (
    about_run,
    counted,
    data_remarks,
    interval_text,
    number_text,
    p_text,
    rounded_lines,
)
from tda_bias.stats.resampling import LEVEL, least_pvalue


def ablation_brief(study: AblationStudy) -> Brief:
    """Whether ablating the top heads changes more than ablating random ones does."""
    record = study.record
    tests = {row["outcome"]: row for row in study.set_tests.to_dict("records")}
    main = study.primary
    measured = [*main, "log_odds"]
    smallest = least_pvalue(record.n_random)
    sure = [name for name in main if tests[name]["p"] < LEVEL]
    heads = counted(record.top, "top head")
    outcomes = " and ".join(f"the {named(name)}" for name in sure or main)
    if sure:
        said = (
            f"Ablating the {heads} changes {outcomes}{_side(study, tests, sure)} more than "
            "ablating random heads does."
        )
    elif smallest >= LEVEL:
        said = f"Too few random sets ({record.n_random}) to find anything."
    else:
        said = f"Ablating the {heads} does not change {outcomes} more than random heads do."
    remarks = list(rounded_lines(record.precision))
    if not record.survivors:
        remarks.insert(0, NOISY)
    return Brief(
        about=about_run(record, record.category, what_was_read(study)),
        said=said,
        lines=[
            *_changes(study, measured),
            *_rankings(study, main[0]),
            Line("smallest p", f"{smallest:.3f}", f"with {counted(record.n_random, 'random set')}"),
        ],
        remarks=[*remarks, *limits_of_answers(study), *data_remarks(record, starter=False)],
    )


def _side(
    study: AblationStudy, tests: Mapping[str, Mapping[Any, Any]], outcomes: Sequence[str]
) -> str:
    """The direction of a change relative to 0 (no bias); empty for several outcomes."""
    if len(outcomes) > 1:
        return ""
    before, change = study.record.base.get(outcomes[0]), tests[outcomes[0]]["effect"]
    if before is None:
        return ""
    if before * (before + change) < 0:
        return " past 0,"
    return " towards 0," if abs(before + change) < abs(before) else " away from 0,"


def _changes(study: AblationStudy, outcomes: Sequence[str]) -> Iterator[Line]:
    for test in study.set_tests.to_dict("records"):
        if test["outcome"] in outcomes:
            base = number_text(study.record.base.get(test["outcome"]), 3)
            rest = f"from {base}; random {test['random_mean']:+.3f} (p {p_text(test['p'])})"
            yield Line(f"change of {named(test['outcome'])}", f"{test['effect']:+.3f}", rest)


def _rankings(study: AblationStudy, outcome: str) -> Iterator[Line]:
    """How well the ranking of the run, and gradients, predict sizes of effects."""
    end = end_of(outcome)
    names = {f"z_{study.record.rank_by}": "ranking, effects", "importance": "gradient, effects"}
    for row in study.agreement.to_dict("records"):
        if row["ranking"] in names:
            rho, p = row[f"rho_effect{end}"], row[f"p_effect{end}"]
            yield Line(names[row["ranking"]], number_text(rho), f"(Spearman; p {p_text(p)})")


def curve_brief(curve: PruneCurve) -> Brief:
    """Whether a ranking of heads takes bias out where random orders do not."""
    record, rows = curve.record, curve.chosen.to_dict("records")
    n_random = random_orders(curve)
    better, smallest = better_rankings(curve), smallest_of_curve(curve)
    closer = f"the {named(record.quantity)} closer to 0 on other targets"
    if better:
        said = f"Ablating heads by {', '.join(better)} brings {closer}."
    elif smallest >= LEVEL:
        said = f"Too few random orders ({n_random}) to find anything."
    else:
        said = f"No ranking brings {closer} than random orders do."
    lines = [
        Line(
            str(row["ranking"]),
            number_text(row["test"]),
            f"nats of {row['before_test']:.2f} ({interval_text(row['test_low'], row['test_high'])}"
            f"; p {p_text(row['p_random'])}; {counted(row['k'], 'head')})",
        )
        for row in rows
    ]
    lines.append(Line("random orders", number_text(rows[0]["random_test"]), "nats on average"))
    needed = f"corrected for {counted(len(rows), 'ranking')}"
    lines.append(Line("smallest p", f"{smallest:.3f}", needed))
    return Brief(
        about=about_run(record, str(record.category), counted(n_random, "random order")),
        said=said,
        lines=lines,
        remarks=[*rounded_lines(record.precision), *data_remarks(record, starter=False)],
    )
