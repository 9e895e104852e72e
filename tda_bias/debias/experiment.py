"""The experiment: every condition trained in every fold, saved training by training.

The same batches, stops and learning rates hold for all conditions; heads are chosen anew in every
fold, from its training targets alone. What is finished is kept, and a run that is started again
goes on with what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tda_bias.ablation.random_sets import n_possible_sets, random_sets
from tda_bias.debias.learners import How, learner, undone
from tda_bias.debias.neutral import NeutralText, Retention, neutral_text
from tda_bias.debias.protocol import (
    FINAL,
    Condition,
    Fold,
    Protocol,
    conditions,
    folds,
    protocol_hash,
)
from tda_bias.debias.rankings import chosen_from_file, fold_orders, gate_order
from tda_bias.debias.texts import TwinTexts
from tda_bias.debias.training import (
    Trajectory,
    n_steps,
    train,
    untouched_check,
)
from tda_bias.memory import give_back_memory
from tda_bias.models.attention import attention_layers
from tda_bias.models.load import LanguageModel, LoadedModel
from tda_bias.progress import Counter, Progress
from tda_bias.runs.cache import PartStore, open_parts, texts_hash
from tda_bias.runs.files import to_json, write_text
from tda_bias.runs.record import now
from tda_bias.runs.work import ALONE, Job, Shard, Team
from tda_bias.stats.resampling import generator
from tda_bias.triples import triple_ids
from tda_bias.types import HeadId, InputError, Triple

PROTOCOL = "protocol.json"
Orders = Mapping[str, list[HeadId]]


@dataclass(frozen=True)
class Experiment:
    """A model with everything that all trainings on it share, fixed before the first step.

    Attributes:
        texts: Items with twins, and the untouched model.
        neutral: Neutral text in three parts.
        protocol: The protocol.
        folds: The folds.
        store: Finished trainings and rankings.
        load_hooked: Gives the model with hooks, for rankings by topology.
        from_file: Heads of the ranking ``file``.
        weights: Hash of the untouched model's weights.
        identity: Hash of the protocol and of what it is applied to.
        fixed: When it was written down.
        twins: How twins came about; None without.
    """

    texts: TwinTexts
    neutral: NeutralText
    protocol: Protocol
    folds: list[Fold]
    store: PartStore
    load_hooked: Callable[[], LoadedModel]
    from_file: tuple[HeadId, ...] = ()
    weights: str = ""
    identity: str = ""
    fixed: str = ""
    twins: dict[str, Any] | None = None
    _untouched: dict[int, Trajectory] = field(default_factory=dict)

    @cached_property
    def every_head(self) -> list[HeadId]:
        """All heads of the model."""
        layers = attention_layers(self.texts.model)
        return [HeadId(layer.number, h) for layer in layers for h in range(layer.n_heads)]

    @cached_property
    def _kept_retention(self) -> Retention:
        return Retention(self.texts.model, self.neutral.learn)

    def retention(self, how: How) -> Retention:
        """The passages that hold the model where it is."""
        if how == "full":  # rare, and needs a copy of the output embeddings
            return Retention(self.texts.model, self.neutral.learn, head_changes=True)
        return self._kept_retention

    def untouched(self, fold: Fold) -> Trajectory:
        """The check before the first step: the same for every condition of a fold."""
        if fold.number not in self._untouched:
            self._untouched[fold.number] = untouched_check(
                self.texts, fold, self.neutral, self.protocol
            )
        return self._untouched[fold.number]

    def targets(self, fold: Fold) -> dict[str, list[str]]:
        """Names of the targets of a fold's parts."""
        triples = self.texts.triples
        return {
            name: sorted({triples[i].group for i in items}) for name, items in fold.parts().items()
        }


class Steps:
    """Progress over all trainings; one that stopped early, or was saved, counts in full.

    Args:
        total: Steps of all.
        progress: Called with steps done and all.
    """

    def __init__(self, total: int, progress: Progress | None = None) -> None:
        self._counter = Counter(total, progress)
        self._trainings: dict[tuple[Condition, int, float], int] = {}

    def step(self) -> None:
        """Count a step."""
        self._counter.add(1)

    def finished(self, training: Training, rate: float, n: int) -> None:
        """Count a training of so many steps."""
        key = (training.condition, training.fold.number, rate)
        self._trainings[key] = n
        self._counter.reach(sum(self._trainings.values()))


@dataclass(frozen=True)
class Training:
    """A condition in a fold.

    Attributes:
        condition: The condition.
        fold: The fold.
        heads: The heads that learn there; empty for the whole model.
    """

    condition: Condition
    fold: Fold
    heads: tuple[HeadId, ...]


@dataclass
class ConditionResult:
    """A condition over the folds, with the learning rate that validation targets chose in each.

    Attributes:
        condition: The condition.
        folds: The folds, in order.
        trajectories: The training of each.
        rates: The chosen learning rate of each.
        heads: The heads that learned in each; empty for the whole model.
    """

    condition: Condition
    folds: list[Fold] = field(default_factory=list)
    trajectories: list[Trajectory] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    heads: list[tuple[HeadId, ...]] = field(default_factory=list)


def run_experiment(experiment: Experiment, steps: Steps) -> list[ConditionResult]:
    """Train every condition in every fold that tests.

    Args:
        experiment: The model, its texts, the protocol and the folds.
        steps: Counts what is done.

    Raises:
        ShareDone: if the trainings are shared by several processes and another one gathers.
        InputError: as ``PartStore.each``.
    """
    store = experiment.store
    store.prepare([_orders_job(experiment, fold, steps) for fold in experiment.folds])
    results = {c: ConditionResult(c) for c in conditions(experiment.protocol)}
    trainings: list[Training] = []
    for fold in experiment.folds:
        if fold.number == FINAL:
            continue  # it tests on nothing: ``recommended_training`` makes it
        orders = rankings(experiment, fold, steps)
        for condition in results:
            heads = heads_of(experiment, condition, orders, fold)
            trainings.append(Training(condition, fold, heads))
    jobs = [_jobs(experiment, training, steps) for training in trainings]
    parts = store.each([job for of_one in jobs for job in of_one])
    for training, of_one in zip(trainings, jobs, strict=True):
        trajectory, rate = _best(experiment, training, islice(parts, len(of_one)), steps)
        result = results[training.condition]
        result.folds.append(training.fold)
        result.heads.append(training.heads)
        result.trajectories.append(trajectory)
        result.rates.append(rate)
    return list(results.values())


def recommended_training(
    experiment: Experiment, name: str, steps: Steps
) -> tuple[Trajectory, tuple[HeadId, ...]]:
    """The training of the model that is saved, and its heads: of the final fit, or the only fold.

    It is read where it was part of the experiment, else made.
    """
    fold = experiment.folds[-1]
    condition = next(c for c in conditions(experiment.protocol) if c.name == name)
    heads = heads_of(experiment, condition, rankings(experiment, fold, steps), fold)
    return _trained(experiment, Training(condition, fold, heads), steps), heads


# -- heads -----------------------------------------------------------------------------------------


def rankings(experiment: Experiment, fold: Fold, steps: Steps) -> Orders:
    """All heads in the order of each ranking of the protocol, from training targets alone."""
    saved = experiment.store.part(_orders_job(experiment, fold, steps))
    return {
        name: [HeadId(int(layer), int(head)) for layer, head in saved[name]]
        for name in experiment.protocol.by
    }


def _orders_job(experiment: Experiment, fold: Fold, steps: Steps) -> Job:
    """The part that holds the rankings of a fold."""

    def computed() -> dict[str, np.ndarray]:
        protocol = experiment.protocol
        orders = fold_orders(
            experiment.texts,
            fold.train,
            protocol.by,
            load=experiment.load_hooked,
            seed=protocol.seed,
        )
        if "gates" in protocol.by:
            condition = Condition("gates of all heads", "gates")
            every = Training(condition, fold, tuple(experiment.every_head))
            learned = _trained(experiment, every, steps)
            orders["gates"] = gate_order(experiment.every_head, learned.values["gates"])
        if experiment.from_file:
            orders["file"] = list(experiment.from_file)
        return {name: np.array([(h.layer, h.head) for h in orders[name]]) for name in protocol.by}

    return Job(
        f"orders {fold.number}", len(fold.train), lambda: _on(fold), partial(_tidied, computed)
    )


def heads_of(
    experiment: Experiment, condition: Condition, orders: Orders, fold: Fold
) -> tuple[HeadId, ...]:
    """The heads that a condition trains in a fold."""
    if condition.how == "full":
        return ()
    if condition.ranking is not None:
        return tuple(sorted(orders[condition.ranking][: experiment.protocol.top]))
    if condition.name == "all":
        return tuple(experiment.every_head)
    return random_heads(experiment, orders, fold)[0][condition.draw]


def random_heads(
    experiment: Experiment, orders: Orders, fold: Fold
) -> tuple[list[tuple[HeadId, ...]], str]:
    """Random sets as large as the chosen one, and in words whether they are of the same layers."""
    n, every = experiment.protocol.n_random, experiment.every_head
    first = orders[experiment.protocol.by[0]][: experiment.protocol.top]
    rng = generator(experiment.protocol.seed, "random heads", str(fold.number))
    per_layer = 1 + max(head.head for head in every)
    if n_possible_sets(first, per_layer) >= n:
        return random_sets(first, per_layer, n, rng=rng), "of the same layers"
    # A layer has more chosen heads than others: there is no such set.
    drawn = [rng.choice(len(every), len(first), replace=False) for _ in range(n)]
    return [tuple(sorted(every[int(i)] for i in places)) for places in drawn], "of any layer"


# -- trainings -------------------------------------------------------------------------------------


def _trained(experiment: Experiment, training: Training, steps: Steps) -> Trajectory:
    """A training at the best of the learning rates, saved or made."""
    parts = map(experiment.store.part, _jobs(experiment, training, steps))
    return _best(experiment, training, parts, steps)[0]


def _jobs(experiment: Experiment, training: Training, steps: Steps) -> list[Job]:
    """The parts that hold a training, rate by rate."""
    depends_on = {**_on(training.fold), "heads": [str(head) for head in training.heads]}
    return [
        Job(
            f"fold {training.fold.number} {training.condition.part} {rate:g}",
            n_steps(experiment.protocol, training.fold),
            lambda: depends_on,
            partial(_tidied, partial(_train, experiment, training, rate, steps)),
        )
        for rate in experiment.protocol.rates(training.condition.how)
    ]


def _train(
    experiment: Experiment, training: Training, rate: float, steps: Steps
) -> dict[str, np.ndarray]:
    texts, protocol, condition = experiment.texts, experiment.protocol, training.condition
    retention = experiment.retention(condition.how)
    untouched = experiment.untouched(training.fold)
    torch.manual_seed(protocol.seed)
    made = learner(condition.how, texts.model, training.heads, seed=protocol.seed)
    with undone(made) as temporary:
        return train(
            temporary, texts, training.fold, retention, experiment.neutral, protocol, rate=rate,
            goal=condition.goal, untouched=untouched, keep_values=condition.how != "full",
            progress=steps.step,
        ).arrays()  # fmt: skip


def _best(
    experiment: Experiment,
    training: Training,
    parts: Iterable[Mapping[str, np.ndarray]],
    steps: Steps,
) -> tuple[Trajectory, float]:
    """The trajectory with the least loss on the validation targets, and its learning rate."""
    tried = []
    n = n_steps(experiment.protocol, training.fold)
    rates = experiment.protocol.rates(training.condition.how)
    for rate, arrays in zip(rates, parts, strict=True):
        tried.append((Trajectory.from_arrays(arrays), rate))
        steps.finished(training, rate, n)
    return min(tried, key=lambda trial: trial[0].validation_loss[trial[0].best])


def _tidied(compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of a part, once what was needed for them is given back to the system."""
    arrays = compute()
    give_back_memory()
    return arrays


def _on(fold: Fold) -> dict[str, Any]:
    return {"fold": [items.tolist() for items in fold.parts().values()]}


# -- fixing an experiment --------------------------------------------------------------------------


def fixed_experiment(
    model: LanguageModel,
    triples: Sequence[Triple],
    twins: Sequence[Sequence[Triple]],
    protocol: Protocol,
    folder: Path,
    *,
    load_hooked: Callable[[], LoadedModel],
    from_file: tuple[Sequence[HeadId], str | None] | None = None,
    about_twins: dict[str, Any] | None = None,
    text: str = "self",
    batch_size: int = 36,
    resume: bool = True,
    overwrite: bool = False,
    team: Team = ALONE,
) -> Experiment:
    """Fix everything that decides the numbers, and write the protocol down.

    Args:
        model: A causal language model without hooks.
        triples: The items.
        twins: Their twins, or none for all.
        protocol: The protocol.
        folder: Where the run goes.
        load_hooked: Gives the model with hooks, for rankings by topology.
        from_file: Heads of the ranking ``file``, and the hash of the weights they were found in.
        about_twins: How twins came about.
        text: Neutral text, as for ``neutral_text``.
        batch_size: Texts per forward pass where nothing is learned.
        resume: Whether trainings of an earlier run are reused.
        overwrite: Whether those of another protocol may be lost.
        team: The processes that share the trainings.

    Raises:
        InputError: if targets, heads or texts cannot be used, or the folder holds trainings of
            another protocol.
    """
    weights = model.weight_hash()
    heads: tuple[HeadId, ...] = ()
    if from_file is not None:
        heads = tuple(from_file[0])
        chosen_from_file(heads, from_file[1], weights)
    all_folds = folds(triples, protocol)
    texts = TwinTexts(model, triples, twins, batch_size=batch_size)
    neutral = neutral_text(model, text, seed=protocol.seed)
    applied = {
        "weights": weights,
        "texts": triple_ids(triples),
        "twins": (about_twins or {}).get("hash"),
        "neutral": [neutral.source, neutral.revision],
        "heads": [str(head) for head in heads],
    }
    identity = protocol_hash(protocol, applied)
    # Processes on other hardware may write other neutral text: their trainings do not mix.
    neutral_ids = [*neutral.learn.ids, *neutral.watch.ids, *neutral.report.ids]
    kept = {
        "format": 2, "protocol": identity, "neutral": texts_hash([(ids,) for ids in neutral_ids]),
    }  # fmt: skip
    trainings = folder / "trainings"
    store = open_parts(trainings, kept, resume=resume, overwrite=overwrite, team=team)
    gathers = team.index == 0 or isinstance(team, Shard)
    fixed = _written_down(folder, trainings, protocol, identity, overwrite) if gathers else ""
    return Experiment(
        texts, neutral, protocol, all_folds, store, load_hooked, heads, weights, identity, fixed,
        about_twins,
    )  # fmt: skip


def _written_down(
    folder: Path, trainings: Path, protocol: Protocol, identity: str, overwrite: bool
) -> str:
    """Write the protocol down before the first step; when that was, also for a resumed run.

    Raises:
        InputError: if trainings of another protocol are there, and are not to be lost.
    """
    path = folder / PROTOCOL
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["hash"] == identity:
            return str(before["fixed"])
    except (OSError, ValueError, KeyError, TypeError):
        before = None  # there is none yet, or what is there says nothing
    if before and any(trainings.glob("*.npz")) and not overwrite:
        raise InputError(
            f"{folder} holds trainings of another protocol (fixed {before.get('fixed')}); "
            "choose another --out, or start over with --no-resume"
        )
    fixed = now()
    content = {"hash": identity, "fixed": fixed, "protocol": protocol.model_dump(mode="json")}
    write_text(path, to_json(content))
    return fixed
