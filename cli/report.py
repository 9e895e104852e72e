"""``tdabias report`` and ``tdabias show``: saved runs as one page, or printed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from tda_bias.runs.text import Finding, counted
from tda_bias.types import MAX_COUNT, InputError

from .options import Positional, command, command_line
from .output import Output
from .settings import OutputSettings

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.runs.page import Audited, Chart, Section
    from tda_bias.runs.run import Run


class ReportSettings(OutputSettings):
    """Settings of ``tdabias report``."""

    runs: Annotated[tuple[Path, ...], Positional()] = Field(
        description="Folders of finished runs, of any commands."
    )
    out: Path = Field(Path("report.html"), description="the file to write")
    audit: bool = Field(
        False,
        description="add what an auditor files: outcomes with their limits, data sets and "
        "licences, how to repeat each run, what it is evidence for (NIST AI RMF, EU AI Act)",
    )


@command(ReportSettings)
def report(settings: ReportSettings) -> None:
    """Write one page that opens anywhere: findings, map of heads, texts, charts, tables."""
    import pandas as pd

    from tda_bias.runs.files import write_text
    from tda_bias.runs.page import audit_html, page_html
    from tda_bias.runs.run import refuse_file_of_a_run

    refuse_file_of_a_run(settings.out, setting="out")
    runs = _opened(settings.runs)
    models = list(dict.fromkeys(run.model for run in runs))
    audit = audit_html([audited(run) for run in runs]) if settings.audit else ""
    text = page_html(
        f"Stereotypes in {', '.join(models)}",
        "Which attention heads carry them, how sure that is, in which texts, and whether the "
        "model's preferences follow them. Each section begins with its finding, with its controls, "
        "its power and the next commands.",
        [_section(run, runs) for run in runs],
        command=command_line(["report"], settings),
        audit=audit,
    )
    write_text(settings.out, text)
    size = len(text.encode())
    said = f"{counted(len(runs), 'run')}, {size / 1e6:.1f} MB, one file that fetches nothing"
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
    from tda_bias.runs.page import Section

    findings = _findings(run)
    if run.command == "heads":
        parts = _heads(run, runs)
    else:
        parts = {"charts": _charts(run, runs), "tables": _tables(run, runs)}
        remarks = [part for part in _printed(run) if isinstance(part, str)]
        if findings and remarks:
            title, last = findings[-1]
            findings[-1] = (title, replace(last, details=[*last.details, *remarks]))
    record = json.loads(run.record.model_dump_json())
    return Section(
        title=f"tdabias {run.command}: {run.model} ({run.folder.name})",
        command=_again(run),
        record=json.dumps(record, indent=1, ensure_ascii=False),
        **{"findings": findings, **parts},
    )


def _heads(run: Run, runs: Sequence[Run]) -> dict[str, Any]:
    from tda_bias.heads.finding import run_remarks
    from tda_bias.heads.result import HeadBias
    from tda_bias.plots.explorer import explorer
    from tda_bias.runs.run import made_from

    result = run.load(HeadBias.load)
    others = [other for other in runs if other.command == "ablate" and made_from(other, run)]
    columns = [
        name
        for name in result.category.columns
        if not name.startswith(("model", "n_", "z_null_", "sd_null_")) and "signed" not in name
    ]
    remarks = run_remarks(result)
    caution = [("Caveats", Finding(result=remarks))] if remarks else []
    return {
        "findings": [*_findings(run), *caution],
        "explorer": explorer(run, others),
        "tables": {
            "heads": result.category[columns],
            "groups": result.groups.drop(columns="model"),
        },
    }


def _findings(run: Run) -> list[tuple[str, Finding]]:
    """The findings of a run, as its command prints them, with what each is about."""
    if run.command == "heads":
        from tda_bias.heads.result import HeadBias

        from . import heads

        result = run.load(HeadBias.load)
        return [(name, heads.finding(result, run.folder, name)) for name in result.categories]

    return [("", part) for part in _printed(run) if isinstance(part, Finding)]


def _printed(run: Run) -> list[Any]:
    """Printed output of a run, without where its files are."""
    top = int(run.record.settings.get("top") or 10)
    return printed(run, top=top).parts if run.command in PRINTED else []


def audited(run: Run) -> Audited:
    """A run as an audit lists it, with the groups that the first table with groups names."""
    from tda_bias.runs.page import Audited

    whom = ""
    for name in ("groups.csv", "items.parquet", "by_subject.csv", "conditions.csv"):
        if run.has(name) and "group" in (table := run.table(name)):
            groups = sorted(set(table["group"].astype(str)) - {"all"})
            whom = f"{counted(len(groups), 'target')}: {', '.join(groups)}"
            break
    return Audited(str(run.folder), run.record, _findings(run), _again(run), whom)


def _charts(run: Run, runs: Sequence[Run]) -> list[Chart]:
    from tda_bias.plots import charts

    drawn: dict[str, Callable[[Run], list[Chart]]] = {
        "stereoset": lambda run: charts.stereoset(run, _texts(runs)),
        "ablate": charts.ablate,
        "crossref": charts.crossref,
        "ablate curve": charts.prune_curve,
        "compare": charts.compare,
        "debias": charts.debias,
        "pvf": charts.pvf,
        "unqover": charts.unqover,
    }
    return drawn[run.command](run) if run.command in drawn else []


def _tables(run: Run, runs: Sequence[Run]) -> dict[str, pd.DataFrame]:
    """Every table of a run, with the texts of its items where another run has them."""
    texts = _texts(runs)
    tables = {}
    for name in run.record.files:
        if name.endswith((".csv", "items.parquet")):
            table = run.table(name)
            if "id" in table and texts:
                table = table.assign(text=table["id"].map(lambda key: texts.get(str(key), "")))
            tables[name.rpartition(".")[0]] = table
    return tables


def _texts(runs: Sequence[Run]) -> dict[str, str]:
    """Texts of items by name, from runs of heads, which keep them."""
    from tda_bias.heads.items import ITEMS_ARRAYS, ItemDifferences

    texts: dict[str, str] = {}
    for run in runs:
        if run.command == "heads" and run.has(ITEMS_ARRAYS):
            table = ItemDifferences.read(run).items
            if "stereotype" in table:
                texts |= dict(zip(table["id"], table["stereotype"], strict=True))
    return texts


# -- how to make a run again -----------------------------------------------------------------------


def _again(run: Run) -> str:
    """The command line of a run, as far as its record tells."""
    words = run.command.split()
    try:
        module = import_module(f".{words[0]}", __package__)
    except ModuleNotFoundError:
        return ""
    if not hasattr(module, words[-1]):  # a form of the command: "ablate curve"
        words = words[:1]
    settings: type[BaseModel] = getattr(module, words[-1]).settings
    try:
        return command_line(words, settings(**_given(settings, run.record.settings)))
    except (InputError, ValueError):  # a run of another version, whose settings had other names
        return ""


def _given(settings: type[BaseModel], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Settings beside the defaults, by names that the class takes."""
    given = {}
    for name, field in settings.model_fields.items():
        value = saved.get(field.alias or name, saved.get(name))
        value = tuple(value) if isinstance(value, list) else value
        if value is not None and str(value) != str(field.default):
            given[field.alias or name] = value
    return given


# -- a run printed again -----------------------------------------------------------------------


class ShowSettings(OutputSettings):
    """Settings of ``tdabias show``."""

    run: Annotated[Path, Positional()] = Field(description="Folder of a finished run.")
    top: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="rows of a ranking (default: the run's)"
    )


@command(ShowSettings)
def show(settings: ShowSettings) -> None:
    """Print a finished run again, from its folder and without the model."""
    from tda_bias.runs.run import open_run

    run = open_run(settings.run, *PRINTED)
    printed(run, top=settings.top or run.record.setting("top", 10)).print(settings)


def printed(run: Run, *, top: int = 10) -> Output:
    """Output of a run.

    Args:
        run: Of a command whose runs are printed again.
        top: Rows of a ranking.

    Raises:
        InputError: if a file is not as the run wrote it.
    """
    place = PRINTED[run.command]
    if run.command == "compare":
        place = _COMPARED.get(getattr(run.record, "compares", ""), place)
    result = _named(place.result)
    result = run.load(getattr(result, "load", result))
    made: Output = _named(place.output, package=__package__)(
        result, run.folder, *([top] if place.has_top else [])
    )
    return made


class _Printed(NamedTuple):
    """The loader and the printer of a kind of run, and whether rows are cut."""

    result: str
    output: str
    has_top: bool = False


def _named(place: str, package: str | None = None) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f".{module}" if package else module, package), name)


PRINTED = {
    "heads": _Printed("tda_bias.heads.result:HeadBias", "heads:output", True),
    "pvf": _Printed("pvf.report:load_report", "pvf:saved", True),
    "unqover": _Printed("unqover.answers:Answers", "unqover:saved", True),
    "ablate": _Printed("tda_bias.ablation.study:AblationStudy", "ablate:output"),
    "ablate curve": _Printed("tda_bias.ablation.prune_curve:PruneCurve", "ablate:curve_output"),
    "stereoset": _Printed("tda_bias.scores.stereoset_scores:StereoSetScores", "stereoset:output"),
    "stereoset intrasentence": _Printed(
        "tda_bias.scores.stereoset_scores:SentenceScores", "stereoset:sentences_output"
    ),
    "crossref": _Printed("tda_bias.crossref.crossref:CrossReference", "crossref:target_output"),
    "crossref items": _Printed(
        "tda_bias.crossref.item_crossref:ItemCrossReference", "crossref:item_output"
    ),
    "crossref published": _Printed(
        "tda_bias.paper.rankings:PublishedAgreement", "crossref:published_output"
    ),
    "debias": _Printed("tda_bias.debias.result:DebiasRun", "debias:output"),
    "pairs": _Printed("tda_bias.scores.pair_scores:PairSetScores", "pairs:output"),
    "confirm": _Printed("tda_bias.runs.run:open_run", "confirm:saved"),
    "compare": _Printed("tda_bias.comparison.models:ModelComparison", "compare:output"),
}
# Comparisons of two runs, by what they compare.
_COMPARED = {
    "heads": _Printed("tda_bias.comparison.head_maps:HeadsComparison", "compare:heads_output"),
    "beta": _Printed("tda_bias.comparison.beta_agreement:BetaAgreement", "compare:beta_output"),
}
