"""``tdabias report``: one page that people can look into, from saved runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from tda_bias.types import InputError

from .options import Positional, command, command_line
from .output import Finding, Output
from .settings import FilePath, OutputSettings

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias
    from tda_bias.runs.page import Chart, Section, TablePart
    from tda_bias.runs.page import Finding as Part
    from tda_bias.runs.run import Run


class ReportSettings(OutputSettings):
    """Settings of ``tdabias report``."""

    runs: Annotated[tuple[FilePath, ...], Positional()] = Field(
        description="Folders of finished runs, of any commands."
    )
    out: FilePath = Field(Path("report.html"), description="the file to write")


@command(ReportSettings)
def report(settings: ReportSettings) -> None:
    """Write one page that opens anywhere: findings, map of heads, texts, charts, tables."""
    import pandas as pd

    from tda_bias.runs.files import write_text
    from tda_bias.runs.page import Page, page_html
    from tda_bias.runs.run import refuse_file_of_a_run

    refuse_file_of_a_run(settings.out, setting="out")
    runs = _opened(settings.runs)
    models = list(dict.fromkeys(run.model for run in runs))
    sections = [_section(run, runs) for run in runs]
    page = Page(
        title=f"Stereotypes in {', '.join(models)}",
        lead="Which attention heads carry them, how sure that is, in which texts, and what it has "
        "to do with what the model says. Each section begins with "
        "its finding; controls, power and details are folded below it.",
        sections=sections,
        command=command_line(["report"], settings),
    )
    text = page_html(page)
    write_text(settings.out, text)
    size, several = len(text.encode()), "" if len(runs) == 1 else "s"
    said = f"{len(runs)} run{several}, {size / 1e6:.1f} MB, one file that fetches nothing"
    table = pd.DataFrame({"run": [str(run.folder) for run in runs]})
    Output(
        shown=[f"Page: {settings.out} ({said})"],
        values={"page": str(settings.out), "bytes": size, "runs": table["run"].tolist()},
        rows=table.assign(command=[run.command for run in runs]),
    ).print(settings)


def _opened(folders: Sequence[Path]) -> list[Run]:
    """The runs that were given, and those inside that were made from them."""
    from tda_bias.runs.files import RECORD
    from tda_bias.runs.run import made_from, open_run

    runs = [open_run(folder) for folder in dict.fromkeys(folders)]
    for run in list(runs):
        for name in ("ablate", "crossref"):
            inside = run.folder / name
            if (inside / RECORD).is_file() and inside not in folders:
                part = open_run(inside)
                if made_from(part, run):
                    runs.append(part)
    return runs


# -- one run ---------------------------------------------------------------------------------------


def _section(run: Run, runs: Sequence[Run]) -> Section:
    from tda_bias.runs.page import Section, plain_record

    parts = _heads(run, runs) if run.command == "heads" else _others(run, runs)
    record = json.loads(run.record.model_dump_json())
    return Section(
        title=f"tdabias {run.command}: {run.model} ({run.folder.name})",
        command=_again(run),
        record=plain_record(record),
        **parts,
    )


def _heads(run: Run, runs: Sequence[Run]) -> dict[str, Any]:
    from tda_bias.heads.result import HeadBias
    from tda_bias.plots.explorer import explorer
    from tda_bias.runs.page import TablePart
    from tda_bias.runs.run import made_from

    result = run.load(HeadBias.load)
    others = [other for other in runs if other.command == "ablate" and made_from(other, run)]
    columns = [
        name
        for name in result.category.columns
        if not name.startswith(("model", "n_", "z_null_", "sd_null_")) and "signed" not in name
    ]
    findings = [_finding(result, run.folder, category) for category in result.categories]
    return {
        "findings": [*findings, *_caution(result)],
        "explorer": explorer(run, others),
        "tables": [
            TablePart("Heads by category", "heads", result.category[columns]),
            TablePart("Groups", "groups", result.groups.drop(columns="model")),
        ],
    }


def _finding(result: HeadBias, folder: Path, category: str) -> Part:
    """The finding of a category, as the command prints it."""
    from tda_bias.runs.page import Finding as Part

    from . import heads

    found = heads.finding(result, folder, category)
    return Part(
        title=category, lines=found.result, controls=[*found.control, *found.power, *found.details]
    )


def _caution(result: HeadBias) -> list[Part]:
    """Warnings that belong to the whole run."""
    from tda_bias.runs.page import Finding as Part

    from . import heads

    lines = [line for line in heads.run_lines(result, Path()) if not line.startswith("Files: ")]
    return [Part(title="To be kept in mind", lines=lines)] if lines else []


def _others(run: Run, runs: Sequence[Run]) -> dict[str, Any]:
    from tda_bias.runs.page import Finding as Part

    from .show import printed

    output = printed(run)
    shown = output.shown if output is not None else []
    said = [part for part in shown if isinstance(part, str) and not part.startswith("Files: ")]
    found = [part for part in shown if isinstance(part, Finding)]
    findings = [
        Part(title="", lines=part.result, controls=[*part.control, *part.power, *part.details])
        for part in found
    ]
    if said and findings:
        findings[-1] = Part(
            title="", lines=findings[-1].lines, controls=[*findings[-1].controls, *said]
        )
    return {"findings": findings, "charts": _charts(run, runs), "tables": _tables(run, runs)}


def _charts(run: Run, runs: Sequence[Run]) -> list[Chart]:
    from pvf.charts import charts as pvf
    from tda_bias.plots import charts
    from unqover.charts import charts as unqover

    texts = _texts(runs)
    drawn: dict[str, Callable[[Run], list[Chart]]] = {
        "stereoset": lambda run: charts.stereoset(run, texts),
        "ablate": charts.ablate,
        "crossref": charts.crossref,
        "prune-curve": charts.prune_curve,
        "compare": charts.compare,
        "debias": charts.debias,
        "pvf": pvf,
        "pvf risk": pvf,
        "unqover": unqover,
    }
    return drawn[run.command](run) if run.command in drawn else []


def _texts(runs: Sequence[Run]) -> dict[str, str]:
    """Texts of items by name, from runs of heads, which keep them."""
    from tda_bias.heads.item_differences import ARRAYS, ItemDifferences

    texts: dict[str, str] = {}
    for run in runs:
        if run.command == "heads" and run.has(ARRAYS):
            table = ItemDifferences.read(run).items
            if "stereotype" in table:
                texts |= dict(zip(table["id"], table["stereotype"], strict=True))
    return texts


def _tables(run: Run, runs: Sequence[Run]) -> list[TablePart]:
    """Every table of a run."""
    from tda_bias.runs.page import TablePart

    texts = _texts(runs)
    parts = []
    for name in run.record.files:
        if not name.endswith((".csv", "items.parquet")):
            continue
        table = run.plain_table(name)
        if "id" in table and texts:
            table = table.assign(text=table["id"].map(lambda key: texts.get(str(key), "")))
        stem = name.rpartition(".")[0]
        parts.append(TablePart(stem.replace("_", " "), stem, table))
    return parts


# -- how to make a run again -----------------------------------------------------------------------


def _again(run: Run) -> str:
    """The command line of a run, as far as its record tells."""
    settings = _settings_class(run.command)
    if settings is None:
        return ""
    given = _told(settings, run.record.settings)
    try:
        return command_line(run.command.split(), settings(**given))
    except (InputError, ValueError):  # a run of another version, whose settings had other names
        return ""


def _settings_class(name: str) -> type[BaseModel] | None:
    word = name.split()[0].replace("-", "_")
    try:
        module = import_module(f".{word}", __package__)
    except ModuleNotFoundError:
        return None
    wanted = "".join(part.title() for part in name.replace("-", " ").split()) + "settings"
    for label, value in vars(module).items():
        if label.lower() == wanted.lower():
            return value if isinstance(value, type) and issubclass(value, BaseModel) else None
    return None


def _told(settings: type[BaseModel], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Settings beside the defaults, by names that the class takes."""
    told = {}
    for name, field in settings.model_fields.items():
        value = saved.get(field.alias or name, saved.get(name))
        default = field.get_default(call_default_factory=True)
        if value is None or value == default or value == [] or str(value) == str(default):
            continue
        told[field.alias or name] = value
    return told
