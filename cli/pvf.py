"""``tdabias pvf``: prejudice and volatility in a model's output probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field, model_validator

from pvf.config import Kind, Quantity, RiskConfig, ScoreConfig
from tda_bias.config import DrawsOption, SeedOption
from tda_bias.show.output import Output
from tda_bias.show.table import TableSpec
from tda_bias.show.tables import write_csv
from tda_bias.show.terminal import say
from tda_bias.show.text import counted
from tda_bias.store.files import locked
from tda_bias.store.identity import Changes
from tda_bias.store.run import open_run, refuse_file_of_a_run, refuse_run_of_another_command
from tda_bias.types import MAX_COUNT, InputError, ShareDone

from .loading import use_cache_if_unreachable
from .options import Positional
from .run import interruptible, progress_bar, stage, working
from .settings import (
    ModelName,
    Out,
    OutputSettings,
    PlacementSettings,
    RunSettings,
    Several,
    SharedRunSettings,
    folder_name,
    part_of,
)

if TYPE_CHECKING:
    import numpy as np

    from pvf.mining import Mined
    from pvf.preferences import Preferences
    from pvf.reference import Reference
    from pvf.report import RiskReport
    from pvf.words import Template

# Documents between two saves of an unfinished run of mining.
_SAVE_EVERY = 50
_KNOWN = ("gender", "pronouns", "race", "religion", "disability")


class ScoreSettings(PlacementSettings, SharedRunSettings, ScoreConfig, DrawsOption):
    """Settings of ``tdabias pvf score``."""

    model: Annotated[tuple[ModelName, ...], Several, Changes.NOTHING] = Field(
        min_length=1,
        description="hub name, local folder, or smollm2-135m; several give one comparison",
    )
    attribute: str = Field(
        description="gender, pronouns, race, religion, disability, or a YAML file of word classes"
    )
    words: str = Field(
        "occupations",
        description="words x: occupations, titles (the earlier paper's), StereoSet's targets "
        "(targets:gender, targets:profession, targets:race, targets:religion, targets:all; also "
        "professions, people), winogender (the default with --reference bls), or a file, one per "
        "line",
    )
    templates: str | None = Field(
        None,
        description="gender, race, or a CSV template,count (default: gender for gender and "
        "pronouns, else race)",
    )
    untrained: Annotated[bool, Changes.NOTHING] = Field(
        False, description="read the same architecture with random weights too, as a further row"
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/pvf-ATTRIBUTE)")

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


class _RiskSettings(RunSettings, RiskConfig):
    """Settings of computing and printing risks."""

    x_weights: Annotated[Path | None, Changes.TABLES] = Field(
        None, description="CSV x,weight, e.g. numbers of employees"
    )
    reference: Annotated[str | None, Changes.TABLES] = Field(
        None,
        description="preferences that count as unbiased, in place of equal ones: bls (US shares of "
        "women), or a CSV x[,template],CLASS,CLASS,...",
    )
    top: Annotated[int, Changes.NOTHING] = Field(
        5, ge=1, le=MAX_COUNT, description="words x to print on each side"
    )


class RiskSettings(_RiskSettings):
    """Settings of ``tdabias pvf risk``; model and words are those of the runs."""

    runs: Annotated[tuple[Path, ...], Positional()] = Field(
        description="Folders that `tdabias pvf` wrote."
    )
    out: Out = Field(
        None,
        description="folder for the files, with one inside for each of several runs (default: the "
        "runs' own)",
    )

    def folder(self, run: Path) -> Path:
        """Folder of the risks of a run."""
        if self.out is None:
            return run
        if len(self.runs) == 1:
            return self.out
        return self.out / run.resolve().parent.name / folder_name(str(run))


class PvfSettings(ScoreSettings, _RiskSettings):
    """Settings of ``tdabias pvf``: reading and risk."""

    @model_validator(mode="before")
    @classmethod
    def _words_of_the_official_shares(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("reference") == "bls":
            return {"words": "winogender", **given}
        return given


class SocialSettings(OutputSettings):
    """Settings of ``tdabias pvf social``."""

    run: Annotated[Path, Positional()] = Field(description="Folder that `tdabias pvf` wrote.")
    factors: str = Field(
        description="bls (US shares of women by occupation), frequency (of words, by the package "
        "wordfreq), or a CSV with the columns x,factor,...[,weight]"
    )
    response: Quantity = Field("r", description="what is explained")
    out: Out = Field(None, description="folder for the files (default: RUN/social)")


class PlotSettings(OutputSettings):
    """Settings of ``tdabias pvf plot``."""

    runs: Annotated[tuple[Path, ...], Positional()] = Field(
        description="Folders that `tdabias pvf` wrote."
    )
    x: Annotated[tuple[str, ...], Several] = Field(
        (), description="word x for the heat map; may be given several times"
    )
    out: Path = Field(Path("figures-pvf"), description="folder for the figures")


class MineSettings(SeedOption, OutputSettings):
    """Settings of ``tdabias pvf mine``."""

    corpus: Annotated[str, Positional()] = Field(
        description=".txt or .jsonl file, or a data set on the hub, NAME[:CONFIGURATION]"
    )
    kind: Kind = Field(
        "gender", description="gender: The [X] said that [Y]; race: The [X], who said it, is [Y]"
    )
    out: Path = Field(Path("templates.csv"), description="CSV to write")
    pipeline: str = Field(
        "en_core_web_sm",
        description="English spaCy pipeline, by the name it is installed under",
    )
    documents: int | None = Field(
        None, ge=1, le=1000 * MAX_COUNT, description="random sample of so many (default: all)"
    )
    field: str = Field("text", description="where the text is, in JSON Lines")
    min_count: int = Field(2, ge=1, le=MAX_COUNT, description="distinct sentences per template")
    resume: bool = Field(True, description="go on where an earlier run stopped")


def pvf(settings: PvfSettings) -> Output:
    """Read models' preferences and split their risk into prejudice and volatility."""
    from pvf.words import load_classes, load_templates, load_words

    reports, folders = {}, {}
    # What cannot be read, or would be lost, is said before a model is read.
    words = load_words(settings.words).words
    weights = _weights(settings, words)
    templates = load_templates(settings.template_source)
    classes = load_classes(settings.attribute)
    reference = _reference(settings, words, templates, tuple(classes.classes), classes.printed)
    for folder in map(settings.folder, settings.model):
        if not settings.overwrite and (folder / "run.json").exists():
            _refuse_other_risks(folder, settings, weights, reference)
    for preferences, folder in _scored(settings):
        reports[preferences.model] = _report(preferences, settings, weights, reference, folder)
        folders[preferences.model] = folder

    from pvf.shown import risks_shown

    return risks_shown(reports, folders, top=settings.top)


def _refuse_other_risks(
    folder: Path,
    settings: PvfSettings,
    weights: np.ndarray | None,
    reference: Reference | None,
) -> None:
    from pvf.report import refuse_other_risks

    refuse_other_risks(folder, part_of(settings, RiskConfig), weights, reference)


def score(settings: ScoreSettings) -> Output:
    """Read word probabilities and save them; every later number needs no model."""
    import pandas as pd

    from pvf.finding import mass_warning

    rows, lines = [], []
    for preferences, folder in _scored(settings):
        mass = preferences.by_class().union_mass
        rows.append(
            {
                "model": preferences.model,
                "words": len(preferences.words),
                "prompts": mass.size,
                "union_mass_mean": float(mass.mean()),
                "folder": str(folder),
            }
        )
        lines.append(
            f"{preferences.model}: {counted(len(preferences.words), 'word')} read in "
            f"{counted(mass.size, 'prompt')}, "
            f"mean union mass {mass.mean():.3g}. Files: {folder}/ (words.parquet, run.json)"
        )
        lines += mass_warning(preferences)
    return Output(shown=lines, values={"models": rows}, rows=pd.DataFrame(rows))


def risk(settings: RiskSettings) -> Output:
    """Compute the risks of saved preferences, without the model."""
    from pvf.preferences import Preferences
    from pvf.shown import risks_shown

    reports, folders = {}, {}
    for run in settings.runs:
        preferences = Preferences.load(run)
        name = preferences.model if preferences.model not in reports else str(run)
        folders[name] = settings.folder(run)
        weights = _weights(settings, preferences.x)
        reference = _reference(
            settings,
            preferences.x,
            preferences.templates,
            preferences.classes,
            preferences.printed,
        )
        reports[name] = _report(preferences, settings, weights, reference, folders[name])
    return risks_shown(reports, folders, top=settings.top)


def social(settings: SocialSettings) -> Output:
    """Regress the risk of each x on social factors: share of women, word frequency, yours."""
    from matplotlib.figure import Figure

    from pvf.plots import plot_regression
    from pvf.report import load_report
    from pvf.social import load_factors, regressions
    from tda_bias.show.figures import write_figure

    folder = settings.out or settings.run / "social"
    refuse_run_of_another_command(folder, "pvf social")
    by_x = load_report(settings.run).by_x
    chosen = load_factors(settings.factors, by_x["x"].tolist())
    table = regressions(by_x, chosen, response=settings.response)
    write_csv(folder / "regressions.csv", table)
    for number, name in enumerate(chosen.columns.drop("weight", errors="ignore"), start=1):
        figure = Figure(figsize=(4.8, 3.6), layout="constrained")
        plot_regression(by_x, chosen, name, response=settings.response, ax=figure.subplots())
        write_figure(folder, f"factor{number}", figure)
    columns = ["factors", "fit", "factor", "slope", "se", "p", "p_hc3", "r2", "n", "spearman"]
    title = f"{settings.response} of each x on its factors"
    return Output(
        shown=[TableSpec.of(table[columns], title)],
        values={"regressions": table},
        rows=table,
        folder=folder,
        files="regressions.csv, factor1.png, ...",
    )


def plot(settings: PlotSettings) -> Output:
    """Draw the figures of one run, or compare several."""
    import pandas as pd

    from pvf.plots import figures_of_runs
    from pvf.report import reports_of
    from tda_bias.show.figures import write_figure

    refuse_run_of_another_command(settings.out, "pvf plot")
    reports = reports_of([open_run(folder, "pvf") for folder in settings.runs])
    figures = figures_of_runs(reports, x=settings.x or None)
    rows = []
    for name, figure in figures.items():
        files = write_figure(settings.out, name, figure)
        rows.append({"figure": name, "files": " ".join(path.name for path in files)})
    named = ", ".join(f"{settings.out}/{name}.png" for name in figures)
    return Output(
        shown=[f"Files: {named} (and .svg)"],
        values={"figures": list(figures)},
        rows=pd.DataFrame(rows),
        folder=settings.out,
    )


def mine(settings: MineSettings) -> Output:
    """Mine context templates from a corpus."""
    from pvf.mining import mined_table

    refuse_file_of_a_run(settings.out, setting="out")
    mined, pipeline, state = _mined(settings)
    table = mined_table(mined, min_count=settings.min_count)
    write_csv(settings.out, table)
    said = (
        f"{counted(mined.done, 'document')}, {counted(mined.sentences, 'distinct sentence')} "
        f"({pipeline}): {len(table)} "
        f"templates with {counted(int(table['count'].sum()), 'sentence')}, of {len(mined.counts)} "
        "candidates."
    )
    return Output(
        shown=[said, f"Files: {settings.out} (for --templates), {state}"],
        values={"file": str(settings.out), "documents": mined.done},
        rows=table,
    )


def _mined(settings: MineSettings) -> tuple[Mined, str, Path]:
    """Counts of templates, the pipeline with its version, and the file that keeps the state."""
    if not Path(settings.corpus).is_file():
        use_cache_if_unreachable()

    from pvf.mining import Mined, corpus_hash, documents, load_pipeline
    from pvf.mining import mine as mine_documents

    nlp = load_pipeline(settings.pipeline)
    pipeline = f"{nlp.lang}_{nlp.meta['name']} {nlp.meta['version']}"
    identity = {
        **settings.model_dump(include={"corpus", "kind", "documents", "field", "seed"}),
        "content": corpus_hash(settings.corpus),
        "pipeline": pipeline,
    }
    state = settings.out.with_name(settings.out.name + ".state.json")
    if not settings.resume:
        state.unlink(missing_ok=True)
    mined = Mined.load(state, identity)
    if mined.done:
        found = counted(mined.done, "document")
        say(settings.console, f"Going on after {found} of {state}; --no-resume starts over.")
    source = documents(
        settings.corpus, n=settings.documents, field=settings.field, seed=settings.seed
    )
    with (
        interruptible(lambda: mined.done // _SAVE_EVERY * _SAVE_EVERY, state, "document"),
        progress_bar(settings, f"mining {settings.corpus}", "documents") as progress,
    ):

        def after(now: Mined) -> None:
            progress(now.done, settings.documents)
            if now.done % _SAVE_EVERY == 0:
                now.save(state)

        mine_documents(nlp, source, kind=settings.kind, mined=mined, after_document=after)
    if not mined.done:
        raise InputError(f"{settings.corpus} holds no document: there is nothing to mine")
    mined.save(state)
    return mined, pipeline, state


# -- parts -----------------------------------------------------------------------------------------


def _scored(settings: ScoreSettings) -> Iterator[tuple[Preferences, Path]]:
    """Read and save the preferences of every model, and of its untrained twin where asked for.

    A model's folder is held until the last of its preferences is done with. Where another process
    gathers them, nothing is given, and ``ShareDone`` is raised at the end.
    """
    from pvf.words import load_classes, load_templates, load_words

    words, classes = load_words(settings.words), load_classes(settings.attribute)
    templates = load_templates(settings.template_source)
    done: list[ShareDone] = []
    for name in settings.model:
        folder = settings.folder(name)
        with working(settings, "pvf", folder, least=Changes.PARTS) as work:
            model = work.model(name)

            from pvf.reading import score_preferences
            from tda_bias.models.hooked import untrained

            readers = [(model, folder)]
            if settings.untrained:
                again = partial(untrained, model, seed=settings.seed)
                readers.append((work.held(again(), again), folder / "untrained"))
            for reader, where in readers:
                inside, preferences = work.inside(where, kept="parts"), None
                title = f"{reader.name} · {settings.attribute}"
                with stage(done), inside.progress(title, "rows") as progress:
                    read = score_preferences(
                        reader,
                        words,
                        templates,
                        classes,
                        config=part_of(settings, ScoreConfig),
                        progress=progress,
                        cache=inside.cache,
                    )
                    preferences = inside.saved(read)
                if preferences is not None:
                    yield preferences, where
    if done:
        raise done[-1]


def _weights(settings: _RiskSettings, x: Sequence[str]) -> np.ndarray | None:
    """Weights of x, where a file of them is given."""
    from pvf.words import load_x_weights

    if settings.x_weights is None:
        return None
    weights, missing = load_x_weights(settings.x_weights, x)
    if missing and not settings.quiet:
        typer.echo(f"No weight, so 0: {', '.join(missing)}", err=True)
    return weights


def _reference(
    settings: _RiskSettings,
    x: Sequence[str],
    templates: Sequence[Template],
    classes: Sequence[str],
    printed: bool,
) -> Reference | None:
    """Preferences that count as unbiased, where they are given."""
    if settings.reference is None:
        return None

    from pvf.reference import load_reference

    texts = [template.text for template in templates]
    return load_reference(settings.reference, x, texts, classes, printed=printed)


def _report(
    preferences: Preferences,
    settings: _RiskSettings,
    weights: np.ndarray | None,
    reference: Reference | None,
    folder: Path,
) -> RiskReport:
    """The risks of saved preferences, saved with their figures."""
    from pvf.plots import report_figures
    from pvf.report import risk_report

    report = risk_report(
        preferences,
        config=part_of(settings, RiskConfig),
        x_weights=weights,
        reference=reference,
    )
    if settings.x_weights is not None:
        report = replace(report, x_weights_file=str(settings.x_weights))
    figures = report_figures(report, label=settings.top)  # the words that are printed
    with locked(folder):
        report.save(
            folder,
            figures=figures,
            overwrite=settings.overwrite,
        )
    return report
