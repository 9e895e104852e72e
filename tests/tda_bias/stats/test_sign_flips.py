"""Exchanges and sign flips: enumerated by hand, their p against SciPy."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from tda_bias.stats.sign_flips import (
    ENUMERATED,
    exchanges,
    flip_pvalue,
    random_signs,
    sign_flips,
    smallest_flip_p,
)


def rng(seed=0):
    return np.random.default_rng(seed)


# -- exchanges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [[2, 2, 2], [3, 1, 2], [1], [4, 4]])
def test_few_exchanges_are_enumerated(size):
    found = exchanges(np.array(size), 5, rng())
    assert found.exact
    expected = set(product(*(range(n) for n in size)))
    assert sorted(map(tuple, found.member.tolist())) == sorted(expected)
    assert len(found) == len(expected)


def test_exchanges_are_enumerated_up_to_the_limit_and_drawn_alike_beyond():
    assert len(exchanges(np.full(12, 2), 5, rng())) == ENUMERATED
    assert len(exchanges(np.full(6, 4), 5, rng())) == ENUMERATED
    found = exchanges(np.array([2] * 12 + [3]), 6000, rng())
    assert not found.exact
    assert len(found) == 6000
    np.testing.assert_allclose((found.member == 0).mean(0), [1 / 2] * 12 + [1 / 3], atol=0.03)
    np.testing.assert_array_equal(found.member.max(0), [1] * 12 + [2])


def test_few_exchanges_are_drawn_where_a_map_needs_as_many_of_every_group():
    found = exchanges(np.array([2, 3]), 7, rng(), enumerated=False)
    assert not found.exact
    np.testing.assert_array_equal(found.member, rng().integers(0, [2, 3], size=(7, 2)))


# -- signs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 6])
def test_few_flips_are_all_there_are_and_the_first_one_flips_nothing(n):
    found = sign_flips(n, 5, rng())
    assert found.exact
    assert found.signs[0].tolist() == [1] * n
    assert sorted(map(tuple, found.signs.tolist())) == sorted(product((-1, 1), repeat=n))


def test_flips_are_enumerated_up_to_twelve_and_random_beyond():
    assert len(sign_flips(12, 5, rng()).signs) == ENUMERATED
    found = sign_flips(13, 4000, rng())
    assert not found.exact
    assert found.signs.shape == (4000, 13)
    np.testing.assert_allclose(found.signs.mean(0), 0, atol=0.06)
    np.testing.assert_array_equal(found.signs, random_signs((4000, 13), rng()))


@pytest.mark.parametrize("bits", [np.int8, np.int64])
def test_a_sign_is_one_bit_of_the_named_type(bits):
    drawn = rng(3).integers(0, 2, size=(4, 5, 2), dtype=bits)
    expected = np.where(drawn == 1, -1.0, 1.0)
    np.testing.assert_array_equal(random_signs((4, 5, 2), rng(3), bits=bits), expected)


# -- the test of clusters --------------------------------------------------------------------------


def test_p_over_clusters_counts_the_flips_of_their_sums():
    values, cluster = rng(11).normal(0.5, 1, 14), np.repeat(np.arange(7), 2)
    sums = values.reshape(7, 2).sum(1)
    null = [abs(np.dot(signs, sums)) for signs in product((1, -1), repeat=7)]
    expected = np.mean(np.array(null) >= abs(sums.sum()) - 1e-9)
    assert flip_pvalue(values, cluster, rng=rng()) == expected
    many = flip_pvalue(rng(12).normal(2, 1, 40), np.arange(40), n_resamples=99, rng=rng())
    assert many == 1 / 100


@pytest.mark.parametrize("n", [7, 40])
def test_p_over_clusters_is_that_of_scipys_permutation_test_of_their_sums(n):
    values, cluster = rng(n).normal(0.25, 1, 2 * n), np.repeat(np.arange(n), 2)
    sums = values.reshape(n, 2).sum(1)
    reference = stats.permutation_test(
        (sums, np.zeros(n)),
        lambda x, y, axis: np.sum(x - y, axis=axis),
        permutation_type="samples", vectorized=True, n_resamples=19999, random_state=rng(1),
    )  # fmt: skip
    found = flip_pvalue(values, cluster, n_resamples=19999, rng=rng(2))
    assert found == pytest.approx(reference.pvalue, abs=1e-12 if n <= 12 else 0.015)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 12])
def test_no_values_have_a_smaller_p_than_the_smallest(n):
    rng = np.random.default_rng(0)
    alike = flip_pvalue(np.ones(n), np.arange(n), rng=rng)
    assert alike == smallest_flip_p(n)
    assert flip_pvalue(rng.normal(size=n), np.arange(n), rng=rng) >= smallest_flip_p(n)


def test_random_flips_have_no_p_below_one_of_them_and_the_observed():
    rng = np.random.default_rng(0)
    for draws in (19, 99):
        p = flip_pvalue(np.ones(40), np.arange(40), n_resamples=draws, rng=rng)
        assert p == smallest_flip_p(40, draws)
