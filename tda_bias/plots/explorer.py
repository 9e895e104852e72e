"""A run of heads as the data of the interactive map on a page; ``explorer.js`` draws it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.ablation.study import AblationStudy
from tda_bias.heads.items import ItemDifferences, carriers, shares
from tda_bias.heads.ranking_controls import chance_level
from tda_bias.heads.result import HeadBias
from tda_bias.heads.summaries import kind_of
from tda_bias.heads.tables import map_columns, surviving
from tda_bias.plots.maps import FOUND, GREYS, scale
from tda_bias.show.page import packed, rounded
from tda_bias.store.run import Run
from tda_bias.twins.twins import TEXTS

# Texts of a head that are shown.
N_CARRIERS = 5
_COVERAGE = 0.95


class _Map(NamedTuple):
    """A map that can be chosen."""

    value: str  # its column
    tested: str  # its test
    label: str
    about: str
    kind: str  # what it is per group


_Z = "z of the {} test: SDs above the mean under exchange, {}."
_TWIN, _PLAIN = "triple minus twin", "without twins: wording is still in it"
_MEAN = "Mean z over groups, which also ranks heads by their noise"
_MAPS = (
    _Map("evidence_relative_twin", "relative_twin", f"dispersion, {_TWIN}",
         _Z.format("dispersion", _TWIN), "spread_twin"),
    _Map("evidence_relative", "relative", "dispersion", _Z.format("dispersion", _PLAIN), "spread"),
    _Map("evidence_location_twin", "location_twin", f"location, {_TWIN}",
         _Z.format("location", _TWIN), "shift_twin"),
    _Map("evidence_location", "location", "location", _Z.format("location", _PLAIN), "shift"),
    _Map("z_relative", "relative", "mean z, dispersion", f"{_MEAN}.", "spread"),
    _Map("z_statistic", "statistic", "mean z, S", f"{_MEAN} (statistic S).", "spread"),
    _Map("z_metric", "statistic", "mean z, T", f"{_MEAN} (metric T).", "spread"),
)  # fmt: skip
# Values per item by the kind of a map: which measure, whether twins are subtracted, its words.
_KINDS = {
    "spread": ("dispersion", False, "difference in dispersion (-1 to 1)"),
    "spread_twin": ("dispersion", True, "difference in dispersion, triple minus twin"),
    "shift": ("sum", False, "change of the sum of {}"),
    "shift_twin": ("sum", True, "the same change, triple minus twin"),
}


def explorer(run: Run, others: Sequence[Run]) -> dict[str, Any]:
    """Everything the map of a run shows; ``others`` are ablations made from it.

    Raises:
        InputError: if a file of the run is damaged.
    """
    result = run.load(HeadBias.load)
    studies = [part.load(AblationStudy.load) for part in others]
    n_heads = int(result.category["head"].max()) + 1
    model = result.record.model
    return {
        "layers": list(model.layers),
        "heads": n_heads,
        "colours": {"grey": GREYS, "found": FOUND},
        "reading": {"causal": model.attention == "causal"},
        "categories": {
            category: {
                "maps": _maps(result, category),
                "rankings": _rankings(result, category, studies),
                "patterns": _patterns(result, category, n_heads),
                **_items(result.items, category, kind_of(result.record.config.summary).dims),
            }
            for category in result.categories
        },
    }


def _maps(result: HeadBias, category: str) -> list[dict[str, Any]]:
    """The maps, that of the run's ranking first."""
    table = _heads(result, category)
    chosen = map_columns(result.rank_by, table).value
    maps = []
    for kind in sorted(_available(table), key=lambda kind: kind.value != chosen):
        columns = {
            "value": kind.value,
            "tested": f"z_{kind.tested}",
            "noise": f"z_null_{kind.tested}",
            "sd": f"sd_null_{kind.tested}",
            "evidence": f"evidence_{kind.tested}",
            **{name: f"{name}_{kind.tested}" for name in ("p", "p_max", "q")},
        }
        values = {name: rounded(table[column].to_numpy(float)) for name, column in columns.items()}
        chance = None
        if kind.value == chosen:
            chance = chance_level(result.controls(category), result.rank_by, kind.tested)
        stable = ~table["unstable"].to_numpy(bool)
        maps.append(
            {
                "label": kind.label,
                "about": kind.about,
                "kind": kind.kind,
                "scale": [*scale(table[kind.value].to_numpy(float)[stable], chance), chance],
                "survivors": np.flatnonzero(surviving(table, kind.tested)).tolist(),
                "nulls": {"packed": packed(result.nulls[f"{category}.{kind.tested}"])},
                **values,
            }
        )
    return maps


def _heads(result: HeadBias, category: str) -> pd.DataFrame:
    rows = result.category[result.category["category"] == category]
    return rows.sort_values(["layer", "head"])


def _available(table: pd.DataFrame) -> list[_Map]:
    """Maps with a value: pairs have no unrelated texts, and so no S."""
    return [kind for kind in _MAPS if kind.value in table and table[kind.value].notna().any()]


def _rankings(
    result: HeadBias, category: str, studies: Sequence[AblationStudy]
) -> list[dict[str, Any]]:
    """A head's place in every map, and in what ablations say of it."""
    table = _heads(result, category)
    lines = [(kind.label, table[kind.value].to_numpy(float)) for kind in _available(table)]
    for study in studies:
        if study.record.category == category:
            heads = study.heads.sort_values(["layer", "head"])
            lines += [
                ("gradient importance", heads["importance"].to_numpy(float)),
                ("effect of ablation, first order", np.abs(heads["effect"].to_numpy(float))),
                ("effect of ablation, measured", np.abs(heads["exact"].to_numpy(float))),
            ]
    rankings = []
    for label, values in lines:
        defined = np.isfinite(values)
        rank = stats.rankdata(-values, method="min", nan_policy="omit")
        rankings.append(
            {
                "label": label,
                "of": int(defined.sum()),
                "rank": [int(r) if known else None for r, known in zip(rank, defined, strict=True)],
                "value": rounded(values),
            }
        )
    return rankings


# -- texts -----------------------------------------------------------------------------------------


def _items(items: ItemDifferences, category: str, dims: Sequence[str]) -> dict[str, Any]:
    """Values of groups, texts, and the texts that carry every head most.

    ``dims`` are names of the dimensions that are read of a pattern.
    """
    rows = np.flatnonzero(items.items["category"] == category)
    table = items.items.iloc[rows].reset_index(drop=True)
    content: dict[str, Any] = {
        "groups": list(dict.fromkeys(table["group"])),
        "texts": table[["group", *TEXTS]].to_dict("records"),
        "values": {},
        "carriers": {},
    }
    for kind, (measure, twins, label) in _KINDS.items():
        if twins and not items.twins:
            continue
        values = (items.twins if twins else items.raw)[measure][rows].mean(1)
        flat = values.reshape(len(rows), -1).astype(float)
        limits, n = _by_group(flat, table["group"], content["groups"])
        said = label.format(" and of ".join(dims))
        content["values"][kind] = {"label": said, "n": n, "packed": packed(limits)}
        if measure == "dispersion":
            carried = _carriers(shares(items, twins=twins)[rows])
            for shown in (kind, kind.replace("spread", "shift")):
                content["carriers"][shown] = carried
    return content


def _by_group(
    values: Float[np.ndarray, "item head"], group: pd.Series, names: Sequence[str]
) -> tuple[Float[np.ndarray, "limit group head"], list[int]]:
    """Means of groups with Student's interval over their items, undefined where none differs.

    With fewer than two items the mean is undefined too.
    """
    limits = np.full((3, len(names), values.shape[1]), np.nan)
    counts = []
    for place, name in enumerate(names):
        known = values[(group == name).to_numpy()]
        known = known[np.isfinite(known).any(1)]
        n = len(known)
        counts.append(n)
        if n > 1:
            mean = known.mean(0)
            half = stats.t.ppf((1 + _COVERAGE) / 2, n - 1) * known.std(0, ddof=1) / np.sqrt(n)
            half[np.ptp(known, axis=0) == 0] = np.nan
            limits[:, place] = mean, mean - half, mean + half
    return limits, counts


def _carriers(share: Float[np.ndarray, "item layer head"]) -> dict[str, Any]:
    """``(place, head)`` numbers of items and what they add; -1 where there are fewer."""
    layers, heads = share.shape[1:]
    item = np.full((N_CARRIERS, layers * heads), -1)
    added = np.full((N_CARRIERS, layers * heads), np.nan)
    for place in range(layers * heads):
        of_head = share[:, place // heads, place % heads]
        first = carriers(of_head, N_CARRIERS)
        item[: len(first), place] = first
        added[: len(first), place] = of_head[first]
    return {"item": item.tolist(), "share": [rounded(row, 3) for row in added]}


def _patterns(result: HeadBias, category: str, n_heads: int) -> list[dict[str, Any]]:
    kept, layers = result.kept, result.record.model.layers
    if kept is None:
        return []
    return [
        {
            "head": layers.index(row["layer"]) * n_heads + row["head"],
            **{name: row[name] for name in ("id", "role", "text")},
            "tokens": json.loads(str(row["tokens"])),
            "pattern": packed(pattern.astype(float)),
        }
        for row, pattern in zip(kept.table.to_dict("records"), kept.patterns, strict=True)
        if row["category"] == category
    ]
