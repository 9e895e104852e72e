"""Controls of a group: the length of the texts, and reliability between random halves.

Pure arrays; no model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.heads.group_statistic import GroupStatistic, relative_difference
from tda_bias.heads.texts import GroupLayout, Versions
from tda_bias.heads.twin_contrast import VersionProducts
from tda_bias.stats.resampling import spearman
from tda_bias.topology.persistence import births_deaths
from tda_bias.types import Attention

# Outer products of half memberships are worked off in blocks of about this many numbers.
_BLOCK = 4_000_000


def uniform_attention(n_tokens: int, attention: Attention) -> Float[np.ndarray, "n n"]:
    """The pattern of a head that attends to all tokens it can see alike."""
    if attention == "bidirectional":
        return np.full((n_tokens, n_tokens), 1.0 / n_tokens)
    return np.tril(np.ones((n_tokens, n_tokens))) / np.arange(1, n_tokens + 1)[:, None]


@cache
def uniform_sets(n_tokens: int, attention: Attention) -> tuple[np.ndarray, np.ndarray]:
    """Births and deaths of ``uniform_attention``: what the length of a text alone gives."""
    sets = births_deaths(uniform_attention(n_tokens, attention), attention=attention)
    return sets.births, sets.deaths


def adjust_for_length(stat: GroupStatistic, n_tokens: Int[np.ndarray, "n 2"]) -> GroupStatistic:
    """The statistic with a linear effect of the token count taken out of the squared distances.

    q is replaced by its residual from a least-squares line on the number of tokens, both clusters
    pooled, plus the pooled mean; the denominators of S and ``relative`` are left as they are.

    Args:
        stat: From ``group_statistic``.
        n_tokens: Number of tokens of each context's stereotype and anti-stereotype text.
    """
    q = np.concatenate([stat.q_stereotype, stat.q_anti])
    length = n_tokens.T.reshape(-1).astype(float)
    adjusted = q - _length_effect(q, length)
    q_stereotype, q_anti = adjusted[: stat.n], adjusted[stat.n :]
    difference = q_anti.mean(0) - q_stereotype.mean(0)
    S = np.full(stat.S.shape, np.nan)
    np.divide(difference, stat.var_unrelated, out=S, where=stat.var_unrelated > 0)
    return replace(
        stat,
        S=S,
        relative=relative_difference(q_stereotype.mean(0), q_anti.mean(0)),
        q_stereotype=q_stereotype,
        q_anti=q_anti,
    )


def _length_effect(q: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Fitted deviation of q (text, ...) from its mean by a line on length (text,)."""
    centred = length - length.mean()
    squares = float(centred @ centred)
    if squares == 0.0:
        return np.zeros_like(q)
    slope = np.tensordot(centred, q, axes=(0, 0)) / squares
    return np.asarray(centred.reshape((-1,) + (1,) * (q.ndim - 1)) * slope)


@dataclass(frozen=True)
class Splits:
    """Random pairs of disjoint halves of n contexts.

    Attributes:
        member: ``(split, half, n)`` booleans; each half holds ``n // 2`` contexts, and one context
            of an odd number is left out.
    """

    member: np.ndarray

    @classmethod
    def draw(cls, n: int, n_splits: int, rng: np.random.Generator) -> Splits:
        """``n_splits`` random pairs of halves."""
        order = rng.permuted(np.tile(np.arange(n), (n_splits, 1)), axis=1)
        member = np.zeros((n_splits, 2, n), dtype=bool)
        for half in range(2):
            chosen = order[:, half * (n // 2) : (half + 1) * (n // 2)]
            np.put_along_axis(member[:, half], chosen, True, axis=1)
        return cls(member)

    @cached_property
    def weights(self) -> Float[np.ndarray, "half n"]:
        """``(split x half, n)``: each half's contexts in equal parts, summing to 1."""
        flat = self.member.reshape(-1, self.member.shape[2])
        return np.asarray(flat / flat.sum(1, keepdims=True))


def split_half_relative(
    gram: Float[np.ndarray, "head text text"],
    layout: GroupLayout,
    splits: Splits,
    n_tokens: Int[np.ndarray, "n 2"] | None = None,
) -> Float[np.ndarray, "split half head"]:
    """The ``relative`` statistic of each half of the contexts, about the half's own midpoint.

    Squared distances to a midpoint are bilinear in the inner products of the step functions, so
    every half costs a few sums of them.

    Args:
        gram: Inner products of the texts' step functions over the number of steps.
        layout: Which text is which.
        splits: Halves of the n contexts.
        n_tokens: As in ``adjust_for_length``; given, each half is adjusted on its own.
    """
    n, s, a = layout.n, layout.stereotype, layout.anti
    products = torch.from_numpy(
        np.stack([gram[:, s, s], gram[:, a, a], gram[:, a, s]]).reshape(3, len(gram), -1)
    )
    weights = torch.from_numpy(splits.weights)
    inside_s, inside_a, crossed = _bilinear(products, weights, weights)
    mean_s, mean_a = weights @ products[:2, :, _diagonal(n)].mT
    # mean q_anti - mean q_stereotype is the difference of the variances; their sum follows from
    # the midpoint being the mean of both clusters.
    difference = (mean_a - inside_a) - (mean_s - inside_s)
    total = mean_a + mean_s - (inside_a + inside_s + 2 * crossed) / 2
    if n_tokens is not None:
        lengths = torch.from_numpy(n_tokens).double()
        difference = difference - _length_share(products, weights, lengths)
    mean_q = ((total + sign * difference).numpy() / 2 for sign in (-1, 1))
    return relative_difference(*mean_q).reshape(*splits.member.shape[:2], -1)


def split_half_contrast(
    products: VersionProducts, versions: Versions, splits: Splits
) -> dict[str, Float[np.ndarray, "split half head"]]:
    """Location of each half of the contexts, and the contrasts with twins where there are any.

    Args:
        products: From ``version_products``.
        versions: The triples and their twins.
        splits: Halves of the n contexts; of those without a twin nothing enters the contrasts.

    Returns:
        ``location``, and with twins ``location_twin`` and ``relative_twin``; NaN where a half has
        nothing that differs. The centre of ``relative_twin`` is that of the whole group.
    """
    shape = splits.member.shape[:2]
    member = splits.member.reshape(-1, versions.n).astype(float)
    contrasts = {"location": _half_location(products.own, member)}
    if len(versions.twinned):
        twinned = member[:, versions.twinned]
        numerator, denominator = products.dispersion
        contrasts["location_twin"] = _half_location(products.beyond, twinned)
        contrasts["relative_twin"] = _ratio(twinned @ numerator, twinned @ denominator)
    return {name: values.reshape(*shape, -1) for name, values in contrasts.items()}


def _half_location(
    gram: Float[np.ndarray, "head context context"], member: Float[np.ndarray, "half context"]
) -> Float[np.ndarray, "half head"]:
    weights = torch.from_numpy(member)
    total = _bilinear(torch.from_numpy(np.ascontiguousarray(gram)).flatten(1), weights, weights)
    squares = member @ np.diagonal(gram, axis1=1, axis2=2).T
    return _ratio(total.numpy(), squares)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    undefined = np.full(numerator.shape, np.nan)
    return np.asarray(np.divide(numerator, denominator, out=undefined, where=denominator > 0))


def _length_share(
    gram: Float[Tensor, "3 head nn"], weights: Float[Tensor, "half n"], n_tokens: Tensor
) -> Float[Tensor, "half head"]:
    """The part of each half's difference that a line of q on the token count explains."""
    length_s, length_a = n_tokens.unbind(1)
    mean = (weights @ (length_s + length_a))[:, None] / 2
    used = weights > 0
    centred_s = torch.where(used, length_s - mean, 0.0)
    centred_a = torch.where(used, length_a - mean, 0.0)
    ss, aa, cross = gram
    diagonal = _diagonal(len(n_tokens))
    covered = centred_s @ ss[:, diagonal].T + centred_a @ aa[:, diagonal].T
    covered -= _bilinear(ss, centred_s, weights) + _bilinear(cross, weights, centred_s)
    covered -= _bilinear(cross, centred_a, weights) + _bilinear(aa, centred_a, weights)
    squares = (centred_s**2 + centred_a**2).sum(1, keepdim=True)
    slope = torch.where(squares > 0, covered / squares, 0.0)
    gap = (weights * (centred_a - centred_s)).sum(1, keepdim=True)
    return slope * gap


def _diagonal(n: int) -> Tensor:
    """Places of the diagonal in a flattened n x n matrix."""
    return torch.arange(n) * (n + 1)


def _bilinear(
    gram: Float[Tensor, "... head nn"],
    left: Float[Tensor, "half n"],
    right: Float[Tensor, "half n"],
) -> Float[Tensor, "... half head"]:
    """Left' G right for every pair of rows and every matrix G, as one matrix product.

    In torch like all around it: NumPy's own BLAS threads would compete with torch's for the cores.
    """
    flat = gram.reshape(-1, gram.shape[-1])
    result = flat.new_empty(len(left), len(flat))
    step = max(1, _BLOCK // gram.shape[-1])
    for start in range(0, len(left), step):
        part = slice(start, start + step)
        outer = left[part, :, None] * right[part, None, :]
        result[part] = outer.flatten(1) @ flat.T
    return result.reshape(len(left), *gram.shape[:-1]).movedim(0, -2)


def split_half_reliability(halves: Float[np.ndarray, "split half head"]) -> float:
    """Spearman over heads between halves, averaged over splits, then Spearman-Brown corrected.

    Args:
        halves: A head summary (|relative|, or a map) computed on either half of each split.

    Returns:
        1 where the order of heads would be the same on new contexts, 0 where it would be unrelated;
        a mean correlation below 0 is returned as it is. NaN with fewer than 3 heads or a summary
        that does not vary.
    """
    correlations = spearman(halves[:, 0], halves[:, 1])
    if not np.isfinite(correlations).any():
        return float("nan")
    mean = float(np.nanmean(correlations))
    return 2 * mean / (1 + mean) if mean > 0 else mean
