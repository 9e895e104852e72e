"""Architectures that TransformerLens does not know: patterns from Hugging Face's own attention."""

import copy

import pytest
import torch

from tda_bias import HeadBiasConfig, head_bias
from tda_bias.models.eager import eager_attention
from tda_bias.models.hooked import initialised
from tda_bias.models.load import LanguageModel, LoadedModel, bridge_model, load_model
from tda_bias.types import InputError
from tests.support.architectures import tiny
from tests.support.models import tiny_hf_model
from tests.support.patterns import hugging_face, made_up, read

# What TransformerLens has no adapter for; the table of docs/scale.md lists the same.
WITHOUT_ADAPTER = [
    "distilbert", "albert", "electra", "deberta", "deberta_v2", "mpnet", "xlnet",
]  # fmt: skip
ASKED = ["deberta", "deberta_v2", "mpnet", "xlnet"]
WITH_ADAPTER = ["gpt2", "llama", "bloom", "bert", "roberta", "t5", "bart", "marian"]


def through_eager(kind: str, tokenizer) -> LoadedModel:
    hf_model = tiny_hf_model(kind, len(tokenizer))
    eager = eager_attention(hf_model, name=kind)
    hooks = {f"layer {layer}": layer for layer in eager.places}
    about = {"attention": eager.attention, "n_heads": eager.n_heads, "pattern_hooks": hooks}
    return LoadedModel(hf_model, tokenizer, kind, eager=eager, **about)


# -- bad input --


@pytest.mark.parametrize("kind", ["mamba", "gpt2"])
def test_a_model_that_returns_no_patterns_is_refused_before_it_is_changed(tokenizer, kind):
    """What TransformerLens shows of it could be compared with nothing."""
    hf_model = tiny_hf_model(kind, len(tokenizer))
    hf_model.register_forward_hook(lambda _, __, output: setattr(output, "attentions", None))
    before = [name for name, _ in hf_model.named_modules()]
    with pytest.raises(InputError, match=r"`model` m is a .* returns no attention patterns") as e:
        bridge_model(hf_model, tokenizer, name="m")
    assert "\n" not in str(e.value)
    assert [name for name, _ in hf_model.named_modules()] == before


def test_patterns_of_something_else_than_all_tokens_are_refused(tokenizer, monkeypatch):
    hf_model = tiny_hf_model("distilbert", len(tokenizer))
    attend = type(hf_model.distilbert.transformer.layer[0].attention)
    forward = attend.forward
    monkeypatch.setattr(
        attend, "forward", lambda *a, **k: (forward(*a, **k)[0], torch.zeros(3, 4, 13, 5))
    )
    with pytest.raises(InputError, match="not one matrix of all tokens|returns no attention"):
        eager_attention(hf_model, name="m")


def test_what_heads_write_is_known_by_transformerlens_alone(tokenizer, gender):
    model = bridge_model(tiny_hf_model("albert", len(tokenizer)), tokenizer, name="m")
    with pytest.raises(InputError, match="does not show what its heads write; use --edges"):
        head_bias(
            model, gender, twins=None, config=HeadBiasConfig(edges="output", n_permutations=99)
        )


# -- against Hugging Face and TransformerLens --


@pytest.mark.parametrize("kind", WITHOUT_ADAPTER)
def test_patterns_are_those_that_hugging_face_returns(tokenizer, kind):
    model = through_eager(kind, tokenizer)
    reference = copy.deepcopy(model.hf_model)
    triples = made_up(len(tokenizer))
    single = read(model, triples, batch_size=1, shared=False)
    batched = read(model, triples, batch_size=32, shared=False)
    texts = [ids for triple in triples for ids in triple.ids]
    assert set(single) == set(batched) == set(range(len(texts)))
    for index, ids in enumerate(texts):
        expected = hugging_face(reference, ids)
        assert expected.shape == (2, 4, len(ids), len(ids))
        assert float(expected.std(0).mean()) > 0.01, "too even to tell a wrong mask"
        torch.testing.assert_close(single[index], expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(batched[index], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", WITHOUT_ADAPTER)
def test_what_transformerlens_does_not_know_is_hooked_by_its_own_attention(tokenizer, kind):
    model = bridge_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name=kind)
    assert model.bridge is None
    # Some give no pattern unless they are asked to keep those of all layers.
    assert model.eager.asked == (kind in ASKED)
    assert model.attention == "bidirectional"
    assert list(model.pattern_hooks.values()) == [0, 1]
    assert model.n_heads == 4


@pytest.mark.parametrize("kind", WITH_ADAPTER)
def test_transformerlens_is_the_first_choice_and_shows_the_same(tiny, tokenizer, kind):
    hooked = tiny(kind)
    assert hooked.bridge is not None
    eager = through_eager(kind, tokenizer)
    assert (eager.attention, eager.n_heads) == (hooked.attention, hooked.n_heads)
    triples = made_up(len(tokenizer))
    ours = read(eager, triples, batch_size=8, shared=False)
    theirs = read(hooked, triples, batch_size=8, shared=False)
    for text in theirs:
        torch.testing.assert_close(ours[text], theirs[text], rtol=0, atol=1e-5)


def made_by_config(model_type: str, vocabulary: int, **settings):
    """A tiny decoder with random weights of an architecture that few tests need."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": 4,
        "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 128,
        "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
    }  # fmt: skip
    config = AutoConfig.for_model(model_type, **{**sizes, **settings})
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


FALCON = {"new_decoder_architecture": True, "num_kv_heads": 2}
HYBRID = {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"] * 2}


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("falcon", {**FALCON, "multi_query": False}),  # whose patterns TransformerLens gets wrong
        ("falcon", {**FALCON, "multi_query": True}),  # which it cannot run
        ("phi", {"qk_layernorm": True}),
    ],
)
def test_where_transformerlens_shows_something_else_a_fresh_model_is_read(
    tokenizer, model_type, settings
):
    def made():
        return made_by_config(model_type, len(tokenizer), **settings)

    model = bridge_model(made(), tokenizer, name="m", again=made)
    assert model.bridge is None
    assert model.weight_hash() == LanguageModel(made(), tokenizer, "m").weight_hash()
    triples = made_up(len(tokenizer))
    found = read(model, triples, batch_size=8, shared=False)
    texts = [ids for triple in triples for ids in triple.ids]
    for index, ids in enumerate(texts):
        expected = hugging_face(made(), ids)
        torch.testing.assert_close(found[index], expected, rtol=0, atol=1e-5)


def test_what_transformerlens_gets_wrong_is_refused_of_a_model_in_memory(tokenizer):
    hf_model = made_by_config("falcon", len(tokenizer), **FALCON, multi_query=False)
    message = r"cannot hook \(the patterns that it shows differ by .* load it by its name"
    with pytest.raises(InputError, match=message):
        bridge_model(hf_model, tokenizer, name="m")


def test_a_model_that_transformerlens_has_tried_is_never_read(tokenizer, monkeypatch):
    """Whatever it has changed: here weights, and no name of a module."""
    from transformer_lens.model_bridge import TransformerBridge

    def change(*_, hf_model, **__):
        hf_model.get_input_embeddings().weight.data.add_(1)
        raise RuntimeError("of half an adapter")

    def made():
        hf_model = tiny_hf_model("gpt2", len(tokenizer))
        hf_model.set_attn_implementation("sdpa")  # which shows no patterns
        return hf_model

    monkeypatch.setattr(TransformerBridge, "boot_transformers", change)
    model = bridge_model(made(), tokenizer, name="m", again=made)
    assert model.bridge is None
    assert model.hf_model.config._attn_implementation == "eager"
    assert model.weight_hash() == LanguageModel(made(), tokenizer, "m").weight_hash()


def test_a_hybrid_whose_layers_transformerlens_renames_lists_each_head_once(tokenizer):
    def made():
        return tiny("nemotron_h", len(tokenizer))

    model = bridge_model(made(), tokenizer, name="m", again=made)
    assert model.bridge is None
    assert (model.n_heads, list(model.pattern_hooks.values())) == (4, [1, 3])
    assert model.weight_hash() == LanguageModel(made(), tokenizer, "m").weight_hash()


def test_hybrids_number_their_layers_as_the_model_does(tokenizer):
    """By TransformerLens, by the model's own attention, and where heads are edited."""
    from tda_bias.models.attention import attention_layers

    def made():
        return made_by_config("lfm2", len(tokenizer), **HYBRID)

    hooked = bridge_model(made(), tokenizer, name="m", again=made)
    assert list(hooked.pattern_hooks.values()) == [1, 3]
    assert list(eager_attention(made(), name="m").places) == [1, 3]
    plain = LanguageModel(made(), tokenizer, "m")
    assert {layer.number for layer in attention_layers(plain)} == {1, 3}


@pytest.mark.parametrize("kind", ["convbert", "mobilebert"])
def test_texts_whose_patterns_padding_changes_are_read_alone(tokenizer, kind):
    """Convolutions, and embeddings of neighbours, see what stands behind a text."""
    model = through_eager(kind, tokenizer)
    assert not model.eager.takes_padding
    assert through_eager("distilbert", tokenizer).eager.takes_padding
    triples = made_up(len(tokenizer))
    found = read(model, triples, batch_size=8, shared=False)
    for index, ids in enumerate(ids for triple in triples for ids in triple.ids):
        expected = hugging_face(model.hf_model, ids)
        torch.testing.assert_close(found[index], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["longt5", "led", "longformer"])
def test_windows_are_the_reason_that_is_given(tokenizer, name):
    def made():
        return tiny(name, len(tokenizer))

    with pytest.raises(InputError, match="attention is linear, in windows or over pooled") as e:
        bridge_model(made(), tokenizer, name="m", again=made)
    assert "TransformerLens" not in str(e.value)


def test_layers_come_one_at_a_time_and_the_pass_ends_at_the_last(tokenizer):
    model = through_eager("distilbert", tokenizer)

    def hooks() -> list[int]:
        return [len(module._forward_hooks) for module in model.hf_model.distilbert.modules()]

    before, ran = hooks(), []
    model.hf_model.vocab_projector.register_forward_hook(lambda *_: ran.append("logits"))
    read(model, made_up(len(tokenizer)), batch_size=4, shared=False)
    assert ran == []
    assert hooks() == before


# -- the whole --


def test_heads_are_ranked_of_a_model_that_transformerlens_does_not_know(
    tokenizer, gender, tmp_path
):
    tiny_hf_model("distilbert", len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_model(str(tmp_path), device="cpu")
    result = head_bias(model, gender, twins=None, config=HeadBiasConfig(n_permutations=99))
    assert len(result.category) == 8
    assert result.record.model.patterns == "eager"
    assert model.weight_hash() == LanguageModel(model.hf_model, tokenizer, "m").weight_hash()
    again = initialised(model)
    assert again.bridge is None
    assert again.weight_hash() != model.weight_hash()
