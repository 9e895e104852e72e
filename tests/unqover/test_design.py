"""Sampling: within groups and kinds, recorded, reproducible."""

from collections import Counter

import numpy as np
import pytest

from unqover.classes import load_class
from unqover.config import DesignConfig
from unqover.design import sampled_design


def design(name="gender", **settings):
    return sampled_design(load_class(name), DesignConfig(**settings))


def test_each_group_is_sampled_and_only_groups_are_compared():
    found = design(subjects=6, attributes=10)
    groups = [s.group for s in found.subjects]
    assert Counter(groups) == {"female": 6, "male": 6}
    assert all(groups[i] != groups[j] for i, j in zip(found.first, found.second, strict=True))
    assert found.shape == (36, 4, 10)
    assert found.n_questions == 36 * 4 * 10 * 4
    assert found.record["subjects"] == [s.name for s in found.subjects]
    assert found.record["attributes_available"] == 70


def test_all_pairs_are_compared_where_each_subject_is_its_own_group():
    found = design("religion", subjects=5)
    assert len(found.subjects) == 5
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert pairs == {(i, j) for i in range(5) for j in range(i + 1, 5)}


def test_kinds_keep_their_proportions():
    found = design("ethnicity", attributes=25)
    kinds = Counter(a.kind for a in found.attributes)
    assert kinds == {"rude": 7, "indecent": 6, "crime": 6, "negative": 4, "poor": 2}
    for few in (1, 2, 3, 7):
        assert len(design("ethnicity", attributes=few).attributes) == few


def test_a_joint_class_keeps_every_combination():
    found = design("gender_race", subjects=8)
    levels = [s.levels for s in found.subjects]
    races, genders = ({own[f] for own in levels} for f in (0, 1))
    assert len(races) == 4
    assert genders == {"woman", "man"}
    assert sorted(levels) == sorted((r, g) for r in races for g in genders)


def test_templates_ask_only_for_the_attributes_of_their_form():
    found = design("nationality", subjects=3, attributes=4)
    assert found.asked.sum(1).tolist() == [4] * 12
    places, people = found.asked[0], found.asked[-1]
    assert not (places & people).any()
    assert found.n_questions == 3 * 12 * 4 * 4


@pytest.mark.parametrize("name", ["gender", "nationality", "gender_race"])
def test_a_seed_fixes_the_sample(name):
    one, same, other = (design(name, subjects=4, attributes=5, seed=s) for s in (3, 3, 4))
    assert one.record == same.record
    assert one.record["attributes"] != other.record["attributes"]
    np.testing.assert_array_equal(one.first, same.first)
