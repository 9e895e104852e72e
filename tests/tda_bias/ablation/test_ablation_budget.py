"""How much of an ablation fits into a time."""

import numpy as np
import pytest

from tda_bias.ablation import ablation_budget
from tda_bias.ablation.ablation_budget import Cost, measured_cost, planned
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.study import head_sets
from tda_bias.config import HeadBiasConfig
from tda_bias.heads.head_bias import head_bias
from tda_bias.runs.cache import PartStore
from tda_bias.types import InputError

LAYERS, HEADS = 4, 8
# Seconds: of a layer, of reading a network, of the first-order estimates, of further outcomes.
COST = Cost(layer=2.0, read=0.5, first_order=30.0, behaviour=1.0)


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("gpt2", n_layer=LAYERS, n_head=HEADS)


@pytest.fixture(scope="module")
def run(model, gender):
    return head_bias(model, gender, config=HeadBiasConfig(n_resamples=99))


@pytest.fixture
def ablator(model, gender):
    return Ablator(model, gender[:3])


@pytest.fixture
def plan(ablator, run, monkeypatch):
    """A plan from known costs."""
    monkeypatch.setattr(ablation_budget, "measured_cost", lambda *_: COST)

    def make(minutes, **more):
        return planned(ablator, run, category="gender", minutes=minutes, **more)

    return make


def seconds(ablator, run, top, n_random):
    """What each set costs if layers below its lowest head are free and equal ones run once."""
    sets, _ = head_sets(run, "gender", top=top, n_random=n_random, rng=np.random.default_rng(0))
    total, seen = 0.0, set()
    for own in sets:
        lowest = min((head.layer for head in own.heads), default=0)
        prefixes = [
            (layer, frozenset(h for h in own.heads if h.layer <= layer))
            for layer in range(lowest, LAYERS)
        ]
        total += COST.layer * len([one for one in prefixes if one not in seen])
        seen.update(prefixes)
    networks = {frozenset(own.heads) for own in sets}
    behaviour = sum(own.kind in ("none", "top_set", "random_set") for own in sets)
    return total + COST.read * len(networks) + COST.first_order + COST.behaviour * behaviour


# -- bad input --


def test_budgets_that_are_no_time_or_too_short_are_refused(plan):
    with pytest.raises(InputError, match="`budget` must be minutes above 0; got 0"):
        plan(0)
    with pytest.raises(InputError, match="0.5 minutes are too few: one head from each end and 20"):
        plan(0.5)


# -- the definition --


@pytest.mark.parametrize(("top", "n_random"), [(1, 20), (2, 20), (3, 25), (2, 59)])
def test_time_is_layers_run_plus_networks_read_plus_first_order(plan, ablator, run, top, n_random):
    found = plan(1000, top=top, n_random=n_random)
    assert (found.top, found.triples) == (top, 3)
    assert found.minutes == pytest.approx(seconds(ablator, run, top, n_random) / 60)


def test_heads_come_before_random_sets_and_both_fit(plan):
    everything = plan(1000, top=4, n_random=99)
    assert (everything.top, everything.n_random) == (4, 99)
    smaller = plan(everything.minutes * 0.99, top=4, n_random=99)
    assert (smaller.top, smaller.n_random) == (4, 59)
    least = plan(1000, top=4, n_random=20)
    fewer = plan(least.minutes * 0.99, top=4, n_random=99)
    assert fewer.top < 4
    for found, limit in ((smaller, everything.minutes), (fewer, least.minutes)):
        assert found.minutes <= 0.99 * limit
    text = str(fewer)
    assert f"{fewer.n_random} random sets" in text
    assert f"{fewer.sets} networks on 3 triples" in text


def test_a_plan_is_kept_for_the_run_that_goes_on(plan, tmp_path, monkeypatch):
    store = PartStore(tmp_path, {"a": 1})
    first = plan(1000, store=store)

    def fail(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(ablation_budget, "measured_cost", fail)
    assert plan(1000, store=store) == first
    with pytest.raises(InputError, match="other minutes"):
        plan(900, store=store)


def test_measured_costs_are_times_and_count_further_outcomes(ablator):
    found = measured_cost(ablator, lambda _: {"R": 1.0})
    assert min(found.layer, found.first_order, found.behaviour) > 0
    assert found.read >= 0
    assert measured_cost(ablator).behaviour == 0
