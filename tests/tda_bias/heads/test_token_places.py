"""Places of words among tokens, against the words that the tokens spell."""

import numpy as np
import pytest

from tda_bias.heads.summaries import AttentionPaid
from tda_bias.heads.token_places import TokenPlaces, target_spans, token_places
from tda_bias.types import InputError, Triple

TRIPLE = Triple(
    group="Japanese",
    category="race",
    context="The Japanese man waited. Japanese people waited.",
    stereotype="He bowed.",
    anti_stereotype="He shouted loudly.",
    unrelated="The man waited.",
)


def spelled(tokenizer, text: str, mask: np.ndarray) -> str:
    ids = np.array(tokenizer(text)["input_ids"])
    return tokenizer.decode(ids[mask], clean_up_tokenization_spaces=False).replace(" ", "")


def test_every_token_is_of_one_part_and_spells_it(tokenizer):
    (places,) = token_places(tokenizer, [TRIPLE])
    for text, own in zip(TRIPLE.texts(), places, strict=True):
        context, continuation = TRIPLE.context, text[len(TRIPLE.context) :]
        assert spelled(tokenizer, text, own.context) == context.replace(" ", "")
        assert spelled(tokenizer, text, own.continuation) == continuation.replace(" ", "")
        assert spelled(tokenizer, text, own.target) == "JapaneseJapanese"
        assert not (own.context & own.continuation).any()
        assert own.missing == ""


def test_targets_are_found_in_their_forms_and_as_whole_words():
    def found(group, context):
        triple = Triple(group, "other", context, "a", "b", "c")
        return [context[start:end] for start, end in target_spans(triple)]

    assert found("Ethiopia", "Ethiopian food is from Ethiopia.") == ["Ethiopian", "Ethiopia"]
    assert found("baker", "The bakers asked a Baker about bakery.") == ["bakers", "Baker"]
    assert found("night nurse", "A night  nurse.") == ["night  nurse"]


def test_what_is_missing_is_said():
    def places(target, context, continuation):
        return TokenPlaces(
            *(np.array(mask, dtype=bool) for mask in (target, context, continuation))
        )

    assert "name the target" in places([0, 0], [1, 0], [0, 1]).missing
    assert "nothing but" in places([1, 0], [1, 0], [0, 1]).missing
    assert "continuation" in places([1, 0], [1, 1], [0, 0]).missing


def test_a_tokenizer_without_characters_is_one_line(tokenizer):
    class Slow:
        is_fast = False

    with pytest.raises(InputError, match="use --summary graph"):
        token_places(Slow(), [TRIPLE])


def test_attention_paid_is_literal():
    import torch

    rng = np.random.default_rng(0)
    patterns = np.tril(rng.dirichlet(np.ones(7), (2, 3, 7)))
    marks = [
        TokenPlaces(*(np.array(mask, dtype=bool) for mask in masks))
        for masks in (
            ([0, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1]),
            ([0, 0, 0, 1, 0, 0, 0], [0, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1]),
        )
    ]
    both = AttentionPaid([marks[1], marks[0]])(torch.from_numpy(patterns), [1, 0])
    for dim, (values, means) in enumerate(both):
        for text, own in enumerate(marks):
            keys = own.target if dim == 0 else own.context & ~own.target
            for head in range(3):
                paid = patterns[text, head][own.continuation][:, keys]
                spread = paid.mean(0) / paid.mean(0).sum()
                entropy = -sum(p * np.log(p) for p in spread)
                expected = [paid.sum(1).mean(), paid.sum(1).max(), entropy]
                np.testing.assert_allclose(values[text, head], expected, atol=1e-12)
                assert means[text, head] == pytest.approx(expected[0])
