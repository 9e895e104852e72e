"""Chance level and intervals: literal twins, and two guarantees by simulation."""

import numpy as np
import pytest
from scipy import stats

from tda_bias.types import InputError
from unqover.bias import Membership, aggregates, sums
from unqover.inference import chance, group_intervals, model_intervals


def cross(n1, n2):
    """All pairs of two groups."""
    first, second = np.divmod(np.arange(n1 * n2), n2)
    return first, second + n1, np.repeat([0, 1], [n1, n2])


def everyone(n):
    return np.array([(i, j) for i in range(n) for j in range(i + 1, n)]).T


# -- chance ----------------------------------------------------------------------------------------


def test_an_unknown_flip_is_refused():
    with pytest.raises(InputError, match="`flip` must be one of comparison, pair"):
        chance(np.zeros((1, 1, 1)), *everyone(2), 2, flip="name", rng=np.random.default_rng(0))


def test_chance_is_what_flipped_comparisons_give():
    rng = np.random.default_rng(1)
    first, second = everyone(4)
    C = rng.uniform(-1, 1, (6, 3, 2))
    found = chance(C, first, second, 4, n_flips=30, rng=np.random.default_rng(7))
    twin = np.random.default_rng(7)
    for draw in range(30):
        flipped = C * np.where(twin.integers(0, 2, size=C.shape, dtype=np.int8) == 1, 1, -1)
        mu = aggregates(sums(flipped, first, second, 4)).mu
        assert found.mu[draw] == pytest.approx(mu)


def test_a_pairs_templates_can_be_flipped_together():
    """Templates that repeat each other are no more evidence than one."""
    rng = np.random.default_rng(2)
    first, second = everyone(5)
    C = rng.uniform(-1, 1, (10, 1, 3))
    one = chance(C, first, second, 5, flip="pair", rng=np.random.default_rng(3))
    many = chance(
        np.repeat(C, 4, axis=1), first, second, 5, flip="pair", rng=np.random.default_rng(3)
    )
    np.testing.assert_allclose(one.mu, many.mu)
    apart = chance(np.repeat(C, 4, axis=1), first, second, 5, rng=np.random.default_rng(3))
    assert apart.mu.mean() < 0.7 * many.mu.mean()


def test_pvalues_count_the_observed_and_ties():
    first, second = everyone(2)
    found = chance(np.full((1, 1, 1), 0.5), first, second, 2, rng=np.random.default_rng(0))
    assert found.pvalues(0.5, 1.0) == (1.0, 1.0)
    assert found.pvalues(0.6, 1.1) == (1 / 201, 1 / 201)
    assert np.isnan(found.pvalues(np.nan, 0.0)[0])


@pytest.mark.parametrize("flip", ["comparison", "pair"])
def test_flips_and_resamples_share_one_membership(flip, monkeypatch):
    """It does not depend on signs; building it anew took most of the time."""
    built, build = [], Membership.of.__func__

    def counted(cls, given, group):
        built.append(len(given.first))
        return build(cls, given, group)

    monkeypatch.setattr(Membership, "of", classmethod(counted))
    first, second, group = cross(3, 3)
    C = np.random.default_rng(0).uniform(-1, 1, (9, 2, 3))
    chance(C, first, second, 6, flip=flip, n_flips=50, rng=np.random.default_rng(0))
    assert built == [9]
    given = sums(C, first, second, 6)
    group_intervals(given, group, n_resamples=50, rng=np.random.default_rng(0))
    model_intervals(given, group, n_resamples=50, rng=np.random.default_rng(0))
    assert built == [9, 9, 9]


def test_comparisons_that_were_not_asked_stay_out_of_every_flip():
    rng = np.random.default_rng(8)
    first, second = everyone(4)
    C = rng.uniform(-1, 1, (6, 3, 2))
    C[0, 1], C[3] = np.nan, np.nan
    for flip, shape in (("comparison", (6, 3, 2)), ("pair", (6, 1, 2))):
        found = chance(C, first, second, 4, flip=flip, n_flips=20, rng=np.random.default_rng(7))
        twin = np.random.default_rng(7)
        for draw in range(20):
            signs = twin.integers(0, 2, size=shape, dtype=np.int8) * 2 - 1
            expected = aggregates(sums(C * signs, first, second, 4))
            assert found.mu[draw] == pytest.approx(expected.mu)
            assert found.eta[draw] == pytest.approx(expected.mean_eta)


@pytest.mark.slow
def test_p_of_mu_is_uniform_without_bias():
    first, second, _ = cross(5, 5)
    values = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        C = np.clip(rng.normal(0, 0.3, (25, 2, 6)), -1, 1)
        null = chance(C, first, second, 10, n_flips=99, rng=rng)
        both = aggregates(sums(C, first, second, 10))
        values.append(null.pvalues(both.mu, both.mean_eta))
    for column in np.array(values).T:
        assert stats.kstest(column, "uniform").pvalue > 0.005
        assert 0.02 < (column <= 0.05).mean() < 0.09


# -- intervals -------------------------------------------------------------------------------------


def named(rng, n, attributes, bias, spread):
    """Comparisons that depend on the names of both sides, with a bias between groups."""
    first, second, group = cross(n, n)
    own = rng.normal(0, spread, (2 * n, attributes))
    noise = rng.normal(0, 0.05, (n * n, 4, attributes))
    C = (bias + own[first] - own[second])[:, None] + noise
    return sums(C, first, second, 2 * n), group


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 20])
def test_intervals_of_a_group_cover_its_bias(n):
    covered, rejected = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        given, group = named(rng, n, 10, 0.1, 0.2)
        found = group_intervals(given, group, n_resamples=200, rng=rng)
        covered.append((found.low[0] <= 0.1) & (found.high[0] >= 0.1))
        given, group = named(rng, n, 10, 0.0, 0.2)
        null = group_intervals(given, group, n_resamples=200, rng=rng)
        rejected.append(null.pvalue[0] < 0.05)
    assert 0.92 < np.mean(covered) < 0.99
    assert 0.01 < np.mean(rejected) < 0.08


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
    np.testing.assert_allclose(found.standard_error[0], np.std(draws, axis=0), rtol=0.08)
    np.testing.assert_allclose(found.standard_error[0], found.standard_error[1], rtol=1e-9)
    np.testing.assert_allclose(found.low[0], -found.high[1])
    assert (found.qvalue >= found.pvalue).all()


def test_where_each_subject_is_its_own_group_its_opponents_are_drawn():
    rng = np.random.default_rng(4)
    first, second = everyone(9)
    C = rng.uniform(-1, 1, (36, 2, 2))
    given = sums(C, first, second, 9)
    found = group_intervals(
        given, np.arange(9), drawn="opponents", n_resamples=3000, rng=np.random.default_rng(0)
    )
    # Subject 0 is x1 of its 8 pairs: the standard error of a mean of 8, as the bootstrap has it.
    means = C.mean(1)[first == 0]
    expected = means.std(0) / np.sqrt(8)
    np.testing.assert_allclose(found.standard_error[0], expected, rtol=0.15)


def test_groups_of_descriptions_are_compared_with_drawn_opponents():
    rng = np.random.default_rng(6)
    group = np.array([0, 0, 1, 1, 2, 2])
    first, second = everyone(6)
    C = rng.uniform(-1, 1, (15, 1, 1))
    given = sums(C, first, second, 6)
    found = group_intervals(
        given, group, drawn="opponents", n_resamples=4000, rng=np.random.default_rng(0)
    )
    # Group 0 against each of its four opponents, its two subjects together.
    per_opponent = [C[(first < 2) & (second == k)].mean() for k in range(2, 6)]
    expected = np.std(per_opponent) / 2
    # Opponents are drawn from all six: sometimes more, sometimes fewer of the four.
    assert found.standard_error[0, 0] == pytest.approx(expected, rel=0.25)
    assert aggregates(given, group).gamma[0, 0] == pytest.approx(np.mean(per_opponent))


def test_nothing_varies_nothing_is_tested():
    first, second, group = cross(3, 3)
    given = sums(np.full((9, 1, 2), 0.25), first, second, 6)
    found = group_intervals(given, group, n_resamples=100, rng=np.random.default_rng(0))
    assert np.isnan(found.pvalue).all()
    assert np.isnan(found.low).all()


def test_intervals_of_mu_and_eta_hold_the_estimate():
    rng = np.random.default_rng(5)
    given, strata = named(rng, 10, 8, 0.2, 0.1)
    both = aggregates(given)
    mu, eta = model_intervals(given, strata, n_resamples=300, rng=rng)
    assert mu.low <= both.mu <= mu.high
    assert eta.low <= both.mean_eta <= eta.high
    assert mu.high - mu.low < 0.5
    again = model_intervals(given, strata, n_resamples=300, rng=np.random.default_rng(1))
    same = model_intervals(given, strata, n_resamples=300, rng=np.random.default_rng(1))
    assert again == same


@pytest.mark.parametrize(("strata", "attributes"), [([0, 0, 1], 2), ([0, 0, 0], 1)])
def test_too_few_to_draw_from(strata, attributes):
    first, second = everyone(3)
    given = sums(np.full((3, 1, attributes), 0.25), first, second, 3)
    with pytest.raises(InputError, match="at least 2 subjects in each group and 2 attributes"):
        model_intervals(given, np.array(strata), rng=np.random.default_rng(0))
