"""Folds of targets: nothing that tests also trains, stops or chooses."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from tda_bias.debias.protocol import (
    FINAL,
    Protocol,
    folds,
    protocol_hash,
    protocol_of,
)
from tda_bias.types import InputError, Triple


def folds_of(items, protocol, twins=None):
    return folds(items, twins or [()] * len(items), protocol)


def triples(*sizes):
    return [
        Triple(f"target {n}", "gender", "c", f"s {i}", "a", "u")
        for n, size in enumerate(sizes)
        for i in range(size)
    ]


def test_unknown_settings_and_too_small_ones_are_refused():
    for setting in ({"patience": 3}, {"checks_per_epoch": 0}, {"check_items": 0}, {"watched": 0}):
        with pytest.raises(ValidationError, match=next(iter(setting))):
            Protocol(**setting)


def test_no_more_folds_are_run_than_there_are():
    protocol = protocol_of("full", {}, n_heads=90, typical_weight=0.1, n_targets=4)
    assert (protocol.folds_run, protocol.n_folds) == (4, 4)


@pytest.mark.parametrize("weight", [0.0, float("nan")])
def test_heads_that_write_nothing_are_refused(weight):
    with pytest.raises(InputError, match="has heads that write nothing"):
        protocol_of("smoke", {}, n_heads=8, typical_weight=weight, n_targets=5)


def test_too_few_targets_are_refused_by_name():
    with pytest.raises(InputError, match=r"5 are needed at least; the data has 4 \(target 0"):
        folds_of(triples(9, 9, 9, 9), Protocol())
    with pytest.raises(InputError, match="4 are needed at least; the data has 3"):
        folds_of(triples(9, 9, 9), Protocol(n_folds=2))


@pytest.mark.parametrize("seed", range(5))
def test_every_target_tests_once_and_its_items_do_nothing_else_there(seed):
    items = triples(27, 27, 26, 26, 26, 24, 23, 21, 21, 21)
    group = np.array([item.group for item in items])
    *tested, final = folds_of(items, Protocol(seed=seed))
    assert final.number == FINAL
    assert len(final.test) == 0
    tests = np.concatenate([fold.test for fold in tested])
    assert sorted(tests) == list(range(len(items)))
    for fold in [*tested, final]:
        parts = [set(group[own]) for own in (fold.train, fold.validation, fold.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 10
        assert len(parts[1]) == round((10 - len(parts[2])) / 4)
    sizes = [len(fold.test) for fold in tested]
    assert max(sizes) - min(sizes) <= 10


def test_one_fold_has_no_final_fit_and_a_cap_spreads_over_targets():
    items = triples(*[20] * 10)
    (only,) = folds_of(items, Protocol(folds_run=1, train_items=12))
    assert only.number == 0
    assert len(only.train) == 12
    assert len({items[i].group for i in only.train}) == 6


def test_an_item_trains_only_if_a_twin_is_about_no_target_that_tests_or_validates():
    items = triples(*[4] * 8)
    # Targets 0 and 1, 2 and 3, ... are each other's twins; target 7 has one of no other item too.
    twins = [[replace(item, group=f"target {int(item.group[-1]) ^ 1}")] for item in items]
    twins[-1].append(replace(items[0], group="another"))
    *tested, _ = folds_of(items, Protocol(n_folds=4), twins)
    left_out = 0
    for fold in tested:
        test, validation = ({items[i].group for i in part} for part in (fold.test, fold.validation))
        assert fold.apart == test | validation
        training = [i for i, item in enumerate(items) if item.group not in fold.apart]
        kept = [i for i in training if any(twin.group not in fold.apart for twin in twins[i])]
        assert fold.train.tolist() == kept
        left_out += len(training) - len(kept)
    assert left_out > 0


def test_a_fold_whose_twins_would_all_show_its_test_targets_is_refused():
    items = triples(*[4] * 5)
    twins = [[replace(item, group=own.group) for own in items[::4]] for item in items]
    assert folds_of(items, Protocol(), twins)
    none_left = [[replace(item, group="target 0")] for item in items]
    with pytest.raises(InputError, match="that validate or test, so that nothing is left"):
        folds_of(items, Protocol(), none_left)


def test_the_hash_knows_every_setting_and_what_it_is_applied_to():
    base = Protocol()
    hashes = {protocol_hash(base, {"weights": "a"}), protocol_hash(base, {"weights": "b"})}
    changed = {
        "allowed": 2.0, "seed": 1, "top": 3, "by": ("gates",), "anchor": (2.0,), "how": "gates",
        "precision": "bfloat16",
    }  # fmt: skip
    for name, value in changed.items():
        hashes.add(protocol_hash(base.model_copy(update={name: value}), {"weights": "a"}))
    assert len(hashes) == 2 + len(changed)
    assert protocol_hash(Protocol(), {"weights": "a"}) in hashes


def test_the_hash_knows_the_typical_weight_only_where_something_is_tuned():
    hashes = {
        how: {protocol_hash(Protocol(how=how, typical_weight=weight), {}) for weight in (0.1, 0.2)}
        for how in ("gates", "lora", "tune")
    }
    assert {how: len(found) for how, found in hashes.items()} == {"gates": 1, "lora": 1, "tune": 2}
