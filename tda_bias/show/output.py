"""What a command prints: its finding at a glance, or in parts with tables; or JSON, or CSV."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from tda_bias.show.brief import Brief, indented, labelled
from tda_bias.show.table import TableSpec
from tda_bias.show.terminal import print_lines, print_table, program_here
from tda_bias.show.text import Finding
from tda_bias.store.files import plain

if TYPE_CHECKING:
    import pandas as pd


class Speaking(Protocol):
    """How a command is told to speak."""

    @property
    def format(self) -> str:
        """Table, JSON or CSV."""

    @property
    def quiet(self) -> bool:
        """Whether no table is printed."""

    @property
    def verbose(self) -> bool:
        """Whether a finding is printed with its details."""


@dataclass(frozen=True)
class Output:
    """One result in every format."""

    # Printed after the finding; where there is one for each category or model, those too.
    shown: Sequence[Finding | TableSpec | str]
    values: Mapping[str, Any]  # for JSON; tables, records and findings as they are
    rows: pd.DataFrame  # the main table, for CSV
    finding: Finding | None = None
    folder: Path | None = None
    files: str = ""  # names of the most important ones in the folder
    pictures: Mapping[str, str] = field(default_factory=dict)  # by what they show, in the folder
    failures: Sequence[str] = ()  # what makes the command fail, where it is asked to
    # What the run comes to, for JSON; computed when it is asked for.
    verdicts: Callable[[], Sequence[Mapping[str, Any]]] | None = None

    @property
    def parts(self) -> list[Finding | TableSpec | str]:
        """Everything that is printed but where the files are."""
        return [*([self.finding] if self.finding is not None else []), *self.shown]

    def print(self, how: Speaking) -> None:
        """Print it as ``how`` says; nothing else goes to standard output."""
        if how.format == "json":
            print(_json_text(self.as_values()), flush=True)
        elif how.format == "csv":
            print(self.rows.to_csv(index=False), end="", flush=True)
        elif not how.quiet:
            self._print_parts(verbose=how.verbose)

    @property
    def findings(self) -> list[Finding]:
        """The findings, of which the first are printed first."""
        return [part for part in self.parts if isinstance(part, Finding)]

    def as_values(self) -> dict[str, Any]:
        """All of it for JSON."""
        about = {"folder": self.folder, "finding": self.finding}
        given = {name: value for name, value in about.items() if value is not None}
        verdicts = {} if self.verdicts is None else {"verdicts": self.verdicts()}
        return {**given, **self.values, **verdicts}

    def _print_parts(self, *, verbose: bool) -> None:
        findings = self.findings
        briefs = [found.brief for found in findings if found.brief is not None]
        if briefs and len(briefs) == len(findings) and not verbose:
            for brief, found in zip(briefs, findings, strict=True):
                if found is not findings[0]:
                    print_lines("")
                self._print_brief(brief, found, last=found is findings[-1])
            return
        for part in self.parts:
            if isinstance(part, TableSpec):
                print_table(part)
            elif isinstance(part, Finding):
                if part.brief is not None:
                    print_lines(*part.brief.head(), "")
                print_lines(*part.lines(verbose=verbose, program=program_here()))
            else:
                print_lines(part)
        if self.files:
            print_lines(f"Files: {self.folder}/ ({self.files})")

    def _print_brief(self, brief: Brief, found: Finding, *, last: bool) -> None:
        """A finding at a glance, and where to go on."""
        print_lines(*brief.head())
        if brief.shown or brief.remarks:
            print_lines("")
        for part in brief.shown:
            if isinstance(part, TableSpec):
                print_table(part)
            else:
                print_lines(*indented(part))
        print_lines(*brief.end())
        places = {name: f"{self.folder}/{file}" for name, file in self.pictures.items()}
        if self.files:
            places["Files"] = f"{self.folder}/ ({self.files})"
        print_lines("", *labelled(places if last else {}, found.commands(program_here())))


def print_each(outputs: Iterable[tuple[str, Output]], how: Speaking) -> list[str]:
    """Print what runs of one command found, each as soon as it is there.

    JSON of several is one object, by the names of the runs; CSV one table, whose first column has
    them.

    Returns:
        What makes the command fail.
    """
    made: dict[str, Output] = {}
    for name, output in outputs:
        if how.format == "table":
            if made and not how.quiet:
                print_lines("")
            output.print(how)
        made[name] = output
    if how.format != "table" and len(made) == 1:
        next(iter(made.values())).print(how)
    elif how.format == "json":
        print(_json_text({name: one.as_values() for name, one in made.items()}), flush=True)
    elif how.format == "csv":
        import pandas as pd

        rows = [one.rows.assign(run=name) for name, one in made.items()]
        table = pd.concat(rows)
        table.insert(0, "run", table.pop("run"))
        print(table.to_csv(index=False), end="", flush=True)
    return [reason for output in made.values() for reason in output.failures]


def _json_text(values: Any) -> str:
    return json.dumps(plain(_as_json(values)), indent=2, allow_nan=False)


def _as_json(value: Any) -> Any:
    """Tables as lists of rows, records and findings as mappings."""
    if isinstance(value, Finding):
        return value.as_values()
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if hasattr(value, "to_dict"):  # a data frame, without importing pandas
        return value.to_dict("records")
    return value
