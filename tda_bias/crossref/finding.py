"""What cross-references found, in sentences."""

from __future__ import annotations

import pandas as pd

from tda_bias.crossref.crossref import CrossReference
from tda_bias.crossref.item_crossref import ItemCrossReference, Way
from tda_bias.crossref.rank_tests import COVARIATES, SUMMARIES, usable_covariates
from tda_bias.heads.finding import value_name
from tda_bias.show.names import named
from tda_bias.show.text import Finding, counted, number_text, p_text
from tda_bias.stats.correlation import power
from tda_bias.stats.resampling import LEVEL


def target_finding(result: CrossReference) -> Finding:
    """Finding over targets: survivors of correction, and power."""
    over, needed = counted(len(result.targets), "target"), power(len(result.targets))
    of_heads = result.correlations["summary"].isin(SUMMARIES)
    correlations, without_heads = result.correlations[of_heads], result.correlations[~of_heads]
    linked, tested = surviving(correlations)
    first = (
        f"{linked} of {tested} correlations over {over} have q (FDR) < .05."
        if linked
        else "No link between what the heads do with a target and what the model says of it: none "
        f"of {tested} correlations over {over} survives correction (smallest q "
        f"{p_text(correlations['q'].min())})."
    )
    control = []
    if len(without_heads):
        agreeing, pairs = surviving(without_heads)
        control.append(
            f"Of {pairs} correlations between words and StereoSet's own scores, which should agree "
            f"and which no head enters, {agreeing} have q (FDR) < .05."
        )
    for name, tests in result.heads.groupby("quantity", sort=False):
        shuffled = result.record.shuffled_heads.get(str(name), {})
        kept = tests[tests["p_max"] < LEVEL]
        found = ", ".join(f"L{r.layer}H{r.head}" for r in kept.itertuples()) or "none"
        control.append(
            f"Heads whose |T| goes with {named(str(name))} (family-wise p < .05): {found}; "
            f"{int((tests['p'] < LEVEL).sum())} with p < .05, "
            f"{number_text(shuffled.get('heads_p05'), 0)} with heads shuffled, "
            f"{number_text(shuffled.get('expected_p05'), 0)} expected."
        )
    record = result.record
    if record.without_word:
        lacking = counted(len(record.without_word), "target of the heads has", "targets have")
        control.append(f"{lacking} no word there: {', '.join(record.without_word)}.")
    used = ", ".join(COVARIATES[name] for name in usable_covariates(result.targets)) or "nothing"
    extra = " Word frequencies need pip install 'tdabias[frequency]'."
    return Finding(
        result=[first],
        control=control,
        power=[
            f"|rho| must reach {needed['significant']:.2f} for p < .05; a true rho of "
            f"{needed['power_80']:.2f} is found four times out of five."
        ],
        details=[
            f"T of a head and a target is {value_name(record.statistic)} ({record.statistic} in "
            "combined.parquet), the mean over its dimensions.",
            f"Partial p: without the ranks of {used}.{'' if 'zipf' in result.targets else extra}",
        ],
    )


def surviving(correlations: pd.DataFrame) -> tuple[int, int]:
    """Correlations with q < .05, and those that are defined."""
    return int((correlations["q"] < LEVEL).sum()), int(correlations["p"].notna().sum())


def item_finding(result: ItemCrossReference) -> Finding:
    """Number of heads that follow the target effect, and the power to find one."""
    summary = result.summary
    with_twins = "twins" in set(summary["way"])
    lines, power = [], []
    for category, rows in summary.groupby("category", sort=False):
        ways = {way: of_way for way, of_way in rows.groupby("way", sort=False)}
        if "twins" in ways:
            of_twins = ways["twins"]
            heads = surviving_heads(result, str(category), "twins")
            said = f"{counted(heads, 'head')} follow" if heads else "No head is found to follow"
            lines.append(
                f"{str(category).capitalize()}: {said} the target effect (beta) of items"
                f"{' after correction' if heads else ''}; largest rho "
                f"{largest_rho(of_twins):.2f}."
            )
        raw = ways["raw"]
        heads = surviving_heads(result, str(category), "raw")
        said = f"{counted(heads, 'head')} go" if heads > 1 else f"{heads or 'no'} head goes"
        lines.append(
            f"{str(category).capitalize()}, without twins: {said} with the log-odds after "
            f"correction (largest rho {largest_rho(raw):.2f})."
        )
        left = result.record.left_out.get(str(category), 0)
        items = counted(left, "item of the heads is", "items of the heads are")
        apart = f" {items} not in the other run." if left else ""
        power.append(
            f"{str(category).capitalize()}: with {counted(rows['n'].min(), 'item')} a true rho of "
            f"{rows['smallest'].max():.2f} of a single head is found four times out of five; "
            f"among all heads {rows['needed'].max():.2f} is needed.{apart}"
        )
    control = (
        "A head that goes with the log-odds may follow wording or length alone; one that does so "
        "with twins on both sides follows the target."
        if with_twins
        else "Without twins in both runs, wording and target cannot be told apart."
    )
    return Finding(
        result=lines,
        control=[
            control,
            "Each correction is over all heads, dimensions and measures, for one "
            "category and one way to compare.",
        ],
        power=power,
        details=["Items are exchanged within targets."],
    )


def surviving_heads(result: ItemCrossReference, category: str, way: Way) -> int:
    """Heads that survive correction by any measure."""
    rows = result.heads[result.heads["p_max"] < LEVEL]
    rows = rows[(rows["category"] == category) & (rows["way"] == way)]
    return len(rows[["layer", "head"]].drop_duplicates())


def largest_rho(rows: pd.DataFrame) -> float:
    """The largest correlation by its size, with its sign."""
    return float(max(rows["largest"].tolist(), key=abs))
