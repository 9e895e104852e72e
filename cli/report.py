"""``tdabias report`` and ``tdabias show``: saved runs as one page, or printed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tda_bias.show.output import Output
from tda_bias.show.page import Audited, Section, audit_html, page_html
from tda_bias.show.text import Finding, counted
from tda_bias.store.files import write_text
from tda_bias.store.run import Run, open_run, refuse_file_of_a_run, with_parts
from tda_bias.types import MAX_COUNT, InputError

from .options import Positional, command, command_line
from .settings import OutputSettings


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
    """Write one page that opens anywhere: findings, map of heads, texts, figures, tables."""
    import pandas as pd

    refuse_file_of_a_run(settings.out, setting="out")
    runs = with_parts(settings.runs)
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


# -- one run ---------------------------------------------------------------------------------------


def _section(run: Run, runs: Sequence[Run]) -> Section:
    from tda_bias.plots.run_page import page_parts

    from .figures import catalogue

    record = json.loads(run.record.model_dump_json())
    return Section(
        title=f"tdabias {run.command}: {run.model} ({run.folder.name})",
        findings=_findings_and_remarks(run),
        command=_again(run),
        record=json.dumps(record, indent=1, ensure_ascii=False),
        **page_parts(run, runs, catalogue()),
    )


def _findings_and_remarks(run: Run) -> list[tuple[str, Finding]]:
    """The findings of a run, with what its command prints after them."""
    findings = _findings(run)
    if run.command == "heads":
        from tda_bias.heads.finding import run_remarks
        from tda_bias.heads.result import HeadBias

        remarks = run_remarks(run.load(HeadBias.load))
        return [*findings, *([("Caveats", Finding(result=remarks))] if remarks else [])]
    remarks = [part for part in _printed(run) if isinstance(part, str)]
    if findings and remarks:
        title, last = findings[-1]
        findings[-1] = (title, replace(last, details=[*last.details, *remarks]))
    return findings


def _findings(run: Run) -> list[tuple[str, Finding]]:
    """The findings of a run, as its command prints them, with what each is about."""
    if run.command == "heads":
        from tda_bias.heads.result import HeadBias
        from tda_bias.heads.shown import finding

        result = run.load(HeadBias.load)
        return [(name, finding(result, run.folder, name)) for name in result.categories]

    return [("", part) for part in _printed(run) if isinstance(part, Finding)]


def _printed(run: Run) -> list[Any]:
    """Printed output of a run, without where its files are."""
    top = int(run.record.settings.get("top") or 10)
    return printed(run, top=top).parts if run.command in PRINTED else []


def audited(run: Run) -> Audited:
    """A run as an audit lists it, with the groups that the first table with groups names."""
    whom = ""
    for name in ("groups.csv", "items.parquet", "by_subject.csv", "conditions.csv"):
        if run.has(name) and "group" in (table := run.table(name)):
            groups = sorted(set(table["group"].astype(str)) - {"all"})
            whom = f"{counted(len(groups), 'target')}: {', '.join(groups)}"
            break
    return Audited(str(run.folder), run.record, _findings(run), _again(run), whom)


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
    saved = run.record.settings
    try:
        if run.command == "pvf":  # `pvf risk` may have computed its risks anew
            from pvf.report import risk_options

            saved = saved | risk_options(run)
        return command_line(words, settings(**_given(settings, saved)))
    except (InputError, ValueError):
        # A run of another version, whose settings had other names, or of weights without a file.
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
    run = open_run(settings.run, *PRINTED)
    printed(run, top=settings.top or run.record.setting("top", 10)).print(settings)


def printed(run: Run, *, top: int = 10) -> Output:
    """Output of a run of one of ``PRINTED``; of a ranking the first ``top`` rows."""
    loader, shower = PRINTED[run.command]
    if run.command == "compare":
        loader, shower = _COMPARED.get(getattr(run.record, "compares", ""), (loader, shower))
    reader = _named(loader)
    result = run.load(getattr(reader, "load", reader))
    output: Output = _named(shower)(result, run.folder, top=top)
    return output


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


# What loads a run of a command, and what shows it.
PRINTED = {
    "heads": ("tda_bias.heads.result:HeadBias", "tda_bias.heads.shown:shown"),
    "pvf": ("pvf.report:load_report", "pvf.shown:shown"),
    "unqover": ("unqover.answers:Answers", "unqover.shown:answers_shown"),
    "ablate": ("tda_bias.ablation.study:AblationStudy", "tda_bias.ablation.shown:shown"),
    "ablate curve": (
        "tda_bias.ablation.prune_curve:PruneCurve",
        "tda_bias.ablation.shown:curve_shown",
    ),
    "stereoset": (
        "tda_bias.scores.stereoset_scores:StereoSetScores",
        "tda_bias.scores.shown:shown",
    ),
    "stereoset intrasentence": (
        "tda_bias.scores.stereoset_scores:SentenceScores",
        "tda_bias.scores.shown:sentences_shown",
    ),
    "crossref": ("tda_bias.crossref.crossref:CrossReference", "tda_bias.crossref.shown:shown"),
    "crossref items": (
        "tda_bias.crossref.item_crossref:ItemCrossReference",
        "tda_bias.crossref.shown:items_shown",
    ),
    "crossref published": (
        "tda_bias.paper.rankings:PublishedAgreement",
        "tda_bias.paper.shown:shown",
    ),
    "debias": ("tda_bias.debias.run_debias:DebiasRun", "tda_bias.debias.shown:shown"),
    "pairs": ("tda_bias.scores.pair_scores:PairSetScores", "tda_bias.scores.pairs_shown:shown"),
    "confirm": ("tda_bias.store.run:open_run", "tda_bias.heads.confirmation_shown:shown"),
    "compare": ("tda_bias.comparison.models:ModelComparison", "tda_bias.comparison.shown:shown"),
}
# Comparisons of two runs, by what they compare.
_COMPARED = {
    "heads": (
        "tda_bias.comparison.head_maps:HeadsComparison",
        "tda_bias.comparison.shown:heads_shown",
    ),
    "beta": (
        "tda_bias.comparison.beta_agreement:BetaAgreement",
        "tda_bias.comparison.shown:beta_shown",
    ),
}
