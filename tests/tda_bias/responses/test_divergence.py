"""Divergences along responses: against the definition, token by token."""

import math

import numpy as np
import pytest
import torch

from tda_bias.models.language_model import LanguageModel
from tda_bias.responses.divergence import Reader, next_token_divergences
from tda_bias.responses.echo import EchoClasses, counterparts, echo_classes
from tda_bias.responses.sampling import end_tokens, response_seed, responses
from tda_bias.responses.written import pieces_of
from tests.support.models import tiny_hf_model
from tests.support.responses import WOMEN, writing_model
from tests.support.tokenizers import by_digits

CLASSES = EchoClasses(np.array([1, 4, 2, 3, 6]), np.array([0, 0, 1, 1, 1]))


def literal(p, q, classes):
    """The divergence of q from p, and the part of it within classes."""
    whole = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    within = 0.0
    for number in range(len(classes)):
        tokens = classes.token[classes.of == number]
        p_class, q_class = sum(p[t] for t in tokens), sum(q[t] for t in tokens)
        within += p_class * sum(
            p[t] / p_class * math.log((p[t] / p_class) / (q[t] / q_class)) for t in tokens
        )
    return whole, within


def merged(p, classes):
    """A distribution with the tokens of each class made one."""
    alone = [p[t] for t in range(len(p)) if t not in classes.token]
    return [*alone, *(sum(p[t] for t in classes.token[classes.of == c])
                      for c in range(len(classes)))]  # fmt: skip


def test_the_divergence_is_the_defined_sum_and_parts_into_merged_classes_and_echo():
    torch.manual_seed(0)
    logits, own = torch.randn(4, 5, 8) * 2, torch.tensor([0, 1, 1, 3, 2])
    kl, echo, log_p = next_token_divergences(logits, own, CLASSES)
    p = torch.softmax(logits.double(), -1).numpy()
    for place, first in enumerate(own.tolist()):
        for person in range(4):
            whole, within = literal(p[first, place], p[person, place], CLASSES)
            assert float(kl[person, place]) == pytest.approx(whole, abs=1e-6)
            assert float(echo[person, place]) == pytest.approx(within, abs=1e-6)
            rest = literal(merged(p[first, place], CLASSES), merged(p[person, place], CLASSES),
                           EchoClasses(np.array([], int), np.array([], int)))[0]  # fmt: skip
            assert float(kl[person, place] - echo[person, place]) == pytest.approx(rest, abs=1e-6)
    np.testing.assert_allclose(log_p.exp().numpy(), p, atol=1e-6)
    assert (echo >= -1e-6).all()
    assert (kl - echo >= -1e-6).all()


def test_where_a_name_may_go_on_only_its_next_tokens_are_echo():
    torch.manual_seed(0)
    logits, own = torch.randn(4, 5, 8) * 2, torch.tensor([0, 1, 1, 3, 2])
    names = [(), (5, 1), (), (), (0,)]
    kl, echo, _ = next_token_divergences(logits, own, CLASSES, names)
    _, before, _ = next_token_divergences(logits, own, CLASSES)
    p = torch.softmax(logits.double(), -1).numpy()
    for place, tokens in enumerate(names):
        for person in range(4):
            if not tokens:
                assert echo[person, place] == before[person, place]
                continue
            # What is no echo: the distributions of all other tokens, with their classes merged.
            other = [t for t in range(8) if t not in tokens]
            rest = [[*(t for t in other if t not in CLASSES.token)], *(
                [t for t in CLASSES.token[CLASSES.of == c] if t in other] for c in range(2)
            )]  # fmt: skip
            parts = [*([t] for t in rest[0]), *(own_class for own_class in rest[1:] if own_class)]
            a, b = (
                [sum(of[t] for t in part) / sum(of[t] for t in other) for part in parts]
                for of in (p[own[place], place], p[person, place])
            )
            share = sum(p[own[place], place][t] for t in other)
            expected = share * sum(x * math.log(x / y) for x, y in zip(a, b, strict=True))
            left = float(kl[person, place] - echo[person, place])
            assert left == pytest.approx(expected, abs=1e-6)


def test_names_of_several_tokens_have_beginnings_after_which_they_go_on(tiny_lm):
    model = tiny_lm()  # which spells names letter by letter
    classes = echo_classes(model, ["Ann", "Bob", "Cy", "Di"])
    ids = model.token_ids([" Ann said"])[0]
    name = len(model.token_ids([" Ann"])[0])
    assert name > 1
    next_ones = classes.names_go_on(ids)
    assert not next_ones[0]
    assert all(ids[place] in next_ones[place] for place in range(1, name))
    assert not any(ids[place] in next_ones[place] for place in range(name, len(ids)))
    assert (model.token_ids(["Ann"])[0][0],) in classes.begun


AGES = [f"a {age}-year-old man" for age in (20, 30, 60)] + ["an 80-year-old man"]


@pytest.fixture(scope="module")
def digits():
    """A model whose tokenizer writes numbers digit by digit, the space before them apart."""
    tokenizer = by_digits(
        "(He (She (A (An He She he she A a An an worked years children salary old man had your "
        "an 80-year-old man have of In you is A letter He went . " * 9
    )
    return LanguageModel(tiny_hf_model("gpt2", len(tokenizer)), tokenizer, "tiny-digits")


@pytest.mark.parametrize(
    "text", ["you have worked 20 years", "In 1968 she had 3 children", "a salary of 65,000"]
)
def test_what_numbers_stand_in_is_no_echo_where_people_are_told_by_age(digits, text):
    classes = echo_classes(digits, AGES)
    ids = digits.token_ids([text])[0]
    for token, next_ones in zip(ids, classes.names_go_on(ids), strict=True):
        assert token not in next_ones
        assert not str(digits.tokenizer.decode([token])).strip().isdigit() or (
            token not in classes.token
        )


def test_a_description_is_echo_from_its_article_or_its_whole_number_on(digits):
    classes = echo_classes(digits, AGES)
    for text, first in ((" is an 80-year-old man", " is an"), (" old 80-year-old man", " old 80-")):
        ids, begin = digits.token_ids([text])[0], len(digits.token_ids([first])[0])
        next_ones = classes.names_go_on(ids)
        assert all(ids[place] in next_ones[place] for place in range(begin, len(ids)))
    of = dict(zip(classes.token.tolist(), classes.of.tolist(), strict=True))
    for articles in ((" a", " an"), ("A", "An")):
        one, other = (digits.token_ids([article])[0][0] for article in articles)
        assert of[one] == of[other]
    alike = echo_classes(digits, AGES[:3])  # whose articles say nothing
    assert digits.token_ids([" an"])[0][0] not in alike.token


def test_a_name_that_begins_as_a_pronoun_or_an_article_leaves_these_as_they_are(digits):
    classes = echo_classes(digits, ["Hector", "Alonzo", "Mary", "Rose"])
    he, she, a = (digits.token_ids([word])[0][0] for word in ("He", "She", "A"))
    assert [digits.token_ids([name])[0][0] for name in ("Hector", "Alonzo")] == [he, a]
    of = dict(zip(classes.token.tolist(), classes.of.tolist(), strict=True))
    assert of[he] == of[she]
    for text in ("He went", "A letter"):
        ids = digits.token_ids([text])[0]
        assert not any(t in own for t, own in zip(ids, classes.names_go_on(ids), strict=True))


def test_without_classes_there_is_no_echo():
    kl, echo, _ = next_token_divergences(
        torch.randn(2, 3, 5), torch.tensor([0, 1, 0]), EchoClasses(np.array([], int),
                                                                   np.array([], int))
    )  # fmt: skip
    assert not echo.any()
    assert (kl[1, [0, 2]] > 0).all()


@pytest.fixture(scope="module")
def written():
    """A model, prompts about four people, responses, and what is read along them."""
    model = writing_model(n_positions=64)
    prompts = [model.token_ids([f"Write about {name} who was"])[0] for name in WOMEN[:4]]
    whose = [0, 1, 2, 3, 0]
    seeds = [response_seed(0, "p", "x", i) for i in range(5)]
    rows = responses(model, [prompts[i] for i in whose], n_tokens=7, seeds=seeds)
    classes = echo_classes(model, WOMEN[:4])
    return model, prompts, whose, rows, classes, Reader(model, batch_size=8).read(
        prompts, rows, whose, classes
    )  # fmt: skip


def next_token(model, ids):
    with torch.inference_mode():
        logits = model.hf_model(torch.tensor([list(ids)])).logits[0, -1]
    return torch.softmax(logits.double(), -1).numpy()


def test_what_is_read_along_a_response_is_what_the_model_says_text_by_text(written):
    model, prompts, whose, rows, classes, along = written
    counted = np.zeros_like(along.expected)
    for number, row in enumerate(rows):
        for place, token in enumerate(row):
            p = [next_token(model, [*prompt, *row[:place]]) for prompt in prompts]
            for person in range(4):
                whole, within = literal(p[whose[number]], p[person], classes)
                assert along.kl[number, person, place] == pytest.approx(whole, abs=2e-5)
                assert along.echo[number, person, place] == pytest.approx(within, abs=2e-5)
                said = along.log_prob[number, person, place]
                assert said == pytest.approx(math.log(p[person][token]), abs=1e-4)
                counted[person] += p[person]
        assert np.isnan(along.kl[number, :, len(row) :]).all()
    np.testing.assert_allclose(along.expected, counted, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_nothing_depends_on_the_batch_or_on_what_is_kept(written, batch_size, monkeypatch):
    model, prompts, whose, rows, classes, along = written
    reader = Reader(model, batch_size=batch_size)
    assert np.nanmax(np.abs(reader.read(prompts, rows, whose, classes).kl - along.kl)) < 2e-5
    assert reader._keeps
    monkeypatch.setattr(reader, "_keeps", False)
    assert np.nanmax(np.abs(reader.read(prompts, rows, whose, classes).kl - along.kl)) < 2e-5


@pytest.mark.parametrize("kind", ["llama", "gemma3", "bloom", "mamba"])
def test_models_of_other_kinds_are_read_alike_with_and_without_what_they_keep(kind):
    model = writing_model(kind)
    prompts = [model.token_ids([f"Write about {name} who was"])[0] for name in WOMEN[:4]]
    rows = responses(model, prompts, n_tokens=6, seeds=[1, 2, 3, 4])
    classes = echo_classes(model, WOMEN[:4])
    found = Reader(model, batch_size=32).read(prompts, rows, [0, 1, 2, 3], classes)
    plain = Reader(model, batch_size=32)
    plain._keeps = False
    whole = plain.read(prompts, rows, [0, 1, 2, 3], classes)
    assert np.nanmax(np.abs(found.kl - whole.kl)) < 1e-4
    assert np.nanmax(np.abs(found.log_prob - whole.log_prob)) < 1e-3


def test_exact_and_sampled_estimates_have_the_divergence_of_responses_as_their_mean():
    """Of responses of two tokens, which can be summed over all of them."""
    model = writing_model()
    prompts = [model.token_ids([f"Write about {name} who was"])[0] for name in WOMEN[:2]]
    ends, divergence = end_tokens(model), 0.0
    p, q = (next_token(model, prompt) for prompt in prompts)
    for token in range(len(p)):
        divergence += p[token] * math.log(p[token] / q[token])
        if token not in ends:
            after = [next_token(model, [*prompt, token]) for prompt in prompts]
            divergence += p[token] * literal(*after, EchoClasses(np.array([]), np.array([])))[0]
    n = 600
    rows = responses(model, [prompts[0]] * n, n_tokens=2, seeds=list(range(n)), batch_size=200)
    along = Reader(model, batch_size=200).read(
        prompts, rows, [0] * n, EchoClasses(np.array([], int), np.array([], int))
    )
    exact = np.nansum(along.kl[:, 1], axis=1)
    ratio = np.nansum(along.log_prob[:, 0] - along.log_prob[:, 1], axis=1)
    for estimate in (exact, ratio):
        error = estimate.std() / math.sqrt(n)
        assert abs(estimate.mean() - divergence) < 4 * error
    assert exact.std() < ratio.std()


# -- sampling --------------------------------------------------------------------------------------


def test_tokens_are_drawn_from_the_models_own_distribution_whatever_its_settings():
    model = writing_model()
    prompt = model.token_ids(["Write about Waa who was"])[0]
    n, p = 3000, next_token(model, prompt)
    before = model.hf_model.generation_config
    plain = responses(model, [prompt] * n, n_tokens=1, seeds=list(range(n)), batch_size=1000)
    share = np.bincount([row[0] for row in plain], minlength=len(p)) / n
    assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / n) + 1e-3).all()
    assert model.hf_model.generation_config is before
    before.top_k, before.temperature, before.repetition_penalty = 1, 0.1, 9.0
    before.no_repeat_ngram_size, before.min_new_tokens = 1, 5
    try:
        again = responses(model, [prompt] * 50, n_tokens=4, seeds=list(range(50)))
    finally:
        before.top_k = before.temperature = before.repetition_penalty = None
        before.no_repeat_ngram_size = before.min_new_tokens = None
    assert again == responses(model, [prompt] * 50, n_tokens=4, seeds=list(range(50)))


def test_the_same_seeds_give_the_same_responses_in_any_batch_and_others_other_ones():
    model = writing_model()
    prompt = model.token_ids(["Write about Waa who was"])[0]
    seeds = [response_seed(0, "p", "Waa", i) for i in range(9)]
    found = [responses(model, [prompt] * 9, n_tokens=8, seeds=seeds, batch_size=size)
             for size in (1, 4, 9)]  # fmt: skip
    assert found[0] == found[1] == found[2]
    assert len({tuple(row) for row in found[0]}) > 5
    other = [response_seed(1, "p", "Waa", i) for i in range(9)]
    assert responses(model, [prompt] * 9, n_tokens=8, seeds=other) != found[0]
    greedy = responses(model, [prompt] * 2, n_tokens=4, seeds=None)
    row = greedy[0]
    for place, token in enumerate(row):
        assert token == next_token(model, [*prompt, *row[:place]]).argmax()


def test_a_response_ends_with_its_end_token_which_counts():
    model = writing_model()
    prompt = model.token_ids(["Write about Waa who was"])[0]
    rows = responses(model, [prompt] * 400, n_tokens=9, seeds=list(range(400)), batch_size=400)
    (end,) = end_tokens(model)
    ended = [row for row in rows if end in row]
    assert ended
    assert all(row.index(end) == len(row) - 1 for row in ended)
    assert all(len(row) == 9 for row in rows if end not in row)


@pytest.mark.parametrize(
    "text", ["She is 😀 and 漢字 here", "😀", "é 20 \ufffd!", "She is 😀<s>", ""]
)
def test_pieces_of_a_response_are_its_text_where_characters_are_several_tokens(digits, text):
    ids = digits.tokenizer(text)["input_ids"]
    pieces = pieces_of(digits, ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == digits.tokenizer.decode(ids) == text
    cut = digits.tokenizer("She is 😀")["input_ids"][:-1]
    assert "".join(pieces_of(digits, cut)) == digits.tokenizer.decode(cut)
    ended = [*cut, digits.tokenizer.eos_token_id]
    assert pieces_of(digits, ended)[-1] == "<s>"


# -- echo ------------------------------------------------------------------------------------------


def test_counterparts_are_those_that_grammar_chooses_between_each_in_one_set():
    sets = counterparts()
    assert sets == sorted(tuple(sorted(words)) for words in sets)  # alike in every process
    words = [word for words in sets for word in words]
    assert len(words) == len(set(words))
    of = {word: set(words) for words in sets for word in words}
    assert of["she"] == {"she", "he"}
    assert of["his"] == {"her", "hers", "his", "him"}
    assert {"mr", "mrs", "ms"} <= of["mr"]
    assert {"woman", "man"} <= of["man"]
    assert not {"nurse", "the", "engineer"} & set(words)


def test_classes_are_of_single_tokens_and_of_the_names():
    model = writing_model()
    classes = echo_classes(model, ["Waa", "Wab", "Moa", "Mob"])
    said = model.tokenizer.convert_ids_to_tokens(classes.token.tolist())
    found = [{said[i] for i in np.flatnonzero(classes.of == c)} for c in range(len(classes))]
    assert found == [{"she", "he"}, {"her", "his"}, {"Waa", "Wab", "Moa", "Mob"}]
