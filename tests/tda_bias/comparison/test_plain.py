"""The battery's numbers on SmolLM2 against a plain computation: one text at a time, no batching."""

import numpy as np
import pytest
import torch

from tda_bias.pairs import load_pairs
from tda_bias.scores.pair_scores import pair_items
from tda_bias.scores.perplexity import log_perplexity, text_windows
from tda_bias.sources import load_neutral_text
from tests.support.pairs import pairs_folder

TOLERANCE = 1e-4  # nats per item

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def plain(smollm2_plain):
    """Log-probabilities of every token of one sequence but the first, by ``transformers`` alone."""
    model = smollm2_plain.hf_model

    def values(ids):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].double()
        own = torch.log_softmax(logits[:-1], dim=-1)
        return own[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].numpy()

    return values


@pytest.fixture(scope="module")
def smollm2_plain():
    from tda_bias.models.load import load_language_model

    return load_language_model("smollm2-135m", device="cpu")


@pytest.mark.parametrize("name", ["crows", "winobias", "blimp"])
def test_pairs_agree_with_one_text_at_a_time(smollm2_plain, plain, name):
    data = pairs_folder("crows_pairs") if name == "crows" else None
    pairs = load_pairs(name, data=data).pairs[::120]
    items = pair_items(smollm2_plain, pairs)
    for pair, row in zip(pairs, items.to_dict("records"), strict=True):
        for side, text in zip(("more", "less"), pair.texts(), strict=True):
            expected = plain(smollm2_plain.tokenizer(text)["input_ids"]).sum()
            assert row[f"log_prob_{side}"] == pytest.approx(expected, abs=TOLERANCE), pair.id


def test_perplexity_agrees_with_one_window_at_a_time(smollm2_plain, plain):
    text = load_neutral_text(pairs_folder("wikitext2"))
    windows = text_windows(smollm2_plain, text.text, width=256, sample=3)
    found = log_perplexity(smollm2_plain, windows, batch_size=3)
    for ids, first, total in zip(windows.ids, windows.first, found.total, strict=True):
        expected = -plain(list(ids))[first - 1 :].sum()
        assert total == pytest.approx(expected, abs=TOLERANCE)
    assert np.all(found.n_tokens == 128)
