"""``tdabias pvf``: prejudice and volatility in a model's output probabilities."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cli.loading import language_model, out_of_memory_in_one_line, progress_bar
from cli.settings import PvfSettings, from_flags_and_file, option
from pvf.config import Kind, Quantity, RiskConfig, ScoreConfig
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd

    from pvf.preferences import Preferences
    from pvf.results import RiskReport

app = typer.Typer(
    help="Prejudice and volatility in a model's output probabilities.",
    invoke_without_command=True,
    no_args_is_help=True,
)
_option = partial(option, PvfSettings)
_Runs = Annotated[list[Path], typer.Argument(help="Folders that `tdabias pvf` wrote.")]
# Documents between two saves of an unfinished run.
_SAVE_EVERY = 50

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
    reports = {}
    for name in settings.model:
        preferences = _score(settings, name)
        weights = _x_weights(settings.x_weights, preferences)
        reports[name] = _report(preferences, settings.part(RiskConfig), weights)
        _save(reports[name], settings.folder(name))
    _print(reports, settings.top, settings.format, {n: settings.folder(n) for n in settings.model})


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
        preferences = _score(settings, name)
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
    _print(reports, settings.top, settings.format, folders)


@app.command()
def social(
    run: Annotated[Path, typer.Argument(help="Folder that `tdabias pvf` wrote.")],
    factors: Annotated[Path, typer.Option(help="CSV with the columns x,factor,...[,weight]")],
    response: Annotated[Quantity, typer.Option(help="what is explained")] = "r",
    out: Annotated[Path | None, typer.Option(help="folder for the files [RUN/social]")] = None,
) -> None:
    """Regress the risk of each x on factors of yours: pay, education, share of women, ..."""
    from matplotlib.figure import Figure

    from pvf.plots import plot_regression
    from pvf.results import load_report
    from pvf.social import load_factors, regressions
    from tda_bias.storage import atomic

    own = load_factors(factors)
    by_x = load_report(run).by_x
    table = regressions(by_x, own, response=response)
    folder = out or run / "social"
    with atomic(folder / "regressions.csv") as path:
        table.to_csv(path, index=False)
    for number, name in enumerate(own.table.columns, start=1):
        figure = Figure(figsize=(4.8, 3.6), layout="constrained")
        plot_regression(by_x, own, name, response=response, ax=figure.subplots())
        _save_figure(figure, folder, f"factor{number}")
    console = Console(highlight=False)
    columns = ["factors", "fit", "factor", "slope", "se", "p", "p_hc3", "r2", "n", "spearman"]
    console.print(_as_table(table[columns], f"{response} of each x on its factors"))
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
    from pvf.results import comparison, load_report

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
        _save_figure(figure, out, name)
    typer.echo(f"Files: {', '.join(f'{out}/{name}.png' for name in figures)} (and .svg)")


@app.command()
def mine(
    corpus: Annotated[
        str,
        typer.Argument(
            help=".txt, .jsonl or .zst file, or a data set on the hub, NAME[:CONFIGURATION]"
        ),
    ],
    kind: Annotated[
        Kind, typer.Option(help="gender: The [X] said that [Y]; race: The [X], who said it, is [Y]")
    ] = "gender",
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV to write")] = Path("templates.csv"),
    pipeline: Annotated[
        str, typer.Option(help="English spaCy pipeline, by the name it is installed under")
    ] = "en_core_web_sm",
    documents: Annotated[
        int | None, typer.Option("--documents", "-n", min=1, help="random sample of so many [all]")
    ] = None,
    field: Annotated[str, typer.Option(help="where the text is, in JSON Lines")] = "text",
    split: Annotated[str, typer.Option(help="of a data set")] = "train",
    min_count: Annotated[int, typer.Option(min=1, help="distinct sentences per template")] = 2,
    min_documents: Annotated[int, typer.Option(min=1, help="documents per template")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="of the sample")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="go on where an earlier run stopped")
    ] = True,
) -> None:
    """Mine context templates from a corpus, and compare them with the published ten."""
    if not Path(corpus).is_file():
        from cli.hub import use_cache_if_unreachable

        use_cache_if_unreachable()

    from pvf.corpora import documents as read_documents
    from pvf.mining import Mined, load_pipeline, mined_table, overlap
    from pvf.mining import mine as mine_documents
    from pvf.templates import load_templates
    from tda_bias.storage import atomic

    nlp = load_pipeline(pipeline)
    meta = f"{nlp.lang}_{nlp.meta['name']} {nlp.meta['version']}"
    settings = {
        "corpus": corpus, "kind": kind, "documents": documents, "field": field, "split": split,
        "seed": seed, "pipeline": meta,
    }  # fmt: skip
    state = out.with_name(out.name + ".state.json")
    if not resume:
        state.unlink(missing_ok=True)
    mined = Mined.load(state, settings)
    source = read_documents(corpus, n=documents, field=field, split=split, seed=seed)
    console = Console(stderr=True)
    try:
        with progress_bar(console, f"mining {corpus}", "documents") as progress:

            def after(now: Mined) -> None:
                progress(now.done, documents)
                if now.done % _SAVE_EVERY == 0:
                    now.save(state, settings)

            mine_documents(nlp, source, kind=kind, mined=mined, after_document=after)
    except KeyboardInterrupt:
        typer.echo(
            f"Interrupted. {mined.done // _SAVE_EVERY * _SAVE_EVERY} documents are kept in "
            f"{state}; the same command goes on.",
            err=True,
        )
        raise typer.Exit(130) from None
    mined.save(state, settings)
    table = mined_table(mined, min_count=min_count, min_documents=min_documents)
    with atomic(out) as path:
        table.to_csv(path, index=False)
    typer.echo(
        f"{mined.done} documents, {mined.sentences} distinct sentences ({meta}): {len(table)} "
        f"templates with {int(table['count'].sum())} sentences, of {len(mined.counts)} candidates."
    )
    found = overlap(table, load_templates(kind))
    recall = ", ".join(f"{value:.0%} among the first {k}" for k, value in found.recall.items())
    typer.echo(
        f"Of the published ten: {recall}; {found.found} at all. Weighted Jaccard "
        f"{found.jaccard:.2f}; share of The [X] VERB that [Y]: {found.that_share:.0%}."
    )
    typer.echo(f"Files: {out} (for --templates), {state}")


# -- parts -----------------------------------------------------------------------------------------


def _score(settings: PvfSettings, name: str) -> Preferences:
    from pvf.templates import load_templates
    from pvf.words import load_classes, load_words
    from tda_bias.storage import prepare_folder

    words, classes = load_words(settings.words), load_classes(settings.attribute)
    # What follows the slot is refused later, once the kind of model is known.
    templates = load_templates(settings.template_source, y_last=False)
    prepare_folder(settings.folder(name))
    console = Console(stderr=True)
    model = language_model(name, device=settings.device, dtype=settings.dtype, console=console)

    from pvf.score import score_preferences

    title = f"{name} · {settings.attribute}"
    with (
        progress_bar(console, title, "rows") as progress,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        preferences = score_preferences(
            model, words, templates, classes, config=settings.part(ScoreConfig), progress=progress
        )
    preferences.save(settings.folder(name))
    return preferences


def _x_weights(path: Path | None, preferences: Preferences) -> Any:
    from pvf.results import load_x_weights

    if path is None:
        return None
    weights, missing = load_x_weights(path, preferences.x)
    if missing:
        typer.echo(f"No weight, so 0: {', '.join(missing)}", err=True)
    return weights


def _report(preferences: Preferences, config: RiskConfig, weights: Any) -> RiskReport:
    from pvf.results import risk_report

    return risk_report(preferences, config=config, x_weights=weights)


def _save(report: RiskReport, folder: Path) -> None:
    from pvf.plots import report_figures

    report.save(folder)
    for name, figure in report_figures(report).items():
        _save_figure(figure, folder, name)


def _save_figure(figure: Any, folder: Path, name: str) -> None:
    from tda_bias.storage import atomic

    for suffix in ("png", "svg"):
        with atomic(folder / f"{name}.{suffix}") as path:
            figure.savefig(path, dpi=200)


# -- what is printed -------------------------------------------------------------------------------


def _print(reports: dict[str, RiskReport], top: int, format: str, folders: dict[str, Path]) -> None:
    from pvf.results import comparison

    table = comparison(reports)
    if format == "json":
        typer.echo(_as_json(reports, table, folders))
        return
    console = Console(highlight=False)
    console.print(risk_table(table, next(iter(reports.values()))))
    for name, report in reports.items():
        console.print(extremes_table(report, top))
        for line in [*control_lines(report), f"Files: {folders[name]}/ (by_x.csv, run.json, ...)"]:
            console.print(line, soft_wrap=True)


def risk_table(table: pd.DataFrame, report: RiskReport) -> Table:
    """R, R_p and R_v of every model, with intervals, above the reference models."""
    config, n = report.config, report.controls
    title = (
        f"{' / '.join(n['classes'])} · {n['x']} words x, {n['templates']} templates · "
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
    return _as_table(chosen[columns], title)


def _as_table(table: pd.DataFrame, title: str) -> Table:
    shown = Table(title=title, title_justify="left")
    for name in table.columns:
        text = table[name].dtype.kind not in "fiu"
        shown.add_column(name, justify="left" if text else "right")
    for row in table.itertuples(index=False):
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    return shown


def control_lines(report: RiskReport) -> list[str]:
    """What the numbers must be held against."""
    n = report.controls
    null = report.summary.iloc[-1]
    lines = [
        f"Union mass (probability of any listed word): mean {n['union_mass_mean']:.3g}, median "
        f"{n['union_mass_median']:.3g}, 5 % to 95 % {n['union_mass_q05']:.2g} to "
        f"{n['union_mass_q95']:.2g}. Where it is small, preferences mean little.",
        f"Contexts: {n['templates']} templates weigh like {n['n_effective_contexts']:.1f}. So few "
        f"give even a model without prejudice, whose preferences are random in each template, "
        f"R_p = {null['R_p']:.3f}.",
    ]
    if n["words_shared_by_classes"] or n["words_not_read"]:
        shared, unread = n["words_shared_by_classes"], n["words_not_read"]
        lines.append(
            f"Words not read: {len(shared)} in two classes, {len(unread)} that these settings "
            "exclude for this tokenizer; run.json names them."
        )
    if n["words_that_begin_others"]:
        lines.append(
            f"Words that are, in tokens, the beginning of another: "
            f"{len(n['words_that_begin_others'])}; what continues to the longer one is not counted "
            "for the shorter."
        )
    if n["prompts_without_mass"] or n["prompts_left_out"]:
        lines.append(
            f"{n['prompts_without_mass']} prompts give no listed word any probability (uniform "
            f"there); {n['prompts_left_out']} are left out by --min-mass."
        )
    if report.config.definition == "one_sided":
        lines.append("One-sided, as the published code: half the paper's volatility.")
    return lines


def _as_json(reports: dict[str, RiskReport], table: pd.DataFrame, folders: dict[str, Path]) -> str:
    from tda_bias.storage import plain

    found = {
        "summary": table.to_dict("records"),
        "models": {
            name: {
                "folder": str(folders[name]),
                "model": report.preferences.record["model"],
                "controls": report.controls,
                "x": report.by_x.to_dict("records"),
            }
            for name, report in reports.items()
        },
    }
    return json.dumps(plain(found), indent=2, allow_nan=False)
