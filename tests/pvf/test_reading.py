"""Readers against the definition, computed one word at a time and without any batch."""

from itertools import product

import numpy as np
import pytest
import torch

from pvf.config import ScoreConfig
from pvf.reading import score_preferences
from pvf.word_tokens import word_tokens
from pvf.words import Template, WordClasses, WordList
from tda_bias.models.load import LanguageModel
from tda_bias.types import InputError
from tests.support.literal import causal_steps, ids_of, log_softmax_at
from tests.support.models import tiny_hf_model
from tests.support.tokenizers import Wrapped, uncased


def own_tokens(tokenizer, word):
    """The tokens a word adds to a text it follows."""
    return ids_of(tokenizer, f"that {word}")[len(ids_of(tokenizer, "that")) :]


def next_log_probs(model, ids, **more):
    return log_softmax_at(model.hf_model, -1, input_ids=ids, **more)


def every_reading(found, words, templates):
    """Every fifth place of the arrays, with its x, template and word."""
    places = product(*map(enumerate, (words.words, templates, found.words)))
    for (i, x), (c, template), (w, word) in list(places)[::5]:
        yield (i, c, w), x, template, word


def causal_word_prob(model, prompt, word, longer=()):
    """P(word), and that no longer listed word is meant, token by token."""
    ids = ids_of(model.tokenizer, prompt)
    own = own_tokens(model.tokenizer, word)
    whole = [*ids, *own]
    total = sum(causal_steps(model, whole, len(ids)))
    after = {own_tokens(model.tokenizer, other)[len(own)] for other in longer}
    continued = sum(float(next_log_probs(model, whole)[token].exp()) for token in after)
    return np.exp(total) * (1.0 - continued)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom"])
def test_causal_probabilities_follow_the_chain_rule(
    tiny_lm, kind, some_words, some_templates, some_classes, scorers
):
    model = tiny_lm(kind)
    assert [len(own_tokens(model.tokenizer, w)) for w in ("he", "she", "man")] == [1, 1, 1]
    assert own_tokens(model.tokenizer, "heiress")[:1] == own_tokens(model.tokenizer, "he")
    config = ScoreConfig(batch_size=4)
    found = score_preferences(model, some_words, some_templates, some_classes, config=config)
    assert scorers[0].packed == (kind != "bloom")
    bare = len(ids_of(model.tokenizer, "The"))
    tokens = {x: len(ids_of(model.tokenizer, f"The {x}")) - bare for x in some_words.words}
    assert found.record.words.tokens_of_x == tokens
    for where, x, template, word in every_reading(found, some_words, some_templates):
        longer = [b for a, b in found.record.words.continued if a == word]
        expected = causal_word_prob(model, template.prompt(x), word, longer)
        assert found.word_probs[where] == pytest.approx(expected, rel=2e-4)
    assert found.record.words.continued == (("he", "heiress"), ("he", "hers"))
    he = found.words.index("he")
    assert (found.continued[..., he] > 0).all()
    alone = found.pronouns_alone()
    np.testing.assert_allclose(alone.word_probs[..., 0], np.exp(found.log_prob[..., he]))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_masked_probabilities_are_those_at_the_mask(tiny_lm, kind, some_words, some_classes):
    model = tiny_lm(kind)
    templates = [Template("The [X] said that [Y]", 1), Template("The [X] [Y] the cook", 1)]
    found = score_preferences(model, some_words, templates, some_classes)
    assert set(found.words) == {"he", "man", "she"}
    assert found.record.words.not_read["heiress"] == "several tokens"
    for where, x, template, word in every_reading(found, some_words, templates):
        text = template.text.replace("[X]", x)
        before, after = (ids_of(model.tokenizer, part) for part in text.split(" [Y]"))
        ids = [*before, model.tokenizer.mask_token_id, *after]
        steps = log_softmax_at(model.hf_model, len(before), input_ids=ids)
        (token,) = own_tokens(model.tokenizer, word)
        assert found.log_prob[where] == pytest.approx(float(steps[token]), rel=1e-4)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_the_decoder_fills_the_gap_of_the_encoder(
    tiny_lm, kind, some_words, some_templates, some_classes
):
    model = tiny_lm(kind, decoder_start_token_id=1)
    config = ScoreConfig(batch_size=3)
    found = score_preferences(model, some_words, some_templates, some_classes, config=config)
    gap = "<extra_id_0>"
    for where, x, template, word in every_reading(found, some_words, some_templates):
        source = model.tokenizer(f"{template.prompt(x)} {gap}")["input_ids"]
        begun, total = [1, model.tokenizer.convert_tokens_to_ids(gap)], 0.0
        for token in own_tokens(model.tokenizer, word):
            total += float(next_log_probs(model, source, decoder_input_ids=begun)[token])
            begun.append(token)
        assert found.log_prob[where] == pytest.approx(total, rel=1e-4)


def test_bart_repeats_the_prompt_before_the_gap(tiny_lm, some_words, some_templates, some_classes):
    model = tiny_lm("bart", decoder_start_token_id=1)
    without = dict(model.tokenizer.get_vocab())
    del without["<extra_id_0>"]

    class NoSentinel(Wrapped):
        def get_vocab(self):
            return without

    like_bart = LanguageModel(model.hf_model, NoSentinel(model.tokenizer), "bart")
    found = score_preferences(like_bart, some_words, some_templates, some_classes)
    prompt = some_templates[0].prompt("nurse")
    source = model.tokenizer(f"{prompt} <mask>")["input_ids"]
    begun = [1, *ids_of(model.tokenizer, prompt)]
    (she,) = own_tokens(model.tokenizer, "she")
    expected = float(next_log_probs(model, source, decoder_input_ids=begun)[she])
    assert found.log_prob[0, 0, found.words.index("she")] == pytest.approx(expected, rel=1e-4)


def test_xlnet_predicts_a_hidden_place_at_the_end(
    tiny_lm, some_words, some_templates, some_classes
):
    model = tiny_lm("xlnet")
    config = ScoreConfig(batch_size=5)
    found = score_preferences(model, some_words, some_templates, some_classes, config=config)
    for where, x, template, word in every_reading(found, some_words, some_templates):
        ids, total = ids_of(model.tokenizer, template.prompt(x)), 0.0
        for token in own_tokens(model.tokenizer, word):
            # Whatever stands in the hidden place must not matter.
            row = torch.tensor([[*ids, 7]])
            n = row.shape[1]
            hidden, target = torch.zeros(1, n, n), torch.zeros(1, 1, n)
            hidden[:, :, -1] = target[:, :, -1] = 1
            with torch.no_grad():
                logits = model.hf_model(
                    input_ids=row, perm_mask=hidden, target_mapping=target
                ).logits[0, 0]
            total += float(torch.log_softmax(logits.double(), -1)[token])
            ids.append(token)
        assert found.log_prob[where] == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "bloom", "bert", "t5", "xlnet"])
def test_the_batch_size_changes_nothing(tiny_lm, kind, some_words, some_templates, some_classes):
    given = tiny_lm(kind), some_words, some_templates, some_classes
    one, many = (score_preferences(*given, config=ScoreConfig(batch_size=size)) for size in (1, 50))
    np.testing.assert_allclose(one.by_class().p, many.by_class().p, atol=1e-6)
    np.testing.assert_allclose(one.log_prob, many.log_prob, atol=1e-4)


def test_special_tokens_in_a_template_are_said(tiny_lm, some_words, some_classes):
    model = tiny_lm("gpt2")
    (special, *_) = {*model.tokenizer.all_special_tokens} - {model.tokenizer.unk_token}
    for text, n in (("The [X] said that [Y]", 0), (f"The [X] said {special} [Y]", 1)):
        found = score_preferences(model, some_words, [Template(text, 1)], some_classes)
        assert len(found.record.remarks) == n
    assert found.record.remarks[0].startswith(
        f"1 text holds special tokens of the tokenizer ({special})"
    )


def test_words_with_the_same_tokens_count_once_and_in_two_classes_not(tiny_lm, some_words):
    model = tiny_lm("bert")
    classes = WordClasses("c", "test", {"a": ("he", "He", "man"), "b": ("she", "Man")}, ())
    templates = [Template("The [X] said that [Y]", 1)]
    found = score_preferences(model, some_words, templates, classes)
    same = own_tokens(model.tokenizer, "he") == own_tokens(model.tokenizer, "He")
    assert (found.words == ("he", "she")) == same


def test_bare_forms_are_the_entries_without_the_word_start(tiny_lm, some_words, some_templates):
    classes = WordClasses("c", "test", {"a": ("he", "soprano"), "b": ("at",)}, ())
    model, config = tiny_lm(), ScoreConfig(forms="bare")
    found = score_preferences(model, some_words, some_templates, classes, config=config)
    assert found.record.words.not_read == {"soprano": "not in the vocabulary"}
    bare = model.tokenizer.get_vocab()["he"]
    assert [bare] != own_tokens(model.tokenizer, "he")
    ids = ids_of(model.tokenizer, some_templates[0].prompt("nurse"))
    assert found.log_prob[0, 0, 0] == pytest.approx(
        float(next_log_probs(model, ids)[bare]), rel=1e-5
    )


# -- slots without a space -------------------------------------------------------------------------

PRONOUNS = WordClasses("c", "test", {"male": ("他", "he"), "female": ("她", "she")}, ())
MIXED = [Template("[X]说[Y]", 2), Template("The [X] said that [Y]", 1), Template("[X]是[Y]", 1)]


@pytest.mark.parametrize("kind", ["gpt2", "bloom", "t5", "bart", "xlnet"])
def test_a_slot_has_the_space_that_its_template_has(tiny_lm, kind):
    """Each word of each template by its own forward passes, whatever the other templates are."""
    more = {"decoder_start_token_id": 1} if kind in ("t5", "bart") else {}
    model = tiny_lm(kind, **more)
    words = WordList("w", "test", ("工程师", "nurse"))
    found = score_preferences(model, words, MIXED, PRONOUNS, config=ScoreConfig(batch_size=3))
    for c, template in enumerate(MIXED):
        alone = score_preferences(model, words, [template], PRONOUNS)
        np.testing.assert_allclose(found.log_prob[:, c], alone.log_prob[:, 0], atol=1e-4)
        if kind not in ("gpt2", "bloom"):
            continue
        for (i, x), (w, word) in product(enumerate(words.words), enumerate(found.words)):
            before = ids_of(model.tokenizer, template.prompt(x))
            whole = ids_of(model.tokenizer, template.text.replace("[X]", x).replace("[Y]", word))
            assert whole[: len(before)] == before
            expected = sum(causal_steps(model, whole, len(before)))
            assert found.log_prob[i, c, w] == pytest.approx(expected, rel=1e-4)
    assert found.record.words.tokens_of_each["他"] == 3
    assert found.record.words.tokens_by_template[MIXED[1].text]["他"] == 4
    geometric = found.geometric_mean().log_prob[..., found.words.index("他")]
    np.testing.assert_allclose(
        geometric, found.log_prob[..., found.words.index("他")] / np.array([3, 4, 3])
    )


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_the_gap_of_an_encoder_has_no_space_either(tiny_lm, kind, monkeypatch):
    model, texts = tiny_lm(kind, decoder_start_token_id=1), []

    class Listening(Wrapped):
        def __call__(self, given, **options):
            texts.extend([given] if isinstance(given, str) else given)
            return self._tokenizer(given, **options)

    heard = LanguageModel(model.hf_model, Listening(model.tokenizer), kind)
    score_preferences(heard, WordList("w", "test", ("工程师",)), MIXED, PRONOUNS)
    assert "工程师说<extra_id_0>" in texts
    assert "The 工程师 said that <extra_id_0>" in texts


def test_a_mask_reads_the_token_that_stands_there(tiny_lm):
    model = tiny_lm("bert")
    classes = WordClasses("c", "test", {"a": ("he",), "b": ("man",)}, ())
    templates = [Template("The [X]/[Y]", 1), Template("The [X] [Y]", 1)]
    found = score_preferences(model, WordList("w", "t", ("nurse",)), templates, classes)
    for c, text in enumerate(("The nurse/", "The nurse")):
        before = ids_of(model.tokenizer, text)
        steps = log_softmax_at(
            model.hf_model, len(before), input_ids=[*before, model.tokenizer.mask_token_id]
        )
        for w, word in enumerate(("he", "man")):
            (token,) = ids_of(model.tokenizer, f"{text}{' ' if c else ''}{word}")[len(before) :]
            assert found.log_prob[0, c, w] == pytest.approx(float(steps[token]), rel=1e-4)


def test_a_word_that_melts_into_the_text_before_it_is_written_as_after_a_line_break(subwords):
    """The text ends where the slot begins, whatever a vocabulary would make of both."""
    he, melted = ids_of(subwords, "he"), ids_of(subwords, "She")
    assert melted[: len(ids_of(subwords, "S"))] == ids_of(subwords, "S")
    classes = WordClasses("c", "test", {"a": ("e",), "b": ("n",)}, ())
    listed = word_tokens(subwords, classes, before="h")
    assert listed.tokens == (tuple(ids_of(subwords, "e")), tuple(ids_of(subwords, "n")))
    assert len(he) == 1  # "h" and "e" together are one token


# -- what cannot be used ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "template", "females", "message"),
    [
        ("gpt2", "The [X] said [Y] came", "she", r"causal model tiny-gpt2 does not see what foll"),
        ("bert", "The [X] said [Y]", "soprano", "no word of 'b' can .*soprano: several tokens"),
        ("gpt2", f"The [X] {'zzzz ' * 60}[Y]", "she", "a prompt has .* tokens, .* takes 128"),
    ],
)
def test_what_a_model_cannot_read_is_refused(tiny_lm, some_words, kind, template, females, message):
    classes = WordClasses("c", "t", {"a": ("he",), "b": (females,)}, ())
    with pytest.raises(InputError, match=message):
        score_preferences(tiny_lm(kind), some_words, [Template(template, 1)], classes)


def test_a_word_the_tokenizer_does_not_know_is_refused(tokenizer, some_words):
    model = LanguageModel(tiny_hf_model("gpt2", len(tokenizer)), tokenizer, "tiny")
    classes = WordClasses("c", "t", {"a": ("he",), "b": ("zyzzyva",)}, ())
    with pytest.raises(InputError, match="the tokenizer cannot write 'zyzzyva'"):
        score_preferences(model, some_words, [Template("The [X] said [Y]", 1)], classes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nurse", "NURSE"), "writes 'nurse' and 'NURSE' alike"),
        (("\u674e\u4f1f",), "does not know '\u674e\u4f1f'"),
    ],
)
def test_words_x_that_the_tokenizer_cannot_see_are_refused(words, message):
    tokenizer = uncased()
    model = LanguageModel(tiny_hf_model("bert", len(tokenizer)), tokenizer, "blind")
    classes = WordClasses("c", "t", {"a": ("he",), "b": ("she",)}, ())
    listed = WordList("own", "here", words)
    with pytest.raises(InputError, match=message):
        score_preferences(model, listed, [Template("The [X] said that [Y].", 1)], classes)


def test_an_encoder_without_a_language_head_is_refused(
    subwords, tmp_path, some_words, some_templates, some_classes
):
    from tda_bias.models.load import load_language_model

    tiny_hf_model("bert", len(subwords)).bert.save_pretrained(tmp_path)
    subwords.save_pretrained(tmp_path)
    model = load_language_model(str(tmp_path), device="cpu")
    with pytest.raises(InputError, match="has no language-model head"):
        score_preferences(model, some_words, some_templates, some_classes)
