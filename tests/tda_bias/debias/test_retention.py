"""What holds the model is the divergence from what it was, by its definition."""

import numpy as np
import pytest
import torch

from tda_bias.debias.learners import learner, undone
from tda_bias.debias.passages import neutral_text
from tda_bias.debias.retention import Retention
from tda_bias.debias.texts import divergence
from tda_bias.types import HeadId

HEADS = [HeadId(0, 1), HeadId(0, 3), HeadId(1, 0), HeadId(1, 2)]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2"])
def test_divergence_and_entropy_are_those_of_the_logits_passage_by_passage(tiny_model, kind):
    """Gemma 2 caps its logits: there the original's are kept as they are."""
    soft = {"final_logit_softcapping": 3.0} if kind == "gemma2" else {}
    model = tiny_model(kind, **soft)
    neutral = neutral_text(model, n_learn=6, n_watch=2, width=12)
    # Of different lengths, so that some are padded.
    passages = [ids[: 12 - n] for n, ids in enumerate(neutral.learn.ids)]
    retention = Retention(model, passages).read([0, 4]).read()  # what was read is not read again
    assert float(retention.divergence([0, 1]).detach()) < 1e-6
    before = {}
    for i in range(6):
        with torch.no_grad():
            before[i] = model.hf_model(torch.tensor([passages[i]])).logits[0]
    chances = torch.softmax(torch.cat(list(before.values())) / 1.3, -1)
    entropy = float(torch.distributions.Categorical(chances).entropy().mean())
    assert retention.entropy(1.3) == pytest.approx(entropy, rel=1e-5)
    with undone(learner("tune", model, HEADS)) as own:
        with torch.no_grad():
            for parameter in own.parameters():
                parameter.mul_(1.3)
        found = float(retention.divergence([1, 4, 5]).detach())
        terms, losses = [], []
        for i in (1, 4, 5):
            ids = torch.tensor([passages[i]])
            with torch.no_grad():
                after = model.hf_model(ids).logits[0]
            terms.append(float(divergence(before[i], after)))
            losses.append(float(torch.nn.functional.cross_entropy(after[:-1], ids[0, 1:])))
        loss = float(retention.next_token_loss([1, 4, 5]).detach())
    lengths = np.array([len(passages[i]) for i in (1, 4, 5)])
    assert found == pytest.approx(np.average(terms, weights=lengths), rel=1e-4)
    assert loss == pytest.approx(np.average(losses, weights=lengths - 1), rel=1e-4)
    assert found > 1e-3
