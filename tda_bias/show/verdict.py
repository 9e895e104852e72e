"""What an outcome comes to in words: one rule for the page, the terminal and JSON.

``docs/method/verdicts.md`` has the rule as a table, and of every outcome its standardised effect
and what confounds it. Each package says what its results come to in ``outcomes.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from tda_bias.show.text import counted, interval_text, listed, number_text, p_text
from tda_bias.stats.clusters import FEWEST_CLUSTERS
from tda_bias.stats.resampling import LEVEL, holm
from tda_bias.types import in_order

if TYPE_CHECKING:
    import pandas as pd

# What an outcome is about, in the order of the page; ``tests`` are of what was found of heads: does
# it hold elsewhere, and does it go with what the model says?
Question = Literal["says", "heads", "tests", "change"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
Word = Literal["clear", "uncertain", "none found", "cannot say"]
Size = Literal["small", "medium", "large"]
# What a sentence says of an outcome.
Told = Literal["above", "below", "confounded", "uncertain", "cannot say"]
# What explains an outcome in the place of bias.
Control = Literal["length", "order", "capability"]

# Of the standardised effect. Source: Cohen (1988), chapters 2 and 6.
_MEDIUM, _LARGE = 0.5, 0.8
_DECIMALS, _MOST_DECIMALS = {"nats": 2, "rho": 2, "r": 2, "%": 1, "points": 1}, 6
# Of the columns of a terminal: name, and value with its interval.
_NAME, _VALUE = 24, 32


@dataclass(frozen=True)
class Bar:
    """A share of a card, from 0 to 1; ``about`` says of what, in words."""

    label: str
    share: float
    about: str = ""

    @classmethod
    def of(cls, label: str, share: float, about: str = "") -> tuple[Bar, ...]:
        """The bar of a share; none where it is undefined or not within 0 and 1.

        Examples:
            >>> Bar.of("wording", 0.6), Bar.of("wording", -0.1), Bar.of("wording", math.nan)
            ((Bar(label='wording', share=0.6, about=''),), (), ())
        """
        return (cls(label, share, about),) if 0 <= share <= 1 else ()


# Of what texts and their twins share.
WORDING = "of how texts differ, what stays with another target, and is no bias"


@dataclass(frozen=True)
class Side:
    """Two texts of an example, and the share of the first in the probability of the two."""

    title: str
    first: str
    second: str
    share: float


@dataclass(frozen=True)
class Example:
    """An item, and beside it its twin where it has one."""

    title: str
    sides: Sequence[Side]


@dataclass(frozen=True)
class HeadGrid:
    """The map of a category: a value of every head, and which heads survive correction."""

    layers: Sequence[int]
    values: Float[np.ndarray, "layer head"]
    survives: Bool[np.ndarray, "layer head"]


@dataclass(frozen=True)
class Outcome:
    """One outcome of a run, and what it comes to.

    Attributes:
        question: What it is about.
        name: In words, as a title.
        about: What the value is, in words.
        value: In ``unit``, with its interval over clusters, ``low`` and ``high``.
        unit: Such as ``nats`` or ``%``; empty for a number between -1 and 1.
        neutral: The value without bias, or without a change.
        neutral_is: What it is, where it is none of these.
        p: Over clusters; of heads the smallest corrected one.
        p_corrected: The same corrected over the outcomes of its run, if its word rests on that.
        p_holm: ``p`` corrected over all outcomes that it is shown with (``corrected``).
        correction: Of heads what the smallest p is corrected by.
        clusters: How many there are.
        cluster: What they are.
        effect: The value in its standardised form, with ``effect_low`` and ``effect_high``; NaN
            where it has none.
        confounded: What explains it in the place of bias.
        found: Heads that survive correction, of ``of``; None for what is no search.
        verb: What those did.
        impossible: Nothing could have been found, whatever the model is like.
        signed: Whether a value below ``neutral`` is one against the stereotype.
        is_bias: Whether a difference is a bias; in what is written it is none by itself.
        model: Whose it is, where a page is of several models; then ``name`` begins with it.
        category: Which it belongs to; empty for none alone.
        bars: Shares that a card draws.
        lines: What else a card says, in a few words each.
        limits: The same of what limits that heads are found.
        power: The smallest effect that would have been found, in words; empty if not known.
        example: An item to look at.
        grid: The map of heads.
        items: One row for each item that the value is made of, with its texts.
    """

    question: Question
    name: str
    about: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    neutral: float = 0.0
    neutral_is: str = ""
    p: float = math.nan
    p_corrected: float = math.nan
    p_holm: float = math.nan
    correction: str = ""
    clusters: int = 0
    cluster: str = "target"
    effect: float = math.nan
    effect_low: float = math.nan
    effect_high: float = math.nan
    confounded: tuple[Control, ...] = ()
    found: int | None = None
    verb: str = "survive"
    of: int = 0
    impossible: bool = False
    signed: bool = True
    is_bias: bool = True
    model: str = ""
    category: str = ""
    bars: Sequence[Bar] = ()
    lines: Sequence[str] = ()
    limits: Sequence[str] = ()
    power: str = ""
    example: Example | None = field(default=None, compare=False, repr=False)
    grid: HeadGrid | None = field(default=None, compare=False, repr=False)
    items: pd.DataFrame | None = field(default=None, compare=False, repr=False)

    def standardised(self, by: Callable[[float], float]) -> Outcome:
        """The same with the effect of the value and of its limits, each as ``by`` gives it."""
        effect, low, high = map(by, (self.value, self.low, self.high))
        return replace(self, effect=effect, effect_low=low, effect_high=high)

    # -- the rule --

    @property
    def word(self) -> Word:
        """How sure it is."""
        too_few = self.found is None and self.clusters < FEWEST_CLUSTERS
        if self.impossible or too_few or not math.isfinite(self.p):
            return "cannot say"
        if self.found is not None:
            return "clear" if self.found else "none found"
        corrected = math.isfinite(self.p_corrected)
        return "clear" if (self.p_corrected if corrected else self.p) < LEVEL else "uncertain"

    @property
    def size(self) -> Size | None:
        """How large it is; None where it has no standardised effect, or nothing can be said."""
        if self.word == "cannot say" or not math.isfinite(self.effect):
            return None
        away = abs(self.effect)
        return "large" if away >= _LARGE else "medium" if away >= _MEDIUM else "small"

    @property
    def is_explained(self) -> bool:
        """Tell whether something can be said, and it is explained by what is no bias."""
        return bool(self.confounded) and self.word != "cannot say"

    @property
    def verdict(self) -> str:
        """The words: how large and how sure, or what explains it in the place of bias."""
        if self.is_explained:
            return f"confounded: {', '.join(self.confounded)}"
        return self.word if self.size is None else f"{self.size}, {self.word}"

    @property
    def is_clear(self) -> bool:
        """Tell whether it is clear and not confounded."""
        return self.word == "clear" and not self.confounded

    @property
    def remains(self) -> bool:
        """Tell whether it is clear after the correction over all that it is shown with."""
        return self.is_clear and self.p_holm < LEVEL

    @property
    def is_clear_alone(self) -> bool:
        """Tell whether that correction takes away that it is clear."""
        return self.is_clear and math.isfinite(self.p_holm) and not self.remains

    @property
    def verdict_beside(self) -> str:
        """The verdict beside the other outcomes that it is shown with."""
        return f"{self.verdict} alone" if self.is_clear_alone else self.verdict

    # -- in words --

    @property
    def value_said(self) -> str:
        """The value with its interval; of heads how many survive."""
        if self.found is not None:
            return f"{self.found} of {counted(self.of, 'head')} {self.verb}"
        digits = self._decimals()
        unit = f" {self.unit}" if self.unit else ""
        said = f"{number_text(self.value, digits)}{unit}"
        has_interval = math.isfinite(self.low) and math.isfinite(self.high)
        if not has_interval and self.clusters >= FEWEST_CLUSTERS:
            return said  # what is compared with random draws has none
        return f"{said} ({interval_text(self.low, self.high, digits)})"

    def _decimals(self) -> int:
        """Those of the unit; more where a value whose interval is without 0 would be said as 0."""
        digits = _DECIMALS.get(self.unit, 3)
        if self.low * self.high > 0:
            least = min(abs(self.value), abs(self.low), abs(self.high))
            while 0 < least < 0.5 * 10**-digits and digits < _MOST_DECIMALS:
                digits += 1
        return digits

    @property
    def neutral_said(self) -> str:
        """What the value would be without bias, or without a change, in words."""
        unit = f" {self.unit}" if self.unit else ""
        usual = "no bias" if self.is_bias else "no difference"
        usual = {"change": "no change", "tests": "chance alone"}.get(self.question, usual)
        has_side = self.question == "says" and self.is_bias and self.signed
        side = "; right of it for the stereotype" if has_side else ""
        return f"{self.neutral:.3g}{unit}: {self.neutral_is or usual}{side}"

    @property
    def test_said(self) -> str:
        """The test that the verdict rests on."""
        if not math.isfinite(self.p):
            return f"{counted(self.clusters, self.cluster)}: no test"
        if self.found is not None:
            by = f" ({self.correction})" if self.correction else ""
            return f"smallest corrected p {p_text(self.p)}{by}"
        said = f"p {p_text(self.p)} over {counted(self.clusters, self.cluster)}"
        if math.isfinite(self.p_corrected):
            return f"{said}, {p_text(self.p_corrected)} corrected"
        return said

    @property
    def p_holm_said(self) -> str:
        """The p after Holm's correction as text; empty where it is undefined."""
        return p_text(self.p_holm) if math.isfinite(self.p_holm) else ""

    def line(self) -> str:
        """The line of a terminal: name, value and interval, then the words."""
        return lines_of([self])[0]

    def as_values(self) -> dict[str, Any]:
        """The same for other programs, without items and pictures."""
        names = (
            "question", "category", "name", "about", "verdict", "verdict_beside", "word",
            "size", "confounded", "value", "low", "high", "unit", "neutral", "p", "p_corrected",
            "p_holm", "clusters", "cluster", "effect", "effect_low", "effect_high", "found",
            "of", "limits", "power",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def told(one: Outcome) -> Told:
    """What the sentence of an outcome has to say, so that it says what the verdict says.

    Returns:
        ``above`` and ``below`` are clear, by the side of ``neutral`` on which the value is.
    """
    if one.is_explained:
        return "confounded"
    if one.word == "clear":
        return "above" if one.value > one.neutral else "below"
    return "cannot say" if one.word == "cannot say" else "uncertain"


def per_spread(spread: float) -> Callable[[float], float]:
    """What gives a value in standard deviations of its items; NaN where these do not vary."""
    return lambda value: value / spread if spread > 0 else math.nan


def share_effect(share: float, neutral: float = 0.5) -> float:
    """The standardised form of a share: Cohen's h, the difference of arcsines.

    Source: Cohen (1988), chapter 6.

    Examples:
        >>> round(share_effect(0.63), 2), share_effect(0.5)
        (0.26, 0.0)
    """
    if not (0 <= share <= 1 and 0 <= neutral <= 1):
        return math.nan
    return 2 * math.asin(math.sqrt(share)) - 2 * math.asin(math.sqrt(neutral))


def balance_effect(balance: float, neutral: float = 0.0) -> float:
    """The same of a balance from -1 to 1, twice a share less one.

    Examples:
        >>> round(balance_effect(0.26), 2) == round(share_effect(0.63), 2)
        True
    """
    return share_effect((1 + balance) / 2, (1 + neutral) / 2)


def power_said(smallest: float, unit: str = "") -> str:
    """The effect that four samples of five find, in words; empty where there is none.

    Examples:
        >>> power_said(0.448, "nats"), power_said(math.nan)
        ('0.45 nats, four times out of five', '')
    """
    if not 0 < smallest < math.inf:
        return ""
    said = number_text(smallest, _DECIMALS.get(unit, 3))
    return four_of_five(f"{said}{f' {unit}' if unit else ''}")


def four_of_five(effect: str) -> str:
    """An effect in words, with how many of all samples find it.

    Examples:
        >>> four_of_five("rho of 0.3")
        'rho of 0.3, four times out of five'
    """
    return f"{effect}, four times out of five"


def would_find(smallest: float, unit: str = "") -> list[str]:
    """The same as a line of a card; none where there is none.

    Examples:
        >>> would_find(0.448, "nats"), would_find(math.nan)
        (['would find 0.45 nats'], [])
    """
    said = power_said(smallest, unit)
    return [f"would find {said.partition(',')[0]}"] if said else []


# -- several outcomes ------------------------------------------------------------------------------


def lines_of(outcomes: Sequence[Outcome]) -> list[str]:
    """The lines of a terminal, in columns."""
    name = max([_NAME, *(len(one.name) for one in outcomes)])
    value = max([_VALUE, *(len(one.value_said) for one in outcomes)])
    return [
        f"{one.name:<{name}} {one.value_said:<{value}} {one.verdict_beside}" for one in outcomes
    ]


def ordered(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """By question, then by category, those of no category last; else as they come."""
    categories = in_order([one.category for one in outcomes if one.category])

    def key(one: Outcome) -> tuple[int, int]:
        place = categories.index(one.category) if one.category else len(categories)
        return QUESTIONS.index(one.question), place

    return sorted(outcomes, key=key)


def corrected(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, each with its p after Holm's correction over all of them that are tested.

    What is confounded is tested, and does not remain.
    """
    adjusted = iter(holm(np.array([one.p for one in under_test(outcomes)], float)))
    return [
        replace(one, p_holm=float(next(adjusted)) if _is_tested(one) else math.nan)
        for one in outcomes
    ]


def under_test(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes that something can be said of, over which is corrected."""
    return [one for one in outcomes if _is_tested(one)]


def _is_tested(one: Outcome) -> bool:
    return one.word != "cannot say"


def overall(outcomes: Sequence[Outcome]) -> str:
    """The verdict over all outcomes, as a sentence; empty where there are none."""
    if not outcomes:
        return ""
    outcomes = corrected(outcomes)
    remain, m = [one for one in outcomes if one.remains], len(under_test(outcomes))
    if m == 0:
        return "Cannot say: there is too little data to test anything."
    looked = f" after Holm's correction for looking at {counted(m, 'outcome')}" if m > 1 else ""
    if remain:
        return f"Clear{looked}: {listed([one.name for one in remain])}."
    said = f"Inconclusive: nothing is clear{looked}."
    alone = [
        f"{one.name} (p {p_text(one.p)}, corrected {p_text(one.p_holm)})"
        for one in outcomes
        if one.is_clear_alone
    ]
    return f"{said} Looked at alone, {listed(alone)} would be." if alone else said
