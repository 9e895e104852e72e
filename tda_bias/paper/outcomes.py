"""What a comparison with published rankings comes to."""

from __future__ import annotations

from dataclasses import replace

from tda_bias.crossref.outcomes import power_beyond_layers
from tda_bias.paper.finding import of_another
from tda_bias.paper.rankings import PublishedAgreement
from tda_bias.show.text import counted, number_text
from tda_bias.show.verdict import Outcome
from tda_bias.stats.resampling import LEVEL, holm, least_pvalue


def published_outcomes(result: PublishedAgreement) -> list[Outcome]:
    """The correlation with a published ranking that has the smallest p within layers."""
    table, record = result.agreement, result.record
    known = table[table["p_within_layers"].notna()]
    about = Outcome(
        question="tests",
        name=f"Ranks of heads and those published of {record.published}",
        about="Spearman over heads of the run's ranking with a published one, above or below what "
        "layers alone give: that of several with the smallest p, which is corrected for all of "
        "them (Holm)",
        clusters=int(table["heads"].min()),
        cluster="head",
        impossible=least_pvalue(record.n_resamples) * len(table) >= LEVEL,
        limits=of_another(result),
        items=table,
    )
    if known.empty:
        return [about]
    corrected = holm(known["p_within_layers"].to_numpy(float))
    first = known.iloc[int(corrected.argmin())].to_dict()
    by_layers = first["by_layers"]
    return [
        replace(
            about,
            value=first["spearman"],
            unit="rho",
            neutral=by_layers,
            p=float(corrected.min()),
            lines=[
                f"with {first['second']}, {first['category']}",
                f"layers alone give {number_text(by_layers)}",
                f"{counted(len(known), 'correlation')}, mean "
                f"{number_text(known['spearman'].mean())}",
            ],
            power=power_beyond_layers(first["power_80"]),
        )
    ]
