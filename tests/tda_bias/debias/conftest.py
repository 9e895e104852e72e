"""Texts of experiments on tiny random models."""

import pytest

from tda_bias import load_triples
from tda_bias.debias.corpus import Corpus, domain_texts, neutral_text
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.twins import make_twins
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
