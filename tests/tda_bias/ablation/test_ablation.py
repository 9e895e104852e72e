"""Removing heads against the plain model with their weights taken out, text by text."""

import copy

import numpy as np
import pytest
import torch

from tda_bias.ablation import removal
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.head_weights import head_slices
from tda_bias.models.load import LanguageModel
from tda_bias.store.cache import Cache
from tda_bias.types import HeadId, InputError, Triple
from tests.support.literal import continuations, log_odds
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "gemma2", "opt", "bloom", "bert", "roberta", "t5", "bart"]
TRIPLES = [
    Triple("nurse", "profession", "The nurse said that.", "She knew it", "He knew it", "A cook he"),
    Triple("cook", "profession", "The cook wrote", "that he felt", "that she", "man man man woman"),
    Triple("cook", "profession", "A cook", "knew he wrote that", "he felt that", "nurse it said"),
]
TWINS = [
    [
        Triple("cook", "profession", "The cook said that.", "She knew it", "He knew it", "A he"),
        Triple("man", "profession", "The man said that.", "She knew it", "He knew it", "A cook he"),
    ],
    [],
    [Triple("nurse", "profession", "A nurse", "knew he wrote that", "he felt that", "man")],
]
SETS = [
    (),
    (HeadId(0, 2),),
    (HeadId(1, 0),),
    (HeadId(0, 0), HeadId(1, 1)),
    (HeadId(0, 0), HeadId(1, 3)),
    (HeadId(0, 1), HeadId(0, 3), HeadId(1, 2), HeadId(1, 3)),
    (HeadId(0, 2), HeadId(1, 0)),
]


@pytest.fixture
def lm(tiny_lm):
    """Plain tiny models of every kind."""

    def make(kind):
        return tiny_lm(kind, decoder_start_token_id=1) if kind in ("t5", "bart") else tiny_lm(kind)

    return make


def without_weights(model, heads):
    """A copy whose heads write nothing: the definition of removal by zero."""
    hf_model = copy.deepcopy(model.hf_model)
    parameters = dict(hf_model.named_parameters())
    with torch.no_grad():
        for head in heads:
            for one in head_slices(hf_model, head):
                if one.part == "o":
                    one.of(parameters[one.parameter]).zero_()
    return LanguageModel(hf_model, model.tokenizer, "edited")


# -- bad input --


def test_heads_that_do_not_exist_are_refused(lm):
    ablator = Ablator(lm("gpt2"), TRIPLES)
    with pytest.raises(InputError, match="L2H0 does not exist: .* layers 0 to 1 with heads 0 to 3"):
        ablator.without([[HeadId(2, 0)]])
    with pytest.raises(InputError, match="L0H4 does not exist"), ablator.removed([HeadId(0, 4)]):
        pass


def test_models_without_outcomes_are_refused(lm):
    with pytest.raises(InputError, match="tiny-xlnet is a permutation language model; heads are"):
        Ablator(lm("xlnet"), TRIPLES)
    with pytest.raises(InputError, match="there is no triple"):
        Ablator(lm("gpt2"), [])
    model = lm("gpt2")
    ablator = Ablator(model, TRIPLES)
    model.hf_model.transformer.ln_f.weight.data[3] = float("nan")
    with pytest.raises(InputError, match="gives NaN"):
        ablator.without([()])


def one_by_one(ablator, sets):
    """Outcomes without each set, with nothing shared."""
    found = []
    for heads in sets:
        with ablator.removed(heads):
            found += ablator.without([()])
    return found


@pytest.mark.parametrize("without", [Ablator.without, one_by_one])
def test_an_intervention_without_effect_is_an_error(lm, without):
    model = without_weights(lm("gpt2"), [])
    layer = model.hf_model.transformer.h[1].attn
    layer.c_attn.weight.data[:, 64:72] = 0  # the first head's values
    layer.c_attn.bias.data[64:72] = 0
    ablator = Ablator(model, TRIPLES, ablation="zero")
    with pytest.raises(InputError, match="removing L1H0 changes nothing"):
        without(ablator, [(HeadId(0, 1),), (HeadId(1, 0),)])


# -- the definition --


@pytest.mark.parametrize("kind", KINDS)
def test_removing_heads_is_zeroing_their_output_weights(lm, kind):
    model = lm(kind)
    found = Ablator(model, TRIPLES, ablation="zero").without(SETS)
    changed = 0.0
    for heads, own in zip(SETS, found, strict=True):
        edited = without_weights(model, heads)
        expected = np.array([continuations(edited, triple) for triple in TRIPLES])
        np.testing.assert_allclose(own.continuation, expected, atol=1e-3)
        changed = max(changed, np.abs(expected - found[0].continuation).max())
    assert changed > 0.05


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "t5", "bart"])
def test_the_mean_is_over_all_places_of_the_unrelated_texts(lm, kind):
    """Computed text by text, and put in the head's place text by text."""
    model, head = lm(kind), HeadId(1, 2)
    ablator = Ablator(model, TRIPLES, batch_size=2)
    projection = ablator.layers[head.layer].projection
    body = model.hf_model.get_encoder() if kind in ("t5", "bart") else model.hf_model
    kept = []
    handle = projection.register_forward_pre_hook(lambda _, arguments: kept.append(arguments[0]))
    for triple in TRIPLES:
        ids = model.tokenizer(triple.texts()[2], return_tensors="pt")["input_ids"]
        with torch.no_grad():
            body(input_ids=ids)
    handle.remove()
    mean = torch.cat([z[0, :, 16:24] for z in kept]).double().mean(0)
    torch.testing.assert_close(ablator.replacement[1, 2], mean, rtol=1e-4, atol=1e-6)

    def replace(_, arguments):
        z = arguments[0].clone()
        z[:, :, 16:24] = mean
        return (z,)

    (found,) = ablator.without([[head]])
    handle = projection.register_forward_pre_hook(replace)
    expected = [continuations(model, triple) for triple in TRIPLES]
    handle.remove()
    np.testing.assert_allclose(found.continuation, expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["gpt2", "bert", "t5"])
def test_beta_is_the_log_odds_minus_the_mean_of_the_twins(lm, kind):
    model = lm(kind)
    ablator = Ablator(model, TRIPLES, twins=TWINS, ablation="zero")
    for heads, own in zip(SETS[:4], ablator.without(SETS[:4]), strict=True):
        edited = without_weights(model, heads)
        expected = [
            log_odds(edited, triple) - np.mean([log_odds(edited, twin) for twin in twins])
            if twins
            else np.nan
            for triple, twins in zip(TRIPLES, TWINS, strict=True)
        ]
        np.testing.assert_allclose(own.beta, expected, atol=1e-3)
        assert own.summary()["beta"] == pytest.approx(np.nanmean(expected), abs=1e-3)


# -- properties --


@pytest.mark.parametrize("kind", KINDS)
def test_sharing_what_sets_have_in_common_changes_nothing(lm, monkeypatch, kind):
    """One network after the other; side by side in a batch they are compared with the weights."""
    monkeypatch.setattr(removal, "_TOKENS", {"cpu": 1})
    ablator = Ablator(lm(kind), TRIPLES, twins=TWINS, batch_size=5)
    shared, alone = ablator.without(SETS), one_by_one(ablator, SETS)
    for a, b in zip(shared, alone, strict=True):
        np.testing.assert_allclose(a.continuation, b.continuation, atol=3e-5)
        np.testing.assert_allclose(a.context, b.context, atol=3e-5)
        np.testing.assert_allclose(a.beta, b.beta, atol=3e-5)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_hooked_model_gives_what_a_plain_one_gives(tiny, tokenizer, gender, kind):
    plain = LanguageModel(tiny_hf_model(kind, len(tokenizer)), tokenizer, kind)
    found = [Ablator(model, gender[:4]).without(SETS) for model in (plain, tiny(kind))]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.continuation, b.continuation, atol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_neither_batches_nor_the_order_of_sets_change_anything(lm, kind):
    model = lm(kind)
    first = Ablator(model, TRIPLES, batch_size=1).without(SETS)
    second = Ablator(model, TRIPLES, batch_size=50).without(SETS[::-1])[::-1]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.continuation, b.continuation, atol=1e-4)
        np.testing.assert_array_equal(a.n_tokens, b.n_tokens)


def test_the_model_is_left_as_it_was(lm):
    model = lm("gpt2")
    ablator = Ablator(model, TRIPLES)
    (before,) = ablator.without([()])
    ablator.without(SETS)
    with pytest.raises(InputError):
        ablator.without([[HeadId(0, 0)], [HeadId(9, 0)]])
    (after,) = ablator.without([()])
    np.testing.assert_allclose(after.continuation, before.continuation, atol=1e-5)
    assert all("forward" not in vars(layer.block) for layer in ablator.layers)


def test_summaries_by_hand(lm):
    (found,) = Ablator(lm("gpt2"), TRIPLES).without([()])
    s, a, u = found.continuation.T
    summary = found.summary()
    assert summary["log_odds"] == pytest.approx((s - a).mean())
    assert summary["ss"] == pytest.approx(100 * np.mean(s > a))
    assert summary["lms"] == pytest.approx(50 * (np.mean(s > u) + np.mean(a > u)))
    assert summary["log_ppl_unrelated"] == pytest.approx(-u.sum() / found.n_tokens[:, 2].sum())
    assert summary["log_ppl_context"] == pytest.approx(
        -found.context.sum() / found.n_tokens[:, 3].sum()
    )
    assert "beta" not in summary
    (masked,) = Ablator(lm("bert"), TRIPLES).without([()])
    assert "log_ppl_context" not in masked.summary()  # only causal models read contexts


def test_saved_batches_are_used_and_belong_to_their_texts_heads_and_twins(lm, tmp_path):
    model, cache = lm("gpt2"), Cache(tmp_path, {})

    def kept(ablator, sets=SETS):
        return ablator.outcomes(sets, cache.each(ablator.removals(sets)))

    whole = kept(Ablator(model, TRIPLES, batch_size=3))
    n = len(list(tmp_path.glob("*.npz")))
    assert n > 1
    ablator = Ablator(model, TRIPLES, batch_size=3)
    ablator._remover.read = None  # nothing is run again
    again = kept(ablator)
    for a, b in zip(whole, again, strict=True):
        np.testing.assert_array_equal(a.continuation, b.continuation)
    for triples, ablation, sets, message in (
        (TRIPLES, "mean", SETS[1:], "heads"),
        (TRIPLES, "zero", SETS, "replacement"),
        (TRIPLES[1:], "mean", SETS, "texts"),
    ):
        other = Ablator(model, triples, ablation=ablation, batch_size=3)
        with pytest.raises(InputError, match=message):
            kept(other, sets)
