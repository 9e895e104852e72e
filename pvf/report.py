"""Preferences to risks: tables with intervals and controls, their files, and a finding in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from pvf.config import Criterion, RiskConfig
from pvf.distributions import distribution_tests
from pvf.preferences import Preferences, PreferencesRecord
from pvf.reference import Reference, ReferenceRecord
from pvf.risk import Risk, decompose, reference_rows, risk_intervals, x_intervals
from tda_bias.show.figures import named_apart
from tda_bias.show.text import counted
from tda_bias.stats.seeds import generator
from tda_bias.store.files import RECORD
from tda_bias.store.hashes import text_hash
from tda_bias.store.record import RecordPart, validated_part
from tda_bias.store.result import Addition, RunWriter
from tda_bias.store.run import Run, open_run
from tda_bias.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_QUANTITIES = ("R", "R_p", "R_v")
# Without a reference, preferences are compared with equal ones.
EQUALITY = "equality"
_SETTINGS = "risk.json"
_TABLES = ("by_x", "summary", "variants", "distributions")


class RiskSettings(RecordPart):
    """Content of ``risk.json``: how risks were computed, and the file that weights of x are of.

    A ``reference`` is saved with its shares: a file may change, and the risks are of these.
    """

    config: RiskConfig
    x_weights: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] | None = None
    x_weights_file: str | None = None
    reference: ReferenceRecord | None = None


@dataclass(frozen=True, repr=False)
class RiskReport(Addition):
    """Risks from the preferences of one model.

    Attributes:
        by_x: One row per x: ``r r_p r_v`` with intervals over templates, the signed mean stereotype
            ``s_CLASS`` of each class, mean union mass and weight; with a reference also
            ``r_equality r_p_equality r_v_equality`` and the shares ``reference_CLASS``.
        summary: R, R_p and R_v of the model with intervals, of its pronouns alone where there are
            any, the same against equality where there is a reference, and of the reference models.
        variants: The same under the other choices of the papers and their code, one at a time.
        distributions: Tests of the papers' claims on how r_p and r_v are distributed over words.
        x_weights: Weight of each x as it was given; None for uniform ones.
        x_weights_file: The file that they are of, so that the run says how to repeat it.
        reference: Preferences of a model without bias; None for equal ones.

    Every table names its criterion and scale, in columns of these names.
    """

    TABLES = tuple((name, f"{name}.csv", {}) for name in _TABLES)

    preferences: Preferences
    config: RiskConfig
    risk: Risk
    by_x: pd.DataFrame
    summary: pd.DataFrame
    variants: pd.DataFrame
    distributions: pd.DataFrame
    controls: dict[str, Any]
    x_weights: np.ndarray | None = None
    x_weights_file: str | None = None
    reference: Reference | None = None

    def __repr__(self) -> str:
        return f"RiskReport({self.model}: R {self.risk.R:.4g}, {len(self.by_x)} x)"

    def _shown(self) -> Mapping[str, pd.DataFrame]:
        columns = [name for name in self.summary if not str(name).endswith(("_x", "_both"))]
        words = self.printable().of_weight.nlargest(5, "r")[["x", "r", "r_p", "r_v", "toward"]]
        return {
            "risk, with intervals over templates": self.summary[columns],
            "words with the largest risk": words,
            "distributions over words": self.distributions,
        }

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.preferences.model

    def printable(self) -> RiskReport:
        """The same as it may be printed: classes and words of an offensive list by number."""
        if self.preferences.printed:
            return self
        record = self.preferences.record
        number = {label: f"class {n}" for n, label in enumerate(self.preferences.classes, start=1)}
        by_x = self.by_x.rename(
            columns={
                f"{part}_{label}": f"{part}_{said}"
                for part in ("s", "reference")
                for label, said in number.items()
            }
        )
        classes = {number[label]: members for label, members in record.read.classes.items()}
        read = record.read.model_copy(update={"classes": classes})
        words = (
            "words_not_read", "words_shared_by_classes", "words_that_begin_others"
        )  # fmt: skip
        counts = {name: len(self.controls[name]) for name in words}
        controls = self.controls | {"classes": list(classes)}
        return replace(
            self,
            preferences=self.preferences.with_record(read=read),
            by_x=by_x.assign(toward=by_x["toward"].map(number)),
            controls=controls | {name: [None] * count for name, count in counts.items()},
        )

    @property
    def of_weight(self) -> pd.DataFrame:
        """The rows of ``by_x`` whose word has a weight above 0: the others count for nothing."""
        return self.by_x[self.by_x["x_weight"] > 0]

    @property
    def words(self) -> str:
        """The number of words with a weight, as text: ``12 words``, ``6 weighted words``."""
        return counted(len(self.of_weight), "word" if self.x_weights is None else "weighted word")

    @property
    def measure(self) -> tuple[object, ...]:
        """Key of reports that can be compared.

        Words x, weights, templates, classes, words y, criterion and reference. Words y count also
        where a tokenizer lacks them.
        """
        words, read = self.preferences.record.words, self.preferences.record.read
        y = frozenset([*self.preferences.words, *words.not_read, *words.shared_by_classes])
        weights = tuple(self.risk.x_weights.round(12).tolist())  # 1, 2 weigh like 10, 20
        shares = self.reference and self.reference.record.shares
        asked = read.x, weights, read.templates, tuple(read.classes), y
        return *asked, self.config.criterion, shares

    @property
    def against(self) -> str:
        """The name of the reference for the preferences; ``equality`` without one."""
        return EQUALITY if self.reference is None else self.reference.name

    def save(
        self,
        folder: str | Path,
        *,
        figures: Mapping[str, Figure] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write one CSV per table, ``risk.json`` and figures: all of them, or none.

        The folder is that of the preferences' run, to which they are added; another one gets the
        preferences too. With ``overwrite`` risks under other settings may be lost.

        Raises:
            InputError: if the folder cannot be written, holds another run, or risks under other
                settings.
        """
        folder, record = Path(folder), self.preferences.record
        if (folder / RECORD).exists():
            there = open_run(folder, "pvf").record_as(PreferencesRecord)
            if (there.model.weights, there.prompts) != (record.model.weights, record.prompts):
                raise InputError(
                    f"{folder} holds the preferences of another run; choose another --out"
                )
            if not overwrite:
                refuse_other_risks(folder, self.config, self.x_weights, self.reference)
        else:
            self.preferences.save(folder)
        super().save(folder, figures=figures)

    def _write(self, run: RunWriter) -> None:
        super()._write(run)
        settings = RiskSettings(
            config=self.config,
            x_weights=_as_saved(self.x_weights),
            x_weights_file=self.x_weights_file,
            reference=self.reference and self.reference.record,
        )
        run.json(_SETTINGS, settings.model_dump())


def refuse_other_risks(
    folder: Path,
    config: RiskConfig,
    x_weights: np.ndarray | None,
    reference: Reference | None = None,
) -> None:
    """Make sure that a run has no risks under other settings, which would be written over.

    Raises:
        InputError: if it has, or is not as it was written.
    """
    run = open_run(folder, "pvf")
    if run.has(_SETTINGS):
        saved = _saved_settings(run)
        there = saved.config, saved.x_weights, saved.reference and saved.reference.shares
        shares = reference and reference.record.shares
        if there != (config, _as_saved(x_weights), shares):
            raise InputError(
                f"{folder} holds risks with other settings; choose another --out, or write over "
                "them with --overwrite"
            )


def risk_hash(report: RiskReport) -> str:
    """Hash of what its risks were computed with beside the preferences."""
    settings = RiskSettings(
        config=report.config,
        x_weights=_as_saved(report.x_weights),
        reference=report.reference and report.reference.record,
    )
    return text_hash(settings.model_dump_json())


def risk_options(run: Run) -> dict[str, Any]:
    """Options of the command that the risks of a run depend on; none where it has no risks.

    Raises:
        InputError: if the weights of x or the reference are of no file, or a file is not as it was
            written.
    """
    if not run.has(_SETTINGS):
        return {}
    saved = _saved_settings(run)
    if saved.x_weights is not None and saved.x_weights_file is None:
        raise InputError(f"{run.folder / _SETTINGS}: `x_weights` are of no file")
    source = saved.reference and saved.reference.source
    if saved.reference is not None and source is None:
        raise InputError(f"{run.folder / _SETTINGS}: `reference` is of no file")
    options = {"x_weights": saved.x_weights_file, "reference": source}
    return {**saved.config.model_dump(), **options}


def load_report(folder: str | Path) -> RiskReport:
    """The report of a saved run, computed anew from its preferences with its settings.

    Raises:
        InputError: if the folder holds no finished run, or a file is not as it was written.
    """
    run = open_run(folder, "pvf")
    preferences = Preferences.load(folder)
    if not run.has(_SETTINGS):
        return risk_report(preferences)
    saved = _saved_settings(run)
    weights = None if saved.x_weights is None else np.array(saved.x_weights)
    if weights is not None and (len(weights) != len(preferences.x) or not weights.any()):
        raise InputError(
            f"{run.folder / _SETTINGS}: `x_weights` are not those of the run's words; {run.again}"
        )
    reference = None if saved.reference is None else Reference(saved.reference)
    return risk_report(preferences, config=saved.config, x_weights=weights, reference=reference)


def _as_saved(x_weights: np.ndarray | None) -> tuple[float, ...] | None:
    return None if x_weights is None else tuple(x_weights.tolist())


def _saved_settings(run: Run) -> RiskSettings:
    return validated_part(RiskSettings, run.json(_SETTINGS), str(run.folder / _SETTINGS))


def reports_of(runs: Sequence[Run]) -> dict[str, RiskReport]:
    """The reports of several runs, by model; by folder where several are of one model.

    Raises:
        InputError: as ``load_report`` and ``comparison``, or if a run is given twice.
    """
    reports = {name: run.load(load_report) for name, run in named_apart(runs).items()}
    if len(reports) < len(runs):
        folders = [run.folder for run in runs]
        twice = next(folder for folder in folders if folders.count(folder) > 1)
        raise InputError(f"{twice} is given twice: one model, twice")
    comparison(reports)
    return reports


def risk_report(
    preferences: Preferences,
    *,
    config: RiskConfig | None = None,
    x_weights: np.ndarray | None = None,
    reference: Reference | None = None,
) -> RiskReport:
    """Compute everything that follows from preferences.

    Words x weigh alike without ``x_weights``; without a ``reference`` stereotypes are deviations
    from equal preferences.
    """
    config = config or RiskConfig()
    given = _Given(config.criterion, x_weights, reference)
    risk = given.risk(preferences)
    return RiskReport(
        preferences=preferences,
        config=config,
        risk=risk,
        by_x=_by_x(preferences, risk, config, given),
        summary=_summary(preferences, risk, config, given),
        variants=_variants(preferences, risk, given),
        distributions=distribution_tests(*_of_weight(risk)),
        controls=_controls(preferences, risk),
        x_weights=x_weights,
        reference=reference,
    )


def _of_weight(risk: Risk) -> tuple[np.ndarray, np.ndarray]:
    """r_p and r_v of the words with a weight."""
    return risk.r_p[risk.x_weights > 0], risk.r_v[risk.x_weights > 0]


@dataclass(frozen=True)
class _Given:
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

    def against_equality(self) -> _Given:
        """The same against equal shares, on the scale of the reference."""
        if self.reference is None:
            return self
        return replace(self, reference=self.reference.equal())


# -- tables ----------------------------------------------------------------------------------------


def _by_x(preferences: Preferences, risk: Risk, config: RiskConfig, given: _Given) -> pd.DataFrame:
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


def _summary(
    preferences: Preferences, risk: Risk, config: RiskConfig, given: _Given
) -> pd.DataFrame:
    read = {preferences.model: preferences}
    if (pronouns := preferences.pronouns_alone()) is not None:
        read[f"{preferences.model}, he and she alone"] = pronouns
    name_of_reference = EQUALITY if given.reference is None else given.reference.name
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


def _variants(preferences: Preferences, risk: Risk, given: _Given) -> pd.DataFrame:
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


def _controls(preferences: Preferences, risk: Risk) -> dict[str, Any]:
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
        if report.measure != first.measure:
            raise InputError(
                f"{first_name} and {name} cannot be compared: they have other words, weights of "
                "words, templates, classes, references or criteria"
            )
        weights = report.preferences.record.model.weights or name
        if weights in seen:
            raise InputError(f"{seen[weights]} and {name} have the same weights: one model, twice")
        seen[weights] = name
    tables = [report.summary[report.summary["row"] != "reference"] for report in reports.values()]
    references = first.summary[first.summary["row"] == "reference"]
    return pd.concat([*tables, references], ignore_index=True)


def risk_items(preferences: Preferences) -> pd.DataFrame:
    """One row per word x with its share of the model's risk, for comparisons of models.

    Returns:
        Columns ``x R R_p R_v``, whose means are the model's numbers.
    """
    risk = _Given().risk(preferences)
    return pd.DataFrame({"x": preferences.x, "R": risk.r, "R_p": risk.r_p, "R_v": risk.r_v})
