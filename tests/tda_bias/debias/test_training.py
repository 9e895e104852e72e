"""Trainings: they stop where the protocol says, and tests see nothing of it."""

import numpy as np
import pytest
import torch

from tda_bias import load_triples
from tda_bias.debias import training
from tda_bias.debias.learners import learner, undone
from tda_bias.debias.loss import divergence
from tda_bias.debias.neutral import Retention, neutral_text, written_passages
from tda_bias.debias.protocol import Fold, Protocol
from tda_bias.debias.texts import TwinTexts
from tda_bias.debias.training import Trajectory, at_loss, train
from tda_bias.models.load import LanguageModel
from tda_bias.scores.perplexity import log_perplexity
from tda_bias.twins import make_twins
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

RATE = {"gates": 0.1, "tune": 0.01, "lora": 0.03, "full": 3e-4}
HEADS = [HeadId(0, 1), HeadId(0, 3), HeadId(1, 0), HeadId(1, 2)]


@pytest.fixture(scope="module")
def items():
    triples = load_triples("starter", category="gender", limit=6)
    twins = make_twins(triples)
    return triples, [twins.of(triple) for triple in triples]


@pytest.fixture
def setting(tokenizer, items):
    """A tiny model with texts, passages that it wrote, and items 0-11, 12-17, 18-23."""
    model = LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")
    texts = TwinTexts(model, *items)
    neutral = neutral_text(model, n_learn=8, n_watch=4, width=16)
    parts = (np.arange(12), np.arange(12, 18), np.arange(18, 24))
    return texts, Fold(0, *parts), neutral, Retention(model, neutral.learn)


def trained(setting, how="gates", **changes):
    texts, fold, neutral, retention = setting
    protocol = Protocol(**{"epochs": 6, "batch": 6, "allowed_loss": 10.0, **changes})
    with undone(learner(how, texts.model, HEADS)) as own:
        return train(own, texts, fold, retention, neutral, protocol, rate=RATE[how])


@pytest.mark.parametrize("how", ["gates", "tune", "lora", "full"])
def test_training_lowers_the_loss_and_leaves_the_model_as_it_was(setting, how):
    texts, fold, *_ = setting
    before = {n: t.clone() for n, t in texts.model.hf_model.state_dict().items()}
    # Stop targets that also train: whether it learns at all.
    easy = (setting[0], Fold(0, fold.train, fold.train, fold.test), *setting[2:])
    found = trained(easy, how, kl=0.0)
    assert found.best > 0
    assert found.validation_loss[found.best] < found.validation_loss[0]
    for name, now in texts.model.hf_model.state_dict().items():
        assert torch.equal(now, before[name]), name
    assert all(p.requires_grad for p in texts.model.hf_model.parameters())


def test_what_was_learned_gives_the_best_check_again(setting):
    texts, fold, neutral, _ = setting
    found = trained(setting)
    with undone(learner("gates", texts.model, HEADS)) as own:
        own.load(found.values)
        with own.running():
            again = texts.outcomes(fold.test.tolist()).gap
            log_ppl = log_perplexity(texts.model, neutral.watch).mean
    np.testing.assert_allclose(again, found.gap[found.best], atol=1e-5)
    assert log_ppl == pytest.approx(found.log_ppl[found.best], abs=1e-5)


def test_a_training_does_not_depend_on_the_test_targets(setting):
    texts, fold, neutral, retention = setting
    found = trained(setting)
    other = trained(
        (texts, Fold(0, fold.train, fold.validation, fold.test[:1]), neutral, retention)
    )
    assert found.step == other.step
    torch.testing.assert_close(found.values["gates"], other.values["gates"])


def test_a_loss_that_becomes_nan_ends_the_training_at_the_last_good_check(setting, monkeypatch):
    texts = setting[0]
    real, calls = texts.gaps, []

    def broken(*arguments, **options):
        calls.append(1)
        return real(*arguments, **options) * (float("nan") if len(calls) == 5 else 1.0)

    monkeypatch.setattr(texts, "gaps", broken)
    found = trained(setting)
    assert found.ended == "the loss became nan at step 5"
    assert found.step[-1] == 4
    assert torch.isfinite(found.values["gates"]).all()


def test_it_stops_when_too_much_perplexity_is_lost_and_keeps_a_check_within(setting):
    found = trained(setting, "tune", allowed_loss=1e-9, kl=0.0)
    assert "perplexity lost more than" in found.ended
    assert found.log_ppl[found.best] <= found.log_ppl[0] + 1e-8


def test_it_stops_after_three_checks_without_gain():
    found = Trajectory()
    for check, loss in enumerate([1.0, 0.8, 0.9, 0.85, 0.81]):
        found.step.append(check)
        found.validation_loss.append(loss)
        found.log_ppl.append(3.0)
        training._stopped(found, Protocol())
    assert (found.best, found.ended) == (1, "no gain on the validation targets in 3 checks")


def test_the_best_check_is_the_best_among_those_within_the_allowed_perplexity():
    found = Trajectory(step=[0, 1, 2], validation_loss=[1.0, 0.7, 0.2], log_ppl=[3.0, 3.01, 3.5])
    training._stopped(found, Protocol())
    assert found.best == 1
    assert found.ended == "perplexity lost more than 2%"


@pytest.mark.parametrize(
    ("log_ppl", "expected"),
    [
        ([0.0, 0.5, 1.0], 1.0 + 0.5 * np.log1p(0.5) / 0.5 * -1),  # on the way to the second check
        ([0.0, 0.1, 0.2], 0.25),  # never reached: the last check
        ([0.0, -0.2, 0.8], None),
    ],
)
def test_values_at_equal_perplexity_are_interpolated_between_checks(log_ppl, expected):
    gap = [np.array([1.0]), np.array([0.5]), np.array([0.25])]
    found = Trajectory(step=[0, 1, 2], log_ppl=log_ppl, gap=gap)
    if expected is None:
        share = (np.log1p(0.5) + 0.2) / 1.0
        expected = 0.5 + share * (0.25 - 0.5)
    assert float(at_loss(found, 0.5)[0]) == pytest.approx(expected)


def test_a_trajectory_survives_its_journey_through_arrays(setting):
    found = trained(setting, epochs=1)
    again = Trajectory.from_arrays(found.arrays())
    assert (again.step, again.best, again.ended) == (found.step, found.best, found.ended)
    np.testing.assert_array_equal(again.gap, found.gap)
    assert torch.equal(again.values["gates"], found.values["gates"])


# -- neutral text ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2"])
def test_the_divergence_is_that_of_two_models_passage_by_passage(tokenizer, kind):
    """Gemma 2 caps its logits: there the original's are kept as they are."""
    soft = {"final_logit_softcapping": 3.0} if kind == "gemma2" else {}
    model = LanguageModel(tiny_hf_model(kind, len(tokenizer), **soft), tokenizer, kind)
    neutral = neutral_text(model, n_learn=6, n_watch=2, width=12)
    retention = Retention(model, neutral.learn, batch_size=4)
    assert float(retention.divergence([0, 1]).detach()) < 1e-6
    before = {}
    for i in (1, 4, 5):
        with torch.no_grad():
            before[i] = model.hf_model(torch.tensor([neutral.learn.ids[i]])).logits[0]
    with undone(learner("tune", model, HEADS)) as own:
        with torch.no_grad():
            for parameter in own.parameters():
                parameter.mul_(1.3)
        found = float(retention.divergence([1, 4, 5]).detach())
        terms, losses = [], []
        for i in (1, 4, 5):
            ids = torch.tensor([neutral.learn.ids[i]])
            with torch.no_grad():
                after = model.hf_model(ids).logits[0]
            terms.append(float(divergence(before[i], after)))
            losses.append(float(torch.nn.functional.cross_entropy(after[:-1], ids[0, 1:])))
        loss = float(retention.log_perplexity([1, 4, 5]).detach())
    assert found == pytest.approx(np.mean(terms), rel=1e-4)
    assert loss == pytest.approx(np.mean(losses), rel=1e-4)
    assert found > 1e-3


def test_passages_are_the_models_own_and_follow_from_the_seed(tokenizer):
    model = LanguageModel(tiny_hf_model("gpt2", len(tokenizer)), tokenizer, "m")
    first = written_passages(model, 3, 10, seed=4)
    assert first == written_passages(model, 3, 10, seed=4)
    assert first != written_passages(model, 3, 10, seed=5)
    assert {len(own) for own in first} == {10}
    # One at a time, without the cache: the same chances give the same first draw.
    words = [tokenizer.convert_ids_to_tokens(own[0]) for own in first]
    assert all(word.istitle() for word in words)


def test_the_three_parts_of_a_file_share_no_token(tokenizer, tmp_path):
    model = LanguageModel(tiny_hf_model("gpt2", len(tokenizer)), tokenizer, "m")
    words = [w for w in tokenizer.get_vocab() if w.isalpha()][:200]
    path = tmp_path / "text.txt"
    path.write_text(" ".join(words), encoding="utf-8")
    found = neutral_text(model, str(path), n_learn=6, n_watch=4, width=10)
    parts = [{t for own in w.ids for t in own} for w in (found.learn, found.watch, found.report)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    with pytest.raises(InputError, match="in three parts"):
        neutral_text(model, str(path), n_learn=90, n_watch=30, width=10)
