"""``tdabias pvf``: prejudice and volatility in a model's output probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field, model_validator
from rich.console import Console
from rich.table import Table

from pvf.config import RiskConfig, ScoreConfig
from tda_bias.runs.text import counted, interval_text
from tda_bias.runs.work import ShareDone
from tda_bias.types import MAX_COUNT, MAX_SEED, InputError

from .loading import interruptible, language_model, out_of_memory_in_one_line, progress_bar
from .mine import mine
from .options import Positional, command, part_of
from .output import Finding, Output
from .processes import stage, team_of
from .pvf_plot import plot, social
from .run_folder import run_folder
from .settings import (
    FilePath,
    Name,
    PlacementSettings,
    RunSettings,
    Several,
    SharedRunSettings,
    folder_name,
)
from .text import table_of

if TYPE_CHECKING:
    import pandas as pd

    from pvf.preferences import Preferences
    from pvf.report import RiskReport

_KNOWN = ("gender", "pronouns", "race", "religion", "disability")


class ScoreSettings(PlacementSettings, SharedRunSettings, ScoreConfig):
    """Settings of ``tdabias pvf score``."""

    model: Annotated[tuple[Name, ...], Several] = Field(
        min_length=1,
        description="hub name, local folder, or smollm2-135m; several give one comparison",
    )
    attribute: Name = Field(
        description="gender, pronouns, race, religion, disability, or a YAML file of word classes"
    )
    words: Name = Field(
        "occupations",
        description="words x: occupations, StereoSet's targets (professions, people), or a file, "
        "one per line",
    )
    templates: Name | None = Field(
        None,
        description="gender, race, or a CSV template,count (default: gender for gender and "
        "pronouns, else race)",
    )
    untrained: bool = Field(
        False, description="read the same architecture with random weights too, as a further row"
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse words that an earlier run finished")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/MODEL/pvf-ATTRIBUTE)"
    )

    @model_validator(mode="after")
    def _templates_for_own_classes(self) -> ScoreSettings:
        if self.templates is None and self.attribute not in _KNOWN:
            raise ValueError("templates is needed with a file of word classes: gender, race or CSV")
        if len(set(self.model)) < len(self.model):
            raise ValueError("model must not be given twice")
        return self

    @property
    def template_source(self) -> str:
        """Source of the templates."""
        by_default = "gender" if self.attribute in ("gender", "pronouns") else "race"
        return self.templates or by_default

    def folder(self, model: str) -> Path:
        """Folder of a model's files."""
        if self.out is not None:
            return self.out / folder_name(model) if len(self.model) > 1 else self.out
        name = "-".join(
            ["pvf", folder_name(self.attribute)]
            + [folder_name(self.words)] * (self.words != "occupations")
        )
        return Path("runs") / folder_name(model) / name

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        how = set(ScoreConfig.model_fields) - {"batch_size", "share_prefix"}
        return self.model_dump(include={"attribute", "words", "templates", *how})


class _RiskSettings(RunSettings, RiskConfig):
    """How risks are computed and printed."""

    x_weights: FilePath | None = Field(None, description="CSV x,weight, e.g. numbers of employees")
    top: int = Field(5, ge=1, le=MAX_COUNT, description="words x to print on each side")


class RiskSettings(_RiskSettings):
    """Everything ``tdabias pvf risk`` can be told; model and words are those of the runs."""

    runs: Annotated[tuple[FilePath, ...], Positional()] = Field(
        description="Folders that `tdabias pvf` wrote."
    )
    out: FilePath | None = Field(
        None,
        description="folder for the files, with one inside for each of several runs (default: the "
        "runs' own)",
    )

    def folder(self, run: Path) -> Path:
        """Folder of the risks of a run."""
        if self.out is None:
            return run
        return self.out / run.resolve().name if len(self.runs) > 1 else self.out


class PvfSettings(ScoreSettings, _RiskSettings):
    """Everything ``tdabias pvf`` can be told: reading and risk."""


app = typer.Typer(
    help="Prejudice and volatility in a model's output probabilities.",
    invoke_without_command=True,
    add_completion=False,
)
app.command("mine")(mine)


@app.callback()
@command(PvfSettings)
def pvf(settings: PvfSettings) -> None:
    """Read a model's preferences and split their risk into prejudice and volatility.

    With a command (score, risk, mine, social, plot), only that part.
    """
    reports, folders = {}, {}
    done: list[ShareDone] = []
    for name in settings.model:
        _refuse_other_risks(settings, settings.folder(name))
        for preferences, folder in _score(settings, name, done):
            reports[preferences.model] = _report(preferences, settings, folder)
            folders[preferences.model] = folder
    if done:
        raise done[-1]
    output(reports, folders, settings.top).print(settings)


@app.command()
@command(ScoreSettings, file=PvfSettings)
def score(settings: ScoreSettings) -> None:
    """Read word probabilities and save them; every later number needs no model."""
    import pandas as pd

    rows, lines = [], []
    done: list[ShareDone] = []
    for name in settings.model:
        for preferences, folder in _score(settings, name, done):
            mass = preferences.by_class().union_mass
            about = {"model": preferences.model, "words": len(preferences.words)}
            mean = {"prompts": mass.size, "union_mass_mean": float(mass.mean())}
            rows.append({**about, **mean, "folder": str(folder)})
            lines.append(
                f"{preferences.model}: {counted(len(preferences.words), 'word')} read in "
                f"{counted(mass.size, 'prompt')}, "
                f"mean union mass {mass.mean():.3g}. Files: {folder}/ (words.parquet, "
                "preferences.parquet, run.json)"
            )
    if done:
        raise done[-1]
    read = Output(shown=lines, values={"models": rows}, rows=pd.DataFrame(rows))
    read.print(settings)


@app.command()
@command(RiskSettings, file=PvfSettings)
def risk(settings: RiskSettings) -> None:
    """Compute the risks of saved preferences, without the model."""
    from pvf.preferences import Preferences

    reports, folders = {}, {}
    for run in settings.runs:
        preferences = Preferences.load(run)
        name = preferences.model if preferences.model not in reports else str(run)
        folders[name] = settings.folder(run)
        reports[name] = _report(preferences, settings, folders[name], run=run)
    output(reports, folders, settings.top).print(settings)


app.command("social")(social)
app.command("plot")(plot)


# -- parts -----------------------------------------------------------------------------------------


def _score(
    settings: ScoreSettings, name: str, done: list[ShareDone]
) -> Iterator[tuple[Preferences, Path]]:
    """Read and save the preferences of a model, and of its untrained twin where asked for.

    The folder is held until the last of them is done with. Where another process gathers them,
    nothing is given, and ``done`` says so.
    """
    from pvf.templates import load_templates
    from pvf.words import load_classes, load_words

    words, classes = load_words(settings.words), load_classes(settings.attribute)
    # What follows the slot is refused later, once the kind of model is known.
    templates = load_templates(settings.template_source, y_last=False)
    folder = settings.folder(name)
    console = Console(stderr=True, quiet=settings.quiet)
    team = team_of(settings)
    with run_folder(folder, "pvf", settings, team=team) as refuse_other_weights:
        model = language_model(
            name,
            device=settings.device,
            dtype=settings.dtype,
            device_map=settings.device_map,
            console=console,
        )
        refuse_other_weights(model)

        from pvf.score import score_preferences
        from tda_bias.models import untrained

        readers = [(model, folder)]
        if settings.untrained:
            readers.append((untrained(model, seed=settings.seed), folder / "untrained"))
        for reader, where in readers:
            read: list[tuple[Preferences, Path]] = []
            with (
                stage(done),
                interruptible("words", where / "parts"),
                progress_bar(console, f"{reader.name} · {settings.attribute}", "rows") as progress,
                out_of_memory_in_one_line(model.device, settings.batch_size),
            ):
                preferences = score_preferences(
                    reader,
                    words,
                    templates,
                    classes,
                    config=part_of(settings, ScoreConfig),
                    parts=where / "parts",
                    resume=settings.resume,
                    overwrite=settings.overwrite,
                    team=team,
                    progress=progress,
                )
                preferences = preferences.with_record(settings=settings.model_dump(mode="json"))
                preferences.save(where)
                read.append((preferences, where))
            yield from read


def _refuse_other_risks(settings: PvfSettings, folder: Path) -> None:
    """Before the model is read: make sure that no risks under other settings would be lost."""
    from pvf.report import saved_config
    from tda_bias.runs.run import open_run

    if settings.overwrite or not (folder / "run.json").exists():
        return
    config = saved_config(open_run(folder, "pvf"))
    if config not in (None, part_of(settings, RiskConfig)):
        raise InputError(
            f"{folder} holds risks with other settings; choose another --out, or write over them "
            "with --overwrite"
        )


def _report(
    preferences: Preferences, settings: _RiskSettings, folder: Path, *, run: Path | None = None
) -> RiskReport:
    """The risks of saved preferences, saved with their figures."""
    from pvf.plots import report_figures
    from pvf.report import risk_report
    from pvf.words import load_x_weights
    from tda_bias.runs.lock import locked

    weights = None
    if settings.x_weights is not None:
        weights, missing = load_x_weights(settings.x_weights, preferences.x)
        if missing and not settings.quiet:
            typer.echo(f"No weight, so 0: {', '.join(missing)}", err=True)
    report = risk_report(preferences, config=part_of(settings, RiskConfig), x_weights=weights)
    with locked(folder):
        report.save(folder, run=run, figures=report_figures(report), overwrite=settings.overwrite)
    return report


# -- what is printed -------------------------------------------------------------------------------


def saved(folder: Path, top: int) -> Output:
    """The output of a finished run.

    Raises:
        InputError: as ``load_report``.
    """
    from pvf.report import load_report

    report = load_report(folder)
    return output({report.model: report}, {report.model: folder}, top)


def output(reports: dict[str, RiskReport], folders: dict[str, Path], top: int) -> Output:
    """One table for all models, then the extremes and controls of each."""
    from pvf.report import comparison

    table = comparison(reports)
    found = {name: finding(report, folders[name]) for name, report in reports.items()}
    shown: list[Finding | Table | str] = [
        *found.values(),
        risk_table(table, next(iter(reports.values()))),
    ]
    for name, report in reports.items():
        shown.append(extremes_table(report, top))
        shown.append(f"Files: {folders[name]}/ (by_x.csv, run.json, ...)")
    models = {
        name: {
            "folder": str(folders[name]),
            "finding": found[name].as_values(),
            "model": report.preferences.record.model.model_dump(),
            "controls": report.controls,
            "x": report.by_x.to_dict("records"),
        }
        for name, report in reports.items()
    }
    values = {"summary": table.to_dict("records"), "models": models}
    return Output(shown=shown, values=values, rows=table)


def risk_table(table: pd.DataFrame, report: RiskReport) -> Table:
    """R, R_p and R_v of every model, with intervals, above the reference models."""
    config, n = report.config, report.controls
    title = (
        f"{' / '.join(n['classes'])} · {counted(n['x'], 'word')} x, "
        f"{counted(n['templates'], 'template')} · "
        f"{config.confidence:.0%} intervals over both"
    )
    shown = Table("model", title=title, title_justify="left")
    for heading in ("R", "R_p prejudice", "R_v volatility"):
        shown.add_column(heading, justify="right")
    for row in table.to_dict("records"):
        cells = []
        for quantity in ("R", "R_p", "R_v"):
            low, high = (row.get(f"{quantity}_{end}_both") for end in ("low", "high"))
            defined = low is not None and low == low
            interval = f"\n{low:.3f} to {high:.3f}" if defined else ""
            cells.append(f"{row[quantity]:.4f}{interval}")
        shown.add_row(str(row["name"]), *cells, style=None if row["row"] == "measured" else "dim")
    return shown


def extremes_table(report: RiskReport, top: int) -> Table:
    """The x that lean most to each side (two classes), or those with the largest risk."""
    classes = report.preferences.classes
    columns = ["x", "r", "r_p", "r_v", *(f"s_{label}" for label in classes), "union_mass"]
    if len(classes) == 2:
        ordered = report.by_x.sort_values(f"s_{classes[0]}", ascending=False, kind="stable")
        middle = len(ordered) > 2 * top
        import pandas as pd

        chosen = pd.concat([ordered.head(top), ordered.tail(top)]) if middle else ordered
        title = f"{report.model} · words that lean most to {classes[0]} and to {classes[1]}"
    else:
        columns = ["x", "toward", "r", "r_p", "r_v", "s", "union_mass"]
        ordered = report.by_x.assign(s=report.risk.mean_s.max(1))
        chosen = ordered.sort_values("r", ascending=False, kind="stable").head(top)
        title = f"{report.model} · words with the largest risk"
    return table_of(chosen[columns], title)


def finding(report: RiskReport, folder: Path) -> Finding:
    """Prejudice and volatility of a model, compared with models without prejudice."""
    n, classes = report.controls, report.preferences.classes
    measured, null = report.summary.iloc[0], report.summary.iloc[-1]
    low, high = (measured.get(f"R_p_{end}_both", float("nan")) for end in ("low", "high"))
    leaning = ""
    if len(classes) == 2:
        toward = int((report.by_x[f"s_{classes[0]}"] > 0).sum())
        leaning = (
            f" {toward} of {counted(len(report.by_x), 'word')} lean to {classes[0]}, the others to "
            f"{classes[1]}."
        )
    details = [
        f"Contexts: {counted(n['templates'], 'template weighs', 'templates weigh')} like "
        f"{n['n_effective_contexts']:.1f}.",
    ]
    if n["words_shared_by_classes"] or n["words_not_read"]:
        shared, unread = n["words_shared_by_classes"], n["words_not_read"]
        details.append(
            f"Words not read: {len(shared)} in two classes, {len(unread)} that these settings "
            "exclude for this tokenizer; run.json names them."
        )
    if n["words_that_begin_others"]:
        details.append(
            f"Words that are, in tokens, the beginning of another: "
            f"{len(n['words_that_begin_others'])}; what continues to the longer one is not counted "
            "for the shorter."
        )
    if n["prompts_without_mass"] or n["prompts_left_out"]:
        details.append(
            f"{n['prompts_without_mass']} prompts give no listed word any probability (uniform "
            f"there); {n['prompts_left_out']} are left out by --min-mass."
        )
    if report.config.definition == "one_sided":
        details.append("One-sided, as the published code: half the paper's volatility.")
    return Finding(
        result=[
            f"{report.model}: risk R {measured['R']:.3f}, of which prejudice R_p "
            f"{measured['R_p']:.3f} ({interval_text(low, high, 3)}) and volatility R_v "
            f"{measured['R_v']:.3f}, of {' and '.join(classes)}.{leaning}"
        ],
        control=[
            f"A model without prejudice, whose preferences are random in each template, has R_p = "
            f"{null['R_p']:.3f} with so few templates.",
            f"Union mass (probability of any listed word): mean {n['union_mass_mean']:.3g}, median "
            f"{n['union_mass_median']:.3g}, 5 % to 95 % {n['union_mass_q05']:.2g} to "
            f"{n['union_mass_q95']:.2g}. Where it is small, preferences mean little.",
        ],
        next=[f"tdabias pvf plot {quote(str(folder))}", f"tdabias report {quote(str(folder))}"],
        details=details,
    )
