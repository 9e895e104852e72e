"""A finished experiment: run, judged, saved with the model that came out, and read again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.ablation.head_weights import export_record
from tda_bias.debias import summary
from tda_bias.debias.experiment import (
    Experiment,
    Steps,
    random_heads,
    rankings,
    recommended_training,
    run_experiment,
)
from tda_bias.debias.protocol import Protocol
from tda_bias.debias.saving import model_card, save_debiased
from tda_bias.debias.timing import cost
from tda_bias.models.record import model_record
from tda_bias.progress import Progress
from tda_bias.runs.files import RECORD
from tda_bias.runs.record import DataRecord, RunRecord
from tda_bias.runs.result import Recorded, summary_html
from tda_bias.runs.run import open_run
from tda_bias.runs.writing import writing_run
from tda_bias.triples import triple_ids

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CONDITIONS = {
        **{name: str for name in ("condition", "how", "guard")}, "heads": int,
        **{name: float for name in ("before", "beta", "rms", "perplexity")}, "p": float,
    }  # fmt: skip
_FRONTIER = {
        "condition": str, "draw": int, "check": int,
        **{name: float for name in ("perplexity", "beta", "rms")},
    }  # fmt: skip
_SHOWN = ["condition", "how", "heads", "before", "beta", "rms", "perplexity", "guard", "p"]
# So many texts show whether two models are the same.
_PROBES = 3


class DebiasRecord(RunRecord):
    """Everything needed to repeat an experiment.

    Attributes:
        category: Of the triples.
        protocol: The protocol, as it was fixed before the first step.
        protocol_hash: Its hash, with what it was applied to.
        fixed: When that was written, in UTC.
        folds: Targets that train, validate and test, fold by fold.
        neutral: The neutral text: source, revision, passages of each part.
        matching: Whether random heads were of the same layers as the first ranking's.
        recommended: The condition whose model is saved: chosen on validation targets, or asked for.
        verdict: The outcome, in a sentence.
        broken: Trainings in which numbers became undefined, and at which step.
        twins: How twins came about; None without.
        seconds: How long it took, in this start of the command.
    """

    command: str = "debias"
    category: str
    protocol: Protocol
    protocol_hash: str
    fixed: str
    folds: list[dict[str, Any]]
    neutral: dict[str, Any]
    matching: str
    recommended: str
    verdict: str
    broken: tuple[str, ...] = ()
    twins: dict[str, Any] | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class DebiasRun(Recorded):
    """An experiment with its record.

    Attributes:
        conditions: From ``summary.conditions_table``.
        frontier: From ``summary.frontier_table``.
        record: Everything needed to repeat it.
    """

    conditions: pd.DataFrame
    frontier: pd.DataFrame
    record: DebiasRecord

    def __repr__(self) -> str:
        about = f"{self.record.category}, {len(self.conditions)} conditions"
        return f"DebiasRun({self.record.model.name}: {about})"

    def _repr_html_(self) -> str:
        tables = {"conditions on unseen targets": self.conditions[_SHOWN]}
        return summary_html(repr(self), [self.record.verdict], tables)

    def save(
        self,
        folder: str | Path,
        *,
        trainings: pd.DataFrame,
        items: pd.DataFrame,
        heads: dict[str, Any],
        figure: Figure | None = None,
    ) -> list[Path]:
        """Write the tables, the heads, a figure and ``run.json``: all of them, or none.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            run.table("conditions.csv", self.conditions)
            run.table("frontier.csv", self.frontier)
            run.table("trainings.csv", trainings)
            run.table("items.parquet", items)
            run.json("heads.json", heads)
            if figure is not None:
                run.figure("frontier", figure)
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> DebiasRun:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, "debias")
        table = run.table("conditions.csv", _CONDITIONS)
        return cls(table, run.table("frontier.csv", _FRONTIER), run.record_as(DebiasRecord))


def run_debias(
    experiment: Experiment,
    folder: Path,
    *,
    category: str,
    data: DataRecord,
    settings: dict[str, Any],
    save: str | None = None,
    progress: Progress | None = None,
    draw: Callable[[pd.DataFrame], Figure] | None = None,
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
        draw: Draws the frontier for the folder.

    Raises:
        ShareDone: as ``run_experiment``.
        InputError: if a part cannot be read, or the folder cannot be written.
    """
    start = time.monotonic()
    protocol, neutral = experiment.protocol, experiment.neutral
    model, triples = experiment.texts.model, experiment.texts.triples
    about_model = model_record(model, weights=experiment.weights)
    steps = Steps(cost(protocol, experiment.folds)[1], progress)
    results = run_experiment(experiment, steps)
    name = save or summary.recommended(results)
    first, fold = experiment.folds[0], experiment.folds[-1]
    matching = random_heads(experiment, rankings(experiment, first, steps), first)[1]
    trajectory, heads = recommended_training(experiment, name, steps)
    groups = [triple.group for triple in triples]
    table = summary.conditions_table(results, groups, protocol)
    text = summary.verdict(table, name, protocol)

    gates = trajectory.values.get("gates")
    rows: list[dict[str, Any]] = [
        {"layer": head.layer, "head": head.head}
        | ({} if gates is None else {"gate": float(gates[place])})
        for place, head in enumerate(heads)
    ]
    rule = {"condition": name, "how": protocol.how, "protocol": experiment.identity}
    exported = export_record(model.hf_model, rows, model=about_model.model_dump(), rule=rule)
    about = {
        "format": "tdabias debias 2",
        "protocol": experiment.identity,
        "model": model.name,
        "original": experiment.weights,
        "category": category,
        "data": data.source,
        "items": len(fold.train),
        "neutral": "written by the model itself" if neutral.source == "self" else neutral.source,
        "how": protocol.how,
        "condition": name,
        "heads": [str(head) for head in heads],
        "targets": experiment.targets(fold),
        "verdict": text,
    }
    row = {str(n): value for n, value in table.set_index("condition").loc[name].items()}
    save_debiased(
        model, protocol.how, heads, trajectory.values, folder / "model",
        card=model_card(about, row), about=about, seed=protocol.seed,
        probes=[triple.texts()[0] for triple in triples[:_PROBES]],
    )  # fmt: skip
    record = DebiasRecord(
        model=about_model,
        settings=settings,
        data=data,
        category=category,
        protocol=protocol,
        protocol_hash=experiment.identity,
        fixed=experiment.fixed,
        folds=[{"number": own.number, **experiment.targets(own)} for own in experiment.folds],
        neutral={
            "source": neutral.source, "revision": neutral.revision, "width": neutral.learn.width,
            "learn": len(neutral.learn.ids), "watch": len(neutral.watch.ids),
            "report": len(neutral.report.ids),
        },
        matching=matching,
        recommended=name,
        verdict=text,
        broken=tuple(summary.broken(results)),
        twins=experiment.twins,
        seconds=round(time.monotonic() - start, 1),
    )  # fmt: skip
    run = DebiasRun(table, summary.frontier_table(results), record)
    run.save(
        folder,
        trainings=summary.trainings_table(results),
        items=summary.items_table(results, groups, triple_ids(triples)),
        heads=exported,
        figure=draw(run.frontier) if draw is not None else None,
    )
    return run
