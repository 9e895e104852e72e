"""Only the slices of chosen heads change, whatever the training loop does to the rest."""

import pytest
import torch

from tda_bias.ablation.head_weights import head_slices
from tda_bias.debias.mask import HeadMask
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
    assert all(p.requires_grad for p in hf_model.parameters())


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
