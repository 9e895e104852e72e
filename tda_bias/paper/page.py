"""The head paper's tables and claims beside those of a run, and one page of both.

Source: Varadarajan & Songdechakraiwut.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jaxtyping import Float
from scipy import stats

from tda_bias.heads.result import HeadBias
from tda_bias.show.figures import Entry, drawings, names_in_files, write_print
from tda_bias.show.tables import markdown, paper_table, write_table
from tda_bias.show.text import counted, number_text
from tda_bias.stats.correlation import spearman_over_items
from tda_bias.stats.resampling import two_sided_share
from tda_bias.stats.seeds import generator
from tda_bias.store.files import write_text
from tda_bias.store.run import Run
from tda_bias.types import STARTER_CAUTION, HeadId, RankBy

_TOP = 10
_BY: RankBy = "metric"
_RESAMPLES = 9999


def write_page(
    run: Run, folder: Path, entries: Sequence[Entry], *, command: str, started: float
) -> dict[str, Path]:
    """Write the page of a run of ``tdabias heads`` as ``README.md``, with its figures and tables.

    ``command`` is what was typed, when ``time.perf_counter`` said ``started``.

    Returns:
        Paths of the figures by their name in the catalogue, relative to the page.
    """
    result = run.load(HeadBias.load)
    pictures: dict[str, Path] = {}
    for drawn in drawings([run], entries):
        files = write_print(folder / "figures", drawn, ("png", "svg", "pdf"))
        pictures[drawn.name] = files[0].relative_to(folder)
    for category, number in TABLE_NUMBER.items():
        if category in result.categories:
            name, table = f"table{number}_{category}", beside_published(result, category)
            caption = f"{category}: metric T over heads, paper and {run.model}"
            write_table(folder / "tables", name, paper_table(table, caption))
    seconds = time.perf_counter() - started
    text = page(result, pictures=pictures, command=command, seconds=seconds, run_id=run.id)
    write_text(folder / "README.md", text)
    return pictures


def page(
    result: HeadBias, *, pictures: Mapping[str, Path], command: str, seconds: float, run_id: str
) -> str:
    """Markdown text; paths of pictures, by their name in the catalogue, are relative to it."""
    model = result.record.model.name
    maps = (f"fig{number}_{category}" for number, category in enumerate(TABLE_NUMBER, start=4))
    parts = [
        f"# The head-topology paper on {model}",
        _about(result, command, seconds, run_id),
        f"**{survivors_line(result)}** The published p-value and metric are printed below because "
        "the paper used them; the p-value is not calibrated (see the end).",
        "## What the statistic is made of",
        _shown(pictures, ["fig2_pattern", "fig1_step_function", "fig3_swap"]),
        "## Tables 1 to 4",
        _tables(result),
        "## Figures 4 to 9",
        _shown(pictures, [*maps, "fig8_means", "fig9_spreads"]),
        "## The paper's claims",
        *(f"- *{paper}* Here: {here}" for paper, here in claims(result).items()),
        "## Chance, reliability and length",
        _controls(result),
        _shown(pictures, ["calibration", "length", "reliability"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(result: HeadBias, command: str, seconds: float, run_id: str) -> str:
    record, texts = result.record, result.record.texts
    n = [result.controls(category) for category in result.categories]
    source = published()["heads"]["source"]
    reasons = unlike_the_paper(result)
    same = (
        f"Unlike the paper: {'; '.join(reasons)}. The numbers are not expected to match, the "
        "paper's claims in words could."
        if reasons
        else "This is the paper's model; the texts are the same if the data set is."
    )
    if record.data is not None and record.data.source == "starter":
        same += f" {STARTER_CAUTION}"
    left_out = len(texts.triples_left_out)
    shown = ("torch", "transformers", "transformer-lens")
    versions = [f"{name} {record.packages[name]}" for name in shown if name in record.packages]
    minutes, rest = divmod(round(seconds), 60)
    time = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return (
        f"Source: {source}. {same}\n\n```\n{command}\n```\n\n"
        f"{counted(sum(c['triples'] for c in n), 'triple')} in "
        f"{counted(sum(c['groups'] for c in n), 'group')}"
        + (f" ({left_out} left out)" if left_out else "")
        + f", {counted(n[0]['heads'], 'head')}. Wall time {time}. Run "
        f"`{run_id}`, weights `{record.model.weights[:12]}`, {', '.join(versions)}."
    )


def survivors_line(result: HeadBias) -> str:
    """Heads that survive correction, by category."""
    named = []
    for category in result.categories:
        kept = result.survivors(category=category, by="relative").to_dict("records")
        heads = ", ".join(str(HeadId(row["layer"], row["head"])) for row in kept) or "none"
        named.append(f"{category}: {heads}")
    return (
        "Heads that survive correction (flips within contexts, family-wise p or q below .05, "
        f"map of |relative|): {'; '.join(named)}."
    )


def _tables(result: HeadBias) -> str:
    parts = []
    for category in result.categories:
        if category in TABLE_NUMBER:
            parts += [
                f"**Table {TABLE_NUMBER[category]}, {category}**: metric T over heads, the paper's "
                "groups.",
                markdown(paper_table(beside_published(result, category))),
            ]
        else:
            parts.append(f"**{category}**: metric T over heads; the paper has no such category.")
        parts += [
            "The two groups with the largest and the two with the smallest mean here; `unstable` "
            "counts heads whose unrelated texts hardly vary, where extreme values come from; the "
            "last column leaves them out:",
            markdown(paper_table(extreme_groups(result, category))),
        ]
    return "\n\n".join(parts)


def _controls(result: HeadBias) -> str:
    lines = [
        "Tests per group, head and dimension with p < .05, without correction:",
        markdown(paper_table(counts_of_tests(result))),
        "The published p-value gives about half of all heads p < .05 where there is no effect at "
        "all (first figure below); flips within contexts give 5 %.",
    ]
    for category in result.categories:
        c = result.controls(category)
        lines.append(
            f"- {category}: map reliability {number_text(c['reliability'])}; correlation with the "
            f"map that flipped labels give on average {number_text(c['null_map_correlation'])}; "
            f"Spearman of S with the length statistic {number_text(c['length_correlation_0'])} "
            f"(dimension 0) and {number_text(c['length_correlation_1'])} (dimension 1)."
        )
    lines.append(
        "None of this says that a head causes what a model says: `tdabias ablate` measures that. "
        "StereoSet's pairs are contested, and a geometry of attention is not a harm."
    )
    return "\n\n".join(lines)


def _shown(pictures: Mapping[str, Path], names: Sequence[str]) -> str:
    return "\n\n".join(
        f"![{name}]({pictures[name].as_posix()})" for name in names if name in pictures
    )


# -- tables ----------------------------------------------------------------------------------------

TABLE_NUMBER = {"gender": 1, "profession": 2, "race": 3, "religion": 4}


@cache
def published() -> dict[str, Any]:
    """The numbers that the paper prints, with their source."""
    text = files("tda_bias.data").joinpath("published.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def extreme_groups(result: HeadBias, category: str) -> pd.DataFrame:
    """The two groups with the largest and the two with the smallest mean over heads.

    ``unstable`` counts the heads whose unrelated texts hardly vary in that group, which is where
    extreme values come from; the last column is the mean over the other heads.

    Source: Varadarajan & Songdechakraiwut, tables 1-4.
    """
    groups = result.groups[result.groups["category"] == category]
    ordered = groups.sort_values("metric_mean", ascending=False, kind="stable")
    chosen = ordered if len(ordered) <= 4 else pd.concat([ordered.head(2), ordered.tail(2)])
    combined = result.combined[result.combined["category"] == category]
    unstable = combined.groupby("group")["unstable"].sum()
    stable = stable_means(result, category)
    return pd.DataFrame(
        {
            "group": chosen["group"],
            "mean": chosen["metric_mean"],
            "minimum": chosen["metric_min"],
            "maximum": chosen["metric_max"],
            "triples": chosen["n"],
            "unstable": [int(unstable[group]) for group in chosen["group"]],
            "mean of the others": [float(stable.get(g, np.nan)) for g in chosen["group"]],
        }
    ).reset_index(drop=True)


def stable_means(result: HeadBias, category: str) -> pd.Series[float]:
    """Each group's mean of metric T over the heads whose unrelated texts vary."""
    stable = result.combined[
        (result.combined["category"] == category) & ~result.combined["unstable"]
    ]
    return stable.groupby("group")["combined_metric"].mean()


def beside_published(result: HeadBias, category: str) -> pd.DataFrame:
    """The paper's groups with its numbers and ours for the same groups, and where ours stand."""
    groups = result.groups[result.groups["category"] == category]
    groups = groups.assign(rank=groups["metric_mean"].rank(ascending=False).astype(int)).set_index(
        "group"
    )
    heads, rows = published()["heads"], []
    for values in heads["tables"][category]:
        row = dict(zip(heads["columns"], values, strict=True))
        name = next((g for g in groups.index if str(g).casefold() == row["group"].casefold()), None)
        ours = groups.loc[name] if name is not None else None
        rows.append(
            {
                "group": row["group"],
                **{f"{c}, paper": row[c] for c in ("mean", "minimum", "maximum")},
                **{
                    f"{c}, here": float("nan") if ours is None else float(ours[f"metric_{short}"])
                    for c, short in (("mean", "mean"), ("minimum", "min"), ("maximum", "max"))
                },
                "rank here": "" if ours is None else f"{int(ours['rank'])} of {len(groups)}",
            }
        )
    return pd.DataFrame(rows)


def unlike_the_paper(result: HeadBias) -> list[str]:
    """Settings in which a run differs from the paper, so that values cannot be compared.

    Returns:
        One reason each; empty where model, texts and statistic are the paper's.
    """
    record, config, reasons = result.record, result.record.config, []
    if record.model.name not in published()["heads"]["names"]:
        reasons.append(f"another model ({record.model.name})")
    source = record.data.source if record.data is not None else "unknown"
    if source != "stereoset":
        reasons.append(f"texts from {Path(source).name} instead of StereoSet's on the hub")
    limit = record.settings.get("limit")
    if limit is not None:
        reasons.append(f"at most {counted(limit, 'triple')} of each group")
    for name, theirs in (("edges", "attention"), ("adjust", "none")):
        if getattr(config, name) != theirs:
            reasons.append(f"{name} {getattr(config, name)}, the paper's is {theirs}")
    return reasons


def write_tables(runs: Sequence[Run], out: Path) -> int:
    """Write tables 1-4 of the head paper for every run of heads, alone and beside the paper's.

    Returns:
        Their number.
    """
    written = 0
    heads = [run for run in runs if run.command == "heads"]
    for category, number in TABLE_NUMBER.items():
        having = [run for run in heads if category in run.load(HeadBias.load).categories]
        also = names_in_files(having) if len(having) > 1 else {}
        for run in having:
            result, apart = run.load(HeadBias.load), also.get(run.folder, "")
            name = f"table{number}_{category}"
            caption = f"{category}: metric T over heads of {run.model}, run {run.id}"
            alone = paper_table(extreme_groups(result, category), caption)
            write_table(out, f"{name}{apart}", alone)
            caption += ", beside the paper's GPT-2"
            if reasons := unlike_the_paper(result):
                caption += f". Unlike the paper: {'; '.join(reasons)}"
            beside = paper_table(beside_published(result, category), caption)
            write_table(out, f"{name}_beside_paper{apart}", beside)
            written += 2
    return written


# -- claims ----------------------------------------------------------------------------------------


def claims(result: HeadBias) -> dict[str, str]:
    """The paper's claims about its figures (section 4), each with what a run's metric T says."""
    near = "The hot spots of gender and profession lie near each other."
    both = {"gender", "profession"} <= set(result.categories)
    return {
        "The mean over groups does not differ from 0 in any category (figure 8).": means(result),
        "The SD over groups is ten times larger (figure 9).": spreads(result),
        "Hot spots are larger in gender and race.": largest(result),
        **({near: overlaps(result)} if both else {}),
        "The first and last heads of a layer look larger than those between. (The order of heads "
        "has no meaning in the architecture.)": edge_heads(result),
    }


def means(result: HeadBias) -> str:
    """A t-test of each category's group means against 0."""
    parts = []
    for category in result.categories:
        values = result.groups.loc[result.groups["category"] == category, f"{_BY}_mean"]
        test = stats.ttest_1samp(values, 0.0) if len(values) > 1 else None
        p = "undefined" if test is None else f"{test.pvalue:.2g}"
        stable = stable_means(result, category)
        parts.append(
            f"{category} {values.mean():+.3f} (t-test over {counted(len(values), 'group')}, p {p}; "
            f"{stable.mean():+.3f} without unstable heads)"
        )
    return "; ".join(parts) + "."


def spreads(result: HeadBias) -> str:
    """SD over |mean| of each category."""
    table = result.category_summary()
    parts = [
        f"{row['category']} {row['sd']:.3f}, {row['sd'] / abs(row['mean']):.1f} times the mean"
        for row in table.to_dict("records")
    ]
    return "; ".join(parts) + "."


def largest(result: HeadBias) -> str:
    """The largest value of each map, and how many groups it averages."""
    parts = []
    for category in result.categories:
        row = result.top(1, category=category, by=_BY).iloc[0]
        head = HeadId(int(row["layer"]), int(row["head"]))
        n = result.controls(category)["groups"]
        parts.append(f"{category} {row['z']:.2f} ({head}, mean of {counted(n, 'group')})")
    few = (
        " A mean of fewer groups varies more: the largest of religion, with its three groups, says "
        "little."
    )
    return "; ".join(parts) + "." + (few if "religion" in result.categories else "")


def overlaps(result: HeadBias) -> str:
    """Heads that the top ten of two maps share, and the maps' correlation."""
    tops = {
        c: {(r.layer, r.head) for r in result.top(_TOP, category=c, by=_BY).itertuples()}
        for c in result.categories
    }
    n_heads = result.category_map(result.categories[0], by=_BY).size
    parts = []
    for first, second in combinations(result.categories, 2):
        maps = [result.category_map(c, by=_BY).ravel() for c in (first, second)]
        rho = spearman_over_items(*maps)
        parts.append(f"{first} and {second} {len(tops[first] & tops[second])} (Spearman {rho:.2f})")
    expected = _TOP**2 / n_heads
    return (
        f"Shared among the {_TOP} highest heads ({expected:.1f} by chance): {'; '.join(parts)}. "
        "All maps share what few dominating texts give a head under any labels."
    )


def edge_heads(result: HeadBias) -> str:
    """First and last heads against the others of their layers, with heads permuted in layers."""
    parts, rng = [], generator(0)
    for category in result.categories:
        values = result.category_map(category, by=_BY)
        if values.shape[1] < 3:
            return "undefined: fewer than three heads in a layer."
        difference, p = edge_difference(values, rng)
        parts.append(f"{category} {difference:+.3f} (p {p:.2g})")
    return f"Difference of mean z, heads permuted within layers: {'; '.join(parts)}."


def edge_difference(
    values: Float[np.ndarray, "layer head"], rng: np.random.Generator
) -> tuple[float, float]:
    """Mean of the outer two heads minus that of the others, and a two-sided permutation p."""
    values = np.where(np.isfinite(values), values, np.nanmean(values))
    edge = _edge(values)
    order = np.argsort(rng.random((_RESAMPLES, *values.shape)), axis=2)
    null = _edge(np.take_along_axis(np.broadcast_to(values, order.shape), order, axis=2))
    return float(edge), two_sided_share(null, float(edge))


def _edge(values: np.ndarray) -> np.ndarray:
    outer = values[..., [0, -1]].mean((-2, -1))
    return np.asarray(outer - values[..., 1:-1].mean((-2, -1)))


def counts_of_tests(result: HeadBias) -> pd.DataFrame:
    """Per category, tests with p < .05 under each p-value, against 5 % of the tests."""
    rows = []
    for category in result.categories:
        tests = result.table[result.table["category"] == category]
        row = {"category": category, "tests": len(tests), "expected": round(0.05 * len(tests))}
        for name in ("paper", "paired", "label"):
            row[f"{name}, p < .05"] = int((tests[f"p_{name}"] < 0.05).sum())
        row["unstable rows"] = int(tests["unstable"].sum())
        row["survivors (relative map)"] = len(result.survivors(category=category, by="relative"))
        rows.append(row)
    return pd.DataFrame(rows)
