"""One loop: a learner trained by the loss; checks on validation targets choose and stop.

The rule that chooses is everywhere the same: on validation targets the least loss among what passes
every guard. It holds for checks of a training, for settings and for conditions. (By the size of
mean beta an untouched model could win, where its gaps happen to cancel out.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from tda_bias.debias.corpus import Batch, Corpus, batches
from tda_bias.debias.learners import Learner
from tda_bias.debias.peers import Edit
from tda_bias.debias.protocol import ALL_GATES, RANDOM, Condition, Fold, Protocol, Training
from tda_bias.debias.retention import Held, next_token_loss
from tda_bias.debias.texts import Answers, TwinTexts, anchor, huber, relatedness
from tda_bias.models.hooks import Computing
from tda_bias.scores.pair_scores import compared, pair_items
from tda_bias.scores.perplexity import Windows, log_perplexity
from tda_bias.show.text import counted
from tda_bias.stats.resampling import rounding
from tda_bias.types import InputError

_LARGEST_GRADIENT = 1.0
# Passages that are read side by side.
_SIDE_BY_SIDE = 16
# Weight of the pull of gates toward 1.
_L1 = 5e-4
# Checks without gain that end a training.
_PATIENCE = 3
_NUMBERS = ("step", "loss", "beta", "lms", "lms_per_token", "log_ppl")
# Readings of a trajectory that begin so are of minimal pairs, and of items of another category.
PAIRS, OTHER = "pairs ", "other "
# A training whose numbers became undefined ended with these words.
UNDEFINED = "undefined numbers"
T = TypeVar("T")


# -- the loss of a step ----------------------------------------------------------------------------


def loss_of(
    learner: Learner, items: TwinTexts, training: Training, held: Held, batch: Batch
) -> Tensor:
    """The loss of a step.

    Its goal is ``gaps``: the Huber loss of the gaps, with what holds the model; ``plain``: without
    texts of other categories and anchor, whose weights are 0 in its trials; ``placebo``: as
    ``gaps``, with the continuations of the twins exchanged, which trains wording away and nothing
    about the target; ``cda``: the next-token loss of the related texts of items and twins;
    ``retention``: that of neutral passages. (The divergence alone has its minimum where training
    begins: it would change nothing but by rounding.)
    """
    goal, trial = training.condition.goal, training.trial
    if goal == "retention":
        return held.neutral.next_token_loss(batch.passages)
    if goal == "cda":
        pairs = [pair for item in batch.items for pair in items.sequences(item)]
        return next_token_loss(items.model, [text for pair in pairs for text in pair])
    means = items.means(batch.items, unrelated=trial.anchor > 0)
    loss = huber(means.gaps(exchanged=goal == "placebo")).mean()
    loss = loss + held.neutral.divergence(batch.passages)
    if trial.domain and held.domain is not None:
        loss = loss + trial.domain * held.domain.divergence(batch.domain)
    if trial.anchor:
        before = [held.relatedness[item] for item in batch.items]
        now = relatedness(means.originals)
        loss = loss + trial.anchor * anchor(now, now.new_tensor(before))
    pull = learner.penalty()
    return loss if pull is None else loss + _L1 * pull


# -- checks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A look at a model while it trains.

    Attributes:
        step: Steps taken; of an edit its strength.
        loss: Mean Huber loss of the gaps on the validation targets.
        beta: Mean beta per token on the validation targets.
        lms: Language-model score by sums in per cent, of validation items and watched ones of
            other categories; ``lms_per_token`` is the same per token.
        log_ppl: Log-perplexity of the watched passages, nats per token.
        test: Answers to the test items.
    """

    step: float
    loss: float
    beta: float
    lms: float
    lms_per_token: float
    log_ppl: float
    test: Answers


@dataclass
class Trajectory:
    """Checks of a training; check 0 is the untouched model.

    Attributes:
        checks: In order.
        best: The check with the least loss among those that pass the guards.
        ended: Why it ended, in words.
        values: What was learned, at ``best``; of the ranking ``gates`` at the last step where no
            check passed; empty where it is not kept.
        before: Readings of the untouched model, by name: ``log_ppl`` (of the reported passages),
            and where they were read ``pairs ...`` and ``other ...``.
        after: The same at ``best``; with ``parameters``, numbers that could change.
    """

    checks: list[Check]
    best: int = 0
    ended: str = ""
    values: dict[str, Tensor] = field(default_factory=dict)
    before: dict[str, np.ndarray] = field(default_factory=dict)
    after: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def first(self) -> Check:
        """The untouched model."""
        return self.checks[0]

    @property
    def chosen(self) -> Check:
        """The best check."""
        return self.checks[self.best]

    def arrays(self) -> dict[str, np.ndarray]:
        """For a saved part."""
        arrays = {n: np.array([getattr(check, n) for check in self.checks]) for n in _NUMBERS}
        arrays["test"] = np.array([astuple(check.test) for check in self.checks])
        values = {name: value.numpy() for name, value in self.values.items()}
        groups = {"values": values, "before": self.before, "after": self.after}
        for group, named in groups.items():
            arrays |= {f"{group} {name}": value for name, value in named.items()}
        return arrays | {"best": np.array(self.best), "ended": np.array(self.ended)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Trajectory:
        """From a saved part."""

        def named(prefix: str) -> dict[str, np.ndarray]:
            return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}

        checks = [
            Check(
                **{name: float(arrays[name][n]) for name in _NUMBERS},
                test=Answers(*arrays["test"][n]),
            )
            for n in range(len(arrays["step"]))
        ]
        return cls(
            checks=checks,
            best=int(arrays["best"]),
            ended=str(arrays["ended"]),
            values={name: torch.from_numpy(value) for name, value in named("values ").items()},
            before=named("before "),
            after=named("after "),
        )


@dataclass(frozen=True)
class Trained:
    """A training and its checks."""

    training: Training
    trajectory: Trajectory


# Of every condition the trainings that validation targets chose, fold by fold.
Results = Mapping[Condition, Sequence[Trained]]


# -- guards ----------------------------------------------------------------------------------------


def passes(protocol: Protocol, gained: Iterable[float], perplexity: float = 0.0) -> bool:
    """Tell whether points gained by scores, and the share that perplexity gained, pass the guards.

    A loss of exactly what is allowed passes, whatever rounding makes of it.
    """
    points, share = protocol.allowed, protocol.allowed / 100
    kept = all(-of_score <= points + rounding(points) for of_score in gained)
    return bool(kept and perplexity <= share + rounding(share))


def keeps_language(now: Check, before: Check, protocol: Protocol) -> bool:
    """Tell whether both language-model scores and the perplexity pass."""
    gained = now.lms - before.lms, now.lms_per_token - before.lms_per_token
    return passes(protocol, gained, float(np.expm1(now.log_ppl - before.log_ppl)))


def points_of_pairs(trajectory: Trajectory) -> dict[str, float]:
    """Points that each set of minimal pairs gained, by its name; none where they were not read."""
    return {
        name.removeprefix(PAIRS): 100 * float(np.mean(now) - np.mean(trajectory.before[name]))
        for name, now in trajectory.after.items()
        if name.startswith(PAIRS)
    }


def keeps_pairs(trajectory: Trajectory, protocol: Protocol) -> bool:
    """Tell whether every set of minimal pairs passes; what was not read does."""
    return passes(protocol, points_of_pairs(trajectory).values())


def best_of(candidates: Sequence[tuple[T, float, bool]]) -> T:
    """The candidate with the least loss among those that pass; among all, if none does.

    Each comes with its loss on validation targets, and whether it passes every guard.
    """
    passing = [candidate for candidate in candidates if candidate[2]] or candidates
    return min(passing, key=lambda candidate: candidate[1])[0]


def choose(trajectory: Trajectory, protocol: Protocol) -> bool:
    """Tell whether the last check is the best so far; note it, and whether the training ends."""
    start, last = trajectory.first, len(trajectory.checks) - 1
    kept = [n for n, c in enumerate(trajectory.checks) if keeps_language(c, start, protocol)]
    trajectory.best = min(kept, key=lambda n: trajectory.checks[n].loss)
    if last - trajectory.best >= _PATIENCE:
        checks = counted(_PATIENCE, "check")
        trajectory.ended = f"no gain within the guards on the validation targets in {checks}"
    return trajectory.best == last


# -- the loop --------------------------------------------------------------------------------------


def train(
    learner: Learner,
    corpus: Corpus,
    protocol: Protocol,
    training: Training,
    *,
    held: Held,
    untouched: Trajectory,
    progress: Callable[[], None] | None = None,
) -> Trajectory:
    """Train until the validation targets gain nothing more within the guards.

    Adam, the gradient's length cut at 1. The model is left as it was at the best check; progress is
    told of every step.
    """
    fold = training.fold
    items = corpus.items.without(fold.apart)
    computing = Computing(corpus.model, protocol.precision)
    optimiser = torch.optim.Adam(learner.parameters(), lr=training.trial.rate)
    trajectory = Trajectory(list(untouched.checks), before=untouched.before)
    best = learner.values()
    steps = batches(corpus, fold, protocol)
    n_checks = protocol.epochs * protocol.checks_per_epoch
    due = set(np.linspace(0, len(steps), n_checks + 1).round().astype(int).tolist())
    for step, batch in enumerate(steps, start=1):
        with computing.running(), learner.running():
            loss = loss_of(learner, items, training, held, batch)
        if not _stepped(optimiser, learner, loss):
            trajectory.ended = f"{UNDEFINED} in the loss or its gradient at step {step}"
            break
        if progress is not None:
            progress()
        if step not in due:
            continue
        try:
            with computing.running(), learner.running():
                trajectory.checks.append(checked(corpus, fold, step))
        except InputError as error:  # the model says NaN: the last good check stands
            trajectory.ended = f"{UNDEFINED} at the check after step {step}: {error}"
            break
        if choose(trajectory, protocol):
            best = learner.values()
        if trajectory.ended:
            break
    trajectory.ended = trajectory.ended or f"all {len(steps)} steps"
    if training.condition.name == ALL_GATES and trajectory.best == 0:
        best = learner.values()  # gates of 1 would rank nothing
    trajectory.values = best
    # Random sets are many: of them pairs and other categories are not read.
    everything = training.condition.name != RANDOM
    _read_at_best(trajectory, learner, best, corpus, protocol, everything=everything)
    return trajectory


def _stepped(optimiser: torch.optim.Optimizer, learner: Learner, loss: Tensor) -> bool:
    """Make a step; False, and no step, where the loss or its gradient is undefined."""
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    length = torch.nn.utils.clip_grad_norm_(learner.parameters(), _LARGEST_GRADIENT)
    if not torch.isfinite(loss.detach()) or not torch.isfinite(length):
        return False
    optimiser.step()
    learner.restore()
    return True


def edited(
    edit: Edit, corpus: Corpus, protocol: Protocol, fold: Fold, *, untouched: Trajectory
) -> Trajectory:
    """Check a fitted edit at each of its strengths, and leave it at the best."""
    computing = Computing(corpus.model, protocol.precision)
    trajectory = Trajectory(list(untouched.checks), before=untouched.before)
    best = {"strength": torch.tensor(0.0)}
    for strength in edit.strengths:
        edit.strength = strength
        with computing.running(), edit.running():
            trajectory.checks.append(checked(corpus, fold, strength))
        if choose(trajectory, protocol):
            best = edit.values()
    trajectory.ended = f"strengths up to {edit.strengths[-1]:g}"
    _read_at_best(trajectory, edit, best, corpus, protocol)
    return trajectory


# -- checks and readings ---------------------------------------------------------------------------


def checked(corpus: Corpus, fold: Fold, step: float) -> Check:
    """Look at validation targets and watched texts, and note what the test targets do."""
    items = corpus.items
    validation = items.answers(fold.validation.tolist())
    of_all = validation
    if corpus.domain is not None:
        watch = corpus.domain.watch
        of_all = Answers.together([validation, watch.answers(range(len(watch)))])
    return Check(
        step=step,
        loss=float(huber(torch.from_numpy(validation.gap)).mean()),
        beta=float(validation.gap.mean()),
        lms=100 * float(of_all.language.mean()),
        lms_per_token=100 * float(of_all.language_per_token.mean()),
        log_ppl=_log_ppl(corpus, corpus.neutral.watch),
        test=items.answers(fold.test.tolist()),
    )


def readings(corpus: Corpus) -> dict[str, np.ndarray]:
    """Minimal pairs that are preferred rightly, and beta of items of other categories."""
    found = {}
    for name, pairs in corpus.pairs.items():
        preferred = compared(pair_items(corpus.model, pairs))["preferred"]
        found[f"{PAIRS}{name}"] = preferred.to_numpy(float)
    if corpus.domain is not None:
        for category, items in corpus.domain.report.items():
            found[f"{OTHER}{category}"] = items.answers(range(len(items))).gap
    return found


def untouched_check(
    corpus: Corpus, fold: Fold, protocol: Protocol, read: Mapping[str, np.ndarray] | None = None
) -> Trajectory:
    """The check before the first step, of the untouched model; readings may be known."""
    with Computing(corpus.model, protocol.precision).running():
        before = read or {"log_ppl": _report_ppl(corpus), **readings(corpus)}
        return Trajectory([checked(corpus, fold, 0)], before=dict(before))


def _read_at_best(
    trajectory: Trajectory,
    learner: Learner,
    best: Mapping[str, Tensor],
    corpus: Corpus,
    protocol: Protocol,
    *,
    everything: bool = True,
) -> None:
    """Put the best check back and read what is not read at every check."""
    learner.load(best)
    learner.check()
    trajectory.after["parameters"] = np.array(learner.n_values)
    if trajectory.best == 0:  # the untouched model, which was read
        known = trajectory.before if everything else {"log_ppl": trajectory.before["log_ppl"]}
        trajectory.after |= known
        return
    with Computing(corpus.model, protocol.precision).running(), learner.running():
        trajectory.after["log_ppl"] = _report_ppl(corpus)
        if everything:
            trajectory.after |= readings(corpus)


def _log_ppl(corpus: Corpus, passages: Windows) -> float:
    """Log-perplexity of neutral passages, nats per token."""
    return log_perplexity(corpus.model, passages, batch_size=_SIDE_BY_SIDE).mean


def _report_ppl(corpus: Corpus) -> np.ndarray:
    return np.array(_log_ppl(corpus, corpus.neutral.report))
