"""A run of heads at a glance: one sentence, and the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from tda_bias.heads.finding import PlaceboContrast, controls_of, run_remarks, untrained_controls
from tda_bias.heads.result import HeadBias
from tda_bias.heads.tables import ControlsRecord
from tda_bias.show.brief import Brief, Line, about_run, without_starter
from tda_bias.show.table import Column, TableSpec, head_name
from tda_bias.show.text import counted, number_text, p_text
from tda_bias.types import RankBy

_LEVEL = 0.05
_COLUMNS = [
    Column("head", head_name, left=True),
    Column("z", "{z:.2f}"),
    Column("p", "{p:p}"),
    Column("p (family-wise)", "{p_max:p}"),
    Column("q (FDR)", "{q:p}"),
]


def heads_brief(
    result: HeadBias,
    category: str,
    *,
    top: int = 10,
    untrained: HeadBias | None = None,
    placebos: Mapping[str, PlaceboContrast] | None = None,
) -> Brief:
    """What was found of a category; see ``heads_finding``, whose arguments these are."""
    c, found = controls_of(result, category), found_heads(result, category)
    shown: list[TableSpec | str] = []
    # What is about the whole run stands after its last category.
    last = category == result.categories[-1]
    remarks = without_starter(run_remarks(result)) if last else []
    if found.empty:
        first = " ".join(
            head_name(row) for row in result.top(top, category=category).to_dict("records")
        )
        shown.append(f"Top of the ranking, not findings: {first}")
    else:
        shown.append(
            TableSpec(f"Heads that treat {category} differently", found.head(top), _COLUMNS)
        )
        remarks.insert(
            0, "This does not say that they cause what the model says: ablation tests that."
        )
    if c.negative_share is not None:
        remarks.append(
            "Only named heads were compared: if a run on these texts chose them, nothing is tested."
        )
    return Brief(
        about=_about(result, c),
        said=said(result, category),
        lines=[
            Line("p < .05", str(c.hot_spots_p05), f"heads ({c.hot_spots_expected:.1f} by chance)"),
            _corrected(result, category, len(found)),
            *_controls(c),
            *_placebos(placebos or {}),
            *_untrained(result, category, untrained),
        ],
        shown=shown,
        remarks=remarks,
    )


def said(result: HeadBias, category: str) -> str:
    """What was found of a category, in one sentence."""
    c = controls_of(result, category)
    if too_few(c):
        return f"Too few texts to find anything: no p below {c.smallest_p:.2g} is possible."
    number = len(result.survivors(category=category))
    by_location = 0 if number else len(found_heads(result, category))
    if not number + by_location:
        return f"No head is found to treat {category} differently."
    heads = counted(number + by_location, "head is", "heads are")
    which = " by the location test, and none by the ranking" if by_location else ""
    return f"{heads} found to treat {category} differently{which}."


def said_above(result: HeadBias, category: str, by: RankBy) -> str:
    """What stands above a ranking of heads: what was found, and whether these are findings."""
    text = f"{' · '.join(_about(result, controls_of(result, category)))}\n{said(result, category)}"
    if result.survivors(category=category, by=by).empty:
        text += "\nThe top of a ranking, not findings: none survives correction."
    return text


def _about(result: HeadBias, c: ControlsRecord) -> list[str]:
    read = f"{c.heads} heads, {counted(c.triples, 'triple')}"
    return about_run(result.record, c.category, read)


def too_few(c: ControlsRecord) -> bool:
    """Tell whether so few texts can be exchanged that no p of a head can be below .05."""
    return c.smallest_p is not None and c.smallest_p >= _LEVEL


def found_heads(result: HeadBias, category: str) -> pd.DataFrame:
    """Heads that survive by the ranking; where none does, those that do by location with twins."""
    survivors = result.survivors(category=category)
    with_twins = controls_of(result, category).twins is not None
    if len(survivors) or not with_twins or result.rank_by == "location":
        return survivors
    by_location = result.survivors(category=category, by="location")
    return by_location[by_location["p_max"] < _LEVEL]


def _corrected(result: HeadBias, category: str, found: int) -> Line:
    ranked = result.top(None, category=category)
    smallest = f"FDR {p_text(ranked['q'].min())}, family-wise {p_text(ranked['p_max'].min())}"
    return Line("after correction", str(found), f"heads (smallest p: {smallest})")


def _controls(c: ControlsRecord) -> Iterator[Line]:
    """How much is wording, what would have been found, and how far halves agree."""
    if c.twins is None:
        yield Line("wording", "", "not taken out: there are no twins")
        yield Line("would have found", "", "not known without twins")
    else:
        shared = 1 - c.twins.difference_left
        yield Line.of_share("wording", shared, "shared with the twins")
        share = c.twins.smallest_share
        if c.negative_share is not None:
            yield Line("would have found", "", "not known for distances that are of no vectors")
        elif share < 1:
            rest = "% of the rest in common (location test)"
            yield Line("would have found", f"{100 * share:.0f}", rest)
        else:
            yield Line("would have found", "", "nothing reliably: too few contexts")
    yield Line("reliability", number_text(c.reliability), "between halves of the contexts")


def _placebos(placebos: Mapping[str, PlaceboContrast]) -> Iterator[Line]:
    for name, c in placebos.items():
        survive = counted(c["placebo_survivors"], "head")
        yield Line(
            f"placebo ({name})",
            str(c["placebo_p05"]),
            f"of {c['tests']} tests, {c['twin_p05']} with twins; corrected {survive}",
        )


def _untrained(result: HeadBias, category: str, untrained: HeadBias | None) -> Iterator[Line]:
    of_random = untrained_controls(result, category, untrained)
    if of_random is not None:
        yield Line(
            "random weights",
            str(of_random.hot_spots_p05),
            f"heads with p < .05, {of_random.hot_spots_p_max05} after correction",
        )
