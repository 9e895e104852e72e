"""What is left of a group's differences when those of twins are subtracted.

A twin is the same triple about another target. Let D_i = f(stereotype) - f(anti-stereotype) be the
difference of the step functions of context i, and D_ik that of its twin k. What does not change
with the target (wording, length, plausibility) is in both, so the contrast E_i = D_i - mean_k D_ik
is free of it. Two statistics come in a form without and a form with twins:

    location   |sum_i D_i|^2 / sum_i |D_i|^2, and the same of E_i: 1 on average where the signs of
               the contexts are random, n where all contexts differ alike
    dispersion difference of the mean squared distances to a centre, and that of the triples minus
               that of the twins, over their sum
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tda_bias.heads.group_statistic import (
    POOLED_VARIANCE_FLOOR,
    GroupLayout,
    Versions,
    clipped_squares,
    ratio,
)

# Sums of squared differences below this share of the texts' own come from rounding.
_ROUNDING_OF_DIFFERENCES = 1e-12
# What a factor leaves out of the sum of squares of the differences.
FACTOR_TOLERANCE = 1e-7


@dataclass(frozen=True)
class Contrast:
    """The differences of a group's triples and twins, compactly; ``...`` are (layer, head).

    Attributes:
        location: Of the triples; NaN where no context differs.
        location_twin: Of triples minus twins; NaN without twins or any difference.
        relative_twin: In [-1, 1], the dispersion of triples minus that of twins; NaN without twins
            or where nothing varies.
        factor: Inner products of its rows over ``rank`` are those of the differences D of all
            versions, up to ``FACTOR_TOLERANCE`` of their sum of squares.
        signature: 1 or -1 for every column of ``factor``, whose products enter with that sign; None
            where all are 1, because the differences are vectors.
        dispersion: q of the anti-stereotype minus q of the stereotype text: squared distances to a
            centre that does not move when a triple and its twins are exchanged, in squared
            attention-weight units.
        dispersion_total: The denominator of ``relative_twin``: contrasts of ``dispersion`` over it,
            summed over contexts, are the relative dispersion.
    """

    location: Float[np.ndarray, "..."]
    location_twin: Float[np.ndarray, "..."]
    relative_twin: Float[np.ndarray, "..."]
    factor: Float[np.ndarray, "version rank ..."]
    dispersion: Float[np.ndarray, "version ..."]
    dispersion_total: Float[np.ndarray, "..."]
    signature: Float[np.ndarray, "rank ..."] | None = None

    def rows(self) -> DifferenceRows:
        """The differences of all versions; a test is a dimension, layer and head."""
        signature = self.signature
        flat = None if signature is None else signature.reshape(len(signature), -1)
        return DifferenceRows(self.factor.reshape(*self.factor.shape[:2], -1), flat)


@dataclass(frozen=True)
class DifferenceRows:
    """Differences by coordinates: the sum of ``signature * a * b`` is an inner product of two rows.

    Without a signature this is the usual product.
    """

    values: Float[np.ndarray, "version rank test"]
    signature: Float[np.ndarray, "rank test"] | None = None

    def of(self, versions: slice | Int[np.ndarray, " some"]) -> DifferenceRows:
        """The same of some versions."""
        return DifferenceRows(self.values[versions], self.signature)

    def minus(self, rows: DifferenceRows) -> DifferenceRows:
        """Row by row the difference of two."""
        return DifferenceRows(self.values - rows.values, self.signature)

    def signed(self) -> Float[np.ndarray, "version rank test"]:
        """The rows whose usual products with ``values`` are the inner products."""
        return self.values if self.signature is None else self.values * self.signature

    def squares(self) -> Float[np.ndarray, "version test"]:
        """Squared lengths, which without vectors may be below 0."""
        return np.asarray((self.signed() * self.values).sum(1))


@dataclass(frozen=True)
class VersionProducts:
    """Inner products of the differences of one layer and dimension.

    Attributes:
        differences: <D_v, D_w> of all triples and twins.
        own: Those of the triples alone.
        beyond: <E_i, E_j> of triples minus twins.
        dispersion: The contexts' parts of the numerator and the denominator of ``relative_twin``.
        exchanged: As ``Contrast.dispersion``.
        floor: Sums of squares not above this are rounding.
        euclidean: Whether these are products of vectors.
    """

    differences: Float[np.ndarray, "head version version"]
    own: Float[np.ndarray, "head context context"]
    beyond: Float[np.ndarray, "head twinned twinned"]
    dispersion: tuple[Float[np.ndarray, "twinned head"], Float[np.ndarray, "twinned head"]]
    exchanged: Float[np.ndarray, "version head"]
    floor: Float[np.ndarray, " head"]
    euclidean: bool = True


def version_products(
    gram: Float[np.ndarray, "head text text"], layout: GroupLayout, *, euclidean: bool = True
) -> VersionProducts:
    """Inner products that both statistics and their halves are made of, from those of the texts."""
    stereotype, anti = layout.stereotype_of_version, layout.anti_of_version
    rows = gram[:, stereotype] - gram[:, anti]
    differences = rows[:, :, stereotype] - rows[:, :, anti]
    between = contrast_matrix(layout.versions)
    numerator, denominator, exchanged = _dispersion(
        gram, stereotype, anti, layout.versions, euclidean
    )
    return VersionProducts(
        differences=differences,
        own=differences[:, : layout.n, : layout.n],
        beyond=between @ differences @ between.T,
        dispersion=(numerator, denominator),
        exchanged=exchanged,
        floor=_ROUNDING_OF_DIFFERENCES * np.trace(gram, axis1=1, axis2=2),
        euclidean=euclidean,
    )


def contrast(products: VersionProducts) -> Contrast:
    """Location and dispersion of one layer and dimension, with and without twins."""
    numerator, denominator = (part.sum(0) for part in products.dispersion)
    defined = denominator > 4 * POOLED_VARIANCE_FLOOR * len(products.dispersion[0])
    if products.euclidean:
        columns, signature = factor(products.differences), None
    else:
        columns, signature = signed_factor(products.differences)
        signature = np.moveaxis(signature, 0, -1)
    return Contrast(
        location=location(products.own, products.floor, euclidean=products.euclidean),
        location_twin=location(products.beyond, products.floor, euclidean=products.euclidean),
        relative_twin=ratio(numerator, denominator, defined),
        factor=np.moveaxis(columns, 0, -1),
        signature=signature,
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
    gram: Float[np.ndarray, "head context context"],
    floor: Float[np.ndarray, " head"],
    *,
    euclidean: bool = True,
) -> Float[np.ndarray, " head"]:
    """|sum_i D_i|^2 / sum_i |D_i|^2 from <D_i, D_j>; NaN for sums of squares up to ``floor``."""
    squares = np.trace(gram, axis1=1, axis2=2)
    total = clipped_squares(gram.sum((1, 2)), euclidean)
    return ratio(total, squares, squares > floor)


def _dispersion(
    gram: np.ndarray, stereotype: np.ndarray, anti: np.ndarray, versions: Versions, euclidean: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts' parts about the centre of the four clusters, and the terms that are exchanged."""
    share, even = np.zeros((2, len(versions.context)))
    for members in versions.members:
        share[members[0]] = 0.5
        share[members[1:]] = 0.5 / (len(members) - 1)
        # Every version alike: this centre stays where it is whichever of them is the triple.
        even[members] = 1.0 / len(members)
    halves = 2 * max(1, len(versions.twinned))
    difference, total = _distances(gram, stereotype, anti, share / halves, euclidean)
    between = contrast_matrix(versions)
    exchanged, _ = _distances(gram, stereotype, anti, even / halves, euclidean)
    return between @ difference, np.abs(between) @ total, exchanged


def _distances(
    gram: np.ndarray,
    stereotype: np.ndarray,
    anti: np.ndarray,
    weights: np.ndarray,
    euclidean: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """q_anti - q_stereotype and q_anti + q_stereotype of every version, ``(version, head)``.

    The centre of q takes ``weights`` of every version's two texts.
    """
    every = np.zeros(gram.shape[-1])
    every[stereotype] = weights
    every[anti] = weights
    towards = gram @ every
    squares = np.diagonal(gram, axis1=1, axis2=2) - 2 * towards + (towards @ every)[:, None]
    squares = clipped_squares(squares, euclidean)
    q_stereotype, q_anti = squares[:, stereotype].T, squares[:, anti].T
    return q_anti - q_stereotype, q_anti + q_stereotype


def factor(
    gram: Float[np.ndarray, "head version version"],
) -> Float[np.ndarray, "head version rank"]:
    """A matrix of low rank whose product with itself is a Gram matrix, head by head.

    Cholesky's decomposition, the largest remaining square first, until what remains of the trace is
    below ``FACTOR_TOLERANCE`` of it in every head: differences of step functions are smooth, so a
    few columns hold them.

    Source: Harbrecht, Peters & Schneider (2012), On the low-rank approximation by the pivoted
    Cholesky decomposition.
    """
    n_heads, n_versions = gram.shape[:2]
    head = np.arange(n_heads)
    left = np.diagonal(gram, axis1=1, axis2=2).copy()
    enough = FACTOR_TOLERANCE * left.sum(1)
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


def signed_factor(
    gram: Float[np.ndarray, "head version version"],
) -> tuple[Float[np.ndarray, "head version rank"], Float[np.ndarray, "head rank"]]:
    """A matrix whose product with itself, each column by its sign, is a symmetric matrix.

    The columns are eigenvectors by the root of the size of their value: nothing is left out, and
    nothing clipped. ``rank`` is the number of versions.

    Source: Goldfarb (1985), A new approach to pattern recognition (pseudo-Euclidean spaces).
    """
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(np.abs(values))[:, None], np.where(values < 0, -1.0, 1.0)


def negative_share(
    gram: Float[np.ndarray, "head text text"],
) -> Float[np.ndarray, " head"]:
    """Share of a matrix's eigenvalues, by size, that no vectors can have: 0 if it is of vectors."""
    values = np.linalg.eigvalsh(gram)
    return ratio(np.maximum(-values, 0.0).sum(-1), np.abs(values).sum(-1))
