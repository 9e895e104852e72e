"""One self-contained page of findings, charts and tables: what stands on it, and how it is written.

Everything that comes from data reaches the page as escaped text or as compressed JSON that scripts
put into text nodes. The page's own policy lets a browser run the scripts that stand here, known by
their hashes, and nothing else, and fetch nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd

# What a page may weigh, so that it can be mailed and opens at once.
MAX_BYTES = 5_000_000
# Rows of a table that a page holds; the run's own file has all.
MAX_ROWS = 3_000
_SCRIPTS = (
    "vega.min.js",
    "vega-lite.min.js",
    "vega-interpreter.js",
    "sortable.min.js",
    "sortable.a11y.min.js",
    "page.js",
    "filtration.js",
    "explorer.js",
)


@dataclass(frozen=True)
class Finding:
    """A finding in plain words.

    Attributes:
        title: What it is about.
        lines: The finding first.
        controls: Its controls, its power and details, folded below it.
    """

    title: str
    lines: Sequence[str]
    controls: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: What it shows.
        spec: Its form in Vega-Lite, without data.
        rows: The data.
        note: How to read it.
    """

    title: str
    spec: Mapping[str, Any]
    rows: pd.DataFrame
    note: str = ""


@dataclass(frozen=True)
class TablePart:
    """A table that can be sorted and downloaded.

    Attributes:
        title: What it holds.
        name: Of the file that it is downloaded as, without ending.
        frame: The table.
    """

    title: str
    name: str
    frame: pd.DataFrame

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.frame)


@dataclass(frozen=True)
class Section:
    """A run's part of a page.

    Attributes:
        title: Of the section.
        findings: In words.
        charts: Pictures.
        tables: Tables.
        explorer: Data of the interactive map of heads, as ``explorer.js`` reads it.
        command: A command line that makes the run again.
        record: The run's record.
    """

    title: str
    findings: Sequence[Finding] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[TablePart] = ()
    explorer: Mapping[str, Any] | None = None
    command: str = ""
    record: str = ""


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: Its title.
        lead: One paragraph below.
        sections: What it says, run by run.
        command: A command line that makes the page again.
    """

    title: str
    lead: str
    sections: Sequence[Section] = field(default=())
    command: str = ""


def page_html(page: Page) -> str:
    """The text of the file.

    Raises:
        InputError: if it would be larger than ``MAX_BYTES``.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    scripts, style = [_asset(name) for name in _SCRIPTS], _asset("page.css")
    text = environment.from_string(_asset("page.html.j2")).render(
        page=page,
        policy=policy(scripts, style),
        version=version("tdabias"),
        # Ours, and allowed by their hashes: they must reach the page as they are.
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        data=compressed(page_data(page)),
    )
    size = len(text.encode())
    if size > MAX_BYTES:
        raise InputError(
            f"the page would have {size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}; give fewer "
            "runs, or run `tdabias heads` with a smaller --keep-patterns"
        )
    return text


def policy(scripts: Sequence[str], style: str) -> str:
    """A policy under which nothing runs or is fetched but these scripts and this style sheet."""
    allowed = " ".join(_source(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def page_data(page: Page) -> list[dict[str, Any]]:
    """Data for the page's scripts, section by section."""
    return [
        {
            "explorer": section.explorer,
            "charts": [
                {"spec": dict(chart.spec), "rows": column_data(chart.rows), "title": chart.title}
                for chart in section.charts
            ],
            "tables": [
                {"name": table.name, "of": table.rows, **column_data(table.frame.head(MAX_ROWS))}
                for table in section.tables
            ],
        }
        for section in page.sections
    ]


def compressed(data: list[dict[str, Any]]) -> str:
    """JSON, gzip, base 64: nothing of the data is markup, and a third of it is as large.

    ``readSections`` in ``page.js`` reads it.
    """
    whole = json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    return base64.b64encode(gzip.compress(whole, mtime=0)).decode()


def column_data(frame: pd.DataFrame) -> dict[str, Any]:
    """A table as names and columns of plain values: numbers to five digits, undefined as null."""
    return {
        "names": [str(name) for name in frame.columns],
        "columns": [
            rounded(column.to_numpy(float), 5) if column.dtype.kind == "f" else _plain(column)
            for _, column in frame.items()
        ],
    }


def _plain(column: pd.Series) -> list[Any]:
    if column.dtype.kind in "iub":
        return list(column.tolist())
    return ["" if value is None or value != value else str(value) for value in column]


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


def unpacked(given: Mapping[str, Any]) -> Float[np.ndarray, " n"]:
    """The inverse of ``packed`` but for the shape, as the page's script reads it."""
    whole = np.frombuffer(base64.b64decode(given["base64"]), dtype="<i2").astype(float)
    return np.asarray(np.where(whole == -32768, np.nan, whole * given["step"]))


def _asset(name: str) -> str:
    return files("tda_bias.data").joinpath("page", name).read_text(encoding="utf-8").strip()


def _source(text: str) -> str:
    """How a policy names a script or a style sheet that stands in the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def plain_record(values: Any) -> str:
    """A record as indented JSON."""
    return json.dumps(values, indent=1, ensure_ascii=False, default=str)
