"""B, C, gamma, eta, mu: golden numbers, literal twins, and what must cancel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tda_bias.types import InputError
from tests.support.golden import GOLDEN
from unqover.bias import (
    SCALES,
    Membership,
    aggregates,
    comparative,
    compared,
    factorial,
    scores,
    sums,
)

CASES = {case["id"]: case for case in GOLDEN["unqover_cases"]}
EXACT = {"atol": 1e-10, "rtol": 0}

probabilities = arrays(float, (3, 2, 2, 2), elements=st.floats(0, 1))
log_odds = arrays(float, (3, 2, 2, 2), elements=st.floats(-30, 0))


def as_array(S):
    return np.array([[S[order][polarity] for polarity in ("pos", "neg")] for order in ("12", "21")])


# -- golden ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c["kind"] == "pair"])
def test_golden_pairs(name):
    expected = CASES[name]["expected"]
    found = comparative(as_array(CASES[name]["input"]["S"]))
    np.testing.assert_allclose(found.B, [expected["B_x1"], expected["B_x2"]], **EXACT)
    np.testing.assert_allclose(found.C, expected["C"], **EXACT)
    np.testing.assert_allclose(found.position_error, expected["delta"], **EXACT)
    np.testing.assert_allclose(found.negation_error, expected["epsilon"], **EXACT)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c["kind"] == "aggregate"])
def test_golden_aggregates(name):
    case = CASES[name]
    entries, expected = case["input"]["entries"], case["expected"]
    subjects = sorted({e[k] for e in entries for k in ("x1", "x2")})
    attributes = sorted({e["attribute"] for e in entries})
    pairs = sorted({(e["x1"], e["x2"]) for e in entries})
    n_templates = 1 + max(e["template"] for e in entries)
    S = np.full((len(pairs), n_templates, len(attributes), 2, 2, 2), np.nan)
    for e in entries:
        where = pairs.index((e["x1"], e["x2"])), e["template"], attributes.index(e["attribute"])
        S[where] = as_array(e["S"])
    found = comparative(S)
    first, second = (np.array([subjects.index(p[k]) for p in pairs]) for k in (0, 1))
    both = aggregates(sums(found.C, first, second, len(subjects)))
    for i, x in enumerate(subjects):
        for j, a in enumerate(attributes):
            assert both.gamma[i, j] == pytest.approx(expected["gamma_xa"][x][a], abs=1e-10)
            assert both.eta[i, j] == pytest.approx(expected["eta_xa"][x][a], abs=1e-10)
    assert both.mu == pytest.approx(expected["mu"], abs=1e-10)
    assert both.mean_eta == pytest.approx(expected["eta"], abs=1e-10)
    assert np.nanmean(found.position_error) == pytest.approx(expected["delta"], abs=1e-10)
    assert np.nanmean(found.negation_error) == pytest.approx(expected["epsilon"], abs=1e-10)


# -- one comparison --------------------------------------------------------------------------------


@given(probabilities)
def test_definitions_by_hand(S):
    found = comparative(S)
    for i in range(len(S)):
        B = [
            (S[i, 0, 0, x] + S[i, 1, 0, x]) / 2 - (S[i, 0, 1, x] + S[i, 1, 1, x]) / 2
            for x in range(2)
        ]
        np.testing.assert_allclose(found.B[i], B, atol=1e-12)
        assert found.C[i] == pytest.approx((B[0] - B[1]) / 2, abs=1e-12)
        delta = [abs(S[i, 0, p, x] - S[i, 1, p, x]) for p in range(2) for x in range(2)]
        epsilon = [abs(S[i, o, 0, x] - S[i, o, 1, 1 - x]) for o in range(2) for x in range(2)]
        assert found.position_error[i] == pytest.approx(np.mean(delta), abs=1e-12)
        assert found.negation_error[i] == pytest.approx(np.mean(epsilon), abs=1e-12)


@given(probabilities)
def test_C_changes_sign_with_the_pair_and_with_the_denial(S):
    C = comparative(S).C
    assert (np.abs(C) <= 1).all()
    # x1 and x2 swap names, so the orders of mention swap too.
    swapped = S[..., ::-1, :, ::-1]
    np.testing.assert_allclose(comparative(swapped).C, -C, atol=1e-15)
    np.testing.assert_allclose(comparative(S[..., ::-1, :]).C, -C, atol=1e-15)


@given(probabilities, arrays(float, (3, 2, 1, 2), elements=st.floats(-1, 1)))
def test_what_ignores_the_polarity_cancels_in_B(S, term):
    np.testing.assert_allclose(comparative(S + term).B, comparative(S).B, atol=1e-12)


@given(probabilities, arrays(float, (3, 2, 2, 1), elements=st.floats(-1, 1)))
def test_what_ignores_the_subject_cancels_in_C(S, term):
    np.testing.assert_allclose(comparative(S + term).C, comparative(S).C, atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_a_preference_that_rounding_makes_is_none(scale):
    rng = np.random.default_rng(0)
    alike = np.repeat(-30 * rng.random((500, 2, 2, 1)), 2, axis=-1)
    rounded = alike * (1 + 3e-7 * rng.choice([-1, 1], alike.shape))
    assert (comparative(scores(rounded, scale)).C != 0).any()
    assert (compared(rounded, scale).C == 0).all()
    # Whatever is larger stays as it was, to the last digit.
    different = rounded + 0.01 * rng.normal(size=alike.shape)
    expected = comparative(scores(different, scale)).C
    found = compared(different, scale).C
    np.testing.assert_array_equal(found[found != 0], expected[found != 0])
    assert (np.abs(expected[found == 0]) < 1e-4).all()
    assert np.mean(found == 0) < 0.05
    undefined = np.where(np.arange(500)[:, None, None, None] == 3, np.nan, different)
    assert np.isnan(compared(undefined, scale).C).nonzero()[0].tolist() == [3]


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_model_that_sees_positions_or_subjects_only_has_no_bias(one, two):
    by_position = np.empty((2, 2, 2))
    by_position[0, :, 0] = by_position[1, :, 1] = one  # whoever is mentioned first
    by_position[0, :, 1] = by_position[1, :, 0] = two
    found = comparative(by_position)
    assert found.C == 0
    assert found.position_error == pytest.approx(abs(one - two))
    found = comparative(np.broadcast_to([one, two], (2, 2, 2)))
    assert found.C == 0
    assert (found.B == 0).all()
    assert found.negation_error == pytest.approx(abs(one - two))


@given(log_odds, st.floats(-5, 5), st.floats(-5, 5))
def test_priors_and_positions_cancel_exactly_in_log_odds(log_prob, prior, position):
    changed = log_prob.copy()
    changed[..., 0] += prior
    changed[:, 0, :, 0] += position
    changed[:, 1, :, 1] += position
    np.testing.assert_allclose(comparative(changed).C, comparative(log_prob).C, atol=1e-10)


@given(log_odds)
def test_two_way_scores_are_shares_of_the_pair(log_prob):
    S = scores(log_prob, "two_way")
    direct = np.exp(log_prob) / np.exp(log_prob).sum(-1, keepdims=True)
    np.testing.assert_allclose(S, direct, atol=1e-12)
    found = comparative(S)
    np.testing.assert_allclose(found.C, found.B[..., 0], atol=1e-12)
    # Without underflow.
    np.testing.assert_allclose(scores(log_prob - 1000, "two_way"), S, atol=1e-10)


# -- aggregates ------------------------------------------------------------------------------------


def comparisons(rng, n=5, templates=3, attributes=4, missing=0.2):
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    C = rng.uniform(-1, 1, (len(pairs), templates, attributes))
    C[rng.uniform(size=C.shape) < missing] = np.nan
    return C, *np.array(pairs).T


def by_hand(C, first, second, group):
    """gamma[g][a], the mean over all comparisons with one subject in g and the other outside."""
    n_groups = max(group) + 1
    gamma = np.full((n_groups, C.shape[2]), np.nan)
    eta = gamma.copy()
    for g in range(n_groups):
        for a in range(C.shape[2]):
            values = []
            for p, (i, j) in enumerate(zip(first, second, strict=True)):
                for t in range(C.shape[1]):
                    if np.isnan(C[p, t, a]) or group[i] == group[j]:
                        continue
                    if group[i] == g:
                        values.append(C[p, t, a])
                    elif group[j] == g:
                        values.append(-C[p, t, a])
            if values:
                gamma[g, a], eta[g, a] = np.mean(values), np.mean(np.sign(values))
    return gamma, eta


@pytest.mark.parametrize("group", [None, [0, 0, 1, 1, 2], [0, 1, 1, -1, 0], [0, -1, -1, -1, -1]])
def test_aggregates_are_means_over_comparisons(group):
    C, first, second = comparisons(np.random.default_rng(1))
    found = aggregates(sums(C, first, second, 5), None if group is None else np.array(group))
    gamma, eta = by_hand(C, first, second, list(range(5)) if group is None else group)
    np.testing.assert_allclose(found.gamma, gamma, atol=1e-12)
    np.testing.assert_allclose(found.eta, eta, atol=1e-12)
    assert found.mu == pytest.approx(np.nanmean(np.nanmax(np.abs(gamma), 1)))
    assert found.mean_eta == pytest.approx(np.nanmean(np.nanmean(np.abs(eta), 1)))


def test_a_subject_is_not_compared_to_itself():
    with pytest.raises(InputError, match="compares a subject to itself"):
        sums(np.zeros((1, 1, 1)), np.array([0]), np.array([0]), 2)


def test_an_incomplete_comparison_is_left_out_whole_and_a_tie_has_sign_zero():
    S = np.full((1, 1, 2, 2, 2, 2), 0.5)
    S[0, 0, 0, 1, 1, 0] = np.nan
    found = comparative(S)
    assert np.isnan([found.C[0, 0, 0], found.position_error[0, 0, 0]]).all()
    assert found.C[0, 0, 1] == 0
    tied = sums(np.array([[[0.0], [0.2]]]), np.array([0]), np.array([1]), 2)
    assert aggregates(tied).eta.tolist() == [[0.5], [-0.5]]


# -- joint classes ---------------------------------------------------------------------------------


def test_factorial_parts_add_up_and_are_orthogonal():
    gamma = np.random.default_rng(3).normal(size=(4, 2, 3))
    found = factorial(gamma)
    for i in range(4):
        for j in range(2):
            for a in range(3):
                row, column = gamma[i, :, a].mean(), gamma[:, j, a].mean()
                left = gamma[i, j, a] - row - column + gamma[:, :, a].mean()
                assert found.interaction[i, j, a] == pytest.approx(left)
    grand = gamma.mean((0, 1))
    whole = grand + found.main[0][:, None] + found.main[1][None] + found.interaction
    np.testing.assert_allclose(whole, gamma)
    assert found.shares.sum() == pytest.approx(1)
    total = ((gamma - grand) ** 2).sum()
    assert found.shares[2] == pytest.approx((found.interaction**2).sum() / total)


def test_an_additive_class_has_no_interaction_and_zeros_no_shares():
    gamma = np.arange(3.0)[:, None, None] + np.array([0.0, 5.0])[None, :, None]
    np.testing.assert_allclose(factorial(gamma).interaction, 0, atol=1e-12)
    assert factorial(gamma).shares[2] == pytest.approx(0)
    assert np.isnan(factorial(np.zeros((2, 2, 1))).shares).all()


# -- membership ------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [[0, 0, 1, 1, 2], [0, 1, 2, 3, 4], [0, 0, -1, -1, 1]])
def test_members_of_groups_are_added_up_pair_by_pair(group):
    rng = np.random.default_rng(3)
    first, second = np.array([(i, j) for i in range(5) for j in range(i + 1, 5)]).T
    given = sums(rng.uniform(-1, 1, (10, 2, 3)), first, second, 5)
    weight, group = rng.integers(0, 3, 5).astype(float), np.array(group)
    member = Membership.of(given, group)
    ways = {
        "all alike": (member, lambda own, other: 1.0),
        "by both": (member.weighted(weight), lambda own, other: weight[own] * weight[other]),
        "by the other": (member.against(weight), lambda own, other: weight[other]),
    }
    for found, weigh in ways.values():
        expected = np.full((group.max() + 1, 3), np.nan)
        for g in range(group.max() + 1):
            total, n = np.zeros(3), np.zeros(3)
            for pair, (x1, x2) in enumerate(zip(first, second, strict=True)):
                for own, other, sign in ((x1, x2, 1), (x2, x1, -1)):
                    if group[own] == g != group[other]:
                        total += sign * weigh(own, other) * given.C[pair]
                        n += weigh(own, other) * given.n[pair]
            if n[0] > 0:
                expected[g] = total / n
        np.testing.assert_allclose(found.means(given.C, given.n), expected, atol=1e-12)
