"""``tdabias pvf plot`` and ``pvf social``: figures and regressions of saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pvf.config import Quantity

from .options import Positional, command
from .output import Output
from .settings import FilePath, OutputSettings, Several
from .text import table_of

if TYPE_CHECKING:
    from pvf.report import RiskReport


class SocialSettings(OutputSettings):
    """Settings of ``tdabias pvf social``."""

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias pvf` wrote.")
    factors: FilePath = Field(description="CSV with the columns x,factor,...[,weight]")
    response: Quantity = Field("r", description="what is explained")
    out: FilePath | None = Field(None, description="folder for the files (default: RUN/social)")


class PlotSettings(OutputSettings):
    """Settings of ``tdabias pvf plot``."""

    runs: Annotated[tuple[FilePath, ...], Positional()] = Field(
        description="Folders that `tdabias pvf` wrote."
    )
    x: Annotated[tuple[str, ...], Several] = Field(
        (), description="word x for the heat map; may be given several times"
    )
    out: FilePath = Field(Path("figures-pvf"), description="folder for the figures")


@command(SocialSettings)
def social(settings: SocialSettings) -> None:
    """Regress the risk of each x on factors of yours: pay, education, share of women, ..."""
    from matplotlib.figure import Figure

    from pvf.plots import plot_regression
    from pvf.report import load_report
    from pvf.social import load_factors, regressions
    from tda_bias.runs.figures import write_figure
    from tda_bias.runs.run import refuse_run_of_another_command
    from tda_bias.runs.tables import write_csv

    folder = settings.out or settings.run / "social"
    refuse_run_of_another_command(folder, "pvf social")
    chosen = load_factors(settings.factors)
    by_x = load_report(settings.run).by_x
    table = regressions(by_x, chosen, response=settings.response)
    write_csv(folder / "regressions.csv", table)
    for number, name in enumerate(chosen.table.columns, start=1):
        figure = Figure(figsize=(4.8, 3.6), layout="constrained")
        plot_regression(by_x, chosen, name, response=settings.response, ax=figure.subplots())
        write_figure(folder, f"factor{number}", figure)
    columns = ["factors", "fit", "factor", "slope", "se", "p", "p_hc3", "r2", "n", "spearman"]
    title = f"{settings.response} of each x on its factors"
    files = f"Files: {folder}/ (regressions.csv, factor1.png, ...)"
    Output(
        shown=[table_of(table[columns], title), files],
        values={"folder": str(folder), "regressions": table.to_dict("records")},
        rows=table,
    ).print(settings)


@command(PlotSettings)
def plot(settings: PlotSettings) -> None:
    """Draw the figures of one run, or compare several."""
    import pandas as pd
    from matplotlib.figure import Figure

    from pvf import plots
    from pvf.report import comparison, load_report
    from tda_bias.runs.figures import write_figure
    from tda_bias.runs.run import refuse_run_of_another_command

    refuse_run_of_another_command(settings.out, "pvf plot")
    reports: dict[str, RiskReport] = {}
    for folder in settings.runs:
        report = load_report(folder)
        reports[report.model if report.model not in reports else str(folder)] = report
    comparison(reports)  # refuses what cannot stand in one figure
    figures: dict[str, Figure] = {}
    for name, report in reports.items():
        prefix = f"{name.replace('/', '--')}-" if len(reports) > 1 else ""
        for kind, figure in plots.report_figures(report, x=settings.x or None).items():
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
    rows = []
    for name, figure in figures.items():
        files = write_figure(settings.out, name, figure)
        rows.append({"figure": name, "files": " ".join(path.name for path in files)})
    named = ", ".join(f"{settings.out}/{name}.png" for name in figures)
    Output(
        shown=[f"Files: {named} (and .svg)"],
        values={"folder": str(settings.out), "figures": list(figures)},
        rows=pd.DataFrame(rows),
    ).print(settings)
