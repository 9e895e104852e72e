"""``tdabias unqover``: whom does a model pick where the text does not say?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rich.table import Table

from tda_bias.show.text import counted
from tda_bias.store.identity import Changes
from tda_bias.types import MAX_COUNT
from unqover.classes import load_class
from unqover.config import AskConfig, DesignConfig, InferenceConfig
from unqover.questions import sampled_design

from .options import command, part_of
from .output import Columns, Output, Row, report_of, rows_table, uncut_table
from .settings import ModelOption, Out, PlacementSettings, SharedRunSettings, folder_name
from .work import working

if TYPE_CHECKING:
    import pandas as pd

    from unqover.answers import Answers
    from unqover.report import Report

_FILES = "groups.csv, subjects.csv, summary.csv, answers.parquet, heat_map.png, run.json, ..."


class UnqoverSettings(
    ModelOption,
    PlacementSettings,
    SharedRunSettings,
    DesignConfig,
    AskConfig,
    InferenceConfig,
):
    """Settings of ``tdabias unqover``."""

    class_: str = Field(
        alias="class",
        min_length=1,
        description="gender, nationality, ethnicity, religion, education, age, gender_race, "
        "gender_race_names, or a YAML file of subjects, attributes and frames",
    )
    top: Annotated[int, Changes.NOTHING] = Field(
        5, ge=1, le=MAX_COUNT, description="attributes (or groups) to print"
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/unqover-CLASS)")

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        name = f"unqover-{folder_name(self.class_)}"
        if self.attribute_set is not None:
            name += f"-{self.attribute_set}"
        return self.out or Path("runs") / folder_name(self.model) / name


@command(UnqoverSettings)
def unqover(settings: UnqoverSettings) -> None:
    """Ask underspecified questions about pairs of people, and measure whom the model picks."""
    chosen = load_class(settings.class_, attribute_set=settings.attribute_set)
    design = sampled_design(chosen, part_of(settings, DesignConfig))
    with working(settings, "unqover", settings.folder) as work:
        model = work.model(settings.model, head="as_trained")

        from unqover.asking import ask_questions
        from unqover.plots import report_figures
        from unqover.report import bias_report

        with work.progress(f"{settings.model} · {design.record.name}", "questions") as progress:
            answers = ask_questions(
                model,
                design,
                config=part_of(settings, AskConfig),
                progress=progress,
                cache=work.cache,
            )
        answers.with_record(settings=settings.recorded()).save(settings.folder)
        report = bias_report(answers, config=part_of(settings, InferenceConfig))
        report.save(settings.folder, figures=report_figures(report))
    output(report, settings.folder, settings.top).print(settings)


# -- what is printed -------------------------------------------------------------------------------


def saved(answers: Answers, folder: Path, top: int) -> Output:
    """The output of a finished run, from its answers."""
    from unqover.report import bias_report

    return output(bias_report(answers), folder, top)


def output(report: Report, folder: Path, top: int) -> Output:
    """Whom the model picks, and what that must be compared with."""
    from unqover.report import unqover_finding

    return Output(
        finding=unqover_finding(report).then(report_of(folder)),
        shown=[summary_table(report), ranked_table(report, top)],
        values={
            "model": report.answers.record.model,
            "summary": report.summary,
            "groups": report.groups,
            "joint": report.joint,
            "controls": report.controls,
        },
        rows=report.summary,
        folder=folder,
        files=_FILES,
    )


def summary_table(report: Report) -> Table:
    """Mu and eta of every way to compare, with interval, chance level and p."""
    answers = report.answers
    design = answers.record.design
    title = (
        f"{answers.model} · {answers.asked.name} · {len(answers.subjects)} of "
        f"{counted(design.subjects_available, 'subject')}, {len(answers.attributes)} of "
        f"{counted(design.attributes_available, 'attribute')}, "
        f"{counted(len(answers.asked.templates), 'template')}, "
        f"{counted(answers.record.questions, 'question')} ({answers.record.ask}) · "
        f"{report.config.confidence:.0%} intervals"
    )
    rows = []
    for row in report.summary.to_dict("records"):
        if row["scale"] == "log_odds" and row["compared"] != "subjects":
            continue
        names = {"compared": row["compared"], "scale": row["scale"].replace("_", "-")}
        for name in ("mu", "eta"):
            values = {end: row[f"{name}_{end}"] for end in ("low", "high", "chance", "p")}
            rows.append({**names, "name": name, "value": row[name], **values})
            names = {"compared": "", "scale": ""}
    columns: Columns = [
        ("compared", "{compared}"),
        ("scale", "{scale}"),
        ("", "{name}"),
        ("value", "{value:.3f}"),
        ("interval", lambda row: _interval(row, ".3f")),
        ("by chance", "{chance:.3f}"),
        ("p", "{p:p}"),
    ]
    return uncut_table(title, rows, columns, left=3)


def _interval(row: Row, digits: str) -> str:
    low, high = row["low"], row["high"]
    return f"{low:{digits}} to {high:{digits}}" if low == low else ""


def ranked_table(report: Report, top: int) -> Table:
    """Table of what each of two groups is most preferred for; of more, the most and the least.

    Attributes that say bad things of people are shown by kind.
    """
    from unqover.plots import by_kind

    factor = report.answers.asked.factors[0]
    table = report.groups[report.groups["factor"] == factor].dropna(subset=["gamma"])
    sensitive = any(report.answers.asked.sensitive)
    column = "kind" if sensitive else "attribute"
    groups = _groups_shown(table, top)
    shown = []
    for group in groups:
        rows = table[table["group"] == group]
        ranked = (by_kind(rows) if sensitive else rows).sort_values("gamma", ascending=False)
        chosen = ranked.head(top) if len(groups) == 2 else ranked.iloc[[0, -1]]
        named = [group, *[""] * (len(chosen) - 1)]
        shown += chosen.assign(group=named).to_dict("records")
    columns: Columns = [
        (factor, "{group}"),
        (column, f"{{{column}}}"),
        ("gamma", "{gamma:+.3f}"),
    ]
    if not sensitive:
        columns = [
            *columns,
            (f"{report.config.confidence:.0%}", lambda row: _interval(row, "+.3f")),
            ("q", "{q:p}"),
            ("eta", "{eta:+.2f}"),
        ]
    heading = "Most preferred for" if len(groups) == 2 else "Most and least preferred for"
    return rows_table(f"{heading}, by {factor}", shown, columns, left=2)


def _groups_shown(table: pd.DataFrame, top: int) -> list[str]:
    """Both of two groups; of more, those with the largest gamma of any attribute."""
    names = list(dict.fromkeys(table["group"]))
    if len(names) == 2:
        return names
    largest = table.groupby("group")["gamma"].apply(lambda gamma: gamma.abs().max())
    return list(largest.sort_values(ascending=False, kind="stable").head(top).index)
