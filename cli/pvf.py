"""``tdabias pvf``: prejudice and volatility in a model's output probabilities."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from pvf.config import Quantity, RiskConfig, ScoreConfig
from tda_bias.types import InputError

from .loading import language_model, out_of_memory_in_one_line, progress_bar
from .mine import mine
from .pvf_print import as_table, print_reports
from .settings import PvfSettings, from_flags_and_file, option

if TYPE_CHECKING:
    from pvf.preferences import Preferences
    from pvf.report import RiskReport

app = typer.Typer(
    help="Prejudice and volatility in a model's output probabilities.",
    invoke_without_command=True,
    no_args_is_help=True,
)
app.command("mine")(mine)
_option = partial(option, PvfSettings)
_Runs = Annotated[list[Path], typer.Argument(help="Folders that `tdabias pvf` wrote.")]

# Options, declared once: several commands take the same ones.
Models = Annotated[list[str] | None, _option("model", "--model", "-m")]
Attribute = Annotated[str | None, _option("attribute", "--attribute", "-a")]
Words = Annotated[str | None, _option("words")]
Templates = Annotated[str | None, _option("templates")]
Device = Annotated[str | None, _option("device")]
Dtype = Annotated[str | None, _option("dtype")]
BatchSize = Annotated[int | None, _option("batch_size", "--batch-size", "-b")]
Forms = Annotated[str | None, _option("forms")]
Bos = Annotated[str | None, _option("bos")]
MaskEnd = Annotated[str | None, _option("mask_end")]
MaskedWords = Annotated[str | None, _option("masked_words")]
SharePrefix = Annotated[str | None, _option("share_prefix")]
Out = Annotated[Path | None, _option("out", "--out", "--output", "-o")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-C", help="YAML file of settings; flags win")
]
XWeights = Annotated[Path | None, _option("x_weights")]
Aggregate = Annotated[str | None, _option("aggregate")]
Criterion = Annotated[str | None, _option("criterion")]
ScaleOption = Annotated[str | None, _option("scale")]
Definition = Annotated[str | None, _option("definition")]
TemplateWeights = Annotated[str | None, _option("template_weights")]
MinMass = Annotated[float | None, _option("min_mass")]
NResamples = Annotated[int | None, _option("n_resamples")]
IntervalOption = Annotated[str | None, _option("interval")]
Confidence = Annotated[float | None, _option("confidence")]
Seed = Annotated[int | None, _option("seed")]
Untrained = Annotated[bool | None, _option("untrained", "--untrained/--no-untrained")]
Top = Annotated[int | None, _option("top")]
Format = Annotated[str | None, _option("format")]


@app.callback()
def pvf(
    context: typer.Context,
    model: Models = None,
    attribute: Attribute = None,
    words: Words = None,
    templates: Templates = None,
    device: Device = None,
    dtype: Dtype = None,
    batch_size: BatchSize = None,
    forms: Forms = None,
    bos: Bos = None,
    mask_end: MaskEnd = None,
    masked_words: MaskedWords = None,
    share_prefix: SharePrefix = None,
    x_weights: XWeights = None,
    aggregate: Aggregate = None,
    criterion: Criterion = None,
    scale: ScaleOption = None,
    definition: Definition = None,
    template_weights: TemplateWeights = None,
    min_mass: MinMass = None,
    n_resamples: NResamples = None,
    interval: IntervalOption = None,
    confidence: Confidence = None,
    seed: Seed = None,
    top: Top = None,
    out: Out = None,
    format: Format = None,
    untrained: Untrained = None,
    config: ConfigFile = None,
) -> None:
    """Read a model's preferences and split their risk into prejudice and volatility.

    With a command (score, risk, mine, social, plot), only that part.
    """
    flags = {n: v for n, v in locals().items() if n not in ("context", "config")}
    if context.invoked_subcommand is not None:
        given = next((name for name, value in flags.items() if value is not None), None)
        if given or config:
            raise InputError(
                f"give --{(given or 'config').replace('_', '-')} behind the command: "
                f"tdabias pvf {context.invoked_subcommand} --..."
            )
        return
    settings = from_flags_and_file(PvfSettings, flags, config)
    reports, folders = {}, {}
    for name in settings.model:
        for preferences, folder in _score(settings, name):
            weights = _x_weights(settings.x_weights, preferences)
            report = _report(preferences, settings.part(RiskConfig), weights)
            _save(report, folder)
            reports[preferences.model], folders[preferences.model] = report, folder
    print_reports(reports, settings.top, settings.format, folders)


@app.command()
def score(
    model: Models = None,
    attribute: Attribute = None,
    words: Words = None,
    templates: Templates = None,
    device: Device = None,
    dtype: Dtype = None,
    batch_size: BatchSize = None,
    forms: Forms = None,
    bos: Bos = None,
    mask_end: MaskEnd = None,
    masked_words: MaskedWords = None,
    share_prefix: SharePrefix = None,
    out: Out = None,
    config: ConfigFile = None,
) -> None:
    """Read word probabilities and save them; every later number needs no model."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    settings = from_flags_and_file(PvfSettings, flags, config)
    for name in settings.model:
        ((preferences, _),) = _score(settings, name)
        mass = preferences.by_class().union_mass
        typer.echo(
            f"{name}: {len(preferences.words)} words read in {mass.size} prompts, mean union mass "
            f"{mass.mean():.3g}. Files: {settings.folder(name)}/ (words.parquet, "
            "preferences.parquet, run.json)"
        )


@app.command()
def risk(
    runs: _Runs,
    x_weights: XWeights = None,
    aggregate: Aggregate = None,
    criterion: Criterion = None,
    scale: ScaleOption = None,
    definition: Definition = None,
    template_weights: TemplateWeights = None,
    min_mass: MinMass = None,
    n_resamples: NResamples = None,
    interval: IntervalOption = None,
    confidence: Confidence = None,
    seed: Seed = None,
    top: Top = None,
    format: Format = None,
    config: ConfigFile = None,
) -> None:
    """Compute the risks of saved preferences, without the model."""
    from pvf.preferences import Preferences

    flags = {n: v for n, v in locals().items() if n not in ("runs", "config", "Preferences")}
    # Model and attribute are those of the runs.
    settings = from_flags_and_file(
        PvfSettings, {**flags, "model": ["saved"], "attribute": "gender"}, config
    )
    reports, folders = {}, {}
    for folder in runs:
        preferences = Preferences.load(folder)
        weights = _x_weights(settings.x_weights, preferences)
        name = preferences.model if preferences.model not in reports else str(folder)
        reports[name] = _report(preferences, settings.part(RiskConfig), weights)
        folders[name] = folder
        _save(reports[name], folder)
    print_reports(reports, settings.top, settings.format, folders)


@app.command()
def social(
    run: Annotated[Path, typer.Argument(help="Folder that `tdabias pvf` wrote.")],
    factors: Annotated[Path, typer.Option(help="CSV with the columns x,factor,...[,weight]")],
    response: Annotated[Quantity, typer.Option(help="what is explained")] = "r",
    out: Annotated[
        Path | None, typer.Option(help="folder for the files (default: RUN/social)")
    ] = None,
) -> None:
    """Regress the risk of each x on factors of yours: pay, education, share of women, ..."""
    from matplotlib.figure import Figure

    from pvf.plots import plot_regression
    from pvf.report import load_report
    from pvf.social import load_factors, regressions
    from tda_bias.records.figures import write_figure
    from tda_bias.records.files import write_csv

    own = load_factors(factors)
    by_x = load_report(run).by_x
    table = regressions(by_x, own, response=response)
    folder = out or run / "social"
    write_csv(folder / "regressions.csv", table)
    for number, name in enumerate(own.table.columns, start=1):
        figure = Figure(figsize=(4.8, 3.6), layout="constrained")
        plot_regression(by_x, own, name, response=response, ax=figure.subplots())
        write_figure(folder, f"factor{number}", figure)
    console = Console(highlight=False)
    columns = ["factors", "fit", "factor", "slope", "se", "p", "p_hc3", "r2", "n", "spearman"]
    console.print(as_table(table[columns], f"{response} of each x on its factors"))
    console.print(f"Files: {folder}/ (regressions.csv, factor1.png, ...)", soft_wrap=True)


@app.command()
def plot(
    runs: _Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for the figures")] = Path(
        "figures-pvf"
    ),
    x: Annotated[
        list[str] | None, typer.Option(help="word x for the heat map; may be given several times")
    ] = None,
) -> None:
    """Draw the figures of one run, or compare several."""
    from matplotlib.figure import Figure

    from pvf import plots
    from pvf.report import comparison, load_report
    from tda_bias.records.figures import write_figure

    reports: dict[str, RiskReport] = {}
    for folder in runs:
        report = load_report(folder)
        reports[report.model if report.model not in reports else str(folder)] = report
    comparison(reports)  # refuses what cannot stand in one figure
    figures: dict[str, Figure] = {}
    for name, report in reports.items():
        prefix = f"{name.replace('/', '--')}-" if len(reports) > 1 else ""
        for kind, figure in plots.report_figures(report, x=x).items():
            figures[prefix + kind] = figure
    if len(reports) > 1:
        several = Figure(figsize=(1.6 + 1.4 * len(reports), 4.2), layout="constrained")
        plots.plot_signed_means(reports, ax=several.subplots())
        size = Figure(figsize=(4.8, 3.6), layout="constrained")
        plots.plot_against_size(reports, ax=size.subplots())
        figures |= {"models-signed_means": several, "models-size": size}
    if len(reports) == 2:
        change = Figure(figsize=(3.8, 3.6), layout="constrained")
        plots.plot_change(*reports.values(), ax=change.subplots())
        figures["models-change"] = change
    for name, figure in figures.items():
        write_figure(out, name, figure)
    typer.echo(f"Files: {', '.join(f'{out}/{name}.png' for name in figures)} (and .svg)")


# -- parts -----------------------------------------------------------------------------------------


def _score(settings: PvfSettings, name: str) -> list[tuple[Preferences, Path]]:
    """Read and save the preferences of a model, and of its untrained twin where asked for."""
    from pvf.templates import load_templates
    from pvf.words import load_classes, load_words
    from tda_bias.records.files import prepare_folder

    words, classes = load_words(settings.words), load_classes(settings.attribute)
    # What follows the slot is refused later, once the kind of model is known.
    templates = load_templates(settings.template_source, y_last=False)
    folder = settings.folder(name)
    prepare_folder(folder)
    console = Console(stderr=True)
    model = language_model(name, device=settings.device, dtype=settings.dtype, console=console)

    from pvf.score import score_preferences
    from tda_bias.models.load import untrained

    runs = [(model, folder)]
    if settings.untrained:
        runs.append((untrained(model, seed=settings.seed), folder / "untrained"))
    found = []
    for one, where in runs:
        with (
            progress_bar(console, f"{one.name} · {settings.attribute}", "rows") as progress,
            out_of_memory_in_one_line(model.device, settings.batch_size),
        ):
            preferences = score_preferences(
                one, words, templates, classes, config=settings.part(ScoreConfig), progress=progress
            )
        preferences.save(where)
        found.append((preferences, where))
    return found


def _x_weights(path: Path | None, preferences: Preferences) -> Any:
    from pvf.report import load_x_weights

    if path is None:
        return None
    weights, missing = load_x_weights(path, preferences.x)
    if missing:
        typer.echo(f"No weight, so 0: {', '.join(missing)}", err=True)
    return weights


def _report(preferences: Preferences, config: RiskConfig, weights: Any) -> RiskReport:
    from pvf.report import risk_report

    return risk_report(preferences, config=config, x_weights=weights)


def _save(report: RiskReport, folder: Path) -> None:
    from pvf.plots import report_figures
    from tda_bias.records.figures import write_figure

    report.save(folder)
    for name, figure in report_figures(report).items():
        write_figure(folder, name, figure)
