"""What ``tdabias ablate`` prints of a study and of a curve."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import get_args

from tda_bias.ablation.brief import ablation_brief, curve_brief
from tda_bias.ablation.finding import (
    ablation_finding,
    curve_finding,
    unit_of,
    what_was_read,
)
from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy, end_of
from tda_bias.show.names import named
from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec
from tda_bias.show.text import counted, interval_text, number_text, p_text, report_of, rounded_lines
from tda_bias.types import RankBy

# Estimates of these are compared with effects on themselves alone.
_OWN = ("R", "R_p", "R_v", "bbq_bias", "response_effect", "decision")
_NAMES = {
    **{f"z_{name}": name for name in get_args(RankBy)},
    "importance": "gradient importance",
    "abs_direct": "direct effect",
    "abs_effect": "first order, log-odds",
    "abs_effect_beta": f"first order, {named('beta')}",
    **{f"abs_effect_{name}": f"first order, {name}" for name in _OWN},
}


def shown(study: AblationStudy, folder: Path, *, top: int = 10) -> Output:
    """Output of a study: effects beside random heads, and what predicts them."""
    run = study.record.run or str(folder.parent)
    return Output(
        finding=ablation_finding(study)
        .led_by(ablation_brief(study))
        .then(f"tdabias ablate {quote(run)} --curve", report_of(Path(run), folder)),
        shown=[
            set_table(study),
            *(agreement_table(study, name) for name in study.outcomes),
            *rounded_lines(study.record.precision),
        ],
        values={
            "model": study.record.model,
            "unchanged": study.record.base,
            "set_tests": study.set_tests,
            "agreement": study.agreement,
        },
        rows=study.set_tests,
        folder=folder,
        files="effects.csv, heads.csv, agreement.csv, effects.png, ...",
    )


def set_table(study: AblationStudy) -> TableSpec:
    """Outcomes with the top heads ablated, and with as many random ones."""
    about = study.record
    columns = [
        Column("outcome", _outcome, left=True),
        Column("unchanged", lambda row: number_text(study.record.base.get(row["outcome"]), 3)),
        Column("change", "{effect:+.3f}"),
        Column("random sets: mean (SD)", "{random_mean:+.3f} ({random_sd:.3f})"),
        Column("percentile", "{percentile:.0f}"),
        Column("p", "{p:p}"),
    ]
    ablated = f"{counted(about.top, 'top head')} ablated together"
    title = f"{about.model.name} · {about.category} · {ablated}, {what_was_read(study)}"
    return TableSpec(title, study.set_tests, columns)


def _outcome(row: Row) -> str:
    return ", ".join(filter(None, [named(row["outcome"]), unit_of(row["outcome"])]))


def agreement_table(study: AblationStudy, outcome: str = "log_odds") -> TableSpec:
    """Correlation of each ranking of heads with the size of effects on an outcome."""
    end = end_of(outcome)
    left_out = {f"abs_effect_{name}" for name in _OWN} - {f"abs_effect{end}"}

    def numbers(row: Row) -> dict[str, str]:
        """Row of texts, empty where the ranking was not compared with the effect."""
        texts = {"ranking": _NAMES.get(row["ranking"], str(row["ranking"]))}
        for size in ("effect", "exact"):
            asked = row[f"n_{size}{end}"] > 0
            texts[f"rho_{size}"] = number_text(row[f"rho_{size}{end}"]) if asked else ""
            texts[f"p_{size}"] = p_text(row[f"p_{size}{end}"]) if asked else ""
            texts[f"n_{size}"] = str(row[f"n_{size}{end}"])
        return texts

    columns = [
        Column("ranking of heads", "{ranking}", left=True),
        Column("rho, first order", "{rho_effect}"),
        Column("p", "{p_effect}"),
        Column("rho, exact", "{rho_exact}"),
        Column("p", "{p_exact}"),
        Column("heads", "{n_effect}, {n_exact}"),
    ]
    title = f"Does a ranking predict how much ablating a head changes the {named(outcome)}?"
    rows = study.agreement[~study.agreement["ranking"].isin(left_out)]
    return TableSpec(title, [numbers(row) for row in rows.to_dict("records")], columns)


def curve_shown(curve: PruneCurve, folder: Path, *, top: int = 10) -> Output:
    """Output of a curve: the remaining bias at the number of heads chosen, ranking by ranking."""
    record = curve.record
    columns = [
        Column("ranking", "{ranking}", left=True),
        Column("heads", "{k}"),
        Column("choosing targets", "{before_choose:.2f} to {choose:.2f}"),
        Column(
            "other targets",
            lambda row: (
                f"{row['before_test']:.2f} to {row['test']:.2f} "
                f"[{interval_text(row['test_low'], row['test_high'])}]"
            ),
        ),
        Column("random", "{random_test:.2f}"),
        Column("p", "{p_random:.3f}"),
        Column("log-perplexity", "{d_log_ppl:+.4f}"),
    ]
    title = f"{record.model.name} · {record.category} · {named(record.quantity)} remaining (nats)"
    return Output(
        finding=curve_finding(curve).led_by(curve_brief(curve)).then(report_of(folder)),
        shown=[TableSpec(title, curve.chosen, columns), *rounded_lines(record.precision)],
        values={"record": record, "chosen": curve.chosen},
        rows=curve.chosen,
        folder=folder,
        files="curve.csv, chosen.csv, prune_curve.png, run.json, ...",
    )
