"""Batches side by side and in half precision: the same outcomes, exactly or up to rounding."""

import copy
import threading

import numpy as np
import pytest
import torch

from tda_bias import HeadBiasConfig, head_bias
from tda_bias.ablation import ablator as ablation
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.prune_curve import prune_curve, split_targets
from tda_bias.ablation.removal import HeadRemover
from tda_bias.ablation.study import ablation_study
from tda_bias.models.load import LanguageModel
from tda_bias.models.shared_weights import is_unhooked
from tda_bias.scores.perplexity import log_perplexity, text_windows
from tda_bias.threads import UnwantedError
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "gemma2", "opt", "bloom", "bert", "t5"]
SETS = [(), (HeadId(0, 2),), (HeadId(1, 0),), (HeadId(0, 0), HeadId(1, 1), HeadId(1, 3))]
OUTCOMES = ("continuation", "context", "n_tokens", "twin_log_odds")


@pytest.fixture(scope="module")
def triples():
    return load_triples("starter", category="gender", limit=2)


@pytest.fixture(scope="module")
def twins(triples):
    made = make_twins(triples)
    return [made.of(triple) for triple in triples]


@pytest.fixture
def run(tiny, triples):
    return head_bias(tiny("gpt2"), triples, config=HeadBiasConfig(n_resamples=99))


@pytest.fixture
def lm(tiny_lm):
    def make(kind):
        return tiny_lm(kind, decoder_start_token_id=1) if kind == "t5" else tiny_lm(kind)

    return make


def test_an_unknown_precision_is_refused(lm, triples):
    with pytest.raises(InputError, match="`precision` must be one of float32, bfloat16; got"):
        Ablator(lm("llama"), triples, precision="float16")


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
        return ablator.without(SETS), ablator.first_order(), ablator.at_a_time

    together, estimates, at_a_time = read()
    assert at_a_time == 2
    assert all(parameter.requires_grad for parameter in model.hf_model.parameters())
    torch.set_num_threads(1)
    alone, estimates_alone, at_a_time = read()
    assert at_a_time == 1
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
    assert not is_unhooked(tiny(kind).hf_model)
    assert Ablator(tiny(kind), triples, batch_size=3).at_a_time == 1
    handle = plain.hf_model.lm_head.register_forward_hook(lambda *_: None)
    assert not is_unhooked(plain.hf_model)
    assert Ablator(plain, triples, batch_size=3).at_a_time == 1
    handle.remove()


def test_what_nobody_wants_any_more_ends_early(lm, triples, two_threads):
    """An error in one batch ends the other before its next pass, not after all its sets."""
    ablator = Ablator(lm("llama"), triples, batch_size=3)
    both, ended = threading.Barrier(2), []

    def of_batch(number):
        both.wait(60)
        if number == 0:
            raise RuntimeError("stop")
        try:
            for _ in range(10_000):  # more sets than anybody would wait for
                ablator.read(ablator.readings.passes[number](), SETS)
        except UnwantedError:
            ended.append(number)
            raise

    with pytest.raises(RuntimeError, match="stop"):
        list(ablator.each(of_batch, range(2)))
    assert ended == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_an_ablator_goes_on_after_an_interruption_and_an_error(lm, triples, two_threads, error):
    ablator = Ablator(lm("llama"), triples, batch_size=3)
    whole = ablator.without(SETS)

    def stop(*_):
        raise error("stop")

    with pytest.raises(error):
        ablator.without(SETS, progress=stop)
    for first, second in zip(whole, ablator.without(SETS), strict=True):
        np.testing.assert_array_equal(first.continuation, second.continuation)


def test_an_ablator_goes_on_after_a_study_with_further_outcomes(lm, run, triples, two_threads):
    ablator = Ablator(lm("gpt2"), triples, batch_size=3)
    of_thread = []

    def behaviour(model):
        of_thread.append(model.hf_model)
        with torch.no_grad():
            logits = model.hf_model(input_ids=torch.tensor([[5, 6, 7]])).logits
        return {"R": float(logits[0, -1, 9])}

    study = ablation_study(
        ablator, run, category="gender", top=1, n_resamples=99, behaviour=behaviour
    )
    assert len({id(hf_model) for hf_model in of_thread}) == 2
    alone = Ablator(tiny_alone(ablator.model), triples, batch_size=3)
    torch.set_num_threads(1)
    again = ablation_study(
        alone, run, category="gender", top=1, n_resamples=99, behaviour=behaviour
    )
    assert study.effects.equals(again.effects)
    ablator.without(SETS)


def tiny_alone(model):
    """The same weights in a model of their own."""
    return LanguageModel(copy.deepcopy(model.hf_model), model.tokenizer, model.name)


def test_heads_that_are_removed_around_a_reading_are_removed_in_all_of_it(lm, triples, two_threads):
    ablator = Ablator(lm("llama"), triples, batch_size=3)
    outer, inner = HeadId(0, 1), HeadId(1, 2)
    (both,) = ablator.without([(outer, inner)])
    with ablator.removed([outer]):
        (nested,) = ablator.without([(inner,)])
    np.testing.assert_allclose(nested.continuation, both.continuation, atol=2e-4)
    (only,) = ablator.without([(inner,)])
    assert np.abs(only.continuation - both.continuation).max() > 1e-2


@pytest.mark.parametrize("waiting", [1, 20_000, 60_000])
def test_sets_are_read_in_parts_that_fit_into_memory(lm, triples, monkeypatch, waiting):
    model = lm("llama")
    heads = [HeadId(layer, head) for layer in (0, 1) for head in range(4)]
    sets = [(), *((head,) for head in heads), *zip(heads, heads[4:], strict=False)]
    whole = Ablator(model, triples, batch_size=6).without(sets)
    monkeypatch.setattr(ablation, "WAITING_BYTES", waiting)
    ablator = Ablator(model, triples, batch_size=6)
    waiting //= ablator.at_a_time
    read, fits = [], []
    together = HeadRemover._read_together

    def counted(remover, part, tree_pass):
        tokens = tree_pass.inputs["input_ids"].numel()
        layers = sum(len({head.layer for head in heads}) for heads in part)
        fitting = waiting // (tokens * model.hf_model.config.hidden_size * 4)
        fits.append(layers <= max(1, fitting) or len(part) == 1)
        read.append(len(part))
        return together(remover, part, tree_pass)

    monkeypatch.setattr(HeadRemover, "_read_together", counted)
    parts = ablator.without(sets)
    assert sum(read) == len(sets) * len(ablator.readings.passes)
    assert all(fits)
    assert len(read) > len(ablator.readings.passes)
    for first, second in zip(whole, parts, strict=True):
        np.testing.assert_allclose(first.continuation, second.continuation, atol=2e-4)


def test_what_waits_is_not_a_view_of_more(lm, triples, monkeypatch):
    """A network that others begin with holds its rows, not those of all that ran beside it."""
    run, sizes = HeadRemover._run, []

    def watched(remover, plan, group, tree_pass, kept, values):
        waiting = run(remover, plan, group, tree_pass, kept, values)
        for output in waiting.values():
            hidden = output[0] if isinstance(output, tuple) else output
            sizes.append((hidden.untyped_storage().nbytes(), hidden.numel() * 4, len(group)))
        return waiting

    monkeypatch.setattr(HeadRemover, "_run", watched)
    first, second = ([HeadId(layer, head) for head in range(4)] for layer in (0, 1))
    Ablator(lm("llama"), triples).without([(a, b) for a in first for b in second])
    assert max(n for *_, n in sizes) > 1
    assert all(held == used for held, used, _ in sizes)


def test_weights_are_in_memory_once(lm, triples, two_threads):
    """Also where two threads round them at the same time."""
    ablator = Ablator(lm("llama"), triples, batch_size=3, precision="bfloat16")
    both, weights, used = threading.Barrier(2), [], []

    def of_batch(_):
        with ablator.borrowed() as remover:
            both.wait(60)
            weights.append(list(remover.model.hf_model.parameters()))
            with remover.removed(()):
                projection = remover.layers[0].projection
                used.append(vars(projection)["forward"].__closure__)
                both.wait(60)

    list(ablator.each(of_batch, range(2)))
    assert all(a is b for a, b in zip(*weights, strict=True))
    rounded = [
        [cell.cell_contents for cell in cells if isinstance(cell.cell_contents, torch.Tensor)]
        for cells in used
    ]
    assert rounded[0][0].dtype == torch.bfloat16
    assert rounded[0][0] is rounded[1][0]


def test_half_precision_may_stand_around_itself(lm, triples):
    ablator = Ablator(lm("llama"), triples, precision="bfloat16")
    (whole,) = ablator.without([SETS[1]])
    with ablator.removed(SETS[1]):
        (nested,) = ablator.without([()])
    np.testing.assert_allclose(nested.continuation, whole.continuation, rtol=0.02)
    assert is_unhooked(ablator.model.hf_model)


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
