"""Comparisons at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tda_bias.comparison.bbq_change import BBQChange
from tda_bias.comparison.beta_agreement import BetaAgreement
from tda_bias.comparison.finding import (
    after_name,
    cost,
    limits_of_maps,
    limits_of_samples,
    most_agreement,
    sentence,
    verdicts,
)
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import ModelComparison, not_measured_lines
from tda_bias.comparison.samples import SampleComparison
from tda_bias.show.brief import Brief, Line
from tda_bias.show.names import named
from tda_bias.show.text import (
    counted,
    data_remarks,
    interval_text,
    number_text,
    p_text,
    short_names,
)
from tda_bias.stats.resampling import LEVEL


def _about(before: str, after: str, *more: str) -> list[str]:
    return [" → ".join(short_names([before, after])), *more]


def comparison_brief(comparison: ModelComparison) -> Brief:
    """Whether a model is less biased than the one before it, and what that costs."""
    table, record = comparison.table, comparison.record
    primary = table[table["primary"]].to_dict("records")
    clause, not_kept = cost(comparison)
    said = sentence([*verdicts(comparison, numbers=False), clause])
    return Brief(
        about=_about(record.model.name, after_name(record)),
        said=said,
        lines=[_changed(row, named(row["outcome"])) for row in primary],
        remarks=[*not_kept, *not_measured_lines(record.not_measured), *data_remarks(record)],
    )


def _changed(row: dict[Any, Any], name: str) -> Line:
    if row["change"] != row["change"]:
        return Line(name, "", f"undefined ({row['reason']})")
    interval = interval_text(row["low"], row["high"], 3)
    return Line(
        name,
        f"{row['change']:+.3f}",
        f"from {row['before']:.3f} ({interval}; Holm p {p_text(row['p_holm'])})",
    )


def samples_brief(comparison: SampleComparison) -> Brief:
    """How many tasks of lm-eval changed by more than chance."""
    record, table = comparison.record, comparison.table
    primary = table[table["primary"] & table["change"].notna()].to_dict("records")
    sure = [row for row in primary if row["p_holm"] < LEVEL]
    tasks = counted(len(primary), "task")
    said = f"None of {tasks} changed by more than chance."
    if sure:
        said = f"{len(sure)} of {tasks} changed by more than chance."
    ordered = sorted(primary, key=lambda row: float(row["p_holm"]))
    more = len(ordered) - 6
    remarks = [f"{counted(more, 'further task')} in compare.csv."] if more > 0 else []
    return Brief(
        about=_about(record.model.name, record.after.name, "lm-eval samples"),
        said=said,
        # Tasks have lm-eval's own names.
        lines=[_changed(row, str(row["outcome"])) for row in ordered[:6]],
        remarks=[*remarks, *limits_of_samples(comparison)],
    )


def maps_brief(comparison: HeadsComparison) -> Brief:
    """Whether two rankings of heads agree more than by chance, and how many heads moved."""
    record, heads = comparison.record, comparison.heads
    first = comparison.agreement.iloc[0]
    agree = "agree" if first["p"] < LEVEL else "are not found to agree"
    chance = interval_text(first["chance_low"], first["chance_high"])
    lines = [
        Line(
            "agreement",
            number_text(first["rho"]),
            f"(Spearman over {first['over']}; chance {chance}; p {p_text(first['p'])})",
        )
    ]
    if record.matched:
        known = int(heads["p"].notna().sum())
        low = int((heads["p"] < LEVEL).sum())
        moved = int((heads["p_holm"] < LEVEL).sum())
        lines += [
            Line("heads that moved", str(moved), "beyond noise, after correction (Holm)"),
            Line("p < .05", str(low), f"of {known} heads ({LEVEL * known:.1f} by chance at most)"),
        ]
    if (ceiling := most_agreement(comparison)) is not None:
        lines.append(Line("at best", f"{ceiling:.2f}", "for two runs of the same truth"))
    remarks = []
    if not record.matched:
        remarks.append("The models have other shapes: layers are compared, and heads not matched.")
    return Brief(
        about=_about(record.model.name, record.after.name, record.category),
        said=f"The two rankings of heads for {record.category} {agree} beyond chance.",
        lines=lines,
        remarks=[*remarks, *limits_of_maps(comparison)],
    )


def agreement_brief(comparison: BetaAgreement) -> Brief:
    """Whether two models' target effects agree over targets and over items."""
    record = comparison.record
    keys = ["quantity", "scoring", "over"]
    rows = {tuple(row[key] for key in keys): row for row in comparison.agreement.to_dict("records")}
    items, targets = rows["beta", "sum", "items"], rows["beta", "sum", "targets"]
    odds = rows["log_odds", "sum", "items"]
    agree = "agree" if targets["p"] < LEVEL else "are not found to agree"
    chance = interval_text(items["chance_low"], items["chance_high"])
    reliable = " and ".join(number_text(targets[f"reliability_{s}"]) for s in ("before", "after"))
    return Brief(
        about=_about(record.model.name, record.after.name, record.category),
        said=f"The target effects (beta) of the two models {agree} over targets.",
        lines=[
            Line("over targets", number_text(targets["r"]), f"(p {p_text(targets['p'])})"),
            Line(
                "over items",
                number_text(items["r"]),
                f"({chance} by chance, p {p_text(items['p'])})",
            ),
            Line("log-odds", number_text(odds["r"]), "over items: mostly wording, which both read"),
            Line("reliability", "", f"{reliable}, of the targets' means"),
            Line("without noise", number_text(targets["corrected"]), "over targets"),
        ],
    )


def bbq_brief(comparison: BBQChange) -> Brief:
    """Whether answers to BBQ's questions changed: the bias score and the accuracy."""
    record = comparison.record
    rows = comparison.changes.set_index(["condition", "measure"]).to_dict("index")
    s_amb = rows.get(("ambiguous", "s_AMB"))
    if s_amb is None:
        said = "No ambiguous item is shared."
    elif s_amb["p"] < LEVEL:
        said = f"The bias s_AMB of ambiguous texts changed by {s_amb['change']:+.3f}."
    else:
        said = "No change of the bias of ambiguous texts (s_AMB) is found."
    only = counted(record.only_one, "item")
    return Brief(
        about=_about(record.model.name, record.after.name, "BBQ", record.category),
        said=said,
        lines=list(_bbq_lines(rows)),
        remarks=[f"{only} that one run alone has answered."] if record.only_one else [],
    )


def _bbq_lines(rows: dict[Any, Any]) -> Iterator[Line]:
    for label, key in (
        ("bias s_AMB", ("ambiguous", "s_AMB")),
        ("bias s_DIS", ("ambiguous", "s_DIS")),
        ("accuracy", ("disambiguated", "accuracy")),
    ):
        if key in rows:
            row = rows[key]
            interval = interval_text(row["low"], row["high"], 3)
            rest = f"({interval}; p {p_text(row['p'])}, {row['items']} items)"
            yield Line(label, f"{row['change']:+.3f}", rest)
    s_amb = rows.get(("ambiguous", "s_AMB"))
    if s_amb is not None and math.isfinite(s_amb["smallest"]):
        rest = f"({counted(s_amb['templates'], 'template')}, four times in five)"
        yield Line("would have found", f"{s_amb['smallest']:.3f}", rest)
    elif s_amb is not None:
        yield Line("would have found", "", "not known: nothing varies")
