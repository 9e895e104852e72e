"""First-order estimates against finite differences."""

import numpy as np
import pytest
import torch

from tda_bias.ablation.ablator import Ablator
from tests.tda_bias.ablation.test_ablation import TRIPLES, TWINS

HEADS = ((0, 1), (1, 3))


def doubled(tiny_lm, kind):
    changes = {"decoder_start_token_id": 1} if kind in ("t5", "bart") else {}
    model = tiny_lm(kind, **changes)
    model.hf_model.double()
    return model


def moved(ablator, layer, head, step):
    """The outcome with a head's output moved a little of the way to what replaces it."""
    own = slice(8 * head, 8 * head + 8)
    new = 0.0 if ablator.replacement is None else ablator.replacement[layer, head].double()

    def hook(_, arguments):
        z = arguments[0].clone()
        z[:, :, own] += step * (new - z[:, :, own])
        return (z,)

    handle = ablator.layers[layer].projection.register_forward_pre_hook(hook)
    (found,) = ablator.without([()])
    handle.remove()
    return found


@pytest.mark.parametrize("kind", ["gpt2", "llama", "opt", "bert", "t5", "bart"])
def test_estimates_are_derivatives(tiny_lm, kind):
    ablation = "zero" if kind in ("opt", "t5") else "mean"
    ablator = Ablator(doubled(tiny_lm, kind), TRIPLES, twins=TWINS, ablation=ablation)
    found = ablator.first_order()
    # Llama, OPT and T5 compute some steps in single precision whatever the weights are, which
    # forbids a small step; the kinks of a ReLU forbid a large one.
    step = {"llama": 3e-3, "t5": 3e-4}.get(kind, 1e-4)
    exact = {"rel": 1e-4, "abs": 1e-6} if kind in ("gpt2", "bert", "bart") else {"abs": 5e-3}
    for layer, head in HEADS:
        up, down = (moved(ablator, layer, head, sign * step) for sign in (1, -1))
        slope = (up.log_odds.mean() - down.log_odds.mean()) / (2 * step)
        assert found.effect[layer, head] == pytest.approx(slope, **exact)
        slope = (np.nanmean(up.beta) - np.nanmean(down.beta)) / (2 * step)
        assert found.beta[layer, head] == pytest.approx(slope, **exact)


def test_importance_is_the_mean_size_of_the_change_in_loss_per_item(tiny_lm):
    ablator = Ablator(doubled(tiny_lm, "gpt2"), TRIPLES, ablation="zero")
    found, step = ablator.first_order(), 1e-4
    for layer, head in HEADS:
        up, down = (moved(ablator, layer, head, sign * step) for sign in (1, -1))
        loss = [-(one.continuation.sum(1) + one.context) for one in (up, down)]
        slope = np.abs(loss[0] - loss[1]) / (2 * step)
        assert found.importance[layer, head] == pytest.approx(slope.mean(), rel=1e-4)


def test_batches_change_no_estimate(tiny_lm):
    """Also where a triple's texts are rows of different batches."""
    model = doubled(tiny_lm, "bert")
    first, second = (
        Ablator(model, TRIPLES, twins=TWINS, batch_size=size).first_order() for size in (1, 50)
    )
    for name in ("effect", "beta", "importance", "direct"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), atol=1e-9)


def test_the_direct_estimate_bypasses_later_layers(tiny_lm):
    model = doubled(tiny_lm, "gpt2")
    ablator = Ablator(model, TRIPLES, ablation="zero")
    found, step = ablator.first_order().direct, 1e-4
    weights = model.hf_model.transformer.h[0].attn.c_proj.weight[16:24]

    def shifted(sign):
        kept = []

        def end(_, __, output):
            stream = output[0] if isinstance(output, tuple) else output
            stream = stream - sign * step * (kept[-1] @ weights)
            return (stream, *output[1:]) if isinstance(output, tuple) else stream

        first = ablator.layers[0].projection.register_forward_pre_hook(
            lambda _, arguments: kept.append(arguments[0][:, :, 16:24])
        )
        last = ablator.layers[-1].block.register_forward_hook(end)
        (outcome,) = ablator.without([()])
        first.remove()
        last.remove()
        return outcome.log_odds.mean()

    slope = (shifted(1) - shifted(-1)) / (2 * step)
    assert found[0, 2] == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_behind_a_normalisation_there_is_no_direct_estimate_and_parameters_keep_gradients(tiny_lm):
    model = tiny_lm("gemma2")
    assert np.isnan(Ablator(model, TRIPLES).first_order().direct).all()
    assert all(p.requires_grad and p.grad is None for p in model.hf_model.parameters())
    assert torch.is_grad_enabled()
