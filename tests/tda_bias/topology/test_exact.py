"""Exact inner products of sets: literal integrals, and distances by POT."""

import itertools

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.topology.exact import exact_gram_matrices, refinement


def sets_of(sizes, rows=3, seed=0):
    rng = np.random.default_rng(seed)
    sets = [np.sort(rng.random((rows, size)) ** 3, axis=1) for size in sizes]
    return np.concatenate(sets, axis=1), np.cumsum([0, *sizes])


@given(st.integers(1, 40), st.integers(1, 40))
def test_pieces_are_those_between_the_borders_of_both(n, m):
    first, second, width = refinement(n, m)
    assert len(width) <= n + m - 1
    assert width.sum() == pytest.approx(1.0)
    middle = np.cumsum(width) - width / 2
    assert (np.floor(middle * n) == first).all()
    assert (np.floor(middle * m) == second).all()


@pytest.mark.parametrize("sizes", [(3, 5, 5, 8, 1, 13), (4, 4, 4)])
def test_squared_distances_are_pots_to_nine_digits(sizes):
    values, offsets = sets_of(sizes)
    gram = exact_gram_matrices(values, offsets)[0].numpy()
    squares = np.diagonal(gram, axis1=1, axis2=2)
    found = squares[:, :, None] + squares[:, None] - 2 * gram
    for row, of_row in enumerate(values):
        sets = [of_row[start:end] for start, end in itertools.pairwise(offsets)]
        # Both give the distance to the power p.
        expected = [[float(ot.wasserstein_1d(a, b, p=2)) for b in sets] for a in sets]
        np.testing.assert_allclose(found[row], expected, atol=1e-12)
        as_masses = [[ot.emd2_1d(a, b) for b in sets] for a in sets]
        np.testing.assert_allclose(found[row], as_masses, atol=1e-9)


def test_products_are_the_integrals_about_the_mean_function():
    sizes = (2, 3, 5)
    values, offsets = sets_of(sizes, rows=1)
    grid = (np.arange(30 * 4) + 0.5) / (30 * 4)  # of 30, the common multiple of the sizes
    functions = np.stack(
        [
            values[0, start:end][np.floor(grid * (end - start)).astype(int)]
            for start, end in itertools.pairwise(offsets)
        ]
    )
    functions -= functions.mean(0)
    gram, sums = exact_gram_matrices(values, offsets)
    np.testing.assert_allclose(gram[0].numpy(), functions @ functions.T / len(grid), atol=1e-15)
    np.testing.assert_allclose(sums[0].numpy(), np.add.reduceat(values[0], offsets[:-1]))


def test_tensors_and_arrays_single_precision_and_blocks_give_the_same(monkeypatch):
    values, offsets = sets_of((6, 9, 6, 4), rows=7)
    whole, _ = exact_gram_matrices(values, offsets)
    torch.testing.assert_close(exact_gram_matrices(torch.from_numpy(values), offsets)[0], whole)
    monkeypatch.setattr("tda_bias.topology.exact._BLOCK_ELEMENTS", 1)
    torch.testing.assert_close(exact_gram_matrices(values, offsets)[0], whole)
    single, _ = exact_gram_matrices(values.astype(np.float32), offsets)
    torch.testing.assert_close(single, whole, atol=1e-7, rtol=1e-6)


def test_sets_of_one_size_need_no_smoothing_and_equal_ones_have_no_distance():
    values, offsets = sets_of((5, 5))
    values[:, 5:] = values[:, :5]
    gram, _ = exact_gram_matrices(values, offsets)
    assert gram.abs().max() < 1e-17
