"""Texts of other categories: three parts that share no target, and none of the category trained."""

import pytest

from tda_bias import load_triples
from tda_bias.debias.domain import domain_texts
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
