"""What comparisons found, in sentences."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from tda_bias.comparison.bbq_change import BBQChange
from tda_bias.comparison.beta_agreement import BetaAgreement
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import (
    ComparisonRecord,
    ModelComparison,
    not_measured_lines,
)
from tda_bias.comparison.outcomes import comparison_outcomes
from tda_bias.comparison.samples import SampleComparison
from tda_bias.scores.stereoset import SCORINGS
from tda_bias.show.names import named
from tda_bias.show.table import Row
from tda_bias.show.text import (
    Finding,
    counted,
    data_remarks,
    interval_text,
    listed,
    number_text,
    p_text,
)
from tda_bias.stats.resampling import LEVEL

_PER = {"sum": "by sums", "mean": "per token"}


def comparison_finding(comparison: ModelComparison) -> Finding:
    """Tell whether the model after is less biased than the one before, and what that costs."""
    table, record = comparison.table, comparison.record
    primary = table[table["primary"] & table["change"].notna()].to_dict("records")
    clause, not_kept = cost(comparison)
    return Finding(
        result=[
            sentence([*verdicts(comparison), clause]),
            *(_primary_line(row) for row in table[table["primary"]].to_dict("records")),
        ],
        control=[
            *not_kept,
            *not_measured_lines(record.not_measured),
            *data_remarks(record),
        ],
        power=[
            f"{named(row['outcome'])}: a change outside "
            f"{interval_text(row['low'], row['high'], 3)} is ruled out ({record.confidence:.0%}, "
            f"over {row['over']})."
            for row in primary
            if math.isfinite(row["low"])
        ],
        details=[
            *(_guard_line(row) for row in table[table["guard"] == "pass"].to_dict("records")),
            *_detail_lines(comparison),
        ],
    )


def verdicts(comparison: ModelComparison, *, numbers: bool = True) -> list[str]:
    """Clauses on what became of the bias beyond chance, with the numbers or without."""
    table, record = comparison.table, comparison.record
    before, after = record.model.name, after_name(record)
    primary = table[table["primary"] & table["change"].notna()].to_dict("records")
    sure = [row for row in primary if row["p_holm"] < LEVEL]
    found = [
        f"{said} in {_outcomes(rows) if numbers else listed([named(r['outcome']) for r in rows])}"
        for way, said in (
            ("smaller", f"{after} is less biased than {before}"),
            ("not smaller", f"{after} is more biased than {before}"),
            ("turned", f"the bias turns round from {before} to {after}"),
        )
        if (rows := [row for row in sure if _size(row) == way])
    ]
    if not found and primary:
        words = {one.word for one in comparison_outcomes(comparison)}
        found.append(
            f"{after} cannot be told from {before} by so few clusters"
            if words == {"cannot say"}
            else f"{after} is not measurably less biased than {before}"
        )
    return found


def samples_finding(comparison: SampleComparison) -> Finding:
    """The tasks whose scores changed by more than chance, and which changes are ruled out."""
    record, table = comparison.record, comparison.table
    before, after = record.model.name, record.after.name
    primary = table[table["primary"] & table["change"].notna()].to_dict("records")
    sure = [row for row in primary if row["p_holm"] < LEVEL]
    changed = ", ".join(f"{row['outcome']} {row['change']:+.3f}" for row in sure)
    result = [
        f"From {before} to {after} the scores of {len(sure)} of "
        f"{counted(len(primary), 'task')} changed by more than chance (Holm p < .05)"
        f"{': ' if sure else ''}{changed}."
    ]
    return Finding(
        result=result,
        control=list(limits_of_samples(comparison)),
        power=[
            f"{row['outcome']}: a change outside {interval_text(row['low'], row['high'], 3)} is "
            f"ruled out ({record.confidence:.0%}, over {row['over']})."
            for row in primary
            if math.isfinite(row["low"])
        ],
        details=[
            f"Standard errors and intervals: cluster-robust t over clusters ({record.cluster}); p "
            "exchanges the two sides of whole clusters; Holm over the first metric of every task.",
            *(
                f"{task}: the scores of an item are means over {first} files before and {second} "
                "after."
                for task, (first, second) in record.runs.items()
                if first > 1 or second > 1
            ),
        ],
    )


def limits_of_samples(comparison: SampleComparison) -> Iterator[str]:
    """What the two sides do not share, and where too few clusters bear an error."""
    record, table = comparison.record, comparison.table
    few = table[(table["over"] == "items") & (table["clusters"] < table["items"])]
    if len(few):
        yield (
            f"Fewer than five clusters ({record.cluster}) in {', '.join(few['outcome'].head(3))}: "
            "errors there are over documents, and hold for these clusters only."
        )
    if record.other_prompts:
        yield (
            f"{counted(record.other_prompts, 'score')} had another prompt on the other side "
            "(prompt_hash): the change may be the prompt's."
        )
    if record.left_out:
        yield f"Tasks of one side alone are left out: {', '.join(record.left_out)}."
    if unpaired := int(table["unpaired"].sum()):
        yield f"{counted(unpaired, 'score')} of documents of one side alone are left out."


def sentence(clauses: Sequence[str]) -> str:
    """Clauses as one sentence: verdicts, if any, and the cost."""
    if len(clauses) == 1:  # without a verdict, which begins with the model after
        return f"{clauses[0][:1].upper()}{clauses[0][1:]}."
    return f"{'; '.join(clauses)}."


def failures(comparison: ModelComparison, kinds: Collection[Literal["guard", "bias"]]) -> list[str]:
    """What failed of some kinds: a margin that was not kept, a bias that grew beyond chance.

    ``guard`` are losses that were measured to be larger than allowed; ``bias`` primary outcomes
    with a Holm p below .05 that are farther from neutral after, on either side of it. A kind of
    which nothing was measured has failed too.
    """
    rows = comparison.table.to_dict("records")
    failed = [f"guard {named(row['outcome'])}" for row in rows if row["guard"] == "fail"]
    if not any(row["guard"] for row in rows):
        failed = ["guard (none was measured)"]
    grown = [
        f"bias {named(row['outcome'])}"
        for row in rows
        if row["primary"]
        and row["p_holm"] < LEVEL
        and abs(row["after"] - row["neutral"]) > abs(row["before"] - row["neutral"])
    ]
    if not any(row["primary"] and row["p_holm"] == row["p_holm"] for row in rows):
        grown = ["bias (no primary outcome was measured)"]
    return [*(failed if "guard" in kinds else []), *(grown if "bias" in kinds else [])]


def after_name(record: ComparisonRecord) -> str:
    """The model after, and how often it was trained."""
    more = len(record.replicates)
    return f"{record.after.name} (mean of {more + 1} trainings)" if more else record.after.name


def _size(row: dict[Any, Any]) -> Literal["smaller", "not smaller", "turned"]:
    """Compare sizes of bias before and after; ``turned`` where it crosses neutral.

    The test of the change says nothing about sizes on opposite sides of neutral.
    """
    before, after = (row[name] - row["neutral"] for name in ("before", "after"))
    if before * after < 0:
        return "turned"
    return "smaller" if abs(after) < abs(before) else "not smaller"


def _outcomes(rows: list[dict[Any, Any]]) -> str:
    return ", ".join(
        f"{named(row['outcome'])} ({row['before']:.3f} to {row['after']:.3f}, Holm p "
        f"{p_text(row['p_holm'])})"
        for row in rows
    )


def cost(comparison: ModelComparison) -> tuple[str, list[str]]:
    """Cost of the change in a clause, and a line on each margin not kept or not measured."""
    guarded = comparison.table[comparison.table["guard"] != ""].to_dict("records")
    open_ones = [row for row in guarded if row["guard"] != "pass"]
    lost = [row for row in open_ones if row["guard"] == "fail"]
    lines = [_guard_line(row) for row in open_ones]
    measured = {row["outcome"] for row in guarded}
    missing = [n for n in ("log_perplexity", "lms_mean", "blimp") if n not in measured]
    if missing:
        lines.append(
            f"Guard not measured: {listed([named(n) for n in missing])}. Without it nothing says "
            "what this cost."
        )
    if not guarded:
        clause = "what it costs was not measured"
    elif sure := [named(row["outcome"]) for row in lost if row["p"] < LEVEL]:
        clause = f"quality is lost ({listed(sure)})"
    elif lost:
        names = listed([named(row["outcome"]) for row in lost])
        clause = f"more quality is lost than allowed in {names}, which chance could explain"
    elif open_ones:
        clause = "a loss of quality is not ruled out"
    else:
        clause = "no quality is lost beyond the non-inferiority margins (guards)"
    return clause, lines


def _guard_line(row: dict[Any, Any]) -> str:
    if row["worst"] != row["worst"]:
        bound = "It has no bound"
    elif row["outcome"] == "log_perplexity":
        now, most = (100 * math.expm1(row[name]) for name in ("change", "worst"))
        bound = f"Perplexity {now:+.2f} %, with 95 % confidence at most {most:+.2f} %"
    else:
        bound = (
            f"{row['change']:+.2f} points, with 95 % confidence no less than {row['worst']:+.2f}"
        )
    return (
        f"Guard {named(row['outcome'])}: {row['guard']}. {bound}; allowed is a loss of "
        f"{row['allowed']}."
    )


def _detail_lines(comparison: ModelComparison) -> Iterator[str]:
    table, record = comparison.table, comparison.record
    few = table[(table["over"] == "items") & (table["clusters"] < table["items"])]
    if len(few):
        yield (
            f"Fewer than five clusters in {'; '.join(map(named, few['outcome'].head(3)))}"
            f"{'; ...' if len(few) > 3 else ''}: intervals there are over items, and hold for "
            "these targets only."
        )
    unpaired = table[table["unpaired"] > 0]
    if len(unpaired):
        yield (
            f"Items that only one model read, and that are left out: {unpaired['unpaired'].sum()} "
            f"in {counted(len(unpaired), 'outcome')} (compare.csv)."
        )
    if record.replicates:
        yield (
            f"Intervals also hold the variation of the {len(record.replicates) + 1} trainings; p "
            "speaks of these. "
            "The standard deviation of a change over trainings is the column spread of compare.csv."
        )
    yield (
        f"Intervals: {record.confidence:.0%}, cluster-robust t over targets, occupations, writers, "
        "windows; p exchanges before and after of whole clusters; Holm over the primary outcomes."
    )


def _primary_line(row: dict[Any, Any]) -> str:
    if row["change"] != row["change"]:
        return f"{named(row['outcome'])}: undefined ({row['reason']})."
    size = _size(row)
    way = "on the other side of neutral" if size == "turned" else f"{size} in size"
    sure = "this is more than chance" if row["p_holm"] < LEVEL else "chance could explain it"
    per = f"{counted(row['items'], 'item')} of {counted(row['clusters'], row['cluster'])}"
    return (
        f"{named(row['outcome'])} ({row['unit']}, {per}): {row['before']:.3f} to "
        f"{row['after']:.3f}, {way}; {sure} (Holm p {p_text(row['p_holm'])})."
    )


def maps_finding(comparison: HeadsComparison) -> Finding:
    """Agreement of two rankings of heads, and the heads that moved beyond their noise."""
    record, heads = comparison.record, comparison.heads
    agreement = comparison.agreement.iloc[0]
    result = [
        f"The rankings of {record.model.name} and {record.after.name} for {record.category} agree "
        f"with Spearman {number_text(agreement['rho'])} over {agreement['over']} (p "
        f"{p_text(agreement['p'])})."
    ]
    if record.matched:
        known = heads["p"].notna().sum()
        result.append(
            f"{counted(int((heads['p_holm'] < LEVEL).sum()), 'head')} moved by more than the noise "
            f"of both maps (Holm p < .05); {(heads['p'] < LEVEL).sum()} of {known} with p < .05, "
            f"{LEVEL * known:.1f} by chance at most."
        )
    else:
        layers = comparison.layers["model"].value_counts()
        shapes = ", ".join(counted(layers[side], "layer") for side in ("before", "after"))
        result.append(
            f"The models have other shapes ({shapes}): heads are not matched, layers are compared "
            "at the same relative depths."
        )
    control = [
        f"By chance: {interval_text(agreement['chance_low'], agreement['chance_high'])} (heads or "
        "layers exchanged at random; layers next to each other resemble each other, so that chance "
        "over layers is wider than that)."
    ]
    power = []
    ceiling = most_agreement(comparison)
    if ceiling is not None:
        first, second = record.reliability
        power.append(
            f"Reliability of the maps between halves of the contexts: {first:.2f} and "
            f"{second:.2f}; two runs of the same truth would agree to about {ceiling:.2f}."
        )
    return Finding(
        result=result,
        control=[*control, *limits_of_maps(comparison)],
        power=power,
        details=[
            "Noise: both maps' standard deviations when labels are exchanged, added as if "
            "independent. p of the agreement is one-sided."
        ],
    )


def most_agreement(comparison: HeadsComparison) -> float | None:
    """The agreement of two runs of the same truth; None where a reliability is not known."""
    first, second = comparison.record.reliability
    if first is None or second is None:
        return None
    return float(max(0.0, first * second) ** 0.5)


def limits_of_maps(comparison: HeadsComparison) -> Iterator[str]:
    """What else than the models can make two rankings differ."""
    if not comparison.record.same_texts:
        yield "The runs read other tokens: a difference may be the texts' or tokenizers'."
    if comparison.record.same_weights:
        yield "Both runs are of the same weights: what differs is texts or settings."


def agreement_finding(comparison: BetaAgreement) -> Finding:
    """Agreement of two models' target effects, compared with what their noise allows."""
    record, table = comparison.record, comparison.agreement.set_index(["quantity", "scoring"])
    rows = {
        (quantity, scoring): table.loc[(quantity, scoring)].set_index("over").to_dict("index")
        for quantity, scoring in dict.fromkeys(table.index)
    }
    names = f"{record.model.name} and {record.after.name}"
    result = []
    for scoring in SCORINGS:
        beta = rows["beta", scoring]
        items, targets = beta["items"], beta["targets"]
        result.append(
            f"The target effects (beta, {_PER[scoring]}) of {names} for {record.category} "
            f"correlate {number_text(items['r'])} over {items['n']} items (p {p_text(items['p'])}; "
            f"{number_text(beta['items within targets']['r'])} within targets) and "
            f"{number_text(targets['r'])} over {targets['n']} targets (p {p_text(targets['p'])})."
        )
    odds, items = rows["log_odds", "sum"]["items"], rows["beta", "sum"]["items"]
    targets = rows["beta", "sum"]["targets"]
    reliable = [number_text(targets[f"reliability_{side}"]) for side in ("before", "after")]
    corrected = targets["corrected"]
    if not np.isfinite(corrected):
        allowed = "targets differ no more than that noise makes them differ: nothing is corrected"
    elif abs(corrected) > 1:
        allowed = (
            f"corrected for that noise, the targets' correlation is {number_text(corrected)}: "
            "estimates can pass 1"
        )
    else:
        allowed = f"without that noise the targets would correlate {number_text(corrected)}"
    return Finding(
        result=result,
        control=[
            f"The log-odds as published correlate {number_text(odds['r'])} over items: mostly "
            "wording, which both models read.",
            f"By chance, over items: {interval_text(items['chance_low'], items['chance_high'])}.",
        ],
        power=[
            f"Reliability of the targets' means, from the variance of items: {reliable[0]} and "
            f"{reliable[1]}; {allowed}."
        ],
    )


def bbq_finding(comparison: BBQChange) -> Finding:
    """Tell how far answers to BBQ's questions changed: the bias score first, and accuracy."""
    record, table = comparison.record, comparison.changes.set_index(["condition", "measure"])
    rows = table.to_dict("index")
    s_amb, able = rows.get(("ambiguous", "s_AMB")), rows.get(("disambiguated", "accuracy"))
    names = f"from {record.model.name} to {record.after.name}"
    result, control, power = [], [], []
    if s_amb is not None:
        result.append(f"s_AMB changes {names} by {_changed_by(s_amb)}.")
        power.append(
            f"With {counted(s_amb['templates'], 'template')} a change of "
            f"{s_amb['smallest']:.3f} is found four times out of five (t-test over templates)."
            if math.isfinite(s_amb["smallest"])
            else "Nothing varies: no smallest change can be given."
        )
    if able is not None:
        control.append(f"Accuracy on disambiguated items changes by {_changed_by(able)}.")
    if record.only_one:
        control.append(f"{counted(record.only_one, 'item')} that one run alone has answered.")
    return Finding(result=result or ["No ambiguous item is shared."], control=control, power=power)


def _changed_by(row: Row) -> str:
    interval = interval_text(row["low"], row["high"], 3)
    return f"{row['change']:+.3f} ({interval}; p {p_text(row['p'])}, {row['items']} items)"
