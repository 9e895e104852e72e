"""One self-contained page of findings, pictures and tables, and the audit that it may hold.

Everything that comes from data reaches the page as escaped text or as compressed JSON that scripts
put into text nodes. The page's own policy lets a browser run the scripts that stand here, known by
their hashes, and nothing else, and fetch nothing; pictures stand in the page itself.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from jaxtyping import Float

from tda_bias.show.text import Finding
from tda_bias.store.record import RunRecord
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd

# What a page may weigh, so that it can be mailed and opens at once.
MAX_BYTES = 5_000_000
# Rows of a table that a page holds; the run's own file has all.
MAX_ROWS = 3_000
_SCRIPTS = (
    "sortable.min.js",
    "sortable.a11y.min.js",
    "inflate.js",
    "page.js",
    "filtration.js",
    "explorer.js",
)


@dataclass(frozen=True)
class Picture:
    """A figure of a run."""

    title: str
    png: bytes
    width: int  # on the page, in pixels of CSS, as the height
    height: int
    caption: str = ""  # what it is drawn from, and what to compare it with

    @property
    def address(self) -> str:
        """The file as an address that holds it."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Section:
    """A run's part of a page."""

    title: str
    findings: Sequence[tuple[str, Finding]] = ()  # each with what it is about
    pictures: Sequence[Picture] = ()
    # By name; each can be sorted, and downloaded as a file of that name.
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    # The interactive map of heads, as `explorer.js` reads it.
    explorer: Mapping[str, Any] | None = None
    texts: str = ""  # HTML of texts that open one by one, from ``texts_html``
    command: str = ""  # a command line that makes the run again
    record: str = ""  # as JSON


def page_html(
    title: str, lead: str, sections: Sequence[Section] = (), *, command: str = "", audit: str = ""
) -> str:
    """The text of a page's file: a title, a paragraph, sections run by run, and an audit.

    ``command`` is a command line that makes the page again, ``audit`` from ``audit_html``.

    Raises:
        InputError: if it would be larger than ``MAX_BYTES``.
    """
    from markupsafe import Markup

    scripts, style = [_asset(name) for name in _SCRIPTS], _asset("page.css")
    # Under this policy nothing runs or is fetched but these scripts, this style sheet, and pictures
    # that stand in the page.
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
        for part in (*scripts, style)
    ]
    policy = (
        f"default-src 'none'; script-src {' '.join(hashes[:-1])}; style-src {hashes[-1]}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # Nothing of the data is markup, and a third of it is as large: `readSections` in `page.js`.
    data = json.dumps(page_data(sections), ensure_ascii=False, allow_nan=False).encode()
    text = rendered(
        "page.html.j2",
        title=title,
        lead=lead,
        sections=sections,
        command=command,
        policy=policy,
        version=version("tdabias"),
        # Ours, and allowed by their hashes: they must reach the page as they are.
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        audit=Markup(audit),
        data=base64.b64encode(gzip.compress(data, mtime=0)).decode(),
    )
    size = len(text.encode())
    if size > MAX_BYTES:
        raise InputError(
            f"the page would have {size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}; give fewer "
            "runs, or run `tdabias heads` with a smaller --keep-patterns"
        )
    return text


def rendered(template: str, **values: Any) -> str:
    """A template filled in; every text among the values is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_asset(template)).render(**values)


def _asset(name: str) -> str:
    return files("tda_bias.data").joinpath("page", name).read_text(encoding="utf-8").strip()


def page_data(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Data for the page's scripts, section by section."""
    return [
        {
            "explorer": section.explorer,
            "tables": [
                {"name": name, "of": len(table), **column_data(table.head(MAX_ROWS))}
                for name, table in section.tables.items()
            ],
        }
        for section in sections
    ]


def column_data(frame: pd.DataFrame) -> dict[str, Any]:
    """A table as names and columns of plain values: numbers to five digits, undefined as null."""
    columns: list[list[Any]] = []
    for _, column in frame.items():
        if column.dtype.kind == "f":
            columns.append(rounded(column.to_numpy(float), 5))
        elif column.dtype.kind in "iub":
            columns.append(column.tolist())
        else:
            columns.append(["" if v is None or v != v else str(v) for v in column])
    return {"names": [str(name) for name in frame.columns], "columns": columns}


def rounded(values: Float[np.ndarray, " n"], digits: int = 4) -> list[float | None]:
    """Numbers to so many significant digits; None where undefined."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]


def packed(values: np.ndarray) -> dict[str, Any]:
    """An array in two bytes a number: whole steps of its largest size, base 64.

    Undefined values are the lowest number. ``unpacked`` in ``page.js`` reads it.
    """
    filled = np.asarray(values, dtype=float)
    defined = np.isfinite(filled)
    largest = float(np.abs(filled[defined]).max(initial=0.0))
    step = largest / 32767 if largest > 0 else 1.0
    whole = np.where(defined, np.round(np.where(defined, filled, 0.0) / step), -32768)
    text = base64.b64encode(whole.astype("<i2").tobytes()).decode()
    return {"step": step, "base64": text}


# -- audit -----------------------------------------------------------------------------------------

_UNKNOWN = {"licence": "see its source", "defects": "not assessed here: describe them"}


@dataclass(frozen=True)
class Audited:
    """A run as an audit lists it."""

    name: str  # its folder
    record: RunRecord
    findings: Sequence[tuple[str, Finding]]  # each with what it is about
    repeat: str = ""  # the command line that makes it again
    whom: str = ""  # groups of persons that its texts are about


def audit_html(runs: Sequence[Audited]) -> str:
    """The audit of runs as HTML; every name is escaped."""
    known = facts()
    sets = dict.fromkeys(name for run in runs for name in _texts(run.record))
    records = [run.record for run in runs]
    versions = {f"{name} {v}" for record in records for name, v in record.packages.items()}
    versions |= {f"tdabias {record.tdabias}" for record in records if record.tdabias}
    return rendered(
        "audit.html.j2",
        runs=[_shown(run) for run in runs],
        frameworks=known["frameworks"],
        data_sets={name: known["data_sets"].get(name, _UNKNOWN) for name in sets},
        versions=", ".join(sorted(versions)),
    )


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
    return dict(yaml.safe_load(_asset("audit.yaml")))


def _shown(run: Audited) -> dict[str, Any]:
    record = run.record
    seed = record.settings.get("seed")
    return {
        "name": run.name,
        "record": record,
        "about": facts()["commands"][record.command.split()[0]],
        "findings": [{"title": title, **found.as_values()} for title, found in run.findings],
        "texts": "; ".join(_texts(record).values()) or "not recorded",
        "whom": run.whom or "not recorded",
        "repeat": run.repeat,
        "seed": "none" if seed is None else seed,
        "files": ", ".join(f"{name} {file.hash}" for name, file in record.files.items()),
    }


def _texts(record: RunRecord) -> dict[str, str]:
    """The data sets that a run read, by their names, with their versions."""
    texts: dict[str, list[str]] = {}
    for read in record.sources or record.reads():  # of one that is not saved yet
        # Of texts called stereoset the source tells whether they are; others have a name of theirs.
        own = read.name in facts()["data_sets"] and read.name != "stereoset"
        name = read.name if own else read.source
        known = next((known for known in facts()["data_sets"] if known in name), name)
        pinned = f", revision {read.revision}" if read.revision else ""
        texts.setdefault(known, []).append(f"{read.source}{pinned}")
    return {name: "; ".join(dict.fromkeys(several)) for name, several in texts.items()}
