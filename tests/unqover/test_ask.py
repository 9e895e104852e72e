"""Asking: what is saved, reused and refused."""

from dataclasses import replace

import numpy as np
import pytest

from tda_bias.types import InputError
from unqover import ask
from unqover.answers import Answers
from unqover.ask import ask_questions
from unqover.config import AskConfig


@pytest.fixture
def model(tiny_lm):
    return tiny_lm("gpt2", n_positions=512)


def test_a_killed_run_goes_on_where_it_was(model, few, tmp_path, monkeypatch):
    monkeypatch.setattr(ask, "_PAIRS", 2)
    whole = ask_questions(model, few)

    def stop(done, total):
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_questions(model, few, parts=tmp_path, progress=stop)
    saved = len(list(tmp_path.glob("*.npz")))
    assert saved == 2
    seen = []
    again = ask_questions(model, few, parts=tmp_path, progress=lambda d, t: seen.append((d, t)))
    assert again.record.parts_reused == saved
    np.testing.assert_allclose(again.log_prob, whole.log_prob, atol=1e-4)
    np.testing.assert_array_equal(again.n_tokens, whole.n_tokens)
    assert seen[-1] == (24, 24)
    assert ask_questions(model, few, parts=tmp_path, resume=False).record.parts_reused == 0


def test_answers_under_other_settings_are_never_mixed_in(model, tiny_lm, few, tmp_path):
    ask_questions(model, few, parts=tmp_path)
    with pytest.raises(InputError, match="negation was 'antonym', now 'not'"):
        ask_questions(model, few, config=AskConfig(negation="not"), parts=tmp_path)
    other = tiny_lm("gpt2", n_positions=512)
    other.hf_model.transformer.wte.weight.data += 0.1
    with pytest.raises(InputError, match="weights was"):
        ask_questions(other, few, parts=tmp_path)
    fewer = replace(few, attributes=few.attributes[:2], asked=few.asked[:, :2])
    with pytest.raises(InputError, match="other texts"):
        ask_questions(model, fewer, parts=tmp_path)


def test_saved_answers_are_the_same(model, few, tmp_path):
    answers = ask_questions(model, few)
    answers.save(tmp_path)
    again = Answers.load(tmp_path)
    for name in ("log_prob", "mass", "n_tokens", "first", "second"):
        np.testing.assert_array_equal(getattr(again, name), getattr(answers, name))
    for name in ("name", "factors", "subjects", "levels", "templates", "attributes", "kinds"):
        assert getattr(again, name) == getattr(answers, name)
    assert again.record.model == answers.record.model


def test_what_was_not_asked_stays_undefined(made_up, tmp_path):
    answers = made_up("nationality", subjects=3, attributes=4)
    answers.save(tmp_path)
    again = Answers.load(tmp_path)
    assert np.isnan(again.log_prob).any()
    np.testing.assert_array_equal(again.log_prob, answers.log_prob)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no finished run of `tdabias unqover`"):
        Answers.load(tmp_path)


def test_undefined_probabilities_are_refused(model, few):
    model.hf_model.transformer.ln_f.weight.data[:] = float("nan")
    with pytest.raises(InputError, match="gives NaN for .* log-probabilities: its weights"):
        ask_questions(model, few, config=AskConfig(share_prefix="never"))
