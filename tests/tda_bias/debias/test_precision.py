"""Training in bfloat16: close to single precision, and nothing of the model is rounded for good."""

import numpy as np
import pytest
import torch

from tda_bias.debias.learners import learner, undone
from tda_bias.models.hooks import Computing
from tda_bias.types import HeadId

HEADS = [HeadId(0, 1), HeadId(0, 3), HeadId(1, 0), HeadId(1, 2)]
ITEMS = [0, 5, 9, 14]


@pytest.fixture
def texts(twin_texts):
    return twin_texts()


@pytest.mark.parametrize("how", ["gates", "tune", "lora", "full"])
def test_gradients_and_outcomes_are_close_to_those_of_single_precision(texts, how):
    def read(precision):
        with undone(learner(how, texts.model, HEADS)) as learned:
            texts.model.hf_model.zero_grad()
            computing = Computing(texts.model, precision)
            with computing.running(), learned.running():
                gaps = texts.means(ITEMS).gaps()
                outcomes = texts.answers(ITEMS)
            (gaps**2).sum().backward()
            slopes = [p.grad for p in learned.parameters() if p.grad is not None]
            assert all(slope.dtype == torch.float32 for slope in slopes)
            return outcomes, torch.cat([slope.flatten() for slope in slopes])

    (exact, slope), (rounded, rounded_slope) = read("float32"), read("bfloat16")
    error = np.abs(rounded.gap - exact.gap)
    assert 0 < error.max() < 0.02 + 0.1 * np.abs(exact.gap).max()
    assert torch.cosine_similarity(slope, rounded_slope, dim=0) > 0.98


def test_a_gate_is_not_rounded(texts):
    """What it multiplies is, and what comes out; not the gate itself, learned to many places."""

    def written(gate):
        seen = []
        with undone(learner("gates", texts.model, HEADS)) as gates:
            gates.load({"gates": torch.full((len(HEADS),), gate)})
            with Computing(texts.model, "bfloat16").running(), gates.running(), torch.no_grad():
                projection = texts.model.hf_model.model.layers[0].self_attn.o_proj
                handle = projection.register_forward_pre_hook(lambda _, z: seen.append(z[0]))
                texts.means(ITEMS).gaps()
                handle.remove()
        return seen[0].float()

    rounded = float(torch.tensor(1.01).bfloat16())
    assert (written(1.01) != written(rounded)).float().mean() > 0.05
