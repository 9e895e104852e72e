"""Cross-references at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tda_bias.crossref.crossref import CrossReference
from tda_bias.crossref.finding import largest_rho, surviving, surviving_heads
from tda_bias.crossref.head_crossref import RISKS, HeadCrossReference, largest, primary
from tda_bias.crossref.head_finding import carried, doubts
from tda_bias.crossref.item_crossref import ItemCrossReference, Way
from tda_bias.crossref.rank_tests import SUMMARIES
from tda_bias.heads.finding import NOISY
from tda_bias.show.brief import Brief, Line
from tda_bias.show.names import named
from tda_bias.show.table import head_name
from tda_bias.show.text import (
    about_run,
    counted,
    data_remarks,
    number_text,
    p_text,
)
from tda_bias.stats.correlation import power
from tda_bias.stats.resampling import LEVEL

_FOLLOWED: dict[Way, str] = {
    "twins": "the target effect",
    "raw": "the preference, or only its wording,",
}


def target_brief(result: CrossReference) -> Brief:
    """Whether what the heads do with a target goes with what the model says of it."""
    record, n = result.record, len(result.targets)
    of_heads = result.correlations[result.correlations["summary"].isin(SUMMARIES)]
    kept, tested = surviving(of_heads)
    by_size = of_heads["spearman"].abs().sort_values(ascending=False, kind="stable")
    strongest = of_heads.reindex(by_size.index).iloc[0]
    lines = [
        Line("after correction", str(kept), f"of {tested} correlations with q (FDR) < .05"),
        Line("smallest q", p_text(of_heads["q"].min())),
        Line(
            "largest rho",
            number_text(strongest["spearman"]),
            f"of {named(strongest['quantity'])} and {named(strongest['summary'])}",
        ),
        *_heads_of_quantities(result),
        Line("would have found", number_text(power(n)["power_80"]), "of rho, four times in five"),
    ]
    remarks = []
    if record.without_word:
        lacking = counted(len(record.without_word), "target has", "targets have")
        remarks.append(f"{lacking} no word there: {', '.join(record.without_word)}.")
    said = "No link is found between what the heads do with a target and what the model says of it."
    if kept:
        said = "What the heads do with a target goes with what the model says of it."
    return Brief(
        about=about_run(record, "over targets", counted(n, "target")),
        said=said,
        lines=lines,
        remarks=[*remarks, *data_remarks(record, starter=False)],
    )


def _heads_of_quantities(result: CrossReference) -> Iterator[Line]:
    """Heads whose size goes with a quantity, with how many do so when heads are shuffled."""
    for name, tests in list(result.heads.groupby("quantity", sort=False))[:2]:
        kept = tests[tests["p_max"] < LEVEL]
        shuffled = result.record.shuffled_heads.get(str(name), {}).get("heads_p05")
        found = ", ".join(map(head_name, kept.head(3).to_dict("records"))) or "none"
        rest = f"heads with p < .05, {number_text(shuffled, 0)} shuffled; corrected {found}"
        low = str(int((tests["p"] < LEVEL).sum()))
        yield Line(f"heads, {named(str(name))}", low, rest)


def item_brief(result: ItemCrossReference) -> Brief:
    """Whether heads follow the target effect of items, or only their wording."""
    summary, record = result.summary, result.record
    lines: list[Line] = []
    kept: dict[Way, dict[str, int]] = {}
    for category, rows in summary.groupby("category", sort=False):
        name, twinned = str(category), "twins" in set(rows["way"])
        way: Way = "twins" if twinned else "raw"
        number = surviving_heads(result, name, way)
        kept.setdefault(way, {})[name] = number
        rho = largest_rho(rows[rows["way"] == way])
        rest = f"heads after correction (largest rho {number_text(rho)})"
        lines.append(Line(f"{name}, with twins" if twinned else name, str(number), rest))
        if twinned:
            raw = surviving_heads(result, name, "raw")
            lines.append(Line("without twins", str(raw), "heads, which may follow wording"))
        needed = f"of rho among all heads ({counted(int(rows['n'].min()), 'item')})"
        lines.append(Line("would have found", number_text(rows["needed"].max()), needed))
    left = sum(record.left_out.values())
    items = counted(left, "item of the heads is", "items of the heads are")
    return Brief(
        about=about_run(record, "over items"),
        said=_followed(kept),
        lines=lines,
        remarks=[
            *_without_twins(kept),
            *([f"{items} not in the other run."] if left else []),
            *data_remarks(record, starter=False),
        ],
    )


def _followed(kept: Mapping[Way, Mapping[str, int]]) -> str:
    """What heads follow, from the number that does by the way to compare and the category."""
    parts = []
    for way, heads in kept.items():
        found = [name for name, number in heads.items() if number]
        said = f"{_FOLLOWED[way]} from item to item"
        where = f" in {' and '.join(found or heads)}" if found or len(kept) > 1 else ""
        begin = "heads follow" if found else "no head is found to follow"
        parts.append(f"{begin} {said}{where}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _without_twins(kept: Mapping[Way, Mapping[str, int]]) -> list[str]:
    """What is not told apart in the categories that are compared without twins."""
    if "raw" not in kept:
        return []
    which = "Without twins in both runs"
    if "twins" in kept:
        which = f"With too few twins in both runs, as of {' and '.join(kept['raw'])}"
    return [f"{which}, wording and target are not told apart."]


def head_brief(result: HeadCrossReference) -> Brief:
    """Whether the heads that topology ranks first carry the risks of words."""
    record, table = result.record, result.correlations
    rows, falling = primary(result), carried(result)
    changed = rows[(rows["q"] < LEVEL) & (rows["spearman"] > rows["by_layers"])]
    if falling:
        said = f"The heads that topology ranks first carry {', '.join(falling)}."
    elif len(changed):
        risks = ", ".join(changed["risk"])
        said = f"The heads that topology ranks first change {risks}, but do not carry it."
    else:
        said = "The heads that topology ranks first are not found to carry R, R_p or R_v."
    every = result.agreement[result.agreement["chosen"] == "all"].set_index("risk")
    (first,) = largest(result.heads).head(1).to_dict("records")
    numbers = [
        Line(
            f"rank, effect on {row['risk']}",
            number_text(row["spearman"]),
            f"(Spearman; p within layers {p_text(row['p_within_layers'])})",
        )
        for row in rows.to_dict("records")
    ]
    return Brief(
        about=about_run(record, record.category, counted(len(result.heads), "head")),
        said=said,
        lines=[
            *numbers,
            Line(
                "after correction",
                str(int((table["q"] < LEVEL).sum())),
                f"of {len(table)} correlations",
            ),
            Line(
                "largest effect",
                head_name(first),
                f"(R {first['exact_R']:+.3f})" if "R" in RISKS else "",
            ),
            Line(
                "would have found",
                number_text(table["power_80"].max()),
                "beyond layers, four in five",
            ),
        ],
        remarks=[
            *doubts(every),
            *([] if record.survivors else [NOISY]),
            *data_remarks(record, starter=False),
        ],
    )
