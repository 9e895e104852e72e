"""Removing heads against the plain model, and estimates against finite differences."""

import numpy as np
import pandas as pd
import pytest
import torch

from tda_bias.behaviour.ablation import Ablator, random_sets
from tda_bias.behaviour.ablation_study import ablation_study
from tda_bias.behaviour.head_weights import head_slices
from tda_bias.behaviour.likelihood import triple_likelihoods
from tda_bias.config import HeadBiasConfig
from tda_bias.heads import head_bias
from tda_bias.records.parts import PartStore
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "gemma2", "opt", "bloom"]


@pytest.fixture(scope="module")
def triples(gender):
    return gender[:7]


@pytest.mark.parametrize("kind", KINDS)
def test_removing_nothing_changes_nothing(tiny, triples, kind):
    model = tiny(kind)
    ablator = Ablator(model, triples)
    (found,) = ablator.without([()])
    expected = [one.total for one in triple_likelihoods(model, triples)]
    np.testing.assert_allclose(found.continuation, expected, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_removing_heads_is_zeroing_their_output_weights(tiny, tokenizer, triples, kind):
    heads = [HeadId(0, 1), HeadId(1, 3)]
    ablator = Ablator(tiny(kind), triples, ablation="zero")
    (found,) = ablator.without([heads])
    edited = tiny_hf_model(kind, len(tokenizer))
    parameters = dict(edited.named_parameters())
    with torch.no_grad():
        for one in (s for head in heads for s in head_slices(edited, head) if s.part == "o"):
            one.of(parameters[one.parameter]).zero_()
    from tda_bias.models.load import LanguageModel

    model = LanguageModel(edited, tokenizer, "edited")
    expected = [one.total for one in triple_likelihoods(model, triples)]
    np.testing.assert_allclose(found.continuation, expected, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ablation", ["mean", "zero"])
def test_starting_at_the_layer_is_running_everything(tiny, triples, kind, ablation):
    ablator = Ablator(tiny(kind), triples, ablation=ablation)
    sets = [[HeadId(0, 2)], [HeadId(1, 0)], [HeadId(0, 0), HeadId(1, 1)]]
    fast, slow = (ablator.without(sets, restart=restart) for restart in (True, False))
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a.continuation, b.continuation, atol=1e-5)
        np.testing.assert_allclose(a.context, b.context, atol=1e-5)


def test_removing_all_heads_of_a_layer_is_zeroing_its_attention(tiny, triples):
    model = tiny("gpt2")
    ablator = Ablator(model, triples, ablation="zero")
    (found,) = ablator.without([[HeadId(1, h) for h in range(4)]])

    def zero(output, hook):
        return torch.zeros_like(output) + model.hf_model.transformer.h[1].attn.c_proj.bias

    with model.bridge.hooks(fwd_hooks=[("blocks.1.attn.hook_out", zero)]):
        (expected,) = Ablator(model, triples, ablation="zero").without([()])
    np.testing.assert_allclose(found.continuation, expected.continuation, atol=1e-4)


def test_the_mean_is_over_the_unrelated_texts(tiny, tokenizer, triples):
    model = tiny("gpt2")
    ablator = Ablator(model, triples, batch_size=2)
    total, n = 0.0, 0
    for triple in triples:
        ids = tokenizer(triple.texts()[2], return_tensors="pt")["input_ids"]
        kept = []

        def keep(z, hook, kept=kept):
            kept.append(z)
            return z

        with torch.no_grad(), model.bridge.hooks(fwd_hooks=[("blocks.1.attn.hook_z", keep)]):
            model.hf_model(input_ids=ids)
        total, n = total + kept[0][0].double().sum(0), n + ids.shape[1]
    torch.testing.assert_close(ablator.replacement[1], total / n, rtol=1e-4, atol=1e-6)


def test_the_batch_size_changes_nothing(tiny, triples):
    sets = [[HeadId(0, 1)], [HeadId(1, 2)]]
    found = [Ablator(tiny("llama"), triples, batch_size=b).without(sets) for b in (1, 50)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.continuation, b.continuation, atol=1e-4)
        np.testing.assert_array_equal(a.n_tokens, b.n_tokens)


def test_summaries_by_hand(tiny, triples):
    (found,) = Ablator(tiny("gpt2"), triples).without([()])
    s, a, u = found.continuation.T
    summary = found.summary()
    assert summary["log_odds"] == pytest.approx((s - a).mean())
    assert summary["ss"] == pytest.approx(100 * np.mean(s > a))
    assert summary["lms"] == pytest.approx(50 * (np.mean(s > u) + np.mean(a > u)))
    assert summary["log_ppl_unrelated"] == pytest.approx(-u.sum() / found.n_tokens[:, 2].sum())


@pytest.mark.parametrize("kind", ["gpt2", "llama", "opt"])
@pytest.mark.parametrize("ablation", ["mean", "zero"])
def test_estimates_are_derivatives(tiny, triples, kind, ablation):
    """A small step toward the replacement, in both directions, at the head and at the output."""
    model = tiny(kind)
    model.hf_model.double()
    ablator = Ablator(model, triples[:3], ablation=ablation)
    found = ablator.first_order()
    # Llama and OPT compute some steps in single precision whatever the weights are.
    step = 3e-3 if kind == "llama" else 1e-4  # OPT's kinks forbid a larger one
    exact = {"rel": 1e-4, "abs": 1e-7} if kind == "gpt2" else {"abs": 5e-3}
    for layer, head in ((0, 1), (1, 3)):
        new = ablator._new(layer, [head]).double()

        def moved(sign, layer=layer, head=head, new=new):
            def hook(z, hook):
                z = z.clone()
                z[:, :, head] += sign * step * (new - z[:, :, head])
                return z

            with model.bridge.hooks(fwd_hooks=[(f"blocks.{layer}.attn.hook_z", hook)]):
                return ablator.without([()])[0].log_odds.mean()

        slope = (moved(1) - moved(-1)) / (2 * step)
        assert found.effect[layer, head] == pytest.approx(slope, **exact)


def test_the_direct_estimate_bypasses_later_layers(tiny, triples):
    model = tiny("gpt2")
    model.hf_model.double()
    ablator = Ablator(model, triples[:3], ablation="zero")
    found, step = ablator.first_order().direct, 1e-4
    kept = {}

    def keep(z, hook):
        kept["z"] = z
        return z

    weights = model.bridge.blocks[0].attn.W_O[2].double()

    def moved(sign):
        def hook(residual, hook):
            return residual - sign * step * (kept["z"][:, :, 2] @ weights)

        hooks = [("blocks.0.attn.hook_z", keep), ("blocks.1.hook_out", hook)]
        with model.bridge.hooks(fwd_hooks=hooks):
            return ablator.without([()])[0].log_odds.mean()

    slope = (moved(1) - moved(-1)) / (2 * step)
    assert found[0, 2] == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_random_sets_keep_the_layers_and_leave_the_heads_out():
    heads = [HeadId(0, 1), HeadId(0, 2), HeadId(3, 0)]
    sets = random_sets(heads, 6, 50, rng=np.random.default_rng(0))
    for own in sets:
        assert sorted(head.layer for head in own) == [0, 0, 3]
        assert len(set(own)) == 3
        assert not set(own) & set(heads)
    with pytest.raises(InputError, match="layer 0 has 2 chosen heads and 1 others"):
        random_sets(heads[:2], 3, 5, rng=np.random.default_rng(0))


def test_heads_that_do_not_exist_are_refused(tiny, triples):
    ablator = Ablator(tiny("gpt2"), triples)
    with pytest.raises(InputError, match="L2H0 does not exist: .* layers 0 to 1 with heads 0 to 3"):
        ablator.without([[HeadId(2, 0)]])
    with pytest.raises(InputError, match="tiny-bert is a masked language model"):
        Ablator(tiny("bert"), triples)
    with pytest.raises(InputError, match="there is no triple"):
        Ablator(tiny("gpt2"), [])


def test_an_intervention_without_effect_is_an_error(tiny, triples):
    model = tiny("gpt2")
    ablator = Ablator(model, triples, ablation="zero")

    def already(z, hook):  # a head that gives nothing anyway
        z = z.clone()
        z[:, :, 0] = 0
        return z

    with (
        model.bridge.hooks(fwd_hooks=[("blocks.1.attn.hook_z", already)]),
        pytest.raises(InputError, match="removing L1H0 changes nothing"),
    ):
        ablator.without([[HeadId(1, 0)]])


# -- the study -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tiny, gender):
    return head_bias(tiny("gpt2"), gender, config=HeadBiasConfig(n_resamples=99))


def study(tiny, run, triples, **more):
    ablator = Ablator(tiny("gpt2"), triples)
    options = {"category": "gender", "top": 1, "n_resamples": 99, **more}
    return ablation_study(ablator, run, **options)


def test_a_study_holds_the_top_heads_against_random_ones(tiny, run, triples):
    found = study(tiny, run, triples)
    effects = found.effects
    assert effects["kind"].value_counts()["random_set"] == 20
    top = run.top(1)
    name = f"L{top['layer'][0]}H{top['head'][0]}"
    assert effects[effects["kind"] == "top"]["heads"].tolist() == [name]
    ablator = Ablator(tiny("gpt2"), triples)
    base, without = ablator.without([(), [HeadId(top["layer"][0], top["head"][0])]])
    row = effects[effects["kind"] == "top_set"].iloc[0]
    change = without.summary()["log_odds"] - base.summary()["log_odds"]
    assert row["d_log_odds"] == pytest.approx(change, abs=1e-6)
    test = found.set_tests.set_index("outcome").loc["log_odds"]
    null = effects[effects["kind"] == "random_set"]["d_log_odds"]
    assert test["p"] == (1 + (null.abs() >= abs(change) - 1e-12).sum()) / 21
    exact = found.heads.set_index(["layer", "head"])["exact"]
    assert exact[(top["layer"][0], top["head"][0])] == pytest.approx(change, abs=1e-6)


def test_a_seed_fixes_the_study(tiny, run, triples):
    first, again = study(tiny, run, triples), study(tiny, run, triples)
    pd.testing.assert_frame_equal(first.effects, again.effects)
    pd.testing.assert_frame_equal(first.agreement, again.agreement)


def test_a_stopped_study_goes_on(tiny, run, triples, tmp_path):
    store = PartStore(tmp_path, {"a": 1})
    calls = []

    def stop(done, total):
        calls.append(done)
        if done == 1:
            raise KeyboardInterrupt

    ablator = Ablator(tiny("gpt2"), triples, batch_size=6)
    with pytest.raises(KeyboardInterrupt):
        ablation_study(ablator, run, category="gender", top=1, store=store, progress=stop)
    assert len(list(tmp_path.glob("*.npz"))) == 1
    resumed = ablation_study(ablator, run, category="gender", top=1, store=store)
    whole = ablation_study(ablator, run, category="gender", top=1)
    pd.testing.assert_frame_equal(resumed.effects, whole.effects)


def test_further_outcomes_are_measured_with_heads_removed(tiny, run, triples):
    model, values = tiny("gpt2"), iter(range(100))

    def behaviour():
        with torch.no_grad():
            model.hf_model(input_ids=torch.tensor([[5, 6, 7]]))
        return {"R": float(next(values))}

    ablator = Ablator(model, triples)
    found = ablation_study(ablator, run, category="gender", top=1, behaviour=behaviour)
    sets = found.effects[found.effects["kind"].isin(["top_set", "random_set"])]
    assert sets["d_R"].tolist() == [float(i) for i in range(1, 22)]
    assert found.effects[found.effects["kind"] == "top"]["d_R"].isna().all()


def test_too_many_heads_or_too_few_draws_are_refused(tiny, run, triples):
    with pytest.raises(InputError, match="`top` must lie between 1 and 2 for 8 heads; got 3"):
        study(tiny, run, triples, top=3)
    with pytest.raises(InputError, match="`n_random` must be at least 20; got 5"):
        study(tiny, run, triples, n_random=5)
