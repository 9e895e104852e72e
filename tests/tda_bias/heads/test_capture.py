"""Patterns: equal to Hugging Face's, alone or in a batch, shared prefix or not."""

import copy
from dataclasses import replace

import pytest
import torch

from tda_bias.heads.patterns import PatternReader, RowCheck
from tda_bias.heads.texts import ContextTexts
from tda_bias.models.load import bridge_model
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model
from tests.support.patterns import hugging_face, made_up, read

CAUSAL = ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "mistral", "opt", "bloom"]
BIDIRECTIONAL = ["bert", "roberta", "t5", "bart"]


SHARING = [kind for kind in CAUSAL if kind != "bloom"]

# -- against Hugging Face --


def same(found, expected) -> None:
    assert set(found) == set(expected)
    for text, pattern in expected.items():
        torch.testing.assert_close(found[text], pattern, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", CAUSAL + BIDIRECTIONAL)
def test_patterns_are_hugging_faces_alone_in_a_padded_batch_and_after_a_shared_prefix(
    tokenizer, kind
):
    hf_model = tiny_hf_model(kind, len(tokenizer))
    reference = copy.deepcopy(hf_model)
    model = bridge_model(hf_model, tokenizer, name=kind)
    triples = made_up(len(tokenizer))
    texts = [ids for triple in triples for ids in triple.ids]
    expected = {index: hugging_face(reference, ids) for index, ids in enumerate(texts)}
    for pattern in expected.values():
        assert float(pattern.std(0).mean()) > 0.01, "too even to tell a wrong mask"
    same(read(model, triples, batch_size=1, shared=False), expected)
    same(read(model, triples, batch_size=32, shared=False), expected)
    for batch_size in (1, 7, 32) if kind in SHARING else ():
        same(read(model, triples, batch_size=batch_size, shared=True), expected)


def test_dropout_is_off_also_for_a_model_left_in_training_mode(tokenizer):
    """Dropout behind the embedding, as OPT and BART have it, changes patterns noticeably."""
    hf_model = tiny_hf_model("bart", len(tokenizer), dropout=0.5).train()
    reference = copy.deepcopy(hf_model).eval()
    triples = made_up(len(tokenizer))
    found = read(bridge_model(hf_model, tokenizer, name="b"), triples, batch_size=1, shared=False)
    torch.testing.assert_close(
        found[0], hugging_face(reference, triples[0].ids[0]), rtol=0, atol=1e-5
    )


# -- shared prefixes --


def test_a_text_that_is_the_beginning_of_another_is_shared_whole(tokenizer, tiny):
    model = tiny("gpt2")
    triple = ContextTexts(([5, 6, 7], [5, 6, 7, 8, 9], [5, 6, 7, 4]), 3)
    single = read(model, [triple], batch_size=1, shared=False)
    shared = read(model, [triple], batch_size=3, shared=True)
    same(shared, single)


def sharing(model, triples) -> str:
    return PatternReader(model, batch_size=8, probes=triples).sharing


@pytest.mark.parametrize(
    ("kind", "changes", "prefixes", "reason"),
    [
        ("llama", {}, (4, 3, 8, 1), "on: patterns equal the plain run's to"),
        ("bert", {}, (4, 3, 8, 1), "off: later tokens change the patterns of earlier ones"),
        ("bloom", {}, (4, 3, 8, 1), "off: the model does not take the attention mask"),
        ("mistral", {"sliding_window": 6}, (4, 3, 8, 1), "off: patterns differ by"),
        ("gpt2", {}, (0, 0, 0, 0), "off: no triple's texts begin alike"),
    ],
)
def test_sharing_is_used_where_it_is_exact(tokenizer, tiny, kind, changes, prefixes, reason):
    triples = made_up(len(tokenizer), prefixes=prefixes)
    assert sharing(tiny(kind, **changes), triples).startswith(reason)


def test_sharing_is_tried_on_the_longest_text_too(tokenizer, tiny):
    """A window that the context with the most packed tokens does not reach."""
    ids = [5 + number % (len(tokenizer) - 5) for number in range(14)]
    packed_most = ContextTexts(tuple([*ids[:2], *ids[3 + i : 8 + i]] for i in range(3)), 2)
    longest = ContextTexts((ids[:9], ids[:9], ids[:9]), 8)
    assert packed_most.n_packed > longest.n_packed
    why = sharing(tiny("mistral", sliding_window=8), [packed_most, longest])
    assert why.startswith("off: patterns differ by")


# -- what goes wrong --


def test_nan_patterns_are_named_and_leave_no_hook(tokenizer, tiny):
    model = tiny("gpt2")
    for parameter in model.hf_model.transformer.h[1].parameters():
        parameter.data.fill_(torch.nan)
    with pytest.raises(InputError, match="of layer 1 are NaN .* --dtype float32"):
        read(model, made_up(len(tokenizer)), batch_size=4, shared=False)
    for name in model.pattern_hooks:
        assert not model.bridge.hook_dict[name].fwd_hooks


def test_rows_that_do_not_sum_to_one_are_counted_by_layer(tokenizer, tiny):
    model = tiny("gpt2")
    reader = PatternReader(model, batch_size=4)
    found = reader.rows = RowCheck(tolerance=-1.0)
    triples = made_up(len(tokenizer))
    for _ in reader.read(triples):
        pass
    rows = 4 * sum(sum(triple.n_tokens) for triple in triples)  # heads x tokens
    assert found.failed == {0: rows, 1: rows}
    assert found.worst < 1e-5


def test_a_model_that_looks_ahead_is_not_taken_for_causal(tokenizer, tiny):
    model = replace(tiny("bert"), attention="causal")
    with pytest.raises(InputError, match="attends to later tokens though it is causal"):
        read(model, made_up(len(tokenizer)), batch_size=4, shared=False)
