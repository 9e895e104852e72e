"""The page of saved runs: what they come to, what that rests on, and how to repeat it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tda_bias.show.audit import Audited, audit_of, facts
from tda_bias.show.output import Output
from tda_bias.show.page import Section, page_html
from tda_bias.show.text import Finding, counted, data_remarks, short_name, short_names
from tda_bias.show.verdict import corrected, lines_of, ordered, overall
from tda_bias.store.files import write_text
from tda_bias.store.run import Run, refuse_file_of_a_run
from tda_bias.types import InputError

from .commands import FORMS, SPECS
from .options import command_line
from .run import outcomes_of, printed
from .settings import PageSettings
from .spec import imported

if TYPE_CHECKING:
    from tda_bias.show.verdict import Outcome


# Runs stand in the order of the commands, not of their folders' names.
_PLACE = {command: place for place, command in enumerate(FORMS)}


def written_page(
    runs: Sequence[Run],
    out: Path,
    settings: PageSettings,
    command: str,
    *,
    scope: Sequence[str] = (),
) -> Output:
    """Write the page of runs; what is printed of it.

    ``scope`` says what was not measured, or of less than there is.
    """
    import pandas as pd

    refuse_file_of_a_run(out, setting="out")
    runs = sorted(runs, key=lambda run: _PLACE.get(run.command, len(_PLACE)))
    names = Names.given(runs, settings.name)
    read = [RunSaid.of(run, names) for run in runs]
    every = iter(corrected([names.outcome(one.run, own) for one in read for own in one.outcomes]))
    said = [replace(one, outcomes=[next(every) for _ in one.outcomes]) for one in read]
    outcomes = ordered([own for one in said for own in one.outcomes])
    verdict = overall(outcomes)
    text = page_html(
        _title(runs, names),
        outcomes,
        [_section(one, runs, names) for one in said],
        model=" and ".join(dict.fromkeys(names.of[run.model] for run in runs)),
        date=_date(runs),
        command=command,
        scope=scope,
        audit=audit_of(
            [_audited(one, names) for one in said],
            [line for one in said for line in one.caveats],
            verdict=verdict,
            scope=scope,
            command=command,
        ),
        tables=settings.tables,
    )
    write_text(out, text)
    size = len(text.encode())
    verdicts = [*lines_of(outcomes), *filter(None, [verdict])]
    about = f"{counted(len(runs), 'run')}, {size / 1e6:.1f} MB, one file that fetches nothing"
    values: dict[str, Any] = {"page": str(out), "bytes": size}
    values["runs"] = [str(run.folder) for run in runs]
    values["verdicts"] = [one.as_values() for one in outcomes]
    return Output(
        shown=[*verdicts, f"Page: {out} ({about})"],
        values=values,
        rows=pd.DataFrame({"run": values["runs"], "command": [run.command for run in runs]}),
    )


def run_outcomes(run: Run) -> list[Outcome]:
    """What a run comes to; nothing where its command has no verdict."""
    form = FORMS.get(run.command)
    if form is None or not form.outcomes:
        return []
    return outcomes_of(form, run.load(imported(form.load)))


# -- what the page calls things --------------------------------------------------------------------


@dataclass(frozen=True)
class Names:
    """By their own names, what models are called: never a path of this machine."""

    of: Mapping[str, str]
    several: bool  # whether the runs are of several models

    @classmethod
    def given(cls, runs: Sequence[Run], name: str | None) -> Names:
        """The names of the runs' models; ``name`` is that of the only one."""
        models = list(dict.fromkeys(run.model for run in runs))
        after = filter(None, map(_after, runs))
        every = list(dict.fromkeys([*models, *after]))
        short = dict(zip(every, short_names(every), strict=True))
        if name is not None and len(models) > 1:
            raise InputError(
                f"`name` is of one model, and the runs are of {len(models)}: {', '.join(models)}; "
                "leave --name out, or give fewer runs"
            )
        if name is not None:
            short[models[0]] = name
        return cls(short, len(models) > 1)

    def said(self, line: str) -> str:
        """A sentence with the models' names of the page."""
        # At once, the longest first: a name may be the beginning of another, or a short one of it.
        names = sorted(self.of, key=len, reverse=True)
        pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)"
        return re.sub(pattern, lambda found: self.of[found[0]], line) if names else line

    def outcome(self, run: Run, one: Outcome) -> Outcome:
        """An outcome of a run; with the model in its name where there are several."""
        if not self.several:
            return one
        model = self.of[run.model]
        return replace(one, name=f"{model}: {one.name}", model=model)

    def finding(self, found: Finding) -> Finding:
        """A finding with these names; commands keep the models' own."""

        def said(lines: Sequence[str]) -> list[str]:
            return [self.said(line) for line in lines]

        return replace(
            found,
            result=said(found.result),
            control=said(found.control),
            power=said(found.power),
            details=said(found.details),
        )


def _after(run: Run) -> str | None:
    """The other model of a comparison."""
    after = (run.record.model_extra or {}).get("after")
    return str(after["name"]) if isinstance(after, dict) and "name" in after else None


def _title(runs: Sequence[Run], names: Names) -> str:
    """The models, or of comparisons what is compared."""
    pairs = {
        f"{names.of[run.model]} and {names.of[after]}": None
        for run in runs
        if (after := _after(run)) is not None
    }
    if len(pairs) and all(_after(run) is not None for run in runs):
        return f"{', '.join(pairs)} · before and after"
    return f"{', '.join(dict.fromkeys(names.of[run.model] for run in runs))} · stereotypes"


def _date(runs: Sequence[Run]) -> str:
    """The day on which the last run was made."""
    days = [run.record.created for run in runs if run.record.created]
    return f"{datetime.fromisoformat(max(days)):%d %b %Y}".lstrip("0") if days else ""


def _run_title(run: Run, names: Names) -> str:
    """What a run is about, in words."""
    about = facts()["commands"][run.command.split()[0]]["outcome"]
    given = [run.record.settings.get(name) for name in ("category", "pairs", "attribute")]
    subject = next((one for one in given if one), ())
    several = [subject] if isinstance(subject, str) else [str(one) for one in subject]
    of = f" ({', '.join(map(short_name, several))})" if several else ""
    return f"{names.of[run.model]}: {about}{of}" if names.several else f"{about}{of}"


# -- one run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSaid:
    """Findings, remarks and outcomes of a run, with the page's names of models.

    Attributes:
        run: The run.
        findings: As its command prints them, with what each is about.
        remarks: What its command prints after them.
        caveats: How its numbers must be read, whatever they are.
        outcomes: What they come to; none where it has no verdict.
    """

    run: Run
    findings: list[tuple[str, Finding]]
    remarks: list[str]
    caveats: list[str]
    outcomes: list[Outcome]

    @classmethod
    def of(cls, run: Run, names: Names) -> RunSaid:
        """Read a run, once."""
        parts = _printed(run)
        findings, caveats = _findings(run, parts), _caveats(run)
        remarks = [
            names.said(line)
            for line in (parts if run.command != "heads" else ())
            if isinstance(line, str) and line not in caveats and not line.startswith("Files: ")
        ]
        return cls(
            run,
            [(about, names.finding(found)) for about, found in findings],
            remarks,
            [names.said(line) for line in caveats],
            run_outcomes(run),
        )

    @property
    def whole(self) -> list[tuple[str, Finding]]:
        """The findings, the last with the remarks."""
        if not (self.findings and self.remarks):
            return self.findings
        *first, (title, last) = self.findings
        return [*first, (title, replace(last, details=[*last.details, *self.remarks]))]


def _section(said: RunSaid, runs: Sequence[Run], names: Names) -> Section:
    from tda_bias.plots.run_page import page_parts

    from .figures import catalogue

    run = said.run
    record = json.loads(run.record.model_dump_json())
    parts = page_parts(run, runs, catalogue())
    if concealed := _concealed(run):
        record = _without(record, concealed)
        parts["tables"] = {
            name: table.rename(columns=concealed).replace(concealed)
            for name, table in parts["tables"].items()
        }
    return Section(
        title=_run_title(run, names),
        findings=said.whole,
        caveats=said.caveats,
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


def _caveats(run: Run) -> list[str]:
    """How the numbers of a run must be read, whatever they are."""
    if run.command == "heads":
        from tda_bias.heads.finding import run_remarks
        from tda_bias.heads.result import HeadBias

        return run_remarks(run.load(HeadBias.load))
    return data_remarks(run.record)


def _findings(run: Run, parts: Sequence[Any]) -> list[tuple[str, Finding]]:
    """The findings of a run, as its command prints them, with what each is about."""
    if run.command == "heads":
        from tda_bias.heads.result import HeadBias
        from tda_bias.heads.shown import finding

        result = run.load(HeadBias.load)
        return [(name, finding(result, run.folder, name)) for name in result.categories]

    return [("", part) for part in parts if isinstance(part, Finding)]


def _printed(run: Run) -> list[Any]:
    """Printed output of a run, without where its files are."""
    top = int(run.record.settings.get("top") or 10)
    return printed(run, top=top).parts if run.command in FORMS else []


def _audited(said: RunSaid, names: Names) -> Audited:
    """A run as an audit lists it, with the groups that the first table with groups names."""
    run, whom = said.run, ""
    for name in (
        "groups.csv", "items.parquet", "by_subject.csv", "conditions.csv", "responses.parquet",
    ):  # fmt: skip
        if run.has(name) and "group" in (table := run.table(name)):
            groups = sorted(set(table["group"].astype(str)) - {"all"})
            whom = f"{counted(len(groups), 'target')}: {', '.join(groups)}"
            break
    title = _run_title(run, names)
    models = [names.of[name] for name in (run.model, _after(run)) if name is not None]
    return Audited(
        title, run.record, said.findings, _again(run), whom, run.id, said.outcomes, models
    )


# -- how to make a run again -----------------------------------------------------------------------


def _again(run: Run) -> str:
    """The command line of a run, as far as its record tells, without where it was saved."""
    spec = next((spec for spec in SPECS.values() if run.command in spec.forms), None)
    if spec is None:
        return ""
    words, settings = spec.name.split(), imported(spec.settings)
    saved = run.record.settings
    try:
        if run.command == "pvf":  # `pvf risk` may have computed its risks anew
            from pvf.report import risk_options

            saved = saved | risk_options(run)
        return command_line(words, settings(**_given(settings, saved) | {"out": None}))
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
