"""Networks that sets of heads leave; removal in parts and in half precision, up to rounding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.ablation import removal
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.removal import HeadRemover, removal_plan
from tda_bias.models.load import LanguageModel
from tda_bias.scores.perplexity import log_perplexity, text_windows
from tda_bias.store.cache import Cache
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

SETS = [(), (HeadId(0, 2),), (HeadId(1, 0),), (HeadId(0, 0), HeadId(1, 1), HeadId(1, 3))]


@pytest.fixture(scope="module")
def triples():
    return load_triples("starter", category="gender", limit=2)


@pytest.fixture(scope="module")
def twins(triples):
    made = make_twins(triples)
    return [made.of(triple) for triple in triples]


@pytest.fixture
def lm(tiny_lm):
    def make(kind):
        return tiny_lm(kind, decoder_start_token_id=1) if kind == "t5" else tiny_lm(kind)

    return make


def is_as_it_was(hf_model):
    return not any("forward" in vars(module) for module in hf_model.modules())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ablation": "maen"}, "`ablation` must be mean or zero; got 'maen'"),
        ({"precision": "float16"}, "`precision` must be one of float32, bfloat16; got"),
    ],
)
def test_unknown_choices_are_refused(lm, triples, options, message):
    with pytest.raises(InputError, match=message):
        Ablator(lm("llama"), triples, **options)


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_precision_is_refused_where_the_model_is_not_in_single_precision(lm, triples, precision):
    model = lm("llama")
    model.hf_model.to(getattr(torch, precision))
    with pytest.raises(InputError, match=f"`precision` bfloat16 rounds .* is in {precision}"):
        Ablator(model, triples, precision="bfloat16")


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_an_ablator_goes_on_after_an_interruption_and_an_error(lm, triples, error):
    ablator = Ablator(lm("llama"), triples, batch_size=3)
    whole = ablator.without(SETS)

    def stop(*_):
        raise error("stop")

    with pytest.raises(error):
        list(Cache().each(ablator.removals(SETS), progress=stop))
    for first, second in zip(whole, ablator.without(SETS), strict=True):
        np.testing.assert_array_equal(first.continuation, second.continuation)


def test_heads_that_are_removed_around_a_reading_are_removed_in_all_of_it(lm, triples):
    ablator = Ablator(lm("llama"), triples, batch_size=3)
    outer, inner = HeadId(0, 1), HeadId(1, 2)
    (both,) = ablator.without([(outer, inner)])
    with ablator.removed([outer]):
        (nested,) = ablator.without([(inner,)])
    np.testing.assert_allclose(nested.continuation, both.continuation, atol=2e-4)
    (only,) = ablator.without([(inner,)])
    assert np.abs(only.continuation - both.continuation).max() > 1e-2


@pytest.mark.parametrize("waiting", [1, 60_000])
def test_sets_are_read_in_parts_that_fit_into_memory(lm, triples, monkeypatch, waiting):
    model = lm("llama")
    heads = [HeadId(layer, head) for layer in (0, 1) for head in range(4)]
    sets = [(), *((head,) for head in heads), *zip(heads, heads[4:], strict=False)]
    whole = Ablator(model, triples, batch_size=6).without(sets)
    monkeypatch.setattr(removal, "WAITING_BYTES", waiting)
    ablator = Ablator(model, triples, batch_size=6)
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


@pytest.mark.parametrize("kind", ["llama", "bert", "t5"])
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
    assert is_as_it_was(model.hf_model)


def test_perplexity_without_heads_has_the_same_precision(tokenizer, triples):
    model = LanguageModel(tiny_hf_model("llama", len(tokenizer)), tokenizer, "tiny")
    windows = text_windows(model, " ".join(t.context for t in triples) * 3, width=16, sample=4)
    ablator = Ablator(model, triples, precision="bfloat16")
    with ablator.removed(()):
        rounded = log_perplexity(model, windows).mean
    exact = log_perplexity(model, windows).mean
    assert 0 < abs(rounded - exact) < 0.02


# -- the plan --------------------------------------------------------------------------------------

LAYERS = 5
HEADS = st.builds(HeadId, st.integers(0, LAYERS - 1), st.integers(0, 2))
DRAWN = st.lists(st.lists(HEADS, max_size=4, unique=True), min_size=1, max_size=8)


def layers_run(plan):
    """Number of layers run, over all networks."""
    ends = [LAYERS if node.sets else max(node.branches, default=node.layer) for node in plan]
    return sum(end - node.layer for end, node in zip(ends, plan, strict=True))


def lacking(plan, index):
    """The heads that a network lacks, gathered on the way up to the whole one."""
    heads = set()
    while index >= 0:
        node = plan[index]
        heads |= {HeadId(node.layer, head) for head in node.heads}
        index = node.parent
    return heads


@given(DRAWN)
def test_a_plan_reads_every_set_and_runs_no_network_twice(sets):
    plan = removal_plan(sets)
    owner = {number: index for index, node in enumerate(plan) for number in node.sets}
    assert [lacking(plan, owner[number]) for number in range(len(sets))] == list(map(set, sets))
    networks = [(frozenset(lacking(plan, i)), node.layer) for i, node in enumerate(plan)]
    assert len(set(networks)) == len(networks)
    for index, node in enumerate(plan[1:], 1):
        parent = plan[node.parent]
        assert node.parent < index
        assert node.layer in parent.branches
        assert parent.layer < node.layer or node.parent == 0
    alone = sum(LAYERS - min((head.layer for head in heads), default=0) for heads in sets)
    whole = 0 if [] in sets else max(min(h.layer for h in heads) for heads in sets)
    assert layers_run(plan) <= alone + whole


def test_sets_that_agree_below_share_what_is_below():
    a, b, c = HeadId(1, 0), HeadId(3, 0), HeadId(3, 1)
    plan = removal_plan([[], [a, b], [c, a], [b]])
    assert len(plan) == 5  # whole, without a, without a and b, a and c, b
    # 5 whole, 2 between a and its branches, 2 for each of the three that are read
    assert layers_run(plan) == 5 + 2 + 3 * 2
    assert layers_run(removal_plan([[a, b], [a, c]])) == 1 + 2 + 2 * 2
