"""Whether heads are found again on other targets, in sentences."""

from __future__ import annotations

import pandas as pd
from scipy import stats

from tda_bias.heads.confirmation import Confirmation
from tda_bias.show.text import Finding, counted, number_text, p_text


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
            if result.p < 0.05
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
    needed = stats.norm.isf(0.05 / len(table)) + stats.norm.ppf(0.8)
    return Finding(
        result=[
            f"{int((table['p_holm'] < 0.05).sum())} of {counted(len(table), 'head')} chosen in the "
            f"run are confirmed on {data} (Holm p < .05)."
        ],
        power=[
            f"A head with a true z of {needed:.1f} there is confirmed four times out of five (by "
            "the normal distribution)."
        ],
    )
