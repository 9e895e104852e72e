"""A whole experiment: run, judged in numbers and words, and saved with the model that came out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.debias import summary
from tda_bias.debias.experiment import (
    Experiment,
    at_equal_entropy,
    matching,
    named,
    run_experiment,
    trained_alone,
)
from tda_bias.debias.finding import BETTER, verdict
from tda_bias.debias.saved_model import ABOUT, FOUND, refuse_foreign, save_debiased
from tda_bias.debias.summary import DebiasRecord, quantity_of
from tda_bias.debias.training import Results, Trained
from tda_bias.models.language_model import model_record
from tda_bias.store.record import DataRecord
from tda_bias.store.result import LazyResult, RunWriter
from tda_bias.store.run import Run
from tda_bias.triples import triple_ids
from tda_bias.types import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CONDITIONS = {
    **{name: str for name in ("condition", "how", "guard")}, "heads": int,
    **{name: float for name in ("before", "beta", "rms", "perplexity", "p")},
}  # fmt: skip
_FRONTIER = {"condition": str, "draw": int, "check": int, "perplexity": float, "beta": float}
_FURTHER = {"trainings": "trainings.csv", "items": "items.parquet", "others": "others.csv"}
_HEADS = "heads.json"
_SHOWN = ["condition", "how", "heads", "before", "beta", "rms", "perplexity", "guard", "p"]


@dataclass(frozen=True, repr=False)
class DebiasRun(LazyResult):
    """An experiment.

    Attributes:
        conditions: One row per condition; ``summary.conditions_table``.
        frontier: One row per check of a training; ``summary.frontier_table``.
        record: The protocol, the folds and the verdict.
        run: The run that it was loaded from; None for a new one.
        extras: By file what is not in the folder of ``run``: tables of trainings, items and other
            categories (``summary``), and the heads whose weights were trained.
    """

    COMMAND = "debias"
    RECORD = DebiasRecord
    TABLES = (
        ("conditions", "conditions.csv", _CONDITIONS),
        ("frontier", "frontier.csv", _FRONTIER),
    )

    conditions: pd.DataFrame
    frontier: pd.DataFrame
    record: DebiasRecord
    run: Run | None = field(default=None, repr=False, compare=False)
    extras: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def table(self, name: str) -> pd.DataFrame:
        """One of ``trainings``, ``items`` and ``others``, of ``summary``.

        Raises:
            InputError: if the run has no such table.
        """
        file = _FURTHER[name]
        return self._extra(file, lambda run: run.table(file))

    @cached_property
    def heads(self) -> dict[str, Any]:
        """The heads whose weights were trained, for other programs."""
        return self._extra(_HEADS, lambda run: dict(run.json(_HEADS)))

    def _write(self, run: RunWriter) -> None:
        super()._write(run)
        for name, file in _FURTHER.items():
            run.table(file, self.table(name))
        run.json(_HEADS, self.heads)

    def _lines(self) -> list[str]:
        return [self.record.verdict]

    def _shown(self) -> dict[str, pd.DataFrame]:
        return {"conditions on unseen targets": self.conditions[_SHOWN]}


# -- the run ---------------------------------------------------------------------------------------


def run_debias(
    experiment: Experiment,
    folder: Path,
    *,
    category: str,
    data: DataRecord,
    settings: dict[str, Any],
    progress: Progress | None = None,
    draw: Callable[[pd.DataFrame, pd.DataFrame, str], Figure] | None = None,
) -> DebiasRun:
    """Run an experiment, and save it with the models asked for, or that of the best condition.

    The first model goes to ``model`` in the folder, others to ``model-NAME``.

    Args:
        experiment: From ``fixed_experiment``.
        folder: Where to.
        category: Of the triples.
        data: Where these were read.
        settings: For the record.
        progress: Called with steps done and all.
        draw: Draws conditions and frontier for the folder; last it is told their quantity.

    Raises:
        ShareDone: as ``run_experiment``.
        InputError: if a part cannot be read, or a folder cannot be written.
    """
    protocol, corpus = experiment.protocol, experiment.corpus
    about = model_record(corpus.model, weights=experiment.weights)
    for name in ("model", *(f"model-{name}" for name in experiment.save[1:])):
        refuse_foreign(folder / name)
    results = run_experiment(experiment, progress)
    groups = [triple.group for triple in corpus.items.triples]
    matched = {
        condition: [at_equal_entropy(experiment, own) for own in trained]
        for condition, trained in results.items()
        if condition.name in protocol.by
    }
    table = summary.conditions_table(results, groups, protocol, matched=matched)
    first, *others = experiment.save or [summary.recommended(results, protocol)]
    best, row, verdict = _judged(experiment, results, table, first)
    record = DebiasRecord(
        model=about,
        settings=settings,
        data=data,
        category=category,
        protocol=protocol,
        protocol_hash=experiment.identity,
        fixed=experiment.fixed,
        folds=[{"number": fold.number, **experiment.targets(fold)} for fold in experiment.folds],
        neutral={"source": corpus.neutral.source, "revision": corpus.neutral.revision},
        matching=matching(experiment),
        recommended=first,
        unchanged=best.trajectory.best == 0,
        verdict=verdict,
        broken=tuple(summary.broken(results)),
        twins=experiment.twins,
    )
    for earlier in folder.glob("model-*"):
        of_run = (earlier / ABOUT).is_file() and not (earlier / FOUND).exists()
        if of_run and earlier.name.removeprefix("model-") not in others:
            shutil.rmtree(earlier)
    heads = save_debiased(experiment, best, record, row, folder / "model")
    for name in others:
        another, row, verdict = _judged(experiment, results, table, name)
        about_it = record.model_copy(update={"recommended": name, "verdict": verdict})
        save_debiased(experiment, another, about_it, row, folder / f"model-{name}")
    run = DebiasRun(
        conditions=table,
        frontier=summary.frontier_table(results),
        record=record,
        extras={
            _FURTHER["trainings"]: summary.trainings_table(results),
            _FURTHER["items"]: summary.items_table(
                results, groups, triple_ids(corpus.items.triples)
            ),
            _FURTHER["others"]: summary.others_table(results, corpus.reported_groups()),
            _HEADS: heads,
        },
    )
    figures = {}
    if draw is not None:
        figures["frontier"] = draw(run.conditions, run.frontier, quantity_of(record.twins))
    run.save(folder, figures=figures)
    return run


def _judged(
    experiment: Experiment, results: Results, table: pd.DataFrame, name: str
) -> tuple[Trained, dict[str, Any], str]:
    """The training whose model is saved for a condition, and what its folds showed, in words too.

    Of random sets it is the first, which the table does not show alone.
    """
    condition = named(results, name)
    trained = trained_alone(experiment, condition, experiment.folds[-1])
    row = summary.condition_row(condition, results[condition], experiment.protocol)
    unchanged = 0
    if len(experiment.folds) > 1:
        unchanged = sum(own.trajectory.best == 0 for own in results[condition])
    quantity = quantity_of(experiment.twins)
    said = verdict(
        row, table, experiment.protocol, experiment.steps, quantity=quantity, unchanged=unchanged
    )
    if trained.trajectory.best == 0:
        said += f" No check {BETTER}: the model that is saved is the original."
    return trained, row, said
