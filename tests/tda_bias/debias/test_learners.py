"""Learners change chosen heads and nothing else, whatever the training loop does to the rest."""

import sys

import pytest
import torch

from tda_bias.ablation.head_weights import head_slices
from tda_bias.debias.learners import HeadGates, HeadLora, HeadMask, learner
from tda_bias.models.load import bridge_model
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "opt", "bloom", "phi3"]
HEADS = [HeadId(0, 1), HeadId(1, 3)]
IDS = torch.tensor([[5, 9, 17, 4, 33, 8], [7, 2, 11, 40, 3, 21]])


def test_no_head_and_no_known_part_are_refused():
    hf_model = tiny_hf_model("gpt2", 60)
    with pytest.raises(InputError, match="name nothing to train"):
        HeadMask(hf_model, [])
    with pytest.raises(InputError, match="L7H0 does not exist"):
        HeadMask(hf_model, [HeadId(7, 0)])


@pytest.mark.parametrize("how", ["leace", "steering"])
def test_edits_are_no_learners(tiny_model, how):
    with pytest.raises(ValueError, match=f"{how} learns nothing"):
        learner(how, tiny_model("gpt2"), HEADS)


def trained(mask, hf_model, steps=3):
    """Steps that move everything they can: large, with momentum and weight decay."""
    optimiser = torch.optim.AdamW(mask.parameters(), lr=0.05, weight_decay=0.5)
    handle = mask.attach(optimiser)
    for _ in range(steps):
        optimiser.zero_grad()
        hf_model(input_ids=IDS, labels=IDS).loss.backward()
        optimiser.step()
    handle.remove()


def outside_by_hand(before, hf_model, heads):
    """Every entry that is in no slice of the heads, entry by entry of the state dict."""
    slices = [s for head in heads for s in head_slices(hf_model, head)]
    for name, now in hf_model.state_dict().items():
        inside = torch.zeros_like(now, dtype=torch.bool)
        for own in slices:
            if own.parameter == name:
                own.of(inside).fill_(True)
        yield name, before[name][~inside], now[~inside], (now != before[name])[inside]


@pytest.mark.parametrize("kind", KINDS)
def test_weight_decay_and_momentum_leave_every_other_entry_bit_for_bit_as_it_was(kind):
    hf_model = tiny_hf_model(kind, 60)
    before = {name: t.clone() for name, t in hf_model.state_dict().items()}
    with HeadMask(hf_model, HEADS) as mask:
        trained(mask, hf_model)
        mask.check()
    changed = 0
    for name, was, now, moved in outside_by_hand(before, hf_model, HEADS):
        assert torch.equal(was, now), name
        changed += int(moved.sum())
    # Keys' biases have no gradient to speak of: softmax does not see them.
    assert changed > 0.9 * mask.n_values


def test_gradient_masks_alone_would_not_do():
    """Weight decay moves entries whose gradient is 0: why entries are put back."""
    hf_model = tiny_hf_model("gpt2", 60)
    with HeadMask(hf_model, HEADS) as mask:
        for parameter in mask.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimiser = torch.optim.AdamW(mask.parameters(), lr=0.05, weight_decay=0.5)
        optimiser.step()
        with pytest.raises(AssertionError, match="changed outside the chosen heads"):
            mask.check()
        mask.restore()
        mask.check()


def test_a_change_in_a_matrix_without_heads_is_noticed():
    hf_model = tiny_hf_model("gpt2", 60)
    mask = HeadMask(hf_model, HEADS)
    hf_model.transformer.h[0].mlp.c_fc.weight.data[0, 0] += 1e-6
    with pytest.raises(AssertionError, match=r"transformer.h.0.mlp.c_fc.weight changed"):
        mask.check()


def test_a_zero_that_changes_its_sign_is_noticed_and_a_nan_that_stays_is_not():
    hf_model = tiny_hf_model("gpt2", 60)
    weight = hf_model.transformer.h[0].attn.c_proj.weight.data
    weight[0, 0], weight[1, 0] = 0.0, float("nan")
    mask = HeadMask(hf_model, HEADS)
    mask.check()
    weight[0, 0] = -0.0
    with pytest.raises(AssertionError, match="changed outside"):
        mask.check()


def test_what_was_learned_can_be_kept_undone_and_put_back():
    hf_model = tiny_hf_model("llama", 60)
    before = {name: t.clone() for name, t in hf_model.state_dict().items()}
    with HeadMask(hf_model, HEADS) as mask:
        trained(mask, hf_model)
        learned, values = {n: t.clone() for n, t in hf_model.state_dict().items()}, mask.values()
        mask.undo()
        assert all(torch.equal(t, before[n]) for n, t in hf_model.state_dict().items())
        mask.load(values)
        assert all(torch.equal(t, learned[n]) for n, t in hf_model.state_dict().items())


def test_parameters_ask_for_gradients_again_afterwards():
    hf_model = tiny_hf_model("gpt2", 60)
    with HeadMask(hf_model, HEADS):
        names = {name for name, p in hf_model.named_parameters() if p.requires_grad}
        ends = ("c_attn.weight", "c_attn.bias", "c_proj.weight")
        assert names == {f"transformer.h.{n}.attn.{end}" for n in (0, 1) for end in ends}
        hf_model(torch.tensor([[5, 6]])).logits.sum().backward()
    assert all(p.requires_grad and p.grad is None for p in hf_model.parameters())


def test_the_trainer_of_transformers_trains_the_chosen_heads_and_nothing_else(tmp_path):
    from transformers import Trainer, TrainingArguments

    hf_model = tiny_hf_model("gpt2", 60)
    before = {name: t.clone() for name, t in hf_model.state_dict().items()}
    mask = HeadMask(hf_model, HEADS)
    rows = [{"input_ids": row, "labels": row} for row in IDS.tolist()] * 4
    arguments = TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=2,
        learning_rate=0.05, weight_decay=0.5, report_to=[], save_strategy="no", use_cpu=True,
        logging_strategy="no", disable_tqdm=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    Trainer(hf_model, arguments, train_dataset=rows, callbacks=[mask.callback()]).train()
    changed = 0
    for name, was, now, moved in outside_by_hand(before, hf_model, HEADS):
        assert torch.equal(was, now), name
        changed += int(moved.sum())
    assert changed > 0.9 * mask.n_values
    assert all(p.requires_grad for p in hf_model.parameters())


# -- gates: a gate multiplies what one head writes; folded into the weights it does the same -------

EVERY = [HeadId(layer, head) for layer in (0, 1) for head in range(4)]


def logits(model):
    with torch.no_grad():
        return model.hf_model(input_ids=IDS[:1]).logits


def test_a_head_that_does_not_exist_is_refused(tiny_model):
    with pytest.raises(InputError, match="L2H0 does not exist: `model` gpt2"):
        HeadGates(tiny_model("gpt2"), [HeadId(0, 1), HeadId(2, 0)])
    with pytest.raises(InputError, match="names nothing to train"):
        HeadGates(tiny_model("gpt2"), [])


@pytest.mark.parametrize("kind", ["gpt2", "qwen2", "gemma2", "bloom"])
def test_folded_attached_and_multiplied_by_hand_give_the_same_logits(tiny_model, tokenizer, kind):
    plain = tiny_model(kind)
    before = {name: t.clone() for name, t in plain.hf_model.state_dict().items()}
    gates = HeadGates(plain, EVERY)
    with torch.no_grad():
        gates.gates.copy_(torch.linspace(-0.5, 1.7, 8))
    with gates.running():
        attached = logits(plain)
    gates.apply()
    torch.testing.assert_close(logits(plain), attached, rtol=1e-4, atol=1e-4)
    names = {n for n, t in plain.hf_model.state_dict().items() if not torch.equal(t, before[n])}
    assert len(names) == 2  # the two output projections, and nothing else

    hooked = bridge_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name="m")

    def times(layer):
        def hook(z, hook):
            gain = torch.linspace(-0.5, 1.7, 8)[4 * layer : 4 * layer + 4]
            return z * gain[None, None, :, None]

        return hook

    hooks = [(f"blocks.{layer}.attn.hook_z", times(layer)) for layer in (0, 1)]
    with hooked.bridge.hooks(fwd_hooks=hooks):
        by_hand = logits(hooked)
    torch.testing.assert_close(attached, by_hand, rtol=1e-4, atol=1e-4)


def test_gates_of_1_change_no_bit_and_get_gradients(tiny_model):
    plain = tiny_model("gpt2")
    gates = HeadGates(plain, [HeadId(1, 0), HeadId(0, 2)])
    before = logits(plain)
    with gates.running():
        now = plain.hf_model(input_ids=IDS[:1]).logits
    assert torch.equal(before, now)
    now[0, -1, 3].backward()
    assert gates.gates.grad.abs().min() > 0
    assert gates.penalty().item() == 0.0
    gates.load({"gates": torch.full((2,), 0.3)})
    with gates.running():
        assert not torch.equal(logits(plain), before)
    assert torch.equal(logits(plain), before)  # they are gone after the block


def test_the_gradient_of_a_gate_is_the_difference_quotient(tiny_model):
    plain = tiny_model("llama")
    plain.hf_model.double()
    gates = HeadGates(plain, [HeadId(1, 2)])
    gates.gates.data = gates.gates.data.double()
    with gates.running():
        plain.hf_model(input_ids=IDS[:1]).logits[0, -1, 3].backward()
        values = []
        for shift in (1e-2, -1e-2):
            with torch.no_grad():
                gates.gates.fill_(1 + shift)
            values.append(float(logits(plain)[0, -1, 3]))
    # Softmax and norms are in single precision whatever the model is in.
    slope = (values[0] - values[1]) / 2e-2
    assert float(gates.gates.grad) == pytest.approx(slope, rel=1e-2)


# -- adapters --------------------------------------------------------------------------------------


def test_without_peft_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"needs the package peft: pip install 'tdabias\[lora\]'"):
        HeadLora(tiny_hf_model("gpt2", 60), HEADS)


def adapted(kind, steps=3):
    hf_model = tiny_hf_model(kind, 60)
    lora = HeadLora(hf_model, HEADS, rank=2)
    optimiser = torch.optim.AdamW(lora.parameters(), lr=0.05, weight_decay=0.5)
    lora.attach(optimiser)
    for _ in range(steps):
        optimiser.zero_grad()
        lora.peft_model(input_ids=IDS[:1], labels=IDS[:1]).loss.backward()
        optimiser.step()
    return lora


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # plain peft's
@pytest.mark.parametrize("kind", ["gpt2", "llama", "phi3"])
def test_the_saved_adapter_merged_by_plain_peft_changes_the_slices_of_the_heads_only(
    kind, tmp_path
):
    from peft import PeftModel

    lora = adapted(kind)
    lora.check()
    with torch.no_grad():
        expected = lora.peft_model(input_ids=IDS[:1]).logits
    lora.save(tmp_path)
    plain = tiny_hf_model(kind, 60)
    before = {name: t.clone() for name, t in plain.state_dict().items()}
    merged = PeftModel.from_pretrained(plain, str(tmp_path)).merge_and_unload()
    with torch.no_grad():
        torch.testing.assert_close(merged(input_ids=IDS[:1]).logits, expected, rtol=1e-4, atol=1e-4)
    changed = 0
    for name, was, now, moved in outside_by_hand(before, merged, HEADS):
        assert torch.equal(was, now), name
        changed += int(moved.sum())
    assert changed > 0


def test_entries_of_other_heads_are_noticed():
    lora = adapted("llama")
    module = lora.peft_model.base_model.model.model.layers[0].self_attn.q_proj
    module.lora_B["default"].weight.data[0, 0] = 1.0  # head 0, which was not chosen
    with pytest.raises(AssertionError, match="outside the chosen heads"):
        lora.check()


def test_unloading_gives_the_model_back_as_it_was():
    lora = adapted("gpt2")
    values = lora.values()
    assert any(float(t.abs().max()) > 0 for name, t in values.items() if "lora_B" in name)
    plain = lora.peft_model.base_model.model
    with lora:
        lora.undo()
    for name, now in tiny_hf_model("gpt2", 60).state_dict().items():
        assert torch.equal(plain.state_dict()[name], now), name
    assert all(p.requires_grad for p in plain.parameters())
