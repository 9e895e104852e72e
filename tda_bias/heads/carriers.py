"""The texts that carry a head's difference most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from tda_bias.heads.item_differences import ItemDifferences
from tda_bias.heads.kept_patterns import ROLES, PatternText
from tda_bias.heads.texts import TEXTS
from tda_bias.types import HeadId

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias

# Texts of a head whose patterns are kept.
TEXTS_PER_HEAD = 3


def shares(items: ItemDifferences, *, twins: bool) -> Float[np.ndarray, "item layer head"]:
    """What every item adds to a head's relative dispersion, means over both dimensions.

    Args:
        items: The items.
        twins: Whether what their twins add is subtracted; NaN for items without one.
    """
    measured = (items.twins if twins else items.raw)["dispersion"]
    return np.asarray(measured.mean(1), dtype=float)


def carriers(
    share: Float[np.ndarray, "item layer head"], head: HeadId, n: int
) -> Int[np.ndarray, " n"]:
    """The items that add most to a head's value, by size; undefined ones are none.

    Args:
        share: As ``shares`` gives it, of the items in question.
        head: The head, its layer counted among those that were hooked.
        n: How many; fewer where there are no more.
    """
    size = np.abs(share[:, head.layer, head.head])
    defined = np.flatnonzero(np.isfinite(size))
    return defined[np.argsort(-size[defined], kind="stable")][:n]


def texts_to_keep(result: HeadBias, n_heads: int) -> list[PatternText]:
    """The heads that a person will look at first, each with the texts that carry it most.

    Those are, category by category, the first of the ranking and all that survive correction.

    Args:
        result: The run, with its items.
        n_heads: Heads of each category's ranking.
    """
    if result.items is None or not n_heads:
        return []
    share, table = shares(result.items, twins=bool(result.items.twins)), result.items.items
    wanted = []
    for category in result.categories:
        rows = np.flatnonzero(table["category"] == category)
        for head in heads_to_look_at(result, category, n_heads):
            for place in rows[carriers(share[rows], head, TEXTS_PER_HEAD)]:
                item = table.iloc[int(place)]
                wanted += [
                    PatternText(category, head, str(item["id"]), role, str(item[name]))
                    for role, name in zip(ROLES, TEXTS, strict=True)
                    if item[name]
                ]
    return wanted


def heads_to_look_at(result: HeadBias, category: str, n: int) -> list[HeadId]:
    """The first heads of a category's ranking, then as many survivors that stand further down."""
    heads = [
        HeadId(int(row["layer"]), int(row["head"]))
        for table in (result.top(n, category=category), result.survivors(category=category).head(n))
        for row in table.to_dict("records")
    ]
    return list(dict.fromkeys(heads))
