"""Prune curves: each point against a literal removal; choices never see the test half."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias import load_triples
from tda_bias.ablation import prune_curve as prune_module
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.finding import curve_finding
from tda_bias.ablation.prune_curve import (
    ALLOWED_LOSS,
    _choice,
    first_order_rankings,
    prune_curve,
    sizes,
    split_targets,
)
from tda_bias.config import CurveConfig
from tda_bias.models.load import LanguageModel
from tda_bias.scores.perplexity import log_perplexity, text_windows
from tda_bias.store.cache import Cache
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

ORDER = [HeadId(1, 2), HeadId(0, 1), HeadId(0, 3), HeadId(1, 0), HeadId(1, 1)]


@pytest.fixture(scope="module")
def setting(subwords):
    model = LanguageModel(tiny_hf_model("gpt2", len(subwords)), subwords, "tiny")
    triples = load_triples("starter", category="gender", limit=3)
    ablator = Ablator(model, triples, ablation="zero")
    windows = text_windows(model, "The cook said that he knew. " * 6, width=24, stride=12)
    choosing, names = split_targets(triples, seed=1)
    return model, triples, ablator, windows, choosing, names


def curve_of(setting, *, cache=None, progress=None, **options):
    _, _, ablator, windows, choosing, _ = setting
    config = CurveConfig(**{"n_random": 19, **options})
    work = {"cache": cache, "progress": progress}
    return prune_curve(ablator, {"own": ORDER}, windows, choosing=choosing, config=config, **work)


@pytest.fixture(scope="module")
def found(setting):
    return curve_of(setting)


def test_numbers_of_heads_double_up_to_half_of_them():
    assert sizes(270, CurveConfig().most) == [1, 2, 4, 8, 16, 32, 64]
    assert sizes(8, 64) == [1, 2, 4]
    assert sizes(270, 10) == [1, 2, 4, 8]


def test_what_cannot_be_drawn_is_refused(setting):
    _, triples, ablator, windows, choosing, _ = setting
    with pytest.raises(InputError, match="needs at least 4; got 1"):
        split_targets(triples[:3])
    with pytest.raises(ValueError, match="n_random"):
        curve_of(setting, n_random=5)
    options = {"choosing": choosing, "config": CurveConfig(n_random=19)}
    with pytest.raises(InputError, match="there is no ranking"):
        prune_curve(ablator, {}, windows, **options)
    for order in (ORDER[:2], [ORDER[0]] * 5):
        with pytest.raises(InputError, match="must name 4 heads or more, each once"):
            prune_curve(ablator, {"own": order}, windows, **options)


def test_whole_targets_are_on_one_side(setting):
    _, triples, _, _, choosing, names = setting
    groups = {(triple.group, bool(own)) for triple, own in zip(triples, choosing, strict=True)}
    assert len(groups) == len({triple.group for triple in triples})
    assert {group for group, own in groups if own} == set(names)
    assert len(names) == 2


def test_every_point_is_what_removing_those_heads_gives(setting, found):
    model, _, ablator, windows, choosing, _ = setting
    own = found.curve[found.curve["ranking"] == "own"].set_index("k")
    assert list(own.index) == [0, 1, 2, 4]
    for k in own.index:
        with ablator.removed(ORDER[:k]):
            (outcome,) = ablator.without([()])
            loss = log_perplexity(model, windows).mean
        assert own.loc[k, "log_odds_choose"] == pytest.approx(outcome.log_odds[choosing].mean())
        assert own.loc[k, "log_odds_test"] == pytest.approx(outcome.log_odds[~choosing].mean())
        assert own.loc[k, "log_ppl"] == pytest.approx(loss, abs=1e-5)
    assert found.record.quantity == "log_odds"


def test_a_seed_fixes_the_random_orders(setting, found):
    def drawn(curve):
        return curve[curve["ranking"] == "random"].reset_index(drop=True)

    pd.testing.assert_frame_equal(drawn(curve_of(setting).curve), drawn(found.curve))
    assert not drawn(curve_of(setting, seed=1).curve).equals(drawn(found.curve))


def test_random_orders_choose_as_rankings_do_and_give_the_p(found):
    picked = []
    for _, own in found.curve[found.curve["ranking"] == "random"].groupby("draw"):
        base = own.loc[own["k"] == 0, "log_ppl"].iloc[0]
        allowed = own[own["log_ppl"] <= base + ALLOWED_LOSS]
        best = allowed.loc[allowed["log_odds_choose"].abs().idxmin()]
        picked.append(abs(best["log_odds_test"]))
    (row,) = found.chosen.to_dict("records")
    as_good = np.sum(np.array(picked) <= abs(row["test"]) + 1e-12)
    assert row["p_random"] == pytest.approx((1 + as_good) / 20)


@pytest.mark.parametrize(
    ("rankings", "orders", "said"),
    [
        (3, 20, "cannot be told from so few random orders: 3 rankings need 60"),
        (3, 59, "cannot be told from so few random orders: 3 rankings need 60"),
        (3, 60, "Ablating heads by a0 brings"),
        (1, 19, "cannot be told from so few random orders: 1 ranking needs 20"),
    ],
)
def test_too_few_random_orders_cannot_tell_and_it_is_said_how_many_can(
    found, rankings, orders, said
):
    draws = pd.DataFrame({"ranking": "random", "draw": range(orders)})
    rows = pd.concat([found.chosen] * rankings, ignore_index=True)
    rows["ranking"] = [f"a{n}" for n in range(rankings)]
    rows["p_random"] = [1 / (1 + orders)] + [0.5] * (rankings - 1)
    rows = rows.assign(k=2, before_test=0.4, test=0.1)
    finding = curve_finding(replace(found, curve=draws, chosen=rows))
    assert said in finding.result[0]
    assert f"none below {rankings / (1 + orders):.3f}." in finding.power[0]
    worse = curve_finding(replace(found, curve=draws, chosen=rows.assign(p_random=0.5)))
    assert ("No ranking brings" in worse.result[0]) == (orders == 60)


def test_the_choice_never_sees_the_other_targets():
    table = pd.DataFrame(
        {
            "k": [0, 1, 2, 4],
            "log_ppl": [3.0, 3.01, 3.019, 3.5],
            "beta_choose": [1.0, -0.5, 0.2, 0.0],  # the best one costs too much
            "beta_test": [1.0, 0.0, 0.9, 0.0],
        }
    )
    assert _choice(table, "beta")["k"] == 2
    assert _choice(table.assign(beta_test=[9.0, 8.0, 7.0, 6.0]), "beta")["k"] == 2


def test_first_order_orders_lead_toward_zero(setting):
    _, _, ablator, _, _, _ = setting
    found, orders = ablator.first_order(), first_order_rankings(ablator)
    mean = ablator.without([()])[0].summary()["log_odds"]
    toward_zero = -np.sign(mean) * found.effect
    first = orders["effect"][0]
    assert toward_zero[first.layer, first.head] == toward_zero.max()
    assert len(set(orders["importance"])) == found.importance.size


def test_a_stopped_curve_goes_on_where_it_was(setting, tmp_path, monkeypatch):
    cache, steps = Cache(tmp_path, {"a": 1}), []
    whole = curve_of(setting, progress=lambda done, total: steps.append((done, total)))
    n_sets = 1 + 3 * 20  # nothing; 1, 2 and 4 heads of the ranking and of 19 orders
    n_batches = len(setting[2].readings.passes)
    assert len(steps) == n_batches + n_sets
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]

    def stop(done, _):
        if done == steps[n_batches + 4][0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        curve_of(setting, cache=cache, progress=stop)
    read = []
    monkeypatch.setattr(
        prune_module, "log_perplexity", lambda *given: read.append(1) or log_perplexity(*given)
    )
    pd.testing.assert_frame_equal(curve_of(setting, cache=cache).curve, whole.curve)
    # Those that were computed side by side with the last were saved too.
    assert 0 <= n_sets - 5 - len(read) <= 2
