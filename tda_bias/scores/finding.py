"""Findings of the scores of StereoSet and of pairs, in sentences, with their controls and power."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tda_bias.pairs.published import CROWS
from tda_bias.scores.pair_scores import PairSetScores, compared
from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores
from tda_bias.show.text import (
    NEUTRAL_IS_NOT_GOOD,
    Finding,
    counted,
    interval_text,
    number_text,
    p_text,
)
from tda_bias.stats.clusters import cluster_mean

if TYPE_CHECKING:
    import pandas as pd

PER = {"sum": "sum", "mean": "per token"}
# Which text is longer, by the sign of the difference in tokens.
_LONGER = ((1, "longer"), (0, "as long"), (-1, "shorter"))
# The official way to read intrasentence items, by kind of model.
_OFFICIAL = {
    "causal": "whole sentences per token after the model's start token (--start bos)",
    "masked": "the words that fill the blank",
}

# -- triples ---------------------------------------------------------------------------------------


def stereoset_finding(result: StereoSetScores) -> Finding:
    """The preference for stereotypes by category, and how much of it is about the target."""
    table = result.beta if result.has_twins else result.scores
    rows = table[(table["group"] == "all") & (table["scoring"] == "sum")].to_dict("records")
    of_category = [row for row in rows if row["category"] != "all"]
    read = _with_twins if result.has_twins else _without_twins
    found, control, power = zip(*(read(result, row) for row in of_category), strict=True)
    return Finding(
        result=found,
        control=[
            *filter(None, control),
            *_placebo_lines(result),
            *_stereotype_by_length(result.length_split, "sum"),
            NEUTRAL_IS_NOT_GOOD,
        ],
        power=[*filter(None, power)],
        details=[
            *_stereotype_by_length(result.length_split, "mean"),
            *_stereoset_details(result),
        ],
    )


def _with_twins(_: StereoSetScores, row: Mapping[Any, Any]) -> tuple[str, str, str]:
    """Result, control and power of a category, by sums of log-probabilities; empty if undefined."""
    name = str(row["category"]).capitalize()
    if not row["items"]:
        return f"{name}: no item has a twin.", "", ""
    over_items = interval_text(row["beta_low"], row["beta_high"])
    targets = interval_text(row["beta_low_targets"], row["beta_high_targets"])
    if row["p_targets"] == row["p_targets"]:
        targets += f", p {p_text(row['p_targets'])}"
    control = power = ""
    if row["explained"] == row["explained"]:
        control = (
            f"{name}: {100 * row['explained']:.1f} % of the variance of the log-odds over items is "
            "shared with the same texts about other targets (counterfactual twins): wording."
        )
    if row["smallest"] > 0:
        power = (
            f"With {counted(row['items'], 'item')} a target effect of "
            f"{number_text(row['smallest'])} nats is found four times out of five."
        )
    found = (
        f"{name}: the target effect (beta) is "
        f"{number_text(row['beta'])} nats of {number_text(row['log_odds'])} (over "
        f"{row['targets']} targets {targets}; over items {over_items}, p {p_text(row['p'])})."
    )
    return found, control, power


def _placebo_lines(result: StereoSetScores) -> list[str]:
    """Sentences on how much of beta is role, gender, or another wording alone."""
    if result.placebo_beta.empty:
        return []
    found = result.placebo_beta
    found = found[(found["scoring"] == "sum") & (found["choice"] == "all")]
    return [
        f"{str(row['category']).capitalize()}: {_PLACEBO[row['kind']]} gives "
        f"{number_text(row['placebo'])} nats where beta is {number_text(row['beta'])}; left is "
        f"{number_text(row['difference'])} "
        f"({interval_text(row['difference_low'], row['difference_high'])} over "
        f"{counted(row['targets'], 'target')}, {counted(row['items'], 'item')})."
        for row in found.to_dict("records")
    ]


_PLACEBO = {
    "synonym": "a synonym in the target's place (placebo)",
    "role": "another role of the same gender (placebo)",
}


def _without_twins(result: StereoSetScores, row: Mapping[Any, Any]) -> tuple[str, str, str]:
    interval = interval_text(row["ss_low"], row["ss_high"], 0)
    return (
        f"{str(row['category']).capitalize()}: stereotype score {row['ss']:.1f} ({interval}), "
        f"language-model score {row['lms']:.1f}, ICAT {row['icat']:.1f}; "
        f"{counted(row['items'], 'item')}.",
        "No twins: wording and target cannot be told apart in these scores.",
        _power(result.scores, row),
    )


def score_found(table: pd.DataFrame, row: Mapping[Any, Any]) -> tuple[float | None, int]:
    """The stereotype score above 50 that a t-test over targets finds four times out of five.

    Returns:
        None where no score is found, and the number of targets.
    """
    alike = table["group"] != "all"
    for name in ("category", "scoring", "reading", "scored"):
        if name in table and row[name] != "all":
            alike &= table[name] == row[name]
    score = cluster_mean(table.loc[alike, "ss"].to_numpy(float))
    return _found_above(score.smallest()), score.clusters


def share_found(result: PairSetScores) -> tuple[float | None, int]:
    """The same of the share of pairs, and the number of clusters."""
    table = compared(result.items)
    share = cluster_mean(table["preferred"].to_numpy(float), table["cluster"].to_numpy())
    return _found_above(100 * share.smallest()), share.clusters


def _found_above(away: float) -> float | None:
    return 50 + away if 0 < away < 50 else None


def _power(table: pd.DataFrame, row: Mapping[Any, Any]) -> str:
    """The same as a sentence."""
    found, targets = score_found(table, row)
    about = f"{str(row['category']).capitalize()}, {counted(targets, 'target')}"
    if found is None:
        return f"{about}: no score can be found four times out of five."
    return f"{about}: a score of {100 - found:.0f} or {found:.0f} is found four times out of five."


def share_by_length(split: pd.DataFrame, value: str) -> list[tuple[str, float, int]]:
    """A share, mean over some rows of a length split, and its items, by which text is longer."""
    parts = []
    for sign, name in _LONGER:
        rows = split[split["longer"] == sign]
        n = int(rows["items"].sum())
        if n:
            parts.append((name, float((rows[value] * rows["items"]).sum() / n), n))
    return parts


def _by_length(split: pd.DataFrame, value: str, text: str, unit: str) -> str:
    """The same in words."""
    return ", ".join(
        f"{share:.0f} where {text} is {name} ({counted(n, unit)})"
        for name, share, n in share_by_length(split, value)
    )


def _stereotype_by_length(split: pd.DataFrame, scoring: str) -> list[str]:
    """Stereotype score by which text is longer, category by category."""
    return [
        f"Length, {category}, {PER[scoring]}: ss is "
        f"{_by_length(rows, 'ss', 'the stereotype', 'item')}."
        for category, rows in split[split["scoring"] == scoring].groupby("category", sort=False)
    ]


def _stereoset_details(result: StereoSetScores) -> list[str]:
    """Sentences on how to read the numbers."""
    table = result.scores
    first = table[(table["group"] == "all") & (table["scoring"] == "sum")].iloc[0]
    tokens = [result.items[f"tokens_{name}"].mean() for name in ("s", "a", "u")]
    lines = [
        f"Mean tokens of the stereotype, anti-stereotype and unrelated continuation: "
        f"{tokens[0]:.1f}, {tokens[1]:.1f}, {tokens[2]:.1f}. Sums favour short texts, so lms by "
        "sums is low where the unrelated ones are short.",
        "Scores are means over terms (the official rule), with intervals over terms from five on, "
        "else over items; ss over items is what many tools print.",
        f"Ties: {first['ties']}, counted as one half.",
    ]
    if result.has_twins:
        lines.append(
            "The percentage of items with beta > 0 is 50 without bias; r correlates the log-odds "
            "with the twins'. What is in brackets is over targets and speaks of other targets (p "
            "flips beta in whole targets); the rest is over items, and speaks of these targets (p "
            "exchanges triples with their twins)."
        )
        left_out = int(result.items["twins"].eq(0).sum())
        if left_out:
            has = "item has no twin and is" if left_out == 1 else "items have no twin and are"
            lines.append(f"{left_out} {has} in the first table only.")
    return lines


# -- whole sentences -------------------------------------------------------------------------------

_SCORED = {"whole": "whole sentence", "difference": "differing words"}
_READINGS = {"log_prob": "", "pll": "", "pll_within_word": ", within words"}


def scored_name(row: Mapping[Any, Any]) -> str:
    """The words of a sentence that were scored, and the reading."""
    return f"{_SCORED[row['scored']]}{_READINGS[row['reading']]}"


def sentences_finding(run: SentenceScores) -> Finding:
    """The stereotype scores, how much length alone decides, and what is left out."""
    record, table = run.record, run.scores
    everything = table[(table["group"] == "all") & (table["category"] == table["category"].iloc[0])]
    rows = everything.to_dict("records")
    result = [
        f"{scored_name(row).capitalize()}, {PER[row['scoring']]}: stereotype score {row['ss']:.1f} "
        f"({interval_text(row['ss_low'], row['ss_high'], 0)}), language-model score "
        f"{row['lms']:.1f}; "
        f"{counted(row['items'], 'item')} ({row['category']})."
        for row in rows
    ]
    details = [
        f"{scored_name(row).capitalize()}: {row['undefined']} of {record.texts.triples} items "
        "are left out, because a sentence has no word of its own, or none that is read (a "
        "causal model without a start token does not read the first token)."
        for row in rows
        if row["scoring"] == "sum" and row["undefined"]
    ]
    if record.kind in _OFFICIAL:
        details.append(
            f"The official way for {record.kind} models: {_OFFICIAL[record.kind]}, as means over "
            "terms; ss over items is what many tools print."
        )
    return Finding(
        result=result,
        control=[*_sentences_by_length(run, "sum"), NEUTRAL_IS_NOT_GOOD],
        power=list(dict.fromkeys(_power(table, row) for row in rows)),
        details=[*_sentences_by_length(run, "mean"), *details],
    )


def _sentences_by_length(run: SentenceScores, scoring: str) -> list[str]:
    """Stereotype score by which text is longer, over all categories."""
    split = run.length_split[run.length_split["scoring"] == scoring]
    return [
        f"Length, {scored_name({'reading': reading, 'scored': scored})}, {PER[scoring]}: ss over "
        f"items is {_by_length(rows, 'ss', 'the stereotype', 'item')}."
        for (reading, scored), rows in split.groupby(["reading", "scored"], sort=False)
    ]


# -- pairs -----------------------------------------------------------------------------------------


HEADLINES = {
    "log_odds": "log-odds",
    "log_odds_female": "log-odds of she over he",
    "log_odds_participant": "of participants",
    "log_odds_occupation": "of occupations",
    "pearson_bls": "correlation with the share of women in US labour statistics",
    "pearson_bergsma": "correlation with the share of women in texts (Bergsma)",
    "published_gpt2": "of GPT-2 as published",
}


def pairs_finding(result: PairSetScores) -> Finding:
    """The text of a pair that the model prefers, and what length alone decides."""
    record, whole = result.record, result.scores.iloc[0]
    headline = ", ".join(
        f"{HEADLINES.get(name, name.replace('_', ' '))} {number_text(value)}"
        for name, value in record.official.headline.items()
    )
    preferred = interval_text(whole["preferred_low"], whole["preferred_high"], 1)
    lines = [
        f"{record.official.name}: {headline}.",
        f"{record.model.name} prefers the first text (`more`) in {whole['preferred']:.1f} % of "
        f"{counted(whole['items'] - whole['undefined'], 'pair')} ({preferred}; 50 without a "
        "preference), by sums of log-probabilities.",
    ]
    share, clusters = share_found(result)
    found = "no share can be" if share is None else f"a share of {share:.0f} % is"
    power = (
        f"With {counted(clusters, 'cluster')} of pairs {found} found four times out of five "
        "(t-test over clusters)."
    )
    details = [
        record.official.note,
        *_preference_by_length(result.length_split, "mean"),
        f"{counted(whole['ties'], 'tie')}, {whole['undefined']} without a scored token; intervals: "
        f"{whole['interval']}.",
    ]
    control = _preference_by_length(result.length_split, "sum")
    if record.set in CROWS:
        control.append("CrowS-Pairs is for evaluation: its authors ask not to train on it.")
    return Finding(
        result=lines,
        control=control + _within_word_lines(result),
        power=[power],
        details=details,
    )


def _preference_by_length(split: pd.DataFrame, scoring: str) -> list[str]:
    """Preference by which text is longer."""
    return [
        f"Length, {PER[scoring]}"
        f"{'' if reading == 'log_prob' else ', ' + str(reading).replace('_', ' ')}: the first text "
        f"is preferred in, per cent, {_by_length(rows, 'preferred', 'it', 'pair')}."
        for reading, rows in split[split["scoring"] == scoring].groupby("reading", sort=False)
    ]


def _within_word_lines(result: PairSetScores) -> list[str]:
    """Score of the whole set by the better reading of masked models."""
    table = result.scores
    scores = table[(table["reading"] == "pll_within_word") & (table["scoring"] == "sum")]
    if scores.empty:
        return []
    row = scores.iloc[0]
    limits = interval_text(row["log_odds_low"], row["log_odds_high"], 2)
    return [
        "With later pieces of a word masked too (Kauf & Ivanova 2023), which does not favour words "
        f"of many pieces: {row['preferred']:.1f} per cent preferred, log-odds "
        f"{row['log_odds']:.2f} ({result.record.confidence:.0%}: {limits})."
    ]
