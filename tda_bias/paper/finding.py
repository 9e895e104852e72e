"""What a comparison with published rankings found, in sentences."""

from __future__ import annotations

from pathlib import Path

from tda_bias.paper.rankings import PublishedAgreement
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import (
    Finding,
    about_run,
    counted,
    data_remarks,
    number_text,
)
from tda_bias.stats.correlation import power
from tda_bias.stats.resampling import LEVEL


def published_finding(result: PublishedAgreement) -> Finding:
    """Number of published rankings that a run agrees with."""
    table, record = result.agreement, result.record
    heads = int(table["heads"].min())
    small = int((table["p_within_layers"] < LEVEL).sum())
    control = [
        "p exchanges all heads; p within layers those of the same layer only: rankings that agree "
        "about layers and not about heads get no small one.",
        "How far published rankings agree with each other and with themselves: "
        "docs/results/rankings.md.",
    ]
    control += of_another(result)
    return Finding(
        result=[
            f"{small} of {len(table)} correlations with published rankings of {record.published} "
            f"have p < .05 within layers ({LEVEL * len(table):.1f} expected by chance); mean "
            f"Spearman {number_text(table['spearman'].mean())}."
        ],
        control=control,
        power=[
            f"With {counted(heads, 'head')} a true correlation of {power(heads)['power_80']:.2f} "
            "over all heads is found four times out of five."
        ],
    )


def of_another(result: PublishedAgreement) -> list[str]:
    """A line where the run's model is not the one that the rankings are of."""
    record = result.record
    if Path(record.model.name).name.lower() == record.published.lower():
        return []
    return [
        f"The run's model is called {record.model.name}: scores of {record.published}'s heads "
        "say nothing of another model's."
    ]


def published_brief(result: PublishedAgreement) -> Brief:
    """Whether a run's map of heads agrees with published rankings, within layers too."""
    table, record = result.agreement, result.record
    heads, tests = int(table["heads"].min()), len(table)
    small = int((table["p_within_layers"] < LEVEL).sum())
    said = f"More rankings of {record.published} agree with the run than by chance."
    if small <= LEVEL * tests:
        said = f"The run is not found to agree with published rankings of {record.published}."
    return Brief(
        about=about_run(record, record.by, counted(tests, "correlation")),
        said=said,
        lines=[
            Line("p < .05", str(small), f"within layers ({LEVEL * tests:.1f} by chance)"),
            Line("all heads", str(int((table["p"] < LEVEL).sum())), "with p < .05 over all heads"),
            Line("mean Spearman", number_text(table["spearman"].mean())),
            Line("would have found", f"{power(heads)['power_80']:.2f}", "over all heads"),
        ],
        remarks=[*of_another(result), *data_remarks(record, starter=False)],
    )
