"""Preferences to risks, with their intervals, controls and files."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pvf.config import RiskConfig
from pvf.distributions import (
    HILL_K,
    compare_tails,
    describe,
    fit_normal,
    hill,
    weighted_quantiles,
)
from pvf.preferences import Preferences, same_prompts
from pvf.reference_models import finite_context_null, reference_models
from pvf.risk import Risk, decompose
from pvf.uncertainty import Over, risk_intervals, x_intervals
from tda_bias.records.files import read_text, to_json, write_csv, write_text
from tda_bias.types import InputError

QUANTITIES = ("R", "R_p", "R_v")
OVER: tuple[Over, ...] = ("templates", "x", "both")
PRONOUNS = ("he", "she")
_TABLES = ("by_x", "summary", "variants", "fits")


@dataclass(frozen=True)
class RiskReport:
    """What the preferences of one model amount to.

    Attributes:
        preferences: Where it comes from.
        config: How it was computed.
        risk: The decomposition.
        by_x: One row per x: ``r r_p r_v`` with intervals over templates, the signed mean stereotype
            ``s_CLASS`` of each class, the distribution of that of the first class over templates
            (``sd share_positive q05 ... q95``), mean union mass and weight.
        summary: R, R_p and R_v of the model with intervals, of its pronouns alone where there are
            any, and of the reference models.
        variants: The same quantities under the other choices of weights, norm, scale, definition
            and aggregate, one changed at a time.
        fits: Normal fit, Hill indices and tail comparisons of r_p and r_v over x.
        controls: What must be read beside the numbers.
    """

    preferences: Preferences
    config: RiskConfig
    risk: Risk
    by_x: pd.DataFrame
    summary: pd.DataFrame
    variants: pd.DataFrame
    fits: pd.DataFrame
    controls: dict[str, Any]

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.preferences.model

    def save(self, folder: str | Path) -> list[Path]:
        """Write one CSV per table and ``risk.json``, each whole or not at all.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        written = []
        for name in _TABLES:
            write_csv(folder / f"{name}.csv", getattr(self, name))
            written.append(folder / f"{name}.csv")
        record = {"config": self.config.model_dump(mode="json"), "controls": self.controls}
        write_text(folder / "risk.json", to_json(record))
        return [*written, folder / "risk.json"]


def risk_report(
    preferences: Preferences,
    *,
    config: RiskConfig | None = None,
    x_weights: np.ndarray | None = None,
) -> RiskReport:
    """Compute everything that follows from preferences.

    Args:
        preferences: From ``score_preferences`` or a saved run.
        config: Settings.
        x_weights: Weight of each x; uniform if None.

    Raises:
        InputError: if the settings do not fit the classes, or no prompt reaches ``min_mass``.
    """
    config = config or RiskConfig()
    risk = _risk(preferences, config, x_weights)
    return RiskReport(
        preferences=preferences,
        config=config,
        risk=risk,
        by_x=_by_x(preferences, risk, config),
        summary=_summary(preferences, risk, config, x_weights),
        variants=_variants(preferences, config, x_weights),
        fits=_fits(risk, config),
        controls=_controls(preferences, risk, config),
    )


def load_report(folder: str | Path, *, config: RiskConfig | None = None) -> RiskReport:
    """The report of a saved run, computed anew from its preferences.

    Args:
        folder: Where ``Preferences.save`` wrote.
        config: Settings; those saved beside the preferences if None.

    Raises:
        InputError: if the folder holds no finished run.
    """
    preferences = Preferences.load(folder)
    saved = Path(folder) / "risk.json"
    if config is None and saved.is_file():
        config = RiskConfig(**json.loads(saved.read_text(encoding="utf-8"))["config"])
    return risk_report(preferences, config=config)


def load_x_weights(path: str | Path, x: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
    """Weights of x from a CSV with the columns ``x,weight``.

    Returns:
        A weight for each x, 0 where the file has none, and the x without one.

    Raises:
        InputError: naming the line, if a weight is not a number from 0 on or a word stands twice.
    """
    reader = csv.DictReader(read_text(path, setting="x_weights", named=()).splitlines())
    if not {"x", "weight"} <= set(reader.fieldnames or ()):
        raise InputError(f"`x_weights` {path} must have the columns x,weight")
    found: dict[str, float] = {}
    for row in reader:
        where = f"`x_weights` {path} line {reader.line_num}"
        word = (row["x"] or "").strip()
        if word in found:
            raise InputError(f"{where}: {word!r} stands twice")
        try:
            found[word] = float(row["weight"] or "")
        except ValueError:
            found[word] = np.nan
        if not (np.isfinite(found[word]) and found[word] >= 0):
            raise InputError(f"{where}: the weight must be 0 or more; got {row['weight']!r}")
    missing = [word for word in x if word not in found]
    if len(missing) == len(x):
        raise InputError(f"`x_weights` {path} has none of the words; the first is {x[0]!r}")
    return np.array([found.get(word, 0.0) for word in x]), missing


# -- parts -----------------------------------------------------------------------------------------


def _rng(config: RiskConfig, part: int) -> np.random.Generator:
    return np.random.default_rng([config.seed, part])


def _risk(preferences: Preferences, config: RiskConfig, x_weights: np.ndarray | None) -> Risk:
    found = preferences.by_class(config.aggregate)
    weights = preferences.counts if config.template_weights == "counts" else None
    if config.min_mass > 0:
        kept = found.union_mass >= config.min_mass
        none = ~kept.any(1)
        if none.any():
            raise InputError(
                f"`min_mass` {config.min_mass} leaves {preferences.x[int(np.argmax(none))]!r} no "
                f"template; the largest union mass there is {found.union_mass[none].max():.2g}"
            )
        weights = kept * (np.ones(kept.shape[1]) if weights is None else weights)
    return decompose(
        found.p,
        context_weights=weights,
        x_weights=x_weights,
        criterion=config.criterion,
        scale=config.scale,
        one_sided=config.definition == "one_sided",
    )


def _interval_options(config: RiskConfig) -> dict[str, Any]:
    return {
        "criterion": config.criterion,
        "one_sided": config.definition == "one_sided",
        "n_resamples": config.n_resamples,
        "confidence": config.confidence,
    }


def _by_x(preferences: Preferences, risk: Risk, config: RiskConfig) -> pd.DataFrame:
    table = pd.DataFrame({"x": preferences.x, "r": risk.r, "r_p": risk.r_p, "r_v": risk.r_v})
    if len(preferences.templates) > 1:
        found = x_intervals(risk, **_interval_options(config), rng=_rng(config, 0))
        limits = found.limits(config.interval)
        for number, name in enumerate(("r", "r_p", "r_v")):
            table[f"{name}_low"], table[f"{name}_high"] = limits[:, number]
    for number, label in enumerate(preferences.classes):
        table[f"s_{label}"] = risk.mean_s[:, number]
    table["toward"] = [preferences.classes[number] for number in np.argmax(risk.mean_s, axis=1)]
    about = describe(risk.s[..., 0], risk.context_weights).drop(columns="mean")
    union_mass = preferences.by_class(config.aggregate).union_mass
    table = pd.concat([table, about], axis=1)
    table["union_mass"] = np.sum(union_mass * risk.context_weights, axis=1)
    table["x_weight"] = risk.x_weights
    tokens = preferences.record["words"].get("tokens_of_x")  # runs of older versions lack it
    if tokens is not None:
        table["tokens"] = [tokens[word] for word in preferences.x]
    return table


def _summary(
    preferences: Preferences, risk: Risk, config: RiskConfig, x_weights: np.ndarray | None
) -> pd.DataFrame:
    rows = [_measured(preferences.model, risk, config)]
    if set(PRONOUNS) < set(preferences.words) and len(preferences.classes) == 2:
        alone = _risk(preferences.only(PRONOUNS), config, x_weights)
        rows.append(_measured(f"{preferences.model}, he and she alone", alone, config))
    classes = len(preferences.classes)
    options: dict[str, Any] = {"criterion": config.criterion, "scale": config.scale}
    for reference in reference_models(classes, **options):
        rows.append({"row": "reference", **asdict(reference)})
    null = finite_context_null(
        risk.context_weights.mean(0), classes, **options, rng=_rng(config, 1)
    )
    random = rows[-1]["R"]
    rows.append(
        {
            "row": "reference",
            "name": "the same, these templates",
            "R": random,
            "R_p": float(null.mean()),
            "R_v": random - float(null.mean()),
        }
    )
    return pd.DataFrame(rows)


def _measured(name: str, risk: Risk, config: RiskConfig) -> dict[str, Any]:
    row: dict[str, Any] = {"row": "measured", "name": name}
    row |= {"R": risk.R, "R_p": risk.R_p, "R_v": risk.R_v}
    n_x, n_contexts = risk.J.shape
    for over in OVER:
        if (over != "x" and n_contexts < 2) or (over != "templates" and n_x < 2):
            continue
        found = risk_intervals(risk, over=over, **_interval_options(config), rng=_rng(config, 2))
        limits = found.limits(config.interval)
        for number, quantity in enumerate(QUANTITIES):
            row[f"{quantity}_low_{over}"], row[f"{quantity}_high_{over}"] = limits[:, number]
    return row


def _variants(
    preferences: Preferences, config: RiskConfig, x_weights: np.ndarray | None
) -> pd.DataFrame:
    """Every other choice, one at a time, and the four combinations of weights."""
    other: list[tuple[str, dict[str, Any], np.ndarray | None]] = []
    for templates in ("counts", "uniform"):
        for label, weights in (("uniform", None), ("given", x_weights)):
            if label == "uniform" or x_weights is not None:
                name = f"template weights {templates}, x weights {label}"
                other.append((name, {"template_weights": templates}, weights))
    for aggregate in ("sum", "mean"):
        other.append((f"aggregate {aggregate}", {"aggregate": aggregate}, x_weights))
    for criterion in ("linf", "l2", "l1"):
        other.append((f"criterion {criterion}", {"criterion": criterion}, x_weights))
    for scale in ("pcf", "bvf"):
        other.append((f"scale {scale}", {"scale": scale}, x_weights))
    definitions = ("paper", "one_sided") if len(preferences.classes) == 2 else ("paper",)
    for definition in definitions:
        other.append((f"definition {definition}", {"definition": definition}, x_weights))
    rows = []
    for name, changes, weights in other:
        risk = _risk(preferences, config.model_copy(update=changes), weights)
        rows.append({"variant": name, "R": risk.R, "R_p": risk.R_p, "R_v": risk.R_v})
    lengths = preferences.record["words"]["tokens_of_each"]
    if all(len(lengths[word]) == 1 for word in preferences.words):
        risk = _risk(preferences.geometric_mean(), config, x_weights)
        name = "words by the geometric mean of their tokens"
        rows.append({"variant": name, "R": risk.R, "R_p": risk.R_p, "R_v": risk.R_v})
    return pd.DataFrame(rows)


def _fits(risk: Risk, config: RiskConfig) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for name, values in (("r_p", risk.r_p), ("r_v", risk.r_v)):
        if len(values) < 3 or np.ptp(values) == 0:
            rows.append({"quantity": name, "what": "undefined", "value": np.nan})
            continue
        normal = asdict(fit_normal(values, rng=_rng(config, 3)))
        rows += [{"quantity": name, "what": key, "value": value} for key, value in normal.items()]
    positive = risk.r_v[risk.r_v > 0]
    for k in HILL_K:
        if k < len(positive):
            found = hill(risk.r_v, k)
            row = {"quantity": "r_v", "what": f"hill_alpha_k{k}", "value": found.alpha}
            rows.append({**row, "low": 1 / found.high, "high": 1 / found.low})
    try:
        comparisons = compare_tails(risk.r_v)
    except InputError:  # too few different values: said by the absence of the rows
        comparisons = []
    for one in comparisons:
        name = f"{one.first} minus {one.second}"
        rows.append({"quantity": "r_v", "what": f"vuong z, {name}", "value": one.z, "p": one.p})
    return pd.DataFrame(rows).reindex(columns=["quantity", "what", "value", "low", "high", "p"])


def _controls(preferences: Preferences, risk: Risk, config: RiskConfig) -> dict[str, Any]:
    found = preferences.by_class(config.aggregate)
    mass = found.union_mass.reshape(-1)
    low, middle, high = weighted_quantiles(mass, np.ones(len(mass)), (0.05, 0.5, 0.95))
    words = preferences.record["words"]
    return {
        "templates": len(preferences.templates),
        "n_effective_contexts": risk.n_effective_contexts,
        "x": len(preferences.x),
        "classes": list(preferences.classes),
        "words_read": len(preferences.words),
        "words_not_read": words["not_read"],
        "words_shared_by_classes": words["shared_by_classes"],
        "words_that_begin_others": words["continued"],
        "union_mass_mean": float(mass.mean()),
        "union_mass_q05": float(low),
        "union_mass_median": float(middle),
        "union_mass_q95": float(high),
        "prompts_without_mass": int(found.zero_mass.sum()),
        "prompts_left_out": int((risk.context_weights == 0).sum()),
    }


def comparison(reports: Mapping[str, RiskReport]) -> pd.DataFrame:
    """One table for several models: their measured rows, then the reference rows once.

    Raises:
        InputError: if they were asked different things, or two have the same weights, which makes
            a comparison of before and after meaningless.
    """
    same_prompts({name: report.preferences for name, report in reports.items()})
    seen: dict[str, str] = {}
    for name, report in reports.items():
        weights = report.preferences.record["model"]["weights"]
        if weights in seen:
            raise InputError(f"{seen[weights]} and {name} have the same weights: one model, twice")
        seen[weights] = name
    tables = [report.summary[report.summary["row"] == "measured"] for report in reports.values()]
    first = next(iter(reports.values())).summary
    return pd.concat([*tables, first[first["row"] == "reference"]], ignore_index=True)
