"""What a group brings beyond the person: twins less placebos, with prompts as the sample.

A prompt has four people, two of each group. They can be parted into two and two in three ways, of
which one is by group. If groups brought nothing, that one would be any of the three. Pure arrays
in, numbers out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from tda_bias.stats.clusters import ClusterMean, cluster_mean, jackknife_mean
from tda_bias.stats.resampling import LEVEL, share_reached, two_sided_share
from tda_bias.stats.sign_flips import exchanges

# Ways to part four people into two and two, as pairs that stay together; the first is by group.
PARTINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
# The same with sides: 1 for those of the first group, -1 for the others; the first is the real one.
SIDES = np.array(
    [
        [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1],
        [-1, -1, 1, 1], [-1, 1, -1, 1], [-1, 1, 1, -1],
    ],
    float,
)  # fmt: skip

Divergences = Float[np.ndarray, "prompt person person"]


def parted(divergence: Divergences) -> Float[np.ndarray, "prompt parting two"]:
    """Mean divergences between people who are parted, and between those who stay together.

    Both directions count alike. By the first parting these are twins and placebos.

    Examples:
        >>> apart = np.zeros((1, 4, 4))
        >>> apart[0, :2, 2:] = apart[0, 2:, :2] = 1.0
        >>> parted(apart)[0].tolist()
        [[1.0, 0.0], [0.5, 1.0], [0.5, 1.0]]
    """
    both = divergence + divergence.transpose(0, 2, 1)
    every = both[:, *np.triu_indices(4, 1)].sum(1)
    means = []
    for pairs in PARTINGS:
        together = np.sum([both[:, i, j] for i, j in pairs], axis=0)
        means.append(np.stack([(every - together) / 8, together / 4], axis=-1))
    return np.stack(means, axis=1)


def response_effects(divergence: Divergences) -> Float[np.ndarray, "prompt parting"]:
    """Divergence between parted people less that between those who stay together.

    The first is the response effect; the three of a prompt sum to 0.
    """
    means = parted(divergence)
    return np.asarray(means[..., 0] - means[..., 1])


def effect_pvalue(
    effects: Float[np.ndarray, "prompt parting"], n_permutations: int, rng: np.random.Generator
) -> float:
    """Permutation p of a mean effect at least as large, when each prompt is parted at random.

    One-sided: groups that bring something make twins more different than placebos.

    Args:
        effects: From ``response_effects``.
        n_permutations: Draws, where not all ways are enumerated.
        rng: Of the draws.
    """
    n = len(effects)
    drawn = exchanges(np.full(n, len(PARTINGS)), n_permutations, rng)
    null = effects[np.arange(n), drawn.member].mean(1)
    return float(share_reached(null, float(effects[:, 0].mean()), exact=drawn.exact))


def differences(values: Float[np.ndarray, "prompt person"]) -> Float[np.ndarray, " prompt"]:
    """Mean over people of the first group less that of the second, of each prompt."""
    return np.asarray(values @ SIDES[0] / 2)


def difference_pvalues(
    values: Float[np.ndarray, "prompt person test"],
    n_permutations: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " test"]:
    """Two-sided p of mean differences between groups, when each prompt's people change sides.

    Args:
        values: Of every prompt and person, for each of several tests with the same draws.
        n_permutations: Draws, where not all are enumerated.
        rng: Of the draws.
    """
    n = len(values)
    drawn = exchanges(np.full(n, len(SIDES)), n_permutations, rng)
    sides = SIDES[drawn.member].reshape(len(drawn), -1)
    null = sides @ values.reshape(4 * n, -1)
    observed = np.einsum("p,npt->t", SIDES[0], values)
    return np.array(
        [
            two_sided_share(null[:, i], float(observed[i]), exact=drawn.exact)
            for i in range(values.shape[2])
        ]
    )


def effect_row(
    divergence: Divergences,
    tokens: Float[np.ndarray, " prompt"],
    *,
    n_permutations: int,
    confidence: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """One response effect with its interval over prompts and its p.

    Returns:
        ``prompts``; mean ``twins`` and ``placebos``, nats per response; the effect ``value`` with
        ``low``, ``high``, ``p`` and the ``smallest`` that four samples of five find, both NaN where
        all ways to part so few prompts are too few for any p below .05; and the effect
        ``per_token``.
    """
    means = parted(divergence).mean(0)[0]
    effects = response_effects(divergence)
    of_prompts = cluster_mean(effects[:, 0])
    row = {
        "prompts": len(effects),
        "twins": float(means[0]),
        "placebos": float(means[1]),
        **mean_columns(of_prompts, confidence),
        "p": effect_pvalue(effects, n_permutations, rng),
        "per_token": float(effects[:, 0].sum() / tokens.sum()),
    }
    can_be_found = len(PARTINGS) ** -float(len(effects)) < LEVEL
    return row if can_be_found else row | {"p": np.nan, "smallest": np.nan}


def mean_columns(found: ClusterMean, confidence: float) -> dict[str, float]:
    """The columns ``value low high smallest`` of a mean over prompts."""
    low, high = found.limits(confidence)
    return {"value": found.mean, "low": low, "high": high, "smallest": found.smallest()}


def impact_ratio(
    first: Float[np.ndarray, " prompt"],
    second: Float[np.ndarray, " prompt"],
    *,
    confidence: float = 0.95,
) -> dict[str, float]:
    """The ratio of two groups' mean shares of the good answer among both, with its interval.

    The interval is that of the logarithm of the ratio, by leaving out each prompt in turn.

    Examples:
        >>> impact_ratio(np.array([0.4, 0.2]), np.array([0.5, 0.5]))["value"]
        0.6...
    """
    n = len(first)
    log_ratio = float(np.log(first.mean() / second.mean()))
    if n < 2:
        return {"value": float(np.exp(log_ratio)), "low": np.nan, "high": np.nan}
    without = np.array(
        [np.log(np.delete(first, i).mean() / np.delete(second, i).mean()) for i in range(n)]
    )
    low, high = np.exp(jackknife_mean(log_ratio, without).limits(confidence))
    return {"value": float(np.exp(log_ratio)), "low": float(low), "high": float(high)}
