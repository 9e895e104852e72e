"""One self-contained page: verdicts first, then pictures, and folded what they rest on.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tda_bias.show import drawings
from tda_bias.show.meaning import meaning, unsaid
from tda_bias.show.text import Finding
from tda_bias.show.verdict import QUESTIONS, Outcome, corrected, ordered, overall
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

# What a page may weigh, so that it can be mailed and opens at once.
MAX_BYTES = 5_000_000
# Rows of a table that a page holds; the run's own file has all.
MAX_ROWS = 3_000
# Cards of the first screen, and of these at most so many about heads, and about changes.
MAX_CARDS, _MAX_OTHERS = 6, 2
# With more outcomes than each of these they are printed smaller.
_DENSE = (8, 10, 13, 16)
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
    caveats: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    # By name; each can be sorted, and downloaded as a file of that name.
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    # The interactive map of heads, as `explorer.js` reads it.
    explorer: Mapping[str, Any] | None = None
    texts: str = ""  # HTML of texts that open one by one, from ``texts_html``
    command: str = ""  # a command line that makes the run again
    record: str = ""  # as JSON


@dataclass(frozen=True)
class Audit:
    """The audit of a page as HTML: whole, and short enough for one page of paper."""

    whole: str = ""
    paper: str = ""


def page_html(
    title: str,
    outcomes: Sequence[Outcome] = (),
    sections: Sequence[Section] = (),
    *,
    model: str = "the model",
    date: str = "",
    command: str = "",
    scope: Sequence[str] = (),
    audit: Audit | None = None,
    tables: bool = False,
) -> str:
    """The text of a page's file.

    Args:
        title: Its first line.
        outcomes: What the runs come to, in any order.
        sections: What they rest on, run by run.
        model: Whose outcomes they are, in sentences.
        date: When the runs were made.
        command: A command line that makes the page again.
        scope: What was not measured, or of less than there is.
        audit: From ``audit.audit_of``.
        tables: Whether tables and figures are printed too.

    Raises:
        InputError: if it would be larger than ``MAX_BYTES``.
    """
    from markupsafe import Markup

    outcomes, audit = corrected(ordered(outcomes)), audit or Audit()
    scripts, style = [asset(name) for name in _SCRIPTS], asset("page.css")
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
    data = json.dumps(page_data(sections, outcomes), ensure_ascii=False, allow_nan=False).encode()
    text = rendered(
        "page.html.j2",
        title=title,
        date=date,
        **_first_screen(outcomes, model),
        caveats=list(dict.fromkeys(line for section in sections for line in section.caveats)),
        sections=sections,
        tables=tables,
        command=command,
        scope=scope,
        policy=policy,
        version=version("tdabias"),
        # Ours, and allowed by their hashes: they must reach the page as they are.
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        words=Markup(asset("words.html")),
        dense=density(len(outcomes)),
        audit=Markup(audit.whole),
        paper=Markup(audit.paper),
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
    return environment.from_string(asset(template)).render(**values)


def asset(name: str) -> str:
    """The text of a file that the page is made of."""
    return files("tda_bias.data").joinpath("page", name).read_text(encoding="utf-8").strip()


# -- the first screen ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """An outcome with its drawing, and the number of its items on the page."""

    number: int
    outcome: Outcome
    drawing: Markup


def _first_screen(outcomes: Sequence[Outcome], model: str) -> dict[str, Any]:
    """Verdicts, sentences and drawings, as the template names them."""
    numbered = list(enumerate(outcomes))
    limits = drawings.forest_limits(outcomes)
    chosen = card_outcomes(outcomes)
    cards = {id(one) for one in chosen}
    examples = [one.example for one in outcomes if one.example is not None]

    def drawn(number: int, drawing: Markup) -> Drawn:
        return Drawn(number, outcomes[number], drawing)

    return {
        "outcomes": outcomes,
        "cards": [
            drawn(number, drawings.interval_svg(one, coloured=one.remains))
            for number, one in numbered
            if id(one) in cards
        ],
        "forest": [
            drawn(number, drawings.effect_svg(one, limits, coloured=one.remains))
            for number, one in numbered
            if math.isfinite(one.effect)
        ],
        "maps": [
            drawn(number, drawings.map_svg(one.grid, _map_label(one)))
            for number, one in numbered
            if one.grid is not None
        ],
        "bar": drawings.bar_svg,
        "bars": {bar.label: bar.about for one in chosen for bar in one.bars if bar.about},
        "means": meaning(model, outcomes),
        "unsaid": unsaid(outcomes) if outcomes else [],
        "overall": overall(outcomes),
        "example": examples[0] if examples else None,
    }


def card_outcomes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes with a card: six, with room for heads, their tests and changes among them.

    What is clear by itself has one before what is not.
    """
    says, *others = (
        [one for one in outcomes if one.question == question] for question in QUESTIONS
    )
    says = sorted(says, key=lambda one: not one.is_clear)
    # Two of each of the others, or one where that would leave no room for what the model says.
    most = next(
        most
        for most in range(_MAX_OTHERS, 0, -1)
        if most == 1 or sum(min(most, len(some)) for some in others) < MAX_CARDS - 1
    )
    chosen = says[: MAX_CARDS - sum(min(most, len(some)) for some in others)]
    for some in others:
        chosen += some[:most]
    left = [one for one in outcomes if not any(one is kept for kept in chosen)]
    chosen += left[: MAX_CARDS - len(chosen)]
    return ordered(chosen)


def density(number: int) -> int:
    """The step of smaller print with which so many outcomes fit on a sheet of paper."""
    return sum(number > most for most in _DENSE)


def _map_label(one: Outcome) -> str:
    return f"{one.name}: {one.value_said} correction"


# -- data for scripts ------------------------------------------------------------------------------


def page_data(
    sections: Sequence[Section], outcomes: Sequence[Outcome] = ()
) -> list[dict[str, Any]]:
    """Data for the page's scripts, section by section; last the items of outcomes."""
    data = [
        {"explorer": section.explorer, "tables": list(_tables(section.tables.items()))}
        for section in sections
    ]
    items = ((f"items of {one.name}", one.items) for one in outcomes if one.items is not None)
    return [*data, {"explorer": None, "tables": list(_tables(items))}]


def _tables(named: Any) -> Iterator[dict[str, Any]]:
    for name, table in named:
        yield {"name": name, "of": len(table), **column_data(table.head(MAX_ROWS))}


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
