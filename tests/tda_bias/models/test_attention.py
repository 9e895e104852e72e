"""Where heads are: the same in plain and hooked models, and what they write."""

import pytest
import torch

from tda_bias.models.attention import attention_layers, attention_part, writes_to_the_stream
from tda_bias.models.load import LanguageModel, bridge_model
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "gemma2", "opt", "bloom", "bert", "roberta", "t5", "bart"]


@pytest.mark.parametrize("kind", ["albert", "xlnet"])
def test_an_architecture_that_keeps_its_heads_elsewhere_is_refused(tokenizer, kind):
    model = LanguageModel(tiny_hf_model(kind, len(tokenizer)), tokenizer, kind)
    with pytest.raises(InputError, match=f"`model` {kind} .* (be changed|share their weights)"):
        attention_layers(model)


@pytest.mark.parametrize("kind", KINDS)
def test_hooked_and_plain_models_have_their_heads_in_the_same_places(tokenizer, kind):
    """The bridge names the output projection itself; behind a norm heads write to no stream."""
    plain = LanguageModel(tiny_hf_model(kind, len(tokenizer)), tokenizer, kind)
    hooked = bridge_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name=kind)
    stack = "encoder_blocks" if kind in ("t5", "bart") else "blocks"
    blocks = list(getattr(hooked.bridge, stack))
    for own, other, block in zip(
        attention_layers(plain), attention_layers(hooked), blocks, strict=True
    ):
        assert own.number == other.number
        assert other.block is block
        assert other.projection is block.attn.o.original_component
        assert torch.equal(own.projection.weight, other.projection.weight)
    for model in (plain, hooked):
        to_the_stream = kind in ("gpt2", "gpt_neox", "llama", "opt", "bloom")
        assert writes_to_the_stream(model, attention_layers(model)) == to_the_stream


@pytest.mark.parametrize("kind", KINDS)
def test_what_heads_write_adds_up_to_the_projection(tokenizer, kind):
    model = LanguageModel(tiny_hf_model(kind, len(tokenizer)), tokenizer, kind)
    layer = attention_layers(model)[1]
    z = torch.randn(2, 3, 32)
    with torch.no_grad():
        bias = layer.projection(torch.zeros(2, 3, 32))
        expected = layer.projection(z) - bias
        torch.testing.assert_close(layer.written(layer.by_head(z)).sum(-2), expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.3.self_attn.q_proj", (3, "q")),
        ("transformer.h.11.attn.c_attn", (11, "qkv")),
        ("bert.encoder.layer.0.attention.self.value", (0, "v")),
        ("bert.encoder.layer.0.attention.output.dense", (0, "o")),
        ("bert.encoder.layer.0.output.dense", None),
        ("decoder.block.2.layer.0.SelfAttention.o", (2, "o")),
        ("decoder.block.2.layer.1.EncDecAttention.o", None),
        ("model.decoder.layers.1.encoder_attn.out_proj", None),
        ("transformer.h.2.attn.attention.out_proj", (2, "o")),
        ("mpnet.encoder.layer.1.attention.attn.k", (1, "k")),
        ("model.layers.1.attn.Wo", (1, "o")),
        ("model.layers.2.temporal_block.o_proj", (2, "o")),
        ("model.layers.1.mixer.q_proj", (1, "q")),
        ("model.layers.0.mixer.out_proj", None),
        ("model.layers.1.shared_transf.self_attn.o_proj", (1, "o")),
        ("model.layers.3.mlp.down_proj", None),
        ("model.layers.3.self_attn.q_norm", None),
    ],
)
def test_projections_are_known_by_name(name, expected):
    part = attention_part(name)
    assert (part and (part.layer, part.part)) == expected
