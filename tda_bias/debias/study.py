"""A comparison of arms over folds of targets, saved training by training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tda_bias.ablation.random_sets import n_possible_sets, random_sets
from tda_bias.debias.learners import How, learner, undone
from tda_bias.debias.neutral import NeutralText, Retention
from tda_bias.debias.protocol import FINAL, Fold, Protocol, Ranking
from tda_bias.debias.rankings import (
    first_order_orders,
    gate_order,
    mediation,
    mediation_order,
    needs,
    topology_orders,
)
from tda_bias.debias.texts import TwinTexts
from tda_bias.debias.training import (
    Goal,
    Trajectory,
    log_ppl_of,
    n_checks,
    n_steps,
    train,
    untouched_check,
)
from tda_bias.memory import give_back_memory
from tda_bias.models.attention import attention_layers
from tda_bias.models.load import LoadedModel
from tda_bias.models.precision import Computing
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore
from tda_bias.runs.work import Job
from tda_bias.stats.resampling import generator
from tda_bias.types import HeadId

RANDOM = "random"
_LAYER_MATCHED, _ANYWHERE = "of the same layers", "of any layer"


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        name: A ranking, ``all``, ``full``, ``placebo``, ``retention`` or ``random``.
        how: What learns.
        ranking: The ranking whose first heads learn; None for all heads or a random set.
        draw: Number of the random set; -1 for others.
        goal: What the loss is.
    """

    name: str
    how: How
    ranking: Ranking | None = None
    draw: int = -1
    goal: Goal = "gaps"

    @property
    def part(self) -> str:
        """Its name among saved parts."""
        return f"{self.name} {self.draw}" if self.draw >= 0 else self.name


def arms(protocol: Protocol) -> list[Arm]:
    """Every arm of a protocol but the untouched model.

    Random sets have as many heads in each layer as the first ranking, where its layers have as
    many others. The placebo and the retention arm train the heads of the first ranking.
    """
    how, first = protocol.how, protocol.by[0]
    all_arms = [Arm(name, how, ranking=name) for name in protocol.by]
    all_arms += [Arm(RANDOM, how, draw=draw) for draw in range(protocol.n_random)]
    all_arms.append(Arm("all", how))
    if protocol.controls:
        all_arms.append(Arm("placebo", how, ranking=first, goal="placebo"))
        all_arms.append(Arm("retention", how, ranking=first, goal="retention"))
        all_arms.append(Arm("full", "full"))
    return all_arms


def cost(protocol: Protocol, dealt: Sequence[Fold]) -> tuple[int, int]:
    """Trainings and steps of a whole comparison, the recommended model's included."""
    listed = arms(protocol)
    trainings = steps = 0
    for fold in dealt:
        compared = sum(len(protocol.rates(arm.how)) for arm in listed)
        of_fold = protocol.n_rates if fold.number == FINAL else compared
        of_fold += protocol.n_rates * ("gates" in protocol.by)
        trainings += of_fold
        steps += of_fold * n_steps(protocol, fold)
    return trainings, steps


@dataclass(frozen=True)
class Pace:
    """Seconds that parts of a training take.

    Attributes:
        step: A step.
        check: The outcomes of the targets that stop and test, with the perplexity.
        perplexity: That alone.
    """

    step: float
    check: float
    perplexity: float

    def of(self, protocol: Protocol, dealt: Sequence[Fold]) -> float:
        """Seconds of a whole comparison in which no training stops early."""
        trainings, steps = cost(protocol, dealt)
        # The untouched model is checked once in a fold, and every training reports a perplexity.
        checks = trainings * (n_checks(protocol) - 1) + len(dealt)
        reports = trainings + len(dealt)
        return steps * self.step + checks * self.check + reports * self.perplexity


@dataclass
class ArmResult:
    """An arm over the folds, with the learning rate that the stop targets chose in each.

    Attributes:
        arm: What it is.
        folds: The folds, in order.
        trajectories: The training of each.
        rates: The chosen learning rate of each.
        heads: The heads that learned in each; empty for the whole model.
    """

    arm: Arm
    folds: list[Fold] = field(default_factory=list)
    trajectories: list[Trajectory] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    heads: list[tuple[HeadId, ...]] = field(default_factory=list)


@dataclass
class _Moved:
    """Steps of finished trainings, by their names, and of those that are not yet."""

    trainings: dict[str, int] = field(default_factory=dict)
    within: int = 0
    told: int = 0


@dataclass(frozen=True)
class Study:
    """What a comparison needs, and where its finished trainings are kept.

    Attributes:
        texts: Items with twins, and the untouched model.
        neutral: Neutral text in three parts.
        protocol: The protocol.
        dealt: Its folds.
        store: Of finished trainings and choices.
        load_hooked: Gives the model with hooks, for rankings by topology.
        from_file: Heads of the ranking ``file``.
        progress: Called with steps done and all.
    """

    texts: TwinTexts
    neutral: NeutralText
    protocol: Protocol
    dealt: list[Fold]
    store: PartStore
    load_hooked: Callable[[], LoadedModel]
    from_file: tuple[HeadId, ...] = ()
    progress: Progress | None = None
    _moved: _Moved = field(default_factory=_Moved)
    _kept: dict[Any, Any] = field(default_factory=dict)

    def run(self) -> list[ArmResult]:
        """Every arm on every fold that tests.

        Raises:
            ShareDone: if the store's trainings are shared by several processes and another one
                gathers.
            InputError: as ``PartStore.each``.
        """
        self.store.prepare([self._choice(fold) for fold in self.dealt])
        results = [ArmResult(arm) for arm in arms(self.protocol)]
        for fold in self.dealt:
            if fold.number == FINAL:
                continue
            orders = self.orders(fold)
            for result in results:
                result.folds.append(fold)
                result.heads.append(self.heads_of(result.arm, orders, fold))
        by_fold = [
            (result, self._trainings(result.arm, result.heads[number], fold))
            for number, fold in enumerate(results[0].folds)
            for result in results
        ]
        parts = self.store.each([job for _, jobs in by_fold for job in jobs])
        for result, jobs in by_fold:
            trajectory, rate = self._best(result.arm, islice(parts, len(jobs)), jobs)
            result.trajectories.append(trajectory)
            result.rates.append(rate)
        return results

    def recommended(self, name: str) -> tuple[Fold, Trajectory, tuple[HeadId, ...]]:
        """The training of the model that is saved: of the final fit, or of the only fold."""
        fold = self.dealt[-1]
        arm = next(arm for arm in arms(self.protocol) if arm.name == name)
        # The training is saved where it was part of the comparison.
        heads = self.heads_of(arm, self.orders(fold), fold)
        return fold, self.trained(arm, heads, fold)[0], heads

    def pace(self) -> Pace:
        """What parts of a training cost here, of gates on all heads: each is done and timed."""
        fold, protocol = self.dealt[0], self.protocol
        items = fold.train[: protocol.batch].tolist()
        passages = list(range(min(protocol.passages, len(self.neutral.learn.ids))))
        few = replace(self.neutral.learn, ids=self.neutral.learn.ids[: len(passages)])
        retention = Retention(self.texts.model, few)
        computing = Computing(self.texts.model, protocol.precision)

        def step() -> None:
            loss = self.texts.gaps(items).mean() + retention.divergence(passages)
            loss.backward()  # type: ignore[no-untyped-call]

        with undone(learner("gates", self.texts.model, self.every_head)) as gates:

            def seconds(run: Callable[[], object]) -> float:
                clock = time.monotonic()
                with computing.running(), gates.running():
                    run()
                return time.monotonic() - clock

            seconds(step)  # the first is slower than all later ones
            of_step = seconds(step)
            of_item = seconds(lambda: self.texts.outcomes(items)) / max(1, len(items))
            of_text = seconds(lambda: log_ppl_of(self.texts.model, self.neutral.watch))
        return Pace(of_step, of_item * (len(fold.stop) + len(fold.test)) + of_text, of_text)

    # -- choosing --

    @property
    def every_head(self) -> list[HeadId]:
        """All heads of the model."""
        layers = attention_layers(self.texts.model)
        return [HeadId(layer.number, h) for layer in layers for h in range(layer.n_heads)]

    def heads_of(self, arm: Arm, orders: dict[str, list[HeadId]], fold: Fold) -> tuple[HeadId, ...]:
        """The heads that an arm trains in a fold."""
        if arm.how == "full":
            return ()
        if arm.ranking is not None:
            return tuple(sorted(orders[arm.ranking][: self.protocol.top]))
        if arm.name == "all":
            return tuple(self.every_head)
        first = orders[self.protocol.by[0]][: self.protocol.top]
        return self._random_sets(first, fold)[0][arm.draw]

    def matching(self, fold: Fold) -> str:
        """Whether random heads are of the same layers as those of the first ranking, in words."""
        return self._random_sets(self.orders(fold)[self.protocol.by[0]][: self.protocol.top], fold)[
            1
        ]

    def _random_sets(
        self, first: Sequence[HeadId], fold: Fold
    ) -> tuple[list[tuple[HeadId, ...]], str]:
        n, every = self.protocol.n_random, self.every_head
        rng = generator(self.protocol.seed, "random heads", str(fold.number))
        per_layer = 1 + max(head.head for head in every)
        if n_possible_sets(first, per_layer) >= n:
            return random_sets(first, per_layer, n, rng=rng), _LAYER_MATCHED
        # A layer has more chosen heads than others: there is no such set.
        drawn = [rng.choice(len(every), len(first), replace=False) for _ in range(n)]
        return [tuple(sorted(every[int(i)] for i in places)) for places in drawn], _ANYWHERE

    def orders(self, fold: Fold) -> dict[str, list[HeadId]]:
        """The rankings of a fold, from its training targets alone."""
        saved = self.store.part(self._choice(fold))
        return {
            name: [HeadId(int(layer), int(head)) for layer, head in saved[name]]
            for name in self.protocol.by
        }

    def _choice(self, fold: Fold) -> Job:
        """The part that holds the rankings of a fold."""

        def computed() -> dict[str, np.ndarray]:
            return {
                name: np.array([(head.layer, head.head) for head in order])
                for name, order in self._computed_orders(fold).items()
            }

        return Job(f"orders {fold.number}", len(fold.train), lambda: self._on(fold), computed)

    def _computed_orders(self, fold: Fold) -> dict[str, list[HeadId]]:
        texts, wanted = self.texts, needs(self.protocol.by)
        triples = [texts.triples[i] for i in fold.train]
        twins = [texts.twins[i] for i in fold.train]
        orders: dict[str, list[HeadId]] = {}
        if wanted["first_order"]:
            orders |= first_order_orders(texts.model, triples, twins)
        if wanted["topology"]:
            orders |= topology_orders(self.load_hooked, triples, twins, seed=self.protocol.seed)
        if wanted["mediation"]:
            values, _ = mediation(texts.model, triples, twins)
            mean = float(texts.outcomes(fold.train.tolist()).gap.mean())
            orders["mediation"] = mediation_order(texts.model, values, mean)
        if wanted["gates"]:
            gates = Arm("gates of all heads", "gates")
            learned, _ = self.trained(gates, tuple(self.every_head), fold)
            orders["gates"] = gate_order(self.every_head, learned.values["gates"])
        if self.from_file:
            orders["file"] = list(self.from_file)
        give_back_memory()
        return {name: orders[name] for name in self.protocol.by}

    # -- training --

    def trained(self, arm: Arm, heads: tuple[HeadId, ...], fold: Fold) -> tuple[Trajectory, float]:
        """The training of an arm in a fold, at the rate with the least loss on the stop targets."""
        jobs = self._trainings(arm, heads, fold)
        return self._best(arm, map(self.store.part, jobs), jobs)

    def _best(
        self, arm: Arm, parts: Iterable[Mapping[str, np.ndarray]], jobs: Sequence[Job]
    ) -> tuple[Trajectory, float]:
        tried = []
        for rate, job, arrays in zip(self.protocol.rates(arm.how), jobs, parts, strict=True):
            tried.append((Trajectory.from_arrays(arrays), rate))
            self._finished(job)
        return min(tried, key=lambda trial: trial[0].stop_loss[trial[0].best])

    def _trainings(self, arm: Arm, heads: tuple[HeadId, ...], fold: Fold) -> list[Job]:
        """The parts that hold the trainings of an arm in a fold, rate by rate."""
        depends_on = {**self._on(fold), "heads": [str(head) for head in heads]}
        return [
            Job(
                f"fold {fold.number} {arm.part} {rate:g}",
                n_steps(self.protocol, fold),
                lambda: depends_on,
                partial(self._train_and_tidy, arm, heads, fold, rate),
            )
            for rate in self.protocol.rates(arm.how)
        ]

    def _train_and_tidy(
        self, arm: Arm, heads: tuple[HeadId, ...], fold: Fold, rate: float
    ) -> dict[str, np.ndarray]:
        arrays = self._train(arm, heads, fold, rate)
        give_back_memory()
        return arrays

    def _train(
        self, arm: Arm, heads: tuple[HeadId, ...], fold: Fold, rate: float
    ) -> dict[str, np.ndarray]:
        retention, untouched = self._retention(arm.how), self._untouched(fold)
        torch.manual_seed(self.protocol.seed)
        with undone(
            learner(arm.how, self.texts.model, heads, seed=self.protocol.seed)
        ) as temporary:
            trajectory = train(
                temporary, self.texts, fold, retention, self.neutral.watch, self.neutral.report,
                self.protocol, rate=rate, goal=arm.goal, untouched=untouched,
                keep_values=arm.how != "full", progress=self._step_done,
            )  # fmt: skip
        return trajectory.arrays()

    def _retention(self, how: How) -> Retention:
        if how == "full":  # rare, and needs a copy of the output embeddings
            return Retention(self.texts.model, self.neutral.learn, head_changes=True)
        if "retention" not in self._kept:
            self._kept["retention"] = Retention(self.texts.model, self.neutral.learn)
        kept: Retention = self._kept["retention"]
        return kept

    def _untouched(self, fold: Fold) -> Trajectory:
        """The check before the first step: the same for every arm of a fold."""
        if fold.number not in self._kept:
            self._kept[fold.number] = untouched_check(
                self.texts, fold, self.neutral.watch, self.neutral.report, self.protocol
            )
        trajectory: Trajectory = self._kept[fold.number]
        return trajectory

    def _step_done(self) -> None:
        self._moved.within += 1
        self._tell()

    def _finished(self, job: Job) -> None:
        """A training is done: with fewer steps than it might have had, or by an earlier run."""
        self._moved.trainings[job.name] = int(job.cost)
        self._moved.within = 0
        self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            total, moved = cost(self.protocol, self.dealt)[1], self._moved
            done = sum(moved.trainings.values()) + moved.within
            moved.told = max(moved.told, min(done, total))  # a share is gathered again
            self.progress(moved.told, total)

    @staticmethod
    def _on(fold: Fold) -> dict[str, Any]:
        return {"fold": [part.tolist() for part in (fold.train, fold.stop, fold.test)]}


def parts_folder(folder: Path) -> Path:
    """Where finished trainings of a run are."""
    return folder / "trainings"
