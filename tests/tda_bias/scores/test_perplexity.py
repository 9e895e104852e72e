"""Perplexity and divergence on neutral text against plain, unbatched computation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tda_bias.models.load import LanguageModel, load_language_model
from tda_bias.scores.perplexity import divergence, log_perplexity, text_windows
from tda_bias.sources import load_neutral_text
from tda_bias.types import InputError
from tests.support.literal import causal_steps, masked_step
from tests.support.models import tiny_hf_model
from tests.support.pairs import pairs_folder
from tests.support.tokenizers import Wrapped

TEXT = "The nurse said that he knew that she felt it. The cook wrote and the man knew. " * 3


def sliding(model, ids, width, stride):
    """The recipe of the transformers documentation: sum and number of scored tokens."""
    total, n, before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + width, len(ids))
        new = causal_steps(model, ids[begin:end])[-(end - before) :]
        total, n = total - sum(new), n + len(new)
        before = end
        if end == len(ids):
            break
    return total, n


@pytest.mark.parametrize(
    ("kind", "width", "stride", "batch_size"),
    [("gpt2", 40, 15, 3), ("llama", 32, 32, 1), ("bloom", 40, 15, 3), ("gemma2", 400, 100, 2)],
)
def test_windows_slide_as_the_transformers_documentation_says(
    tiny_lm, kind, width, stride, batch_size
):
    model = tiny_lm(kind, max_position_embeddings=512) if kind != "bloom" else tiny_lm(kind)
    if kind == "gpt2":
        model = tiny_lm(kind, n_positions=512)
    windows = text_windows(model, TEXT, width=width, stride=stride)
    found = log_perplexity(model, windows, batch_size=batch_size)
    total, n = sliding(model, model.tokenizer(TEXT)["input_ids"], width, stride)
    assert windows.n_tokens == int(found.n_tokens.sum()) == n
    assert found.mean == pytest.approx(total / n, abs=1e-5)


def test_masked_models_mask_each_scored_token(tiny_lm):
    model = tiny_lm("bert")
    windows = text_windows(model, TEXT, width=30, stride=20, sample=2, seed=1)
    found = log_perplexity(model, windows, batch_size=7)
    for number, ids in enumerate(windows.ids):
        places = range(windows.first[number], len(ids))
        total = -sum(masked_step(model, list(ids), place) for place in places)
        assert found.total[number] == pytest.approx(total, abs=1e-4)


class WithSpecialTokens(Wrapped):
    """The same tokenizer, with a token in front of every text and one behind it."""

    def __call__(self, text, *, add_special_tokens=True, **options):
        encoded = self._tokenizer(text, add_special_tokens=False, **options)
        if add_special_tokens:
            encoded["input_ids"] = [0, *encoded["input_ids"], 1]
        return encoded


def test_special_tokens_stand_in_every_window_and_are_not_scored(tiny_lm):
    for kind, behind in (("llama", 0), ("bert", 1)):
        plain = tiny_lm(kind)
        model = LanguageModel(plain.hf_model, WithSpecialTokens(plain.tokenizer), "m")
        windows = text_windows(model, TEXT, width=21, stride=10)
        ids = plain.tokenizer(TEXT)["input_ids"]
        assert windows.n_tokens == len(ids)
        assert all(own[0] == 0 for own in windows.ids)
        assert all(own[-1] == 1 for own in windows.ids) == bool(behind)
        scored = [
            token
            for own, first in zip(windows.ids, windows.first, strict=True)
            for token in own[first : len(own) - behind]
        ]
        assert scored == ids


@pytest.fixture(scope="module")
def gpt2(tiny_lm):
    return tiny_lm("gpt2")


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(1, 40), st.integers(2, 120))
def test_every_token_with_context_is_scored_once(gpt2, width, stride, n):
    model = gpt2
    words = model.tokenizer.decode(model.tokenizer(TEXT)["input_ids"][:n])
    ids = model.tokenizer(words)["input_ids"]
    if stride > width:
        with pytest.raises(InputError, match="`stride` must lie between 1 and"):
            text_windows(model, words, width=width, stride=stride)
        return
    windows = text_windows(model, words, width=width, stride=stride)
    scored = [
        token
        for own, first in zip(windows.ids, windows.first, strict=True)
        for token in own[first:]
    ]
    # Where windows do not overlap, nothing predicts the first token of each.
    assert scored == [t for i, t in enumerate(ids) if i and (stride < width or i % width)]
    assert windows.of == len(windows.ids)
    assert max(map(len, windows.ids)) <= width


def test_a_sample_is_of_the_same_windows_and_set_by_its_seed(gpt2):
    model = gpt2
    every = text_windows(model, TEXT, width=20, stride=10)
    drawn = text_windows(model, TEXT, width=20, stride=10, sample=4, seed=3)
    again = text_windows(model, TEXT, width=20, stride=10, sample=4, seed=3)
    other = text_windows(model, TEXT, width=20, stride=10, sample=4, seed=4)
    assert drawn == again
    assert drawn != other
    assert set(drawn.ids) < set(every.ids)
    assert (len(drawn.ids), drawn.of) == (4, every.of)
    assert text_windows(model, TEXT, width=20, stride=10, sample=999).ids == every.ids


def test_what_cannot_be_measured_is_refused(tiny_lm, gpt2):
    model = gpt2
    with pytest.raises(InputError, match="takes 128"):
        text_windows(model, TEXT, width=500)
    with pytest.raises(InputError, match="fewer than two tokens"):
        text_windows(model, "")
    with pytest.raises(InputError, match="`sample` must be at least 1"):
        text_windows(model, TEXT, sample=0)
    t5 = tiny_lm("t5")
    with pytest.raises(InputError, match="a seq2seq language model; perplexity is that of causal"):
        log_perplexity(t5, text_windows(t5, TEXT, width=20))


# -- divergence --


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_divergence_is_the_sum_over_the_vocabulary(tiny_lm, kind):
    before = tiny_lm(kind)
    after = tiny_lm(kind)
    with torch.no_grad():
        for parameter in after.hf_model.parameters():
            parameter.mul_(1.1)
    windows = text_windows(before, TEXT, width=20, stride=10, sample=3)
    found = divergence(before, after, windows, batch_size=2)
    for number, ids in enumerate(windows.ids):
        total = 0.0
        for place in range(windows.first[number], len(ids)):
            if kind == "gpt2":
                row, at = ids[:place], place - 1
            else:
                row, at = [*ids[:place], before.tokenizer.mask_token_id, *ids[place + 1 :]], place
            with torch.no_grad():
                p, q = (
                    torch.softmax(m.hf_model(torch.tensor([row])).logits[0, at].double(), -1)
                    for m in (before, after)
                )
            total += sum(float(a * (a / b).log()) for a, b in zip(p, q, strict=True))
        assert found.total[number] == pytest.approx(total, abs=1e-4)
    assert found.mean > 0.01


def test_other_vocabularies_are_refused(tiny_lm, tokenizer):
    model = tiny_lm("gpt2")
    other = LanguageModel(tiny_hf_model("gpt2", len(tokenizer)), tokenizer, "other")
    with pytest.raises(InputError, match="have other vocabularies"):
        divergence(model, other, text_windows(model, TEXT, width=20))


# -- texts and the real model --


def test_neutral_texts_are_files_folders_or_the_hubs(tmp_path, monkeypatch):
    import datasets

    path = tmp_path / "wikitext-2-raw-v1_test.txt"
    path.write_text(TEXT)
    assert load_neutral_text(path) == load_neutral_text(str(path))
    assert load_neutral_text(tmp_path).text == TEXT
    with pytest.raises(InputError, match="is no folder with a file wikitext-2-raw-v1_test.txt"):
        load_neutral_text(tmp_path / "none")
    path.write_text(" ")
    with pytest.raises(InputError, match="is empty"):
        load_neutral_text(path)
    split = datasets.Dataset.from_dict({"text": ["a", "", "b"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: split)
    assert load_neutral_text().text == "a\n\n\n\nb"


def test_neutral_text_is_read_in_the_folder_that_the_environment_names(tmp_path, monkeypatch):
    path = tmp_path / "wikitext2" / "wikitext-2-raw-v1_test.txt"
    path.parent.mkdir()
    path.write_text(TEXT)
    monkeypatch.setenv("TDABIAS_PAIRS", str(tmp_path))
    assert load_neutral_text() == load_neutral_text(path)


@pytest.mark.real
def test_the_real_perplexity_is_that_of_unbatched_windows():
    model = load_language_model("smollm2-135m", device="cpu")
    text = load_neutral_text(pairs_folder("wikitext2")).text[:800]
    windows = text_windows(model, text, width=128, stride=64)
    found = log_perplexity(model, windows, batch_size=3)
    total, n = sliding(model, model.tokenizer(text)["input_ids"], 128, 64)
    assert (int(found.n_tokens.sum()), len(windows.ids)) == (n, windows.of)
    assert found.mean == pytest.approx(total / n, abs=1e-5)
    assert 2.5 < found.mean < 4.5
