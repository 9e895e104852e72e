"""Batches side by side and in half precision: the same outcomes, exactly or up to rounding."""

import threading

import numpy as np
import pytest
import torch

from tda_bias.behaviour import removal
from tda_bias.behaviour.ablation import Ablator
from tda_bias.behaviour.perplexity import log_perplexity, text_windows
from tda_bias.behaviour.prune_curve import prune_curve, split_targets
from tda_bias.behaviour.removal import HeadRemover
from tda_bias.models.load import LanguageModel
from tda_bias.models.shared_weights import is_unhooked
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "gemma2", "opt", "bloom", "bert", "t5"]
SETS = [(), (HeadId(0, 2),), (HeadId(1, 0),), (HeadId(0, 0), HeadId(1, 1), HeadId(1, 3))]
OUTCOMES = ("continuation", "context", "n_tokens", "twin_log_odds")


@pytest.fixture(scope="module")
def triples():
    return load_triples("starter", category="gender", limit=3)[:9]


@pytest.fixture(scope="module")
def twins(triples):
    made = make_twins(triples)
    return [made.of(triple) for triple in triples]


@pytest.fixture
def lm(tiny_lm):
    def make(kind):
        return tiny_lm(kind, decoder_start_token_id=1) if kind == "t5" else tiny_lm(kind)

    return make


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_precision_is_refused_where_the_model_is_not_in_single_precision(lm, triples, precision):
    model = lm("llama")
    model.hf_model.to(getattr(torch, precision))
    with pytest.raises(InputError, match=f"`precision` bfloat16 rounds .* is in {precision}"):
        Ablator(model, triples, precision="bfloat16")


@pytest.mark.parametrize("ablation", ["mean", "zero"])
@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_are_those_of_a_thread_alone(lm, triples, twins, two_threads, kind, ablation):
    model = lm(kind)

    def read():
        ablator = Ablator(model, triples, twins=twins, ablation=ablation, batch_size=6)
        of_thread = set()
        whole = ablator.read
        ablator.read = lambda *a, **k: of_thread.add(threading.get_ident()) or whole(*a, **k)
        return ablator.without(SETS), ablator.first_order(), len(of_thread), ablator.at_a_time

    together, estimates, n_threads, at_a_time = read()
    assert n_threads == at_a_time == 2
    torch.set_num_threads(1)
    alone, estimates_alone, n_threads, at_a_time = read()
    assert n_threads == at_a_time == 1
    for first, second in zip(together, alone, strict=True):
        for name in OUTCOMES:
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for name in ("effect", "beta", "importance"):
        np.testing.assert_array_equal(getattr(estimates, name), getattr(estimates_alone, name))


def test_a_prune_curve_is_that_of_a_thread_alone(lm, triples, twins, two_threads):
    model = lm("llama")
    windows = text_windows(model, " ".join(t.context for t in triples) * 3, width=16, sample=4)

    def curve():
        ablator = Ablator(model, triples, twins=twins, batch_size=6)
        order = [HeadId(layer, head) for layer in (0, 1) for head in range(4)]
        choosing, _ = split_targets(triples)
        measured = prune_curve(
            ablator, triples, {"first": order}, windows, choosing=choosing, n_random=19, most=2
        )
        return measured.curve

    together = curve()
    torch.set_num_threads(1)
    assert together.equals(curve())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_hooked_models_are_run_alone(tiny, lm, triples, two_threads, kind):
    plain = lm(kind)
    assert is_unhooked(plain.hf_model)
    assert Ablator(plain, triples, batch_size=3).at_a_time == 2
    assert Ablator(tiny(kind), triples, batch_size=3).at_a_time == 1
    handle = plain.hf_model.lm_head.register_forward_hook(lambda *_: None)
    assert not is_unhooked(plain.hf_model)
    assert Ablator(plain, triples, batch_size=3).at_a_time == 1
    handle.remove()


def test_what_nobody_wants_any_more_ends_early(lm, triples, two_threads):
    """An error in one batch ends the other before its next pass, not after all its sets."""
    ablator = Ablator(lm("llama"), triples, batch_size=3)
    assert ablator.at_a_time == 2
    both, log = threading.Barrier(2), []

    def of_batch(number):
        both.wait()
        if number == 0:
            raise RuntimeError("stop")
        make = ablator.readings.passes[number]
        while True:  # more sets than anybody could wait for
            log.append(ablator.read(make(), SETS))

    with pytest.raises(RuntimeError, match="stop"):
        list(ablator.each(of_batch, range(2)))


@pytest.mark.parametrize("waiting", [1, 20_000, 60_000])
def test_sets_are_read_in_parts_that_fit_into_memory(lm, triples, monkeypatch, waiting):
    model = lm("llama")
    heads = [HeadId(layer, head) for layer in (0, 1) for head in range(4)]
    sets = [(), *((head,) for head in heads), *zip(heads, heads[4:], strict=False)]
    ablator = Ablator(model, triples, batch_size=6)
    whole = ablator.without(sets)
    read, fits = [], []
    together = HeadRemover._read_together

    def counted(remover, part, tree_pass):
        tokens = tree_pass.inputs["input_ids"].numel()
        layers = sum(len({head.layer for head in heads}) for heads in part)
        fitting = waiting // (tokens * model.hf_model.config.hidden_size * 4)
        fits.append(layers <= max(1, fitting) or len(part) == 1)
        read.append(len(part))
        return together(remover, part, tree_pass)

    monkeypatch.setattr(removal, "_WAITING_BYTES", waiting)
    monkeypatch.setattr(HeadRemover, "_read_together", counted)
    parts = ablator.without(sets)
    assert sum(read) == len(sets) * len(ablator.readings.passes)
    assert all(fits)
    assert len(read) > len(ablator.readings.passes)
    for first, second in zip(whole, parts, strict=True):
        np.testing.assert_allclose(first.continuation, second.continuation, atol=2e-4)


def test_weights_are_in_memory_once(lm, triples, two_threads):
    ablator = Ablator(lm("llama"), triples, batch_size=3, precision="bfloat16")
    ablator.without(SETS[:2])
    with ablator.borrowed() as first, ablator.borrowed() as second:
        assert first.model.hf_model is not second.model.hf_model
        pairs = zip(
            first.model.hf_model.parameters(), second.model.hf_model.parameters(), strict=True
        )
        assert all(a is b for a, b in pairs)
        rounded = [remover._computing._rounded for remover in (first, second)]
    assert rounded[0] is rounded[1]
    assert rounded[0]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert", "t5"])
def test_half_precision_is_close_and_leaves_the_model_as_it_was(lm, triples, twins, kind):
    model = lm(kind)
    before = {name: value.clone() for name, value in model.hf_model.state_dict().items()}

    def read(precision):
        ablator = Ablator(model, triples, twins=twins, precision=precision)
        return np.array([outcome.continuation for outcome in ablator.without(SETS)])

    exact, rounded = read("float32"), read("bfloat16")
    assert 0 < np.abs(rounded - exact).max() < 0.03 * exact.std()
    # What removing heads changes is not lost in it.
    changes, rounded_changes = (values[1:] - values[0] for values in (exact, rounded))
    assert np.corrcoef(changes.ravel(), rounded_changes.ravel())[0, 1] > 0.98
    after = model.hf_model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert is_unhooked(model.hf_model)


def test_perplexity_without_heads_has_the_same_precision(tokenizer, triples):
    model = LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")
    windows = text_windows(model, " ".join(t.context for t in triples) * 3, width=16, sample=4)
    ablator = Ablator(model, triples, precision="bfloat16")
    with ablator.borrowed() as remover, remover.removed(()):
        rounded = log_perplexity(remover.model, windows).mean
    exact = log_perplexity(model, windows).mean
    assert 0 < abs(rounded - exact) < 0.02
