"""What an auditor files of runs: outcomes with limits, data sets, frameworks, how to repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from markupsafe import Markup

from tda_bias.show.page import Audit, asset, density, rendered
from tda_bias.show.text import Finding
from tda_bias.show.verdict import Outcome
from tda_bias.store.record import PACKAGED, RunRecord, SourceOfRun

_UNKNOWN = {"licence": "see its source", "defects": "not assessed here: describe them"}


@dataclass(frozen=True)
class Audited:
    """A run as an audit lists it."""

    name: str  # its folder
    record: RunRecord
    findings: Sequence[tuple[str, Finding]]  # each with what it is about
    repeat: str = ""  # the command line that makes it again
    whom: str = ""  # groups of persons that its texts are about
    id: str = ""  # a hash of its record, which has the hashes of its files
    outcomes: Sequence[Outcome] = ()
    models: Sequence[str] = ()  # what the page calls them; by their own names if empty


def audit_of(
    runs: Sequence[Audited],
    caveats: Sequence[str] = (),
    *,
    verdict: str = "",
    scope: Sequence[str] = (),
    command: str = "",
) -> Audit:
    """The audit of a page, whole and for paper.

    ``caveats`` are those of all runs, ``verdict`` is that over all, ``scope`` what was not
    measured, ``command`` makes the page.
    """
    values = _values(runs)
    abouts = {str(run["about"]["outcome"]): run["about"] for run in values["runs"]}
    paper = rendered(
        "paper.html.j2",
        **values,
        abouts=list(abouts.values()),
        caveats=list(dict.fromkeys(caveats)),
        words=Markup(asset("words.html")),
        verdict=verdict,
        scope=scope,
        dense=density(len(values["runs"])),
        command=command,
    )
    return Audit(rendered("audit.html.j2", **values), paper)


def audit_html(runs: Sequence[Audited]) -> str:
    """The audit of runs as HTML; every name is escaped."""
    return rendered("audit.html.j2", **_values(runs))


def _values(runs: Sequence[Audited]) -> dict[str, Any]:
    """What the templates are filled in with."""
    known = facts()
    sets: dict[str, list[SourceOfRun]] = {}
    for run in runs:
        for name, read in _texts(run.record).items():
            sets.setdefault(name, []).extend(read)
    records = [run.record for run in runs]
    versions = {f"{name} {v}" for record in records for name, v in record.packages.items()}
    versions |= {f"tdabias {record.tdabias}" for record in records if record.tdabias}
    return {
        "runs": [_shown(run) for run in runs],
        "frameworks": known["frameworks"],
        "data_sets": {
            name: {**known["data_sets"].get(name, _UNKNOWN), "read": _revisions(read)}
            for name, read in sets.items()
        },
        "versions": ", ".join(sorted(versions)),
    }


def model_card(
    base: str, title: str, runs: Sequence[Audited], *, body: str = "", tags: Sequence[str] = ()
) -> str:
    """The card of a model that a command wrote: what its folder is, and the audit.

    ``base`` is the model that it was made from; ``runs`` are the one that made it, and those it
    rests on; ``body`` is Markdown about it, before the audit.
    """
    front = {"base_model": base, "library_name": "transformers", "tags": ["tdabias", *tags]}
    head = yaml.safe_dump(front, sort_keys=False).strip()
    before = f"{body}\n\n## Audit\n\n" if body else ""
    return f"---\n{head}\n---\n# {title}\n\n{before}{audit_html(runs)}\n"


@cache
def facts() -> Mapping[str, Any]:
    """Audit notes on every command, data set and framework."""
    return dict(yaml.safe_load(asset("audit.yaml")))


def _shown(run: Audited) -> dict[str, Any]:
    record = run.record
    seed = record.settings.get("seed")
    return {
        "name": run.name,
        "model": "; ".join(run.models or _models(record)),
        "record": record,
        "about": facts()["commands"][record.command.split()[0]],
        "outcomes": run.outcomes,
        "id": run.id,
        "findings": [{"title": title, **found.as_values()} for title, found in run.findings],
        "texts": "; ".join(map(_read, _texts(record).values())) or "not recorded",
        "whom": run.whom or "not recorded",
        "repeat": run.repeat,
        "seed": "none" if seed is None else seed,
        "files": ", ".join(f"{name} {file.hash}" for name, file in record.files.items()),
    }


def _models(record: RunRecord) -> list[str]:
    """The names of a run's model and, of a comparison, of the other one."""
    after = getattr(record, "after", None)
    others = [] if after is None else [after["name"] if isinstance(after, dict) else after.name]
    return [record.model.name, *others]


def _texts(record: RunRecord) -> dict[str, list[SourceOfRun]]:
    """What a run read, by the names of the data sets."""
    texts: dict[str, list[SourceOfRun]] = {}
    for read in record.sources or record.reads():  # of one that is not saved yet
        # Of texts called stereoset the source tells whether they are; others have a name of theirs.
        own = read.name in facts()["data_sets"] and read.name != "stereoset"
        if read.source == PACKAGED and not own:
            continue  # the set is named by the setting that chose it
        name = read.name if own else read.source
        known = next((known for known in facts()["data_sets"] if known in name), name)
        texts.setdefault(known, []).append(read)
    return texts


def _read(several: Sequence[SourceOfRun]) -> str:
    """Sources with their versions."""
    pinned = (
        f"{one.source}, revision {one.revision}" if one.revision else one.source for one in several
    )
    return "; ".join(dict.fromkeys(pinned))


def _revisions(several: Sequence[SourceOfRun]) -> str:
    """Their versions alone, as far as paper has room."""
    return ", ".join(
        dict.fromkeys(one.revision.removeprefix("blake2b-")[:12] for one in several if one.revision)
    )
