"""The experiment: every condition trained in every fold, saved training by training.

The same batches, stops and settings hold for all conditions; heads are chosen anew in every
fold, from its training targets alone. What is finished is kept, and a run that is started again
goes on with what is missing.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import optimize

from tda_bias.ablation.head_weights import n_possible_sets, random_sets
from tda_bias.debias.corpus import Corpus
from tda_bias.debias.learners import Learner, learner, undone
from tda_bias.debias.peers import Edit, Erasure, Steering
from tda_bias.debias.protocol import (
    ALL_GATES,
    CONTROLS,
    EDITS,
    FINAL,
    RANDOM,
    Condition,
    Fold,
    Protocol,
    Training,
    conditions,
    folds,
    protocol_hash,
    require_trained,
    trials,
)
from tda_bias.debias.rankings import fold_orders
from tda_bias.debias.retention import Held, Retention, held_by
from tda_bias.debias.training import (
    Results,
    Trained,
    Trajectory,
    best_of,
    edited,
    keeps_pairs,
    train,
    untouched_check,
)
from tda_bias.models.attention import attention_layers
from tda_bias.models.hooks import Computing, require_separate_heads
from tda_bias.models.load import LoadedModel
from tda_bias.models.logits import tempered
from tda_bias.show.text import counted
from tda_bias.stats.seeds import generator
from tda_bias.store.cache import Cache, Counter, Part, texts_hash
from tda_bias.store.files import now, to_json, write_text
from tda_bias.store.shares import Shard
from tda_bias.triples import triple_ids
from tda_bias.types import HeadId, InputError, Progress

if TYPE_CHECKING:
    from tda_bias.store.cluster import Cluster

PROTOCOL, _TRAININGS = "protocol.json", "trainings"
# Conditions that are many, or learn whole models.
_CAN_BE_LARGE = (RANDOM, *CONTROLS)
_GATES = Condition(ALL_GATES, "gates")


@dataclass(frozen=True)
class Experiment:
    """A model with everything that all trainings on it share, fixed before the first step.

    ``weights`` is the hash of the untouched model's weights, ``identity`` that of the protocol and
    of what it is applied to. ``twins`` says how twins came about; None without. Of the conditions
    named in ``save`` the models are asked for.
    """

    corpus: Corpus
    protocol: Protocol
    folds: list[Fold]
    cache: Cache
    load_hooked: Callable[[], LoadedModel]
    from_file: tuple[HeadId, ...]
    weights: str
    identity: str
    fixed: str
    twins: dict[str, Any] | None
    save: Sequence[str] = ()
    _held: dict[Fold, Held] = field(default_factory=dict)
    _untouched: dict[Fold, Trajectory] = field(default_factory=dict)

    @cached_property
    def every_head(self) -> list[HeadId]:
        """All heads of the model."""
        layers = attention_layers(self.corpus.model)
        require_separate_heads(self.corpus.model, layers)
        return [HeadId(layer.number, h) for layer in layers for h in range(layer.n_heads)]

    @property
    def tested(self) -> list[Fold]:
        """The folds that test: all but the final fit."""
        return [fold for fold in self.folds if fold.number != FINAL]

    @property
    def steps(self) -> int:
        """Steps of a whole training in the first fold."""
        return self.protocol.steps(len(self.folds[0].train))

    def targets(self, fold: Fold) -> dict[str, list[str]]:
        """Names of the targets of a fold's parts, and of their twins."""
        items, parts = self.corpus.items, fold.parts()
        named = {name: {items.triples[i].group for i in part} for name, part in parts.items()}
        named["twins"] = set()
        for name, part in parts.items():
            read = items.without(fold.apart) if name == "train" else items
            named["twins"] |= {twin.group for i in part for twin in read.twins[i]}
        return {name: sorted(targets) for name, targets in named.items()}

    def held(self, fold: Fold) -> Held:
        """The predictions that hold the model in a fold."""
        if fold not in self._held:
            # Where the whole model learns, output embeddings do too: they are kept as they were.
            whole = any(condition.how == "full" for condition in conditions(self.protocol))
            read = next(iter(self._held.values()), None)
            self._held[fold] = held_by(
                self.corpus, fold, self.protocol, head_changes=whole, read=read
            )
        return self._held[fold]

    def untouched(self, fold: Fold) -> Trajectory:
        """The check before the first step: the same for every condition of a fold."""
        if fold not in self._untouched:
            read = next((own.before for own in self._untouched.values()), None)
            self._untouched[fold] = untouched_check(self.corpus, fold, self.protocol, read)
        return self._untouched[fold]

    @cached_property
    def entropy(self) -> float:
        """Entropy of the untouched model's predictions on the reported passages, nats per token."""
        return Retention(self.corpus.model, self.corpus.neutral.report.ids).read().entropy()

    def keeps(self, condition: Condition, fold: Fold) -> bool:
        """Tell whether what a training learns is kept.

        Of a control it is where it is to be saved, and is the only training of the condition.
        """
        if condition.name not in _CAN_BE_LARGE:
            return True
        saved = fold is self.folds[-1] and condition.name in self.save and condition.draw <= 0
        return saved and len(trials(self.protocol, condition)) == 1

    def in_words(self, shared_by: str | None = None) -> str:
        """The trainings that are to come, and the protocol that was fixed for them."""
        every = conditions(self.protocol)
        n = len(self.tested) * sum(len(trials(self.protocol, condition)) for condition in every)
        shared = f", shared ({shared_by})" if shared_by is not None else ""
        return (
            f"{counted(n, 'training')} of {counted(self.steps, 'step')}{shared}. Protocol "
            f"{self.identity[:12]}, fixed {self.fixed}."
        )


def run_experiment(experiment: Experiment, progress: Progress | None = None) -> Results:
    """Train every condition in every fold that tests, and in the last fold what will be saved.

    Progress counts steps; a training that stopped early, or was saved, counts in full.

    Raises:
        ShareDone: if the trainings are shared by several processes and another one gathers.
        InputError: as ``Cache.each``.
    """
    cache, protocol = experiment.cache, experiment.protocol
    if "gates" in protocol.by:  # whose ranking is made of a training
        learned = [t for fold in experiment.folds for t in _trainings(experiment, _GATES, fold)]
        cache.prepare([_training_part(experiment, t, Counter(0, None)) for t in learned])
    cache.prepare([_orders_part(experiment, fold) for fold in experiment.folds])
    every = conditions(protocol)
    planned = [(condition, fold) for fold in experiment.tested for condition in every]
    planned += [(named(every, name), experiment.folds[-1]) for name in experiment.save]
    tried = {pair: _trainings(experiment, *pair) for pair in planned}
    trainings = [training for of_pair in tried.values() for training in of_pair]
    counter = Counter(sum(protocol.steps(len(own.fold.train)) for own in trainings), progress)
    parts = [_training_part(experiment, training, counter) for training in trainings]
    arrays = cache.each(parts, progress=lambda done, _: counter.reach(done))
    results: dict[Condition, list[Trained]] = {condition: [] for condition in every}
    for (condition, fold), of_pair in tried.items():
        best = _best(protocol, of_pair, islice(arrays, len(of_pair)))
        if fold.number != FINAL:
            results[condition].append(best)
    return results


def named(every: Iterable[Condition], name: str) -> Condition:
    """The condition of a name; of random sets the first."""
    return next(condition for condition in every if condition.name == name)


def trained_alone(experiment: Experiment, condition: Condition, fold: Fold) -> Trained:
    """A condition in a fold with what it learned: read where that was kept, else trained."""
    tried, counter = _trainings(experiment, condition, fold), Counter(0, None)
    parts = [_training_part(experiment, training, counter) for training in tried]
    best = _best(experiment.protocol, tried, map(experiment.cache.get, parts))
    if best.trajectory.values:
        return best
    again = experiment.cache.get(_training_part(experiment, best.training, counter, keep=True))
    return Trained(best.training, Trajectory.from_arrays(again))


def _best(
    protocol: Protocol, tried: Sequence[Training], arrays: Iterable[Mapping[str, np.ndarray]]
) -> Trained:
    """The training with the settings that are best on the validation targets."""
    candidates = []
    for training, of_part in zip(tried, arrays, strict=True):
        own = Trajectory.from_arrays(of_part)
        kept = keeps_pairs(own, protocol)
        candidates.append((Trained(training, own), own.chosen.loss, kept))
    return best_of(candidates)


def at_equal_entropy(experiment: Experiment, trained: Trained) -> tuple[float, np.ndarray]:
    """Gaps of a trained model at the temperature that restores the entropy of its predictions.

    A model that is merely less sure of everything has smaller log-odds, and is no less biased. So
    its logits are divided by the temperature that gives its predictions on neutral text, on which
    nothing was chosen, the entropy that they had.

    Returns:
        The temperature, and the gaps of the test items, nats per token; NaN where no temperature
        gives that entropy.
    """
    corpus, own = experiment.corpus, trained.trajectory
    if own.best == 0:  # nothing has changed
        return 1.0, own.first.test.gap
    before, test = experiment.entropy, trained.training.fold.test.tolist()
    with undone(learner_of(experiment, trained.training)) as learned:
        learned.load(own.values)
        with learned.running():
            now = Retention(corpus.model, corpus.neutral.report.ids).read()
            found = optimize.root_scalar(
                lambda log: now.entropy(float(np.exp(log))) - before, x0=0.0, x1=0.1, xtol=1e-4
            )
        if not found.converged:
            return np.nan, np.full(len(test), np.nan)
        temperature = float(np.exp(found.root))
        computing = Computing(corpus.model, experiment.protocol.precision)
        with computing.running(), learned.running(), tempered(corpus.model, temperature):
            return temperature, corpus.items.answers(test).gap


# -- heads -----------------------------------------------------------------------------------------


def rankings(experiment: Experiment, fold: Fold) -> dict[str, list[HeadId]]:
    """All heads in the order of each ranking of the protocol, from training targets alone."""
    saved = experiment.cache.get(_orders_part(experiment, fold))
    orders = {
        name: [HeadId(int(layer), int(head)) for layer, head in order]
        for name, order in saved.items()
    }
    return orders | {"file": list(experiment.from_file)}


def first_heads(experiment: Experiment, fold: Fold) -> list[HeadId]:
    """The heads that the first ranking chooses: controls train these, random sets match them."""
    return rankings(experiment, fold)[experiment.protocol.by[0]][: experiment.protocol.top]


def heads_of(experiment: Experiment, condition: Condition, fold: Fold) -> tuple[HeadId, ...]:
    """The heads that a condition trains in a fold."""
    if condition.how in ("full", *EDITS):
        return ()
    if condition.ranking is not None:
        chosen = rankings(experiment, fold)[condition.ranking][: experiment.protocol.top]
        return tuple(sorted(chosen))
    if condition.name == RANDOM:
        return random_heads(experiment, fold)[0][condition.draw]
    return tuple(experiment.every_head)


def random_heads(experiment: Experiment, fold: Fold) -> tuple[list[tuple[HeadId, ...]], str]:
    """Random sets as large as the chosen one, and in words which heads they are drawn from."""
    n, every = experiment.protocol.n_random, experiment.every_head
    first = first_heads(experiment, fold)
    rng = generator(experiment.protocol.seed, "random heads", str(fold.number))
    per_layer = 1 + max(head.head for head in every)
    if n_possible_sets(first, per_layer) >= n:
        return random_sets(first, per_layer, n, rng=rng), "of the same layers"
    # A layer has more chosen heads than others.
    if n_possible_sets(first, per_layer, scarce=True) >= n:
        sets = random_sets(first, per_layer, n, rng=rng, scarce=True)
        return sets, "of the same layers, chosen heads among them where others are too few"
    drawn = [rng.choice(len(every), len(first), replace=False) for _ in range(n)]
    return [tuple(sorted(every[int(i)] for i in places)) for places in drawn], "of any layer"


def matching(experiment: Experiment) -> str:
    """Say which heads random sets are drawn from, fold by fold where folds differ."""
    said = Counts(random_heads(experiment, fold)[1] for fold in experiment.tested)
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{words} ({counted(n, 'fold')})" for words, n in said.items())


# -- what is computed once, and saved --------------------------------------------------------------


def _part(
    name: str, fold: Fold, cost: float, compute: Callable[[], dict[str, np.ndarray]], **more: Any
) -> Part:
    """A part that depends on the items of a fold."""
    depends_on = {"fold": [items.tolist() for items in fold.parts().values()], **more}

    def tidied() -> dict[str, np.ndarray]:
        arrays = compute()
        give_back_memory()
        return arrays

    return Part(name, cost, lambda: depends_on, tidied)


def give_back_memory() -> None:
    """Give freed memory back: to other processes on the GPU, and to a system with glibc.

    glibc keeps what tensors of some megabytes leave behind, in pieces that add up over many tasks.
    """
    torch.cuda.empty_cache()  # does nothing where no GPU was used
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _orders_part(experiment: Experiment, fold: Fold) -> Part:
    """The part that holds the rankings of a fold."""
    protocol = experiment.protocol

    def computed() -> dict[str, np.ndarray]:
        items, load = experiment.corpus.items.without(fold.apart), experiment.load_hooked
        orders = fold_orders(items, fold.train, protocol.by, load=load, seed=protocol.seed)
        if "gates" in protocol.by:  # by how far the learned gate is from 1
            learned = trained_alone(experiment, _GATES, fold).trajectory.values["gates"]
            order = torch.argsort((learned - 1).abs(), descending=True, stable=True)
            orders["gates"] = [experiment.every_head[int(i)] for i in order]
        saved = [name for name in protocol.by if name != "file"]
        return {name: np.array([(h.layer, h.head) for h in orders[name]]) for name in saved}

    return _part(f"orders {fold.number}", fold, len(fold.train), computed)


def _trainings(experiment: Experiment, condition: Condition, fold: Fold) -> list[Training]:
    """A condition in a fold, with each of the settings that are tried."""
    heads = heads_of(experiment, condition, fold)
    tried = trials(experiment.protocol, condition)
    return [Training(condition, fold, heads, trial) for trial in tried]


def _training_part(
    experiment: Experiment, training: Training, counter: Counter, *, keep: bool = False
) -> Part:
    """The part that holds a training, with what it learned where that is kept."""
    fold, condition = training.fold, training.condition
    corpus, protocol = experiment.corpus, experiment.protocol
    keep = keep or experiment.keeps(condition, fold)

    def trained() -> dict[str, np.ndarray]:
        untouched = experiment.untouched(fold)
        if condition.how in EDITS:
            with undone(_edit_of(experiment, training)) as edit:
                return edited(edit, corpus, protocol, fold, untouched=untouched).arrays()
        held = experiment.held(fold)  # before anything changes
        torch.manual_seed(protocol.seed)
        with undone(learner_of(experiment, training)) as own:
            found = train(
                own, corpus, protocol, training, held=held, untouched=untouched,
                progress=partial(counter.add, 1),
            )  # fmt: skip
        if not keep:
            found.values = {}
        return found.arrays()

    large = condition.name in _CAN_BE_LARGE
    name = f"fold {fold.number} {condition.part} {training.trial}" + " kept" * (keep and large)
    heads = [str(head) for head in training.heads]
    return _part(name, fold, protocol.steps(len(fold.train)), trained, heads=heads)


def learner_of(experiment: Experiment, training: Training) -> Learner:
    """The learner of a training."""
    model, seed = experiment.corpus.model, experiment.protocol.seed
    return learner(training.condition.how, model, training.heads, seed=seed)


def _edit_of(experiment: Experiment, training: Training) -> Edit:
    """The edit that stands in the place of a training."""
    fold, trial = training.fold, training.trial
    texts, items = experiment.corpus.items.without(fold.apart), fold.train.tolist()
    if training.condition.how == "leace":
        return Erasure(texts, items, trial.layer)
    return Steering(texts, items, trial.layer, trial.sign)


# -- fixing an experiment --------------------------------------------------------------------------


def fixed_experiment(
    corpus: Corpus,
    protocol: Protocol,
    folder: Path,
    *,
    load_hooked: Callable[[], LoadedModel],
    from_file: tuple[Sequence[HeadId], str | None] | None = None,
    about_twins: dict[str, Any] | None = None,
    save: Sequence[str] = (),
    resume: bool = True,
    overwrite: bool = False,
    shard: Shard | None = None,
    cluster: Cluster | None = None,
) -> Experiment:
    """Fix everything that decides the numbers, and write the protocol down.

    ``load_hooked`` gives the model with hooks, for rankings by topology; ``from_file`` has the
    heads of the ranking ``file``, and the hash of the weights they were found in. ``save`` names
    the conditions whose models are to be saved; without any it is the best one. Trainings of
    another protocol in the folder may be lost only to ``overwrite``.

    Raises:
        InputError: if targets, heads or texts cannot be used, a condition to be saved is not
            trained, or the folder holds trainings of another protocol.
    """
    require_trained(save, protocol)
    weights = corpus.model.weight_hash()
    heads = _heads_of_file(*from_file, protocol, weights) if from_file is not None else ()
    neutral, domain = corpus.neutral, corpus.domain
    all_folds = folds(corpus.items.triples, corpus.items.twins, protocol)
    reported = domain.report.items() if domain else ()
    applied = {
        "weights": weights,
        "texts": triple_ids(corpus.items.triples),
        "twins": (about_twins or {}).get("hash"),
        "neutral": [neutral.source, neutral.revision],
        "domain": domain and [texts_hash([(ids,) for ids in domain.learn]),
                              triple_ids(domain.watch.triples)],
        "other": {name: triple_ids(items.triples) for name, items in reported},
        "pairs": {n: [s.source, s.revision, len(s.pairs)] for n, s in corpus.pairs.items()},
        "heads": [str(head) for head in heads],
    }  # fmt: skip
    identity = protocol_hash(protocol, applied)
    # Processes on other hardware may write other neutral text: their trainings do not mix.
    neutral_ids = [*neutral.learn.ids, *neutral.watch.ids, *neutral.report.ids]
    kept = {
        "format": 5, "protocol": identity, "neutral": texts_hash([(ids,) for ids in neutral_ids]),
    }  # fmt: skip
    cache = Cache(
        folder / _TRAININGS, kept, resume=resume, overwrite=overwrite, shard=shard, cluster=cluster
    )
    fixed = _written_down(folder, protocol, identity, overwrite)
    return Experiment(
        corpus, protocol, all_folds, cache, load_hooked, heads, weights, identity, fixed,
        about_twins, save,
    )  # fmt: skip


def _heads_of_file(
    heads: Sequence[HeadId], found_in: str | None, protocol: Protocol, weights: str
) -> tuple[HeadId, ...]:
    """Heads of a file, each once; refuse those of another model, and another number than asked."""
    if found_in not in (None, weights):
        raise InputError(
            "`heads` were found in a model with other weights than the one that is trained; "
            "rank the heads of this one, with tdabias heads and tdabias edit --as slices"
        )
    different = tuple(dict.fromkeys(heads))
    if len(different) != protocol.top:
        raise InputError(
            f"`top` must be {len(different)}, as many as `heads` has, or be left out; got "
            f"{protocol.top}"
        )
    return different


def _written_down(folder: Path, protocol: Protocol, identity: str, overwrite: bool) -> str:
    """Write the protocol down before the first step; when that was, also for a resumed run."""
    path = folder / PROTOCOL
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["hash"] == identity:
            return str(before["fixed"])
    except (OSError, ValueError, KeyError, TypeError):
        before = None  # there is none yet, or what is there says nothing
    if before and any((folder / _TRAININGS).glob("*.npz")) and not overwrite:
        raise InputError(
            f"{folder} holds trainings of another protocol (fixed {before.get('fixed')}); "
            "choose another --out, or start over with --no-resume"
        )
    fixed = now()
    content = {"hash": identity, "fixed": fixed, "protocol": protocol.model_dump(mode="json")}
    write_text(path, to_json(content))
    return fixed
