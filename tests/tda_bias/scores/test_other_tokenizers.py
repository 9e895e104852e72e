"""Right values with tokenizers unlike English ones, against plain forward passes of whole texts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.models.language_model import LanguageModel, common_prefix, special_tokens_around
from tda_bias.models.requests import continuations, with_gaps
from tda_bias.models.scored import scored
from tda_bias.pairs import PairSet
from tda_bias.scores.likelihood import triple_likelihoods
from tda_bias.scores.pair_scores import pair_items, pair_set_scores
from tda_bias.scores.stereoset import wins
from tda_bias.scores.stereoset_scores import sentence_scores, stereoset_scores
from tda_bias.triples import SentenceTriple
from tda_bias.twins import Twins
from tda_bias.types import InputError, Triple
from tests.support.literal import causal_steps, ids_of, log_softmax_at, masked_step
from tests.support.models import tiny_hf_model
from tests.support.pairs import pair
from tests.support.tokenizers import Wrapped, trained, uncased

RUSSIAN = ["Медсестра пришла домой", "Инженер пришёл домой", "Она любит читать"] * 20
# "late. She" is one token of such a tokenizer, "late. The" is not.
SPANNING = ["She came late. She sang.", "He came late. She sang.", "We came late. She sat."] * 20
SPANNING += ["The cook was here.", "The cook sang."] * 20
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


# -- tokenizers that split words at random ---------------------------------------------------------


def unigram_at_random():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    scores = [("<unk>", -9.0), ("<s>", -9.0), *((letter, -3.0) for letter in "\u2581hesa id.")]
    raw = Tokenizer(models.Unigram([*scores, ("he", -4.0), ("she", -5.0)], unk_id=0))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", bos_token="<s>")
    tokenizer.backend_tokenizer.model.alpha = 0.5
    tokenizer.backend_tokenizer.model.nbest_size = 9
    return tokenizer


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: trained(SPANNING, dropout=0.5), "dropout 0.5"),
        (unigram_at_random, "nbest_size 9"),
    ],
)
def test_a_tokenizer_that_splits_at_random_no_longer_does_and_that_is_said(make, said, caplog):
    tokenizer = make()
    text = "she said he is here. she is here."
    assert len({tuple(ids_of(tokenizer, text)) for _ in range(60)}) > 1
    model = model_of(tokenizer)
    assert len({tuple(ids_of(tokenizer, text)) for _ in range(60)}) == 1
    assert "splits words at random" in caplog.text
    assert said in caplog.text
    (first, again) = (pair_items(model, set_of(pair(text, "he is.", id="1"))) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)


def test_sampling_that_cannot_be_switched_off_is_refused():
    tokenizer = Wrapped(trained(RUSSIAN))
    tokenizer.sp_model_kwargs = {"enable_sampling": True}
    with pytest.raises(InputError, match="enable_sampling of sp_model_kwargs .*; take that out"):
        LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "drawn")


# -- tokens that span words ------------------------------------------------------------------------

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


# -- what the tokenizer cannot see -----------------------------------------------------------------


@pytest.fixture(scope="module")
def blind():
    """To its tokenizer emoji are unknown, and capitals and accents nothing."""
    return model_of(uncased(), "bert", bos_token_id=2, eos_token_id=3, pad_token_id=0)


SEEN = pair("The nurse said she was calm.", "The nurse said he was calm.", id="1")
UNSEEN = [
    pair("The \U0001f475 came home.", "The \U0001f476 came home.", id="2"),
    pair("The caf\u00e9 was late.", "The cafe was late.", id="3"),
]


def test_pairs_that_the_tokenizer_writes_alike_are_undefined_and_counted(blind):
    found = pair_set_scores(blind, set_of(SEEN, *UNSEEN))
    plain = found.items[found.items["reading"] == "pll"].set_index("id")
    for name, text in (("more", SEEN.more), ("less", SEEN.less)):
        assert plain.loc["1", f"log_prob_{name}"] == pytest.approx(whole(blind, text), abs=1e-4)
        assert plain.loc[["2", "3"], f"log_prob_{name}"].isna().all()
    row = found.scores.iloc[0]
    assert (row["items"], row["undefined"], row["ties"]) == (3, 2, 0)
    assert row["preferred"] in (0, 100)
    (remark,) = found.record.remarks
    assert remark.startswith("2 of 3 pairs are left out")
    with pytest.raises(InputError, match="writes texts alike .* in each of 2 pairs"):
        pair_set_scores(blind, set_of(*UNSEEN))


def test_triples_and_twins_that_the_tokenizer_writes_alike_take_no_part(blind):
    seen = [
        Triple("nurse", "own", "The nurse came.", "She was calm.", "She was loud.", "Home, home."),
        Triple("cook", "own", "The cook came.", "He was loud.", "He was calm.", "Late, late."),
    ]
    alike = replace(seen[0], stereotype="She \U0001f475.", anti_stereotype="She \U0001f476.")
    twin = replace(seen[0], context="The cook came.")
    same_twin = replace(seen[0], context="The NURSE came.")
    plain = Twins(pairs=((seen[0], (twin,)),))
    both = Twins(pairs=((seen[0], (twin, same_twin)), (alike, (twin,))))
    expected = stereoset_scores(blind, seen, twins=plain, placebos={})
    found = stereoset_scores(blind, [*seen, alike], twins=both, placebos={})
    for table in ("items", "scores", "beta"):
        pd.testing.assert_frame_equal(getattr(found, table), getattr(expected, table))
    assert [remark[:6] for remark in found.record.remarks] == ["1 of 3", "1 of 2"]
    assert expected.record.remarks == ()
    with pytest.raises(InputError, match="in each of 1 triple "):
        stereoset_scores(blind, [alike], twins=None)


def test_sentences_that_the_tokenizer_writes_alike_are_undefined_and_counted(blind):
    texts = "The nurse was calm.", "The nurse was loud.", "The nurse was home."
    seen = SentenceTriple("1", "nurse", "own", *texts)
    alike = SentenceTriple("2", "nurse", "own", texts[0], texts[0].upper(), texts[2])
    found = sentence_scores(blind, [seen, alike])
    expected = sentence_scores(blind, [seen])
    assert set(found.scores["undefined"]) == {1}
    columns = ["reading", "scored", "scoring", "ss", "lms"]
    pd.testing.assert_frame_equal(found.scores[columns], expected.scores[columns])
    assert found.record.remarks[0].startswith("1 of 2 items is left out")
    with pytest.raises(InputError, match="in each of 1 item "):
        sentence_scores(blind, [alike])


def test_differences_that_rounding_makes_are_ties():
    table = pd.DataFrame({"log_prob_s": [-50.0, -50.0], "log_prob_a": [-50.00001, -50.01]})
    table = table.assign(log_prob_u=-60.0, tokens_s=9, tokens_a=9, tokens_u=9, category="c")
    won = wins(table.assign(group="g"))
    assert won["stereotype"].tolist() == [0.5, 1.0]
    assert won["tie"].tolist() == [True, False]


# -- gaps and places -------------------------------------------------------------------------------


def mt5_tokenizer():
    """Words by their letters; its sentinel has the mark of a word's beginning, as mT5's."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [(letter, -3.0) for letter in "\u2581abcdefghijklmnopqrstuvwxyzTSH."]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    raw = Tokenizer(models.Unigram([*special, *letters, ("\u2581<extra_id_0>", 0.0)], unk_id=2))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **names)


def test_the_sentinel_of_mt5_is_the_gap_and_what_the_decoder_begins_with():
    tokenizer = mt5_tokenizer()
    special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    model = LanguageModel(tiny_hf_model("t5", len(tokenizer), **special), tokenizer, "mt5")
    triple = Triple("c", "own", "The cook sat.", "She sang.", "He sang.", "They sat.")
    (found,) = triple_likelihoods(model, [triple])
    source = tokenizer(f"{triple.context} <extra_id_0>")["input_ids"]
    gap = tokenizer.get_vocab()["\u2581<extra_id_0>"]
    assert source.count(gap) == 1
    before = len(ids_of(tokenizer, triple.context))
    for text, total in zip(triple.texts(), found.total, strict=True):
        written = [0, gap, *ids_of(tokenizer, text)[before:]]
        steps = [
            log_softmax_at(
                model.hf_model, place - 1, input_ids=source, decoder_input_ids=written[:place]
            )[written[place]]
            for place in range(2, len(written))
        ]
        assert total == pytest.approx(float(sum(steps)), abs=1e-3)
    with pytest.raises(InputError, match="does not find the one gap in .*put a space before it"):
        with_gaps(model, ["The cook<extra_id_0>"])


def test_a_text_longer_than_robertas_places_is_refused():
    """It has fewer than its configuration says: places are counted from after the padding's."""
    tokenizer = trained(SPANNING, form="<s> $A </s>")
    model = model_of(tokenizer, "roberta", max_position_embeddings=20)
    longest = model.max_tokens
    assert longest == 20 - SPECIAL["pad_token_id"] - 1
    text = "".join(f"{letter} " for letter in "qxzjvwkqxzjvwkqxzjv")
    ids = ids_of(tokenizer, text)
    assert len(ids) > longest
    fits = tokenizer.decode(ids[: longest - 2])
    assert len(tokenizer(fits)["input_ids"]) == longest
    pair_items(model, set_of(pair(fits, "She sang.", id="1")))
    longer = tokenizer.decode(ids[: longest - 1])
    with pytest.raises(InputError, match=f"has {longest + 1} tokens, .* takes {longest}"):
        pair_items(model, set_of(pair(longer, "She sang.", id="1")))


def test_texts_with_special_tokens_are_counted_and_said(blind):
    masked = pair("The nurse said [MASK] she was calm.", "The nurse said he was loud.", id="2")
    found = pair_set_scores(blind, set_of(SEEN, masked))
    (remark,) = found.record.remarks
    assert remark.startswith("1 text holds special tokens of the tokenizer ([MASK]), which act as")
    assert pair_set_scores(blind, set_of(SEEN)).record.remarks == ()
    plain = found.items[found.items["reading"] == "pll"].set_index("id")
    assert plain.loc["2", "log_prob_more"] == pytest.approx(whole(blind, masked.more), abs=1e-4)
