"""Groups of made-up step functions with twins, and their Gram matrices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tda_bias.heads.group_result import (
    GroupResult,
    joined_layers,
    layer_numbers,
    random_halves,
)
from tda_bias.heads.group_statistic import GroupLayout
from tda_bias.heads.hot_spots import Exchanged
from tda_bias.stats.sign_flips import random_signs


@dataclass(frozen=True)
class MadeUpGroup:
    """Step functions ``(text, head, steps)`` of a group, by part."""

    stereotype: np.ndarray
    anti: np.ndarray
    unrelated: np.ndarray
    twin_stereotype: np.ndarray
    twin_anti: np.ndarray
    layout: GroupLayout

    @property
    def texts(self) -> np.ndarray:
        """``(text, head, steps)`` of all texts in the order of the layout."""
        parts = (self.stereotype, self.anti, self.unrelated, self.twin_stereotype, self.twin_anti)
        return np.concatenate(parts)

    @property
    def gram(self) -> np.ndarray:
        """``(head, text, text)`` about the mean of all texts."""
        centred = np.moveaxis(self.texts - self.texts.mean(0), 1, 0)
        return centred @ centred.mT / self.texts.shape[-1]

    @property
    def sums(self) -> np.ndarray:
        """``(head, text)``."""
        return self.texts.sum(-1).T


def made_up_group(
    n: int = 7,
    *,
    twins=1,
    heads: int = 3,
    steps: int = 11,
    seed: int = 0,
    wording: float = 0.0,
    bias: float = 0.0,
    spread: float = 0.0,
    unrelated: bool = True,
) -> MadeUpGroup:
    """Random step functions.

    Args:
        n: Contexts.
        twins: Of each context, or a number for each.
        heads: Heads.
        steps: Length of a step function.
        seed: Of everything random.
        wording: A shift that the stereotype texts of triples and twins have in common.
        bias: A shift of the triples' stereotype texts alone.
        spread: How much more the triples' anti-stereotype texts vary than their twins'.
        unrelated: Whether there are unrelated texts.
    """
    rng = np.random.default_rng(seed)
    twin_of = np.repeat(np.arange(n), twins)
    direction = rng.normal(size=(heads, steps))

    def texts(k: int) -> np.ndarray:
        return rng.normal(size=(k, heads, steps))

    common = texts(n)
    stereotype = common + texts(n) + (wording + bias) * direction
    anti = common + (1 + spread) * texts(n)
    twin_s = common[twin_of] + texts(len(twin_of)) + wording * direction
    twin_a = common[twin_of] + texts(len(twin_of))
    return MadeUpGroup(
        stereotype,
        anti,
        texts(n if unrelated else 0),
        twin_s,
        twin_a,
        GroupLayout(n, n if unrelated else 0, twin_of),
    )


def result_of(name: str, *layers: Sequence[MadeUpGroup]) -> GroupResult:
    """The numbers of a group of the category gender, made up for every layer and dimension."""
    first = layers[0][0]
    layout, n_steps = first.layout, first.anti.shape[-1]
    halves = random_halves(layout.n, 5, np.random.default_rng(0))
    numbers = [
        [layer_numbers(group.gram, group.sums, layout, halves) for group in dims] for dims in layers
    ]
    arrays = joined_layers(numbers, len(layers)) | {
        "n_tokens": np.full((layout.n, 3), n_steps), "n_steps": np.full(2, n_steps),
        "length_statistic": np.zeros(2), "versions": layout.versions.context,
        "provenance": np.array("{}"),
    }  # fmt: skip
    return GroupResult.from_arrays("gender", name, arrays)


def planted_group(
    number: int, *, heads: int = 12, seed: int = 0, bias_in: int | slice | None = None
) -> GroupResult:
    """A group of one layer and two dimensions; one head may have an effect, or all."""
    found = []
    for dim in range(2):
        group = made_up_group(9, heads=heads, seed=1000 * seed + 10 * number + dim)
        if bias_in is not None:
            moved = group.stereotype.copy()
            moved[:, bias_in] += 1.0
            group = replace(group, stereotype=moved)
        found.append(group)
    return result_of(f"target {number}", found)


def in_groups(
    groups: list[np.ndarray], rngs: Sequence[np.random.Generator], *, n_resamples: int
) -> list[Exchanged]:
    """Groups of terms whose signs are flipped."""
    return [
        (terms, np.ones(len(terms)), random_signs((n_resamples, len(terms)), rng))
        for terms, rng in zip(groups, rngs, strict=True)
    ]
