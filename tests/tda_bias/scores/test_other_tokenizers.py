"""Right values with tokenizers unlike English ones, against plain forward passes of whole texts."""

import numpy as np
import pytest

from tda_bias.models.language_model import LanguageModel, special_tokens_around
from tda_bias.pairs import PairSet
from tda_bias.scores.pair_scores import pair_items
from tda_bias.types import InputError
from tests.support.literal import causal_steps, masked_step
from tests.support.models import tiny_hf_model
from tests.support.pairs import pair
from tests.support.tokenizers import Wrapped, trained, uncased

RUSSIAN = ["Медсестра пришла домой", "Инженер пришёл домой", "Она любит читать"] * 20
SPECIAL = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}


def model_of(tokenizer, kind="llama", **changes):
    hf_model = tiny_hf_model(kind, len(tokenizer), **{**SPECIAL, **changes})
    return LanguageModel(hf_model, tokenizer, f"tiny-{kind}")


def whole(model, text):
    """The log-probability of a text, as its tokenizer writes it with its special tokens."""
    ids = model.tokenizer(text)["input_ids"]
    if model.kind == "causal":
        return sum(causal_steps(model, ids))
    return sum(masked_step(model, ids, place) for place in range(1, len(ids) - 1))


def set_of(*pairs):
    return PairSet("own", pairs, "here", None)


# -- special tokens around a text ------------------------------------------------------------------


class Silent(Wrapped):
    """Writes no text at all."""

    def __call__(self, text, **options):
        return {"input_ids": [] if options else [0]}


def test_a_tokenizer_that_writes_nothing_is_refused():
    with pytest.raises(InputError, match="writes no text"):
        special_tokens_around(Silent(trained(RUSSIAN)))


@pytest.mark.parametrize(
    ("form", "around"), [("<s> $A", ([0], [])), ("<s> $A </s>", ([0], [2])), ("$A </s>", ([], [2]))]
)
def test_special_tokens_are_found_where_no_english_word_becomes_tokens(form, around):
    tokenizer = trained(RUSSIAN, form=form, bytes_=False)
    assert tokenizer("that", add_special_tokens=False)["input_ids"] == []
    assert special_tokens_around(tokenizer) == around


@pytest.mark.parametrize("unknown", ["<s>", "</s>"])
def test_special_tokens_are_found_where_english_is_the_unknown_token_of_the_same_name(unknown):
    tokenizer = trained(RUSSIAN, form="<s> $A </s>", bytes_=False, unk_token=unknown)
    assert set(tokenizer("that", add_special_tokens=False)["input_ids"]) <= {0, 2}
    assert special_tokens_around(tokenizer) == ([0], [2])


@pytest.mark.parametrize(("kind", "form"), [("llama", "<s> $A"), ("bert", "<s> $A </s>")])
def test_texts_without_english_letters_are_scored_with_their_special_tokens(kind, form):
    model = model_of(trained(RUSSIAN, form=form, bytes_=False), kind)
    pairs = [
        pair("Медсестра пришла домой", "Инженер пришла домой", id="1"),
        pair("Она любит читать", "Он любит читать", id="2"),
    ]
    table = pair_items(model, set_of(*pairs)).query("reading in ('log_prob', 'pll')")
    for row, own in zip(table.to_dict("records"), pairs, strict=True):
        assert row["log_prob_more"] == pytest.approx(whole(model, own.more), abs=1e-4)
        assert row["log_prob_less"] == pytest.approx(whole(model, own.less), abs=1e-4)
