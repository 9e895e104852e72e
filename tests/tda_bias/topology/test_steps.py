"""Step functions: against numeric integration and POT."""

import itertools

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.topology.steps import step_function
from tda_bias.types import InputError

sets = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(lambda v: np.sort(np.array(v)))


def pseudo_inverse(values: np.ndarray, x: float) -> float:
    """values[i] on (i/m, (i+1)/m]."""
    m = len(values)
    return values[min(max(int(np.ceil(x * m)) - 1, 0), m - 1)]


def step_by_integration(values: np.ndarray, n_steps: int, j: int) -> float:
    """n_steps times the integral over the step, cut at every jump: exact for a flat function."""
    low, high = j / n_steps, (j + 1) / n_steps
    jumps = [i / len(values) for i in range(len(values) + 1)]
    cuts = sorted({low, high, *(c for c in jumps if low < c < high)})
    pieces = itertools.pairwise(cuts)
    return n_steps * sum((b - a) * pseudo_inverse(values, (a + b) / 2) for a, b in pieces)


def test_an_empty_set_and_zero_steps_are_refused():
    with pytest.raises(InputError, match="`values` is empty"):
        step_function(np.empty((3, 0)), 4)
    with pytest.raises(InputError, match="`n_steps` must be at least 1; got 0"):
        step_function(np.ones(3), 0)


@given(sets, st.integers(1, 30))
def test_every_step_is_the_mean_of_the_pseudo_inverse(values, n_steps):
    found = step_function(values, n_steps)
    expected = [step_by_integration(values, n_steps, j) for j in range(n_steps)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_leading_axes_and_torch_work_alike():
    values = np.sort(np.random.default_rng(0).random((2, 3, 5)))
    found = step_function(values, 8)
    for index in np.ndindex(2, 3):
        np.testing.assert_array_equal(found[index], step_function(values[index], 8))
    np.testing.assert_array_equal(step_function(torch.from_numpy(values), 8).numpy(), found)


@given(sets, sets)
def test_smoothing_never_lengthens_and_keeps_equal_sizes_exact(first, second):
    n_steps = max(len(first), len(second))
    smoothed = ((step_function(first, n_steps) - step_function(second, n_steps)) ** 2).mean()
    exact = ot.wasserstein_1d(first, second, p=2)  # to the power p: already squared
    assert smoothed <= exact + 1e-12
    if len(first) == len(second):
        np.testing.assert_allclose(smoothed, exact, rtol=1e-9, atol=1e-12)
