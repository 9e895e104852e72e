"""Networks without what they have learnt."""

import pytest
import torch

from tda_bias.models.hooked import initialised, untrained
from tda_bias.models.load import LanguageModel, LoadedModel
from tests.support.models import tiny_hf_model


def test_an_untrained_twin_has_random_weights_and_leaves_the_model_alone(tokenizer):
    hf_model = tiny_hf_model("llama", len(tokenizer))
    model = LanguageModel(hf_model, tokenizer, "m")
    before = model.weight_hash()
    twin, again, other = untrained(model), untrained(model), untrained(model, seed=1)
    assert model.weight_hash() == before != twin.weight_hash() == again.weight_hash()
    assert other.weight_hash() != twin.weight_hash()
    assert max(float(p.detach().abs().max()) for p in twin.hf_model.parameters()) <= 0.1
    assert twin.name == "m, random weights"


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_an_initialised_twin_can_be_hooked_and_leaves_the_model_alone(tiny, kind):
    model = tiny(kind)
    before, state = model.weight_hash(), torch.random.get_rng_state()
    twin, again, other = initialised(model), initialised(model), initialised(model, seed=1)
    assert model.weight_hash() == before != twin.weight_hash() == again.weight_hash()
    assert other.weight_hash() != twin.weight_hash()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert isinstance(twin, LoadedModel)
    assert twin.pattern_hooks == model.pattern_hooks
    assert twin.tokenizer is model.tokenizer
    assert twin.name == f"tiny-{kind}, random weights"
    if kind == "t5":
        return
    weights = twin.hf_model.transformer.wpe.weight.detach()
    assert float(weights.std()) == pytest.approx(twin.hf_model.config.initializer_range, rel=0.1)
    assert torch.all(twin.hf_model.transformer.ln_f.weight == 1)
