"""Chance level and intervals: literal twins."""

import numpy as np
import pytest
from scipy import stats

from tda_bias.stats.clusters import jackknife_mean
from unqover.bias import aggregates, chance, group_intervals, model_intervals, sums


def cross(n1, n2):
    """All pairs of two groups."""
    first, second = np.divmod(np.arange(n1 * n2), n2)
    return first, second + n1, np.repeat([0, 1], [n1, n2])


def everyone(n):
    return np.array([(i, j) for i in range(n) for j in range(i + 1, n)]).T


# -- chance ----------------------------------------------------------------------------------------


def test_a_pairs_templates_are_flipped_together():
    """Templates that repeat each other are no more evidence than one."""
    pairs = everyone(5)
    C = np.random.default_rng(2).uniform(-1, 1, (10, 1, 3))
    one, many = (
        chance(sums(given, *pairs, 5), n_flips=20, rng=np.random.default_rng(3))
        for given in (C, np.repeat(C, 4, axis=1))
    )
    np.testing.assert_allclose(one[0], many[0])


def test_chance_is_what_flipped_comparisons_give_without_what_was_not_asked():
    rng = np.random.default_rng(8)
    first, second = everyone(4)
    C = rng.uniform(-1, 1, (6, 3, 2))
    C[0, 1], C[3] = np.nan, np.nan
    found = chance(sums(C, first, second, 4), n_flips=20, rng=np.random.default_rng(7))
    twin = np.random.default_rng(7)
    for draw in range(20):
        signs = twin.integers(0, 2, size=(6, 1, 2), dtype=np.int8) * 2 - 1
        expected = aggregates(sums(C * signs, first, second, 4))
        assert found[0, draw] == pytest.approx(expected.mu)
        assert found[1, draw] == pytest.approx(expected.mean_eta)


# -- intervals -------------------------------------------------------------------------------------


def named(rng, n, attributes, bias, spread):
    """Comparisons that depend on the names of both sides, with a bias between groups."""
    first, second, group = cross(n, n)
    own = rng.normal(0, spread, (2 * n, attributes))
    noise = rng.normal(0, 0.05, (n * n, 4, attributes))
    C = (bias + own[first] - own[second])[:, None] + noise
    return sums(C, first, second, 2 * n), group


def test_standard_errors_come_from_drawing_both_sides():
    rng = np.random.default_rng(3)
    given, group = named(rng, 12, 3, 0.1, 0.2)
    found = group_intervals(given, group, n_resamples=2000, rng=np.random.default_rng(0))
    dense = (given.C / given.n).reshape(12, 12, 3)
    twin = np.random.default_rng(1)
    draws = []
    for _ in range(2000):
        rows, columns = twin.integers(0, 12, 12), twin.integers(0, 12, 12)
        draws.append(dense[rows][:, columns].mean((0, 1)))
    # Student's t with one degree of freedom less than there are names on a side.
    half = stats.t.ppf(0.975, 11) * np.std(draws, axis=0)
    np.testing.assert_allclose((found.high - found.low)[0] / 2, half, rtol=0.08)
    np.testing.assert_allclose(found.low[0], -found.high[1])
    np.testing.assert_allclose(found.high[0], -found.low[1])
    assert (found.qvalue >= found.pvalue).all()


def literal_bh(pvalues):
    """Each p times tests / rank, and no more than that of a larger p."""
    n, order = len(pvalues), sorted(pvalues)
    steps = [p * n / rank for rank, p in enumerate(order, start=1)]
    return np.array([min(steps[order.index(p) :]) for p in pvalues])


def test_q_is_benjamini_and_hochbergs_over_all_groups_and_attributes():
    rng = np.random.default_rng(6)
    first, second = everyone(6)
    given = sums(rng.normal(0.05, 0.2, (15, 2, 4)), first, second, 6)
    found = group_intervals(
        given, np.arange(6), opponents_alone=True, n_resamples=100, rng=np.random.default_rng(0)
    )
    expected = literal_bh(found.pvalue.ravel().tolist()).reshape(6, 4)
    np.testing.assert_allclose(found.qvalue, expected)
    # Of two groups the second row is the first one mirrored: no further tests.
    two, group = named(rng, 5, 6, 0.05, 0.1)
    found = group_intervals(two, group, n_resamples=100, rng=np.random.default_rng(0))
    for row in found.qvalue:
        np.testing.assert_allclose(row, literal_bh(found.pvalue[0].tolist()))


def test_where_each_subject_is_its_own_group_its_opponents_are_drawn():
    rng = np.random.default_rng(4)
    first, second = everyone(9)
    C = rng.uniform(-1, 1, (36, 2, 2))
    given = sums(C, first, second, 9)
    found = group_intervals(
        given, np.arange(9), opponents_alone=True, n_resamples=3000, rng=np.random.default_rng(0)
    )
    # Subject 0 is x1 of its 8 pairs: the standard error of a mean of 8, as the bootstrap has it.
    means = C.mean(1)[first == 0]
    half = stats.t.ppf(0.975, 7) * means.std(0) / np.sqrt(8)
    np.testing.assert_allclose((found.high - found.low)[0] / 2, half, rtol=0.15)
    # Nothing varies, nothing is tested.
    first, second, group = cross(3, 3)
    same = sums(np.full((9, 1, 2), 0.25), first, second, 6)
    found = group_intervals(same, group, n_resamples=100, rng=np.random.default_rng(0))
    assert np.isnan([found.pvalue, found.low]).all()
    same = sums(np.full((9, 1, 2), 0.1), first, second, 6)
    assert np.isnan(model_intervals(same, group, group=group)).all()


def test_intervals_of_mu_and_eta_leave_out_each_subject_of_the_definition():
    given, group = named(np.random.default_rng(5), 5, 8, 0.2, 0.1)
    found = model_intervals(given, group, group=group)
    both, size = aggregates(given, group), np.full(10, 5)
    without = []
    for subject in range(10):
        kept = np.arange(10) != subject
        pairs = kept[given.first] & kept[given.second]
        without.append(aggregates(given.of_pairs(pairs), group))
    for limits, name in zip(found, ("mu", "mean_eta"), strict=True):
        others = np.array([getattr(one, name) for one in without])
        expected = jackknife_mean(getattr(both, name), others, 1 / size).limits()
        assert limits == pytest.approx(expected)


@pytest.mark.parametrize("strata", [[0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1]])
def test_few_subjects_or_one_alone_in_its_group_have_no_interval(strata):
    n = len(strata)
    first, second = everyone(n)
    C = np.random.default_rng(0).uniform(-1, 1, (len(first), 1, 2))
    given = sums(C, first, second, n)
    assert np.isnan(model_intervals(given, np.array(strata), group=np.arange(n) % 2)).all()
