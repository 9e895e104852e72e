"""StereoSet's intrasentence half, and the official table from its authors' scores of items."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tda_bias.config import SentenceConfig
from tda_bias.scores.stereoset import scores
from tda_bias.scores.stereoset_scores import sentence_scores
from tda_bias.triples import SentenceTriple
from tda_bias.types import InputError
from tests.support.literal import causal_steps

GOLDEN = Path(__file__).parents[2] / "golden"
SENTENCES = [
    SentenceTriple("1", "nurse", "profession", "The nurse is she", "The nurse is he", "The nurse is"
                   " cook"),
    SentenceTriple("2", "nurse", "profession", "he wrote it", "heiress wrote it", "cook wrote it"),
    SentenceTriple("3", "man", "gender", "The man knew", "The man felt", "The man woman"),
]  # fmt: skip


def test_nothing_to_score_is_refused(tiny_lm):
    with pytest.raises(InputError, match="there is no item to score"):
        sentence_scores(tiny_lm("gpt2"), [])
    first_words = [SentenceTriple("1", "g", "gender", "she knew", "that knew", "man knew")]
    model = tiny_lm("gpt2")
    found = sentence_scores(model, first_words)
    assert set(found.scores["scored"]) == {"whole"}  # no differing word can be read


def test_whole_sentences_and_differing_words_are_sums_of_their_tokens(tiny_lm):
    model = tiny_lm("gpt2")
    items = sentence_scores(model, SENTENCES).items
    assert len(items) == 2 * len(SENTENCES)
    for row in items.to_dict("records"):
        sentence = next(one for one in SENTENCES if one.id == row["id"])
        for role, text in zip("sau", sentence.texts(), strict=True):
            ids = model.tokenizer(text)["input_ids"]
            values = causal_steps(model, ids)
            if row["scored"] == "difference":
                spoken = text.split()[0] if sentence.id == "2" else text.split()[-1]
                n = len(
                    model.tokenizer(spoken if sentence.id == "2" else f" {spoken}")["input_ids"]
                )
                values = values[: n - 1] if sentence.id == "2" else values[-n:]
            assert row[f"tokens_{role}"] == len(values)
            if values:
                assert row[f"log_prob_{role}"] == pytest.approx(sum(values), abs=1e-4)
            else:
                assert np.isnan(row[f"log_prob_{role}"])


def test_items_without_a_readable_word_are_counted_not_scored(tiny_lm):
    found = sentence_scores(tiny_lm("gpt2"), SENTENCES)
    everything = found.scores[
        (found.scores["category"] == "all") & (found.scores["scoring"] == "sum")
    ]
    by = everything.set_index("scored")
    assert by["undefined"].to_dict() == {"whole": 0, "difference": 1}
    assert by["items"].to_dict() == {"whole": 3, "difference": 2}
    started = sentence_scores(tiny_lm("gpt2"), SENTENCES, config=SentenceConfig(start="bos"))
    assert set(started.scores["undefined"]) == {0}


def test_masked_models_have_both_readings_of_both(tiny_lm):
    seen = []
    found = sentence_scores(
        tiny_lm("bert"), SENTENCES, progress=lambda *counts: seen.append(counts)
    )
    pairs = found.scores[["reading", "scored"]].drop_duplicates().to_numpy().tolist()
    assert sorted(pairs) == [
        ["pll", "difference"], ["pll", "whole"],
        ["pll_within_word", "difference"], ["pll_within_word", "whole"],
    ]  # fmt: skip
    assert seen[-1] == (6, 6)
    assert set(found.length_split["scored"]) == {"whole", "difference"}


@pytest.mark.parametrize("place", range(3))
def test_official_item_scores_give_the_official_table(place):
    """All three categories of three models, as StereoSet's authors evaluated them."""
    known = json.loads((GOLDEN / "stereoset_items.json").read_text())
    with np.load(GOLDEN / "stereoset_items.npz") as saved:
        own = saved["model"] == place
        arrays = {name: saved[name][own] for name in saved.files}
    items = pd.DataFrame(arrays["scores"], columns=[f"log_prob_{role}" for role in "sau"]).assign(
        category=[known["categories"][i] for i in arrays["category"]],
        group=arrays["term"].astype(str),
        **dict.fromkeys(("tokens_s", "tokens_a", "tokens_u"), 1),
    )
    found = scores(items)
    found = found[(found["group"] == "all") & (found["scoring"] == "sum")].set_index("category")
    for category, values in known["official"][known["models"][place]].items():
        for name in ("ss", "lms"):
            assert found.loc[category, name] == pytest.approx(values[name], abs=1e-9)
    if known["models"][place] == "gpt2":
        assert found.loc["gender", ["ss", "lms"]].round(4).tolist() == [62.6678, 93.2779]
        assert found.loc["race", ["ss", "lms"]].round(4).tolist() == [60.3500, 89.7567]
        assert found.loc["religion", ["ss", "lms"]].round(4).tolist() == [58.0230, 88.4598]
