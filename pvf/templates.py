"""Context templates: sentences with a slot for x and one for y, each with its count."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tda_bias.runs.files import read_text
from tda_bias.types import InputError

PUBLISHED = ("gender", "race")
X_SLOT, Y_SLOT = "[X]", "[Y]"


@dataclass(frozen=True)
class Template:
    """A sentence with one ``[X]`` and, behind it, one ``[Y]``.

    Attributes:
        text: The sentence.
        count: How often it was found; its weight among contexts.
    """

    text: str
    count: float

    def prompt(self, word: str) -> str:
        """The text up to the slot of y, with x filled in and no space at the end."""
        return self.filled(word).split(Y_SLOT)[0].rstrip()

    def filled(self, word: str) -> str:
        """The text with x filled in."""
        return self.text.replace(X_SLOT, word)

    @property
    def after(self) -> str:
        """Text after the slot of y; empty in templates for causal models."""
        return self.text.split(Y_SLOT)[1].strip()


def load_templates(source: str | Path = "gender", *, y_last: bool = True) -> list[Template]:
    """Templates with their counts.

    Args:
        source: ``gender`` or ``race`` (the ten most frequent published ones), or a CSV file with
            the columns ``template,count``.
        y_last: Refuse text after ``[Y]``, which a causal model would never see.

    Raises:
        InputError: naming the line, if a template lacks a slot, has one twice or in the wrong
            order, a count is not a positive number, or a template stands twice.

    Source: [BVF] "Bias and Volatility", appendix D.
    """
    if source in PUBLISHED:
        text = files("pvf.data").joinpath(f"templates_{source}.csv").read_text(encoding="utf-8")
        return _parsed(text, str(source), y_last)
    text = read_text(source, setting="templates", named=PUBLISHED)
    return _parsed(text, str(source), y_last)


def _parsed(text: str, source: str, y_last: bool) -> list[Template]:
    reader = csv.DictReader(text.splitlines(), strict=True)
    templates: dict[str, Template] = {}
    try:
        if not {"template", "count"} <= set(reader.fieldnames or ()):
            raise InputError(f"`templates` {source} must have the columns template,count")
        for row in reader:
            where = f"`templates` {source} line {reader.line_num}"
            template = _template(row["template"], row["count"], where, y_last)
            if template.text in templates:
                raise InputError(f"{where}: the template stands twice")
            templates[template.text] = template
    except csv.Error as error:
        raise InputError(f"`templates` {source} line {reader.reader.line_num}: {error}") from None
    if not templates:
        raise InputError(f"`templates` {source} has no template")
    return list(templates.values())


def _template(text: str | None, count: str | None, where: str, y_last: bool) -> Template:
    text = (text or "").strip()
    for slot in (X_SLOT, Y_SLOT):
        if text.count(slot) != 1:
            fault = "lacks" if slot not in text else "has more than one"
            raise InputError(f"{where}: the template {fault} {slot}; got {text!r}")
    if text.index(X_SLOT) > text.index(Y_SLOT):
        raise InputError(f"{where}: {X_SLOT} must come before {Y_SLOT}; got {text!r}")
    if y_last and not text.endswith(Y_SLOT):
        raise InputError(f"{where}: a causal model does not see what follows {Y_SLOT}: {text!r}")
    try:
        number = float(count or "")
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{where}: the count must be a positive number; got {count!r}")
    return Template(text, number)
