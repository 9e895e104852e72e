"""What a comparison with published rankings comes to."""

from __future__ import annotations

from dataclasses import replace

from tda_bias.paper.finding import of_another
from tda_bias.paper.rankings import PublishedAgreement
from tda_bias.show.text import counted, number_text, p_text
from tda_bias.show.verdict import Outcome, power_said
from tda_bias.stats.correlation import power
from tda_bias.stats.resampling import LEVEL, holm, least_pvalue


def published_outcomes(result: PublishedAgreement) -> list[Outcome]:
    """The correlation with a published ranking that has the smallest p within layers."""
    table, record = result.agreement, result.record
    known = table[table["p_within_layers"].notna()]
    heads = int(table["heads"].min())
    about = Outcome(
        question="tests",
        name=f"Ranks of heads and those published of {record.published}",
        about="Spearman over heads of the run's ranking with a published one: that of several with "
        "the smallest p within layers, which is corrected for all of them (Holm)",
        clusters=heads,
        cluster="head",
        impossible=least_pvalue(record.n_resamples) * len(table) >= LEVEL,
        limits=of_another(result),
        power=power_said(power(heads)["power_80"], "rho"),
        items=table,
    )
    if known.empty:
        return [about]
    corrected = holm(known["p_within_layers"].to_numpy(float))
    first = known.iloc[int(corrected.argmin())]
    return [
        replace(
            about,
            value=first["spearman"],
            unit="rho",
            p=first["p_within_layers"],
            p_corrected=float(corrected.min()),
            lines=[
                f"with {first['second']}, {first['category']}",
                f"{counted(len(known), 'correlation')}, mean "
                f"{number_text(known['spearman'].mean())}",
                f"over all heads p {p_text(first['p'])}",
            ],
        )
    ]
