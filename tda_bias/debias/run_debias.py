"""A whole experiment: run, judged, and saved with the model that came out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.debias import summary
from tda_bias.debias.experiment import (
    Experiment,
    random_heads,
    recommended_training,
    run_experiment,
)
from tda_bias.debias.result import DebiasRecord, DebiasRun
from tda_bias.debias.saving import save_debiased
from tda_bias.models.language_model import model_record
from tda_bias.progress import Progress
from tda_bias.runs.record import DataRecord
from tda_bias.runs.result import writing_run
from tda_bias.triples import triple_ids

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run_debias(
    experiment: Experiment,
    folder: Path,
    *,
    category: str,
    data: DataRecord,
    settings: dict[str, Any],
    save: str | None = None,
    progress: Progress | None = None,
    draw: Callable[[pd.DataFrame, pd.DataFrame], Figure] | None = None,
) -> DebiasRun:
    """Run an experiment, save the model of the best condition or the asked-for one, and the run.

    Args:
        experiment: From ``fixed_experiment``.
        folder: Where to.
        category: Of the triples.
        data: Where these were read.
        settings: For the record.
        save: The condition whose model is saved; None to choose it on validation targets.
        progress: Called with steps done and all.
        draw: Draws conditions and frontier for the folder.

    Raises:
        ShareDone: as ``run_experiment``.
        InputError: if a part cannot be read, or the folder cannot be written.
    """
    protocol, corpus = experiment.protocol, experiment.corpus
    about = model_record(corpus.model, weights=experiment.weights)
    results = run_experiment(experiment, progress)
    name = save or summary.recommended(results, protocol)
    best = recommended_training(experiment, name)
    groups = [triple.group for triple in corpus.items.triples]
    table = summary.conditions_table(results, groups, protocol)
    kept = summary.unchanged(results, name) if len(experiment.folds) > 1 else 0
    verdict = summary.verdict(table, name, protocol, unchanged=kept)
    unchanged = best.trajectory.best == 0
    if unchanged:
        verdict += " No check passed the guards: the model that is saved is the original."
    record = DebiasRecord(
        model=about,
        settings=settings,
        data=data,
        category=category,
        protocol=protocol,
        protocol_hash=experiment.identity,
        fixed=experiment.fixed,
        folds=[{"number": fold.number, **experiment.targets(fold)} for fold in experiment.folds],
        neutral=corpus.neutral.record(),
        matching=random_heads(experiment, experiment.folds[0])[1],
        recommended=name,
        unchanged=unchanged,
        verdict=verdict,
        broken=tuple(summary.broken(results)),
        twins=experiment.twins,
    )
    row = {str(n): value for n, value in table.set_index("condition").loc[name].items()}
    heads = save_debiased(experiment, best, record, row, folder / "model")
    run = DebiasRun(table, summary.frontier_table(results), record)
    reported = corpus.domain.report if corpus.domain is not None else {}
    others = {n: [triple.group for triple in items.triples] for n, items in reported.items()}
    with writing_run(folder, record) as files:
        files.table("conditions.csv", run.conditions)
        files.table("frontier.csv", run.frontier)
        files.table("trainings.csv", summary.trainings_table(results))
        ids = triple_ids(corpus.items.triples)
        files.table("items.parquet", summary.items_table(results, groups, ids))
        files.table("others.csv", summary.others_table(results, others))
        files.json("heads.json", heads)
        if draw is not None:
            files.figure("frontier", draw(run.conditions, run.frontier))
    return run
