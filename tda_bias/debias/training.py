"""One training: steps, checks on validation targets that stop it, and what test targets did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.debias.learners import Learner
from tda_bias.debias.loss import huber
from tda_bias.debias.neutral import NeutralText, Retention
from tda_bias.debias.protocol import Fold, Goal, Protocol
from tda_bias.debias.stream import LowerLayers
from tda_bias.debias.texts import Outcomes, TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.models.precision import Computing
from tda_bias.runs.text import counted
from tda_bias.scores.perplexity import Windows, log_perplexity
from tda_bias.stats.resampling import generator
from tda_bias.types import InputError

_LARGEST_GRADIENT = 1.0
_PASSAGES = 16
# Entries of a trajectory that every check adds to.
_CHECKS = (
    "step", "validation_loss", "validation_language", "log_ppl", "gap", "total", "language",
)  # fmt: skip


@dataclass
class Trajectory:
    """Checks of a training; check 0 is the untouched model.

    Attributes:
        step: Steps taken.
        validation_loss: Mean Huber loss of the gaps on the validation targets.
        validation_language: Share of won language-model comparisons on the validation targets.
        log_ppl: Log-perplexity of the watched passages, nats per token.
        gap: Beta per token of every test item.
        total: Beta of sums of every test item.
        language: Share of won language-model comparisons of every test item.
        best: The check with the least stop loss among those within the allowed perplexity.
        ended: Why it ended, in words.
        values: Values of the learner at ``best``.
        report_log_ppl: Log-perplexity of the reported passages before and at ``best``.
    """

    step: list[int] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    validation_language: list[float] = field(default_factory=list)
    log_ppl: list[float] = field(default_factory=list)
    gap: list[np.ndarray] = field(default_factory=list)
    total: list[np.ndarray] = field(default_factory=list)
    language: list[np.ndarray] = field(default_factory=list)
    best: int = 0
    ended: str = ""
    values: dict[str, Tensor] = field(default_factory=dict)
    report_log_ppl: tuple[float, float] = (float("nan"), float("nan"))

    def arrays(self) -> dict[str, np.ndarray]:
        """For a saved part."""
        arrays = {name: np.array(getattr(self, name)) for name in (*_CHECKS, "best")}
        arrays["ended"] = np.array(self.ended)
        arrays["report_log_ppl"] = np.array(self.report_log_ppl)
        return arrays | {f"values {name}": value.numpy() for name, value in self.values.items()}

    def copied(self) -> Trajectory:
        """The same, to be added to."""
        return Trajectory.from_arrays(self.arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Trajectory:
        """From a saved part."""
        values = {
            name.removeprefix("values "): torch.from_numpy(value)
            for name, value in arrays.items()
            if name.startswith("values ")
        }
        before, after = arrays["report_log_ppl"]
        return cls(
            step=arrays["step"].tolist(),
            validation_loss=arrays["validation_loss"].tolist(),
            validation_language=arrays["validation_language"].tolist(),
            log_ppl=arrays["log_ppl"].tolist(),
            gap=list(arrays["gap"]),
            total=list(arrays["total"]),
            language=list(arrays["language"]),
            best=int(arrays["best"]),
            ended=str(arrays["ended"]),
            values=values,
            report_log_ppl=(float(before), float(after)),
        )


def n_checks(protocol: Protocol) -> int:
    """Checks of a whole training, the first of the untouched model included."""
    return 1 + protocol.epochs * protocol.checks_per_epoch


def n_steps(protocol: Protocol, fold: Fold) -> int:
    """Steps of a whole training."""
    return protocol.epochs * -(-len(fold.train) // protocol.batch)


def train(
    learner: Learner,
    texts: TwinTexts,
    fold: Fold,
    retention: Retention,
    neutral: NeutralText,
    protocol: Protocol,
    *,
    rate: float,
    goal: Goal = "gaps",
    untouched: Trajectory | None = None,
    keep_values: bool = True,
    progress: Callable[[], None] | None = None,
) -> Trajectory:
    """Train until the validation targets gain nothing more, or too much perplexity is lost.

    Adam, the gradient's length cut at 1. The model is left as it was at the best check.

    Args:
        learner: The learner.
        texts: Items with twins.
        fold: Items that train, validate and test.
        retention: The neutral passages that hold the model where it is.
        neutral: Passages for the perplexity that stops, and for the one that is reported.
        protocol: Epochs, batches, weights of the loss, stops.
        rate: Learning rate.
        goal: ``gaps``; ``placebo``: the same with the continuations of the twins exchanged, which
            trains wording away and nothing about the target; ``retention``: the next-token loss of
            the neutral passages alone. (The divergence alone has its minimum where training
            begins: it would change nothing but by rounding.)
        untouched: From ``untouched_check``, where it is known already.
        keep_values: Whether the trajectory holds what was learned.
        progress: Called after every step.
    """
    below = LowerLayers(texts.model, learner.first)
    computing = Computing(texts.model, protocol.precision)
    optimiser = torch.optim.Adam(learner.parameters(), lr=rate)
    learner.attach(optimiser)
    start = untouched or untouched_check(texts, fold, neutral, protocol)
    trajectory = start.copied()
    best = learner.values()
    every = max(1, n_steps(protocol, fold) // (protocol.epochs * protocol.checks_per_epoch))
    batches = _batches(fold, len(retention), protocol)
    for step, (items, passages) in enumerate(batches, start=1):
        with computing.running(), learner.running():
            loss = _loss(learner, texts, retention, items, passages, protocol, goal, below)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        length = torch.nn.utils.clip_grad_norm_(learner.parameters(), _LARGEST_GRADIENT)
        if not torch.isfinite(loss.detach()) or not torch.isfinite(length):
            trajectory.ended = f"the loss became {float(loss.detach())} at step {step}"
            break
        optimiser.step()
        if progress is not None:
            progress()
        if step % every and step < len(batches):
            continue
        try:
            with computing.running(), learner.running():
                _check(trajectory, texts, fold, neutral.watch, protocol, step, below)
        except InputError as error:  # the model says NaN: the last good check stands
            trajectory.ended = f"{error} (step {step})"
            break
        if trajectory.best == len(trajectory.step) - 1:
            best = learner.values()
        if trajectory.ended:
            break
    trajectory.ended = trajectory.ended or f"all {len(batches)} steps"
    learner.load(best)
    learner.check()
    with computing.running(), learner.running():
        after = log_ppl_of(texts.model, neutral.report)
    trajectory.report_log_ppl = (start.report_log_ppl[0], after)
    trajectory.values = best if keep_values else {}
    return trajectory


def _batches(
    fold: Fold, n_passages: int, protocol: Protocol
) -> list[tuple[Int[np.ndarray, " item"], Int[np.ndarray, " passage"]]]:
    """Items and passages of every step: the same for every condition of a fold."""
    rng = generator(protocol.seed, "batches", str(fold.number))
    batches = []
    for _ in range(protocol.epochs):
        order = rng.permutation(fold.train)
        for part in np.array_split(order, -(-len(order) // protocol.batch)):
            size = min(protocol.passages, n_passages)
            batches.append((part, rng.choice(n_passages, size, replace=False)))
    return batches


def _loss(
    learner: Learner,
    texts: TwinTexts,
    retention: Retention,
    items: np.ndarray,
    passages: np.ndarray,
    protocol: Protocol,
    goal: Goal,
    below: LowerLayers,
) -> Tensor:
    if goal == "retention":
        return retention.log_perplexity(passages.tolist(), below=below)
    options = {"delta": protocol.delta, "scale": protocol.scale}
    gap = texts.gaps(items.tolist(), loss=protocol.loss, exchanged=goal == "placebo", below=below)
    loss = huber(gap, **options).mean()
    if protocol.kl:
        loss = loss + protocol.kl * retention.divergence(passages.tolist(), below=below)
    pull = learner.penalty()
    return loss if pull is None else loss + protocol.l1 * pull


def log_ppl_of(model: LanguageModel, passages: Windows) -> float:
    """Log-perplexity of neutral passages, nats per token, as every check reads it."""
    return log_perplexity(model, passages, batch_size=_PASSAGES).mean


def untouched_check(
    texts: TwinTexts, fold: Fold, neutral: NeutralText, protocol: Protocol
) -> Trajectory:
    """The check before the first step, of the untouched model."""
    trajectory = Trajectory()
    with Computing(texts.model, protocol.precision).running():
        _check(trajectory, texts, fold, neutral.watch, protocol, 0, None)
        before = log_ppl_of(texts.model, neutral.report)
    trajectory.report_log_ppl = (before, before)
    return trajectory


def _check(
    trajectory: Trajectory,
    texts: TwinTexts,
    fold: Fold,
    watch: Windows,
    protocol: Protocol,
    step: int,
    below: LowerLayers | None,
) -> None:
    """Look at validation targets and watched passages, and note what the test targets do."""
    validation = texts.outcomes(fold.validation.tolist(), below=below)
    empty = np.zeros(0)
    test = Outcomes(empty, empty, empty)
    if len(fold.test):
        test = texts.outcomes(fold.test.tolist(), below=below)
    gap = torch.from_numpy(validation.gap)
    loss = huber(gap, delta=protocol.delta, scale=protocol.scale).mean()
    log_ppl = log_ppl_of(texts.model, watch)
    trajectory.step.append(step)
    trajectory.validation_loss.append(float(loss))
    trajectory.validation_language.append(float(validation.language.mean()))
    trajectory.log_ppl.append(log_ppl)
    trajectory.gap.append(test.gap)
    trajectory.total.append(test.total)
    trajectory.language.append(test.language)
    _stopped(trajectory, protocol)


def _stopped(trajectory: Trajectory, protocol: Protocol) -> None:
    """The best check so far, and whether the training ends here."""
    allowed = trajectory.log_ppl[0] + np.log1p(protocol.allowed_loss)
    within = [n for n, loss in enumerate(trajectory.log_ppl) if loss <= allowed]
    trajectory.best = min(within, key=lambda n: trajectory.validation_loss[n])
    last = len(trajectory.step) - 1
    if last not in within:
        trajectory.ended = f"perplexity lost more than {protocol.allowed_loss:.0%}"
    elif last - trajectory.best >= protocol.patience:
        checks = counted(protocol.patience, "check")
        trajectory.ended = f"no gain on the validation targets in {checks}"


def at_loss(training: Trajectory, loss: float) -> Float[np.ndarray, " item"]:
    """The gaps of the test items where the perplexity first reaches a loss.

    Between two checks every item's gap is interpolated along the log-perplexity. A training that
    never loses so much is taken at its last check.

    Args:
        training: The training.
        loss: Share of the perplexity, such as 0.01.
    """
    level = training.log_ppl[0] + np.log1p(loss)
    for n in range(1, len(training.step)):
        low, high = training.log_ppl[n - 1], training.log_ppl[n]
        if high >= level:
            share = float(np.clip((level - low) / (high - low), 0, 1)) if high > low else 1.0
            return np.asarray((1 - share) * training.gap[n - 1] + share * training.gap[n])
    return np.asarray(training.gap[-1])
