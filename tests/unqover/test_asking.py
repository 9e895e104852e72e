"""Asking against the definition, one text at a time; what is saved, reused and refused."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from tda_bias.models.language_model import common_prefix
from tda_bias.models.load import LanguageModel
from tda_bias.store.cache import Cache
from tda_bias.types import InputError
from tests.support.asked import answer, every_question
from tests.support.literal import causal_steps, continuation, log_softmax_at
from tests.support.models import tiny_hf_model
from tests.support.tokenizers import trained, uncased
from unqover import asking
from unqover.answers import Answers
from unqover.asking import ask_questions
from unqover.classes import load_class
from unqover.config import AskConfig, DesignConfig
from unqover.questions import sampled_design


@pytest.mark.parametrize(
    ("kind", "how"), [("gpt2", "cloze"), ("llama", "question"), ("bloom", "cloze")]
)
def test_causal_answers_follow_the_chain_rule(tiny_lm, few, kind, how, scorers):
    model = tiny_lm(kind, max_position_embeddings=512) if kind != "bloom" else tiny_lm(kind)
    if kind == "gpt2":
        model = tiny_lm(kind, n_positions=512)
    found = ask_questions(model, few, config=AskConfig(ask=how, batch_size=7))
    assert scorers[0].packed == (kind != "bloom")
    for where, *rest in list(every_question(few))[::11]:
        assert found.log_prob[where] == pytest.approx(answer(model, how, *rest), abs=2e-3)


def test_two_subjects_are_scored_from_the_same_character_where_a_token_spans_words(few):
    """Their difference is that of the whole texts: what stands before is the same and cancels."""
    every = list(every_question(few))
    texts = {
        (where, template.context(*both)): template.statement(subject, attribute, denied)[0]
        for where, template, both, attribute, denied, subject in every
    }
    # The first subject's sentences alone are what tokens are made of.
    known = [f"{text} {said}" for ((*_, x), text), said in texts.items() if x == 0]
    tokenizer = trained(known, whole_texts=True)
    hf_model = tiny_hf_model("llama", len(tokenizer), bos_token_id=0, max_position_embeddings=512)
    model = LanguageModel(hf_model, tokenizer, "spanning")
    found = ask_questions(model, few)
    uneven = 0
    for first, second in zip(every[::2], every[1::2], strict=True):
        context = first[1].context(*first[2])
        given = tokenizer(context)["input_ids"]
        ids = [
            tokenizer(f"{context} {template.statement(subject, attribute, denied)[0]}")["input_ids"]
            for _, template, _, attribute, denied, subject in (first, second)
        ]
        uneven += len({common_prefix(given, own) for own in ids}) > 1
        one, other = (sum(causal_steps(model, own)) for own in ids)
        difference = found.log_prob[first[0]] - found.log_prob[second[0]]
        assert difference == pytest.approx(one - other, abs=2e-3)
    assert uneven


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_batch_size_changes_nothing(tiny_lm, few, kind):
    model = tiny_lm(kind, max_position_embeddings=512)
    one, many = (ask_questions(model, few, config=AskConfig(batch_size=size)) for size in (1, 200))
    np.testing.assert_allclose(one.log_prob, many.log_prob, atol=1e-4)


def test_special_tokens_in_an_attribute_are_said(tiny_lm, few):
    model = tiny_lm("llama", max_position_embeddings=512)
    (special, *_) = {*model.tokenizer.all_special_tokens} - {model.tokenizer.unk_token}
    first, *others = few.attributes
    spelled = replace(first, says=f"{first.says} {special}")
    for attributes, n in ((few.attributes, 0), ((spelled, *others), 1)):
        found = ask_questions(model, replace(few, attributes=attributes))
        assert len(found.record.remarks) == n
    assert found.record.remarks[0].startswith("1 text holds special tokens of the tokenizer (")


def test_mass_is_that_of_the_names_before_the_full_stop(tiny_lm, few):
    model = tiny_lm("gpt2", n_positions=512)
    found = ask_questions(model, few, config=AskConfig(ask="question"))
    where, template, mentioned, attribute, denied, _ = next(iter(every_question(few)))
    asked = template.question(attribute, denied)
    given = f"Paragraph: {template.context(*mentioned)} Question: {asked} Answer:"
    names = [f"{given} {template.answer(subject)[0]}" for subject in mentioned]
    both = [np.exp(continuation(model, given, text)) for text in names]
    assert found.mass[where[:-1]] == pytest.approx(sum(both), rel=1e-3)


def masked(model, text, start, stop):
    """Log-probability of the tokens of text[start:stop], masked and filled from left to right."""
    tokenizer = model.tokenizer
    encoded = tokenizer(text, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    inside = [
        i for i, (a, b) in enumerate(encoded["offset_mapping"]) if a < stop and b > start and b > a
    ]
    values = []
    for place in inside:
        row = [
            tokenizer.mask_token_id if i >= place and i in inside else t for i, t in enumerate(ids)
        ]
        values.append(float(log_softmax_at(model.hf_model, place, input_ids=row)[ids[place]]))
    return values


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_masked_answers_fill_the_name_from_left_to_right(tiny_lm, few, kind):
    model = tiny_lm(kind, max_position_embeddings=512)
    found = ask_questions(model, few, config=AskConfig(batch_size=5))
    assert found.record.ask == "mask"
    sizes = set()
    for where, *rest in list(every_question(few))[::41]:
        template, mentioned, attribute, denied, subject = rest
        context = template.context(*mentioned)
        said, place = template.statement(subject, attribute, denied)
        start = len(context) + 1
        values = masked(model, f"{context} {said}", start + place.start, start + place.stop)
        sizes.add(len(values))
        assert found.log_prob[where] == pytest.approx(sum(values), abs=1e-3)
        x = few.first[where[0]] if where[-1] == 0 else few.second[where[0]]
        assert found.n_tokens[where[1], x] == len(values)
    assert max(sizes) > 1


@pytest.fixture(scope="module")
def pointer(subwords):
    """A tiny model that answers with a span."""
    import transformers as tf

    source = tiny_hf_model("bert", len(subwords), max_position_embeddings=512)
    torch.manual_seed(1)
    model = tf.BertForQuestionAnswering(source.config)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.3)
    return LanguageModel(model.eval(), subwords, "tiny-span")


@torch.no_grad()
def test_spans_are_scored_by_the_published_rule(pointer, few):
    found = ask_questions(pointer, few, config=AskConfig(batch_size=6))
    assert found.record.ask == "span"
    for where, *rest in list(every_question(few))[::41]:
        template, mentioned, attribute, denied, subject = rest
        context, places = template.context_with_places(*mentioned)
        whole, own = places[mentioned.index(subject)]
        encoded = pointer.tokenizer(
            template.question(attribute, denied), context, return_offsets_mapping=True
        )
        given = {k: torch.tensor([encoded[k]]) for k in ("input_ids", "attention_mask")}
        if "token_type_ids" in encoded:
            given["token_type_ids"] = torch.tensor([encoded["token_type_ids"]])
        output = pointer.hf_model(**given)
        p_start = output.start_logits[0].double().softmax(-1).numpy()
        p_end = output.end_logits[0].double().softmax(-1).numpy()
        tokens = [
            (i, a, b)
            for i, ((a, b), of) in enumerate(
                zip(encoded["offset_mapping"], encoded.sequence_ids(), strict=True)
            )
            if of == 1
        ]
        starts = [next(i for i, _, b in tokens if b > c) for c in (whole.start, own.start)]
        ends = [[i for i, a, _ in tokens if a < c][-1] for c in (own.stop, whole.stop)]
        expected = np.sqrt(p_start[starts].max() * p_end[ends].max())
        assert np.exp(found.log_prob[where]) == pytest.approx(expected, rel=1e-4)


def test_a_span_reader_is_found_by_its_checkpoint(pointer, few, tmp_path):
    from tda_bias.models.load import load_language_model

    pointer.hf_model.config.architectures = ["BertForQuestionAnswering"]
    pointer.hf_model.save_pretrained(tmp_path)
    pointer.tokenizer.save_pretrained(tmp_path)
    loaded = load_language_model(str(tmp_path), head="as_trained")
    assert loaded.kind == "span"
    one = ask_questions(loaded, few)
    np.testing.assert_allclose(one.log_prob, ask_questions(pointer, few).log_prob, atol=1e-5)
    with pytest.raises(InputError, match="no language-model head"):
        load_language_model(str(tmp_path)).require_language_head()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("gpt2", {"ask": "mask"}, "must be one of cloze, question for the causal model"),
        ("bert", {"ask": "cloze"}, "must be one of mask for the masked model"),
        ("t5", {}, "tiny-t5 is a seq2seq model"),
        ("gpt2", {}, "nothing is truncated"),
        ("span", {"ask": "cloze"}, "must be one of span for the span model"),
    ],
)
def test_what_cannot_be_asked_is_refused(tiny_lm, pointer, few, kind, settings, message):
    short = {"n_positions": 16} if kind == "gpt2" else {}
    model = pointer if kind == "span" else tiny_lm(kind, **short)
    with pytest.raises(InputError, match=message):
        ask_questions(model, few, config=AskConfig(**settings))


# -- what is saved ---------------------------------------------------------------------------------


ALIKE = """
factors: [origin]
compare: across
subjects: {here: [Nurse], there: [%s]}
forms: {person: {mention: "{subject}", answer: "{subject}"}}
frames: [{form: person, context: "{first} met {second}."}]
attributes: {predicates: [{says: "was calm", antonym: "was loud"}]}
"""


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("\u674e\u4f1f", "does not know the subject '\u674e\u4f1f'"),
        ("NURSE", "writes the subjects 'Nurse' and 'NURSE' alike"),
    ],
)
def test_subjects_that_the_tokenizer_cannot_see_are_refused(tmp_path, other, message):
    path = tmp_path / "names.yaml"
    path.write_text(ALIKE % other, encoding="utf-8")
    tokenizer = uncased()
    model = LanguageModel(tiny_hf_model("bert", len(tokenizer)), tokenizer, "blind")
    with pytest.raises(InputError, match=message):
        ask_questions(model, sampled_design(load_class(path), DesignConfig()))


@pytest.fixture
def model(tiny_lm):
    return tiny_lm("gpt2", n_positions=512)


def test_a_killed_run_goes_on_where_it_was(model, few, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "_PAIRS", 2)
    whole = ask_questions(model, few)

    def stop(done, total):
        if done > 2 * total / 6:  # within the third of six blocks
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_questions(model, few, cache=partial(Cache, tmp_path), progress=stop)
    saved = len(list(tmp_path.glob("*.npz")))
    assert saved == 2
    seen, answered, answers = [], [], asking._answers
    monkeypatch.setattr(asking, "_answers", lambda *of: answered.append(of) or answers(*of))
    again = ask_questions(
        model, few, cache=partial(Cache, tmp_path), progress=lambda d, t: seen.append((d, t))
    )
    n_blocks = len(list(tmp_path.glob("*.npz")))
    assert len(answered) == n_blocks - saved
    np.testing.assert_allclose(again.log_prob, whole.log_prob, atol=1e-4)
    np.testing.assert_array_equal(again.n_tokens, whole.n_tokens)
    assert seen[-1] == (few.n_questions, few.n_questions)
    answered.clear()
    ask_questions(model, few, cache=partial(Cache, tmp_path, resume=False))
    assert len(answered) == n_blocks


def test_parts_are_named_and_depend_on_what_earlier_versions_wrote(model, few, tmp_path):
    ask_questions(model, few, cache=partial(Cache, tmp_path))
    headers = [json.loads(str(np.load(path)["header"])) for path in tmp_path.glob("*.npz")]
    names = {header["part"] for header in headers}
    assert names == {
        f"{few.record.name} template {n} pairs from 1" for n in range(1, len(few.templates) + 1)
    }
    assert headers[0]["identity"] == {
        "model": model.name,
        "weights": model.weight_hash(),
        "dtype": "float32",
        "ask": "cloze",
    }
    assert list(headers[0]["depends_on"]) == ["texts"]


def test_answers_under_other_settings_are_never_mixed_in(model, tiny_lm, few, tmp_path):
    ask_questions(model, few, cache=partial(Cache, tmp_path))
    with pytest.raises(InputError, match="ask was 'cloze', now 'question'"):
        ask_questions(model, few, config=AskConfig(ask="question"), cache=partial(Cache, tmp_path))
    other = tiny_lm("gpt2", n_positions=512)
    other.hf_model.transformer.wte.weight.data += 0.1
    with pytest.raises(InputError, match="weights was"):
        ask_questions(other, few, cache=partial(Cache, tmp_path))
    fewer = replace(few, attributes=few.attributes[:2], asked=few.asked[:, :2])
    with pytest.raises(InputError, match="other texts"):
        ask_questions(model, fewer, cache=partial(Cache, tmp_path))


def test_saved_answers_are_the_same_and_what_was_not_asked_stays_undefined(made_up, tmp_path):
    with pytest.raises(InputError, match="holds no finished run of `tdabias unqover`"):
        Answers.load(tmp_path)
    answers = made_up("nationality", subjects=3, attributes=4)
    answers.save(tmp_path)
    again = Answers.load(tmp_path)
    assert np.isnan(again.log_prob).any()
    for name in ("log_prob", "mass", "n_tokens", "first", "second"):
        np.testing.assert_array_equal(getattr(again, name), getattr(answers, name))
    assert again.asked == answers.asked
    assert again.record.model == answers.record.model


def test_undefined_probabilities_are_refused(model, few):
    model.hf_model.transformer.ln_f.weight.data[:] = float("nan")
    with pytest.raises(InputError, match="gives NaN for .*: its weights|undefined prob"):
        ask_questions(model, few)
