"""What is exchanged at random: an original with its twins, and signs of differences.

For a pair the two are one: to exchange it is to flip the sign of its difference. All arrangements
are enumerated where they are few. Pure arrays in, numbers out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tda_bias.stats.resampling import least_pvalue, two_sided_share

# Arrangements are enumerated instead of sampled up to so many: 2^12, the flips of 12 pairs.
ENUMERATED = 4096
# Random flips where nothing else is said.
N_FLIPS = 9999


@dataclass(frozen=True)
class Exchanges:
    """Which member of every set stands for its first one in each draw; 0 is that one itself.

    ``exact`` if these are all arrangements there are.
    """

    member: Int[np.ndarray, "draw set"]
    exact: bool

    def __len__(self) -> int:
        return len(self.member)


def exchanges(
    size: Int[np.ndarray, " set"],
    n_resamples: int,
    rng: np.random.Generator,
    *,
    enumerated: bool = True,
) -> Exchanges:
    """Exchanges of an original with its twins: one member of each set, all alike probable.

    Args:
        size: Members of every set, the original among them.
        n_resamples: Draws, where not all arrangements are enumerated.
        rng: Of the draws.
        enumerated: Give all arrangements where these are up to ``ENUMERATED``.

    Examples:
        >>> exchanges(np.array([2, 2]), 99, np.random.default_rng(0)).member.tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if enumerated and np.sum(np.log2(size)) <= np.log2(ENUMERATED):
        every = np.indices(tuple(size)).reshape(len(size), -1).T
        return Exchanges(every, exact=True)
    return Exchanges(rng.integers(0, size, size=(n_resamples, len(size))), exact=False)


@dataclass(frozen=True)
class SignFlips:
    """Signs, 1 or -1, of every unit in each draw; ``exact`` if these are all there are."""

    signs: Float[np.ndarray, "draw unit"]
    exact: bool


def sign_flips(
    n: int, n_resamples: int, rng: np.random.Generator, *, bits: type[np.integer] = np.int8
) -> SignFlips:
    """Flips of n differences: all 2^n where these are up to ``ENUMERATED``, else random ones.

    Args:
        n: Units whose signs are flipped.
        n_resamples: Draws, where not all are enumerated.
        rng: Of the draws.
        bits: As in ``random_signs``.

    Examples:
        >>> sign_flips(2, 99, np.random.default_rng(0)).signs.tolist()
        [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]
    """
    if 2**n <= ENUMERATED:
        every = exchanges(np.full(n, 2), 0, rng).member
        return SignFlips(1.0 - 2.0 * every, exact=True)
    return SignFlips(random_signs((n_resamples, n), rng, bits=bits), exact=False)


def smallest_flip_p(n: int, n_resamples: int = N_FLIPS) -> float:
    """The smallest two-sided p that ``sign_flips`` of n differences can give.

    Where all are enumerated, the observed signs and their opposites are as far from 0.

    Examples:
        >>> smallest_flip_p(5), smallest_flip_p(6), smallest_flip_p(13, 19)
        (0.0625, 0.03125, 0.05)
    """
    return min(1.0, 2 / 2**n) if 2**n <= ENUMERATED else least_pvalue(n_resamples)


def random_signs(
    shape: tuple[int, ...], rng: np.random.Generator, *, bits: type[np.integer] = np.int8
) -> Float[np.ndarray, "..."]:
    """Random signs, 1 or -1, also where all of them could be enumerated.

    ``bits`` is the type that is drawn. It decides which signs a seed gives, and nothing else.
    """
    return np.asarray(1.0 - 2.0 * rng.integers(0, 2, size=shape, dtype=bits))


def flip_pvalue(
    values: Float[np.ndarray, " item"],
    cluster: Sequence[Any] | np.ndarray,
    *,
    n_resamples: int = N_FLIPS,
    rng: np.random.Generator,
) -> float:
    """Two-sided p of a sum when whole clusters change their sign: of "no effect in new clusters".

    Exact for effects of clusters that are symmetric about 0.

    Args:
        values: Of the items; none may be NaN.
        cluster: The cluster of every item.
        n_resamples: Random flips of more than 12 clusters; of fewer all are used.
        rng: Of the flips.

    Examples:
        >>> values, targets = np.array([1.0, 2.0, 0.5, 3.0]), ["a", "a", "b", "c"]
        >>> flip_pvalue(values, targets, rng=np.random.default_rng(0))  # 2 of the 2^3 flips
        0.25
    """
    number = np.unique(np.asarray(cluster), return_inverse=True)[1]
    sums = np.bincount(number, weights=values)
    flips = sign_flips(len(sums), n_resamples, rng, bits=np.int64)
    return two_sided_share(flips.signs @ sums, float(sums.sum()), exact=flips.exact)
