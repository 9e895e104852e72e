"""Triple minus twin: against literal sums over step functions."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.heads.contrast import (
    FACTOR_TOLERANCE,
    contrast,
    contrast_matrix,
    factor,
    version_products,
)
from tda_bias.heads.group_statistic import GroupLayout, Versions
from tda_bias.heads.ranking_controls import difference_left
from tests.support.grams import MadeUpGroup, made_up_group


def squared(f: np.ndarray) -> float:
    return float(np.mean(f**2))


def literal_location(differences: list[np.ndarray]) -> float:
    return squared(sum(differences)) / sum(squared(d) for d in differences)


def twins_of(group: MadeUpGroup, context: int) -> list[int]:
    return [k for k, c in enumerate(group.layout.twin_of) if c == context]


def literal_contrasts(group: MadeUpGroup, head: int) -> list[np.ndarray]:
    """E_i = D_i - mean_k D_ik, for contexts that have a twin."""
    contrasts = []
    for i in range(group.layout.n):
        places = twins_of(group, i)
        if places:
            own = group.stereotype[i, head] - group.anti[i, head]
            others = [group.twin_stereotype[k, head] - group.twin_anti[k, head] for k in places]
            contrasts.append(own - np.mean(others, axis=0))
    return contrasts


def literal_relative_twin(group: MadeUpGroup, head: int) -> float:
    """As it is defined: squared distances to the mean of the four cluster centres."""
    contexts = [i for i in range(group.layout.n) if twins_of(group, i)]

    def cluster(triples: np.ndarray, twins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = np.mean([triples[i, head] for i in contexts], axis=0)
        other = np.mean(
            [np.mean(twins[twins_of(group, i), head], axis=0) for i in contexts], axis=0
        )
        return own, other

    m_s, m_s_twin = cluster(group.stereotype, group.twin_stereotype)
    m_a, m_a_twin = cluster(group.anti, group.twin_anti)
    centre = (m_s + m_a + m_s_twin + m_a_twin) / 4
    numerator, denominator = [], []
    for i in contexts:
        q_s = squared(group.stereotype[i, head] - centre)
        q_a = squared(group.anti[i, head] - centre)
        q_s_twin = np.mean(
            [squared(group.twin_stereotype[k, head] - centre) for k in twins_of(group, i)]
        )
        q_a_twin = np.mean([squared(group.twin_anti[k, head] - centre) for k in twins_of(group, i)])
        numerator.append((q_a - q_s) - (q_a_twin - q_s_twin))
        denominator.append(q_s + q_a + q_s_twin + q_a_twin)
    return np.mean(numerator) / np.mean(denominator)


@pytest.mark.parametrize("twins", [1, 3, (2, 0, 1, 1, 3, 0, 2)])
def test_location_and_dispersion_are_the_literal_sums(twins):
    group = made_up_group(twins=twins)
    found = contrast(version_products(group.gram, group.layout))
    for head in range(3):
        differences = list(group.stereotype[:, head] - group.anti[:, head])
        assert found.location[head] == pytest.approx(literal_location(differences))
        expected = literal_location(literal_contrasts(group, head))
        assert found.location_twin[head] == pytest.approx(expected)
        assert found.relative_twin[head] == pytest.approx(literal_relative_twin(group, head))


@given(st.integers(2, 9), st.integers(0, 10**6))
def test_location_lies_between_0_and_the_number_of_contexts(n, seed):
    group = made_up_group(n, seed=seed)
    found = contrast(version_products(group.gram, group.layout))
    for values in (found.location, found.location_twin):
        assert (values >= 0).all()
        assert (values <= n + 1e-9).all()
    assert (np.abs(found.relative_twin) <= 1).all()


def test_contexts_that_differ_alike_have_the_largest_location():
    group = made_up_group(5)
    same = np.broadcast_to(group.stereotype[:1] - group.anti[:1], group.anti.shape)
    moved = MadeUpGroup(group.anti + same, *_rest(group))
    assert contrast(version_products(moved.gram, moved.layout)).location == pytest.approx(5.0)


def _rest(group: MadeUpGroup) -> tuple:
    return (group.anti, group.unrelated, group.twin_stereotype, group.twin_anti, group.layout)


def test_what_triple_and_twin_have_in_common_is_gone():
    plain, worded = (made_up_group(wording=w) for w in (0.0, 5.0))
    without, with_wording = (contrast(version_products(g.gram, g.layout)) for g in (plain, worded))
    np.testing.assert_allclose(with_wording.location_twin, without.location_twin)
    assert (with_wording.location > without.location + 1).all()


def test_exchanging_triple_and_twin_turns_the_sign_of_the_dispersion():
    group = made_up_group(6)
    swapped = MadeUpGroup(
        group.twin_stereotype, group.twin_anti, group.unrelated, group.stereotype, group.anti,
        group.layout,
    )  # fmt: skip
    one, other = (contrast(version_products(g.gram, g.layout)) for g in (group, swapped))
    np.testing.assert_allclose(one.relative_twin, -other.relative_twin)
    np.testing.assert_allclose(one.location_twin, other.location_twin)


def test_the_terms_that_are_exchanged_sum_to_the_numerator_of_single_twins():
    group = made_up_group(6)
    found = contrast(version_products(group.gram, group.layout))
    between = contrast_matrix(group.layout.versions)
    total = (between @ found.dispersion).sum(0) / found.dispersion_total
    np.testing.assert_allclose(total, found.relative_twin)


def left_of(group: MadeUpGroup) -> float:
    found = contrast(version_products(group.gram, group.layout))
    return difference_left([SimpleNamespace(contrast=found, versions=group.layout.versions)])


@pytest.mark.parametrize("twins", [1, 3, (2, 0, 1, 1, 3, 0, 2)])
def test_what_twins_leave_of_the_difference_is_the_literal_mean(twins):
    group, shares = made_up_group(twins=twins, wording=1.0), []
    for i in range(group.layout.n):
        for head in range(3 if twins_of(group, i) else 0):
            own = group.stereotype[i, head] - group.anti[i, head]
            others = [group.twin_stereotype[k] - group.twin_anti[k] for k in twins_of(group, i)]
            left = np.mean([squared(own - other[head]) for other in others])
            whole = squared(own) + np.mean([squared(other[head]) for other in others])
            shares.append(left / whole)
    assert left_of(group) == pytest.approx(np.mean(shares), abs=1e-6)


@pytest.mark.parametrize("twins", [1, 3])
def test_twins_that_share_nothing_leave_the_whole_difference_however_many(twins):
    assert left_of(made_up_group(twins=twins, steps=5000)) == pytest.approx(1, abs=0.02)


def test_without_twins_only_location_is_there():
    group = made_up_group(twins=0)
    found = contrast(version_products(group.gram, group.layout))
    assert np.isfinite(found.location).all()
    assert np.isnan(found.location_twin).all()
    assert np.isnan(found.relative_twin).all()


def test_texts_without_any_difference_are_undefined():
    group = made_up_group(4)
    same = MadeUpGroup(
        group.anti, group.anti, group.unrelated, group.twin_anti, group.twin_anti, group.layout
    )
    found = contrast(version_products(same.gram, same.layout))
    assert np.isnan(found.location).all()
    assert np.isnan(found.location_twin).all()


# -- factors --


def test_a_factor_gives_the_gram_matrix_back():
    rng = np.random.default_rng(0)
    # Smooth rows, as differences of step functions are, and a little noise.
    smooth = np.polynomial.chebyshev.chebvander(np.linspace(-1, 1, 200), 5)
    rows = rng.normal(size=(4, 30, 6)) @ smooth.T + 1e-6 * rng.normal(size=(4, 30, 200))
    gram = rows @ rows.mT
    found = factor(gram)
    assert found.shape[2] < 10
    error = np.abs(found @ found.mT - gram).max((1, 2)) / np.trace(gram, axis1=1, axis2=2)
    assert (error <= FACTOR_TOLERANCE).all()


def test_a_factor_of_nothing_is_empty():
    assert factor(np.zeros((2, 5, 5))).shape == (2, 5, 0)


def test_heads_of_different_rank_share_one_shape():
    rows = np.zeros((2, 4, 3))
    rows[0, :, 0] = [1, 2, 3, 4]
    rows[1] = np.random.default_rng(0).normal(size=(4, 3))
    found = factor(rows @ rows.mT)
    np.testing.assert_allclose(found @ found.mT, rows @ rows.mT, atol=1e-9)
    assert found.shape == (2, 4, 3)
    assert (found[0, :, 1:] == 0).all()


# -- versions --


def test_places_follow_each_other():
    layout = GroupLayout(3, 3, np.array([0, 0, 2]))
    places = np.arange(layout.n_texts)
    assert places[layout.stereotype].tolist() == [0, 1, 2]
    assert places[layout.anti].tolist() == [3, 4, 5]
    assert places[layout.unrelated].tolist() == [6, 7, 8]
    assert layout.stereotype_of_version.tolist() == [0, 1, 2, 9, 10, 11]
    assert layout.anti_of_version.tolist() == [3, 4, 5, 12, 13, 14]


def test_weights_take_the_chosen_version_and_the_mean_of_the_others():
    versions = Versions(np.array([0, 1, 2, 0, 0, 2]), 3)
    assert versions.twinned.tolist() == [0, 2]
    assert [len(members) - 1 for members in versions.members] == [2, 1]
    np.testing.assert_array_equal(versions.given, [1, 0, 1, -0.5, -0.5, -1])
    np.testing.assert_array_equal(versions.weights(np.array([2, 1])), [-0.5, 0, -1, -0.5, 1, 1])
