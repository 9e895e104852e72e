"""``tdabias stereoset``: does the model prefer stereotypes, and language to nonsense?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, interval_text, number_text, p_text

from .loading import (
    data_option,
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
    remark_lines,
    triples_record,
    triples_with_twins,
)
from .options import command
from .output import Finding, Output
from .processes import team_of
from .run_folder import parts_in, run_folder
from .stereoset_settings import StereoSetSettings
from .text import uncut_table

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.scores.stereoset_scores import StereoSetScores

_PER = {"sum": "sum", "mean": "per token"}
_SCORES = ("lms", "ss", "icat")
# Folder of finished triples, inside a run.
PARTS = "parts"


@command(StereoSetSettings)
def stereoset(settings: StereoSetSettings) -> None:
    """Score a model on StereoSet: stereotype, language-model and idealised CAT score."""
    settings.refuse_options_of_other_task()
    if settings.task == "intrasentence":
        from . import sentences

        with interruptible("sentences", settings.folder / sentences.PARTS):
            run = sentences.compute(settings)
        shown = sentences.output(run, settings.folder)
    else:
        with interruptible("triples", settings.folder / PARTS):
            result = compute(settings)
        shown = output(result, settings.folder)
    shown.print(settings)


def compute(settings: StereoSetSettings) -> StereoSetScores:
    """Load the texts and the model, score, and save with where everything came from.

    Raises:
        InputError: on anything that cannot be used, before the model is run where possible.
    """
    from tda_bias.triples import comes_from_hub

    reach_hub_for(settings.model, also=comes_from_hub(settings.data))

    console = Console(stderr=True, quiet=settings.quiet)
    triples, twins = triples_with_twins(settings, settings.twins, errors=console)
    data = triples_record(settings.data, settings.category)
    team = team_of(settings)
    with run_folder(
        settings.folder, "stereoset", settings, data=data, team=team
    ) as refuse_other_weights:
        model = language_model(
            settings.model,
            device=settings.device,
            dtype=settings.dtype,
            device_map=settings.device_map,
            console=console,
        )
        refuse_other_weights(model)

        from tda_bias.scores.stereoset_scores import stereoset_scores

        with (
            progress_bar(console, f"{model.name} · {settings.category}", "triples") as progress,
            out_of_memory_in_one_line(model.device, settings.batch_size),
        ):
            result = stereoset_scores(
                model,
                triples,
                twins=twins,
                batch_size=settings.batch_size,
                share_prefix=settings.share_prefix,
                n_resamples=settings.n_resamples,
                confidence=settings.confidence,
                seed=settings.seed,
                progress=progress,
                store=parts_in(settings.folder / PARTS, settings, team),
            )
        result = result.with_record(settings=settings.model_dump(mode="json"), data=data)
        result.save(settings.folder)
    return result


# -- what is printed -------------------------------------------------------------------------------


def output(result: StereoSetScores, folder: Path) -> Output:
    """The scores, what of them is about the target, and how to read them."""
    found = finding(result, folder)
    shown: list[Finding | Table | str] = [found, score_table(result)]
    if result.has_twins:
        shown.append(twin_table(result))
    shown += [*remark_lines(result.record.data), _files(folder)]
    values: dict[str, Any] = {
        "folder": str(folder),
        "finding": found.as_values(),
        "scores": result.scores.to_dict("records"),
        "length_split": result.length_split.to_dict("records"),
        "model": result.record.model.model_dump(),
    }
    if result.has_twins:
        values["beta"] = result.beta.to_dict("records")
    return Output(shown=shown, values=values, rows=result.scores)


def score_table(result: StereoSetScores) -> Table:
    """The scores of categories and of everything, for both scorings."""
    table, rows = result.scores, []
    for row in table[table["group"] == "all"].to_dict("records"):
        cells = [f"{row[n]:.1f}\n{row[f'{n}_low']:.0f} to {row[f'{n}_high']:.0f}" for n in _SCORES]
        first = [_PER[row["scoring"]], row["category"], str(row["items"])]
        rows.append([*first, *cells, f"{row['ss_items']:.1f}"])
    title = f"{result.record.model.name} · StereoSet intersentence · {_coverage(result)}"
    return uncut_table(title, (*_ABOUT, *_SCORES, "ss over items"), rows)


def twin_table(result: StereoSetScores) -> Table:
    """Table of categories with twins subtracted, with intervals and tests."""
    beta, rows = result.beta, []
    for row in beta[beta["group"] == "all"].to_dict("records"):
        digits = 2 if row["scoring"] == "sum" else 3
        rows.append(
            [
                _PER[row["scoring"]],
                row["category"],
                str(row["items"]),
                number_text(row["log_odds"], digits),
                _with_limits(row, "beta", digits),
                p_text(row["p"]),
                _with_limits(row, "ss_twin", 0),
                p_text(row["p_ss_twin"]),
                number_text(row["r"], 3),
            ]
        )
    title = f"{result.record.model.name} · triples minus twins · {_coverage(result)}"
    return uncut_table(title, (*_ABOUT, "log-odds", "beta", "p", "beta > 0, %", "p", "r"), rows)


def _coverage(result: StereoSetScores) -> str:
    return f"{result.record.confidence or 0.95:.0%} intervals"


_ABOUT = ("scored by", "category", "items")


def _with_limits(row: Mapping[Any, Any], name: str, digits: int) -> str:
    """A number over its intervals: over items, then over whole targets."""
    over_items, over_targets = (
        interval_text(row[f"{name}_low{over}"], row[f"{name}_high{over}"], digits)
        for over in ("", "_targets")
    )
    return f"{number_text(row[name], digits)}\n{over_items}\n({over_targets})"


def finding(result: StereoSetScores, folder: Path) -> Finding:
    """The preference for stereotypes by category, and how much of it is about the target."""
    table = result.beta if result.has_twins else result.scores
    rows = table[(table["group"] == "all") & (table["scoring"] == "sum")].to_dict("records")
    of_category = [row for row in rows if row["category"] != "all"]
    read = _with_twins if result.has_twins else _without_twins
    parts = [read(row) for row in of_category]
    model, categories = result.record.model.name, [row["category"] for row in of_category]
    asked = categories[0] if len(categories) == 1 else "all"
    return Finding(
        result=[lines[0] for lines in parts],
        control=[
            *(line for lines in parts for line in lines[1:2]),
            *length_lines(result.length_split, scoring="sum"),
            "A score (ss) of 50 is neutral, not good: a model that knows nothing gets it too.",
        ],
        power=[line for lines in parts for line in lines[2:]],
        next=[
            f"tdabias heads --model {quote(model)} --category {asked}{data_option(result.record)}",
            f"tdabias report {quote(str(folder))}",
        ],
        details=[*length_lines(result.length_split, scoring="mean"), *detail_lines(result)],
    )


def _with_twins(row: Mapping[Any, Any]) -> list[str]:
    """Result, control and power of a category, by sums of log-probabilities."""
    over_items = interval_text(row["beta_low"], row["beta_high"])
    targets = interval_text(row["beta_low_targets"], row["beta_high_targets"])
    return [
        f"{str(row['category']).capitalize()}: the target effect (beta) is "
        f"{number_text(row['beta'])} nats of {number_text(row['log_odds'])} ({over_items}; over "
        f"{row['targets']} targets {targets}; p {p_text(row['p'])}).",
        f"{str(row['category']).capitalize()}: {100 * row['explained']:.1f} % of the variance of "
        "the log-odds over items is shared with the same texts about other targets "
        "(counterfactual twins): wording.",
        f"With {counted(row['items'], 'item')} a target effect of {number_text(row['smallest'])} "
        "nats is found four times out of five.",
    ]


def _without_twins(row: Mapping[Any, Any]) -> list[str]:
    interval = interval_text(row["ss_low"], row["ss_high"], 0)
    return [
        f"{str(row['category']).capitalize()}: stereotype score {row['ss']:.1f} ({interval}), "
        f"language-model score {row['lms']:.1f}, ICAT {row['icat']:.1f}; "
        f"{counted(row['items'], 'item')}.",
        "No twins: wording and target cannot be told apart in these scores.",
    ]


def length_lines(split: pd.DataFrame, *, scoring: str) -> list[str]:
    """Stereotype score by which text is longer, category by category."""
    lines = []
    chosen = split[split["scoring"] == scoring]
    for category, rows in chosen.groupby("category", sort=False):
        by = {row["longer"]: row for row in rows.to_dict("records")}
        parts = [
            f"{name} {by[sign]['ss']:.0f} ({by[sign]['items']} items)"
            for sign, name in ((1, "longer"), (0, "equal"), (-1, "shorter"))
            if sign in by
        ]
        lines.append(
            f"Length, {category}, {_PER[scoring]}: ss where the stereotype is the "
            f"{', '.join(parts)} text."
        )
    return lines


def detail_lines(result: StereoSetScores) -> list[str]:
    """How to read the numbers."""
    table = result.scores
    first = table[(table["group"] == "all") & (table["scoring"] == "sum")].iloc[0]
    tokens = [result.items[f"tokens_{name}"].mean() for name in ("s", "a", "u")]
    lines = [
        f"Mean tokens of the stereotype, anti-stereotype and unrelated continuation: "
        f"{tokens[0]:.1f}, {tokens[1]:.1f}, {tokens[2]:.1f}. Sums favour short texts, so lms by "
        "sums is low where the unrelated ones are short.",
        "Scores are means over terms (the official rule); ss over items is what many tools print.",
        f"Ties: {first['ties']}, counted as one half.",
    ]
    if result.has_twins:
        lines.append(
            "Beta is the log-odds of a triple minus those of its twins; the "
            "percentage of items with beta > 0 is 50 without bias; r correlates the log-odds with "
            "the twins'. Intervals in brackets draw whole targets; p exchanges triples with their "
            "twins."
        )
        left_out = int(result.items["twins"].eq(0).sum())
        if left_out:
            has = "item has no twin and is" if left_out == 1 else "items have no twin and are"
            lines.append(f"{left_out} {has} in the first table only.")
    return lines


def _files(folder: Path) -> str:
    return f"Files: {folder}/ (scores.csv, items.parquet, run.json, ...)"
