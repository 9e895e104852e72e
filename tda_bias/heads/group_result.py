"""One group's numbers: small, saved at once, and enough for every table and test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tda_bias.heads.contrast import (
    Contrast,
    VersionProducts,
    contrast,
    negative_share,
    version_products,
)
from tda_bias.heads.group_statistic import (
    GroupLayout,
    GroupStatistic,
    Versions,
    ratio,
    relative_difference,
    statistic_from_gram,
)
from tda_bias.heads.summaries import source_hash
from tda_bias.stats.correlation import spearman
from tda_bias.store.identity import identity
from tda_bias.topology.vectors import Sampler
from tda_bias.types import Attention

if TYPE_CHECKING:
    from tda_bias.config import HeadBiasConfig

N_SPLITS = 100


@dataclass(frozen=True)
class GroupResult:
    """The numbers of a group, with the axes (dimension, layer, head).

    Attributes:
        n_tokens: Tokens of the triples' texts, in the order of ``ROLES``.
        n_steps: Length of the step functions.
        statistic: Adjusted for length if asked for.
        item_sums: The sum of births (or deaths) of the stereotype text minus that of the
            anti-stereotype text, attention-weight units.
        length_statistic: S of uniform attention at the same lengths.
        halves: ``relative`` and each statistic of ``split_half_contrast``, of random halves of the
            contexts.
        negative: Share of the eigenvalues of the texts' products that no vectors have, by size;
            None where they are of vectors.
        provenance: When and how the patterns were taken, for the run record.
    """

    category: str
    group: str
    n_tokens: Int[np.ndarray, "context role"]
    n_steps: Int[np.ndarray, " dim"]
    statistic: GroupStatistic
    contrast: Contrast
    versions: Versions
    item_sums: Float[np.ndarray, "version dim layer head"]
    length_statistic: Float[np.ndarray, " dim"]
    halves: Mapping[str, Float[np.ndarray, "split half dim layer head"]]
    provenance: dict[str, Any]
    negative: Float[np.ndarray, "dim layer head"] | None = None
    exact: Float[np.ndarray, "dim layer head"] | None = None

    @property
    def has_twins(self) -> bool:
        """True if at least two contexts have a twin: with one there is nothing to test."""
        return len(self.versions.twinned) > 1

    @classmethod
    def from_arrays(
        cls, category: str, group: str, arrays: Mapping[str, np.ndarray]
    ) -> GroupResult:
        """From plain arrays by name, as a finished group is saved.

        The parts of ``statistic``, ``contrast`` and ``halves`` have these names and a dot in front,
        ``versions`` are the context of each, ``provenance`` is JSON.
        """
        return cls(
            category=category,
            group=group,
            n_tokens=arrays["n_tokens"],
            n_steps=arrays["n_steps"],
            statistic=GroupStatistic(**part_of(arrays, "statistic")),
            contrast=Contrast(**part_of(arrays, "contrast")),
            versions=Versions(arrays["versions"], len(arrays["n_tokens"])),
            item_sums=arrays["item_sums"],
            length_statistic=arrays["length_statistic"],
            halves=part_of(arrays, "halves"),
            provenance=json.loads(str(arrays["provenance"])),
            negative=arrays.get("negative"),
            exact=arrays.get("exact"),
        )


def part_of(arrays: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a name and a dot, by what follows."""
    start = f"{name}."
    return {
        key.removeprefix(start): values for key, values in arrays.items() if key.startswith(start)
    }


def part_identity(
    config: HeadBiasConfig, *, model: str, weights: str, dtype: str
) -> dict[str, Any]:
    """Settings that a saved group depends on; tests and rankings are made from it afterwards."""
    about = {"format": 4, "model": model, "weights": weights, "dtype": dtype}
    source = source_hash(config.summary)
    return {**about, **identity(config), **({"summary_source": source} if source else {})}


# -- from inner products ---------------------------------------------------------------------------


def layer_numbers(
    gram: Float[np.ndarray, "row text text"],
    sums: Float[np.ndarray, "row text"],
    layout: GroupLayout,
    member: Bool[np.ndarray, "split half context"],
    *,
    lengths: Int[np.ndarray, "context 2"] | None = None,
    euclidean: bool = True,
) -> dict[str, np.ndarray]:
    """All numbers of some layers and one dimension, named as in ``GroupResult.from_arrays``.

    ``gram`` and ``sums`` are those of ``gram_matrices``, ``member`` of ``random_halves``;
    ``lengths`` are tokens of the stereotype and the anti-stereotype texts, where a linear effect of
    length is to be taken out. Without ``euclidean`` the products may be of no vectors. The last
    axis of the arrays is the row: layer, head.
    """
    products = version_products(gram, layout, euclidean=euclidean)
    statistic = statistic_from_gram(gram, layout, euclidean=euclidean)
    if lengths is not None:
        statistic = adjust_for_length(statistic, lengths)
    halves = {"relative": split_half_relative(gram, layout, member, lengths)}
    halves |= split_half_contrast(products, layout.versions, member)
    of_twins = vars(contrast(products))
    if euclidean:
        del of_twins["signature"]
    return {
        **{f"statistic.{name}": values for name, values in vars(statistic).items()},
        **{f"contrast.{name}": values for name, values in of_twins.items()},
        **({} if euclidean else {"negative": negative_share(gram)}),
        **{f"halves.{name}": values.astype(np.float32) for name, values in halves.items()},
        "item_sums": (sums[:, layout.stereotype_of_version] - sums[:, layout.anti_of_version]).T,
    }


def joined_layers(
    parts: Sequence[Sequence[Mapping[str, np.ndarray]]], n_layers: int
) -> dict[str, np.ndarray]:
    """The numbers of all layers and both dimensions with the axes ``(..., dim, layer, head)``.

    ``parts`` are, some layers after the other, the ``layer_numbers`` of each dimension.
    """
    # Of texts that are all the same the rank is 0; a row of zeros stands for it.
    rank = max(1, *(numbers["contrast.factor"].shape[1] for dims in parts for numbers in dims))
    arrays = {}
    for name in parts[0][0]:
        of_name = [[numbers[name] for numbers in dims] for dims in parts]
        if name == "contrast.factor":
            of_name = [[_of_rank(values, rank) for values in dims] for dims in of_name]
        joined = [np.concatenate(layers, axis=-1) for layers in zip(*of_name, strict=True)]
        stacked = np.stack(joined, axis=-2)
        arrays[name] = stacked.reshape(*stacked.shape[:-1], n_layers, -1)
    return arrays


def _of_rank(factor: np.ndarray, rank: int) -> np.ndarray:
    """A factor with zeros, in single precision: its tolerance is far above."""
    return np.pad(factor.astype(np.float32), ((0, 0), (0, rank - factor.shape[1]), (0, 0)))


def length_statistic(
    sampler: Sampler,
    lengths: Int[np.ndarray, " text"],
    layout: GroupLayout,
    attention: Attention,
) -> Float[np.ndarray, " dim"]:
    """S if every head spread its attention evenly: what lengths alone produce.

    The sampler is a new one, for a single head; ``lengths`` are those of all texts in the order of
    ``layout``. NaN where the unrelated texts are all of one length, or there are none.
    """
    for text, n in enumerate(lengths.tolist()):
        pattern = torch.from_numpy(uniform_pattern(n, attention))[None, None, None]
        sampler.add(pattern, torch.tensor([text]), torch.tensor([n]))
    (grams,) = sampler.layers()
    statistics = [
        statistic_from_gram(gram.numpy(), layout, euclidean=sampler.euclidean) for gram, _ in grams
    ]
    return np.array([statistic.S[0] for statistic in statistics])


# -- length of the texts, and random halves of the contexts ----------------------------------------


# Outer products of half memberships are worked off in blocks of about this many numbers.
_BLOCK = 4_000_000


def uniform_pattern(n_tokens: int, attention: Attention) -> Float[np.ndarray, "query key"]:
    """The pattern of a head that attends to all tokens it can see alike."""
    pattern = np.ones((n_tokens, n_tokens))
    if attention == "causal":
        pattern = np.tril(pattern)
    return np.asarray(pattern / pattern.sum(1, keepdims=True))


def adjust_for_length(stat: GroupStatistic, n_tokens: Int[np.ndarray, "n 2"]) -> GroupStatistic:
    """The statistic with a linear effect of the token count taken out of the squared distances.

    q is replaced by its residual from a least-squares line on the number of tokens, both clusters
    pooled, plus the pooled mean; the denominators of S and ``relative`` stay.
    """
    q = np.concatenate([stat.q_stereotype, stat.q_anti])
    length = n_tokens.T.reshape(-1).astype(float)
    adjusted = q - _length_effect(q, length)
    q_stereotype, q_anti = adjusted[: stat.n], adjusted[stat.n :]
    difference = q_anti.mean(0) - q_stereotype.mean(0)
    return replace(
        stat,
        S=ratio(difference, stat.var_unrelated),
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


def random_halves(
    n: int, n_splits: int, rng: np.random.Generator
) -> Bool[np.ndarray, "split half n"]:
    """Random pairs of disjoint halves, ``n // 2`` contexts each: who belongs to which."""
    order = rng.permuted(np.tile(np.arange(n), (n_splits, 1)), axis=1)
    member = np.zeros((n_splits, 2, n), dtype=bool)
    for half in range(2):
        chosen = order[:, half * (n // 2) : (half + 1) * (n // 2)]
        np.put_along_axis(member[:, half], chosen, True, axis=1)
    return member


def split_half_relative(
    gram: Float[np.ndarray, "head text text"],
    layout: GroupLayout,
    member: Bool[np.ndarray, "split half n"],
    n_tokens: Int[np.ndarray, "n 2"] | None = None,
) -> Float[np.ndarray, "split half head"]:
    """The ``relative`` statistic of each half of the contexts, about the half's own midpoint.

    Squared distances to a midpoint are bilinear in the inner products, so every half costs a few
    sums of them. Given ``n_tokens``, each half is adjusted for length on its own.
    """
    n, s, a = layout.n, layout.stereotype, layout.anti
    products = torch.from_numpy(
        np.stack([gram[:, s, s], gram[:, a, a], gram[:, a, s]]).reshape(3, len(gram), -1)
    )
    flat = member.reshape(-1, n)
    weights = torch.from_numpy(flat / flat.sum(1, keepdims=True))  # a half's contexts alike
    diagonal = torch.arange(n) * (n + 1)
    inside_s, inside_a, crossed = _bilinear(products, weights, weights)
    mean_s, mean_a = weights @ products[:2, :, diagonal].mT
    # mean q_anti - mean q_stereotype is the difference of the variances; their sum follows from
    # the midpoint being the mean of both clusters.
    difference = (mean_a - inside_a) - (mean_s - inside_s)
    total = mean_a + mean_s - (inside_a + inside_s + 2 * crossed) / 2
    if n_tokens is not None:
        lengths = torch.from_numpy(n_tokens).double()
        difference = difference - _length_share(products, weights, lengths, diagonal)
    mean_q = ((total + sign * difference).numpy() / 2 for sign in (-1, 1))
    return relative_difference(*mean_q).reshape(*member.shape[:2], -1)


def split_half_contrast(
    products: VersionProducts, versions: Versions, member: Bool[np.ndarray, "split half n"]
) -> dict[str, Float[np.ndarray, "split half head"]]:
    """Location of each half of the contexts, and with twins ``location_twin, relative_twin``.

    Contexts without a twin do not enter the last two, whose centre is that of the whole group. NaN
    where a half has nothing that differs.
    """
    shape = member.shape[:2]
    flat = member.reshape(-1, versions.n).astype(float)
    contrasts = {"location": _half_location(products.own, flat)}
    if len(versions.twinned):
        twinned = flat[:, versions.twinned]
        numerator, denominator = products.dispersion
        contrasts["location_twin"] = _half_location(products.beyond, twinned)
        contrasts["relative_twin"] = ratio(twinned @ numerator, twinned @ denominator)
    return {name: values.reshape(*shape, -1) for name, values in contrasts.items()}


def _half_location(
    gram: Float[np.ndarray, "head context context"], member: Float[np.ndarray, "half context"]
) -> Float[np.ndarray, "half head"]:
    weights = torch.from_numpy(member)
    total = _bilinear(torch.from_numpy(np.ascontiguousarray(gram)).flatten(1), weights, weights)
    squares = member @ np.diagonal(gram, axis1=1, axis2=2).T
    return ratio(total.numpy(), squares)


def _length_share(
    gram: Float[Tensor, "3 head nn"],
    weights: Float[Tensor, "half n"],
    n_tokens: Float[Tensor, "n 2"],
    diagonal: Int[Tensor, " n"],
) -> Float[Tensor, "half head"]:
    """The part of each half's difference that a line of q on the token count explains."""
    length_s, length_a = n_tokens.unbind(1)
    mean = (weights @ (length_s + length_a))[:, None] / 2
    used = weights > 0
    centred_s = torch.where(used, length_s - mean, 0.0)
    centred_a = torch.where(used, length_a - mean, 0.0)
    ss, aa, cross = gram
    covered = centred_s @ ss[:, diagonal].T + centred_a @ aa[:, diagonal].T
    covered -= _bilinear(ss, centred_s, weights) + _bilinear(cross, weights, centred_s)
    covered -= _bilinear(cross, centred_a, weights) + _bilinear(aa, centred_a, weights)
    squares = (centred_s**2 + centred_a**2).sum(1, keepdim=True)
    slope = torch.where(squares > 0, covered / squares, 0.0)
    gap = (weights * (centred_a - centred_s)).sum(1, keepdim=True)
    return slope * gap


def _bilinear(
    gram: Float[Tensor, "... head nn"],
    left: Float[Tensor, "half n"],
    right: Float[Tensor, "half n"],
) -> Float[Tensor, "... half head"]:
    """Left' G right for every pair of rows and every matrix G, as one matrix product."""
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
