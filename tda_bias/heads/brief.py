"""A run of heads at a glance: one sentence, and the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from tda_bias.heads.finding import PlaceboContrast, by_chance, run_remarks, untrained_controls
from tda_bias.heads.ranking_controls import ControlsRecord
from tda_bias.heads.result import HeadBias
from tda_bias.show.brief import Brief, Line
from tda_bias.show.table import Column, TableSpec, head_name
from tda_bias.show.text import counted, number_text, p_text

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
    c, found = result.controls_record(category), result.found(category)
    shown: list[TableSpec | str] = []
    # What is about the whole run stands after its last category.
    last = category == result.categories[-1]
    remarks = run_remarks(result, starter=False) if last else []
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
    remarks += _untested(c)
    if c.negative_share is not None:
        remarks.append(
            "Only named heads were compared: if a run on these texts chose them, nothing is tested."
        )
    return Brief(
        about=[result.title(category)],
        said=result.said(category),
        lines=[
            Line("p < .05", str(c.hot_spots_p05), f"{_heads(c.hot_spots_p05)} ({by_chance(c)})"),
            *_corrected(result, category),
            *_controls(c),
            *_placebos(placebos or {}),
            *_untrained(result, category, untrained),
        ],
        shown=shown,
        remarks=remarks,
    )


def _untested(c: ControlsRecord) -> Iterator[str]:
    if without := c.heads - c.tested:
        yield (
            f"{without} of {counted(c.heads, 'head')} have no value in this test and are not "
            "tested."
        )


def _corrected(result: HeadBias, category: str) -> Iterator[Line]:
    """Numbers of heads that survive correction in the run's own test and in the location test."""
    ranked, survivors = result.top(None, category=category), result.survivors(category=category)
    yield _surviving("after correction", len(survivors), ranked)
    second = result.by_second_test(category)
    if second is not None:
        of_all = result.top(None, category=category, by="location")
        yield _surviving("location test", len(second), of_all)


def _surviving(label: str, n: int, tested: pd.DataFrame) -> Line:
    smallest = f"FDR {p_text(tested['q'].min())}, family-wise {p_text(tested['p_max'].min())}"
    return Line(label, str(n), f"{_heads(n)} (smallest p: {smallest})")


def _heads(n: int) -> str:
    return "head" if n == 1 else "heads"


def _controls(c: ControlsRecord) -> Iterator[Line]:
    """How much is wording, what would have been found, and how far halves agree."""
    if c.twins is None:
        yield Line("wording", "", "not taken out: there are no twins")
    elif (shared := 1 - c.twins.difference_left) < 0:
        rest = f"shared with the twins, which differ otherwise ({1 - shared:.0%} is left)"
        yield Line("wording", "none", rest)
    else:
        yield Line.of_share("wording", shared, "shared with the twins")
    yield _would_have_found(c)
    yield Line("reliability", number_text(c.reliability), "between halves of the contexts")


def _would_have_found(c: ControlsRecord) -> Line:
    label = "would have found"
    if c.is_impossible:
        return Line(label, "", "nothing: too few texts")
    if c.twins is None:
        return Line(label, "", "not known without twins")
    if c.negative_share is not None:
        return Line(label, "", "not known for distances that are not Euclidean")
    if c.twins.smallest_share < 1:
        return Line(
            label, f"{100 * c.twins.smallest_share:.0f}", "% of the rest in common (location test)"
        )
    return Line(label, "", "nothing reliably: too few contexts")


def _placebos(placebos: Mapping[str, PlaceboContrast]) -> Iterator[Line]:
    for name, c in placebos.items():
        rest = f"of {c['tests']} tests with p < .05 ({c['twin_p05']} with twins)"
        yield Line(f"placebo ({name})", str(c["placebo_p05"]), rest)


def _untrained(result: HeadBias, category: str, untrained: HeadBias | None) -> Iterator[Line]:
    of_random = untrained_controls(result, category, untrained)
    if of_random is not None and untrained is not None:
        survive = untrained.n_surviving(of_random.hot_spot_map, category)
        yield Line(
            "random weights",
            str(of_random.hot_spots_p05),
            f"{_heads(of_random.hot_spots_p05)} with p < .05, {survive} after correction",
        )
