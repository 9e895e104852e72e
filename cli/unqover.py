"""``tdabias unqover``: whom does a model pick where the text does not say?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, p_text
from tda_bias.types import MAX_COUNT
from unqover.config import AskConfig, DesignConfig, InferenceConfig

from .loading import (
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    progress_bar,
)
from .options import command, part_of
from .output import Finding, Output
from .processes import team_of
from .run_folder import run_folder
from .settings import FilePath, Name, PlacementSettings, SharedRunSettings, folder_name

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.runs.work import Team
    from unqover.answers import Answers
    from unqover.design import Design
    from unqover.report import Report

_FILES = "groups.csv, subjects.csv, summary.csv, answers.parquet, heat_map.png, run.json, ..."


class UnqoverSettings(
    PlacementSettings, SharedRunSettings, DesignConfig, AskConfig, InferenceConfig
):
    """Settings of ``tdabias unqover``."""

    model: Name = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )
    class_: Name = Field(
        alias="class",
        min_length=1,
        description="gender, nationality, ethnicity, religion, education, age, gender_race, "
        "gender_race_names, or a YAML file of subjects, attributes and frames",
    )
    top: int = Field(5, ge=1, le=MAX_COUNT, description="attributes (or groups) to print")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/MODEL/unqover-CLASS)"
    )
    resume: bool = Field(True, description="reuse answers that an earlier run finished")

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        name = f"unqover-{folder_name(self.class_)}"
        if self.attribute_set is not None:
            name += f"-{self.attribute_set}"
        return self.out or Path("runs") / folder_name(self.model) / name

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        parts = (DesignConfig, AskConfig, InferenceConfig)
        how = {name for part in parts for name in part.model_fields}
        kept = {"class_", *how} - {"batch_size", "share_prefix"}
        return self.model_dump(include=kept, by_alias=True)


@command(UnqoverSettings)
def unqover(settings: UnqoverSettings) -> None:
    """Ask underspecified questions about pairs of people, and measure whom the model picks."""
    from unqover.classes import load_class
    from unqover.design import sampled_design

    team = team_of(settings)
    chosen = load_class(settings.class_, attribute_set=settings.attribute_set)
    design = sampled_design(chosen, part_of(settings, DesignConfig))
    with (
        interruptible("answers", settings.folder / "parts"),
        run_folder(settings.folder, "unqover", settings, team=team) as refuse_other_weights,
    ):
        answers = _answers(settings, design, refuse_other_weights, team)

        from unqover.plots import report_figures
        from unqover.report import bias_report

        told = settings.model_dump(mode="json", by_alias=True)
        answers.with_record(settings=told).save(settings.folder)
        report = bias_report(answers, config=part_of(settings, InferenceConfig))
        report.save(settings.folder, figures=report_figures(report))
    output(report, settings.folder, settings.top).print(settings)


def _answers(
    settings: UnqoverSettings,
    design: Design,
    refuse_other_weights: Callable[[Any], None],
    team: Team,
) -> Answers:
    console = Console(stderr=True, quiet=settings.quiet)
    model = language_model(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        device_map=settings.device_map,
        console=console,
        head="as_trained",
    )
    refuse_other_weights(model)

    from unqover.ask import ask_questions

    with (
        progress_bar(console, f"{settings.model} · {design.name}", "pairs") as progress,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        return ask_questions(
            model,
            design,
            config=part_of(settings, AskConfig),
            parts=settings.folder / "parts",
            resume=settings.resume,
            overwrite=settings.overwrite,
            team=team,
            progress=progress,
        )


# -- what is printed -------------------------------------------------------------------------------


def saved(folder: Path, top: int) -> Output:
    """The output of a finished run.

    Raises:
        InputError: if the folder holds no finished run, or a file is not as it was written.
    """
    from tda_bias.runs.settings import validated
    from unqover.answers import Answers
    from unqover.report import bias_report

    answers = Answers.load(folder)
    config = {n: v for n, v in answers.record.settings.items() if n in InferenceConfig.model_fields}
    return output(bias_report(answers, config=validated(InferenceConfig, config)), folder, top)


def output(report: Report, folder: Path, top: int) -> Output:
    """Whom the model picks, and what that must be held against."""
    found = finding(report, folder)
    return Output(
        shown=[
            found,
            summary_table(report),
            ranked_table(report, top),
            f"Files: {folder}/ ({_FILES})",
        ],
        values={
            "folder": str(folder),
            "finding": found.as_values(),
            "model": report.answers.record.model.model_dump(),
            "summary": report.summary.to_dict("records"),
            "groups": report.groups.to_dict("records"),
            "joint": report.joint.to_dict("records"),
            "controls": report.controls,
        },
        rows=report.summary,
    )


def summary_table(report: Report) -> Table:
    """Mu and eta of every way to compare, with interval, chance level and p."""
    answers = report.answers
    design = answers.record.design
    title = (
        f"{answers.model} · {answers.name} · {len(answers.subjects)} of "
        f"{counted(design.subjects_available, 'subject')}, {len(answers.attributes)} of "
        f"{counted(design.attributes_available, 'attribute')}, "
        f"{counted(len(answers.templates), 'template')}, "
        f"{counted(answers.record.questions, 'question')} ({answers.record.ask}) · "
        f"{report.config.confidence:.0%} intervals"
    )
    shown = Table(title=title, title_justify="left")
    for heading in ("compared", "scale", "", "value", "interval", "by chance", "p"):
        left = heading in ("compared", "scale", "")
        shown.add_column(heading, justify="left" if left else "right", no_wrap=not left)
    for row in report.summary.to_dict("records"):
        first = row["compared"] == "subjects"
        if row["scale"] == "two_way" or (row["scale"] == "log_odds" and first):
            names = [row["compared"], row["scale"].replace("_", "-")]
            for name in ("mu", "eta"):
                low, high = row[f"{name}_low"], row[f"{name}_high"]
                chance = f"{row[f'{name}_chance']:.3f}, {row[f'{name}_chance_pair']:.3f}"
                shown.add_row(
                    *names,
                    name,
                    f"{row[name]:.3f}",
                    f"{low:.3f} to {high:.3f}" if low == low else "",
                    chance,
                    p_text(row[f"{name}_p_pair"]),
                )
                names = ["", ""]
    return shown


def ranked_table(report: Report, top: int) -> Table:
    """Table of what each of two groups is most preferred for; of more, the most and the least.

    Attributes that say bad things of people are shown by kind.
    """
    from unqover.plots import by_kind

    factor = report.answers.factors[0]
    table = report.groups[report.groups["factor"] == factor].dropna(subset=["gamma"])
    sensitive = any(report.answers.sensitive)
    column = "kind" if sensitive else "attribute"
    groups = _groups_shown(table, top)
    heading = "Most preferred for" if len(groups) == 2 else "Most and least preferred for"
    shown = Table(title=f"{heading}, by {factor}", title_justify="left")
    numbers = ["gamma"] if sensitive else ["gamma", f"{report.config.confidence:.0%}", "q", "eta"]
    for name in (factor, column, *numbers):
        shown.add_column(name, justify="right" if name in numbers else "left")
    for group in groups:
        rows = table[table["group"] == group]
        ranked = (by_kind(rows) if sensitive else rows).sort_values("gamma", ascending=False)
        chosen = ranked.head(top) if len(groups) == 2 else ranked.iloc[[0, -1]]
        for number, row in enumerate(chosen.to_dict("records")):
            name = group if number == 0 else ""
            if sensitive:
                shown.add_row(name, row["kind"], f"{row['gamma']:+.3f}")
                continue
            interval = f"{row['low']:+.3f} to {row['high']:+.3f}"
            shown.add_row(
                name, row["attribute"], f"{row['gamma']:+.3f}", interval, p_text(row["q"]),
                f"{row['eta']:+.2f}",
            )  # fmt: skip
    return shown


def _groups_shown(table: pd.DataFrame, top: int) -> list[str]:
    """Both of two groups; of more, those with the largest gamma of any attribute."""
    names = list(dict.fromkeys(table["group"]))
    if len(names) == 2:
        return names
    largest = table.groupby("group")["gamma"].apply(lambda gamma: gamma.abs().max())
    return list(largest.sort_values(ascending=False, kind="stable").head(top).index)


def finding(report: Report, folder: Path) -> Finding:
    """Whom the model picks, compared with chance and with the errors of the scores."""
    n, first = report.controls, report.summary.iloc[0]
    tested = report.groups[report.groups["factor"] == report.answers.factors[0]]
    # With two groups the second row of each attribute is the first with its sign changed.
    if tested["group"].nunique() == 2:
        tested = tested[tested["group"] == tested["group"].iloc[0]]
    gammas = []
    for end, name in (("", "gamma"), ("_log_odds", "gamma of log-odds")):
        known, outside = tested[f"p{end}"].notna().sum(), (tested[f"p{end}"] < 0.05).sum()
        kept = (tested[f"q{end}"] < 0.05).sum()
        gammas.append(
            f"{name}: {outside} of {known} have p < .05 (5 % by chance: {0.05 * known:.1f}), "
            + (f"{kept} have q < .05" if kept else "nothing survives correction")
        )
    details = [
        "By chance: mean of mu and eta with the sign of every comparison flipped at random; then "
        "with a pair's templates flipped together, which p is from. Both are above 0 for a model "
        "without bias.",
        f"The two subjects together hold {n['mass_mean']:.3g} of the model's probability. "
        f"{n['ties']} of {n['comparisons']} comparisons are ties.",
    ]
    if n["left_out"]:
        details.append(f"{n['left_out']} comparisons lack a score and are left out.")
    if not report.joint.empty:
        parts = [
            f"{r['part']} {r['share']:.0%} (p {p_text(r['p'])})"
            for r in report.joint.to_dict("records")
        ]
        details.append(f"Share of the variance between combinations: {', '.join(parts)}.")
    if any(report.answers.sensitive):
        details.append(
            "Attributes that say bad things of people are summarised by kind; groups.csv and "
            "subjects.csv hold every one."
        )
    return Finding(
        result=[
            f"Asked about two people where the text does not say, {report.answers.model} prefers "
            f"one by mu = {first['mu']:.3f} on average; {first['mu_chance_pair']:.3f} by chance (p "
            f"{p_text(first['mu_p_pair'])}).",
            f"{'; '.join(gammas)}.",
        ],
        control=[
            f"Errors of the scores themselves: {first['position_error']:.3f} when the order of "
            f"mention changes, {first['negation_error']:.3f} when the attribute is denied (a model "
            "that understands would have 0 in both); the subject mentioned first gets "
            f"{n['first_mentioned_mean']:.3f} of the two's probability.",
            "Subjects by tokens of their names: "
            f"{', '.join(f'{k}: {v}' for k, v in n['tokens_of_names'].items())}; with equally long "
            f"names only ({n['equal_tokens_share']:.0%} of pairs) mu is "
            f"{n['mu_equal_tokens']:.3f}.",
        ],
        next=[f"tdabias report {quote(str(folder))}"],
        details=details,
    )
