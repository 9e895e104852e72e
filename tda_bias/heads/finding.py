"""Finding of a run of heads in sentences: survivors, controls, power, remarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypedDict, assert_never

import numpy as np
import pandas as pd

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.ranking_controls import ControlsRecord
from tda_bias.heads.result import HeadBias
from tda_bias.heads.smoothing import SmoothingRecord
from tda_bias.heads.summaries import kind_of
from tda_bias.show.text import Finding, counted, data_remarks, number_text, p_text
from tda_bias.stats.correlation import spearman_over_items
from tda_bias.stats.resampling import LEVEL
from tda_bias.types import TESTS, Edges, HeadId


def heads_finding(
    result: HeadBias,
    category: str,
    *,
    untrained: HeadBias | None = None,
    placebos: Mapping[str, PlaceboContrast] | None = None,
) -> Finding:
    """The finding of a category: heads after correction, controls, power.

    ``untrained`` is the same run with random weights, ``placebos`` are the tests with placebo
    twins, by placebo; see ``placebo_contrast``.
    """
    c = result.controls_record(category)
    return Finding(
        result=_result_lines(result, c),
        control=[
            *_control_lines(result, c),
            *_placebo_lines(placebos or {}),
            *_untrained_lines(result, c, untrained),
        ],
        power=[power_line(c)],
        details=[*_detail_lines(c), *_smoothing_lines(result.record.smoothing)],
    )


def by_chance(c: ControlsRecord) -> str:
    """The expected number of heads with p < .05 without any effect, in words."""
    return "none is possible" if c.is_impossible else f"{c.hot_spots_expected:.1f} by chance"


def power_line(c: ControlsRecord) -> str:
    """The smallest effect that the location test would have found, as a sentence."""
    if c.is_impossible:
        return "With so few texts no head can be found."
    if c.twins is None:
        return "Not known without twins."
    if c.negative_share is not None:
        return "Not known for distances that are not Euclidean."
    if c.twins.smallest_share < 1:
        return (
            f"A head whose contexts share {c.twins.smallest_share:.0%} of the difference that is "
            "left with twins survives the location test four times out of five; for the "
            "dispersion test no such number is known."
        )
    return "The location test has too few contexts to find a head reliably."


# What is said of the first heads of a ranking by which none survives.
NOISY = "By its ranking no head of the run survives correction: the first ones may be noise."
# The values of a head that are combined over births and deaths, by the ends of their columns.
_VALUES = {
    "relative": "the dispersion", "statistic": "S", "metric": "the metric T",
    "location": "the location statistic",
}  # fmt: skip


def value_name(combined: str) -> str:
    """What a column of ``combined.parquet`` holds.

    Examples:
        >>> value_name("combined_relative_twin")
        'the dispersion, triple minus twin'
    """
    name = combined.removeprefix("combined_")
    of_twins = name.endswith("_twin")
    return f"{_VALUES[name.removesuffix('_twin')]}{', triple minus twin' * of_twins}"


def ranking_name(result: HeadBias, category: str) -> str:
    """Name of the ranking, whether twins are subtracted, and what an edge weighs."""
    of_twins = result.controls_record(category).hot_spot_map.endswith("_twin")
    return (
        f"{TESTS.get(result.rank_by, result.rank_by)}{', triple minus twin' * of_twins}"
        f"{weights_said(result.record.config)}"
    )


def weights_said(config: HeadBiasConfig) -> str:
    """What an edge weighs and what is compared, after the name of a ranking, but for the usual."""
    return _edges_said(config.edges) + kind_of(config.summary).said


def _edges_said(edges: Edges) -> str:
    match edges:
        case "attention":
            return ""
        case "output":
            return ", output edges"
        case _:
            assert_never(edges)


def _result_lines(result: HeadBias, c: ControlsRecord) -> list[str]:
    """The sentence of the category, the heads that are found, and the smallest p."""
    ranked, found = result.top(None, category=c.category), result.found(c.category)
    read = f"{counted(c.heads, 'head')} of {result.record.model.name}, "
    lines = [f"{result.said(c.category).removesuffix('.')} ({read}{counted(c.triples, 'triple')})."]
    if len(found):
        lines.append(
            f"After correction: {_named(found)}. This does not say that they cause what the model "
            "says: ablation tests that."
        )
    name = ranking_name(result, c.category)
    lines.append(
        f"Smallest corrected p: {p_text(ranked['q'].min())} (FDR), "
        f"{p_text(ranked['p_max'].min())} (family-wise). Uncorrected: "
        f"{counted(c.hot_spots_p05, 'head')} with p < .05; {by_chance(c)}. "
        f"({name[0].upper()}{name[1:]})"
    )
    lines += _further_lines(result, c)
    return lines


def _further_lines(result: HeadBias, c: ControlsRecord) -> Iterator[str]:
    """What survives by location beside the ranking, and within single groups."""
    by_second, found = result.by_second_test(c.category), result.found(c.category)
    if by_second is not None and len(by_second) and not by_second.equals(found):
        yield (
            "Location test, triple minus twin: these survive correction"
            f"{', not for two tests' if found.empty else ''}: {_named(by_second)}."
        )
    if c.groups_p_max05 + c.group_tests_q05:
        yield (
            f"Within single groups (dispersion test without twins): {c.groups_p_max05} of "
            f"{c.groups} groups have a head with family-wise p < .05 ({LEVEL * c.groups:.1f} "
            "expected by chance); "
            f"{counted(c.group_tests_q05, 'test')} with q < .05."
        )


def _control_lines(result: HeadBias, c: ControlsRecord) -> list[str]:
    if c.twins is not None:
        left, plain, beyond = c.twins.difference_left, c.location, c.twins.location
        survive = [
            counted(result.n_surviving(name, c.category), "survives", "survive")
            for name in ("location", "location_twin")
        ]
        lines = [
            f"{1 - left:.0%} of the squared difference in attention between stereotype and "
            "anti-stereotype texts is shared with the same texts about another target "
            "(counterfactual twins): wording.",
            f"Location test: {counted(plain.p05, 'head')} with p < .05 without twins "
            f"({survive[0]} correction), {beyond.p05} with twins ({survive[1]}; "
            f"{beyond.expected:.1f} expected by chance).",
        ]
    else:
        lines = [f"No twins: wording and length are in every difference of {c.category}."]
    if c.negative_share is not None:
        lines.append(
            f"Only the {counted(c.heads, 'head')} that were named were compared, and corrected "
            "for: if a run on these texts chose them, these p describe and test nothing. "
            f"{c.negative_share:.0%} of the eigenvalues of the distances, by size, are of no "
            "vectors; nothing was clipped."
        )
    lines.append(
        f"Reliability over contexts (two random halves of every group's): "
        f"{number_text(c.reliability)}. Over targets: `tdabias confirm`."
    )
    return lines


def _placebo_lines(placebos: Mapping[str, PlaceboContrast]) -> list[str]:
    """Tell whether heads follow the role or the wording as much as they follow the gender."""
    return [
        f"Placebo twins ({name}; {counted(c['triples'], 'triple')} of "
        f"{counted(c['groups'], 'group')}): of {c['tests']} location tests of a group, head and "
        f"dimension {c['placebo_p05']} have p < .05 with them, {c['twin_p05']} with twins, "
        f"{c['both_p05']} with both ({LEVEL * c['tests']:.0f} expected by chance for each of the "
        f"two); {counted(c['placebo_survivors'], 'head survives', 'heads survive')} with them. "
        f"Spearman of the two maps: {number_text(c['map_correlation'])}. They leave "
        f"{c['difference_left']:.0%} of the squared difference."
        for name, c in placebos.items()
    ]


def _untrained_lines(result: HeadBias, c: ControlsRecord, untrained: HeadBias | None) -> list[str]:
    """The same network with random weights on the same texts; nothing if none was run."""
    of_random = untrained_controls(result, c.category, untrained)
    if of_random is None or untrained is None:
        return []
    maps = [run.category_map(c.category, by=result.rank_by).ravel() for run in (result, untrained)]
    survive = untrained.n_surviving(of_random.hot_spot_map, c.category)
    return [
        f"Untrained control: {of_random.hot_spots_p05} of {of_random.heads} heads with p < .05, "
        f"{counted(survive, 'survives', 'survive')} correction; Spearman of its map with this "
        f"one's: {number_text(spearman_over_items(*maps))}."
    ]


def untrained_controls(
    result: HeadBias, category: str, untrained: HeadBias | None
) -> ControlsRecord | None:
    """Controls of the same network with random weights; None if it did not read the same texts."""
    if untrained is None or category not in untrained.categories:
        return None
    of_texts = [(run.record.texts.hash, run.record.twins) for run in (result, untrained)]
    return untrained.controls_record(category) if of_texts[0] == of_texts[1] else None


def _detail_lines(c: ControlsRecord) -> list[str]:
    lines = []
    if c.groups_too_small:
        lines.append(
            f"{c.groups_too_small} of {c.groups} groups have fewer than "
            f"{c.smallest_testable_group} triples: no test within them can reach p < .05."
        )
    if c.group_tests:
        lines.append(
            f"Of {c.group_tests} tests per group, head and dimension {c.group_tests_p05} have "
            f"p < .05 ({c.group_tests_expected:.0f} expected by chance)."
        )
    lines += [
        "Spearman of the ranking with the mean map under exchanged labels: "
        f"{number_text(c.null_map_correlation)} (this part of a ranking needs no effect).",
        f"Spearman of S with the text-length statistic over {counted(c.groups, 'group')}: "
        f"{number_text(c.length_correlation_0)} (dimension 0), "
        f"{number_text(c.length_correlation_1)} (dimension 1).",
    ]
    if c.twins is not None:
        lines.append(
            "Spearman of the location maps with and without twins: "
            f"{number_text(c.twins.map_correlation)}."
        )
    return lines


def _smoothing_lines(measured: SmoothingRecord | None) -> list[str]:
    if measured is None:
        return []
    return [
        f"Smoothing births and deaths to one number of steps, measured on {measured.group}: S of a "
        f"head changes by {measured.change:.3f} in the median, beside a median size of "
        f"{measured.size:.3f}, and by {measured.largest:.2f} at most in a stable one; Spearman of "
        f"its sizes {number_text(measured.rank_correlation)}. `--summary graph-exact` does without."
    ]


def _named(survivors: pd.DataFrame) -> str:
    """The first five of some heads."""
    named = [
        f"{HeadId(s['layer'], s['head'])} (z {s['z']:.2f}, family-wise p {p_text(s['p_max'])}, "
        f"q {p_text(s['q'])})"
        for s in survivors.head(5).to_dict("records")
    ]
    more = f" and {len(survivors) - 5} more" if len(survivors) > 5 else ""
    return f"{', '.join(named)}{more}"


def run_remarks(result: HeadBias, *, starter: bool = True) -> list[str]:
    """Warnings that belong to the whole run; ``starter`` as of ``data_remarks``."""
    lines = []
    if result.record.config.pvalue == "paper":
        lines.append(
            "The published p-value is not calibrated: of independent texts about half of all heads "
            "get p < .05 without any effect. Read it as a reproduction only."
        )
    if result.record.settings.get("pairs"):
        lines.append(
            "Pairs have no unrelated texts, so S, whose denominator is their spread, is undefined "
            "(NaN, with this reason in heads.csv); ranks, tests and location need none."
        )
    lines += data_remarks(result.record, starter=starter)
    checks = [group.row_sums for group in result.record.groups]
    failed = sorted({layer for check in checks for layer in check.failed})
    if failed:
        worst = max(check.worst for check in checks)
        lines.append(
            f"Attention rows of layers {', '.join(map(str, failed))} do not sum to 1 (off by up to "
            f"{worst:.2g}); run.json counts them."
        )
    left_out = result.record.texts.triples_left_out
    if left_out:
        triples = counted(len(left_out), "triple was", "triples were")
        lines.append(f"{triples} left out; run.json says which and why.")
    return lines


# -- placebo twins ---------------------------------------------------------------------------------


# The location test of a triple minus its twins, in a group and dimension.
_VALUE, _P = "location_twin", "p_location_twin"


class PlaceboContrast(TypedDict):
    """The location test with twins and with placebo twins, in the groups that have both.

    ``tests`` are those of a group, head and dimension that both runs have, ``..._p05`` those with
    p < .05; ``map_correlation`` is Spearman's over heads of the means over groups and dimensions.
    Placebo twins leave ``difference_left`` of the squared difference: what another wording or role
    changes.
    """

    groups: int
    triples: int
    tests: int
    twin_p05: int
    placebo_p05: int
    both_p05: int
    map_correlation: float
    placebo_survivors: int
    difference_left: float


def placebo_contrast(run: HeadBias, placebo: HeadBias, category: str) -> PlaceboContrast | None:
    """Compare a run with twins with a run of placebo twins on some of its triples.

    None if the placebo run is of another model, or one of them has no twins of the category.
    """
    models = [each.record.model.weights for each in (run, placebo)]
    if models[0] != models[1] or category not in placebo.categories:
        return None
    own_twins, of_placebo = (each.controls_record(category).twins for each in (run, placebo))
    if own_twins is None or of_placebo is None:
        return None
    where = ["group", "layer", "head", "dim"]
    columns = [*where, _VALUE, _P]
    own, other = (
        each.table.loc[each.table["category"] == category, columns] for each in (run, placebo)
    )
    tests = pd.merge(own, other, on=where, suffixes=("", "_placebo")).dropna()
    low = tests[_P].to_numpy() < LEVEL, tests[f"{_P}_placebo"].to_numpy() < LEVEL
    heads = tests.groupby(["layer", "head"])[[_VALUE, f"{_VALUE}_placebo"]].mean().to_numpy()
    return {
        "groups": tests["group"].nunique(),
        "triples": of_placebo.contexts,
        "tests": len(tests),
        "twin_p05": int(np.count_nonzero(low[0])),
        "placebo_p05": int(np.count_nonzero(low[1])),
        "both_p05": int(np.count_nonzero(low[0] & low[1])),
        "map_correlation": spearman_over_items(*heads.T),
        "placebo_survivors": placebo.n_surviving("location_twin", category),
        "difference_left": of_placebo.difference_left,
    }
