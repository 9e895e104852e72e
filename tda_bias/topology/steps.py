"""Sorted sets to step functions of one common length.

Their mean squared difference is the squared 2-Wasserstein distance of the sets.

Source: Varadarajan & Songdechakraiwut, section 2.2.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tda_bias.types import InputError

Array = TypeVar("Array", np.ndarray, Tensor)


def step_function(values: Array, n_steps: int) -> Array:
    """The empirical pseudo-inverse of a sorted set, averaged over ``n_steps`` equal intervals.

    With m values the pseudo-inverse is ``values[i]`` on ``(i/m, (i+1)/m]``; step j is its mean over
    ``[j/n_steps, (j+1)/n_steps]``: a difference of the linearly interpolated cumulative sum.

    Args:
        values: Ascending values ``(..., m)`` with m >= 1, NumPy or torch.
        n_steps: Number of steps, at least 1.

    Returns:
        Step values ``(..., n_steps)``, ascending, in the unit and of the kind of ``values``.

    Raises:
        InputError: if there is no value, or ``n_steps`` is not positive.

    Examples:
        >>> step_function(np.array([1.0, 3.0]), 3)
        array([1., 2., 3.])
    """
    if n_steps < 1:
        raise InputError(f"`n_steps` must be at least 1; got {n_steps}")
    if values.shape[-1] == 0:
        raise InputError("`values` is empty: a set without values has no step function")
    if isinstance(values, np.ndarray):
        return step_function(torch.from_numpy(np.ascontiguousarray(values)), n_steps).numpy()
    m = values.shape[-1]
    if m <= n_steps:
        return step_columns(values, n_steps, 0, n_steps)
    # Positions j * m / n_steps of the step borders, in whole values and a remainder: exact, and on
    # the CPU, because not every device has double precision.
    border = torch.arange(n_steps + 1) * m
    whole, part = border // n_steps, (border % n_steps).double() / n_steps
    cumulative = torch.nn.functional.pad(values.double().cumsum(-1), (1, 0))
    at_whole = cumulative.index_select(-1, whole.to(values.device))
    following = values.double().index_select(-1, torch.clamp(whole, max=m - 1).to(values.device))
    interpolated = at_whole + part.to(values.device) * following
    return (interpolated.diff(dim=-1) * (n_steps / m)).to(values.dtype)


def step_columns(
    values: Float[Tensor, "... m"], n_steps: int, start: int, stop: int
) -> Float[Tensor, "... columns"]:
    """Steps ``start`` to ``stop`` of ``step_function`` for m <= n_steps.

    A step is then no longer than a value's interval and meets at most two of them: their weighted
    mean, which needs no cumulative sum and loses no digits.
    """
    m = values.shape[-1]
    if m == n_steps:
        return values[..., start:stop].clone()
    # Step borders in values, as whole ones and a remainder of n_steps: exact. On the CPU, because
    # not every device has double precision.
    border = torch.arange(start, stop + 1) * m
    whole, part = border // n_steps, border % n_steps
    first = whole[:-1]
    second = torch.clamp(first + 1, max=m - 1)
    beyond = torch.where(whole[1:] > first, part[1:].double() / m, 0.0).to(values)
    left, right = (values.index_select(-1, i.to(values.device)) for i in (first, second))
    return torch.lerp(left, right, beyond)
