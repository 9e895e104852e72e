"""Trainings: they stop where the protocol says, and tests see nothing of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tda_bias.debias import training
from tda_bias.debias.learners import learner, undone
from tda_bias.debias.protocol import Condition, Fold, Protocol, Training, Trial
from tda_bias.debias.retention import held_by
from tda_bias.debias.texts import Answers, huber
from tda_bias.debias.training import (
    Batch,
    Check,
    Trajectory,
    _report_ppl,
    best_of,
    keeps_pairs,
    loss_of,
    readings,
)
from tda_bias.models.hooks import Computing
from tda_bias.scores.perplexity import log_perplexity
from tda_bias.types import HeadId

HEADS = [HeadId(0, 1), HeadId(0, 3), HeadId(1, 0), HeadId(1, 2)]


@pytest.fixture(scope="module")
def found(setting, trained):
    """A training of gates."""
    return trained(*setting)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("how", ["gates", "tune", "lora", "full"])
def test_training_lowers_the_loss_and_leaves_the_model_as_it_was(setting, trained, how, precision):
    corpus, fold = setting
    before = {n: t.clone() for n, t in corpus.model.hf_model.state_dict().items()}
    # Stop targets that also train: whether it learns at all.
    fold = Fold(0, fold.train, fold.train, fold.test)
    found = trained(corpus, fold, how, precision=precision)
    assert found.best > 0
    assert found.chosen.loss < found.first.loss
    for name, now in corpus.model.hf_model.state_dict().items():
        assert torch.equal(now, before[name]), name
    assert all(p.requires_grad for p in corpus.model.hf_model.parameters())
    assert not any("forward" in vars(module) for module in corpus.model.hf_model.modules())


@pytest.fixture
def moved(setting):
    """A learner whose model differs from the original, with all that a loss needs."""
    corpus, fold = setting
    held = held_by(corpus, fold, Protocol())
    with undone(learner("tune", corpus.model, HEADS)) as own:
        with torch.no_grad():
            for parameter in own.parameters():
                parameter.mul_(1.2)
        own.restore()
        yield corpus, held, own, fold


BATCH = Batch([0, 3, 7], [1, 2], [0, 4, 5])


def lost(moved, goal, trial):
    corpus, held, own, fold = moved
    training = Training(Condition(goal, "tune", goal=goal), fold, (), trial)
    return float(loss_of(own, corpus.items, training, held, BATCH).detach())


def test_the_loss_is_the_sum_of_its_terms(moved):
    corpus, held, *_ = moved
    bias = float(huber(corpus.items.means(BATCH.items).gaps()).mean().detach())
    neutral = float(held.neutral.divergence(BATCH.passages).detach())
    domain = float(held.domain.divergence(BATCH.domain).detach())
    now = corpus.items.answers(BATCH.items).relatedness
    change = np.mean([(now[n] - held.relatedness[i]) ** 2 for n, i in enumerate(BATCH.items)])
    assert min(neutral, domain, change) > 1e-5
    literal = bias + neutral + 3.0 * domain + 0.5 * change
    assert lost(moved, "gaps", Trial(1.0, 3.0, 0.5)) == pytest.approx(literal, rel=1e-4)
    assert lost(moved, "plain", Trial(1.0)) == pytest.approx(bias + neutral, rel=1e-4)


def test_augmenting_is_its_definition(moved):
    corpus, *_ = moved
    items, model = corpus.items, corpus.model
    total = n = 0.0
    for item in BATCH.items:
        triple, twins = items.triples[item], items.twins[item]
        for twin in twins:
            for text in (*triple.texts()[:2], *twin.texts()[:2]):
                ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
                with torch.no_grad():
                    logits = model.hf_model(torch.tensor([ids])).logits[0].double()
                chances = torch.log_softmax(logits, -1)
                total -= sum(float(chances[t - 1, ids[t]]) for t in range(1, len(ids)))
                n += len(ids) - 1
    assert lost(moved, "cda", Trial(1.0)) == pytest.approx(total / n, rel=1e-4)


def test_what_was_learned_gives_the_best_check_again(setting, found):
    corpus, fold = setting
    with undone(learner("gates", corpus.model, HEADS)) as own:
        own.load(found.values)
        with own.running():
            again = corpus.items.answers(fold.test.tolist()).gap
            log_ppl = log_perplexity(corpus.model, corpus.neutral.watch).mean
    np.testing.assert_allclose(again, found.chosen.test.gap, atol=1e-5)
    assert log_ppl == pytest.approx(found.chosen.log_ppl, abs=1e-5)


def test_a_training_does_not_depend_on_the_test_targets(setting, trained, found):
    corpus, fold = setting
    other = trained(corpus, Fold(0, fold.train, fold.validation, fold.test[:1]))
    assert [c.step for c in found.checks] == [c.step for c in other.checks]
    torch.testing.assert_close(found.values["gates"], other.values["gates"])


@pytest.mark.parametrize("undefined", ["loss", "gradient"])
def test_numbers_that_become_undefined_end_the_training_at_the_last_good_check(
    setting, trained, monkeypatch, undefined
):
    real, calls = training.loss_of, []

    def broken(own, *arguments, **options):
        calls.append(1)
        loss = real(own, *arguments, **options)
        if len(calls) < 3:
            return loss
        (gates,) = own.parameters()
        # The root of 0 is 0, its slope infinite, and times 0 not a number.
        return loss * float("nan") if undefined == "loss" else loss + (0 * gates).sqrt().sum()

    monkeypatch.setattr(training, "loss_of", broken)
    found = trained(*setting)
    assert found.ended == "undefined numbers in the loss or its gradient at step 3"
    assert found.checks[-1].step == 2
    assert torch.isfinite(found.values["gates"]).all()


def test_checks_are_spread_over_the_steps_as_evenly_as_goes(setting, trained, monkeypatch):
    monkeypatch.setattr(training, "_PATIENCE", 9)
    corpus, _ = setting
    fold = Fold(0, np.arange(18), np.arange(18, 21), np.arange(21, 24))
    found = trained(corpus, fold, epochs=2, checks_per_epoch=2)  # four checks in six steps
    assert [own.step for own in found.checks] == [0, 2, 3, 4, 6]


def check(step=0, loss=1.0, lms=80.0, lms_per_token=70.0, log_ppl=3.0):
    test = Answers(*[np.zeros(0)] * 6)
    return Check(step, loss, 0.1, lms, lms_per_token, log_ppl, test)


def chosen(*checks, **changes):
    found = Trajectory([check()])
    for number, own in enumerate(checks, start=1):
        found.checks.append(replace(own, step=number))
        training.choose(found, Protocol(**changes))
    return found


def test_where_no_check_passes_the_readings_are_the_untouched_models(setting, trained, monkeypatch):
    monkeypatch.setattr(training, "keeps_language", lambda check, start, _: check is start)
    found = trained(*setting)
    assert found.best == 0
    assert "other profession" in found.after
    assert found.after.keys() == {*found.before, "parameters"}
    with Computing(setting[0].model, "float32").running():
        read = {"log_ppl": _report_ppl(setting[0]), **readings(setting[0])}
    for name, values in read.items():
        np.testing.assert_array_equal(found.after[name], values)


def test_it_stops_after_three_checks_without_gain():
    found = chosen(*(check(loss=loss) for loss in (0.8, 0.9, 0.85, 0.81)))
    assert found.best == 1
    assert found.ended == "no gain within the guards on the validation targets in 3 checks"


@pytest.mark.parametrize(
    "broken", [{"lms": 78.9}, {"lms_per_token": 68.9}, {"log_ppl": 3.0 + np.log(1.0101)}]
)
def test_the_best_check_is_the_best_among_those_that_pass_every_guard(broken):
    found = chosen(check(loss=0.7), check(loss=0.2, **broken))
    assert found.best == 1
    at_the_limit = {"lms": 79.0, "lms_per_token": 69.0, "log_ppl": 3.0 + np.log(1.01)}
    assert chosen(check(loss=0.7), check(loss=0.2, **at_the_limit)).best == 2


def test_a_trajectory_survives_its_journey_through_arrays(found):
    again = Trajectory.from_arrays(found.arrays())
    assert (again.best, again.ended) == (found.best, found.ended)
    for own, other in zip(found.checks, again.checks, strict=True):
        assert (own.step, own.loss, own.lms, own.log_ppl) == (
            other.step, other.loss, other.lms, other.log_ppl,
        )  # fmt: skip
        for name in ("gap", "total", "language", "language_per_token", "relatedness"):
            np.testing.assert_array_equal(getattr(own.test, name), getattr(other.test, name))
    assert torch.equal(again.values["gates"], found.values["gates"])
    assert found.after.keys() == again.after.keys()


def test_of_those_that_pass_the_least_loss_is_chosen_and_else_of_all():
    assert best_of([("a", 0.1, False), ("b", 0.2, True), ("c", 0.3, True)]) == "b"
    assert best_of([("a", 0.1, False), ("b", 0.2, False)]) == "a"


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ({}, True),
        ({"pairs b": [1.0, 1.0]}, True),
        ({"pairs a": [1, 0, 1, 0.5], "pairs b": [0.5, 1.0]}, False),
    ],
)
def test_pairs_that_were_not_read_pass_and_one_set_too_low_fails(after, kept):
    before = {"pairs a": np.array([1, 0, 1, 1.0]), "pairs b": np.array([0.5, 1])}
    found = Trajectory([], before=before, after={n: np.array(own) for n, own in after.items()})
    assert keeps_pairs(found, Protocol()) == kept
