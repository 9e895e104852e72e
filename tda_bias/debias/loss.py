"""Terms of the loss.

The gap of an item is

    [m(s) - m(a)] - mean over twins of [m(s') - m(a')]

with m the mean log-probability of a continuation's tokens: beta per token. Its Huber loss is even:
which of the two continuations is the stereotype makes no difference to it. What holds the model
where it is: the true Kullback-Leibler divergence from the model as it was, over the real tokens of
other texts; and the squared change of each item's relatedness,

    [m(s) + m(a)] / 2 - m(u)

with u the unrelated continuation: what the language-model score counts.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.logits import in_tiles

# Where the Huber loss becomes linear, and what gaps are multiplied with before: typical ones are a
# tenth of a nat per token.
_DELTA, _SCALE = 0.5, 4.0


def gaps(
    means: Float[Tensor, "item 2"],
    twin_means: Float[Tensor, "twin 2"],
    twin_of: Int[Tensor, " twin"],
) -> Float[Tensor, " item"]:
    """The gap of every item, nats per token.

    Means are of the stereotype and the anti-stereotype continuation; every item has a twin or more.
    """
    gap = means[:, 0] - means[:, 1]
    twins = twin_means[:, 0] - twin_means[:, 1]
    number = torch.bincount(twin_of, minlength=len(gap)).to(gap)
    total = torch.zeros_like(gap).index_add(0, twin_of, twins)
    return gap - total / number


def relatedness(means: Float[Tensor, "item 3"]) -> Float[Tensor, " item"]:
    """Log-odds of an item's two related continuations against its unrelated one, nats per token."""
    return means[:, :2].mean(-1) - means[:, 2]


def anchor(now: Float[Tensor, " item"], before: Float[Tensor, " item"]) -> Float[Tensor, ""]:
    """Mean squared change of the items' relatedness, nats per token squared."""
    return ((now - before) ** 2).mean()


def huber(gap: Float[Tensor, " item"]) -> Float[Tensor, " item"]:
    """Quadratic in small gaps (nats per token), linear in large ones, item by item."""
    scaled = _SCALE * gap
    return torch.nn.functional.huber_loss(
        scaled, torch.zeros_like(scaled), reduction="none", delta=_DELTA
    )


def divergence(
    before: Float[Tensor, "token vocabulary"], after: Float[Tensor, "token vocabulary"]
) -> Float[Tensor, ""]:
    """KL(before || after) of logits, mean over tokens, nats."""
    of_tiles = []
    for tile in zip(in_tiles(before), in_tiles(after), strict=True):
        log_p, log_q = (torch.log_softmax(logits, -1) for logits in tile)
        of_tiles.append((log_p.exp() * (log_p - log_q)).sum(-1))
    return torch.cat(of_tiles).mean()
