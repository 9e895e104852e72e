"""Log-probabilities of texts and triples by the definition, text by text, and by minicons."""

import warnings

import numpy as np
import pytest

from tda_bias.models.load import LanguageModel
from tda_bias.scores.likelihood import TextReader, triple_likelihoods
from tda_bias.scores.texts import Contrast, tokenize
from tda_bias.types import InputError, Triple
from tests.support.literal import log_softmax_at
from tests.support.tokenizers import Wrapped

CONTRASTS = [
    Contrast(("The nurse said that he knew.", "The nurse said that she knew."), source="one"),
    Contrast(("The heiress wrote", "The old cook wrote"), scored="difference"),
    Contrast(("She knew that she felt it", "She knew that he did"), context="She knew"),
    Contrast(("he", "she and"), scored="difference"),
    Contrast(("The heiress wrote", "The cook wrote", "The that wrote")),
]
TRIPLES = [
    Triple("nurse", "profession", "The nurse said that.", "She knew it", "He knew it", "A cook he"),
    Triple("cook", "profession", "The cook wrote", "that he felt", "that she", "man man man woman"),
]
CAUSAL = ["gpt2", "llama", "gpt_neox", "opt", "bloom", "gemma2"]
# Among them a head that is not called, one class for two kinds, and outputs that padding changes.
MASKED = ["bert", "roberta", "distilbert", "mobilebert", "xlm", "convbert", "fnet"]


def text_log_probs(model, contrasts, progress=None, **options):
    return TextReader(model, **options).read(contrasts, progress=progress)


def scored_places(model, contrast, text):
    """By characters, one token after the other."""
    encoded = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    first, last = 0, len(text)
    if contrast.scored == "difference":
        differing = {
            # With the space, which is in one token with the first letters of the heiress.
            "The heiress wrote": " heiress",
            "The old cook wrote": " old cook",
            "he": "he",
            "she and": "she and",
        }[text]
        first = text.index(differing)
        last = first + len(differing)
    elif contrast.context:
        first = len(contrast.context)
    places = [
        place
        for place, (a, b) in enumerate(encoded["offset_mapping"])
        if any(first <= character < last for character in range(a, b))
    ]
    return encoded["input_ids"], places


def log_prob(model, ids, place, token):
    return float(log_softmax_at(model.hf_model, place, input_ids=ids)[token])


@pytest.mark.parametrize("kind", CAUSAL)
def test_causal_models_follow_the_chain_rule(tiny_lm, kind):
    model = tiny_lm(kind)
    found = text_log_probs(model, CONTRASTS)
    assert list(found) == ["log_prob"]
    for contrast, own in zip(CONTRASTS, found["log_prob"], strict=True):
        for text, values in zip(contrast.texts, own, strict=True):
            ids, places = scored_places(model, contrast, text)
            expected = [log_prob(model, ids[:p], p - 1, ids[p]) for p in places if p > 0]
            np.testing.assert_allclose(values, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "bloom", "roberta", "convbert", "t5"])
def test_triples_are_contrasts_whose_contexts_causal_models_read_too(tiny_lm, kind):
    model = tiny_lm(kind, **({"decoder_start_token_id": 1} if kind == "t5" else {}))
    texts = text_log_probs(model, [Contrast.of(triple) for triple in TRIPLES])
    found = triple_likelihoods(model, TRIPLES)
    for triple, own, expected in zip(TRIPLES, found, next(iter(texts.values())), strict=True):
        for values, of_text in zip(own.tokens, expected, strict=True):
            np.testing.assert_allclose(values, of_text, atol=2e-4)
        np.testing.assert_allclose(own.total, [values.sum() for values in own.tokens])
        ids = model.tokenizer(triple.context)["input_ids"]
        causal = kind in CAUSAL
        steps = [log_prob(model, ids[:p], p - 1, ids[p]) for p in range(1, len(ids)) if causal]
        assert own.context == pytest.approx(sum(steps) if causal else np.nan, nan_ok=True, abs=1e-4)


def test_a_start_token_makes_the_first_token_readable(tiny_lm):
    model = tiny_lm("gpt2")
    texts = ("he knew", "that knew")
    (own,) = text_log_probs(model, [Contrast(texts)], start="bos")["log_prob"]
    for text, values in zip(texts, own, strict=True):
        ids = [model.tokenizer.bos_token_id, *model.tokenizer(text)["input_ids"]]
        expected = [log_prob(model, ids[:p], p - 1, ids[p]) for p in range(1, len(ids))]
        np.testing.assert_allclose(values, expected, atol=1e-4)


def masked_by_definition(model, ids, places, within_word, word_ids):
    values = []
    for place in places:
        row = list(ids)
        for other in range(place, len(ids)):
            later_piece = within_word and word_ids[other] == word_ids[place]
            if other == place or later_piece:
                row[other] = model.tokenizer.mask_token_id
        values.append(log_prob(model, row, place, ids[place]))
    return values


@pytest.mark.parametrize("kind", MASKED)
def test_masked_models_mask_each_token_and_the_rest_of_its_word(tiny_lm, kind):
    model = tiny_lm(kind)
    found = text_log_probs(model, CONTRASTS, batch_size=7)
    assert list(found) == ["pll", "pll_within_word"]
    differ = 0
    for i, contrast in enumerate(CONTRASTS):
        for j, text in enumerate(contrast.texts):
            ids, places = scored_places(model, contrast, text)
            words = model.tokenizer(text, add_special_tokens=False).word_ids()
            for reading in found:
                within = reading == "pll_within_word"
                expected = masked_by_definition(model, ids, places, within, words)
                np.testing.assert_allclose(found[reading][i][j], expected, atol=1e-4)
            differ += int(not np.allclose(found["pll"][i][j], found["pll_within_word"][i][j]))
    assert differ >= 3  # heiress is of several pieces


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_masked_scores_are_those_of_minicons(tiny_lm, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from minicons.scorer import MaskedLMScorer
    model = tiny_lm(kind)
    # It asks for the two special tokens that are not scored, by BERT's names.
    model.tokenizer.cls_token, model.tokenizer.sep_token = "<s>", "</s>"
    oracle = MaskedLMScorer(model.hf_model, device="cpu", tokenizer=model.tokenizer)
    texts = ("The heiress said that he knew.", "The woman said she knew heiress and heiress.")
    found = text_log_probs(model, [Contrast(texts)])
    for reading, metric in (("pll", "original"), ("pll_within_word", "within_word_l2r")):
        for text, values in zip(texts, found[reading][0], strict=True):
            # Its own tokenising calls what transformers 5 no longer has.
            encoded = model.tokenizer([text])
            prepared = oracle.prepare_text(encoded, PLL_metric=metric)
            (expected,) = oracle.compute_stats(prepared, return_tensors=True)
            np.testing.assert_allclose(values, expected.numpy(), atol=1e-4)


def test_shared_tokens_are_those_that_both_texts_have_in_order(tiny_lm):
    model = tiny_lm("bert")
    texts = ("The cook man said she knew.", "The woman said he knew that.")
    (one,) = tokenize(model, [Contrast(texts, scored="shared")])
    first, second = (
        [ids[p] for p in places] for ids, places in zip(one.ids, one.scored, strict=True)
    )
    assert first == second
    spelled = model.tokenizer.decode(first)
    assert "said" in spelled
    assert "cook" not in spelled
    (found,) = text_log_probs(model, [Contrast(texts, scored="shared")])["pll"]
    for ids, places, values in zip(one.ids, one.scored, found, strict=True):
        expected = masked_by_definition(model, ids, places, False, ids)
        np.testing.assert_allclose(values, expected, atol=1e-4)
    (nothing,) = tokenize(model, [Contrast((" he", " she"), scored="shared")])
    assert [len(places) for places in nothing.scored] == [0, 0]


@pytest.mark.parametrize("kind", ["t5", "bart", "switch", "nllb_moe"])
def test_encoder_decoders_fill_a_gap_behind_the_context(tiny_lm, kind):
    model = tiny_lm(kind, decoder_start_token_id=1)
    found = text_log_probs(model, CONTRASTS, batch_size=4)["log_prob"]
    gap = model.tokenizer.convert_tokens_to_ids("<extra_id_0>")
    for contrast, own in zip(CONTRASTS, found, strict=True):
        source = f"{contrast.context or ''} <extra_id_0>".strip()
        source = model.tokenizer(source)["input_ids"]
        for text, values in zip(contrast.texts, own, strict=True):
            ids, places = scored_places(model, contrast, text)
            n = len(model.tokenizer(contrast.context)["input_ids"]) if contrast.context else 0
            expected = []
            for place in places:
                given = {"input_ids": source, "decoder_input_ids": [1, gap, *ids[n:place]]}
                expected.append(float(log_softmax_at(model.hf_model, -1, **given)[ids[place]]))
            np.testing.assert_allclose(values, expected, atol=1e-4)


def test_what_cannot_be_scored_is_refused(tiny_lm):
    model = tiny_lm("gpt2")
    with pytest.raises(InputError, match="xlnet is a permutation language model"):
        text_log_probs(tiny_lm("xlnet"), CONTRASTS)
    with pytest.raises(InputError, match="p7: the tokenizer makes no token of a text, its context"):
        text_log_probs(model, [Contrast(("She", "She"), context="She", source="p7")])
    with pytest.raises(InputError, match="here: the tokenizer makes no token of a text"):
        triple_likelihoods(model, [Triple("g", "gender", "", "a", "b", "c", source="here")])
    with pytest.raises(InputError, match="`model` tiny-gpt2 takes 128"):
        text_log_probs(model, [Contrast(("he " * 200, "she"))])


@pytest.mark.parametrize("kind", ["fsmt", "prophetnet"])
def test_decoders_that_see_what_comes_later_are_refused(tiny_lm, kind):
    with pytest.raises(InputError, match="reads a text differently in a batch than alone"):
        text_log_probs(tiny_lm(kind, decoder_start_token_id=1), CONTRASTS)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_broken_weights_are_refused(tiny_lm, kind):
    model = tiny_lm(kind)
    next(model.hf_model.parameters()).data[:] = float("nan")
    with pytest.raises(InputError, match=f"tiny-{kind} gives NaN for .* weights are broken"):
        text_log_probs(model, CONTRASTS)


class NoOffsets(Wrapped):
    """A tokenizer without an alignment, as the slow ones are."""

    is_fast = False

    def __call__(self, *arguments, **options):
        options.pop("return_offsets_mapping", None)
        return self._tokenizer(*arguments, **options)


def test_tokenizers_without_an_alignment_score_whole_texts_only(tiny_lm):
    fast = tiny_lm("bert")
    slow = LanguageModel(fast.hf_model, NoOffsets(fast.tokenizer), "slow")
    whole = text_log_probs(slow, CONTRASTS[:1])
    assert list(whole) == ["pll"]
    expected = text_log_probs(fast, CONTRASTS[:1])["pll"]
    np.testing.assert_array_equal(whole["pll"][0][0], expected[0][0])
    with pytest.raises(InputError, match="does not tell where in a text its tokens stand"):
        text_log_probs(slow, CONTRASTS[1:2])
