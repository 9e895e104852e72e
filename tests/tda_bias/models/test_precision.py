"""Rounded products, what is rounded in them, and readings made with them."""

import numpy as np
import pytest
import torch

from tda_bias.models.hooks import Computing, slowdown_of_half
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import token_log_probs
from tda_bias.models.scoring import Scorer
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model
from tests.support.trees import tree_of

HEAD = "lm_head"


@pytest.fixture
def model(tokenizer):
    return LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")


def linear(model):
    return {n: m for n, m in model.hf_model.named_modules() if isinstance(m, torch.nn.Linear)}


def rounded_names(model):
    """Linear maps whose products are in half precision now."""
    names = set()
    for name, module in linear(model).items():
        given = torch.ones(1, module.in_features)
        if module(given).dtype == torch.bfloat16 and "forward" in vars(module):
            names.add(name)
    return names


def test_weights_that_may_learn_are_not_rounded_unless_all_are_frozen(model):
    every = set(linear(model))
    model.hf_model.requires_grad_(False)
    learning = model.hf_model.model.layers[0].self_attn.q_proj
    learning.weight.requires_grad_(True)
    with Computing(model, "bfloat16").running():
        assert rounded_names(model) == every - {"model.layers.0.self_attn.q_proj"}
    with Computing(model, "bfloat16", frozen=True).running():
        assert rounded_names(model) == every - {HEAD}
        logits = linear(model)[HEAD](torch.ones(1, 32, dtype=torch.bfloat16))
        assert logits.dtype == torch.float32
    assert not any("forward" in vars(module) for module in model.hf_model.modules())
    with Computing(model, "float32", frozen=True).running():
        assert rounded_names(model) == set()


def test_what_others_put_into_a_module_stays(model):
    module = model.hf_model.model.layers[1].mlp.up_proj
    theirs = module.forward
    vars(module)["forward"] = theirs
    with Computing(model, "bfloat16", frozen=True).running():
        assert vars(module)["forward"] is theirs
    assert vars(module)["forward"] is theirs


def test_running_may_stand_around_itself(model):
    computing = Computing(model, "bfloat16", frozen=True)
    with computing.running():
        before = rounded_names(model)
        weight = linear(model)["model.layers.0.mlp.up_proj"].weight
        assert torch.equal(computing._rounded[weight], weight.bfloat16())
        with computing.running():
            assert rounded_names(model) == before
        assert rounded_names(model) == before
    assert rounded_names(model) == set()


@pytest.mark.parametrize("size", [1, 30])
@pytest.mark.parametrize("bias", [False, True])
def test_the_output_embeddings_are_not_rounded(model, bias, size):
    """Also where predictions are confident, and a rounded logit would be all of the normaliser."""
    head = model.hf_model.get_output_embeddings()
    with torch.no_grad():
        head.weight.mul_(size)
    if bias:
        head.bias = torch.nn.Parameter(torch.randn(head.out_features))
    hidden = []
    handle = head.register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
    ids = torch.arange(4, 18).reshape(2, 7)
    places = torch.tensor([0, 3, 9])
    inputs = {"input_ids": ids}
    with torch.inference_mode(), Computing(model, "bfloat16", frozen=True).running():
        logits = model.hf_model(**inputs).logits.flatten(0, 1)[places]
        place, token = np.array([2, 0, 1]), logits.argmax(-1)[[2, 0, 1]].numpy()
        read = token_log_probs(model.hf_model, inputs, places, place, token)
    handle.remove()
    states = hidden[-1].flatten(0, 1)[places].double()
    exact = states @ head.weight.detach().double().T
    if bias:
        exact += head.bias.detach().double()
    by_definition = torch.log_softmax(exact, -1)[place, token].numpy()
    np.testing.assert_allclose(read, by_definition, atol=2e-5 * size)
    assert (read <= 1e-5 * size).all()


def test_rounding_is_not_taken_for_a_model_that_sees_what_comes_later(model):
    """On processors with instructions for it, rounding differs with the size of the batch."""
    tree = tree_of([[5, 6, 7, 8, 9], [5, 6, 7, 10, 11, 12]], 1)

    def by_batch(size, _, hidden):
        return hidden * (1 + size * len(hidden))

    def rounding(module, given, hidden):
        return by_batch(0.2, given, hidden) if torch.is_autocast_enabled("cpu") else hidden

    norm = model.hf_model.model.norm
    hook = norm.register_forward_hook(lambda _, given, hidden: by_batch(5e-3, given, hidden))
    with pytest.raises(InputError, match="differently in a batch"):
        Scorer(model, batch_size=4).log_probs([tree])
    hook.remove()
    (exact,) = Scorer(model, batch_size=4).log_probs([tree])
    norm.register_forward_hook(rounding)
    for frozen in (False, True):
        scorer = Scorer(model, batch_size=4)
        with Computing(model, "bfloat16", frozen=frozen).running():
            (rounded,) = scorer.log_probs([tree])
        assert scorer.packed
        assert np.abs(rounded - exact).max() > 0.5


def test_half_precision_is_timed_on_a_processor_alone():
    assert slowdown_of_half(torch.device("meta")) == 1.0
    assert slowdown_of_half(torch.device("cpu")) > 0.0
