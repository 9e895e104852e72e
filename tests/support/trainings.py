"""Made-up trainings of conditions and random sets of heads, in six folds of one target each."""

from dataclasses import replace

import numpy as np

from tda_bias.debias.protocol import Condition, Fold, Training, Trial
from tda_bias.debias.texts import Answers
from tda_bias.debias.training import Check, Trained, Trajectory
from tda_bias.types import HeadId

GROUPS = [f"t{n // 2}" for n in range(24)]
# Folds of one target each.
FOLDS = [
    Fold(n, np.arange(12, 20), np.arange(20, 24), np.arange(2 * n, 2 * n + 2)) for n in range(6)
]
SCATTER = np.random.default_rng(1).normal(0, 0.5, 24)
BEFORE = np.random.default_rng(0).normal(0.2, 0.05, 24)


def answers(gap, language):
    """Answers in which sums are ten times the gaps."""
    of_items = np.full(len(gap), language)
    return Answers(gap, 10 * gap, gap + SCATTER[: len(gap)], of_items, of_items, 0 * gap)


def result(name, share, *, loss=0.1, draw=-1, ppl=0.005, pairs=(0.7, 0.7)):
    """A condition that leaves a share of every gap, and on validation targets so much loss."""
    ranking = name if name in ("effect", "mediation") else None
    condition = Condition(name, "gates", ranking=ranking, draw=draw)
    trained = []
    for fold in FOLDS:
        before = BEFORE[fold.test]
        checks = [
            Check(0, 0.3, 0.3, 80.0, 70.0, 3.0, answers(before, 0.8)),
            Check(5, loss, 0.1, 80.0, 70.0, 3.0 + ppl, answers(share * before, 0.8)),
        ]
        read = {
            "pairs blimp": np.array(pairs[1:]), "log_ppl": np.array(3.0 + ppl),
            "parameters": np.array(2),
        }  # fmt: skip
        training = Training(condition, fold, (HeadId(0, 1), HeadId(1, 2)), Trial(0.03))
        trajectory = Trajectory(
            checks=checks, best=1, ended="all 5 steps", after=read,
            before={"pairs blimp": np.array(pairs[:1]), "log_ppl": np.array(3.0)},
        )  # fmt: skip
        trained.append(Trained(training, trajectory))
    return {condition: trained}


def trajectories(results, name="effect"):
    return [own.trajectory for c, of_c in results.items() if c.name == name for own in of_c]


def with_language(results, language, *, per_token=None):
    """The ranking's comparisons of test targets are won so often at the best check."""
    for trajectory in trajectories(results):
        test = trajectory.checks[1].test
        scores = {"language": np.full(len(test.gap), language)}
        scores["language_per_token"] = np.full(len(test.gap), per_token or language)
        trajectory.checks[1] = replace(trajectory.checks[1], test=replace(test, **scores))


def study(effect, random, **changes):
    draws = {}
    for n, share in enumerate(random):
        draws |= result("random", share, draw=n)
    return result("effect", effect, **changes) | draws | result("all", 0.9, loss=0.2)


def of_folds(results, number):
    """The same of fewer folds, each of several targets."""
    for trained in results.values():
        for place, one in enumerate(trained):
            fold = replace(one.training.fold, number=place % number)
            trained[place] = replace(one, training=replace(one.training, fold=fold))
    return results
