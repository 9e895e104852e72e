"""BBQ's questions put to models: every number against plain forward passes of whole texts."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from tda_bias.models import chat
from tda_bias.models.load import LanguageModel
from tda_bias.store.cache import Cache
from tda_bias.types import InputError
from tests.support.bbq import item, write_rows
from tests.support.chat import PLAIN, THINKING, with_template
from tests.support.models import tiny_hf_model
from unqover.bbq import asking
from unqover.bbq.asking import ask_bbq, bbq_scores
from unqover.bbq.items import BBQSet, words_of
from unqover.bbq.prompts import letter_prompts, text_prompts
from unqover.bbq.readers import load_bbq
from unqover.config import BBQConfig

LETTERS = BBQConfig(ask="letter")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return load_bbq(write_rows(tmp_path_factory.mktemp("bbq"), templates=2))


@pytest.fixture(scope="module")
def causal(tiny_lm):
    return tiny_lm("gpt2", n_positions=512)


def literal(model, before: str, said: str, between: str = " ") -> tuple[float, int]:
    """Log-probability of what follows a text, from one pass over both, and its tokens."""
    whole = f"{before}{between}{said}"
    start = len(model.tokenizer(before, add_special_tokens=False)["input_ids"])
    ids = model.tokenizer(whole)["input_ids"]
    leading = len(ids) - len(model.tokenizer(whole, add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        logits = model.hf_model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    places = range(leading + start, len(ids))
    return sum(float(logits[place - 1, ids[place]]) for place in places), len(places)


def test_texts_of_answers_are_read_as_a_plain_pass_reads_them(causal, asked):
    read = ask_bbq(causal, asked.items, "en")
    assert set(read) == {"sum", "mean"}
    for number in (0, 3, 9):
        one = asked.items[number]
        question = f"Question: {one.question} Answer:"
        for answer, text in enumerate(one.answers):
            whole = f"Paragraph: {one.context} {question}"
            for way, before in (("asked", whole), ("alone", question)):
                total, tokens = literal(causal, before, f"{text}.")
                got = {name: getattr(own, way)[number, 0, answer] for name, own in read.items()}
                assert got["sum"] == pytest.approx(total, abs=1e-4)
                assert got["mean"] == pytest.approx(total / tokens, abs=1e-4)


def test_letters_are_read_in_three_rotations_and_put_back_to_the_data_s_order(causal, asked):
    read = ask_bbq(causal, asked.items, "en", config=LETTERS)["letter"]
    assert read.asked.shape == (len(asked.items), 3, 3)
    one = asked.items[5]
    for turn in range(3):
        listed = [*one.answers[turn:], *one.answers[:turn]]
        options = "\n".join(f"({m}) {text}" for m, text in zip("abc", listed, strict=True))
        before = f"Paragraph: {one.context}\nQuestion: {one.question}\n{options}\nAnswer:"
        for place, letter in enumerate("abc"):
            answer = one.answers.index(listed[place])
            total, _ = literal(causal, before, f"({letter})")
            assert read.asked[5, turn, answer] == pytest.approx(total, abs=1e-4)


def test_what_items_share_is_run_once_and_changes_no_number(causal, asked, scorers):
    together = ask_bbq(causal, asked.items, "en")["sum"]
    assert all(scorer.packed for scorer in scorers if scorer._may_share)
    for number in (0, 7):
        alone = ask_bbq(causal, [asked.items[number]], "en")["sum"]
        np.testing.assert_allclose(together.asked[number], alone.asked[0], atol=1e-4)
        np.testing.assert_allclose(together.alone[number], alone.alone[0], atol=1e-4)


def test_masked_models_fill_the_answer_from_left_to_right(subwords, asked):
    hf_model = tiny_hf_model("bert", len(subwords), max_position_embeddings=512, pad_token_id=2)
    model = LanguageModel(hf_model, subwords, "tiny-bert")
    read = ask_bbq(model, asked.items[:4], "en")["sum"]
    one = asked.items[1]
    before = f"Paragraph: {one.context} Question: {one.question} Answer:"
    for answer, text in enumerate(one.answers):
        encoded = subwords(f"{before} {text}.", return_offsets_mapping=True)
        ids, start = encoded["input_ids"], len(before) + 1
        inside = [i for i, (a, b) in enumerate(encoded["offset_mapping"])
                  if b > start and a < start + len(text)]  # fmt: skip
        total = 0.0
        for place in inside:
            row = [subwords.mask_token_id if i in inside and i >= place else t
                   for i, t in enumerate(ids)]  # fmt: skip
            with torch.no_grad():
                logits = model.hf_model(torch.tensor([row])).logits[0, place].double()
            total += float(logits.log_softmax(-1)[ids[place]])
        assert read.asked[1, 0, answer] == pytest.approx(total, abs=1e-4)


def test_encoder_decoders_write_the_answer_into_the_gap_after_the_question(subwords, asked):
    hf_model = tiny_hf_model("bart", len(subwords), max_position_embeddings=512, pad_token_id=2)
    model = LanguageModel(hf_model, subwords, "tiny-bart")
    for config in (BBQConfig(), LETTERS):
        read = ask_bbq(model, asked.items[:4], "en", config=config)
        assert all(np.isfinite(own.asked).all() for own in read.values())


def test_models_that_point_find_the_persons_and_the_first_token_for_unknown(subwords, asked):
    import transformers as tf

    config = tiny_hf_model("bert", len(subwords), max_position_embeddings=512).config
    torch.manual_seed(0)
    hf_model = tf.BertForQuestionAnswering(config).eval()
    model = LanguageModel(hf_model, subwords, "tiny-span")
    assert model.kind == "span"
    lost = item(context="Nobody is named here.", id="lost")
    read = ask_bbq(model, [*asked.items[:2], lost], "en")["span"]
    assert np.isnan(read.asked[2]).all()
    assert np.isnan(read.alone).all()
    one = asked.items[0]
    encoded = subwords(one.question, one.context, return_offsets_mapping=True)
    with torch.no_grad():
        output = hf_model(
            **{k: torch.tensor([v]) for k, v in encoded.items() if k != "offset_mapping"}
        )
    start, end = (x[0].double().log_softmax(-1) for x in (output.start_logits, output.end_logits))
    spans = list(zip(encoded["offset_mapping"], encoded.sequence_ids(), strict=True))
    for answer, word in ((one.target, "left-handed"), (one.bystander, "right-handed")):
        first = one.context.index(word)
        inside = [i for i, ((a, b), of) in enumerate(spans)
                  if of == 1 and b > first and a < first + len(word)]  # fmt: skip
        expected = 0.5 * float(start[inside[0]] + end[inside[-1]])
        assert read.asked[0, 0, answer] == pytest.approx(expected, abs=1e-5)
    nothing = 0.5 * float(start[0] + end[0])
    assert read.asked[0, 0, one.unknown] == pytest.approx(nothing, abs=1e-5)


def test_a_model_is_asked_in_a_way_that_it_can_be(tiny_lm):
    with pytest.raises(InputError, match="`ask` must be text for the masked model tiny-bert"):
        ask_bbq(tiny_lm("bert"), [item()], "en", config=LETTERS)
    with pytest.raises(InputError, match="is a permutation model"):
        ask_bbq(tiny_lm("xlnet"), [item()], "en")


def test_finished_parts_are_taken_over_and_another_way_to_ask_is_refused(
    causal, asked, tmp_path, monkeypatch
):
    cache = partial(Cache, tmp_path / "run" / "parts")
    first = bbq_scores(causal, asked, cache=cache)
    monkeypatch.setattr("tda_bias.models.scored.Scorer", None)
    again = bbq_scores(causal, asked, cache=cache)
    assert first.items.equals(again.items)
    with pytest.raises(InputError, match="ask was 'text', now 'letter'"):
        bbq_scores(causal, asked, config=LETTERS, cache=cache)


def test_the_result_has_a_score_and_a_cluster_for_every_item(causal, asked, tmp_path):
    result = bbq_scores(causal, asked)
    for _, own in result.items.groupby("scoring"):
        assert own["id"].tolist() == [one.id for one in asked.items]
        assert own["cluster"].tolist() == [one.cluster for one in asked.items]
        assert own["bias"].between(-1, 1).all()
    result.save(tmp_path / "run")
    read = type(result).load(tmp_path / "run")
    assert read.scores.drop(columns="undefined").equals(result.scores.drop(columns="undefined"))
    assert (tmp_path / "run" / "answers.jsonl").read_text().count("\n") == len(asked.items)
    row = result.value("s_AMB", "ambiguous", scoring="mean")
    assert row["scoring"] == "mean"


def test_special_tokens_in_an_answer_are_said(causal, asked):
    (special, *_) = {*causal.tokenizer.all_special_tokens} - {causal.tokenizer.unk_token}
    assert bbq_scores(causal, asked).record.remarks == ()
    first, *others = asked.items
    spelled = replace(first, question=f"{first.question} {special}")
    found = bbq_scores(causal, replace(asked, items=(spelled, *others)))
    (remark,) = found.record.remarks
    assert remark.startswith("1 text holds special tokens of the tokenizer (")


def test_prompts_speak_the_language_of_the_items():
    one = item(context="두 사람이 만났습니다.", question="누가?")
    assert text_prompts(words_of("ko"), one)[0].text.startswith("지문: 두 사람이")
    assert letter_prompts(words_of("es"), one)[1].text.endswith("\nRespuesta:")
    assert not [p for p in letter_prompts(words_of("en"), one, alone=True) if "두" in p.text]


def test_a_question_alone_is_asked_once_for_all_its_texts(causal, asked, monkeypatch):
    read = []
    scored = asking.scored
    monkeypatch.setattr(asking, "scored", lambda m, r, **how: read.extend(r) or scored(m, r, **how))
    ask_bbq(causal, asked.items, "en")
    texts = [ids for request in read for ids in request.ids]
    prompts = {(one.context, one.question) for one in asked.items}
    # Both texts of a scene share two questions, as do scenes that list the same answers.
    alone = {(one.question, one.answers) for one in asked.items}
    assert len(texts) == 3 * (len(prompts) + len(alone))
    assert len(alone) < len(prompts)


def test_questions_go_through_a_template_and_answers_follow_it_at_once(causal, asked):
    model = with_template(causal, PLAIN)
    read = ask_bbq(model, asked.items[:4], "en")["sum"]
    one = asked.items[1]
    message = f"Paragraph: {one.context} Question: {one.question} Answer:"
    said = [{"role": "user", "content": message}]
    before = model.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    for answer, text in enumerate(one.answers):
        total, _ = literal(model, before, f"{text}.", between="")
        assert read.asked[1, 0, answer] == pytest.approx(total, abs=1e-4)
    plain = ask_bbq(model, asked.items[:4], "en", config=BBQConfig(chat="text"))["sum"]
    without = ask_bbq(causal, asked.items[:4], "en")["sum"]
    np.testing.assert_array_equal(plain.asked, without.asked)
    assert not np.allclose(plain.asked, read.asked)


def test_the_record_says_what_stood_around_the_questions(causal, asked):
    model = with_template(causal, THINKING)
    first = BBQSet(asked.items[:4], (), "en", "here", None)
    around = bbq_scores(model, first, config=BBQConfig(system="Be brief.")).record.chat
    assert "Be brief." in around.before
    assert around.after.endswith("<think></think>\n")
    assert around.thinking == "off"
    assert bbq_scores(causal, first).record.chat is None


def test_a_chat_template_is_looked_at_once_for_a_run(causal, asked, monkeypatch):
    said = []
    real = chat.chat_of
    monkeypatch.setattr(chat, "chat_of", lambda *own, **how: said.append(own) or real(*own, **how))
    few = replace(asked, items=asked.items[:4])
    assert bbq_scores(with_template(causal, PLAIN), few).record.chat is not None
    assert len(said) == 1


def test_what_goes_with_a_template_is_refused_without_one(causal, tiny_lm):
    with pytest.raises(InputError, match="tiny-gpt2: its tokenizer has no chat template"):
        ask_bbq(causal, [item()], "en", config=BBQConfig(chat="template"))
    with pytest.raises(InputError, match=r"`system` goes with chat models.* no chat template"):
        ask_bbq(causal, [item()], "en", config=BBQConfig(system="Be brief."))
    with pytest.raises(InputError, match=r"`chat` goes with chat models.*\(it is masked\)"):
        ask_bbq(tiny_lm("bert"), [item()], "en", config=BBQConfig(chat="template"))


def test_a_template_and_plain_text_are_not_mixed(causal, asked, tmp_path):
    cache = partial(Cache, tmp_path / "run" / "parts")
    model = with_template(causal, PLAIN)
    ask_bbq(model, asked.items[:4], "en", cache=cache)
    with pytest.raises(InputError, match="chat was"):
        ask_bbq(model, asked.items[:4], "en", config=BBQConfig(chat="text"), cache=cache)
