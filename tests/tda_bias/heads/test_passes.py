"""Tokens and batches: every text once, prefixes by token, little padding."""

import pytest
import torch

from tda_bias.heads.texts import forward_passes, tokenize
from tda_bias.models.language_model import batches_of_similar_width
from tda_bias.types import InputError, Triple
from tests.support.patterns import made_up

# -- batches --


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 5, 32])
def test_passes_hold_every_text_once_and_never_more_than_asked(tokenizer, shared, batch_size):
    triples = made_up(len(tokenizer)) * 5
    passes = list(forward_passes(triples, batch_size=batch_size, shared=shared))
    texts = torch.cat([one.text for one in passes]).tolist()
    assert sorted(texts) == list(range(60))
    assert max(len(one.text) for one in passes) <= max(batch_size, 3 if shared else 1)
    for one in passes:
        for text, length in zip(one.text.tolist(), one.length.tolist(), strict=True):
            assert length == len(triples[text // 3].ids[text % 3])


def test_a_prefix_run_once_saves_its_tokens(tokenizer):
    triple = made_up(len(tokenizer))[0]
    assert triple.n_tokens == (9, 7, 12)
    assert triple.n_packed == 9 + 7 + 12 - 2 * 4


def test_batches_are_cut_where_padding_costs_most():
    widths = [100, 10, 11, 101, 12]
    assert batches_of_similar_width(widths, most=5) == [[1, 2, 4], [0, 3]]
    assert batches_of_similar_width([5, 5, 5], most=2) in ([[0], [1, 2]], [[0, 1], [2]])


# -- tokens --


def triple(context: str, *continuations: str) -> Triple:
    return Triple("g", "gender", context, *continuations, source="file line 7")


def test_the_common_prefix_is_one_of_tokens_not_of_characters(tokenizer):
    (found,) = tokenize(
        tokenizer, [triple("The girl", "danced.", "dances.", "ran.")], max_tokens=None
    )
    assert found.prefix == 2
    assert found.n_tokens == (4, 4, 4)


def test_special_tokens_are_those_of_the_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "a": 2, "?": 3}, unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=raw)
    (found,) = tokenize(wrapped, [triple("a", "a", "b", "c")], max_tokens=None)
    assert found.ids == ([0, 2, 2, 1], [0, 2, 3, 1], [0, 2, 3, 1])
    assert found.prefix == 2


def test_a_text_longer_than_the_context_is_refused_by_name(tokenizer):
    long = triple("The girl", "word " * 30, "ran.", "ran.")
    with pytest.raises(InputError, match=r"file line 7 \(group g\): .* 32 tokens, the model takes"):
        tokenize(tokenizer, [long], max_tokens=20)
