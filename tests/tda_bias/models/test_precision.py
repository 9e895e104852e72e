"""Rounded products, what is rounded in them, and readings made with them."""

import numpy as np
import pytest
import torch

from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import token_log_probs
from tda_bias.models.precision import Computing, weight_now
from tda_bias.models.shared_weights import with_the_same_weights
from tests.support.models import tiny_hf_model


@pytest.fixture
def model(tokenizer):
    return LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")


def rounded_names(model):
    return {
        name
        for name, module in model.hf_model.named_modules()
        if isinstance(module, torch.nn.Linear) and weight_now(module) is not module.weight
    }


def test_weights_that_may_learn_are_not_rounded_unless_all_are_frozen(model):
    linear = {n for n, m in model.hf_model.named_modules() if isinstance(m, torch.nn.Linear)}
    model.hf_model.requires_grad_(False)
    learning = model.hf_model.model.layers[0].self_attn.q_proj
    learning.weight.requires_grad_(True)
    with Computing(model, "bfloat16").running():
        assert rounded_names(model) == linear - {"model.layers.0.self_attn.q_proj"}
    with Computing(model, "bfloat16", frozen=True).running():
        assert rounded_names(model) == linear
    assert rounded_names(model) == set()
    with Computing(model, "float32", frozen=True).running():
        assert rounded_names(model) == set()


def test_a_rounded_weight_is_the_nearest_and_copies_share_it(model):
    computing = Computing(model, "bfloat16", frozen=True)
    other = LanguageModel(with_the_same_weights(model.hf_model), model.tokenizer, "copy")
    heads = [each.hf_model.get_output_embeddings() for each in (model, other)]
    with computing.running(), computing.of_copy(other).running():
        first, second = (weight_now(head) for head in heads)
    assert torch.equal(first, heads[0].weight.bfloat16())
    assert first is second


@pytest.mark.parametrize("bias", [False, True])
def test_a_token_is_read_exactly_and_only_the_normaliser_is_rounded(model, bias):
    """Against logits of the same rounded hidden states, by single precision products."""
    head = model.hf_model.get_output_embeddings()
    if bias:
        head.bias = torch.nn.Parameter(torch.randn(head.out_features))
    hidden = []
    handle = head.register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
    ids = torch.arange(4, 18).reshape(2, 7)
    places, place, token = torch.tensor([0, 3, 9]), np.array([2, 0, 1]), np.array([5, 40, 7])
    with torch.inference_mode(), Computing(model, "bfloat16", frozen=True).running():
        read = token_log_probs(model.hf_model, {"input_ids": ids}, places, place, token)
    handle.remove()
    states = hidden[-1].float().flatten(0, 1)[places].double()
    logits = states @ head.weight.detach().double().T
    if bias:
        logits += head.bias.detach().double()
    chosen = logits[place, token].numpy()
    normaliser = torch.logsumexp(logits, -1)[place].numpy()
    np.testing.assert_allclose(read, chosen - normaliser, atol=3e-3)
    # Rounded logits of single tokens would be off by more.
    with torch.inference_mode():
        coarse = torch.nn.functional.linear(states.bfloat16(), head.weight.bfloat16())
    assert (
        np.abs(coarse.double().numpy() - (states @ head.weight.detach().double().T).numpy()).max()
        > 3e-3
    )
