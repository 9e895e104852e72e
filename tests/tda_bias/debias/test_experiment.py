"""The experiment as a loop: steps counted, settings chosen on validation targets, all saved."""

from dataclasses import replace
from functools import partialmethod

import numpy as np
import pytest
import torch

from tda_bias.debias.experiment import (
    Experiment,
    at_equal_entropy,
    learner_of,
    matching,
    named,
    rankings,
    run_experiment,
    trained_alone,
)
from tda_bias.debias.learners import undone
from tda_bias.debias.protocol import ALL_GATES, CONTROLS, Condition, Protocol, folds, trials
from tda_bias.debias.rankings import fold_orders
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.logits import tempered
from tda_bias.store.cache import Cache
from tda_bias.types import HeadId


@pytest.fixture
def fixed(corpus_of, tmp_path, monkeypatch):
    monkeypatch.setattr("tda_bias.debias.protocol._BATCH", 6)  # an epoch has two steps

    def make(**changes):
        of_all = {"top": 2, "check_items": 4, "train_items": 12, "allowed": 100.0, "n_folds": 4}
        protocol = Protocol(**{**of_all, "how": "gates", "epochs": 1, **changes})
        corpus = corpus_of(limit=4, n_learn=6, n_watch=2)
        return Experiment(
            corpus=corpus,
            protocol=protocol,
            folds=folds(corpus.items.triples, corpus.items.twins, protocol),
            cache=Cache(tmp_path, {}),
            load_hooked=lambda: pytest.fail("no ranking needs hooks"),
            from_file=(),
            weights="",
            identity="",
            fixed="",
            twins=None,
        )

    return make


def test_every_condition_is_trained_and_every_step_is_counted(fixed):
    own = fixed(by=("effect",), n_random=2, folds_run=1, controls=CONTROLS, anchor=(0.0, 1.0))
    before = own.corpus.model.weight_hash()
    moved = []
    results = run_experiment(own, lambda *numbers: moved.append(numbers))
    assert own.corpus.model.weight_hash() == before
    n_trials = sum(len(trials(own.protocol, condition)) for condition in results)
    assert moved[-1] == (2 * n_trials, 2 * n_trials)
    assert own.steps == 2
    assert [step for step, _ in moved] == sorted(step for step, _ in moved)
    assert [condition.name for condition in results] == [
        "effect", "random", "random", *CONTROLS,
    ]  # fmt: skip
    by_name = {}
    for condition, (own,) in results.items():
        trajectory = by_name[condition.name] = own.trajectory
        moved_by = [np.abs(c.test.gap - trajectory.first.test.gap).max() for c in trajectory.checks]
        assert max(moved_by) > 0, condition.name
    assert by_name["plain"].after["parameters"] == 2  # gates
    assert "other profession" in by_name["effect"].after
    assert "other profession" not in by_name["random"].after


def test_nothing_trains_on_a_text_about_a_target_that_tests_or_validates(
    fixed, twin_texts, monkeypatch
):
    own = fixed(by=("effect",), n_random=1, folds_run=1, controls=CONTROLS)
    items = twin_texts(category="profession", limit=4)  # each is a twin of all others
    own = replace(
        own,
        corpus=replace(own.corpus, items=items),
        folds=folds(items.triples, items.twins, own.protocol),
    )
    shown = set()

    def ranked(texts, items, by, **options):
        shown.update(twin.group for i in items for twin in texts.twins[i])
        return fold_orders(texts, items, by, **options)

    monkeypatch.setattr("tda_bias.debias.experiment.fold_orders", ranked)
    for name in ("means", "sequences"):

        def watched(self, items, read, **options):
            for i in items if isinstance(items, list) else [items]:
                shown.update(text.group for text in (self.triples[i], *self.twins[i]))
            return read(self, items, **options)

        read = getattr(TwinTexts, name)
        monkeypatch.setattr(TwinTexts, name, partialmethod(watched, read=read))
    run_experiment(own)
    (fold,) = own.folds
    would = {twin.group for i in fold.train for twin in items.twins[i]}
    targets = own.targets(fold)
    assert would & fold.apart
    assert shown == {twin for twin in would if twin not in fold.apart} | set(targets["train"])
    assert not shown & fold.apart
    assert shown <= {name for names in targets.values() for name in names}


def test_it_is_said_of_which_heads_the_random_sets_of_every_fold_are(fixed, monkeypatch):
    own = fixed(by=("effect",), n_random=2)
    chosen = iter(
        [HeadId(0, 0), HeadId(1, 0)] if n % 2 else [HeadId(0, h) for h in range(3)]
        for n in range(5)
    )
    monkeypatch.setattr("tda_bias.debias.experiment.first_heads", lambda *_: next(chosen))
    assert matching(own) == (
        "of the same layers, chosen heads among them where others are too few (2 folds); "
        "of the same layers (2 folds)"
    )


def test_gates_that_pass_no_guard_rank_heads_by_the_last_step(fixed, monkeypatch):
    own = fixed(by=("gates",), n_random=1, folds_run=1)
    kept = "tda_bias.debias.training.keeps_language"
    monkeypatch.setattr(kept, lambda check, start, _: check is start)
    (fold,) = own.folds
    order = rankings(own, fold)["gates"]
    learned = trained_alone(own, Condition(ALL_GATES, "gates"), fold).trajectory
    assert learned.best == 0
    distance = dict(zip(own.every_head, (learned.values["gates"] - 1).abs().tolist(), strict=True))
    assert min(distance.values()) > 0
    assert order == sorted(own.every_head, key=distance.get, reverse=True)
    # The model that is saved where no check passes is still the original.
    effect = trained_alone(own, Condition("all", "gates"), fold).trajectory
    assert (effect.values["gates"] == 1).all()


@pytest.mark.parametrize("folds_run", [1, 2])
def test_a_condition_that_is_to_be_saved_is_not_trained_again_for_it(fixed, monkeypatch, folds_run):
    own = fixed(by=("effect",), n_random=1, folds_run=folds_run)
    own = replace(own, save=("effect", "random"))
    results = run_experiment(own)
    monkeypatch.delattr("tda_bias.debias.experiment.train")
    for name in ("effect", "random"):
        condition = named(results, name)
        assert trained_alone(own, condition, own.folds[-1]).trajectory.values
    assert [len(trained) for trained in results.values()] == [folds_run] * len(results)


def test_what_is_saved_of_several_settings_is_what_the_experiment_chose(fixed):
    own = fixed(by=("effect",), n_random=1, folds_run=1, controls="placebo", anchor=(0.0, 5.0))
    own = replace(own, save=("effect", "placebo"))
    results = run_experiment(own)
    for name, kept in (("effect", True), ("placebo", False)):
        condition = named(results, name)
        (chosen,) = results[condition]
        assert bool(chosen.trajectory.values) == kept
        saved = trained_alone(own, condition, own.folds[-1])
        assert saved.training == chosen.training
        assert saved.trajectory.values
        now, then = (one.trajectory.chosen for one in (saved, chosen))
        assert (now.step, now.loss, now.beta) == (then.step, then.loss, then.beta)
        np.testing.assert_array_equal(now.test.gap, then.test.gap)


@pytest.mark.parametrize("pairs_pass", [True, False])
def test_settings_are_chosen_by_the_loss_on_validation_targets_if_pairs_pass(
    fixed, monkeypatch, pairs_pass
):
    weights = (0.0, 5.0)
    own = fixed(by=("effect",), n_random=1, folds_run=1, anchor=weights)
    losses = {}
    for weight in weights:
        single = fixed(by=("effect",), n_random=1, folds_run=1, anchor=(weight,))
        single = replace(single, cache=Cache(None, {}))
        (only,) = next(iter(run_experiment(single).values()))
        losses[weight] = only.trajectory.chosen.loss
    best, other = sorted(weights, key=lambda weight: losses[weight])
    assert losses[best] < losses[other]
    if not pairs_pass:
        monkeypatch.setattr(
            "tda_bias.debias.experiment.keeps_pairs",
            lambda trajectory, _: trajectory.chosen.loss != losses[best],
        )
    (chosen,) = next(iter(run_experiment(own).values()))
    assert chosen.training.trial.anchor == (best if pairs_pass else other)
    assert chosen.trajectory.chosen.loss == losses[chosen.training.trial.anchor]


def test_the_temperature_gives_a_trained_model_the_entropy_it_had(fixed):
    own = fixed(by=("effect",), n_random=1, folds_run=1, how="tune")
    hf_model, fold = own.corpus.model.hf_model, own.folds[0]
    texts = [torch.tensor([ids]) for ids in own.corpus.neutral.report.ids]

    def entropy(temperature):
        with torch.no_grad():
            logits = torch.cat([hf_model(ids).logits[0] for ids in texts]) / temperature
        return float(torch.distributions.Categorical(logits=logits).entropy().mean())

    before, (first,) = entropy(1.0), next(iter(run_experiment(own).values()))
    first.trajectory.values = {n: 3.0 * v for n, v in first.trajectory.values.items()}
    first.trajectory.best = 1
    temperature, gaps = at_equal_entropy(own, first)
    with undone(learner_of(own, first.training)) as learned:
        learned.load(first.trajectory.values)
        assert entropy(temperature) == pytest.approx(before, rel=1e-4)
        assert entropy(1.0) != pytest.approx(before, rel=1e-3)
        plain = own.corpus.items.answers(fold.test.tolist()).gap
        with tempered(own.corpus.model, temperature):
            expected = own.corpus.items.answers(fold.test.tolist()).gap
    np.testing.assert_allclose(gaps, expected, rtol=1e-6)
    assert np.abs(gaps - plain).max() > 1e-6
    first.trajectory.best = 0
    np.testing.assert_array_equal(at_equal_entropy(own, first)[1], first.trajectory.first.test.gap)
