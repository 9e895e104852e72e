"""The experiment: every condition trained in every fold, saved training by training.

The same batches, stops and settings hold for all conditions; heads are chosen anew in every
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

from tda_bias.ablation.head_weights import n_possible_sets, random_sets
from tda_bias.debias.corpus import Corpus
from tda_bias.debias.learners import learner, lora_rank, undone
from tda_bias.debias.mask import Learner
from tda_bias.debias.objective import Held, held_by
from tda_bias.debias.peers import Edit, Erasure, Steering
from tda_bias.debias.protocol import (
    CONTROLS,
    FINAL,
    RANDOM,
    Condition,
    Fold,
    Protocol,
    Trial,
    conditions,
    folds,
    protocol_hash,
    trials,
)
from tda_bias.debias.rankings import fold_orders, gate_order
from tda_bias.debias.training import edited, n_steps, readings, train, untouched_check
from tda_bias.debias.trajectory import Trajectory, keeps_pairs, least_biased
from tda_bias.models.attention import attention_layers
from tda_bias.models.hooks import require_separate_heads
from tda_bias.models.load import LoadedModel
from tda_bias.models.precision import Computing
from tda_bias.progress import Counter, Progress
from tda_bias.runs.cache import Cache, Part, Shard, Team, texts_hash
from tda_bias.runs.files import now, to_json, write_text
from tda_bias.runs.text import counted
from tda_bias.stats.resampling import generator
from tda_bias.threads import give_back_memory
from tda_bias.triples import triple_ids
from tda_bias.types import HeadId, InputError

PROTOCOL = "protocol.json"


@dataclass(frozen=True)
class Experiment:
    """A model with everything that all trainings on it share, fixed before the first step.

    Attributes:
        corpus: The texts, and the untouched model.
        protocol: The protocol.
        folds: The folds.
        cache: Finished trainings and rankings.
        load_hooked: Gives the model with hooks, for rankings by topology.
        from_file: Heads of the ranking ``file``.
        weights: Hash of the untouched model's weights.
        identity: Hash of the protocol and of what it is applied to.
        fixed: When it was written down.
        twins: How twins came about; None without.
        orders: Rankings that were read, by fold.
    """

    corpus: Corpus
    protocol: Protocol
    folds: list[Fold]
    cache: Cache
    load_hooked: Callable[[], LoadedModel]
    from_file: tuple[HeadId, ...] = ()
    weights: str = ""
    identity: str = ""
    fixed: str = ""
    twins: dict[str, Any] | None = None
    orders: dict[int, Mapping[str, list[HeadId]]] = field(default_factory=dict)
    _untouched: dict[int, Trajectory] = field(default_factory=dict)
    _held: dict[tuple[int, bool], Held] = field(default_factory=dict)

    @cached_property
    def every_head(self) -> list[HeadId]:
        """All heads of the model."""
        layers = attention_layers(self.corpus.model)
        require_separate_heads(self.corpus.model, layers)
        return [HeadId(layer.number, h) for layer in layers for h in range(layer.n_heads)]

    def untouched(self, fold: Fold) -> Trajectory:
        """The check before the first step: the same for every condition of a fold."""

        def read() -> Mapping[str, np.ndarray]:
            with Computing(self.corpus.model, self.protocol.precision).running():
                return readings(self.corpus)

        if fold.number not in self._untouched:
            before = self.cache.get(Part("untouched", 1, dict, read))
            check = untouched_check(self.corpus, fold, self.protocol, before=before)
            self._untouched[fold.number] = check
        return self._untouched[fold.number]

    def held(self, fold: Fold, condition: Condition) -> Held:
        """The texts that hold the model where it is, for a condition in a fold."""
        head_changes = condition.how == "full"  # which needs a copy of the output embeddings
        key = fold.number, head_changes
        if key not in self._held:
            self._held.clear()  # of one fold at a time
            items = fold.train.tolist()
            with Computing(self.corpus.model, self.protocol.precision).running():
                values = self.corpus.items.answers(items).relatedness
            relatedness = dict(zip(items, values.tolist(), strict=True))
            self._held[key] = held_by(self.corpus, relatedness, head_changes=head_changes)
        return self._held[key]

    @property
    def tested(self) -> list[Fold]:
        """The folds that test; ``recommended_training`` makes the final fit."""
        return [fold for fold in self.folds if fold.number != FINAL]

    def targets(self, fold: Fold) -> dict[str, list[str]]:
        """Names of the targets of a fold's parts."""
        triples = self.corpus.items.triples
        return {
            name: sorted({triples[i].group for i in items}) for name, items in fold.parts().items()
        }

    def in_words(self, team: Team | None = None) -> str:
        """The trainings that are to come, and the protocol that was fixed for them."""
        every = conditions(self.protocol)
        n = len(self.tested) * sum(len(trials(self.protocol, condition)) for condition in every)
        steps = n_steps(self.protocol, self.folds[0])
        shared = f", shared by {team.count} processes" if team is not None else ""
        return (
            f"{counted(n, 'training')} of {counted(steps, 'step')}{shared}. Protocol "
            f"{self.identity[:12]}, fixed {self.fixed}."
        )


@dataclass(frozen=True)
class Training:
    """A condition in a fold with some settings: one run of the loop, one saved part.

    Attributes:
        condition: The condition.
        fold: The fold.
        heads: The heads that learn there; empty where it is not heads that do.
        trial: The settings.
    """

    condition: Condition
    fold: Fold
    heads: tuple[HeadId, ...]
    trial: Trial


@dataclass(frozen=True)
class Trained:
    """The training of a condition in a fold that validation targets chose, and its checks."""

    training: Training
    trajectory: Trajectory


@dataclass(frozen=True)
class ConditionResult:
    """A condition with its trainings, fold by fold."""

    condition: Condition
    trained: list[Trained] = field(default_factory=list)

    @property
    def trajectories(self) -> list[Trajectory]:
        """The checks of each training."""
        return [own.trajectory for own in self.trained]


def run_experiment(
    experiment: Experiment, progress: Progress | None = None
) -> list[ConditionResult]:
    """Train every condition in every fold that tests.

    Args:
        experiment: The model, its texts, the protocol and the folds.
        progress: Called with steps done and all; a training that stopped early, or was saved,
            counts in full.

    Raises:
        ShareDone: if the trainings are shared by several processes and another one gathers.
        InputError: as ``Cache.each``.
    """
    cache, tested = experiment.cache, experiment.tested
    cache.prepare([_orders_part(experiment, fold) for fold in experiment.folds])
    results = [ConditionResult(condition) for condition in conditions(experiment.protocol)]
    planned = [
        (result, _trainings(experiment, result.condition, fold))
        for fold in tested
        for result in results
    ]
    every = [training for _, tried in planned for training in tried]
    counter = Counter(sum(n_steps(experiment.protocol, own.fold) for own in every), progress)
    parts = [_part(experiment, training, counter) for training in every]
    arrays = cache.each(parts, progress=lambda done, _: counter.reach(done))
    for result, tried in planned:
        result.trained.append(_best(experiment, tried, islice(arrays, len(tried))))
    return results


def trained_alone(experiment: Experiment, condition: Condition, fold: Fold) -> Trained:
    """A condition in a fold: read where it was part of the experiment, else trained."""
    tried = _trainings(experiment, condition, fold)
    parts = [_part(experiment, training, Counter(0, None)) for training in tried]
    return _best(experiment, tried, map(experiment.cache.get, parts))


def recommended_training(experiment: Experiment, name: str) -> Trained:
    """The training of the model that is saved: of the final fit, or the only fold."""
    condition = next(c for c in conditions(experiment.protocol) if c.name == name)
    return trained_alone(experiment, condition, experiment.folds[-1])


# -- heads -----------------------------------------------------------------------------------------


def rankings(experiment: Experiment, fold: Fold) -> Mapping[str, list[HeadId]]:
    """All heads in the order of each ranking of the protocol, from training targets alone."""
    if fold.number not in experiment.orders:
        saved = experiment.cache.get(_orders_part(experiment, fold))
        experiment.orders[fold.number] = {
            name: [HeadId(int(layer), int(head)) for layer, head in saved[name]]
            for name in experiment.protocol.by
        }
    return experiment.orders[fold.number]


def _orders_part(experiment: Experiment, fold: Fold) -> Part:
    """The part that holds the rankings of a fold."""

    def computed() -> dict[str, np.ndarray]:
        protocol = experiment.protocol
        orders = fold_orders(
            experiment.corpus.items,
            fold.train,
            protocol.by,
            load=experiment.load_hooked,
            seed=protocol.seed,
        )
        if "gates" in protocol.by:
            condition = Condition("gates of all heads", "gates")
            learned = trained_alone(experiment, condition, fold).trajectory
            orders["gates"] = gate_order(experiment.every_head, learned.values["gates"])
        if experiment.from_file:
            orders["file"] = list(experiment.from_file)
        return {name: np.array([(h.layer, h.head) for h in orders[name]]) for name in protocol.by}

    return Part(
        f"orders {fold.number}", len(fold.train), lambda: _on(fold), partial(_tidied, computed)
    )


def heads_of(experiment: Experiment, condition: Condition, fold: Fold) -> tuple[HeadId, ...]:
    """The heads that a condition trains in a fold."""
    if condition.how in ("full", "leace", "steering"):
        return ()
    if condition.ranking is not None:
        chosen = rankings(experiment, fold)[condition.ranking][: experiment.protocol.top]
        return tuple(sorted(chosen))
    if condition.name == RANDOM:
        return random_heads(experiment, fold)[0][condition.draw]
    return tuple(experiment.every_head)


def random_heads(experiment: Experiment, fold: Fold) -> tuple[list[tuple[HeadId, ...]], str]:
    """Random sets as large as the chosen one, and in words whether they are of the same layers."""
    protocol, every = experiment.protocol, experiment.every_head
    first = rankings(experiment, fold)[protocol.by[0]][: protocol.top]
    rng = generator(protocol.seed, "random heads", str(fold.number))
    per_layer = 1 + max(head.head for head in every)
    if n_possible_sets(first, per_layer) >= protocol.n_random:
        return random_sets(first, per_layer, protocol.n_random, rng=rng), "of the same layers"
    # A layer has more chosen heads than others: there is no such set.
    sets = [rng.choice(len(every), len(first), replace=False) for _ in range(protocol.n_random)]
    return [tuple(sorted(every[int(i)] for i in places)) for places in sets], "of any layer"


# -- trainings -------------------------------------------------------------------------------------


def _trainings(experiment: Experiment, condition: Condition, fold: Fold) -> list[Training]:
    """A condition in a fold, with each of the settings that are tried."""
    heads = heads_of(experiment, condition, fold)
    tried = trials(experiment.protocol, condition)
    return [Training(condition, fold, heads, trial) for trial in tried]


def _part(experiment: Experiment, training: Training, counter: Counter) -> Part:
    """The part that holds a training."""
    fold = training.fold
    depends_on = {**_on(fold), "heads": [str(head) for head in training.heads]}
    return Part(
        f"fold {fold.number} {training.condition.part} {training.trial}",
        n_steps(experiment.protocol, fold),
        lambda: depends_on,
        partial(_tidied, partial(_train, experiment, training, counter)),
    )


def _train(experiment: Experiment, training: Training, counter: Counter) -> dict[str, np.ndarray]:
    condition, fold, protocol = training.condition, training.fold, experiment.protocol
    untouched, held = experiment.untouched(fold), experiment.held(fold, condition)
    torch.manual_seed(protocol.seed)
    with undone(_learner(experiment, training)) as own:
        if isinstance(own, Edit):
            return edited(own, experiment.corpus, fold, protocol, untouched=untouched).arrays()
        found = train(
            own, experiment.corpus, fold, held, protocol, training.trial, goal=condition.goal,
            untouched=untouched, everything=condition.name != RANDOM,
            progress=lambda: counter.add(1),
        )  # fmt: skip
    if condition.name in (RANDOM, *CONTROLS):
        found.values = {}  # no model of it is saved
    return found.arrays()


def _learner(experiment: Experiment, training: Training) -> Learner:
    """The learner of a training, or the edit that stands in its place."""
    condition, trial = training.condition, training.trial
    items, protocol = experiment.corpus.items, experiment.protocol
    match condition.how:
        case "leace":
            return Erasure(items, training.fold.train.tolist(), trial.layer)
        case "steering":
            return Steering(items, training.fold.train.tolist(), trial.layer, trial.sign)
    rank = 8
    if condition.name == "cda-lora":
        chosen = rankings(experiment, training.fold)[protocol.by[0]][: protocol.top]
        rank = lora_rank(items.model, chosen, training.heads)
    return learner(condition.how, items.model, training.heads, rank=rank, seed=protocol.seed)


def _best(
    experiment: Experiment, tried: Sequence[Training], arrays: Iterable[Mapping[str, np.ndarray]]
) -> Trained:
    """The training with the settings that are best on the validation targets."""
    candidates = []
    for training, of_part in zip(tried, arrays, strict=True):
        own = Trajectory.from_arrays(of_part)
        kept = keeps_pairs(own.after, own.before, experiment.protocol)
        candidates.append((Trained(training, own), own.chosen.beta, kept))
    return least_biased(candidates)


def _tidied(compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of a part, once what was needed for them is given back to the system."""
    arrays = compute()
    give_back_memory()
    return arrays


def _on(fold: Fold) -> dict[str, Any]:
    return {"fold": [items.tolist() for items in fold.parts().values()]}


# -- fixing an experiment --------------------------------------------------------------------------


def fixed_experiment(
    corpus: Corpus,
    protocol: Protocol,
    folder: Path,
    *,
    load_hooked: Callable[[], LoadedModel],
    from_file: tuple[Sequence[HeadId], str | None] | None = None,
    about_twins: dict[str, Any] | None = None,
    resume: bool = True,
    overwrite: bool = False,
    team: Team | None = None,
) -> Experiment:
    """Fix everything that decides the numbers, and write the protocol down.

    Args:
        corpus: The texts, and a causal language model without hooks.
        protocol: The protocol.
        folder: Where the run goes.
        load_hooked: Gives the model with hooks, for rankings by topology.
        from_file: Heads of the ranking ``file``, and the hash of the weights they were found in.
        about_twins: How twins came about.
        resume: Whether trainings of an earlier run are reused.
        overwrite: Whether those of another protocol may be lost.
        team: The processes that share the trainings.

    Raises:
        InputError: if targets, heads or texts cannot be used, or the folder holds trainings of
            another protocol.
    """
    weights = corpus.model.weight_hash()
    heads: tuple[HeadId, ...] = ()
    if from_file is not None:
        heads = tuple(from_file[0])
        if from_file[1] is not None and from_file[1] != weights:
            raise InputError(
                "`heads` were found in a model with other weights than the one that is trained; "
                "rank the heads of this one, with tdabias heads and tdabias edit --as slices"
            )
    neutral, domain = corpus.neutral, corpus.domain
    all_folds = folds(corpus.items.triples, protocol)
    reported = domain.report.items() if domain else ()
    applied = {
        "weights": weights,
        "texts": triple_ids(corpus.items.triples),
        "twins": (about_twins or {}).get("hash"),
        "neutral": [neutral.source, neutral.revision],
        "domain": domain and [texts_hash([(ids,) for ids in domain.learn]),
                              triple_ids(domain.watch.triples)],
        "other": {name: triple_ids(items.triples) for name, items in reported},
        "pairs": {n: [s.source, s.revision, len(s.pairs)] for n, s in (corpus.pairs or {}).items()},
        "heads": [str(head) for head in heads],
    }  # fmt: skip
    identity = protocol_hash(protocol, applied)
    # Processes on other hardware may write other neutral text: their trainings do not mix.
    neutral_ids = [*neutral.learn.ids, *neutral.watch.ids, *neutral.report.ids]
    kept = {
        "format": 3, "protocol": identity, "neutral": texts_hash([(ids,) for ids in neutral_ids]),
    }  # fmt: skip
    trainings = folder / "trainings"
    cache = Cache(trainings, kept, resume=resume, overwrite=overwrite, team=team)
    gathers = team is None or team.index == 0 or isinstance(team, Shard)
    fixed = _written_down(folder, trainings, protocol, identity, overwrite) if gathers else ""
    return Experiment(
        corpus, protocol, all_folds, cache, load_hooked, heads, weights, identity, fixed,
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
