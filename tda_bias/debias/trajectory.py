"""A training as its checks, what a change must not cost, and the one rule that chooses by it.

On validation targets: the least beta among what passes every guard. Checks of a training are chosen
by the loss, which varies less from check to check; settings and conditions by beta itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from tda_bias.debias.protocol import Protocol
from tda_bias.debias.texts import Answers
from tda_bias.stats.resampling import tolerance

_NUMBERS = ("step", "loss", "beta", "lms", "lms_per_token", "log_ppl")
# Readings of a trajectory that begin so are of minimal pairs, and of items of another category.
PAIRS, OTHER = "pairs ", "other "
T = TypeVar("T")


@dataclass(frozen=True)
class Check:
    """A look at a model while it trains.

    Attributes:
        step: Steps taken; of an edit its strength.
        loss: Mean Huber loss of the gaps on the validation targets.
        beta: Mean beta per token on the validation targets.
        lms: Language-model score by sums in per cent, of validation items and watched ones of
            other categories.
        lms_per_token: The same per token.
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
        values: Values of the learner at ``best``.
        before: Readings of the untouched model, by name: ``log_ppl`` (of the reported passages),
            and where they were read ``pairs ...`` and ``other ...``.
        after: The same at ``best``; with ``parameters``, numbers that could change.
    """

    checks: list[Check] = field(default_factory=list)
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

    def started(self) -> Trajectory:
        """A training that begins with these checks."""
        return Trajectory(checks=list(self.checks), before=self.before)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a saved part."""
        arrays = {n: np.array([getattr(check, n) for check in self.checks]) for n in _NUMBERS}
        for own in fields(Answers):
            of_checks = [getattr(check.test, own.name) for check in self.checks]
            arrays[f"test {own.name}"] = np.stack(of_checks)
        arrays |= {"best": np.array(self.best), "ended": np.array(self.ended)}
        arrays |= {f"values {name}": value.numpy() for name, value in self.values.items()}
        arrays |= {f"before {name}": value for name, value in self.before.items()}
        return arrays | {f"after {name}": value for name, value in self.after.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Trajectory:
        """From a saved part."""

        def named(prefix: str) -> dict[str, np.ndarray]:
            return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}

        checks = [
            Check(
                **{name: float(arrays[name][n]) for name in _NUMBERS},
                test=Answers(*(arrays[f"test {own.name}"][n] for own in fields(Answers))),
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


def at_equal_language(trainings: Sequence[Trajectory]) -> tuple[list[np.ndarray], bool]:
    """Gaps of the test items where the language-model score of all of them has fallen by a point.

    Folds go on check by check together, one that ended earlier stays at its last check; between two
    checks every item's gap is interpolated along the score.

    Args:
        trainings: Of a condition, fold by fold.

    Returns:
        Fold by fold; and whether the score fell so far at all: where it did not, they are those of
        the last check.
    """

    def at(n: int) -> list[Answers]:
        return [t.checks[min(n, len(t.checks) - 1)].test for t in trainings]

    def score(n: int) -> float:
        return 100 * float(np.concatenate([answers.language for answers in at(n)]).mean())

    longest = max(len(t.checks) for t in trainings)
    level = score(0) - 1.0
    for n in range(1, longest):
        low, high = score(n), score(n - 1)
        if low <= level:
            share = (high - level) / (high - low)
            both = zip(at(n - 1), at(n), strict=True)
            return [(1 - share) * a.gap + share * b.gap for a, b in both], True
    return [answers.gap for answers in at(longest - 1)], False


# -- guards ----------------------------------------------------------------------------------------


def within(lost: float, allowed: float) -> bool:
    """Allow a loss or not; one of exactly what is allowed is, whatever rounding makes of it."""
    return bool(lost <= allowed + tolerance(allowed))


def keeps_language(now: Check, before: Check, protocol: Protocol) -> bool:
    """Tell whether both language-model scores and the perplexity pass."""
    points = max(before.lms - now.lms, before.lms_per_token - now.lms_per_token)
    perplexity = float(np.expm1(now.log_ppl - before.log_ppl))
    return within(points, protocol.allowed_points) and within(
        perplexity, protocol.allowed_perplexity
    )


def points_of_pairs(
    after: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Points that each set of minimal pairs gained, by its name."""
    return {
        name.removeprefix(PAIRS): 100 * float(np.mean(now) - np.mean(before[name]))
        for name, now in after.items()
        if name.startswith(PAIRS)
    }


def keeps_pairs(
    after: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray], protocol: Protocol
) -> bool:
    """Tell whether every set of minimal pairs passes; what was not read does."""
    gained = points_of_pairs(after, before).values()
    return all(within(-points, protocol.allowed_points) for points in gained)


def least_biased(candidates: Sequence[tuple[T, float, bool]]) -> T:
    """The candidate with the least size of beta among those that pass; among all, if none does.

    Args:
        candidates: Each with its beta on validation targets, and whether it passes every guard.
    """
    passing = [candidate for candidate in candidates if candidate[2]] or candidates
    return min(passing, key=lambda candidate: abs(candidate[1]))[0]
