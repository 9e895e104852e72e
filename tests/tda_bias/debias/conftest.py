"""Texts of experiments on tiny random models, and a training on them."""

from functools import cache

import numpy as np
import pytest

from tda_bias import load_triples
from tda_bias.debias.corpus import Corpus
from tda_bias.debias.domain import domain_texts
from tda_bias.debias.learners import learner, undone
from tda_bias.debias.passages import neutral_text
from tda_bias.debias.protocol import Condition, Fold, Protocol, Training, Trial
from tda_bias.debias.retention import held_by
from tda_bias.debias.texts import TwinTexts
from tda_bias.debias.training import train, untouched_check
from tda_bias.models.load import LanguageModel
from tda_bias.twins import make_twins
from tda_bias.types import HeadId
from tests.support.models import tiny_hf_model


@pytest.fixture
def tiny_model(tokenizer):
    """A plain tiny model of any kind."""

    def make(kind="llama", **changes):
        return LanguageModel(tiny_hf_model(kind, len(tokenizer), **changes), tokenizer, kind)

    return make


@pytest.fixture(scope="session")
def twin_texts(tokenizer):
    """Starter triples of a category with their twins, for a tiny model that nobody changes."""

    @cache
    def make(kind="llama", category="gender", limit=6, with_twins=True):
        model = LanguageModel(tiny_hf_model(kind, len(tokenizer)), tokenizer, kind)
        triples, twins = starter(category, limit)
        return TwinTexts(model, triples, twins if with_twins else [()] * len(triples))

    return make


@cache
def starter(category, limit):
    """Starter triples, and the twins of each."""
    triples = load_triples("starter", category=category, limit=limit)
    made = make_twins(triples)
    return triples, [made.of(triple) for triple in triples]


@pytest.fixture(scope="session")
def corpus_of(twin_texts):
    """Texts of gender, passages that the model wrote, and texts of professions."""

    @cache
    def make(limit, n_learn, n_watch):
        texts = twin_texts(limit=limit)
        return Corpus(
            texts,
            neutral_text(texts.model, n_learn=n_learn, n_watch=n_watch, width=16),
            domain_texts(texts.model, list(zip(*starter("profession", 2), strict=True))),
        )

    return make


@pytest.fixture(scope="session")
def setting(corpus_of):
    """A tiny model with texts, passages that it wrote, and items 0-11, 12-17, 18-23."""
    parts = np.arange(12), np.arange(12, 18), np.arange(18, 24)
    return corpus_of(limit=6, n_learn=8, n_watch=4), Fold(0, *parts)


HEADS = (HeadId(0, 1), HeadId(0, 3), HeadId(1, 0), HeadId(1, 2))
RATES = {"gates": 0.1, "tune": 0.01, "lora": 0.03, "full": 3e-4}


def _trained(corpus, fold, how="gates", **changes):
    protocol = Protocol(**{"epochs": 6, "allowed": 100.0, **changes})
    training = Training(Condition("effect", how), fold, HEADS, Trial(RATES[how]))
    untouched = untouched_check(corpus, fold, protocol)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tda_bias.debias.protocol._BATCH", 6)  # an epoch has two steps
        held = held_by(corpus, fold, protocol, head_changes=how == "full")
        with undone(learner(how, corpus.model, HEADS)) as own:
            return train(own, corpus, protocol, training, held=held, untouched=untouched)


@pytest.fixture(scope="session")
def trained():
    """A training on a corpus and a fold, by a protocol whose guards let everything pass."""
    return _trained
