"""Triple minus twin: what is left of a group's difference when wording and length are taken out.

A twin is the same triple about another target. Let D_i = f(stereotype) - f(anti-stereotype) be the
difference of the step functions of context i, and D_ik that of its twin k. What does not change
with the target (wording, length, plausibility) is in both, so the contrast E_i = D_i - mean_k D_ik
is free of it. Two statistics come in a form without and a form with twins:

    location   |sum_i D_i|^2 / sum_i |D_i|^2, and the same of E_i: 1 on average where the signs of
               the contexts are random, n where all contexts differ alike
    dispersion difference of the mean squared distances to a centre (``group_statistic``), and that
               of the triples minus that of the twins, over their sum

All of it follows from the Gram matrix of the step functions of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tda_bias.heads.group_statistic import (
    POOLED_VARIANCE_FLOOR,
    GroupLayout,
    Versions,
    ratio,
)

# What a factor leaves out of the sum of squares of the differences.
FACTOR_TOLERANCE = 1e-7
# Sums of squares below this share of the texts' own are rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Contrast:
    """The differences of a group's triples and twins, compactly; ``...`` are (layer, head).

    Attributes:
        location: ``(...)``, of the triples; NaN where no context differs.
        location_twin: ``(...)``, of triples minus twins; NaN without twins or any difference.
        relative_twin: ``(...)``, in [-1, 1], the dispersion of triples minus that of twins; NaN
            without twins or where nothing varies.
        factor: ``(version, rank, ...)``: inner products of its rows over ``rank`` are those of the
            differences D of all versions, up to ``FACTOR_TOLERANCE`` of their sum of squares.
        dispersion: ``(version, ...)``, q of the anti-stereotype minus q of the stereotype text:
            squared distances to a centre that does not move when a triple and its twins are
            exchanged, squared attention-weight units.
        dispersion_total: ``(...)``, the denominator of ``relative_twin``: contrasts of
            ``dispersion`` over it, summed over contexts, are the relative dispersion.
    """

    location: Float[np.ndarray, "..."]
    location_twin: Float[np.ndarray, "..."]
    relative_twin: Float[np.ndarray, "..."]
    factor: Float[np.ndarray, "version rank ..."]
    dispersion: Float[np.ndarray, "version ..."]
    dispersion_total: Float[np.ndarray, "..."]


@dataclass(frozen=True)
class VersionProducts:
    """Inner products of the differences of one layer and dimension.

    Attributes:
        differences: ``(head, version, version)`` <D_v, D_w> of all triples and twins.
        own: ``(head, context, context)`` those of the triples alone.
        beyond: ``(head, twinned, twinned)`` <E_i, E_j> of triples minus twins.
        dispersion: Two arrays ``(twinned, head)``: the contexts' parts of the numerator and of the
            denominator of ``relative_twin``.
        exchanged: ``(version, head)``, as ``Contrast.dispersion``.
        floor: ``(head,)`` sums of squares not above this are rounding.
    """

    differences: Float[np.ndarray, "head version version"]
    own: Float[np.ndarray, "head context context"]
    beyond: Float[np.ndarray, "head twinned twinned"]
    dispersion: tuple[Float[np.ndarray, "twinned head"], Float[np.ndarray, "twinned head"]]
    exchanged: Float[np.ndarray, "version head"]
    floor: Float[np.ndarray, " head"]


def version_products(
    gram: Float[np.ndarray, "head text text"], layout: GroupLayout
) -> VersionProducts:
    """Inner products that both statistics, their tests and their halves are made of.

    Args:
        gram: Inner products of the texts' step functions about any common origin, divided by the
            number of steps; squared attention-weight units.
        layout: Which text is which.
    """
    stereotype, anti = layout.stereotype_of_version, layout.anti_of_version
    rows = gram[:, stereotype] - gram[:, anti]
    differences = rows[:, :, stereotype] - rows[:, :, anti]
    between = contrast_matrix(layout.versions)
    numerator, denominator, exchanged = _dispersion(gram, stereotype, anti, layout.versions)
    return VersionProducts(
        differences=differences,
        own=differences[:, : layout.n, : layout.n],
        beyond=between @ differences @ between.T,
        dispersion=(numerator, denominator),
        exchanged=exchanged,
        floor=_ROUNDING * np.trace(gram, axis1=1, axis2=2),
    )


def contrast(products: VersionProducts) -> Contrast:
    """Location and dispersion of one layer and dimension, with and without twins."""
    numerator, denominator = (part.sum(0) for part in products.dispersion)
    defined = denominator > 4 * POOLED_VARIANCE_FLOOR * len(products.dispersion[0])
    return Contrast(
        location=location(products.own, products.floor),
        location_twin=location(products.beyond, products.floor),
        relative_twin=ratio(numerator, denominator, defined),
        factor=np.moveaxis(factor(products.differences), 0, -1),
        dispersion=products.exchanged,
        dispersion_total=np.where(defined, denominator, np.nan),
    )


def contrast_matrix(versions: Versions) -> Float[np.ndarray, "twinned version"]:
    """Rows that take a triple minus the mean of its twins, for every context that has a twin."""
    matrix = np.zeros((len(versions.twinned), len(versions.context)))
    for row, members in enumerate(versions.members):
        matrix[row, members[0]] = 1.0
        matrix[row, members[1:]] = -1.0 / (len(members) - 1)
    return matrix


def location(
    gram: Float[np.ndarray, "head context context"], floor: Float[np.ndarray, " head"]
) -> Float[np.ndarray, " head"]:
    """|sum_i D_i|^2 / sum_i |D_i|^2 from the inner products of the differences.

    Args:
        gram: Inner products <D_i, D_j>.
        floor: Sums of squares not above this are rounding: the value is NaN.
    """
    squares = np.trace(gram, axis1=1, axis2=2)
    total = np.maximum(gram.sum((1, 2)), 0.0)
    return ratio(total, squares, squares > floor)


def _dispersion(
    gram: np.ndarray, stereotype: np.ndarray, anti: np.ndarray, versions: Versions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts' parts about the centre of the four clusters, and the terms that are exchanged."""
    share, even = np.zeros((2, len(versions.context)))
    for members in versions.members:
        share[members[0]] = 0.5
        share[members[1:]] = 0.5 / (len(members) - 1)
        # Every version alike: this centre stays where it is whichever of them is the triple.
        even[members] = 1.0 / len(members)
    halves = 2 * max(1, len(versions.twinned))
    difference, total = _distances(gram, stereotype, anti, share / halves)
    between = contrast_matrix(versions)
    exchanged, _ = _distances(gram, stereotype, anti, even / halves)
    return between @ difference, np.abs(between) @ total, exchanged


def _distances(
    gram: np.ndarray, stereotype: np.ndarray, anti: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """q_anti - q_stereotype and q_anti + q_stereotype of every version, ``(version, head)``.

    Squared distances to the centre that takes ``weights`` of every version's two texts.
    """
    every = np.zeros(gram.shape[-1])
    every[stereotype] = weights
    every[anti] = weights
    towards = gram @ every
    squares = np.diagonal(gram, axis1=1, axis2=2) - 2 * towards + (towards @ every)[:, None]
    squares = np.maximum(squares, 0.0)
    q_stereotype, q_anti = squares[:, stereotype].T, squares[:, anti].T
    return q_anti - q_stereotype, q_anti + q_stereotype


def factor(
    gram: Float[np.ndarray, "head version version"], *, tolerance: float = FACTOR_TOLERANCE
) -> Float[np.ndarray, "head version rank"]:
    """A matrix of low rank whose product with itself is a Gram matrix, head by head.

    Cholesky's decomposition, the largest remaining square first, until what remains of the trace is
    below ``tolerance`` of it in every head: differences of step functions are smooth, so a few
    columns hold them.

    Source: Harbrecht, Peters & Schneider (2012), On the low-rank approximation by the pivoted
    Cholesky decomposition.
    """
    n_heads, n_versions = gram.shape[:2]
    head = np.arange(n_heads)
    left = np.diagonal(gram, axis1=1, axis2=2).copy()
    enough = tolerance * left.sum(1)
    columns = np.zeros((n_heads, n_versions, n_versions))
    rank = 0
    while rank < n_versions and (left.sum(1) > enough).any():
        pivot = left.argmax(1)
        largest = left[head, pivot]
        known = columns[:, :, :rank]
        rest = gram[head, :, pivot] - (known @ known[head, pivot, :, None])[..., 0]
        scale = np.sqrt(np.where(largest > 0, largest, 1.0))[:, None]
        column = np.where(largest[:, None] > 0, rest / scale, 0.0)
        columns[:, :, rank] = column
        left = np.maximum(left - column**2, 0.0)
        left[head, pivot] = 0.0
        rank += 1
    return columns[:, :, :rank]
