"""Requests in blocks: the same numbers as one by one, saved, resumed, and never mixed."""

import re
import textwrap
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tda_bias.models.requests import Request, continuations
from tda_bias.models.scored import Block, as_arrays, cut, from_arrays, read_blocks, scored
from tda_bias.models.scoring import Scorer
from tda_bias.store.cache import Cache
from tda_bias.store.shares import Shard
from tda_bias.types import InputError, ShareDone
from tests.support.literal import continuation

ASKED = {
    "The nurse said that": ["he knew it.", "she knew."],
    "The cook wrote that": ["he was a man.", "she was.", "it was."],
    "She knew that": ["he", "the heiress felt it"],
    "The heiress wrote": ["that she", "that he knew"],
    "He said": ["that", "that he was a cook"],
}


def requests_of(model):
    return continuations(model, list(ASKED), list(ASKED.values()))


def totals(answers):
    return [[float(values.sum()) for values in texts] for texts in answers]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for texts, others in zip(found, expected, strict=True):
        for values, other in zip(texts, others, strict=True):
            np.testing.assert_array_equal(values, other)


# -- by the definition -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom", "bert", "t5"])
def test_answers_are_read_after_their_contexts_text_by_text(tiny_lm, kind):
    model = tiny_lm(kind, **({"decoder_start_token_id": 1} if kind == "t5" else {}))
    answers = scored(model, requests_of(model), block=2, batch_size=3)
    for (context, texts), found in zip(ASKED.items(), totals(answers), strict=True):
        literal = [continuation(model, context, f"{context} {text}") for text in texts]
        np.testing.assert_allclose(found, literal, atol=5e-4)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_each_request_alone_gives_the_same(tiny_lm, kind):
    model = tiny_lm(kind)
    requests = requests_of(model)
    together = scored(model, requests, batch_size=50)
    for request, texts in zip(requests, together, strict=True):
        (alone,) = scored(model, [request], batch_size=1)
        for values, other in zip(texts, alone, strict=True):
            np.testing.assert_allclose(values, other, atol=2e-5)


def test_a_text_of_which_nothing_is_read_has_an_empty_array(tiny_lm):
    model = tiny_lm("gpt2")
    first, second, *_ = requests_of(model)
    nothing = replace(first, read=((0, ()), *first.read))
    silent = Request(second.ids, ())
    answers = scored(model, [nothing, silent, second])
    assert len(answers[0][0]) == 0
    assert answers[1] == ()
    np.testing.assert_allclose(totals(answers)[2], totals(scored(model, [second]))[0], atol=2e-5)
    assert scored(model, [silent]) == [()]
    assert scored(model, []) == []


def test_what_cannot_be_read_is_refused(tiny_lm):
    model = tiny_lm("gpt2")
    with pytest.raises(InputError, match="'': the tokenizer makes no token of a text, its context"):
        continuations(model, [""], [["he"]])
    with pytest.raises(InputError, match="'He said' has no answer"):
        continuations(model, ["He said"], [[]])
    with pytest.raises(InputError, match="`model` tiny-gpt2 takes 128"):
        scored(model, continuations(model, ["he"], [["he " * 200]]))


def test_the_example_of_the_docstring_runs(tiny_lm):
    (code,) = re.findall(r"```python\n(.*?)```", scored.__doc__, flags=re.DOTALL)
    names = {"model": tiny_lm("gpt2")}
    exec(textwrap.dedent(code), names)
    assert [len(texts) for texts in names["answers"]] == [2, 3]
    assert np.isfinite(names["log_odds"])


# -- saved and resumed -----------------------------------------------------------------------------


@pytest.fixture
def model(tiny_lm):
    return tiny_lm("gpt2")


@pytest.fixture
def ask(model, tmp_path):
    """Scores the requests in blocks of two, kept in a folder."""

    def asked(requests=None, **options):
        options = {"cache": partial(Cache, tmp_path), "block": 2, "batch_size": 1, **options}
        return scored(model, requests or requests_of(model), **options)

    return asked


@pytest.fixture
def times_read(monkeypatch):
    """How many requests each call to a scorer has read."""
    numbers, reads = [], Scorer.read

    def counted(self, requests, **options):
        numbers.append(len(requests))
        return reads(self, requests, **options)

    monkeypatch.setattr(Scorer, "read", counted)
    return numbers


def test_saved_blocks_are_taken_and_not_read_again(ask, tmp_path, times_read):
    first = ask()
    names = {re.sub(r"-\w+\.npz$", "", path.name) for path in tmp_path.glob("*.npz")}
    assert names == {"texts-1-to-2", "texts-3-to-4", "texts-5-to-5"}
    assert times_read == [2, 2, 1]
    assert_same(ask(), first)
    assert times_read == [2, 2, 1]


def test_an_interrupted_block_is_read_again_and_finished_ones_are_not(
    ask, model, tmp_path, times_read
):
    whole = scored(model, requests_of(model), block=2, batch_size=1)
    times_read.clear()
    seen = []

    def stop(done, total):
        seen.append((done, total))
        if done > 2:  # within the second block
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(progress=stop)
    assert seen[-1][0] in (3, 4)
    assert len(list(tmp_path.glob("*.npz"))) == 1
    assert times_read == [2, 2]
    told = []
    assert_same(ask(progress=lambda *counts: told.append(counts)), whole)
    assert times_read == [2, 2, 2, 1]
    assert told[0] == (2, 5)
    assert told[-1] == (5, 5)
    assert told == sorted(told)


def test_blocks_of_the_same_requests_are_read_under_each_name(ask, model, times_read):
    """A part is found by its name; the hash of what it holds only guards it."""
    two = requests_of(model)[:2]
    found = ask([*two, *two])
    assert times_read == [2, 2]
    assert_same(found[2:], found[:2])
    with pytest.raises(ValueError, match="two blocks have one name"):
        read_blocks(model, [Block("one", 1, dict, lambda _: {})] * 2, identity={})


def test_readings_of_other_requests_settings_or_models_are_not_taken(ask, model, tiny_lm):
    ask()
    others = requests_of(model)
    with pytest.raises(InputError, match="other texts"):
        ask(others[::-1])
    with pytest.raises(InputError, match="other texts"):
        ask([replace(others[0], read=others[0].read[::-1]), *others[1:]])
    with pytest.raises(InputError, match="other settings .*of was None, now 'jobs'"):
        ask(identity={"of": "jobs"})
    model.hf_model.transformer.wte.weight.data += 0.1
    with pytest.raises(InputError, match="weights was"):
        ask()


def test_processes_share_the_blocks_and_one_gathers(ask, model, tmp_path, times_read):
    alone = scored(model, requests_of(model), block=2, batch_size=1)
    times_read.clear()
    told = []
    for index in range(2):
        shard = Shard(index, 2)
        with pytest.raises(ShareDone):
            ask(cache=partial(Cache, tmp_path, shard=shard), progress=lambda *of: told.append(of))
    assert sorted(times_read) == [1, 2, 2]
    assert max(told) < (5, 5)
    assert_same(ask(), alone)
    assert len(times_read) == 3


# -- what is saved ---------------------------------------------------------------------------------


def test_readings_survive_being_arrays_as_far_as_all_blocks_have_them():
    rng = np.random.default_rng(0)

    def texts(*sizes):
        return tuple(rng.random(size) for size in sizes)

    first = {"pll": [texts(2, 0, 3), texts(1, 4)], "pll_within_word": [texts(2), texts(0)]}
    second = {"pll": [texts(5)]}
    found = from_arrays([as_arrays(first), as_arrays(second)])
    assert list(found) == ["pll"]
    assert_same(found["pll"], [*first["pll"], *second["pll"]])
    assert list(from_arrays([as_arrays(first)])) == ["pll", "pll_within_word"]
    assert from_arrays([]) == {}


def test_blocks_say_which_of_all_they_are():
    cuts = list(cut("pairs", range(5), 2))
    assert cuts == [
        ("pairs 1 to 2", range(2)),
        ("pairs 3 to 4", range(2, 4)),
        ("pairs 5 to 5", range(4, 5)),
    ]
