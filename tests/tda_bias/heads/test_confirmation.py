"""Confirmation: splits, chance without an effect, replication of a planted one, other data."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.config import ConfirmConfig
from tda_bias.heads.confirmation import (
    confirmation,
    confirmed_on,
    splits,
)
from tda_bias.heads.confirmation_finding import confirmation_finding
from tda_bias.heads.group_statistic import Versions
from tda_bias.types import InputError
from tests.support.grams import planted_group

# The model's number of the one layer of the groups below.
LAYERS = (2,)


@pytest.mark.parametrize(("n", "expected"), [(2, 1), (3, 3), (4, 3), (5, 10), (6, 10)])
def test_few_splits_are_all_given_once(n, expected):
    found = list(splits(n, 200, seed=0))
    assert len(found) == len(set(found)) == expected
    unordered = {frozenset([half, tuple(sorted(set(range(n)) - set(half)))]) for half in found}
    assert len(unordered) == expected


def test_many_splits_are_drawn():
    found = list(splits(20, 50, seed=0))
    assert len(found) == 50
    assert all(len(half) == 10 for half in found)
    assert found == list(splits(20, 50, seed=0))


def test_a_planted_shift_replicates():
    results = [planted_group(number, heads=40, bias_in=3) for number in range(6)]
    found = confirmation(
        results, layers=LAYERS, config=ConfirmConfig(rank_by="location", top=1, n_permutations=199)
    )
    assert found.record["all_splits"]
    first = found.heads.iloc[0]
    assert (first["layer"], first["head"]) == (LAYERS[0], 3)
    assert first["replicated"] > 0.9
    assert found.replicated > 0.9
    assert found.p < 0.05  # a random head is the planted one in 1 of 40 draws
    assert found.needed < found.replicated
    assert found.all_heads < 0.2


def test_by_location_heads_replicate_only_where_others_do_not():
    results = [planted_group(number, bias_in=slice(None)) for number in range(6)]
    found = confirmation(
        results, layers=LAYERS, config=ConfirmConfig(rank_by="location", top=2, n_permutations=199)
    )
    assert (found.replicated, found.all_heads, found.p) == (1.0, 1.0, 1.0)
    told = confirmation_finding(found)
    assert told.result[0].endswith("do not stand out on others more than any heads do.")
    assert told.control[0].startswith("Of all heads 100.0% have p <= .05 on the other half;")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["evidence", "location"])
def test_without_an_effect_replication_is_chance(by):
    found = [
        confirmation(
            [planted_group(n, seed=seed) for n in range(4)],
            layers=LAYERS,
            config=ConfirmConfig(rank_by=by, top=3, n_permutations=99, seed=seed),
        )
        for seed in range(120)
    ]
    assert 0.03 < np.mean([f.replicated for f in found]) < 0.075
    assert np.mean([f.chance for f in found]) == pytest.approx(0.05, abs=0.01)
    assert kstest([f.p_correlation for f in found], "uniform").pvalue > 0.001
    assert abs(np.mean([f.correlation for f in found])) < 0.08


def test_targets_without_twins_are_left_out_and_counted():
    results = [planted_group(number) for number in range(4)]
    without = Versions(np.arange(9), 9)
    some = [*results[:3], replace(results[3], versions=without)]
    found = confirmation(some, layers=LAYERS, config=ConfirmConfig(top=2, n_permutations=99))
    alone = confirmation(results[:3], layers=LAYERS, config=ConfirmConfig(top=2, n_permutations=99))
    assert (found.record["twins"], found.record["without_twins"]) == (True, 1)
    assert (found.p, found.correlation) == (alone.p, alone.correlation)
    told = confirmation_finding(found).power[0]
    assert told.endswith("Left out: 1 target with fewer than two contexts that have twins.")
    assert "Left out" not in confirmation_finding(alone).power[0]
    few = [results[0], *(replace(result, versions=without) for result in results[1:])]
    with pytest.raises(InputError, match="got 1 with twins, and 3 without, which are left out"):
        confirmation(few, layers=LAYERS)


def test_too_little_is_refused():
    results = [planted_group(number) for number in range(2)]
    with pytest.raises(InputError, match="at least 2 targets; got 1"):
        confirmation(results[:1], layers=LAYERS)
    with pytest.raises(InputError, match="`top` must lie between 1 and 11; got 12"):
        confirmation(results, layers=LAYERS, config=ConfirmConfig(top=12))


# -- other data --


@pytest.fixture(scope="module")
def runs(tiny):
    model, config = tiny("gpt2"), HeadBiasConfig(n_permutations=99)
    triples = load_triples("starter", category="gender", limit=4)
    names = sorted({t.group for t in triples})
    return [
        head_bias(model, [t for t in triples if t.group in chosen], twins=None, config=config)
        for chosen in (names[:2], names[2:])
    ]


def test_heads_are_tested_where_they_were_not_chosen(runs):
    run, other = runs
    found = confirmed_on(run, other, top=3)
    assert list(found["layer"]) == list(run.top(3)["layer"])
    for row in found.to_dict("records"):
        place = (other.category["layer"] == row["layer"]) & (other.category["head"] == row["head"])
        assert row["p_other"] == other.category[place]["p_relative"].iloc[0]
    assert (found["p_holm"] >= found["p_other"]).all()


def test_shared_targets_and_other_weights_confirm_nothing(runs):
    run, other = runs
    with pytest.raises(
        InputError, match="the other run shares 2 targets .*: heads chosen on a target"
    ):
        confirmed_on(run, run)
    changed = other.with_record(model=other.record.model.model_copy(update={"weights": "others"}))
    with pytest.raises(InputError, match="different weights"):
        confirmed_on(run, changed)
