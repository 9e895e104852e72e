"""What heads carry of a model's risks, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tda_bias.crossref.head_crossref import (
    RISKS,
    SIZE_OF_T,
    HeadCrossReference,
    largest,
    primary,
)
from tda_bias.heads.finding import NOISY, value_name
from tda_bias.show.names import named_map
from tda_bias.show.table import head_name
from tda_bias.show.text import Finding, counted, listed, number_text, p_text
from tda_bias.stats.resampling import LEVEL

# Estimates that agree less with ablation, in order or in sign, are doubted.
_FAIR, _SAME_SIGN = 0.5, 0.8
# What an effect is compared by, in words.
ASPECTS = {"size": "the size of the effect", "fall": "the fall of the risk on ablation"}


def ranking_said(ranking: str) -> str:
    """A ranking of heads in words: of ``z_*`` the test or the map, and ``abs_T``."""
    if ranking == SIZE_OF_T:
        return "|T|"
    return named_map(ranking.removeprefix("z_"))


def head_finding(result: HeadCrossReference) -> Finding:
    """Whether the heads that topology ranks first carry R, R_p or R_v, and what would be found."""
    record, table = result.record, result.correlations
    surviving = table[table["q"] < LEVEL]
    named = [
        f"{ranking_said(row['ranking'])} with {ASPECTS[row['aspect']]} on {row['risk']} "
        f"({row['spearman']:.2f})"
        for row in surviving.sort_values("q", kind="stable").head(3).to_dict("records")
    ]
    more = f"; {len(surviving) - len(named)} more" * (len(surviving) > len(named))
    others = (
        f"Of {len(table)} correlations of rankings with effects {len(surviving)} survive "
        f"correction (q < .05 within layers){': ' if named else ''}{', '.join(named)}{more}."
    )
    return Finding(
        result=[_verdict(result), others, _sizes(result)],
        control=_controls(result),
        power=[_power(table)],
        details=[
            f"T is the mean over targets of {value_name(record.statistic)} "
            f"({record.statistic} in combined.parquet).",
            "First order: R, R_p and R_v change as the linear function of preferences does that "
            "present signs and largest classes fix; one reading gives values, one the gradient.",
            "p within layers exchanges heads of the same layer and is of the distance from what "
            "the means of layers alone give; q is over all rankings, risks and aspects.",
        ],
    )


def carried(result: HeadCrossReference) -> list[str]:
    """The risks that fall more on ablation the higher a head is ranked, beyond its layer."""
    falls = primary(result, "fall")
    kept = falls[(falls["q"] < LEVEL) & (falls["spearman"] > falls["by_layers"])]
    return [str(risk) for risk in kept["risk"]]


def _verdict(result: HeadCrossReference) -> str:
    """The answer for the ranking that the run goes by."""
    rows, risks = primary(result), carried(result)
    found = rows[rows["q"] < LEVEL]
    larger, smaller = (
        found[found["spearman"] > found["by_layers"]],
        found[found["spearman"] < found["by_layers"]],
    )
    others = "than others of their layers do"
    parts = [
        *([f"carry {listed(risks)}: it falls on their ablation"] if risks else []),
        *([f"change {listed(list(larger['risk']))} more {others}"] if len(larger) else []),
        *([f"change {listed(list(smaller['risk']))} less {others}"] if len(smaller) else []),
    ]
    verdict = ", and ".join(parts) or (
        f"are not found to carry R, R_p or R_v, nor to change them more {others}"
    )
    first = f"The heads that topology ranks first ({ranking_said(f'z_{result.record.rank_by}')})"
    rho = ", ".join(
        f"{row['risk']} {number_text(row['spearman'])} (p {p_text(row['p_within_layers'])})"
        for row in rows.to_dict("records")
    )
    shared = ", ".join(f"{row['overlap']} ({row['risk']})" for row in rows.to_dict("records"))
    return (
        f"{first} {verdict}. Spearman with the size of a head's effect, p within layers: {rho}. Of "
        f"the first {result.record.top} by both {shared} are the same; by chance "
        f"{rows['chance'].iloc[0]:.1f}."
    )


def _sizes(result: HeadCrossReference) -> str:
    """How large effects are beside the risks."""
    record, table = result.record, result.heads
    (first,) = largest(table).head(1).to_dict("records")
    said = []
    for risk in RISKS:
        size = table[f"effect_{risk}"].abs()
        said.append(
            f"{risk} ({record.base[risk]:.3f}) {size.median():.4f}, at most {size.max():.3f}"
        )
    return (
        f"Ablating a head changes, to first order and in the median, {'; '.join(said)}. The "
        f"largest effect is {head_name(first)}'s."
    )


def _controls(result: HeadCrossReference) -> list[str]:
    record = result.record
    every = result.agreement[result.agreement["chosen"] == "all"].set_index("risk")
    agreed = ", ".join(
        f"{row['risk']} {number_text(row['spearman'])} ({row['same_sign']:.0%} of the same sign)"
        for row in every.reset_index().to_dict("records")
    )
    control = [
        f"First-order against exact effects over {counted(int(every['heads'].iloc[0]), 'head')}, "
        f"half of them random: Spearman {agreed}.",
        *doubts(every),
        f"Means of layers alone give the ranking and the effects a Spearman of "
        f"{_span(primary(result)['by_layers'])}.",
    ]
    if not record.survivors:
        control.append(NOISY)
    return control


def doubts(every: pd.DataFrame, risks: Sequence[str] = RISKS) -> list[str]:
    """A line about those of some risks whose estimates are no guide to what ablation does."""
    fair = (every["spearman"].round(2) >= _FAIR) & (every["same_sign"] >= _SAME_SIGN)
    poor = [risk for risk in risks if not fair[risk]]
    if not poor:
        return []
    return [
        f"Estimates of {listed(poor)} say little of ablation (Spearman below {_FAIR:.1f}, or more "
        f"than {1 - _SAME_SIGN:.0%} of signs differ): correlations with them are with slopes, not "
        "with what a head carries."
    ]


def _power(table: pd.DataFrame) -> str:
    return (
        f"With {counted(int(table['heads'].min()), 'head')} a Spearman that is "
        f"{number_text(table['significant'].max())} away from what the layers give has p < .05 "
        f"within layers, before correction; one that is {number_text(table['power_80'].max())} "
        "away is found four times out of five."
    )


def _span(values: pd.Series[float]) -> str:
    """The smallest and the largest of a few values."""
    low, high = float(np.min(values)), float(np.max(values))
    return number_text(low) if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
