"""A whole experiment: run, judged in numbers and words, and saved with the model that came out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
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
from tda_bias.debias.protocol import RANDOM, Protocol
from tda_bias.debias.saved_model import ABOUT, FOUND, refuse_foreign, save_debiased
from tda_bias.debias.summary import DebiasRecord, quantity_of
from tda_bias.debias.training import Results, Trained
from tda_bias.models.language_model import model_record
from tda_bias.show.text import Finding, counted, interval_text
from tda_bias.stats.clusters import FEWEST_CLUSTERS
from tda_bias.store.record import DataRecord
from tda_bias.store.result import Result
from tda_bias.triples import triple_ids
from tda_bias.types import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEVEL = 0.05
# Shorter trainings test the program.
_ENOUGH_STEPS = 10
_BETTER = "passed the guards with less loss than the original"
_CONDITIONS = {
    **{name: str for name in ("condition", "how", "guard")}, "heads": int,
    **{name: float for name in ("before", "beta", "rms", "perplexity", "p")},
}  # fmt: skip
_FRONTIER = {"condition": str, "draw": int, "check": int, "perplexity": float, "beta": float}
_SHOWN = ["condition", "how", "heads", "before", "beta", "rms", "perplexity", "guard", "p"]


@dataclass(frozen=True, repr=False)
class DebiasRun(Result):
    """An experiment.

    Attributes:
        conditions: One row per condition; ``summary.conditions_table``.
        frontier: One row per check of a training; ``summary.frontier_table``.
        trainings: One row per training; ``summary.trainings_table``.
        items: One row per condition and item; ``summary.items_table``.
        others: One row per condition and group of other texts; ``summary.others_table``.
        heads: The heads whose weights were trained, for other programs.
        record: The protocol, the folds and the verdict.
    """

    COMMAND = "debias"
    RECORD = DebiasRecord
    TABLES = (
        ("conditions", "conditions.csv", _CONDITIONS),
        ("frontier", "frontier.csv", _FRONTIER),
        ("trainings", "trainings.csv", {}),
        ("items", "items.parquet", {}),
        ("others", "others.csv", {}),
    )
    OPTIONAL = frozenset({"others"})  # without other categories in the data
    DOCUMENTS = (("heads", "heads.json"),)

    conditions: pd.DataFrame
    frontier: pd.DataFrame
    trainings: pd.DataFrame
    items: pd.DataFrame
    others: pd.DataFrame
    heads: dict[str, Any]
    record: DebiasRecord

    def _lines(self) -> list[str]:
        return [self.record.verdict]

    def _shown(self) -> dict[str, pd.DataFrame]:
        return {"conditions on unseen targets": self.conditions[_SHOWN]}

    def finding(self) -> Finding:
        """The verdict, compared with random heads and with the guard."""
        record, protocol = self.record, self.record.protocol
        quantity = quantity_of(record.twins).capitalize()
        return Finding(
            result=[record.verdict],
            control=[
                f"Random heads: {counted(protocol.n_random, 'set')} {record.matching}. Guards: "
                "both language-model scores, and minimal pairs where they were read, at most "
                f"{protocol.allowed:g} lower; perplexity at most +{protocol.allowed:g} %; of "
                "random sets, how many pass.",
            ],
            power=[
                f"With {counted(protocol.n_random, 'random set')} no p can be below "
                f"{1 / (1 + protocol.n_random):.2f}."
            ],
            details=[
                *record.broken,
                f"{quantity}: nats per token, items of targets that a training never saw; "
                f"{protocol.folds_run} of {protocol.n_folds} folds. p: (1 + random sets that leave "
                "as little where the language-model score has fallen by a point) / (1 + random "
                "sets).",
            ],
        )


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
        trainings=summary.trainings_table(results),
        items=summary.items_table(results, groups, triple_ids(corpus.items.triples)),
        others=summary.others_table(results, corpus.reported_groups()),
        heads=heads,
        record=record,
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
        said += f" No check {_BETTER}: the model that is saved is the original."
    return trained, row, said


# -- in words --------------------------------------------------------------------------------------


def verdict(
    row: Mapping[Any, Any],
    table: pd.DataFrame,
    protocol: Protocol,
    steps: int,
    *,
    quantity: str = "beta",
    unchanged: int = 0,
) -> str:
    """Say whether there is less bias, and whether choosing heads helped, in plain words.

    The first is said of the condition of a row, the second of the rankings of a table. A training
    has so many ``steps``; ``unchanged`` trainings of the condition ended with the original.
    """
    interval = interval_text(row["change_low"], row["change_high"], 3, sign="+")
    text = (
        f"On targets it never saw, training {row['condition']} changed {quantity} per token "
        f"from {row['before']:.3f} to {row['beta']:.3f} (change {row['change']:+.3f}, 95 %: "
        f"{interval}) at {row['perplexity']:+.1f} % perplexity: {_less_or_not(row)}"
    )
    if failing := summary.failing_guards(row, protocol):
        text += f" It costs more than the guards allow ({'; '.join(failing)}): not for use."
    if unchanged:
        trainings = counted(unchanged, "training")
        text += f" In {trainings} no check {_BETTER}: there the model stays as it was."
    text += f" {_helped(table, protocol)}"
    if steps < _ENOUGH_STEPS:
        text += f" {counted(steps, 'step')} a training: this tests the program, not the method."
    return text


def _less_or_not(row: Mapping[Any, Any]) -> str:
    less = abs(row["beta"]) < abs(row["before"])
    left = "less of the bias is left" if less else "no less of the bias is left"
    if row["folds"] < FEWEST_CLUSTERS:
        folds = counted(int(row["folds"]), "fold is", "folds are")
        return f"{left}, and {folds} too few to say more."
    # Where beta has changed its sign, its size need not have changed.
    turned = row["before"] * row["beta"] < 0
    needed = ("change", "both") if turned else ("change",)
    if all(row[f"{name}_low"] > 0 or row[f"{name}_high"] < 0 for name in needed):
        return f"{left}."
    return f"{left}, which may be chance."


def _helped(table: pd.DataFrame, protocol: Protocol) -> str:
    ranked = table[table["condition"].isin(protocol.choosing)]
    # Few random sets give few values of p: of equal ones, what leaves least.
    best = ranked.iloc[int(np.lexsort((ranked["beta_at_lms"].abs(), ranked["p"]))[0])]
    # With 19 sets the smallest p is .05, and a test at this level rejects with it.
    if best["p"] * len(ranked) <= _LEVEL:
        helped = "Choosing heads helped"
    elif len(ranked) / (1 + protocol.n_random) > _LEVEL:
        helped = "Whether choosing heads helped cannot be told from so few random sets"
    else:
        helped = "Choosing heads did not help beyond chance"
    random = float(table.loc[table["condition"] == RANDOM, "beta_at_lms"].iloc[0])
    return (
        f"{helped}: where the language-model score has fallen by a point (or at the last check) "
        f"the best ranking "
        f"({best['condition']}) leaves {abs(best['beta_at_lms']):.3f}, as many random heads "
        f"{random:.3f} on average (p {best['p']:.2f} of {counted(protocol.n_random, 'random set')}"
        f", before correcting for {counted(len(ranked), 'ranking')})."
    )
