"""What a comparison of two runs of heads, or of target effects, comes to: do they agree?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tda_bias.comparison.beta_agreement import BetaAgreement
from tda_bias.comparison.finding import limits_of_maps, most_agreement
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.show.names import named
from tda_bias.show.table import with_head_names
from tda_bias.show.text import interval_text, number_text, p_text
from tda_bias.show.verdict import Outcome, power_said
from tda_bias.stats.correlation import power
from tda_bias.stats.resampling import LEVEL, least_pvalue


def heads_outcomes(comparison: HeadsComparison) -> list[Outcome]:
    """The agreement of two rankings of heads and, for matched heads, the number that moved."""
    record, heads = comparison.record, comparison.heads
    row = comparison.agreement.iloc[0].to_dict()
    ceiling = most_agreement(comparison)
    best = [] if ceiling is None else [f"at best {ceiling:.2f}, of two runs of one truth"]
    limits = [line.partition(":")[0].removesuffix(".") for line in limits_of_maps(comparison)]
    about: dict[str, Any] = {"question": "tests", "category": record.category, "limits": limits}
    agreed = Outcome(
        **about,
        name=f"Agreement of rankings: {record.category}",
        about=f"Spearman over {row['over']} of the two rankings",
        cluster=str(row["over"]).removesuffix("s"),
        lines=[_by_chance(row), *_within_layers(comparison), *best],
        **_correlated(row, "rho", record.n_resamples),
    )
    if not record.matched:
        return [agreed]
    tested = heads[heads["p"].notna()]
    low, by_chance = int((tested["p"] < LEVEL).sum()), LEVEL * len(tested)
    moved = Outcome(
        **about,
        name=f"Heads that moved: {record.category}",
        about="heads whose value changed by more than the noise of both maps, after Holm's "
        "correction",
        p=float(tested["p_holm"].min()),
        clusters=len(tested),
        cluster="head",
        found=int((tested["p_holm"] < LEVEL).sum()),
        verb="moved",
        of=len(tested),
        lines=[f"{low} with p < .05, {by_chance:.1f} by chance at most"],
        items=with_head_names(heads),
    )
    return [agreed, moved]


def _within_layers(comparison: HeadsComparison) -> Iterator[str]:
    """A line with the p for exchanges of heads within layers, where heads are matched."""
    rows = comparison.agreement.set_index("over").to_dict("index")
    if "heads within layers" in rows:
        row = rows["heads within layers"]
        yield f"p {p_text(row['p'])} with heads exchanged within layers alone"


def beta_outcomes(comparison: BetaAgreement) -> list[Outcome]:
    """The correlation of two models' target effects over targets."""
    record = comparison.record
    table = comparison.agreement.set_index(["quantity", "scoring", "over"])
    rows = {key: row.to_dict() for key, row in table.iterrows()}
    row, items = rows["beta", "sum", "targets"], rows["beta", "sum", "items"]
    lines = [_by_chance(row), f"over items {number_text(items['r'])} (p {p_text(items['p'])})"]
    if math.isfinite(row["corrected"]):
        lines.append(f"without noise {number_text(row['corrected'])}")
    return [
        Outcome(
            question="tests",
            name=f"Agreement of {named('beta')}: {record.category}",
            about=f"Pearson's r over targets of the two models' {named('beta')}",
            lines=lines,
            category=record.category,
            **_correlated(row, "r", record.n_resamples),
        )
    ]


def _correlated(row: Mapping[Any, Any], unit: str, n_resamples: int) -> dict[str, Any]:
    """Fields of an outcome from a row of ``agreement_row``."""
    n = int(row["n"])
    return {
        "value": row[unit],
        "unit": unit,
        "p": row["p"],
        "clusters": n,
        "impossible": least_pvalue(n_resamples) >= LEVEL,
        "power": power_said(power(n)["power_80"], unit),
    }


def _by_chance(row: Mapping[Any, Any]) -> str:
    return f"{interval_text(row['chance_low'], row['chance_high'])} by chance"
