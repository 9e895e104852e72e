"""Groups side by side: the same numbers to the last digit, by copies that share their weights."""

import threading
import time

import pandas as pd
import pytest
import torch

import tda_bias.heads.head_bias
from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.heads.passes import tokenize
from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.side_by_side import Readers, groups_at_a_time
from tda_bias.models.load import hook_model
from tda_bias.threads import UnwantedError
from tda_bias.twins import make_twins
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model

HOOKED = ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "mistral", "opt", "bloom", "bert", "t5"]
BY_THEMSELVES = ["distilbert", "albert"]


@pytest.fixture(scope="module")
def triples():
    return load_triples("starter", category="gender", limit=3)


def found(model, triples, **options):
    return head_bias(
        model, triples, twins=make_twins(triples), config=HeadBiasConfig(n_resamples=99), **options
    )


@pytest.mark.parametrize("kind", HOOKED + BY_THEMSELVES)
def test_numbers_are_those_of_a_thread_alone(tokenizer, triples, two_threads, kind):
    model = hook_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name=kind)
    assert (model.bridge is None) == (kind in BY_THEMSELVES)
    readers = []
    together = found(model, triples, progress=lambda *_: readers.append(threading.get_ident()))
    torch.set_num_threads(1)
    alone = found(model, triples)
    assert len(set(readers)) > 1, "nothing ran side by side"
    for name in ("table", "combined", "category", "groups"):
        pd.testing.assert_frame_equal(getattr(together, name), getattr(alone, name))
    assert together.record.texts == alone.record.texts
    row_sums = [[group.row_sums for group in run.record.groups] for run in (together, alone)]
    assert row_sums[0] == row_sums[1]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "albert"])
def test_copies_have_their_weights_in_common_and_nothing_else(tokenizer, kind):
    model = hook_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name=kind)
    other = model.copied()
    shared = {p.data_ptr() for p in model.hf_model.parameters()}
    embedding = other.hf_model.get_input_embeddings()
    assert embedding.weight.data_ptr() in shared
    assert embedding is not model.hf_model.get_input_embeddings()
    modules = {id(module) for module in model.hf_model.modules()}
    assert not modules & {id(module) for module in other.hf_model.modules()}


def test_long_texts_changed_weights_and_models_hooked_elsewhere_go_one_by_one(tiny, two_threads):
    model = tiny("llama")
    weights = model.weight_hash()
    assert groups_at_a_time(model, weights, 20, 5) == 2
    assert groups_at_a_time(model, weights, 20, 1) == 1
    assert groups_at_a_time(model, weights, 500, 5) == 1
    with torch.no_grad():
        next(model.hf_model.parameters()).mul_(2)
    assert groups_at_a_time(model, model.weight_hash(), 20, 5) == 1


def test_changed_weights_are_what_is_measured(tiny, triples, two_threads):
    model, untouched = tiny("gpt2"), tiny("gpt2")
    for parameter in model.hf_model.parameters():
        with torch.no_grad():
            parameter.mul_(1.5)
    changed = found(model, triples).table["S"].to_numpy()
    torch.set_num_threads(1)
    assert (changed == found(model, triples).table["S"].to_numpy()).all()
    assert (changed != found(untouched, triples).table["S"].to_numpy()).any()


def test_an_error_ends_the_other_groups_before_their_next_pass(
    tiny, triples, two_threads, monkeypatch
):
    model, ended = tiny("gpt2"), []
    computed, meet = tda_bias.heads.head_bias.computed_group, threading.Barrier(2)
    two = sorted({triple.group for triple in triples})[:2]
    chosen = [triple for triple in triples if triple.group in two]
    groups = tda_bias.heads.head_bias.tokenized_groups(model, chosen, make_twins(chosen))[0]
    first, other = sorted(groups, key=lambda group: -group.cost)

    def fails_in_the_first(group, reader, *rest):
        meet.wait(60)
        if group.group == first.group:
            raise InputError("the first group is broken")
        time.sleep(0.1)  # by now nobody wants it
        try:
            return computed(group, reader, *rest)
        except UnwantedError:
            ended.append(group.group)
            raise

    monkeypatch.setattr(tda_bias.heads.head_bias, "computed_group", fails_in_the_first)
    before = threading.active_count()
    with pytest.raises(InputError, match="the first group is broken"):
        found(model, chosen)
    assert ended == [other.group]
    assert threading.active_count() == before


def test_a_reader_is_used_by_nobody_else_and_used_again(tiny, triples):
    model = tiny("gpt2")
    readers = Readers(PatternReader(model, batch_size=4, edges="output"))
    with readers.borrowed() as first, readers.borrowed() as second:
        assert first.model is model
        assert second.model is not model
        texts = tokenize(model.tokenizer, triples[:2], max_tokens=None)
        batches = [list(reader.read(texts)) for reader in (first, second)]
    for one, other in zip(*batches, strict=True):
        torch.testing.assert_close(one.patterns, other.patterns, rtol=0, atol=0)
    with readers.borrowed() as again:
        assert again in (first, second)
