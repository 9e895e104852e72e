"""The cost of an experiment, counted while it runs."""

from collections import Counter

import pytest

from tda_bias import load_triples
from tda_bias.debias import timing, training
from tda_bias.debias.experiment import (
    Experiment,
    Steps,
    recommended_training,
    run_experiment,
)
from tda_bias.debias.neutral import neutral_text
from tda_bias.debias.protocol import Protocol, folds
from tda_bias.debias.texts import TwinTexts
from tda_bias.debias.timing import Seconds, cost, timed
from tda_bias.models.load import LanguageModel
from tda_bias.runs.cache import PartStore
from tda_bias.twins import make_twins
from tests.support.models import tiny_hf_model


@pytest.fixture
def fixed(tokenizer, tmp_path):
    def make(**changes):
        triples = load_triples("starter", category="gender", limit=4)
        twins = make_twins(triples)
        model = LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")
        protocol = Protocol(
            top=2, batch=6, check_items=4, train_items=12, patience=99, allowed_loss=99.0, **changes
        )
        return Experiment(
            texts=TwinTexts(model, triples, [twins.of(triple) for triple in triples]),
            neutral=neutral_text(model, n_learn=6, n_watch=2, width=16),
            protocol=protocol,
            folds=folds(triples, protocol),
            store=PartStore(tmp_path, {}),
            load_hooked=lambda: pytest.fail("no ranking needs hooks"),
        )

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
def test_the_announced_cost_counts_what_is_run(fixed, monkeypatch, changes):
    fixed_one = fixed(**changes)
    protocol, split = fixed_one.protocol, fixed_one.folds
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
    moved, total = [], cost(protocol, split)[1]
    steps = Steps(total, lambda *numbers: moved.append(numbers))
    run_experiment(fixed_one, steps)
    recommended_training(fixed_one, "effect", steps)
    announced = {
        name: seconds.of_all(protocol, split)
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


def test_seconds_are_measured_and_leave_the_model_as_it_was(fixed, monkeypatch):
    own = fixed(by=("effect",), n_random=1, n_folds=4, folds_run=1)
    before = own.texts.model.weight_hash()
    clock = iter(range(0, 1000))
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(clock) ** 2)
    taken = timed(own)
    # The first step, from 0 to 1, does not count; the second is from 4 to 9.
    assert taken.step == 9 - 4
    assert taken.perplexity == 49 - 36
    fold = own.folds[0]
    items = min(own.protocol.batch, len(fold.train))
    n_checked = len(fold.validation) + len(fold.test)
    assert taken.check == (25 - 16) / items * n_checked + taken.perplexity
    assert own.texts.model.weight_hash() == before
