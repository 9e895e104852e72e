"""Loss of the training: gaps between continuations that change with the target, and nothing more.

The gap of an item is

    [m(s) - m(a)] - mean over twins of [m(s') - m(a')]

with m the mean log-probability of a continuation's tokens: beta per token. Its Huber loss is even:
which of the two continuations is the stereotype makes no difference to it. Beside it stands the
true Kullback-Leibler divergence from the model as it was, over the real tokens of neutral text.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LossName = Literal["twins", "equalise"]


def continuation_means(
    logits: Float[Tensor, "row token vocabulary"],
    ids: Int[Tensor, "row token"],
    scored: Bool[Tensor, "row token"],
) -> Float[Tensor, " row"]:
    """Mean log-probability of the scored tokens of each row, nats per token.

    Args:
        logits: Of a causal model; those at a place predict the next one.
        ids: Token ids.
        scored: Which tokens are the continuation; padding and context are not.
    """
    log_probs = torch.log_softmax(logits[:, :-1].float(), -1)
    chosen = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
    weight = scored[:, 1:].to(chosen.dtype)
    return (chosen * weight).sum(-1) / weight.sum(-1)


def gaps(
    means: Float[Tensor, "item 2"],
    twin_means: Float[Tensor, "twin 2"],
    twin_of: Int[Tensor, " twin"],
) -> Float[Tensor, " item"]:
    """The gap of every item, nats per token.

    Args:
        means: Of the stereotype and the anti-stereotype continuation.
        twin_means: The same of every twin.
        twin_of: The item each twin belongs to; every item has at least one.
    """
    gap = means[:, 0] - means[:, 1]
    twins = twin_means[:, 0] - twin_means[:, 1]
    number = torch.bincount(twin_of, minlength=len(gap)).to(gap)
    total = torch.zeros_like(gap).index_add(0, twin_of, twins)
    return gap - total / number


def huber(
    gap: Float[Tensor, " item"], *, delta: float = 0.5, scale: float = 4.0
) -> Float[Tensor, " item"]:
    """Quadratic in small gaps, linear in large ones, item by item.

    Args:
        gap: Nats per token.
        delta: Where it becomes linear, in scaled units.
        scale: What gaps are multiplied with first; typical ones are a tenth of a nat.
    """
    scaled = scale * gap
    return torch.nn.functional.huber_loss(
        scaled, torch.zeros_like(scaled), reduction="none", delta=delta
    )


def divergence(
    before: Float[Tensor, "... vocabulary"],
    after: Float[Tensor, "... vocabulary"],
    real: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, ""]:
    """KL(before || after), mean over real tokens, nats.

    Args:
        before: Logits, or log-probabilities, of the model as it was.
        after: Logits of the model now, at the same places.
        real: Which places count; padding does not. All if None.
    """
    log_p, log_q = (torch.log_softmax(x.float(), -1) for x in (before, after))
    per_token = (log_p.exp() * (log_p - log_q)).sum(-1)
    if real is None:
        return per_token.mean()
    weight = real.to(per_token.dtype)
    return (per_token * weight).sum() / weight.sum()
