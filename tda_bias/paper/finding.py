"""What a comparison with published rankings found, in sentences."""

from __future__ import annotations

from pathlib import Path

from tda_bias.paper.rankings import PublishedAgreement
from tda_bias.show.text import Finding, counted, number_text
from tda_bias.stats.correlation import power


def published_finding(result: PublishedAgreement) -> Finding:
    """Number of published rankings that a run agrees with."""
    table, record = result.agreement, result.record
    heads = int(table["heads"].min())
    small = int((table["p_within_layers"] < 0.05).sum())
    control = [
        "p exchanges all heads; p within layers those of the same layer only: rankings that agree "
        "about layers and not about heads get no small one.",
        "How far published rankings agree with each other and with themselves: "
        "docs/results/rankings.md.",
    ]
    if Path(record.model.name).name.lower() != record.published.lower():
        control.append(
            f"The run's model is called {record.model.name}: scores of {record.published}'s heads "
            "say nothing of another model's."
        )
    return Finding(
        result=[
            f"{small} of {len(table)} correlations with published rankings of {record.published} "
            f"have p < .05 within layers ({0.05 * len(table):.1f} expected by chance); mean "
            f"Spearman {number_text(table['spearman'].mean())}."
        ],
        control=control,
        power=[
            f"With {counted(heads, 'head')} a true correlation of {power(heads)['power_80']:.2f} "
            "over all heads is found four times out of five."
        ],
    )
