"""Texts of other categories: three parts that share no target, and none of the category trained."""

import numpy as np
import pytest

from tda_bias import load_triples
from tda_bias.debias.corpus import domain_texts
from tda_bias.debias.protocol import Protocol
from tda_bias.debias.trajectory import keeps_pairs, least_biased
from tda_bias.twins import make_twins


@pytest.fixture
def found(tiny_model):
    others = [t for t in load_triples("starter", category="all") if t.category != "gender"]
    made = make_twins(others)
    model = tiny_model("gpt2")
    return others, domain_texts(model, [(triple, made.of(triple)) for triple in others]), model


def test_the_three_parts_share_no_target(found):
    others, domain, model = found
    watched = {(t.category, t.group) for t in domain.watch.triples}
    reported = {(c, t.group) for c, items in domain.report.items() for t in items.triples}
    assert set(domain.report) == {"profession", "race", "religion"}
    assert not watched & reported
    rest = {(t.category, t.group) for t in others} - watched - reported
    learned = {tuple(ids) for ids in domain.learn}
    texts = {
        triple: [tuple(model.tokenizer(text)["input_ids"]) for text in triple.texts()]
        for triple in others
    }
    for triple, ids in texts.items():
        inside = learned.issuperset(ids)
        assert inside == ((triple.category, triple.group) in rest)
    assert len(domain.learn) == sum(3 for t in others if (t.category, t.group) in rest)
    assert not domain.watch.has_twins
    assert all(items.has_twins for items in domain.report.values())


def test_data_of_one_category_has_none(found):
    assert domain_texts(found[2], []) is None


def test_of_those_that_pass_the_least_size_of_beta_is_chosen_and_else_of_all():
    assert least_biased([("a", 0.1, False), ("b", -0.2, True), ("c", 0.3, True)]) == "b"
    assert least_biased([("a", 0.1, False), ("b", -0.2, False)]) == "a"


def test_pairs_that_were_not_read_pass_and_one_set_too_low_fails():
    before = {"pairs a": np.array([1, 0, 1, 1.0]), "pairs b": np.array([0.5, 1])}
    assert keeps_pairs({}, before, Protocol())
    assert keeps_pairs({**before, "pairs b": np.array([1.0, 1.0])}, before, Protocol())
    assert not keeps_pairs({**before, "pairs a": np.array([1, 0, 1, 0.5])}, before, Protocol())
