"""The report of a run: its risks with their tables, saved, loaded, and compared with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from pvf.config import RiskConfig
from pvf.distributions import distribution_tests
from pvf.preferences import Preferences, PreferencesRecord
from pvf.reference import Reference, ReferenceRecord, named
from pvf.risk import Risk
from pvf.tables import Choices, by_x_table, controls_of, summary_table, variants_table
from tda_bias.show.figures import named_apart
from tda_bias.show.text import counted
from tda_bias.store.files import RECORD
from tda_bias.store.hashes import text_hash
from tda_bias.store.record import RecordPart, validated_part
from tda_bias.store.result import Addition, RunWriter
from tda_bias.store.run import Run, open_run
from tda_bias.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        said = record.concealed()
        by_x = self.by_x.rename(columns=said)
        classes = {said[label]: members for label, members in record.read.classes.items()}
        read = record.read.model_copy(update={"classes": classes})
        words = (
            "words_not_read", "words_shared_by_classes", "words_that_begin_others"
        )  # fmt: skip
        counts = {name: len(self.controls[name]) for name in words}
        controls = self.controls | {"classes": list(classes)}
        return replace(
            self,
            preferences=self.preferences.with_record(read=read),
            by_x=by_x.assign(toward=by_x["toward"].map(said)),
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
        return named(self.reference)

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
    given = Choices(config.criterion, x_weights, reference)
    risk = given.risk(preferences)
    return RiskReport(
        preferences=preferences,
        config=config,
        risk=risk,
        by_x=by_x_table(preferences, risk, config, given),
        summary=summary_table(preferences, risk, config, given),
        variants=variants_table(preferences, risk, given),
        distributions=distribution_tests(*_of_weight(risk)),
        controls=controls_of(preferences, risk),
        x_weights=x_weights,
        reference=reference,
    )


def _of_weight(risk: Risk) -> tuple[np.ndarray, np.ndarray]:
    """r_p and r_v of the words with a weight."""
    return risk.r_p[risk.x_weights > 0], risk.r_v[risk.x_weights > 0]


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
