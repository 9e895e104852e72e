"""Right values with tokenizers unlike English ones, against plain forward passes of whole texts."""

import numpy as np
import pytest

from tda_bias.models.language_model import LanguageModel, common_prefix, special_tokens_around
from tda_bias.models.requests import continuations
from tda_bias.models.scored import scored
from tda_bias.pairs import PairSet
from tda_bias.scores.likelihood import triple_likelihoods
from tda_bias.scores.pair_scores import pair_items
from tda_bias.types import InputError, Triple
from tests.support.literal import causal_steps, ids_of, masked_step
from tests.support.models import tiny_hf_model
from tests.support.pairs import pair
from tests.support.tokenizers import Wrapped, trained

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


# -- tokens that span words ------------------------------------------------------------------------

# "late. She" is one token of such a tokenizer, "late. The" is not.
SPANNING = ["She came late. She sang.", "He came late. She sang.", "We came late. She sat."] * 20
SPANNING += ["The cook was here.", "The cook sang."] * 20
LATE = Triple("c", "own", "He came late.", "She sang.", "The cook sang.", "We sat.")


@pytest.fixture(scope="module")
def spanning():
    model = model_of(trained(SPANNING, whole_texts=True))
    ids = [ids_of(model.tokenizer, text) for text in (LATE.context, *LATE.texts())]
    shared = [common_prefix(ids[0], text) for text in ids[1:]]
    assert len(set(shared)) > 1  # a token of one text alone spans context and continuation
    return model


def test_texts_are_compared_from_the_same_character(spanning):
    """The log-odds are those of the whole texts: what stands before is the same and cancels."""
    (found,) = triple_likelihoods(spanning, [LATE])
    wholes = np.array([whole(spanning, text) for text in LATE.texts()])
    np.testing.assert_allclose(np.diff(found.total), np.diff(wholes), atol=1e-4)


def test_answers_are_compared_from_the_same_character(spanning):
    answers = [LATE.stereotype, LATE.anti_stereotype, LATE.unrelated]
    requests = continuations(spanning, [LATE.context], [answers])
    (found,) = scored(spanning, requests)
    wholes = np.array([whole(spanning, text) for text in LATE.texts()])
    np.testing.assert_allclose(np.diff([own.sum() for own in found]), np.diff(wholes), atol=1e-4)


def test_differing_words_are_compared_from_the_same_character_to_the_same(spanning):
    more, less = "He came late. She sang.", "He came late. We sang."
    row = pair_items(spanning, set_of(pair(more, less, scored="difference"))).iloc[0]
    ids = [ids_of(spanning.tokenizer, text) for text in (more, less)]
    pieces = [[spanning.tokenizer.decode([token]) for token in own] for own in ids]
    before = common_prefix(*pieces)
    after = common_prefix(pieces[0][::-1], pieces[1][::-1])
    ends = [len("".join(own[: len(own) - after])) for own in pieces]
    assert more[ends[0] :] == less[ends[1] :]
    assert len("".join(pieces[0][:before])) < more.index("She") - 1  # a token holds more than it
    for name, own in zip(("more", "less"), ids, strict=True):
        steps = causal_steps(spanning, [0, *own])[before : len(own) - after]
        assert row[f"log_prob_{name}"] == pytest.approx(sum(steps), abs=1e-4)
        assert row[f"tokens_{name}"] == len(steps)
