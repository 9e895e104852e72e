"""Item by item: do heads treat an item's two texts as differently as the model rates them?

Both the difference of a head and the model's preference hold the wording and the length of an item;
so the same is reported without what token counts explain, and with twins on both sides, where
wording and length cancel. Items of a target resemble each other: permutations exchange items of the
same target only. n is the number of items, 242 to 976 in StereoSet, not the 3 to 38 of targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from pydantic import Field

from tda_bias.config import ItemCrossrefConfig
from tda_bias.crossref.crossref import same_model
from tda_bias.crossref.rank_tests import column_table
from tda_bias.heads.items import ItemDifferences
from tda_bias.scores.stereoset import Scoring, log_odds
from tda_bias.show.text import counted
from tda_bias.stats.correlation import column_tests, permutations_within, power
from tda_bias.stats.resampling import LEVEL
from tda_bias.stats.seeds import generator
from tda_bias.store.record import RecordPart, RunRecord
from tda_bias.store.result import Result
from tda_bias.store.run import content_hashes
from tda_bias.types import InputError, in_order

if TYPE_CHECKING:
    from tda_bias.scores.stereoset_scores import StereoSetScores
    from tda_bias.store.run import Run

COMMAND = "crossref items"
# raw: as published; length: token counts partialled out; twins: minus the twins, on both sides.
Way = Literal["raw", "length", "twins"]
WAYS: tuple[Way, ...] = get_args(Way)
_FEWEST_ITEMS = 10


class ItemCrossrefRecord(RunRecord):
    """Everything needed to repeat it.

    ``compared`` is what the run of heads reads of a pattern, ``left_out`` by category the number of
    items that the other run does not have.
    """

    command: str = COMMAND
    compared: str = "graph"
    heads: str | None = None
    stereoset: str | None = None
    scoring: Scoring
    n_resamples: int
    seed: int
    left_out: dict[str, int] = Field(default_factory=dict)


class _HowRead(RecordPart):
    summary: str = "graph"


class _OfHeads(RunRecord):
    """Of the record of a run of heads, what is read of a pattern."""

    config: _HowRead = _HowRead()


_PLACE = {**dict.fromkeys(("category", "way", "measure"), str), "dim": int}
_HEADS = {
    **_PLACE,
    **dict.fromkeys(("layer", "head"), int),
    **dict.fromkeys(("rho", "p", "p_max", "q"), float),
}
_SUMMARY = {
    **_PLACE,
    **dict.fromkeys(("n", "heads", "p05", "family_wise"), int),
    **dict.fromkeys(("expected", "largest", "needed", "smallest"), float),
}


@dataclass(frozen=True, repr=False)
class ItemCrossReference(Result):
    """Heads whose item differences go with the model's preference.

    Attributes:
        heads: One row per category, way, measure, dimension and head: ``rho p p_max q``; p_max and
            q are over all heads, measures and dimensions of a category and way.
        summary: One row per category, way, measure and dimension: ``n`` items, ``heads``,
            ``p05`` (heads with p < .05) and ``expected``, ``family_wise`` (heads with p_max < .05),
            the ``largest`` |rho| with its ``layer`` and ``head``, ``needed`` (the |rho| that is
            family-wise significant) and ``smallest`` (the true |rho| of a single head that is found
            four times out of five).
        record: Everything needed to repeat it.
    """

    COMMAND = COMMAND
    RECORD = ItemCrossrefRecord
    TABLES = (("heads", "heads.csv", _HEADS), ("summary", "summary.csv", _SUMMARY))
    SHOWN = (("heads that go with what the model says, over items", "summary"),)

    heads: pd.DataFrame
    summary: pd.DataFrame
    record: ItemCrossrefRecord


def cross_reference_items(
    heads: Run,
    stereoset: StereoSetScores,
    *,
    config: ItemCrossrefConfig | None = None,
) -> ItemCrossReference:
    """Rank correlations over items of every head with the model's preference.

    Permutations exchange items within targets; the scores are of the same model on the same data,
    with twins if the heads' run had them.

    Raises:
        InputError: if the two are not of one model, the run of the heads has no items, or a
            category shares fewer than 10 items between them.
    """
    config = config or ItemCrossrefConfig()
    scoring, n_resamples, seed = config.scoring, config.n_permutations, config.seed
    same_model(heads.record, stereoset.record)
    table, summary, left_out = item_tests(
        ItemDifferences.read(heads),
        stereoset.items,
        scoring=scoring,
        n_resamples=n_resamples,
        seed=seed,
    )
    return ItemCrossReference(
        heads=table,
        summary=summary,
        record=ItemCrossrefRecord(
            model=heads.record.model,
            made_from=content_hashes({"heads": heads.record, "stereoset": stereoset.record}),
            compared=heads.record_as(_OfHeads).config.summary,
            scoring=scoring,
            n_resamples=n_resamples,
            seed=seed,
            left_out=left_out,
        ),
    )


def item_tests(
    heads: ItemDifferences,
    behaviour: pd.DataFrame,
    *,
    scoring: Scoring = "sum",
    n_resamples: int = 9999,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, int]]:
    """The tables of an ``ItemCrossReference``, and the items of the heads that are left out.

    Of the model, one row per item: ``id log_prob_s log_prob_a tokens_s tokens_a`` and, where twins
    were run, ``beta_SCORING``; otherwise as ``cross_reference_items``.
    """
    tables, summaries = [], []
    left_out: dict[str, int] = {}
    for category in in_order(heads.items["category"]):
        place, items = _shared(heads.items, behaviour, category, scoring)
        left_out[category] = int((heads.items["category"] == category).sum()) - len(items)
        for way in WAYS:
            quantity = items["beta" if way == "twins" else "log_odds"].to_numpy(float)
            measured = heads.twins if way == "twins" else heads.raw
            used = np.isfinite(quantity)
            for values in heads.twins.values() if way == "twins" else ():
                used &= np.isfinite(values[place]).any((1, 2, 3))
            if not measured or used.sum() < _FEWEST_ITEMS:
                continue
            rng = generator(seed, "items", category, way)
            orders = permutations_within(items["group"].to_numpy()[used], n_resamples, rng)
            counts = items.loc[used, ["tokens_s", "tokens_a"]].to_numpy(float)
            covariates = np.column_stack([counts, counts[:, 0] - counts[:, 1]])
            parts = {
                (measure, dim): columns.reshape(len(columns), -1)
                for measure, values in measured.items()
                for dim, columns in enumerate(np.moveaxis(values[place][used], 1, 0))
            }
            # Together, so that p is family-wise over heads, measures and dimensions.
            tests = column_tests(
                np.hstack(list(parts.values())).astype(float),
                quantity[used],
                orders,
                covariates=covariates if way == "length" else None,
            )
            table = column_table(tests)
            n_heads = next(iter(measured.values())).shape[-1]
            for number, (measure, dim) in enumerate(parts):
                about = {"category": category, "way": way, "measure": measure, "dim": dim}
                where = _places(heads.layers, n_heads, about)
                rows = slice(number * len(where), (number + 1) * len(where))
                own = where.join(table.iloc[rows].reset_index(drop=True))
                tables.append(own)
                summaries.append({**about, **_summary(own, int(used.sum()), tests.needed)})
    return pd.concat(tables, ignore_index=True), pd.DataFrame(summaries), left_out


def _places(layers: Sequence[int], n_heads: int, about: dict[str, Any]) -> pd.DataFrame:
    """One row per head: what is compared, its layer and its number."""
    places = product(layers, range(n_heads))
    return pd.DataFrame([{**about, "layer": layer, "head": head} for layer, head in places])


def _shared(
    items: pd.DataFrame, behaviour: pd.DataFrame, category: str, scoring: Scoring
) -> tuple[np.ndarray, pd.DataFrame]:
    """Rows of the items of a category that both tables have, and what the model says of them."""
    said = behaviour.set_index("id")
    if not said.index.is_unique:
        raise InputError("the table of items names an item twice; run `tdabias stereoset` again")
    place = np.flatnonzero((items["category"] == category) & items["id"].isin(said.index))
    if len(place) < _FEWEST_ITEMS:
        raise InputError(
            f"the runs share {counted(len(place), 'item')} of {category}, {_FEWEST_ITEMS} are "
            "needed; run `tdabias stereoset` on the data of the run of `tdabias heads`"
        )
    said = said.loc[items["id"].iloc[place]].reset_index(drop=True)
    said = said.assign(
        log_odds=log_odds(said, scoring),
        beta=said.get(f"beta_{scoring}", np.nan),
        group=items["group"].to_numpy()[place],
    )
    return place, said


def _summary(tests: pd.DataFrame, n: int, needed: float) -> dict[str, Any]:
    """The row of one way, measure and dimension."""
    defined = tests[tests["rho"].notna()]
    row: dict[str, Any] = {
        "n": n,
        "heads": len(defined),
        "p05": int((defined["p"] < LEVEL).sum()),
        "expected": LEVEL * len(defined),
        "family_wise": int((defined["p_max"] < LEVEL).sum()),
        "largest": np.nan,
        "layer": None,
        "head": None,
        "needed": needed,
        "smallest": power(n)["power_80"],
    }
    if len(defined):
        best = defined.iloc[int(defined["rho"].abs().to_numpy().argmax())]
        row |= {"largest": best["rho"], "layer": int(best["layer"]), "head": int(best["head"])}
    return row
