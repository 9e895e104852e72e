"""A gate multiplies what one head writes; folded into the weights it does the same."""

import pytest
import torch

from tda_bias.debias.learners import HeadGates
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "opt", "bloom"]
EVERY = [HeadId(layer, head) for layer in (0, 1) for head in range(4)]
IDS = torch.tensor([[5, 9, 17, 4, 33, 8]])


def logits(model):
    with torch.no_grad():
        return model.hf_model(input_ids=IDS).logits


def test_a_head_that_does_not_exist_is_refused(tiny_model):
    with pytest.raises(InputError, match="L2H0 does not exist: `model` gpt2"):
        HeadGates(tiny_model("gpt2"), [HeadId(0, 1), HeadId(2, 0)])
    with pytest.raises(InputError, match="names nothing to train"):
        HeadGates(tiny_model("gpt2"), [])


@pytest.mark.parametrize("kind", KINDS)
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

    from tda_bias.models.load import bridge_model

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
        now = plain.hf_model(input_ids=IDS).logits
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
        plain.hf_model(input_ids=IDS).logits[0, -1, 3].backward()
        values = []
        for shift in (1e-2, -1e-2):
            with torch.no_grad():
                gates.gates.fill_(1 + shift)
            values.append(float(logits(plain)[0, -1, 3]))
    # Softmax and norms are in single precision whatever the model is in.
    slope = (values[0] - values[1]) / 2e-2
    assert float(gates.gates.grad) == pytest.approx(slope, rel=1e-2)
