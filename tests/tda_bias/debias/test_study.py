"""What a comparison of arms costs, counted while it runs."""

from collections import Counter

import pytest

from tda_bias import load_triples
from tda_bias.debias import study, training
from tda_bias.debias.neutral import neutral_text
from tda_bias.debias.protocol import Protocol, folds
from tda_bias.debias.study import Pace, Study
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.runs.cache import PartStore
from tda_bias.twins import make_twins
from tests.support.models import tiny_hf_model


@pytest.fixture
def comparison(tokenizer):
    def make(tmp_path, **changes):
        triples = load_triples("starter", category="gender", limit=4)
        twins = make_twins(triples)
        model = LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")
        protocol = Protocol(
            top=2, batch=6, check_items=4, train_items=12, patience=99, allowed_loss=99.0, **changes
        )
        return Study(
            texts=TwinTexts(model, triples, [twins.of(triple) for triple in triples]),
            neutral=neutral_text(model, n_learn=6, n_watch=2, width=16),
            protocol=protocol,
            dealt=folds(triples, protocol),
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
def test_the_cost_that_is_told_counts_what_is_run(comparison, tmp_path, monkeypatch, changes):
    compared = comparison(tmp_path, **changes)
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
    compared.run()
    compared.recommended("effect")
    told = {
        name: pace.of(compared.protocol, compared.dealt)
        for name, pace in {
            "steps": Pace(1, 0, 0), "checks": Pace(0, 1, 0), "reports": Pace(0, 0, 1)
        }.items()
    }  # fmt: skip
    assert told["steps"] == done["steps"]
    assert told["checks"] == done["checks"]
    # A check reads a perplexity too.
    assert told["reports"] == done["perplexities"] - done["checks"]


def test_the_pace_is_measured_and_leaves_the_model_as_it_was(comparison, tmp_path, monkeypatch):
    compared = comparison(tmp_path, by=("effect",), n_random=1, n_folds=4, folds_run=1)
    before = compared.texts.model.weight_hash()
    seconds = iter(range(0, 1000))
    monkeypatch.setattr(study.time, "monotonic", lambda: next(seconds) ** 2)
    pace = compared.pace()
    # The first step, from 0 to 1, does not count; the second is from 4 to 9.
    assert pace.step == 9 - 4
    assert pace.perplexity == 49 - 36
    fold = compared.dealt[0]
    items = min(compared.protocol.batch, len(fold.train))
    assert pace.check == (25 - 16) / items * (len(fold.stop) + len(fold.test)) + pace.perplexity
    assert compared.texts.model.weight_hash() == before
