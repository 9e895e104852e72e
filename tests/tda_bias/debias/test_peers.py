"""Edits that others would make, by their definitions on a tiny random model."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from tda_bias.ablation.head_weights import head_slices
from tda_bias.debias.corpus import Corpus
from tda_bias.debias.learners import HeadLora, undone
from tda_bias.debias.passages import neutral_text
from tda_bias.debias.peers import (
    Erasure,
    Steering,
    concept,
    concept_texts,
    require_leace,
)
from tda_bias.debias.protocol import Fold, Protocol
from tda_bias.debias.training import edited, untouched_check
from tda_bias.models.attention import attention_layers
from tda_bias.types import HeadId, InputError

ITEMS = [0, 4, 9, 13, 17, 21]


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "concept_erasure", None)
    with pytest.raises(InputError, match=r"needs the package concept-erasure: pip install 'tdabi"):
        require_leace()


def test_without_twins_there_is_no_concept_to_erase(twin_texts):
    with pytest.raises(InputError, match="need texts about two concepts"):
        concept_texts(twin_texts(with_twins=False), ITEMS)


def streams(texts, layer, edit=None):
    """Residual stream behind a layer at the places read, text by text, with who it is about."""
    model, found = texts.model, {"women": [], "men": []}
    block = attention_layers(model)[layer].block
    for item in ITEMS:
        twin = texts.twins[item][0]
        for role in (0, 1):
            of_both = [
                model.tokenizer(one.texts()[role], add_special_tokens=False)["input_ids"]
                for one in (texts.triples[item], twin)
            ]
            first = next(n for n, (a, b) in enumerate(zip(*of_both, strict=False)) if a != b)
            for one, ids in zip((texts.triples[item], twin), of_both, strict=True):
                seen = []

                def keep(_, __, output, seen=seen):
                    seen.append(output[0] if isinstance(output, tuple) else output)

                with torch.no_grad(), nullcontext() if edit is None else edit.running():
                    handle = block.register_forward_hook(keep)  # behind the edit's
                    model.hf_model(torch.tensor([ids]))
                handle.remove()
                found[concept(one)].append(seen[0][0, first:])
    return {name: torch.cat(rows).double() for name, rows in found.items()}


def test_the_concept_of_gender_is_a_gender_and_of_others_the_target(twin_texts):
    genders = twin_texts()
    assert {concept(t) for t in genders.triples} == {"women", "men"}
    for triple, twins in zip(genders.triples, genders.twins, strict=True):
        assert {concept(triple), concept(twins[0])} == {"women", "men"}
    work = twin_texts(category="profession")
    assert {concept(t) for t in work.triples} == {t.group for t in work.triples}


@pytest.mark.parametrize(
    ("kind", "share", "layers"), [("llama", 0.0, [0]), ("gpt2", 0.0, [0]), ("llama", None, [0, 1])]
)
def test_leace_leaves_no_difference_of_means_behind_its_layers(twin_texts, kind, share, layers):
    """LEACE removes what a linear probe can use: its theorem, on the model's residual stream."""
    items = twin_texts(kind)
    erasure = Erasure(items, ITEMS, share)
    for layer in layers:
        plain, without = streams(items, layer), streams(items, layer, erasure)
        before = (plain["women"].mean(0) - plain["men"].mean(0)).norm()
        assert before > 1e-3
        assert (without["women"].mean(0) - without["men"].mean(0)).norm() < 0.02 * before
    if share is not None:  # means over all texts stay
        together = [torch.cat(list(own.values())).mean(0) for own in (plain, without)]
        torch.testing.assert_close(*together, atol=1e-4, rtol=1e-3)
    # Nothing is left where the model runs without the edit, or with one of strength 0.
    erasure.load({"strength": torch.tensor(0.0)})
    for own in (streams(items, layer), streams(items, layer, erasure)):
        assert torch.equal(own["women"], plain["women"])


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_steering_vector_is_the_difference_of_means_and_is_added_at_every_token(twin_texts, kind):
    items = twin_texts(kind)
    plain = streams(items, 1)
    vector = plain["men"].mean(0) - plain["women"].mean(0)
    steering = Steering(items, ITEMS, 1.0, sign=-1)
    torch.testing.assert_close(steering.vectors[1].double(), -vector, atol=1e-5, rtol=1e-4)
    assert ([layer.number for layer in steering.layers], steering.n_values) == ([1], len(vector))
    steering.load({"strength": torch.tensor(2.0)})
    moved = streams(items, 1, steering)
    for name, stream in moved.items():
        torch.testing.assert_close(stream, plain[name] - 2 * vector, atol=1e-4, rtol=1e-3)


def test_the_edit_of_other_categories_is_of_originals_less_their_twins(twin_texts):
    items = twin_texts(category="profession")
    steering = Steering(items, ITEMS, 0.0)
    read = concept_texts(items, ITEMS)
    assert read.label.max() > 1
    assert read.original.sum() * 2 == len(read.original)
    assert steering.vectors[0].norm() > 0
    assert Erasure(items, ITEMS, 0.0).n_values > 0


@pytest.mark.parametrize(
    "make", [lambda t: Erasure(t, ITEMS, None), lambda t: Steering(t, ITEMS, 0.5)]
)
def test_an_edit_is_checked_at_every_strength_and_left_at_one_that_passes(twin_texts, make):
    items = twin_texts()
    corpus = Corpus(items, neutral_text(items.model, n_learn=4, n_watch=2, width=16))
    fold = Fold(0, np.array(ITEMS), np.arange(1, 4), np.arange(5, 8))
    before = items.model.weight_hash()
    edit = make(items)
    loose = Protocol(allowed=100)
    untouched = untouched_check(corpus, fold, loose)
    found = edited(edit, corpus, loose, fold, untouched=untouched)
    assert [check.step for check in found.checks] == [0, *edit.strengths]
    assert found.chosen.loss == min(check.loss for check in found.checks)
    strict = Protocol(allowed=0)
    kept = edited(make(items), corpus, strict, fold, untouched=untouched)
    assert kept.chosen.log_ppl <= kept.first.log_ppl + 1e-9
    assert items.model.weight_hash() == before


def test_an_adapter_on_some_heads_counts_what_can_change(twin_texts):
    model = twin_texts().model
    heads = [HeadId(0, 1), HeadId(1, 2)]
    slices = {(s.parameter, s.start): s for h in heads for s in head_slices(model.hf_model, h)}
    shapes = {name: p.shape for name, p in model.hf_model.named_parameters()}
    literal = 0
    for own in slices.values():
        rows, columns = shapes[own.parameter]
        literal += 2 * (own.stop - own.start + (rows if own.part == "o" else columns))
    with undone(HeadLora(model.hf_model, heads, rank=2)) as adapter:
        assert adapter.n_values == literal
