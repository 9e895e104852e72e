"""Step functions of one group to the head statistic.

With m the midpoint of the two cluster centres and q(f) the squared distance of a text to m,

    S = (var_anti - var_stereotype) / var_unrelated
      = (mean q_anti - mean q_stereotype) / var_unrelated

exactly, and m does not move when texts are swapped between the clusters. Every permuted statistic
is therefore a difference of means of the 2 n numbers q.

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
# Variances below this share of the largest square come from rounding in double precision.
_ROUNDING_OF_VARIANCE = 1e-13


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
    q_s, q_a = (
        clipped_squares(q[..., part], euclidean) for part in (layout.stereotype, layout.anti)
    )
    inside, across = (
        gram[..., layout.stereotype, layout.stereotype].mean((-2, -1))
        + gram[..., layout.anti, layout.anti].mean((-2, -1)),
        gram[..., layout.stereotype, layout.anti].mean((-2, -1)),
    )
    off_centre = clipped_squares(inside - 2 * across, euclidean) / 4
    var_u = np.full(off_centre.shape, np.nan)
    if layout.n_unrelated:
        unrelated = gram[..., layout.unrelated, layout.unrelated]
        spread = squares[..., layout.unrelated].mean(-1) - unrelated.mean((-2, -1))
        # Identical texts: what is left of the difference is rounding.
        var_u = np.where(spread > _ROUNDING_OF_VARIANCE * squares.max(-1), spread, 0.0)
    q_s, q_a = np.moveaxis(q_s, -1, 0), np.moveaxis(q_a, -1, 0)
    return _statistic(q_s, q_a, off_centre, var_u, euclidean=euclidean)


def clipped_squares(values: np.ndarray, euclidean: bool) -> np.ndarray:
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
        var_stereotype=clipped_squares(mean_s - off_centre, euclidean),
        var_anti=clipped_squares(mean_a - off_centre, euclidean),
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
