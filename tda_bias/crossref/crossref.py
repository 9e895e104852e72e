"""Do targets whose heads treat stereotypes differently also show risk in what the model says?

The one composition of cross-referencing: per StereoSet target, what the heads of a run do is joined
with what the model says of it (prejudice, volatility, signed mean stereotype), and the two are
correlated over targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pydantic import Field

from tda_bias.crossref.rank_tests import HeadMap, correlations, head_map, power, usable_covariates
from tda_bias.crossref.targets import (
    WordScores,
    content_hashes,
    head_summaries,
    head_vectors,
    joined,
    same_model,
    signed_quantity,
    with_frequency,
)
from tda_bias.heads.record import map_columns
from tda_bias.runs.record import Number, RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.text import Finding, counted, number_text, p_text
from tda_bias.types import InputError, RankBy

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias
    from tda_bias.scores.stereoset_scores import StereoSetScores


class CrossrefRecord(RunRecord):
    """Everything needed to repeat a cross-reference.

    Attributes:
        heads: Folder of the run of the heads, as it was given.
        behaviour: Folder of the run that says what the model says of words.
        stereoset: Folder of the run with StereoSet's scores, if there was one.
        by: Which combined value of a head is T.
        match: How loosely a word may stand for a target.
        n_resamples: Permutations of targets.
        seed: Of all draws.
        shuffled_heads: By quantity, what a head map shows where heads mean nothing.
    """

    command: str = "crossref"
    heads: str | None = None
    behaviour: str | None = None
    stereoset: str | None = None
    by: RankBy
    match: str
    n_resamples: int
    seed: int
    shuffled_heads: dict[str, dict[str, Number]] = Field(default_factory=dict)


_TARGETS = {
    **dict.fromkeys(("category", "target", "match_type", "matched"), str),
    "n_items": int,
    "r": float,
    "s_.+": float,
}
_CORRELATIONS = {
    **dict.fromkeys(("quantity", "summary"), str),
    "n": int,
    **dict.fromkeys(("spearman", "low", "high", "pearson", "partial"), float),
    **dict.fromkeys(("p", "p_partial", "q"), float),
}
_HEADS = {
    **dict.fromkeys(("layer", "head"), int),
    **dict.fromkeys(("rho", "p", "p_max", "q"), float),
    "quantity": str,
}
RISKS = ("r", "r_p", "r_v")
_KEY = ["category", "target"]


@dataclass(frozen=True)
class CrossReference(SavedResult):
    """Result of ``cross_reference``.

    Attributes:
        targets: One row per target: summaries of its heads, and what the model says of it.
        correlations: Every quantity against every summary; see ``rank_tests.correlations``.
        heads: One row per quantity and head: does |T| of the head go with the quantity? See
            ``rank_tests.head_map``.
        record: Everything needed to repeat it.
    """

    COMMAND = "crossref"
    RECORD = CrossrefRecord
    TABLES = (
        ("targets", "targets.csv", _TARGETS),
        ("correlations", "correlations.csv", _CORRELATIONS),
        ("heads", "head_map.csv", _HEADS),
    )
    SHOWN = (("over targets", "correlations"),)

    targets: pd.DataFrame
    correlations: pd.DataFrame
    heads: pd.DataFrame
    record: CrossrefRecord

    def __repr__(self) -> str:
        tested = int(self.correlations["p"].notna().sum())
        return (
            f"CrossReference({self.record.model.name}: {counted(len(self.targets), 'target')}, "
            f"{tested} correlations)"
        )

    @property
    def quantities(self) -> list[str]:
        """The quantities that heads were compared with."""
        return list(dict.fromkeys(self.heads["quantity"]))

    def head_map(self, quantity: str) -> HeadMap:
        """The heads against one quantity.

        Raises:
            InputError: if there is no such quantity.
        """
        if quantity not in self.quantities:
            allowed = ", ".join(self.quantities)
            raise InputError(f"`quantity` must be one of {allowed}; got {quantity!r}")
        rows = self.heads[self.heads["quantity"] == quantity].drop(columns="quantity")
        shuffled = dict(self.record.shuffled_heads.get(quantity, {}))
        return HeadMap(quantity, rows.reset_index(drop=True), shuffled)


def cross_reference(
    heads: HeadBias,
    behaviour: WordScores,
    *,
    stereoset: StereoSetScores | None = None,
    by: RankBy | None = None,
    match: str = "exact",
    n_resamples: int = 9999,
    seed: int = 0,
) -> CrossReference:
    """Correlate, over StereoSet's targets, what heads do with what the model says.

    Args:
        heads: From ``head_bias``.
        behaviour: What the model says of words; see ``targets.WordScores.load``.
        stereoset: The same model's scores; adds the mean log-odds of every target's items and, with
            twins, their mean beta.
        by: Which combined value of a head is T; that which ranks the run's heads if None.
        match: ``exact``, ``near`` or ``weak``: how loosely a word may stand for a target.
        n_resamples: Permutations of targets within categories.
        seed: Of all draws.

    Raises:
        InputError: if the three are not of one model, share fewer than 4 targets, or a target lacks
            a value.
    """
    by = by or heads.rank_by
    column = map_columns(by, heads.category.columns).combined
    table, quantities, bridge = _joined(heads, behaviour, stereoset, column, match)
    tests = correlations(
        table, [*quantities, *bridge], n_resamples=n_resamples, rng=np.random.default_rng([seed, 0])
    )
    if bridge:
        direct = correlations(
            table, quantities, bridge, n_resamples=n_resamples, rng=np.random.default_rng([seed, 1])
        )
        tests = pd.concat([tests, direct], ignore_index=True)
    keys, values, columns = head_vectors(heads.combined, column=column)
    values, category = values[places_of(keys, table)], list(table["category"])
    maps = [
        head_map(
            values,
            columns,
            table[name].to_numpy(float),
            category,
            name=name,
            n_resamples=n_resamples,
            rng=np.random.default_rng([seed, number]),
        )
        for number, name in enumerate([*quantities, *bridge], start=2)
    ]
    parts = {"heads": heads.record, behaviour.record.command: behaviour.record}
    if stereoset is not None:
        parts["stereoset"] = stereoset.record
    return CrossReference(
        targets=table,
        correlations=tests,
        heads=pd.concat([m.table.assign(quantity=m.quantity) for m in maps], ignore_index=True),
        record=CrossrefRecord(
            model=heads.record.model,
            made_from=content_hashes(**parts),
            by=by,
            match=match,
            n_resamples=n_resamples,
            seed=seed,
            shuffled_heads={m.quantity: m.shuffled for m in maps},
        ),
    )


def places_of(keys: pd.DataFrame, table: pd.DataFrame) -> np.ndarray:
    """Rows of ``keys`` that hold the targets of a table, in its order.

    Raises:
        InputError: naming the first target that ``keys`` does not have.
    """
    places = pd.MultiIndex.from_frame(keys[_KEY]).get_indexer(pd.MultiIndex.from_frame(table[_KEY]))
    if (places < 0).any():
        category, target = table[_KEY].iloc[int((places < 0).argmax())]
        raise InputError(f"the run of the heads has no values of {target!r} ({category})")
    return np.asarray(places)


def _joined(
    heads: HeadBias,
    behaviour: WordScores,
    stereoset: StereoSetScores | None,
    column: str,
    match: str,
) -> tuple[pd.DataFrame, list[str], list[str]]:
    """The table over targets, and the names of its quantities and of StereoSet's own."""
    same_model(heads.record, behaviour.record)
    by_x = behaviour.by_x
    quantities = [*RISKS, signed_quantity(by_x.columns)]
    summaries = head_summaries(heads.table, heads.combined, column=column)
    kept = ["x", *quantities, *(["tokens"] if "tokens" in by_x else [])]
    table = with_frequency(joined(summaries, by_x[kept], match=match))
    if stereoset is None:
        return table, quantities, []
    same_model(heads.record, stereoset.record)
    per_target = preferences_of_targets(stereoset)
    both = table.merge(per_target, on=_KEY, how="left", validate="one_to_one")
    if both["log_odds"].isna().any():
        lacking = both["target"][both["log_odds"].isna()].iloc[0]
        raise InputError(
            f"the run of `tdabias stereoset` has no items of {lacking!r}; run it on the same "
            "category"
        )
    return both, quantities, [str(name) for name in per_target if name not in _KEY]


def preferences_of_targets(stereoset: StereoSetScores) -> pd.DataFrame:
    """One row per target: the mean preference of its items, and its size.

    Returns:
        Columns ``category target log_odds abs_log_odds``, in nats, and with twins ``beta
        abs_beta``: the part that is about the target.
    """
    items = stereoset.items.rename(columns={"group": "target"})
    items["log_odds"] = items["log_prob_s"] - items["log_prob_a"]
    names = ["log_odds"]
    if stereoset.has_twins:
        items["beta"] = items["beta_sum"]
        names.append("beta")
    means = items.groupby(_KEY)[names].mean().reset_index()
    for name in names:
        means[f"abs_{name}"] = means[name].abs()
    return means[[*_KEY, *(column for name in names for column in (name, f"abs_{name}"))]]


# -- in sentences ----------------------------------------------------------------------------------


def target_finding(result: CrossReference) -> Finding:
    """Finding over targets: survivors of correction, and power."""
    n = len(result.targets)
    needed = power(n)
    correlations = result.correlations
    surviving = correlations[correlations["q"] < 0.05]
    tested = int(correlations["p"].notna().sum())
    first = (
        f"{len(surviving)} of {tested} correlations over {counted(n, 'target')} have q (FDR) < .05."
        if len(surviving)
        else f"No link between what the heads do with a target and what the model says of it: none "
        f"of {tested} correlations over {counted(n, 'target')} survives correction (smallest q "
        f"{p_text(correlations['q'].min())})."
    )
    heads = []
    for name in result.quantities:
        single = result.head_map(name)
        kept = single.table[single.table["p_max"] < 0.05]
        named = ", ".join(f"L{r.layer}H{r.head}" for r in kept.itertuples()) or "none"
        heads.append(
            f"Heads whose |T| goes with {name} (family-wise p < .05): {named}; "
            f"{int((single.table['p'] < 0.05).sum())} with p < .05, "
            f"{number_text(single.shuffled.get('heads_p05'), 0)} with heads shuffled, "
            f"{number_text(single.shuffled.get('expected_p05'), 0)} expected."
        )
    return Finding(
        result=[first],
        control=heads,
        power=[
            f"|rho| must reach {needed['significant']:.2f} for p < .05; a true rho of "
            f"{needed['power_80']:.2f} is found four times out of five."
        ],
        details=[_covariate_line(result.targets)],
    )


def _covariate_line(table: pd.DataFrame) -> str:
    """Covariates that the partial correlations hold constant."""
    about = {
        "n_items": "number of items",
        "tokens": "tokens of the word",
        "zipf": "word frequency",
    }
    used = [about[name] for name in usable_covariates(table)]
    more = "" if "zipf" in table else " Word frequencies need pip install 'tdabias[frequency]'."
    return f"Partial p: without the ranks of {', '.join(used) or 'nothing'}.{more}"
