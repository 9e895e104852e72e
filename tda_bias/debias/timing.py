"""The cost of an experiment: trainings and steps, and seconds from a timed step and check."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tda_bias.debias.experiment import Experiment
from tda_bias.debias.learners import learner, undone
from tda_bias.debias.neutral import Retention
from tda_bias.debias.protocol import FINAL, Fold, Protocol, conditions
from tda_bias.debias.training import log_ppl_of, n_checks, n_steps
from tda_bias.models.precision import Computing
from tda_bias.runs.text import counted
from tda_bias.runs.work import ALONE, Team


def cost(protocol: Protocol, all_folds: Sequence[Fold]) -> tuple[int, int]:
    """Trainings and steps of a whole experiment, the recommended model's included."""
    compared = sum(len(protocol.rates(condition.how)) for condition in conditions(protocol))
    trainings = steps = 0
    for fold in all_folds:
        of_fold = protocol.n_rates if fold.number == FINAL else compared
        of_fold += protocol.n_rates * ("gates" in protocol.by)
        trainings += of_fold
        steps += of_fold * n_steps(protocol, fold)
    return trainings, steps


@dataclass(frozen=True)
class Seconds:
    """Seconds that parts of a training take.

    Attributes:
        step: A step.
        check: The outcomes of validation and test targets, with the perplexity.
        perplexity: That alone.
    """

    step: float
    check: float
    perplexity: float

    def of_all(self, protocol: Protocol, all_folds: Sequence[Fold]) -> float:
        """Seconds of a whole experiment in which no training stops early."""
        trainings, steps = cost(protocol, all_folds)
        # The untouched model is checked once in a fold, and every training reports a perplexity.
        checks = trainings * (n_checks(protocol) - 1) + len(all_folds)
        reports = trainings + len(all_folds)
        return steps * self.step + checks * self.check + reports * self.perplexity


def timed(experiment: Experiment) -> Seconds:
    """Seconds of a step and a check here, of gates on all heads: each is done and timed."""
    texts, protocol, fold = experiment.texts, experiment.protocol, experiment.folds[0]
    items = fold.train[: protocol.batch].tolist()
    passages = list(range(min(protocol.passages, len(experiment.neutral.learn.ids))))
    few = replace(experiment.neutral.learn, ids=experiment.neutral.learn.ids[: len(passages)])
    retention = Retention(texts.model, few)
    computing = Computing(texts.model, protocol.precision)

    def step() -> None:
        loss = texts.gaps(items).mean() + retention.divergence(passages)
        loss.backward()  # type: ignore[no-untyped-call]

    with undone(learner("gates", texts.model, experiment.every_head)) as gates:

        def seconds(run: Callable[[], object]) -> float:
            clock = time.monotonic()
            with computing.running(), gates.running():
                run()
            return time.monotonic() - clock

        seconds(step)  # the first is slower than all later ones
        of_step = seconds(step)
        of_item = seconds(lambda: texts.outcomes(items)) / max(1, len(items))
        of_text = seconds(lambda: log_ppl_of(texts.model, experiment.neutral.watch))
    return Seconds(of_step, of_item * (len(fold.validation) + len(fold.test)) + of_text, of_text)


def cost_in_words(experiment: Experiment, team: Team = ALONE) -> str:
    """The trainings that are to come and the time they take, from a timed step and check."""
    protocol = experiment.protocol
    trainings, steps = cost(protocol, experiment.folds)
    taken = timed(experiment)
    minutes = max(1, round(taken.of_all(protocol, experiment.folds) / 60))
    shared = f", shared by {team.count} processes" if team.count > 1 else ""
    return (
        f"{counted(trainings, 'training')} of {counted(steps // trainings, 'step')} on "
        f"average: about {counted(minutes, 'minute')} here at most ({taken.step:.1f} s a step, "
        f"{taken.check:.1f} s a check){shared}. Protocol {experiment.identity[:12]}, fixed "
        f"{experiment.fixed}."
    )
