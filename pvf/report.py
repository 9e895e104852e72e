"""Preferences to risks: tables with intervals and controls, their files, and a finding in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from pvf.config import RiskConfig
from pvf.preferences import Preferences, PreferencesRecord
from pvf.risk import Risk, decompose, finite_context_null, reference_models
from pvf.uncertainty import (
    Over,
    describe,
    normal_fit,
    risk_intervals,
    weighted_quantiles,
    x_intervals,
)
from tda_bias.runs.files import RECORD
from tda_bias.runs.record import RecordPart, RunRecord, validated_part
from tda_bias.runs.result import adding_to_run, summary_html, writing_run
from tda_bias.runs.run import Run, content_hash, open_run
from tda_bias.runs.text import Finding, counted, interval_text
from tda_bias.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = ("R", "R_p", "R_v")
OVER: tuple[Over, ...] = ("templates", "x", "both")
_SETTINGS = "risk.json"


class RiskRecord(RunRecord):
    """A run of ``tdabias pvf risk``: risks in a folder of their own.

    Attributes:
        run: Folder of the preferences they were computed from.
    """

    command: Literal["pvf risk"] = "pvf risk"
    run: str


class RiskSettings(RecordPart):
    """Content of ``risk.json``: how risks were computed, and what must be read beside them.

    Attributes:
        config: How.
        x_weights: Of each x, in the order of the preferences; None for uniform ones.
        controls: As in ``RiskReport``.
    """

    config: RiskConfig
    x_weights: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] | None = None
    controls: dict[str, Any] = Field(default_factory=dict)


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
        fits: Normal fits of r_p and r_v over x.
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
        folder, record = Path(folder), self.preferences.record
        if run is None or Path(run).resolve() == folder.resolve():
            there = open_run(folder, "pvf").record_as(PreferencesRecord)
            if (there.model.weights, there.prompts) != (record.model.weights, record.prompts):
                raise InputError(
                    f"{folder} holds the preferences of another run; choose another --out"
                )
            if not overwrite:
                refuse_other_risks(folder, self.config, self.x_weights)
            writing = adding_to_run(folder)
        else:
            content = content_hash(record)
            about = RiskRecord(
                model=record.model,
                run=str(Path(run).resolve()),
                made_from={} if content is None else {"pvf": content},
            )
            writing = writing_run(folder, about)
        with writing as writer:
            for name in ("by_x", "summary", "variants", "fits"):
                writer.table(f"{name}.csv", getattr(self, name))
            weights = _as_saved(self.x_weights)
            settings = RiskSettings(config=self.config, x_weights=weights, controls=self.controls)
            writer.json(_SETTINGS, settings.model_dump())
            for name, figure in (figures or {}).items():
                writer.figure(name, figure)
        return [folder / name for name in (*writer.names, RECORD)]


def refuse_other_risks(folder: Path, config: RiskConfig, x_weights: np.ndarray | None) -> None:
    """Make sure that a run has no risks under other settings, which would be written over.

    Raises:
        InputError: if it has, or is not as it was written.
    """
    run = open_run(folder, "pvf")
    if run.has(_SETTINGS):
        saved = _saved_settings(run)
        if (saved.config, saved.x_weights) != (config, _as_saved(x_weights)):
            raise InputError(
                f"{folder} holds risks with other settings; choose another --out, or write over "
                "them with --overwrite"
            )


def load_report(folder: str | Path) -> RiskReport:
    """The report of a saved run, computed anew from its preferences with its settings.

    Args:
        folder: Where ``Preferences.save`` or ``RiskReport.save`` wrote.

    Raises:
        InputError: if the folder holds no finished run, or a file is not as it was written.
    """
    run = open_run(folder, "pvf", "pvf risk")
    preferences = Preferences.load(folder if run.command == "pvf" else _preferences_of(run))
    if not run.has(_SETTINGS):
        return risk_report(preferences)
    saved = _saved_settings(run)
    weights = None if saved.x_weights is None else np.array(saved.x_weights)
    if weights is not None and (len(weights) != len(preferences.x) or not weights.any()):
        raise InputError(
            f"{run.folder / _SETTINGS}: `x_weights` are not those of the run's words; {run.again}"
        )
    return risk_report(preferences, config=saved.config, x_weights=weights)


def _as_saved(x_weights: np.ndarray | None) -> tuple[float, ...] | None:
    return None if x_weights is None else tuple(x_weights.tolist())


def _saved_settings(run: Run) -> RiskSettings:
    return validated_part(RiskSettings, run.json(_SETTINGS), str(run.folder / _SETTINGS))


def _preferences_of(run: Run) -> Path:
    """The folder of the preferences that risks were computed from."""
    folder = Path(run.record_as(RiskRecord).run)
    if run.record.made_from.get("pvf") not in (None, content_hash(open_run(folder, "pvf").record)):
        raise InputError(
            f"{folder} holds other preferences than those of {run.folder}; {run.again}"
        )
    return folder


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
        fits=pd.DataFrame(
            {"quantity": name, **normal_fit(values, rng=np.random.default_rng([config.seed, 3]))}
            for name, values in (("r_p", risk.r_p), ("r_v", risk.r_v))
        ),
        controls=_controls(preferences, risk, config),
        x_weights=x_weights,
    )


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


# -- tables ----------------------------------------------------------------------------------------


def _interval_options(config: RiskConfig) -> dict[str, Any]:
    return {
        "criterion": config.criterion,
        "one_sided": config.definition == "one_sided",
        "confidence": config.confidence,
    }


def _by_x(preferences: Preferences, risk: Risk, config: RiskConfig) -> pd.DataFrame:
    table = pd.DataFrame({"x": preferences.x, "r": risk.r, "r_p": risk.r_p, "r_v": risk.r_v})
    limits = x_intervals(risk, **_interval_options(config))
    for number, name in enumerate(("r", "r_p", "r_v")):
        table[f"{name}_low"], table[f"{name}_high"] = limits[:, number]
    for number, label in enumerate(preferences.classes):
        table[f"s_{label}"] = risk.mean_s[:, number]
    table["toward"] = [preferences.classes[number] for number in np.argmax(risk.mean_s, axis=1)]
    table = pd.concat([table, describe(risk.s[..., 0], risk.context_weights)], axis=1)
    union_mass = preferences.by_class().union_mass
    table["union_mass"] = np.sum(union_mass * risk.context_weights, axis=1)
    table["x_weight"] = risk.x_weights
    tokens = preferences.record.words.tokens_of_x
    if tokens is not None:
        table["tokens"] = table["x"].map(tokens)
    return table


def _summary(
    preferences: Preferences, risk: Risk, config: RiskConfig, x_weights: np.ndarray | None
) -> pd.DataFrame:
    rows = [_measured(preferences.model, risk, config)]
    if (pronouns := preferences.pronouns_alone()) is not None:
        alone = _risk(pronouns, config, x_weights)
        rows.append(_measured(f"{preferences.model}, he and she alone", alone, config))
    options: dict[str, Any] = {"criterion": config.criterion, "scale": config.scale}
    references = reference_models(len(preferences.classes), **options)
    weights = risk.context_weights.mean(0)
    null = finite_context_null(
        weights[weights > 0],
        len(preferences.classes),
        **options,
        rng=np.random.default_rng([config.seed, 1]),
    )
    random, expected = references["randomly initialised"][0], float(null.mean())
    references["the same, these templates"] = random, expected, random - expected
    for name, values in references.items():
        rows.append(
            {"row": "reference", "name": name, **dict(zip(QUANTITIES, values, strict=True))}
        )
    return pd.DataFrame(rows)


def _measured(name: str, risk: Risk, config: RiskConfig) -> dict[str, Any]:
    row: dict[str, Any] = {"row": "measured", "name": name}
    row |= {"R": risk.R, "R_p": risk.R_p, "R_v": risk.R_v}
    for over in OVER:
        limits = risk_intervals(risk, over=over, **_interval_options(config))
        for number, quantity in enumerate(QUANTITIES):
            row[f"{quantity}_low_{over}"], row[f"{quantity}_high_{over}"] = limits[:, number]
    return row


def _variants(
    preferences: Preferences, config: RiskConfig, x_weights: np.ndarray | None
) -> pd.DataFrame:
    """Every other choice, one at a time, and the four combinations of weights."""
    two = len(preferences.classes) == 2
    choices: dict[str, tuple[str, ...]] = {
        "aggregate": ("sum", "mean"),
        "criterion": ("linf", "l2", "l1"),
        "scale": ("pcf", "bvf"),
        "definition": ("paper", "one_sided") if two else ("paper",),
    }
    weights_of_x = [("uniform", None)] + [("given", x_weights)] * (x_weights is not None)
    risks = {}
    for templates in ("counts", "uniform"):
        changed = config.model_copy(update={"template_weights": templates})
        for label, weights in weights_of_x:
            name = f"template weights {templates}, x weights {label}"
            risks[name] = _risk(preferences, changed, weights)
    for choice, values in choices.items():
        for value in values:
            changed = config.model_copy(update={choice: value})
            risks[f"{choice} {value}"] = _risk(preferences, changed, x_weights)
    name = "words by the geometric mean of their tokens"
    risks[name] = _risk(preferences.geometric_mean(), config, x_weights)
    return pd.DataFrame(
        [{"variant": name, "R": r.R, "R_p": r.R_p, "R_v": r.R_v} for name, r in risks.items()]
    )


def _controls(preferences: Preferences, risk: Risk, config: RiskConfig) -> dict[str, Any]:
    mass = preferences.by_class().union_mass.reshape(-1)
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
        "prompts_without_mass": int((mass == 0).sum()),
        "prompts_left_out": int((risk.context_weights == 0).sum()),
    }


# -- several models --------------------------------------------------------------------------------


def comparison(reports: Mapping[str, RiskReport]) -> pd.DataFrame:
    """One table for several models: their measured rows, then the reference rows once.

    Raises:
        InputError: if they were asked different things, or two have the same weights, which makes
            a comparison of before and after meaningless.
    """
    first_name, first = next(iter(reports.items()))
    seen: dict[str, str] = {}
    for name, report in reports.items():
        ours, theirs = report.preferences, first.preferences
        if (ours.x, ours.templates, ours.classes) != (theirs.x, theirs.templates, theirs.classes):
            raise InputError(
                f"{first_name} and {name} cannot be compared: they were read with other words, "
                "templates or classes"
            )
        weights = ours.record.model.weights or name
        if weights in seen:
            raise InputError(f"{seen[weights]} and {name} have the same weights: one model, twice")
        seen[weights] = name
    tables = [report.summary[report.summary["row"] == "measured"] for report in reports.values()]
    references = first.summary[first.summary["row"] == "reference"]
    return pd.concat([*tables, references], ignore_index=True)


def risk_items(preferences: Preferences) -> pd.DataFrame:
    """One row per word x with its share of the model's risk, for comparisons of models.

    Returns:
        Columns ``x R R_p R_v``, whose means are the model's numbers by the papers' definition
        (templates weighted by their counts, scale of [PCF], maximum norm).
    """
    risk = decompose(preferences.by_class().p, context_weights=preferences.counts)
    return pd.DataFrame({"x": preferences.x, "R": risk.r, "R_p": risk.r_p, "R_v": risk.r_v})


def risk_finding(report: RiskReport) -> Finding:
    """Prejudice and volatility of a model, compared with models without prejudice."""
    n, classes = report.controls, report.preferences.classes
    measured, null = report.summary.iloc[0], report.summary.iloc[-1]
    low, high = (measured.get(f"R_p_{end}_both", float("nan")) for end in ("low", "high"))
    leaning = ""
    if len(classes) == 2:
        toward = int((report.by_x[f"s_{classes[0]}"] > 0).sum())
        leaning = (
            f" {toward} of {counted(len(report.by_x), 'word')} lean to {classes[0]}, the others to "
            f"{classes[1]}."
        )
    details = [
        f"Contexts: {counted(n['templates'], 'template weighs', 'templates weigh')} like "
        f"{n['n_effective_contexts']:.1f}.",
    ]
    if n["words_shared_by_classes"] or n["words_not_read"]:
        shared, unread = n["words_shared_by_classes"], n["words_not_read"]
        details.append(
            f"Words not read: {len(shared)} in two classes, {len(unread)} that these settings "
            "exclude for this tokenizer; run.json names them."
        )
    if n["words_that_begin_others"]:
        details.append(
            f"Words that are, in tokens, the beginning of another: "
            f"{len(n['words_that_begin_others'])}; what continues to the longer one is not counted "
            "for the shorter."
        )
    if n["prompts_without_mass"] or n["prompts_left_out"]:
        details.append(
            f"{n['prompts_without_mass']} prompts give no listed word any probability (uniform "
            f"there); {n['prompts_left_out']} are left out by --min-mass."
        )
    if report.config.definition == "one_sided":
        details.append("One-sided, as the published code: half the paper's volatility.")
    return Finding(
        result=[
            f"{report.model}: risk R {measured['R']:.3f}, of which prejudice R_p "
            f"{measured['R_p']:.3f} ({interval_text(low, high, 3)}) and volatility R_v "
            f"{measured['R_v']:.3f}, of {' and '.join(classes)}.{leaning}"
        ],
        control=[
            f"A model without prejudice, whose preferences are random in each template, has R_p = "
            f"{null['R_p']:.3f} with so few templates.",
            f"Union mass (probability of any listed word): mean {n['union_mass_mean']:.3g}, median "
            f"{n['union_mass_median']:.3g}, 5 % to 95 % {n['union_mass_q05']:.2g} to "
            f"{n['union_mass_q95']:.2g}. Where it is small, preferences mean little.",
        ],
        details=details,
    )
