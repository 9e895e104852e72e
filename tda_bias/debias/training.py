"""One loop: a learner trained by the loss; checks on validation targets choose and stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from tda_bias.debias.corpus import Corpus
from tda_bias.debias.loss import huber
from tda_bias.debias.mask import Learner
from tda_bias.debias.objective import Held, batches, loss_of
from tda_bias.debias.peers import Edit
from tda_bias.debias.protocol import Fold, Goal, Protocol, Trial
from tda_bias.debias.texts import Answers, LowerLayers
from tda_bias.debias.trajectory import OTHER, PAIRS, Check, Trajectory, keeps_language
from tda_bias.models.load import LanguageModel
from tda_bias.models.precision import Computing
from tda_bias.runs.text import counted
from tda_bias.scores.pair_scores import compared, pair_items
from tda_bias.scores.perplexity import Windows, log_perplexity
from tda_bias.types import InputError

_LARGEST_GRADIENT = 1.0
_PASSAGES = 16


def n_steps(protocol: Protocol, fold: Fold) -> int:
    """Steps of a whole training."""
    return protocol.epochs * -(-len(fold.train) // protocol.batch)


def train(
    learner: Learner,
    corpus: Corpus,
    fold: Fold,
    held: Held,
    protocol: Protocol,
    trial: Trial,
    *,
    goal: Goal = "gaps",
    untouched: Trajectory | None = None,
    everything: bool = True,
    progress: Callable[[], None] | None = None,
) -> Trajectory:
    """Train until the validation targets gain nothing more within the guards.

    Adam, the gradient's length cut at 1. The model is left as it was at the best check.

    Args:
        learner: The learner.
        corpus: The texts.
        fold: Items that train, validate and test.
        held: What holds the model.
        protocol: Epochs, batches, weights of the loss, guards.
        trial: Learning rate, and weights that are tried.
        goal: As in ``loss_of``.
        untouched: From ``untouched_check``, where it is known already.
        everything: Whether pairs and other categories are read at the end, too.
        progress: Called after every step.
    """
    below = LowerLayers(corpus.model, learner.first)
    computing = Computing(corpus.model, protocol.precision)
    optimiser = torch.optim.Adam(learner.parameters(), lr=trial.rate)
    trajectory = (untouched or untouched_check(corpus, fold, protocol)).started()
    best = learner.values()
    steps = batches(fold, held, protocol)
    every = max(1, len(steps) // (protocol.epochs * protocol.checks_per_epoch))
    for step, batch in enumerate(steps, start=1):
        with computing.running(), learner.running():
            loss = loss_of(goal, learner, corpus, held, batch, protocol, trial, below)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        length = torch.nn.utils.clip_grad_norm_(learner.parameters(), _LARGEST_GRADIENT)
        if not torch.isfinite(loss.detach()) or not torch.isfinite(length):
            trajectory.ended = f"the loss became {float(loss.detach())} at step {step}"
            break
        optimiser.step()
        learner.restore()
        if progress is not None:
            progress()
        if step % every and step < len(steps):
            continue
        try:
            with computing.running(), learner.running():
                trajectory.checks.append(checked(corpus, fold, step, below))
        except InputError as error:  # the model says NaN: the last good check stands
            trajectory.ended = f"{error} (step {step})"
            break
        if choose(trajectory, protocol):
            best = learner.values()
        if trajectory.ended:
            break
    trajectory.ended = trajectory.ended or f"all {len(steps)} steps"
    trajectory.values = best
    _read_at_best(trajectory, learner, best, corpus, fold, protocol, everything=everything)
    return trajectory


def edited(
    edit: Edit,
    corpus: Corpus,
    fold: Fold,
    protocol: Protocol,
    *,
    untouched: Trajectory | None = None,
) -> Trajectory:
    """Check an edit at each of its strengths, and leave it at the best.

    Args:
        edit: Fitted to the training items.
        corpus: The texts.
        fold: Items that validate and test.
        protocol: The guards.
        untouched: From ``untouched_check``, where it is known already.
    """
    below = LowerLayers(corpus.model, edit.first)
    computing = Computing(corpus.model, protocol.precision)
    trajectory = (untouched or untouched_check(corpus, fold, protocol)).started()
    best = {"strength": torch.tensor(0.0)}
    for strength in edit.strengths:
        edit.strength = strength
        with computing.running(), edit.running():
            trajectory.checks.append(checked(corpus, fold, strength, below))
        if choose(trajectory, protocol):
            best = edit.values()
    trajectory.ended = f"strengths up to {edit.strengths[-1]:g}"
    _read_at_best(trajectory, edit, best, corpus, fold, protocol)
    return trajectory


def choose(trajectory: Trajectory, protocol: Protocol) -> bool:
    """Tell whether the last check is the best so far; note it, and whether the training ends."""
    start, last = trajectory.first, len(trajectory.checks) - 1
    kept = [n for n, c in enumerate(trajectory.checks) if keeps_language(c, start, protocol)]
    trajectory.best = min(kept, key=lambda n: trajectory.checks[n].loss)
    if last - trajectory.best >= protocol.patience:
        checks = counted(protocol.patience, "check")
        trajectory.ended = f"no gain within the guards on the validation targets in {checks}"
    return trajectory.best == last


# -- checks and readings ---------------------------------------------------------------------------


def log_ppl_of(model: LanguageModel, passages: Windows) -> float:
    """Log-perplexity of neutral passages, nats per token, as every check reads it."""
    return log_perplexity(model, passages, batch_size=_PASSAGES).mean


def checked(corpus: Corpus, fold: Fold, step: float, below: LowerLayers | None = None) -> Check:
    """Look at validation targets and watched texts, and note what the test targets do."""
    items = corpus.items
    validation = items.answers(fold.validation.tolist(), below=below)
    test = items.answers(fold.test.tolist(), below=below) if len(fold.test) else Answers.none()
    language = [validation]
    if corpus.domain is not None:
        watch = corpus.domain.watch
        language.append(watch.answers(range(len(watch))))
    of_all = Answers.together(language)
    return Check(
        step=step,
        loss=float(huber(torch.from_numpy(validation.gap)).mean()),
        beta=float(validation.gap.mean()),
        lms=100 * float(of_all.language.mean()),
        lms_per_token=100 * float(of_all.language_per_token.mean()),
        log_ppl=log_ppl_of(corpus.model, corpus.neutral.watch),
        test=test,
    )


def readings(corpus: Corpus) -> dict[str, np.ndarray]:
    """Minimal pairs that are preferred rightly, and beta of items of other categories."""
    found = {}
    for name, pairs in (corpus.pairs or {}).items():
        preferred = compared(pair_items(corpus.model, pairs))["preferred"]
        found[f"{PAIRS}{name}"] = preferred.to_numpy(float)
    if corpus.domain is not None:
        for category, items in corpus.domain.report.items():
            found[f"{OTHER}{category}"] = items.answers(range(len(items))).gap
    return found


def untouched_check(
    corpus: Corpus,
    fold: Fold,
    protocol: Protocol,
    *,
    before: Mapping[str, np.ndarray] | None = None,
) -> Trajectory:
    """The check before the first step, of the untouched model, with its readings.

    Args:
        corpus: The texts.
        fold: Items that train, validate and test.
        protocol: Its precision.
        before: From ``readings`` of the untouched model, where they are known already.
    """
    with Computing(corpus.model, protocol.precision).running():
        trajectory = Trajectory([checked(corpus, fold, 0)])
        if before is None:
            before = readings(corpus)
        trajectory.before = {
            "log_ppl": np.array(log_ppl_of(corpus.model, corpus.neutral.report)),
            **before,
        }
    return trajectory


def _read_at_best(
    trajectory: Trajectory,
    learner: Learner,
    best: Mapping[str, Tensor],
    corpus: Corpus,
    fold: Fold,
    protocol: Protocol,
    *,
    everything: bool = True,
) -> None:
    """Put the best check back and read what is not read at every check."""
    learner.load(best)
    learner.check()
    trajectory.after["parameters"] = np.array(learner.n_values)
    with Computing(corpus.model, protocol.precision).running(), learner.running():
        trajectory.after["log_ppl"] = np.array(log_ppl_of(corpus.model, corpus.neutral.report))
        if everything:
            trajectory.after |= readings(corpus)
