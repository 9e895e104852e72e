"""Whether heads are found again on other targets, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from scipy import stats

from tda_bias.heads.confirmation import Confirmation
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import Finding, counted, number_text, p_text
from tda_bias.stats.resampling import LEVEL


def confirmation_finding(result: Confirmation) -> Finding:
    """Test whether heads that stand out on some targets stand out on others."""
    record = result.record
    lacking = record["without_twins"]
    left_out = f"{counted(lacking, 'target')} with fewer than two contexts that have twins"
    apart = f" Left out: {left_out}." if lacking else ""
    which = "all" if record["all_splits"] else "random"
    chance, among = "chance", ""
    if record["by"] == "location":
        chance, among = "any heads do", " among random heads"
    return Finding(
        result=[
            "Heads that stand out on some targets stand out on others."
            if result.p < LEVEL
            else "Heads that stand out on some targets do not stand out on others more than "
            f"{chance}.",
            f"Of the chosen heads {result.replicated:.1%} have p <= .05 on the other half (p "
            f"{p_text(result.p)}{among}).",
        ],
        control=[
            f"Of all heads {result.all_heads:.1%} have p <= .05 on the other half; with exchanged "
            f"labels {result.chance:.1%} of the chosen heads.",
            "Reliability over targets (Spearman of the halves' maps): "
            f"{number_text(result.correlation)}; with exchanged labels "
            f"{number_text(result.correlation_chance)} (p {p_text(result.p_correlation)}).",
        ],
        power=[
            f"More than {result.needed:.1%} of the chosen heads must have p <= .05 on the other "
            f"half for p < .05.{apart}"
        ],
        details=[
            f"{counted(len(record['targets']), 'target')}, {counted(record['splits'], 'split')} "
            f"({which}), ranked by {record['by']}{' with twins' if record['twins'] else ''}."
        ],
    )


def other_data_finding(table: pd.DataFrame, data: str) -> Finding:
    """The heads of ``confirmed_on`` in words."""
    needed = z_needed(len(table))
    return Finding(
        result=[
            f"{int((table['p_holm'] < LEVEL).sum())} of {counted(len(table), 'head')} chosen in "
            f"the run are confirmed on {data} (Holm p < .05)."
        ],
        power=[
            f"A head with a true z of {needed:.1f} there is confirmed four times out of five (by "
            "the normal distribution)."
        ],
    )


def z_needed(tested: int) -> float:
    """The true z of one of so many heads that is confirmed four times out of five."""
    return float(stats.norm.isf(LEVEL / tested) + stats.norm.ppf(0.8))


def confirmation_brief(result: Confirmation, about: Sequence[str]) -> Brief:
    """Whether heads are found again on the other half of the targets; ``about`` is the run."""
    record = result.record
    more = "" if result.p < LEVEL else " not"
    than = "any heads do" if record["by"] == "location" else "chance"
    lacking = counted(record["without_twins"], "target")
    left_out = [f"{lacking} with fewer than two contexts that have twins left out."]
    again = (
        "Heads that stand out on some targets do" + more + f" stand out on others more than {than}."
    )
    targets, splits = counted(len(record["targets"]), "target"), counted(record["splits"], "split")
    by_chance = number_text(result.correlation_chance)
    reliable = f"(Spearman of halves; {by_chance} by chance, p {p_text(result.p_correlation)})"
    return Brief(
        about=[*about, f"first {record['top']} heads", f"{targets}, {splits}"],
        said=again,
        lines=[
            Line(
                "found again",
                f"{100 * result.replicated:.1f}",
                f"% with p <= .05 (p {p_text(result.p)})",
            ),
            Line("of all heads", f"{100 * result.all_heads:.1f}", "%"),
            Line("by chance", f"{100 * result.chance:.1f}", "% with exchanged labels"),
            Line("reliability", number_text(result.correlation), reliable),
            Line("would have found", f"{100 * result.needed:.1f}", "% and more"),
        ],
        remarks=left_out if record["without_twins"] else [],
    )


def other_data_brief(table: pd.DataFrame, about: Sequence[str]) -> Brief:
    """How many heads of a run are found again on other data."""
    needed = z_needed(len(table))
    confirmed, tested = int((table["p_holm"] < LEVEL).sum()), counted(len(table), "head")
    said = f"None of {tested} chosen in the run is found again on the other data."
    if confirmed:
        said = f"{confirmed} of {tested} chosen in the run are found again on the other data."
    return Brief(
        about=about,
        said=said,
        lines=[
            Line(
                "p < .05",
                str(int((table["p_other"] < LEVEL).sum())),
                f"heads ({LEVEL * len(table):.1f} by chance)",
            ),
            Line(
                "after correction",
                str(confirmed),
                f"heads (smallest p {p_text(table['p_holm'].min())}, Holm)",
            ),
            Line("would have found", f"{needed:.1f}", "of z there, four times in five"),
        ],
    )
