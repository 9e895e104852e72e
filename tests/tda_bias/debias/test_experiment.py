"""The cost of an experiment, counted while it runs."""

from collections import Counter

import pytest

from tda_bias import load_triples
from tda_bias.debias import experiment, training
from tda_bias.debias.experiment import (
    Bench,
    Seconds,
    Steps,
    cost,
    recommended_training,
    run_experiment,
    timed,
)
from tda_bias.debias.neutral import neutral_text
from tda_bias.debias.protocol import Protocol, conditions, folds
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.runs.cache import PartStore
from tda_bias.twins import make_twins
from tests.support.models import tiny_hf_model


@pytest.fixture
def bench_and_folds(tokenizer):
    def make(**changes):
        triples = load_triples("starter", category="gender", limit=4)
        twins = make_twins(triples)
        model = LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")
        protocol = Protocol(
            top=2, batch=6, check_items=4, train_items=12, patience=99, allowed_loss=99.0, **changes
        )
        bench = Bench(
            texts=TwinTexts(model, triples, [twins.of(triple) for triple in triples]),
            neutral=neutral_text(model, n_learn=6, n_watch=2, width=16),
            protocol=protocol,
            load_hooked=lambda: pytest.fail("no ranking needs hooks"),
        )
        return bench, folds(triples, protocol)

    return make


@pytest.mark.parametrize(
    "changes",
    [
        {"by": ("effect",), "n_random": 2, "n_folds": 4, "folds_run": 1, "epochs": 2},
        {
            "by": ("effect", "gates"), "n_random": 1, "n_folds": 4, "folds_run": 2, "epochs": 1,
            "n_rates": 2, "controls": True,
        },
    ],
)  # fmt: skip
def test_the_announced_cost_counts_what_is_run(bench_and_folds, tmp_path, monkeypatch, changes):
    bench, split = bench_and_folds(**changes)
    done = Counter()

    def counted(module, name, what):
        function = getattr(module, name)

        def called(*args, **options):
            done[what] += 1
            return function(*args, **options)

        monkeypatch.setattr(module, name, called)

    counted(training, "_loss", "steps")
    counted(training, "_check", "checks")
    counted(training, "log_ppl_of", "perplexities")
    moved, total = [], cost(bench.protocol, split)[1]
    steps, store = Steps(total, lambda *numbers: moved.append(numbers)), PartStore(tmp_path, {})
    run_experiment(bench, conditions(bench.protocol), split, store, steps)
    recommended_training(bench, "effect", split[-1], store, steps)
    announced = {
        name: seconds.of_all(bench.protocol, split)
        for name, seconds in {
            "steps": Seconds(1, 0, 0), "checks": Seconds(0, 1, 0), "reports": Seconds(0, 0, 1)
        }.items()
    }  # fmt: skip
    assert announced["steps"] == done["steps"]
    assert announced["checks"] == done["checks"]
    # A check reads a perplexity too.
    assert announced["reports"] == done["perplexities"] - done["checks"]
    assert moved[-1] == (total, total)
    assert [step for step, _ in moved] == sorted(step for step, _ in moved)


def test_seconds_are_measured_and_leave_the_model_as_it_was(bench_and_folds, monkeypatch):
    bench, (fold,) = bench_and_folds(by=("effect",), n_random=1, n_folds=4, folds_run=1)
    before = bench.texts.model.weight_hash()
    clock = iter(range(0, 1000))
    monkeypatch.setattr(experiment.time, "monotonic", lambda: next(clock) ** 2)
    taken = timed(bench, fold)
    # The first step, from 0 to 1, does not count; the second is from 4 to 9.
    assert taken.step == 9 - 4
    assert taken.perplexity == 49 - 36
    items = min(bench.protocol.batch, len(fold.train))
    n_checked = len(fold.validation) + len(fold.test)
    assert taken.check == (25 - 16) / items * n_checked + taken.perplexity
    assert bench.texts.model.weight_hash() == before
