"""``tdabias audit``: everything that can be measured of a model, and one page of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tda_bias.config import BatchOption, WithCommas
from tda_bias.show.names import SETS, named
from tda_bias.show.output import Output
from tda_bias.show.terminal import print_lines
from tda_bias.show.text import by_reason, listed
from tda_bias.store.files import RECORD, to_json, write_text
from tda_bias.store.identity import Changes
from tda_bias.store.record import RecordPart
from tda_bias.store.run import Run, open_run, with_parts
from tda_bias.store.settings import validated
from tda_bias.triples import comes_from_hub, read_triples
from tda_bias.types import CATEGORIES, InputError, in_order

from .commands import SPECS
from .errors import expected
from .loading import Models, reach_hub_for
from .options import command_line
from .run import perform
from .settings import ModelOption, Out, PageSettings, PlacementSettings, folder_name
from .spec import Spec, imported

# Its file, beside the folders of the runs.
_SCOPE = "audit.json"
# Of the data, where --quick is given and no category.
_QUICK_CATEGORIES = 2


class AuditSettings(PageSettings, ModelOption, PlacementSettings, BatchOption):
    """Settings of ``tdabias audit``."""

    category: Annotated[tuple[str, ...], WithCommas] = Field(
        (), description="gender, profession, ..., with commas (default: all of the data)"
    )
    data: str = Field(
        "stereoset", description="triples: stereoset (the hub), starter, or a file of yours"
    )
    quick: bool = Field(
        False, description="fewer texts: minutes instead of hours; says what it leaves out"
    )
    overwrite: Annotated[bool, Changes.NOTHING] = Field(
        False, description="write over finished runs of something else in the folder"
    )
    out: Out = Field(
        None, description="folder for the runs and the page (default: runs/MODEL/audit)"
    )

    @property
    def folder(self) -> Path:
        """Folder of the runs and the page."""
        name = "audit-quick" if self.quick else "audit"
        return self.out or Path("runs") / folder_name(self.model) / name


class Scope(RecordPart):
    """Sentences on the coverage of an audit, and the identifiers of the runs they are about."""

    runs: list[str]
    quick: bool
    said: list[str]  # first the categories and texts, then what could not be measured


def scope_of(runs: Sequence[Run]) -> list[str]:
    """Sentences on the coverage of the audits that made these runs.

    For an audit with runs that are not among these, only whether it was a quick one.

    Raises:
        InputError: if the file of an audit cannot be read.
    """
    ids, scope = {run.id for run in runs}, []
    paths = dict.fromkeys(run.folder.parent / _SCOPE for run in runs)
    for path in filter(Path.is_file, paths):
        try:
            about = Scope.model_validate_json(path.read_bytes())
        except (OSError, ValueError):
            raise InputError(
                f"{path} is not as the audit wrote it; run the audit again, or delete it"
            ) from None
        if not ids.intersection(about.runs):
            continue
        said = about.said if ids.issuperset(about.runs) else about.said[: int(about.quick)]
        others = not ids.issubset(about.runs)
        scope += [f"Of the runs in {path.parent.name}: {line}" if others else line for line in said]
    return scope


@dataclass(frozen=True)
class _Planned:
    """A run of a command: its folder's name, its settings, and why there is none."""

    spec: Spec
    name: str
    given: Mapping[str, Any] = field(default_factory=dict)
    lacking: str = ""
    about: str = ""  # the category, or the set of pairs

    @property
    def title(self) -> str:
        """The name of the measure on the page, such as ``CrowS-Pairs`` or ``BBQ for gender``."""
        if self.about in SETS:
            return named(self.about)
        return " for ".join(filter(None, [named(self.spec.name), self.about]))


def audit(settings: AuditSettings) -> Output:
    """Run what can be run, each by itself, and write the page."""
    import pandas as pd

    from .page import run_outcomes, written_page

    categories, passed_over = _categories(settings)
    planned = list(plan(categories))
    folders, skipped, models = [], {}, Models()
    for one in planned:
        folder = settings.folder / one.name
        if reason := one.lacking or _reason_against(one, folder, settings, models):
            skipped[one.name] = reason
            _tell(settings, f"{one.name}: skipped, {reason}")
            continue
        folders.append(folder)
        for outcome in run_outcomes(open_run(folder)):
            _tell(settings, outcome.line())
    run = [one for one in planned if one.name not in skipped]
    less = [_less(one.spec) for one in run] if settings.quick else []
    notes = [*dict.fromkeys(filter(None, less)), *passed_over]
    values: dict[str, Any] = {"skipped": skipped, "left_out": notes}
    if not folders:
        rows = pd.DataFrame({"run": list(skipped), "reason": list(skipped.values())})
        return Output(shown=[], values=values, rows=rows, failures=["everything was skipped"])
    again = command_line(["audit"], settings)
    said = [f"--quick leaves out: {'; '.join(notes)}."] if notes else []
    runs = with_parts(folders)
    left = [(one.title, skipped[one.name]) for one in planned if one.name in skipped]
    scope = [*_scope(settings, categories, notes), *_skipped(left)]
    about = Scope(runs=[one.id for one in runs], quick=settings.quick, said=scope)
    write_text(settings.folder / _SCOPE, to_json(about.model_dump()))
    page = written_page(runs, settings.folder / "report.html", settings, again, scope=scope)
    shown = [*said, *page.shown[-2:]]  # a line of each outcome was printed as it ended
    return replace(page, shown=shown, values={**page.values, **values})


def _categories(settings: AuditSettings) -> tuple[tuple[str, ...], list[str]]:
    """The categories that are measured, and what --quick passes over of those of the data.

    Raises:
        InputError: if one is not there, which is said before a model runs.
    """
    named = () if settings.category == ("all",) else settings.category
    there = _there(settings, named)
    chosen = named or (there[:_QUICK_CATEGORIES] if settings.quick else there)
    left = [] if named else [name for name in there if name not in chosen]
    return chosen, [f"the categories {', '.join(left)}"] if left else []


def _there(settings: AuditSettings, named: tuple[str, ...]) -> tuple[str, ...]:
    """The categories of the data; of StereoSet that cannot be read, what it would have."""
    reach_hub_for(settings.model, also=comes_from_hub(settings.data))
    try:
        source = read_triples(settings.data)
    except InputError:
        if "data" in settings.model_fields_set:
            raise
        return CATEGORIES  # other commands need none of it; those that do say that it is missing
    for category in named:
        source.chosen(category=category)
    return tuple(in_order(item.category for item in source.items))


def plan(categories: tuple[str, ...]) -> Iterator[_Planned]:
    """Every run of an audit, command by command; those that no category asks for say so."""
    for spec in SPECS.values():
        if spec.audited is None:
            continue
        how = spec.audited
        if not how.setting:
            for given in how.runs:
                about = "-".join(map(str, given.values()))
                name = "-".join(filter(None, [spec.name, about]))
                yield _Planned(spec, name, given, about=about)
            continue
        for category in categories:
            name = f"{spec.name}-{folder_name(category)}"
            if how.named and category not in how.named:
                reason = f"no texts about {category}"
                yield _Planned(spec, name, lacking=reason, about=category)
                continue
            meant = how.named.get(category, category)
            for given in how.runs:
                yield _Planned(spec, name, {**given, how.setting: meant}, about=category)


def _reason_against(
    planned: _Planned, folder: Path, settings: AuditSettings, models: Models
) -> str:
    """Run a command; why it could not be run, in one line, or nothing."""
    try:
        for _ in perform(planned.spec, _settings(planned, folder, settings), models=models):
            pass  # printed is what it comes to
    except Exception as error:
        reason = expected(error)
        if reason is None:
            raise
        return reason
    return "" if (folder / RECORD).exists() else "it left no run"


def _settings(planned: _Planned, folder: Path, settings: AuditSettings) -> Any:
    """The settings of a run: those of the audit that its command has, and its own."""
    kind, how = imported(planned.spec.settings), planned.spec.audited
    assert how is not None
    of_all = {*PlacementSettings.model_fields, *BatchOption.model_fields, "overwrite", "quiet"}
    taken = (of_all | how.takes) & settings.model_fields_set
    shared = settings.model_dump(include=taken & set(kind.model_fields))
    quick = how.quick if settings.quick else {}
    given = {**shared, "model": settings.model, "out": folder, **planned.given, **quick}
    return validated(kind, given)


def _less(spec: Spec) -> str:
    """The texts of a command that ``--quick`` skips, in words."""
    less = spec.audited.less if spec.audited is not None else ""
    return f"{spec.name}: {less}" if less else ""


def _scope(settings: AuditSettings, categories: tuple[str, ...], notes: Sequence[str]) -> list[str]:
    """Sentences for the top of the page: the categories, and the texts that ``--quick`` skips."""
    about = f"Asked about {listed(categories)}."
    if not settings.quick:
        return [about]
    left = f" Left out: {'; '.join(notes)}." if notes else ""
    return [
        "A quick audit measures part of the texts and finds less; the whole is tdabias audit "
        f"without --quick. {about}{left}"
    ]


def _skipped(skipped: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A sentence with the runs that could not be made, by reason."""
    # Advice follows a semicolon: it was printed, for who makes the page, not for who reads it.
    reasons = by_reason(
        (title, reason.partition(";")[0].removesuffix(".").replace("`", ""))
        for title, reason in skipped
    )
    if reasons:
        parts = [f"{listed(names)} ({reason})" for reason, names in reasons.items()]
        yield f"Not measured: {'; '.join(parts)}."


def _tell(settings: AuditSettings, line: str) -> None:
    """Print a line at once, unless the output is for another program."""
    if settings.format == "table" and not settings.quiet:
        print_lines(line)
