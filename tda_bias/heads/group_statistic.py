"""Step functions of one group to the head statistic, and to what is left when twins are subtracted.

With m the midpoint of the two cluster centres and q(f) the squared distance of a text to m,

    S = (var_anti - var_stereotype) / var_unrelated
      = (mean q_anti - mean q_stereotype) / var_unrelated

exactly, and m does not move when texts are swapped between the clusters. Every permuted statistic
is therefore a difference of means of the 2 n numbers q.

A twin is the same triple about another target. Let D_i = f(stereotype) - f(anti-stereotype) be the
difference of the step functions of context i, and D_ik that of its twin k. What does not change
with the target (wording, length, plausibility) is in both, so the contrast E_i = D_i - mean_k D_ik
is free of it. Two statistics come in a form without and a form with twins:

    location   |sum_i D_i|^2 / sum_i |D_i|^2, and the same of E_i: 1 on average where the signs of
               the contexts are random, n where all contexts differ alike
    dispersion difference of the mean squared distances to a centre, and that of the triples minus
               that of the twins, over their sum

All of it follows from the Gram matrix of the step functions of a group, or of whatever else is read
from its patterns. A matrix made of distances that no vectors have is indefinite: then nothing is
clipped at 0, and what is not positive has no ratio.

Source: Varadarajan & Songdechakraiwut, section 2.3 (S); docs/method/heads.md derives the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.types import InputError

# Pooled variances below this, squared attention-weight units, leave nothing to compare.
POOLED_VARIANCE_FLOOR = 1e-12
# An unrelated variance below this share of the median over heads makes S a ratio to almost nothing.
UNSTABLE_SHARE = 1e-3
# Variances below this share of the largest square come from rounding in double precision, and so do
# sums of squared differences below that share of the texts' own.
_ROUNDING_OF_VARIANCE, _ROUNDING_OF_DIFFERENCES = 1e-13, 1e-12
# What a factor leaves out of the sum of squares of the differences.
FACTOR_TOLERANCE = 1e-7


# -- which text of a group is which ----------------------------------------------------------------


class GroupLayout:
    """Places of a group's texts among all of them, whatever they are rows of.

    In this order: the stereotype texts, the anti-stereotype texts, the unrelated texts (none for
    pairs), the stereotype texts of the twins, the anti-stereotype texts of the twins; each in the
    order of the n contexts, or of twins. ``twin_of`` is the context of each twin; a context may
    have several, or none.

    Attributes:
        stereotype: Slice of these texts of the triples; the others likewise.
        versions: The triples and their twins, as what a test exchanges.
        stereotype_of_version: Places of the stereotype texts of all triples, then all twins.
        anti_of_version: The same of the anti-stereotype texts.
    """

    def __init__(self, n: int, n_unrelated: int, twin_of: Sequence[int] | np.ndarray = ()) -> None:
        self.n, self.n_unrelated = n, n_unrelated
        self.twin_of = np.asarray(twin_of, dtype=np.int64)
        twins = len(self.twin_of)
        self.n_texts = 2 * n + n_unrelated + 2 * twins
        ends = accumulate((n, n, n_unrelated, twins, twins), initial=0)
        parts = [slice(start, end) for start, end in pairwise(ends)]
        self.stereotype, self.anti, self.unrelated, twin_stereotype, twin_anti = parts
        place = np.arange(self.n_texts)
        self.stereotype_of_version = np.concatenate([place[:n], place[twin_stereotype]])
        self.anti_of_version = np.concatenate([place[self.anti], place[twin_anti]])
        self.versions = Versions(np.concatenate([np.arange(n), self.twin_of]), n)


class Versions:
    """Every context's triple and its twins: under the null hypothesis any could be the triple.

    Attributes:
        context: The context of each version: first all n triples, then all twins.
        twinned: The contexts that have a twin; the others take no part.
        members: For every twinned context the places of its versions, the triple first.
        given: ``(version,)`` the ``weights`` of the arrangement the data came in.
    """

    def __init__(self, context: Int[np.ndarray, " version"], n: int) -> None:
        self.context, self.n = context, n
        self.twinned = np.unique(context[n:])
        self.members = [np.flatnonzero(context == twinned) for twinned in self.twinned]
        self.given = self.weights(np.zeros(len(self.twinned), dtype=np.int64))

    def contrasts(
        self, values: Float[np.ndarray, "version ..."]
    ) -> Float[np.ndarray, "version ..."]:
        """Every version minus the mean of the others of its context; 0 without a twin."""
        contrasts = np.zeros(values.shape)
        for members in self.members:
            others = len(members) - 1
            sums = values[members].sum(0)
            contrasts[members] = ((others + 1) * values[members] - sums) / others
        return contrasts

    def weights(self, chosen: Int[np.ndarray, "... twinned"]) -> Float[np.ndarray, "... version"]:
        """Weights of all versions in a contrast of chosen ones with the means of the others.

        ``chosen`` is which version of every twinned context stands for the triple; 0 is the triple
        itself. Its weight is 1, that of the others -1 / (their number), and 0 without a twin: the
        sum over contexts of (chosen minus mean of the others) is a product with the weights.
        """
        weights = np.zeros((len(self.context), *chosen.shape[:-1]))  # written version by version
        for place, members in enumerate(self.members):
            for number, version in enumerate(members):
                weights[version] = np.where(
                    chosen[..., place] == number, 1.0, -1.0 / (len(members) - 1)
                )
        return np.moveaxis(weights, 0, -1)


# -- the statistic ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupStatistic:
    """The statistic of one group and dimension; ``...`` are the axes of the input (layer, head).

    Attributes:
        S: Positive where the stereotype texts form the tighter cluster. NaN where the unrelated
            texts do not vary at all.
        relative: In [-1, 1]; the numerator of S over twice the pooled variance about the midpoint.
            NaN where that is below ``POOLED_VARIANCE_FLOOR``.
        var_stereotype: Mean squared distance to the cluster's own centre, squared attention-weight
            units.
        var_anti: The same for the anti-stereotype texts.
        var_unrelated: The same for the unrelated texts: the denominator of S. NaN without such.
        q_stereotype: Squared distances of the stereotype texts to the midpoint.
        q_anti: The same for the anti-stereotype texts, in the same order of contexts.
    """

    S: Float[np.ndarray, "..."]
    relative: Float[np.ndarray, "..."]
    var_stereotype: Float[np.ndarray, "..."]
    var_anti: Float[np.ndarray, "..."]
    var_unrelated: Float[np.ndarray, "..."]
    q_stereotype: Float[np.ndarray, "n ..."]
    q_anti: Float[np.ndarray, "n ..."]

    @property
    def n(self) -> int:
        """Number of contexts."""
        return int(self.q_stereotype.shape[0])

    @property
    def reason(self) -> np.ndarray:
        """``(...)`` strings: why a value is NaN, empty where none is."""
        pooled_variance = (self.q_stereotype.mean(0) + self.q_anti.mean(0)) / 2
        no_pool = pooled_variance < POOLED_VARIANCE_FLOOR
        reason = np.where(no_pool, f"pooled variance below {POOLED_VARIANCE_FLOOR:g}", "")
        reason = np.where(self.var_unrelated == 0, "unrelated texts do not vary", reason)
        return np.where(np.isnan(self.var_unrelated), "no unrelated texts", reason)


def unstable_heads(var_unrelated: Float[np.ndarray, "... layer head"]) -> np.ndarray:
    """Heads whose S is a ratio to almost nothing: below a share of the median over all heads."""
    median = np.median(var_unrelated, axis=(-2, -1), keepdims=True)
    return np.asarray(var_unrelated < UNSTABLE_SHARE * median)  # without such texts: none is


def group_statistic(
    stereotype: Float[np.ndarray | Tensor, "n ... steps"],
    anti_stereotype: Float[np.ndarray | Tensor, "n ... steps"],
    unrelated: Float[np.ndarray | Tensor, "k ... steps"],
) -> GroupStatistic:
    """The head statistic of one group from the step functions of its texts.

    Args:
        stereotype: Step functions of the stereotype texts, NumPy or torch.
        anti_stereotype: The same contexts in the same order, anti-stereotype texts.
        unrelated: Step functions of the unrelated texts, usually of the same contexts.

    Raises:
        InputError: if the clusters differ in shape, have fewer than 2 texts, or hold NaN.

    Source: Varadarajan & Songdechakraiwut, section 2.3.
    """
    s, a, u = (torch.as_tensor(f) for f in (stereotype, anti_stereotype, unrelated))
    if s.shape != a.shape or s.shape[1:] != u.shape[1:]:
        shapes = ", ".join(str(tuple(f.shape)) for f in (s, a, u))
        raise InputError(
            f"the three clusters must have the same shape (n, ..., steps); got {shapes}"
        )
    if s.shape[0] < 2 or u.shape[0] < 2:
        raise InputError(
            f"a variance needs at least 2 texts per role; got {s.shape[0]} and {u.shape[0]}"
        )
    centre_s, centre_a = s.mean(0), a.mean(0)
    midpoint = (centre_s + centre_a) / 2
    q_s, q_a = _squared_distances(s, midpoint), _squared_distances(a, midpoint)
    # Both centres lie half their difference away from the midpoint.
    off_centre = _squared_distances(centre_s, midpoint)
    var_u = _squared_distances(u, u.mean(0)).mean(0)
    if not (np.isfinite(q_s).all() and np.isfinite(q_a).all() and np.isfinite(var_u).all()):
        raise InputError("the step functions hold NaN or infinite values")
    return _statistic(q_s, q_a, off_centre, var_u)


def statistic_from_gram(
    gram: Float[np.ndarray, "... text text"], layout: GroupLayout, *, euclidean: bool = True
) -> GroupStatistic:
    """The same from inner products about any common origin over the number of steps.

    Without ``euclidean`` the products may be of no vectors, and squares below 0.

    Raises:
        InputError: if there are fewer than 2 contexts, or the products hold NaN.
    """
    n = layout.n
    if n < 2 or layout.n_unrelated == 1:
        raise InputError(f"a variance needs at least 2 texts per role; got {n}")
    if not np.isfinite(gram).all():
        raise InputError("the step functions hold NaN or infinite values")
    squares = np.diagonal(gram, axis1=-2, axis2=-1)
    both = gram[..., : 2 * n, : 2 * n]
    towards = both.mean(-1)
    q = squares[..., : 2 * n] - 2 * towards + towards.mean(-1, keepdims=True)
    q_s, q_a = (_squares(q[..., part], euclidean) for part in (layout.stereotype, layout.anti))
    inside, across = (
        gram[..., layout.stereotype, layout.stereotype].mean((-2, -1))
        + gram[..., layout.anti, layout.anti].mean((-2, -1)),
        gram[..., layout.stereotype, layout.anti].mean((-2, -1)),
    )
    off_centre = _squares(inside - 2 * across, euclidean) / 4
    var_u = np.full(off_centre.shape, np.nan)
    if layout.n_unrelated:
        unrelated = gram[..., layout.unrelated, layout.unrelated]
        spread = squares[..., layout.unrelated].mean(-1) - unrelated.mean((-2, -1))
        # Identical texts: what is left of the difference is rounding.
        var_u = np.where(spread > _ROUNDING_OF_VARIANCE * squares.max(-1), spread, 0.0)
    q_s, q_a = np.moveaxis(q_s, -1, 0), np.moveaxis(q_a, -1, 0)
    return _statistic(q_s, q_a, off_centre, var_u, euclidean=euclidean)


def _squares(values: np.ndarray, euclidean: bool) -> np.ndarray:
    """Squared distances: below 0 only by rounding, unless they are of no vectors."""
    return np.maximum(values, 0.0) if euclidean else values


def _statistic(
    q_s: Float[np.ndarray, "n ..."],
    q_a: Float[np.ndarray, "n ..."],
    off_centre: Float[np.ndarray, "..."],
    var_u: Float[np.ndarray, "..."],
    *,
    euclidean: bool = True,
) -> GroupStatistic:
    mean_s, mean_a = q_s.mean(0), q_a.mean(0)
    return GroupStatistic(
        S=ratio(mean_a - mean_s, var_u),
        relative=relative_difference(mean_s, mean_a),
        var_stereotype=_squares(mean_s - off_centre, euclidean),
        var_anti=_squares(mean_a - off_centre, euclidean),
        var_unrelated=var_u,
        q_stereotype=q_s,
        q_anti=q_a,
    )


def relative_difference(
    mean_q_stereotype: Float[np.ndarray, "..."], mean_q_anti: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Difference of two mean squared distances over their sum, in [-1, 1]; NaN where undefined."""
    total = mean_q_anti + mean_q_stereotype
    return ratio(mean_q_anti - mean_q_stereotype, total, total >= 2 * POOLED_VARIANCE_FLOOR)


def _squared_distances(f: Tensor, point: Tensor) -> np.ndarray:
    """Mean squared difference along the last axis, without keeping the squares."""
    norm = torch.linalg.vector_norm(f - point, dim=-1).double().cpu().numpy()
    return np.asarray(norm**2 / f.shape[-1])


def ratio(
    numerator: np.ndarray, denominator: np.ndarray, defined: np.ndarray | None = None
) -> np.ndarray:
    """A quotient, NaN where it is not defined; by default, where the denominator is not above 0."""
    result = np.full(np.shape(numerator), np.nan)
    where = denominator > 0 if defined is None else np.asarray(defined)
    np.divide(numerator, denominator, out=result, where=np.broadcast_to(where, result.shape))
    return result


# -- triple minus twin -----------------------------------------------------------------------------


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
    total = _squares(gram.sum((1, 2)), euclidean)
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
    squares = _squares(squares, euclidean)
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
