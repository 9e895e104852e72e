"""What heads write: the sum over tokens and heads is what the attention block gives."""

import copy

import pytest
import torch

from tda_bias import HeadBiasConfig, head_bias
from tda_bias.heads.patterns import HeadWriters, PatternReader
from tda_bias.models.load import bridge_model
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model
from tests.support.patterns import made_up, read

KINDS = [
    "gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "mistral", "opt", "bloom", "bert", "roberta",
    "t5", "bart",
]  # fmt: skip
ATTENTION = {
    "gpt2": "transformer.h.1.attn",
    "gpt_neox": "gpt_neox.layers.1.attention",
    "opt": "model.decoder.layers.1.self_attn",
    "bloom": "transformer.h.1.self_attention.dense",
    "bert": "bert.encoder.layer.1.attention.output.dense",
    "roberta": "roberta.encoder.layer.1.attention.output.dense",
    "t5": "encoder.block.1.layer.0.SelfAttention",
    "bart": "model.encoder.layers.1.self_attn",
}


@torch.no_grad()
def block_output(hf_model, name: str, ids: list[int]) -> torch.Tensor:
    """What the attention of the second layer gives, from a model that was never hooked."""
    kept = []

    def keep(_, __, out) -> None:
        kept.append(out[0] if isinstance(out, tuple) else out)

    handle = hf_model.get_submodule(name).register_forward_hook(keep)
    tokens = torch.tensor([ids])
    more = {"decoder_input_ids": tokens[:, :1]} if hf_model.config.is_encoder_decoder else {}
    hf_model(input_ids=tokens, **more)
    handle.remove()
    return kept[0].reshape(len(ids), -1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_heads_write_adds_up_to_the_blocks_output(tokenizer, kind):
    """Checks values, output matrices and which head has which, on every architecture."""
    hf_model = tiny_hf_model(kind, len(tokenizer))
    reference = copy.deepcopy(hf_model)
    model = bridge_model(hf_model, tokenizer, name=kind)
    ids = made_up(len(tokenizer))[0].ids[0]
    writers, kept = HeadWriters(model), {}

    def keep(value, hook) -> None:
        kept[hook.name] = value.detach()

    names = [*dict(writers.hooks), *model.pattern_hooks]
    tokens = torch.tensor([ids])
    more = {"decoder_input": tokens[:, :1]} if hf_model.config.is_encoder_decoder else {}
    with torch.no_grad():
        model.bridge.run_with_hooks(
            tokens,
            fwd_hooks=[*writers.hooks, *((name, keep) for name in names)],
            return_type=None,
            **more,
        )
    pattern = list(model.pattern_hooks)[1]
    stack = pattern.split(".")[0]
    matrix = getattr(model.bridge, stack)[1].attn.W_O.detach()
    value = next(v for n, v in kept.items() if ".1.attn" in n and "pattern" not in n)[0]
    value = value.repeat_interleave(len(matrix) // value.shape[1], dim=1).transpose(0, 1)
    written = value @ matrix  # head, token, model
    total = (kept[pattern][0] @ written).sum(0)
    name = ATTENTION.get(kind, "model.layers.1.self_attn")
    expected = block_output(reference, name, ids)
    # The output's bias is the same at every token.
    torch.testing.assert_close(
        total - total.mean(0), expected - expected.mean(0), rtol=0, atol=1e-4
    )
    norms = writers.norms(model.pattern_hooks[pattern])
    torch.testing.assert_close(norms[0], written.norm(dim=-1), rtol=1e-4, atol=1e-5)


def weighed(model, triples, *, shared: bool) -> dict[int, torch.Tensor]:
    """Every text's edges by what is written."""
    reader = PatternReader(model, batch_size=6, edges="output")
    return {
        text: batch.patterns[index, :, :, :n, :n].clone()
        for batch in reader.read(triples, shared=shared)
        for index, (text, n) in enumerate(
            zip(batch.text.tolist(), batch.length.tolist(), strict=True)
        )
    }


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_edges_are_attention_times_the_norm_of_what_is_written(tokenizer, tiny, kind):
    model, triples = tiny(kind), made_up(len(tokenizer))
    plain = read(model, triples, batch_size=1, shared=False)
    found = weighed(model, triples, shared=False)
    assert len(found) == 12
    for text, pattern in found.items():
        ratio = pattern / plain[text]
        lowest = ratio.nan_to_num(torch.inf).amin(2)
        highest = ratio.nan_to_num(-torch.inf).amax(2)
        torch.testing.assert_close(lowest, highest, rtol=1e-3, atol=1e-4)
        assert float(lowest.std()) > 0.01
    for text, pattern in weighed(model, triples, shared=True).items() if kind == "llama" else ():
        torch.testing.assert_close(found[text], pattern, rtol=1e-4, atol=1e-5)


def test_the_whole_run_takes_either_weight(tiny, gender):
    model = tiny("gpt2")
    plain, written = (
        head_bias(model, gender, twins=None, config=HeadBiasConfig(n_permutations=99, edges=edges))
        for edges in ("attention", "output")
    )
    assert written.record.config.edges == "output"
    assert not (plain.table["S"] == written.table["S"]).any()


def test_a_model_that_does_not_show_its_values_is_refused(tiny, monkeypatch):
    model = tiny("gpt2")
    hidden = {n: h for n, h in model.bridge.hook_dict.items() if not n.endswith("hook_v")}
    monkeypatch.setattr(type(model.bridge), "hook_dict", hidden)
    with pytest.raises(InputError, match="does not show what its heads write; use --edges"):
        HeadWriters(model)
