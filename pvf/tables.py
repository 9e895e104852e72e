"""Preferences and their risk to tables, with intervals and under other choices of the papers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pvf.config import Criterion, RiskConfig
from pvf.preferences import Preferences
from pvf.reference import EQUALITY, Reference, named
from pvf.risk import Risk, decompose, reference_rows, risk_intervals, x_intervals
from tda_bias.stats.seeds import generator

_QUANTITIES = ("R", "R_p", "R_v")


@dataclass(frozen=True)
class Choices:
    """What risks are computed with, beside preferences."""

    criterion: Criterion = "linf"
    x_weights: np.ndarray | None = None
    reference: Reference | None = None

    def risk(self, preferences: Preferences) -> Risk:
        """Risk by the papers' definition: templates weigh as their counts."""
        p = preferences.by_class().p
        shares = None if self.reference is None else self.reference.shares
        return decompose(
            p,
            context_weights=preferences.counts,
            x_weights=self.x_weights,
            reference=shares,
            criterion=self.criterion,
        )

    def against_equality(self) -> Choices:
        """The same against equal shares, on the scale of the reference."""
        if self.reference is None:
            return self
        return replace(self, reference=self.reference.equal())


def by_x_table(
    preferences: Preferences, risk: Risk, config: RiskConfig, given: Choices
) -> pd.DataFrame:
    """One row per word x, as ``RiskReport.by_x`` says."""
    table = pd.DataFrame({"x": preferences.x, "r": risk.r, "r_p": risk.r_p, "r_v": risk.r_v})
    limits = x_intervals(risk, confidence=config.confidence)
    for number, name in enumerate(("r", "r_p", "r_v")):
        table[f"{name}_low"], table[f"{name}_high"] = limits[:, number]
    for number, label in enumerate(preferences.classes):
        table[f"s_{label}"] = risk.mean_s[:, number]
    table["toward"] = [preferences.classes[number] for number in np.argmax(risk.mean_s, axis=1)]
    table["union_mass"] = preferences.by_class().union_mass @ risk.context_weights
    table["x_weight"] = risk.x_weights
    tokens = preferences.record.words.tokens_of_x
    if tokens is not None:
        table["tokens"] = table["x"].map(tokens)
    if risk.reference is not None:
        equal = given.against_equality().risk(preferences)
        for name, values in {"r": equal.r, "r_p": equal.r_p, "r_v": equal.r_v}.items():
            table[f"{name}_equality"] = values
        shares = np.einsum("c,xcy->xy", risk.context_weights, risk.reference)
        for number, label in enumerate(preferences.classes):
            table[f"reference_{label}"] = shares[:, number]
    return table.assign(criterion=risk.criterion, scale=risk.scale)


def summary_table(
    preferences: Preferences, risk: Risk, config: RiskConfig, given: Choices
) -> pd.DataFrame:
    """R, R_p and R_v with intervals, as ``RiskReport.summary`` says."""
    read = {preferences.model: preferences}
    if (pronouns := preferences.pronouns_alone()) is not None:
        read[f"{preferences.model}, he and she alone"] = pronouns
    name_of_reference = named(given.reference)
    measured = []
    for name, of in read.items():
        measured.append(("measured", name, name_of_reference, given.risk(of)))
        if given.reference is not None:
            measured.append((EQUALITY, name, EQUALITY, given.against_equality().risk(of)))
    rows: list[dict[str, Any]] = []
    for kind, name, against, found in measured:
        row = {"row": kind, "name": name, "R": found.R, "R_p": found.R_p, "R_v": found.R_v}
        row["against"] = against
        for over, limits in risk_intervals(found, confidence=config.confidence).items():
            for quantity, (low, high) in zip(_QUANTITIES, limits.T, strict=True):
                row |= {f"{quantity}_low_{over}": low, f"{quantity}_high_{over}": high}
        rows.append(row)
    for name, values in reference_rows(risk, rng=generator(config.seed, 1)).items():
        numbers = dict(zip(_QUANTITIES, values, strict=True))
        rows.append({"row": "reference", "name": name, **numbers, "against": name_of_reference})
    table = pd.DataFrame(rows).assign(criterion=risk.criterion, scale=risk.scale)
    last = ["against", "criterion", "scale"]
    return table[[*table.columns.drop(last), *last]]


def variants_table(preferences: Preferences, risk: Risk, given: Choices) -> pd.DataFrame:
    """Risk under the choices on which the papers or their code differ."""
    p, counts, criterion = preferences.by_class().p, preferences.counts, given.criterion
    own: dict[str, Any] = {
        "reference": given.reference and given.reference.shares,
        "criterion": criterion,
    }
    risks = {}
    of_x: dict[str, np.ndarray | None] = {"uniform": None}
    if given.x_weights is not None:
        of_x["given"] = given.x_weights
    for templates, w_c in (("counts", counts), ("uniform", None)):
        for label, w_x in of_x.items():
            name = f"template weights {templates}, x weights {label}"
            risks[name] = decompose(p, context_weights=w_c, x_weights=w_x, **own)
    weights: dict[str, Any] = {"context_weights": counts, "x_weights": given.x_weights}
    mean = preferences.by_class("mean").p
    risks["aggregate mean"] = decompose(mean, **weights, **own)
    for other in ("l3", "l2", "l1") if criterion == "linf" else ("linf", "l2", "l1"):
        if other != criterion:
            risks[f"criterion {other}"] = replace(given, criterion=other).risk(preferences)
    risks["words by the geometric mean of their tokens"] = given.risk(preferences.geometric_mean())
    if given.reference is not None:
        risks["reference equality"] = given.against_equality().risk(preferences)
    rows = [
        (name, found.R, found.R_p, found.R_v, found.criterion, found.scale)
        for name, found in risks.items()
    ]
    n_classes = len(preferences.classes)
    if given.reference is None:
        R, R_p, R_v = ((n_classes - 1) * value for value in (risk.R, risk.R_p, risk.R_v))
        rows.append(("scale bvf", R, R_p, R_v, criterion, "K p - 1"))
    if n_classes == 2 and given.reference is None:
        # The code counts deviations to the side of the mean only: as much prejudice, and half of
        # the volatility, because what leans to the other side is as much.
        half = risk.R_v / 2
        name = "definition one_sided"
        rows.append((name, risk.R_p + half, risk.R_p, half, criterion, risk.scale))
    return pd.DataFrame(rows, columns=["variant", *_QUANTITIES, "criterion", "scale"])


def controls_of(preferences: Preferences, risk: Risk) -> dict[str, Any]:
    """What the numbers rest on: sizes, words that were not read, and the union mass."""
    mass = preferences.by_class().union_mass.reshape(-1)
    # The smallest mass at or below which that share of the prompts lies.
    low, middle, high = np.quantile(mass, (0.05, 0.5, 0.95), method="inverted_cdf")
    words = preferences.record.words
    return {
        "templates": len(preferences.templates),
        "n_effective_contexts": risk.n_effective_contexts,
        "x": len(preferences.x),
        "classes": list(preferences.classes),
        "words_read": len(preferences.words),
        "words_not_read": dict(words.not_read),
        "words_shared_by_classes": list(words.shared_by_classes),
        "words_that_begin_others": [list(pair) for pair in words.continued],
        "union_mass_mean": float(mass.mean()),
        "union_mass_q05": float(low),
        "union_mass_median": float(middle),
        "union_mass_q95": float(high),
        "prompts_without_mass": int((mass == 0).sum()),
        "criterion": risk.criterion,
        "scale": risk.scale,
    }


def risk_items(preferences: Preferences) -> pd.DataFrame:
    """One row per word x with its share of the model's risk, for comparisons of models.

    Returns:
        Columns ``x R R_p R_v``, whose means are the model's numbers.
    """
    risk = Choices().risk(preferences)
    return pd.DataFrame({"x": preferences.x, "R": risk.r, "R_p": risk.r_p, "R_v": risk.r_v})
