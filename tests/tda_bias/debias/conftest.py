"""Texts of experiments on tiny random models."""

import numpy as np
import pytest

from tda_bias import load_triples
from tda_bias.debias.corpus import Corpus, domain_texts, held_by, neutral_text
from tda_bias.debias.learners import learner, undone
from tda_bias.debias.protocol import Condition, Fold, Protocol, Training, Trial
from tda_bias.debias.texts import TwinTexts
from tda_bias.debias.training import readings, train, untouched_check
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


@pytest.fixture
def twin_texts(tiny_model):
    """Starter triples of a category with their twins, for a tiny model."""

    def make(kind="llama", category="gender", limit=6, with_twins=True):
        triples = load_triples("starter", category=category, limit=limit)
        twins = make_twins(triples)
        of_each = [twins.of(triple) if with_twins else () for triple in triples]
        return TwinTexts(tiny_model(kind), triples, of_each)

    return make


@pytest.fixture
def corpus_of(twin_texts):
    """Texts of gender, passages that the model wrote, and texts of professions."""

    def make(limit, n_learn, n_watch):
        texts = twin_texts(limit=limit)
        others = load_triples("starter", category="profession", limit=2)
        made = make_twins(others)
        return Corpus(
            texts,
            neutral_text(texts.model, n_learn=n_learn, n_watch=n_watch, width=16),
            domain_texts(texts.model, [(triple, made.of(triple)) for triple in others]),
        )

    return make


HEADS = (HeadId(0, 1), HeadId(0, 3), HeadId(1, 0), HeadId(1, 2))
RATES = {"gates": 0.1, "tune": 0.01, "lora": 0.03, "full": 3e-4}


def _trained(corpus, fold, how="gates", domain=0.0, anchor=0.0, **changes):
    loose = {"allowed_perplexity": 1.0, "allowed_points": 100.0}
    protocol = Protocol(**{"epochs": 6, "batch": 6, **loose, **changes})
    training = Training(Condition("effect", how), fold, HEADS, Trial(RATES[how], domain, anchor))
    held = held_by(corpus, fold, protocol, head_changes=how == "full")
    untouched = untouched_check(corpus, fold, protocol, readings(corpus))
    with undone(learner(how, corpus.model, HEADS)) as own:
        return train(own, corpus, protocol, training, held=held, untouched=untouched)


@pytest.fixture
def trained():
    """A training on a corpus and a fold, by a protocol whose guards let everything pass."""
    return _trained


@pytest.fixture
def setting(corpus_of):
    """A tiny model with texts, passages that it wrote, and items 0-11, 12-17, 18-23."""
    parts = np.arange(12), np.arange(12, 18), np.arange(18, 24)
    return corpus_of(limit=6, n_learn=8, n_watch=4), Fold(0, *parts)
