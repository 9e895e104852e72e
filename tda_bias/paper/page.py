"""The head paper's tables and claims beside those of a run, and one page of both.

Source: Varadarajan & Songdechakraiwut.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tda_bias.heads.result import HeadBias
from tda_bias.heads.shown import ranked_table
from tda_bias.paper.claims import claims, stable_means
from tda_bias.paper.model import published, why_another
from tda_bias.show.figures import Entry, drawings, names_in_files, write_print
from tda_bias.show.tables import markdown, paper_table, write_table
from tda_bias.show.text import counted, number_text
from tda_bias.stats.resampling import LEVEL
from tda_bias.store.files import write_text
from tda_bias.store.run import Run
from tda_bias.types import STARTER_CAUTION, HeadId

if TYPE_CHECKING:
    from tda_bias.scores.stereoset_scores import StereoSetScores


# Heads of a ranking that a table of a paper has room for.
_RANKED = 10


def write_page(
    run: Run,
    folder: Path,
    entries: Sequence[Entry],
    *,
    command: str,
    started: float,
    other_model: str | None,
    said: StereoSetScores | str,
) -> dict[str, Path]:
    """Write the page of a run of ``tdabias heads`` as ``README.md``, with its figures and tables.

    Args:
        run: The run.
        folder: Folder of the page.
        entries: The catalogue of figures.
        command: What was typed.
        started: What ``time.perf_counter`` said then.
        other_model: As in ``unlike_the_paper``.
        said: As in ``claims``.

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
    text = page(
        result,
        pictures=pictures,
        command=command,
        seconds=seconds,
        run_id=run.id,
        other_model=other_model,
        said=said,
    )
    write_text(folder / "README.md", text)
    return pictures


def page(
    result: HeadBias,
    *,
    pictures: Mapping[str, Path],
    command: str,
    seconds: float,
    run_id: str,
    other_model: str | None,
    said: StereoSetScores | str,
) -> str:
    """Markdown text; paths of pictures, by their name in the catalogue, are relative to it.

    The other arguments are those of ``write_page``.
    """
    model = result.record.model.name
    maps = (f"fig{number}_{category}" for number, category in enumerate(TABLE_NUMBER, start=4))
    parts = [
        f"# The head-topology paper on {model}",
        _about(result, command, seconds, run_id, unlike_the_paper(result, other_model)),
        f"**{survivors_line(result)}** The published p-value and metric are printed below because "
        "the paper used them; the p-value is not calibrated (see the end).",
        "## What the statistic is made of",
        _shown(pictures, ["fig2_pattern", "fig1_step_function", "fig3_swap"]),
        "## Tables 1 to 4",
        _tables(result),
        "## Figures 4 to 9",
        _shown(pictures, [*maps, "fig8_means", "fig9_spreads"]),
        "## The paper's claims",
        *(f"- *{paper}* Here: {here}" for paper, here in claims(result, said).items()),
        "## Chance, reliability and length",
        _controls(result),
        _shown(pictures, ["calibration", "length", "reliability"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(
    result: HeadBias, command: str, seconds: float, run_id: str, reasons: Sequence[str]
) -> str:
    record, texts = result.record, result.record.texts
    n = [result.controls(category) for category in result.categories]
    source = published()["heads"]["source"]
    same = (
        f"Unlike the paper: {'; '.join(reasons)}. The numbers are not expected to match, the "
        "paper's claims in words could."
        if reasons
        else "This is the paper's model by its parameters, its vocabulary and its log-likelihoods "
        "of ten texts; the texts are the same if the data set is."
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
        "On independent texts the published p-value gives about half of all heads p < .05 where "
        "there is no effect at all (first figure below); flips within contexts give 5 %.",
    ]
    for category in result.categories:
        c = result.controls(category)
        lines.append(
            f"- {category}: reliability of the map by {result.rank_by} "
            f"{number_text(c['reliability'])}; its correlation with the one that flipped labels "
            f"give on average {number_text(c['null_map_correlation'])}; "
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


def unlike_the_paper(result: HeadBias, other_model: str | None) -> list[str]:
    """Settings in which a run differs from the paper, so that values cannot be compared.

    ``other_model`` says why the model is another one, as ``tda_bias.paper.model`` does.

    Returns:
        One reason each; empty where model, texts and statistic are the paper's.
    """
    record, config, reasons = result.record, result.record.config, []
    if other_model is not None:
        reasons.append(other_model)
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
            # Only `tdabias reproduce` asks the model.
            model = why_another(result.record.model, {}, None)
            if reasons := unlike_the_paper(result, model):
                caption += f". Unlike the paper: {'; '.join(reasons)}"
            beside = paper_table(beside_published(result, category), caption)
            write_table(out, f"{name}_beside_paper{apart}", beside)
            written += 2
    return written


def write_rankings(runs: Sequence[Run], out: Path) -> int:
    """Write the top of the ranking of heads of every run, category by category.

    Returns:
        Number of tables.
    """
    heads = [run for run in runs if run.command == "heads"]
    also = names_in_files(heads) if len(heads) > 1 else {}
    written = 0
    for run in heads:
        result = run.load(HeadBias.load)
        for category in result.categories:
            name = f"heads_{category}{also.get(run.folder, '')}"
            write_table(out, name, ranked_table(result, category, _RANKED))
            written += 1
    return written


def counts_of_tests(result: HeadBias) -> pd.DataFrame:
    """Per category, tests with p < .05 under each p-value, against 5 % of the tests."""
    rows = []
    for category in result.categories:
        tests = result.table[result.table["category"] == category]
        row = {"category": category, "tests": len(tests), "expected": round(LEVEL * len(tests))}
        for name in ("paper", "paired", "label"):
            row[f"{name}, p < .05"] = int((tests[f"p_{name}"] < LEVEL).sum())
        row["unstable rows"] = int(tests["unstable"].sum())
        row["survivors (relative map)"] = len(result.survivors(category=category, by="relative"))
        rows.append(row)
    return pd.DataFrame(rows)
