"""``tdabias report`` and ``tdabias show``: saved runs as one page, or printed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tda_bias.show.output import Output
from tda_bias.show.page import Audited, Section, audit_html, page_html
from tda_bias.show.text import Finding, counted
from tda_bias.store.files import write_text
from tda_bias.store.run import Run, open_run, refuse_file_of_a_run, with_parts
from tda_bias.types import MAX_COUNT, InputError

from .commands import FORMS, SPECS
from .options import Positional, command_line
from .run import shown
from .settings import OutputSettings
from .spec import imported


class ReportSettings(OutputSettings):
    """Settings of ``tdabias report``."""

    runs: Annotated[tuple[Path, ...], Positional()] = Field(
        description="Folders of finished runs, of any commands, or of folders of such."
    )
    out: Path = Field(Path("report.html"), description="the file to write")
    audit: bool = Field(
        False,
        description="add what an auditor files: outcomes with their limits, data sets and "
        "licences, how to repeat each run, what it is evidence for (NIST AI RMF, EU AI Act)",
    )


def report(settings: ReportSettings) -> Output:
    """Write the page."""
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
    return Output(
        shown=[f"Page: {settings.out} ({said})"],
        values={"page": str(settings.out), "bytes": size, "runs": table["run"].tolist()},
        rows=table.assign(command=[run.command for run in runs]),
    )


# -- one run ---------------------------------------------------------------------------------------


def _section(run: Run, runs: Sequence[Run]) -> Section:
    from tda_bias.plots.run_page import page_parts

    from .figures import catalogue

    record = json.loads(run.record.model_dump_json())
    parts = page_parts(run, runs, catalogue())
    if said := _concealed(run):
        record = _without(record, said)
        parts["tables"] = {
            name: table.rename(columns=said).replace(said)
            for name, table in parts["tables"].items()
        }
    return Section(
        title=f"tdabias {run.command}: {run.model} ({run.folder.name})",
        findings=_findings_and_remarks(run),
        command=_again(run),
        record=json.dumps(record, indent=1, ensure_ascii=False),
        **parts,
    )


def _concealed(run: Run) -> dict[str, str]:
    """A note that replaces the words of an offensive list on the page; files keep them."""
    if run.command != "pvf":
        return {}
    from pvf.preferences import PreferencesRecord

    return run.record_as(PreferencesRecord).concealed()


def _without(value: Any, said: Mapping[str, str]) -> Any:
    """A record, or a part of it, with other words in the place of some."""
    if isinstance(value, dict):
        return {said.get(key, key): _without(item, said) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, said) for item in value]
    return said.get(value, value) if isinstance(value, str) else value


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
    return printed(run, top=top).parts if run.command in FORMS else []


def audited(run: Run) -> Audited:
    """A run as an audit lists it, with the groups that the first table with groups names."""
    whom = ""
    for name in (
        "groups.csv", "items.parquet", "by_subject.csv", "conditions.csv", "responses.parquet",
    ):  # fmt: skip
        if run.has(name) and "group" in (table := run.table(name)):
            groups = sorted(set(table["group"].astype(str)) - {"all"})
            whom = f"{counted(len(groups), 'target')}: {', '.join(groups)}"
            break
    return Audited(str(run.folder), run.record, _findings(run), _again(run), whom)


# -- how to make a run again -----------------------------------------------------------------------


def _again(run: Run) -> str:
    """The command line of a run, as far as its record tells."""
    spec = next((spec for spec in SPECS.values() if run.command in spec.forms), None)
    if spec is None:
        return ""
    words, settings = spec.name.split(), imported(spec.settings)
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


def show(settings: ShowSettings) -> Output:
    """Print a finished run again."""
    run = open_run(settings.run, *FORMS)
    return printed(run, top=settings.top or run.record.setting("top", 10))


def printed(run: Run, *, top: int = 10) -> Output:
    """Output of a finished run; of a ranking the first ``top`` rows."""
    form = FORMS[run.command]
    return shown(form, run.load(imported(form.load)), run.folder, top)
