"""What a command prints of a finding at first: one sentence, a few numbers, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

_WIDTH, _BAR = 80, 20
_BLANK = "  "


@dataclass(frozen=True)
class Line:
    """A number of a finding.

    Attributes:
        label: What it is: two or three words.
        value: The number.
        rest: Its unit, and what it is to be compared with, or how sure it is.
        share: The number as a share of a whole, which is drawn as a bar; None draws none.
    """

    label: str
    value: str
    rest: str = ""
    share: float | None = None

    @classmethod
    def of_share(cls, label: str, share: float, rest: str = "") -> Line:
        """A share as per cent, with a bar where it lies within 0 and 1.

        Examples:
            >>> line = Line.of_share("wording", 0.6, "of the difference")
            >>> bar(line.share), line.value, line.rest
            ('████████████░░░░░░░░', '60 %', 'of the difference')
        """
        inside = math.isfinite(share) and 0 <= share <= 1
        value = f"{share:.0%}".replace("%", " %") if math.isfinite(share) else "undefined"
        return cls(label, value, rest, share if inside else None)


def bar(share: float) -> str:
    """A share drawn as full cells among all."""
    full = round(share * _BAR)
    return "█" * full + "░" * (_BAR - full)


@dataclass(frozen=True)
class Brief:
    """A finding at a glance.

    Attributes:
        about: The model, the category or the set, and how much was read.
        said: What was found, in one sentence.
        lines: Numbers, from four to six.
        shown: What is printed after them: a table of what was found, or where there is none, why.
        remarks: What a reader must know before deciding anything.
    """

    about: Sequence[str]
    said: str
    lines: Sequence[Line] = ()
    shown: Sequence[Any] = ()  # `TableSpec`, which imports this module, and sentences
    remarks: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The first line."""
        return " · ".join(self.about)

    @property
    def first(self) -> str:
        """What it is about and what was found, in two lines."""
        return f"{self.title}\n{self.said}"

    def head(self) -> Iterator[str]:
        """The title, the sentence and the numbers, in rows of equal columns."""
        yield from wrap(self.title, _WIDTH, break_on_hyphens=False)
        yield ""
        yield from wrap(self.said, _WIDTH, break_on_hyphens=False)
        if self.lines:
            yield ""
        yield from self._numbers()

    def _numbers(self) -> Iterator[str]:
        label = 2 + max((len(line.label) for line in self.lines), default=0)
        plain = [line for line in self.lines if line.share is None]
        value = max((len(line.value) for line in plain), default=0)
        for line in self.lines:
            number = f"{line.value:>{value}}"
            if line.share is not None:
                number = f"{bar(line.share)} {line.value}"
            before = f"{_BLANK}{line.label:<{label}}{number}"
            rows = wrap(
                line.rest,
                _WIDTH,
                initial_indent=" " * (len(before) + 1),
                subsequent_indent=" " * (len(_BLANK) + label + value + 1),
                break_on_hyphens=False,
                break_long_words=False,
            )
            yield before + "".join(rows[:1])[len(before) :]
            yield from rows[1:]

    def end(self) -> Iterator[str]:
        """The remarks."""
        for remark in self.remarks:
            yield from indented(remark)

    def as_values(self) -> dict[str, Any]:
        """The sentence, the numbers and the remarks, for other programs."""
        numbers = [{"label": n.label, "value": n.value, "beside": n.rest} for n in self.lines]
        about = {"about": list(self.about), "said": self.said}
        return {**about, "numbers": numbers, "remarks": list(self.remarks)}

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Brief:
        """What ``as_values`` gave."""
        lines = [Line(one["label"], one["value"], one["beside"]) for one in values["numbers"]]
        return cls(values["about"], values["said"], lines, remarks=values["remarks"])


def indented(text: str) -> list[str]:
    """A sentence in rows that begin where the numbers do."""
    return wrap(
        text, _WIDTH, initial_indent=_BLANK, subsequent_indent=_BLANK, break_on_hyphens=False
    )


def labelled(places: Mapping[str, str], commands: Sequence[str]) -> list[str]:
    """Where a run's files are and which commands follow, in rows; paths and commands stay whole."""
    rows = [*places.items(), *(("" if i else "Next", one) for i, one in enumerate(commands))]
    width = max((len(label) for label, _ in rows), default=0)
    return [f"{_BLANK}{label:<{width}}  {text}" for label, text in rows]
