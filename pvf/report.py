"""Preferences to risks, with their intervals, controls and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pvf.config import RiskConfig
from pvf.distributions import describe, fits_over_x, weighted_quantiles
from pvf.preferences import Preferences, same_prompts
from pvf.record import PreferencesRecord, RiskRecord, RiskSettings
from pvf.reference_models import finite_context_null, reference_models
from pvf.risk import Risk, decompose
from pvf.uncertainty import Over, risk_intervals, x_intervals
from tda_bias.runs.files import RECORD
from tda_bias.runs.record import validated_part
from tda_bias.runs.result import summary_html
from tda_bias.runs.run import Run, content_hash, open_run
from tda_bias.runs.writing import RunWriter, adding_to_run, writing_run
from tda_bias.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = ("R", "R_p", "R_v")
OVER: tuple[Over, ...] = ("templates", "x", "both")
PRONOUNS = ("he", "she")
_TABLES = ("by_x", "summary", "variants", "fits")
_SETTINGS = "risk.json"


@dataclass(frozen=True)
class RiskReport:
    """Risks from the preferences of one model.

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
        x_weights: Weight of each x as it was given; None for uniform ones.
    """

    preferences: Preferences
    config: RiskConfig
    risk: Risk
    by_x: pd.DataFrame
    summary: pd.DataFrame
    variants: pd.DataFrame
    fits: pd.DataFrame
    controls: dict[str, Any]
    x_weights: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"RiskReport({self.model}: R {self.risk.R:.4g}, {len(self.by_x)} x)"

    def _repr_html_(self) -> str:
        columns = [name for name in self.summary if not str(name).endswith(("_x", "_both"))]
        tables = {"risk, with intervals over templates": self.summary[columns]}
        words = self.by_x.nlargest(5, "r")[["x", "r", "r_p", "r_v", "toward"]]
        return summary_html(repr(self), tables={**tables, "words with the largest risk": words})

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.preferences.model

    @property
    def settings(self) -> RiskSettings:
        """Content of ``risk.json``."""
        weights = None if self.x_weights is None else tuple(self.x_weights.tolist())
        return RiskSettings(config=self.config, x_weights=weights, controls=self.controls)

    def save(
        self,
        folder: str | Path,
        *,
        run: str | Path | None = None,
        figures: Mapping[str, Figure] | None = None,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write one CSV per table, ``risk.json`` and figures: all of them, or none.

        Args:
            folder: That of the preferences' run, to which they are added; or, with ``run``, one of
                its own.
            run: Folder of the preferences, if ``folder`` is another.
            figures: By name, drawn from this report.
            overwrite: Whether risks under other settings, or another run, may be lost.

        Raises:
            InputError: if the folder cannot be written, holds another run, or risks under other
                settings.
        """
        folder = Path(folder)
        if run is None or Path(run).resolve() == folder.resolve():
            _refuse_other_risks(self, folder, overwrite=overwrite)
            with adding_to_run(folder, anew=True) as writer:
                self._write(writer, figures or {})
        else:
            record = self.preferences.record
            content = content_hash(record)
            about = RiskRecord(
                model=record.model,
                run=str(Path(run).resolve()),
                made_from={} if content is None else {"pvf": content},
            )
            with writing_run(folder, about) as writer:
                self._write(writer, figures or {})
        return [*(folder / name for name in writer.names), folder / RECORD]

    def _write(self, writer: RunWriter, figures: Mapping[str, Figure]) -> None:
        for name in _TABLES:
            writer.table(f"{name}.csv", getattr(self, name))
        writer.json(_SETTINGS, self.settings.model_dump())
        for name, figure in figures.items():
            writer.figure(name, figure)


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
        fits=fits_over_x(risk.r_p, risk.r_v, rng=lambda: _rng(config, 3)),
        controls=_controls(preferences, risk, config),
        x_weights=x_weights,
    )


def load_report(folder: str | Path, *, config: RiskConfig | None = None) -> RiskReport:
    """The report of a saved run, computed anew from its preferences.

    Args:
        folder: Where ``Preferences.save`` or ``RiskReport.save`` wrote.
        config: Settings, with uniform weights of x; those saved in the folder if None.

    Raises:
        InputError: if the folder holds no finished run, or a file is not as it was written.
    """
    run = open_run(folder, "pvf", "pvf risk")
    preferences = Preferences.load(folder if run.command == "pvf" else _preferences_of(run))
    if config is not None or not run.has(_SETTINGS):
        return risk_report(preferences, config=config)
    saved = _saved_settings(run)
    weights = None if saved.x_weights is None else np.array(saved.x_weights)
    if weights is not None and (len(weights) != len(preferences.x) or not weights.any()):
        raise InputError(
            f"{run.folder / _SETTINGS}: `x_weights` are not those of the run's words; {run.again}"
        )
    return risk_report(preferences, config=saved.config, x_weights=weights)


def saved_config(run: Run) -> RiskConfig | None:
    """How the risks of a run were computed; None where it has none.

    Raises:
        InputError: if the file that says so is not as it was written.
    """
    return _saved_settings(run).config if run.has(_SETTINGS) else None


def _saved_settings(run: Run) -> RiskSettings:
    return validated_part(RiskSettings, run.json(_SETTINGS), str(run.folder / _SETTINGS))


def _preferences_of(run: Run) -> Path:
    """The folder of the preferences that risks were computed from."""
    folder = Path(run.record_as(RiskRecord).run)
    if run.record.made_from.get("pvf") not in (None, open_run(folder, "pvf").content):
        raise InputError(
            f"{folder} holds other preferences than those of {run.folder}; {run.again}"
        )
    return folder


def _refuse_other_risks(report: RiskReport, folder: Path, *, overwrite: bool) -> None:
    """Make sure that risks are added to the run of their preferences, and replace none."""
    run = open_run(folder, "pvf")
    record, ours = run.record_as(PreferencesRecord), report.preferences.record
    if (record.model.weights, record.prompts) != (ours.model.weights, ours.prompts):
        raise InputError(f"{folder} holds the preferences of another run; choose another --out")
    if overwrite or not run.has(_SETTINGS):
        return
    saved = _saved_settings(run)
    if (saved.config, saved.x_weights) != (report.config, report.settings.x_weights):
        raise InputError(
            f"{folder} holds risks with other settings; choose another --out, or write over them "
            "with --overwrite"
        )


# -- parts -----------------------------------------------------------------------------------------


def _rng(config: RiskConfig, part: int) -> np.random.Generator:
    return np.random.default_rng([config.seed, part])


def _risk(preferences: Preferences, config: RiskConfig, x_weights: np.ndarray | None) -> Risk:
    by_class = preferences.by_class(config.aggregate)
    weights = preferences.counts if config.template_weights == "counts" else None
    if config.min_mass > 0:
        kept = by_class.union_mass >= config.min_mass
        none = ~kept.any(1)
        if none.any():
            raise InputError(
                f"`min_mass` {config.min_mass} leaves {preferences.x[int(np.argmax(none))]!r} no "
                f"template; the largest union mass there is {by_class.union_mass[none].max():.2g}"
            )
        weights = kept * (np.ones(kept.shape[1]) if weights is None else weights)
    return decompose(
        by_class.p,
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
        intervals = x_intervals(risk, **_interval_options(config), rng=_rng(config, 0))
        limits = intervals.limits(config.interval)
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
    tokens = preferences.record.words.tokens_of_x
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
        intervals = risk_intervals(
            risk, over=over, **_interval_options(config), rng=_rng(config, 2)
        )
        limits = intervals.limits(config.interval)
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
    lengths = preferences.record.words.tokens_of_each
    if all(len(lengths[word]) == 1 for word in preferences.words):
        risk = _risk(preferences.geometric_mean(), config, x_weights)
        name = "words by the geometric mean of their tokens"
        rows.append({"variant": name, "R": risk.R, "R_p": risk.R_p, "R_v": risk.R_v})
    return pd.DataFrame(rows)


def _controls(preferences: Preferences, risk: Risk, config: RiskConfig) -> dict[str, Any]:
    by_class = preferences.by_class(config.aggregate)
    mass = by_class.union_mass.reshape(-1)
    low, middle, high = weighted_quantiles(mass, np.ones(len(mass)), (0.05, 0.5, 0.95))
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
        "prompts_without_mass": int(by_class.zero_mass.sum()),
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
        weights = report.preferences.record.model.weights or name
        if weights in seen:
            raise InputError(f"{seen[weights]} and {name} have the same weights: one model, twice")
        seen[weights] = name
    tables = [report.summary[report.summary["row"] == "measured"] for report in reports.values()]
    first = next(iter(reports.values())).summary
    return pd.concat([*tables, first[first["row"] == "reference"]], ignore_index=True)


def risk_items(preferences: Preferences) -> pd.DataFrame:
    """One row per word x with its share of the model's risk, for comparisons of models.

    Returns:
        Columns ``x R R_p R_v``, whose means are the model's numbers by the papers' definition
        (templates weighted by their counts, scale of [PCF], maximum norm).
    """
    risk = decompose(preferences.by_class().p, context_weights=preferences.counts)
    return pd.DataFrame({"x": preferences.x, "R": risk.r, "R_p": risk.r_p, "R_v": risk.r_v})
