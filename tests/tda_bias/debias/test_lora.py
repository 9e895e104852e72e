"""Adapters on chosen heads: ordinary ones, that change these heads' slices and nothing else."""

import sys

import pytest
import torch

from tda_bias.debias.learners import HeadLora
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model
from tests.tda_bias.debias.test_mask import outside_by_hand

HEADS = [HeadId(0, 1), HeadId(1, 2)]
IDS = torch.tensor([[5, 9, 17, 4, 33, 8]])


def test_without_peft_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"needs the package peft: pip install 'tdabias\[lora\]'"):
        HeadLora(tiny_hf_model("gpt2", 60), HEADS)


def trained(kind, steps=3):
    hf_model = tiny_hf_model(kind, 60)
    lora = HeadLora(hf_model, HEADS, rank=2)
    optimiser = torch.optim.AdamW(lora.parameters(), lr=0.05, weight_decay=0.5)
    lora.attach(optimiser)
    for _ in range(steps):
        optimiser.zero_grad()
        lora.peft_model(input_ids=IDS, labels=IDS).loss.backward()
        optimiser.step()
    return lora


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # plain peft's
@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "phi3"])
def test_the_saved_adapter_merged_by_plain_peft_changes_the_slices_of_the_heads_only(
    kind, tmp_path
):
    from peft import PeftModel

    lora = trained(kind)
    lora.check()
    with torch.no_grad():
        expected = lora.peft_model(input_ids=IDS).logits
    lora.save(tmp_path)
    plain = tiny_hf_model(kind, 60)
    before = {name: t.clone() for name, t in plain.state_dict().items()}
    merged = PeftModel.from_pretrained(plain, str(tmp_path)).merge_and_unload()
    with torch.no_grad():
        torch.testing.assert_close(merged(input_ids=IDS).logits, expected, rtol=1e-4, atol=1e-4)
    changed = 0
    for name, was, now, moved in outside_by_hand(before, merged, HEADS):
        assert torch.equal(was, now), name
        changed += int(moved.sum())
    assert changed > 0


def test_entries_of_other_heads_are_noticed():
    lora = trained("llama")
    module = lora.peft_model.base_model.model.model.layers[0].self_attn.q_proj
    module.lora_B["default"].weight.data[0, 0] = 1.0  # head 0, which was not chosen
    with pytest.raises(AssertionError, match="outside the chosen heads"):
        lora.check()


def test_unloading_gives_the_model_back_as_it_was():
    lora = trained("gpt2")
    values = lora.values()
    assert any(float(t.abs().max()) > 0 for name, t in values.items() if "lora_B" in name)
    plain = lora.peft_model.base_model.model
    with lora:
        lora.undo()
    for name, now in tiny_hf_model("gpt2", 60).state_dict().items():
        assert torch.equal(plain.state_dict()[name], now), name
    assert all(p.requires_grad for p in plain.parameters())
