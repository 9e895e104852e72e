"""Do the heads that topology ranks first carry a model's risk, its prejudice or its volatility?

Of every head the effect on R, R_p and R_v is estimated to first order, of some it is measured; over
heads, the effects are compared with what the head's attention shows. Heads of a layer resemble each
other, so the null permutes heads within layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from pydantic import Field

from tda_bias.ablation.study import maps_of_heads
from tda_bias.config import HeadCrossrefConfig
from tda_bias.crossref.rankings import agreement
from tda_bias.heads.ranking_controls import chance_level
from tda_bias.heads.tables import map_columns
from tda_bias.stats.correlation import spearman_over_items
from tda_bias.stats.resampling import benjamini_hochberg
from tda_bias.stats.seeds import generator
from tda_bias.store.cache import Cache, Counter
from tda_bias.store.record import Number, RunRecord
from tda_bias.store.result import Result
from tda_bias.store.run import content_hashes
from tda_bias.types import Ablation, HeadId, InputError, Progress, RankBy

if TYPE_CHECKING:
    from tda_bias.ablation.effects import HeadEffects
    from tda_bias.ablation.word_outcome import WordRisk
    from tda_bias.heads.result import HeadBias

COMMAND = "crossref heads"
RISKS = ("R", "R_p", "R_v")
# The head's value without its sign, beside the maps.
SIZE_OF_T = "abs_T"
# What of an effect is compared: its size, or how much the risk falls on removal.
ASPECTS = ("size", "fall")
TOP_HEADS, RANDOM_HEADS, NOT_MEASURED = "top", "random", "no"


class HeadCrossrefRecord(RunRecord):
    """Everything needed to repeat it.

    ``statistic`` is the column of ``combined.parquet`` whose mean over groups is T; ``base`` has
    the numbers of the unchanged model, ``words`` and ``templates`` say of how many.
    """

    command: str = COMMAND
    heads: str | None = None
    pvf: str | None = None
    category: str
    rank_by: RankBy
    statistic: str
    ablation: Ablation
    top: int
    n_resamples: int
    seed: int
    words: int
    templates: int
    criterion: str
    against: str | None = None
    survivors: int
    # What the largest head of the map reaches by chance, as `chance_level` knows it.
    chance: float | None = None
    base: dict[str, Number] = Field(default_factory=dict)


_HEADS = {
    **dict.fromkeys(("layer", "head"), int),
    "unstable": bool,
    "chosen": str,
    **dict.fromkeys(("T", "z_.+", "effect_.+", "exact_.+"), float),
}
_CORRELATIONS = {
    **dict.fromkeys(("ranking", "risk", "aspect"), str),
    **dict.fromkeys(("heads", "overlap"), int),
    **dict.fromkeys(
        ("spearman", "by_layers", "p_within_layers", "q", "significant", "power_80", "chance"),
        float,
    ),
}
_AGREEMENT = {
    **dict.fromkeys(("risk", "chosen"), str),
    "heads": int,
    **dict.fromkeys(("spearman", "same_sign", "ratio"), float),
}


@dataclass(frozen=True, repr=False)
class HeadCrossReference(Result):
    """Result of ``cross_reference_heads``.

    Attributes:
        heads: One row per head: ``T`` (the mean over groups of its combined value), its place in
            the maps ``z_*``, the change of each risk on removal to first order, ``effect_*``, and
            where it was measured, ``exact_*``; ``chosen`` says why: ``top``, ``random``, or ``no``
            for the others.
        correlations: One row per ranking (``abs_T`` and the maps), risk and aspect of the effect
            (its ``size``, or the ``fall`` of the risk on removal), as ``rankings.agreement``, with
            ``q`` over all of them, of p within layers.
        agreement: One row per risk and kind of chosen heads (and ``all``): do first-order and exact
            effects agree? ``spearman``, share with the ``same_sign``, and ``ratio``, the median of
            exact to estimated ones.
        record: Everything needed to repeat it.
    """

    COMMAND = COMMAND
    RECORD = HeadCrossrefRecord
    TABLES = (
        ("heads", "heads.csv", _HEADS),
        ("correlations", "correlations.csv", _CORRELATIONS),
        ("agreement", "agreement.csv", _AGREEMENT),
    )
    SHOWN = (
        ("rankings of heads against their effects", "correlations"),
        ("first order against exact effects", "agreement"),
    )

    heads: pd.DataFrame
    correlations: pd.DataFrame
    agreement: pd.DataFrame
    record: HeadCrossrefRecord


def require_enough_heads(heads: HeadBias, category: str, top: int) -> None:
    """Make sure that as many random heads are left as are chosen, and that there is any null.

    Raises:
        InputError: if there are not.
    """
    layers, per_layer = heads.category_map(category).shape
    most = layers * per_layer // 2
    if per_layer < 2 or most < 2:
        raise InputError(
            f"the run has {layers} layers with {per_layer} heads each; --by heads exchanges heads "
            "of the same layer and needs at least 2 in each, and 4 in all"
        )
    if not 1 <= top <= most:
        raise InputError(
            f"`top` must lie between 1 and {most} for {layers * per_layer} heads, as many random "
            f"ones being compared with; got {top}"
        )


def cross_reference_heads(
    effects: HeadEffects,
    heads: HeadBias,
    outcome: WordRisk,
    *,
    category: str,
    pvf: RunRecord | None = None,
    config: HeadCrossrefConfig | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> HeadCrossReference:
    """Compare what heads' attention shows with their effects on R, R_p and R_v.

    The texts are read once as they are, once with gradients, and once more for each head whose
    effect is measured: the ``top`` ones by estimated size (the largest of the three risks') and as
    many random ones.

    Args:
        effects: How heads of the model are removed.
        heads: From ``head_bias`` of the same model.
        outcome: The words that are asked for, and the risks of what the model says.
        category: Of the run of heads.
        pvf: The record of the run that the words are of, where they are of one.
        config: The ranking whose value is T, heads to measure, permutations and their seed.
        cache: Keeps finished parts.
        progress: Called with tokens that are done and all.

    Raises:
        InputError: if there are too few heads, or the two are not of one model's heads.
    """
    config, cache = config or HeadCrossrefConfig(), cache or Cache()
    require_enough_heads(heads, category, config.top)
    rank_by = config.rank_by or heads.rank_by
    table, statistic = _values_of_heads(heads, category, rank_by)
    ids = [HeadId(*map(int, place)) for place in table[["layer", "head"]].to_numpy()]
    if ids != effects.heads:
        raise InputError(
            f"the run of heads has {len(ids)} heads and the model {len(effects.heads)}, or others; "
            "only runs of one model can be joined"
        )
    values = effects.unchanged(outcome, cache)
    base = outcome.summary(values)
    parts = effects.estimate_parts(outcome, values)
    n_exact = 2 * config.top
    removals = sum(outcome.readings.tokens) * n_exact
    counter = Counter(round(sum(part.cost for part in parts) + removals), progress)
    arrays = cache.each(parts, progress=lambda done, _: counter.reach(done))
    estimates = effects.estimates(outcome, values, arrays)
    at = table["layer"].to_numpy(), table["head"].to_numpy()
    for name in RISKS:
        table[f"effect_{name}"] = estimates[name][at]
    table["chosen"] = _chosen(table, config.top, generator(config.seed, "random heads"))
    sets = [(head,) for head, why in zip(ids, table["chosen"], strict=True) if why != NOT_MEASURED]
    estimated = counter.done
    arrays = cache.each(
        effects.removal_parts(outcome.readings, sets, outcome.name),
        progress=lambda done, _: counter.reach(estimated + done),
    )
    without = [outcome.summary(own) for own in outcome.readings.by_tree(arrays, len(sets))]
    for name in RISKS:
        exact = [own[name] - base[name] for own in without]
        table.loc[table["chosen"] != NOT_MEASURED, f"exact_{name}"] = exact
    return HeadCrossReference(
        heads=table,
        correlations=head_correlations(
            table, top=config.top, n_resamples=config.n_permutations, seed=config.seed
        ),
        agreement=effects_agreement(table),
        record=HeadCrossrefRecord(
            model=heads.record.model,
            made_from=content_hashes({one.command: one for one in (heads.record, pvf) if one}),
            category=category,
            rank_by=rank_by,
            statistic=statistic,
            ablation=effects.ablation,
            top=config.top,
            n_resamples=config.n_permutations,
            seed=config.seed,
            words=len(outcome.asked.words),
            templates=len(outcome.asked.templates),
            criterion=outcome.asked.criterion,
            survivors=len(heads.survivors(category=category)),
            chance=chance_level(
                heads.controls(category), rank_by, heads.columns(category, by=rank_by).tested
            ),
            base=base,
        ),
    )


def _values_of_heads(heads: HeadBias, category: str, by: RankBy) -> tuple[pd.DataFrame, str]:
    """One row per head, layer by layer: T and the maps; and the column that T is the mean of."""
    table = maps_of_heads(heads, category)
    column = map_columns(by, heads.category[heads.category["category"] == category]).combined
    own = heads.combined[heads.combined["category"] == category]
    mean = own.groupby(["layer", "head"])[column].mean().rename("T").reset_index()
    table = table.merge(mean, on=["layer", "head"], validate="one_to_one")
    return table.sort_values(["layer", "head"], ignore_index=True), column


def _chosen(table: pd.DataFrame, top: int, rng: np.random.Generator) -> list[str]:
    """Of every head whether its effect is measured, and why."""
    size = table[[f"effect_{name}" for name in RISKS]].abs().max(axis=1).to_numpy(float)
    order = np.argsort(-size, kind="stable")
    why = np.full(len(table), NOT_MEASURED, dtype=object)
    why[order[:top]] = TOP_HEADS
    why[rng.choice(order[top:], size=top, replace=False)] = RANDOM_HEADS
    return [str(one) for one in why]


def head_correlations(
    table: pd.DataFrame, *, top: int = 10, n_resamples: int = 9999, seed: int = 0
) -> pd.DataFrame:
    """Rank correlations over heads of every ranking with every aspect of every effect.

    ``table`` is that of ``HeadCrossReference.heads``, and so is what is returned.
    """
    rankings = [SIZE_OF_T, *(f"z_{by}" for by in get_args(RankBy) if f"z_{by}" in table)]
    scores = table[["layer", "head", *rankings[1:]]].assign(**{SIZE_OF_T: table["T"].abs()})
    for risk in RISKS:
        scores[f"size {risk}"] = table[f"effect_{risk}"].abs()
        scores[f"fall {risk}"] = -table[f"effect_{risk}"]
    columns = {f"{aspect} {risk}": (risk, aspect) for aspect, risk in product(ASPECTS, RISKS)}
    pairs = list(product(rankings, columns))
    found = agreement(scores, pairs, top=top, n_resamples=n_resamples, seed=seed)
    found = found.rename(columns={"first": "ranking"})
    named = pd.DataFrame(
        [columns[name] for name in found.pop("second")], columns=["risk", "aspect"]
    )
    found = pd.concat([found[["ranking"]], named, found.drop(columns="ranking")], axis=1)
    return found.assign(q=benjamini_hochberg(found["p_within_layers"].to_numpy(float)))


def effects_agreement(table: pd.DataFrame) -> pd.DataFrame:
    """How far estimated and measured effects agree, of ``HeadCrossReference.heads``."""
    rows: list[dict[str, Any]] = []
    measured = table[table["chosen"] != NOT_MEASURED]
    for risk, chosen in product(RISKS, (TOP_HEADS, RANDOM_HEADS, "all")):
        own = measured if chosen == "all" else measured[measured["chosen"] == chosen]
        first, exact = (own[f"{kind}_{risk}"].to_numpy(float) for kind in ("effect", "exact"))
        moved = first != 0
        ratio = exact[moved] / first[moved]
        rows.append(
            {
                "risk": risk,
                "chosen": chosen,
                "heads": len(own),
                "spearman": spearman_over_items(first, exact),
                "same_sign": float(np.mean(np.sign(first) == np.sign(exact))),
                "ratio": float(np.median(ratio)) if moved.any() else np.nan,
            }
        )
    return pd.DataFrame(rows)


def primary(result: HeadCrossReference, aspect: str = "size") -> pd.DataFrame:
    """Rows of the ranking that the run goes by, one for each risk."""
    table = result.correlations
    chosen = (table["ranking"] == f"z_{result.record.rank_by}") & (table["aspect"] == aspect)
    return table[chosen].set_index("risk").loc[list(RISKS)].reset_index()


def largest(table: pd.DataFrame, risks: Sequence[str] = RISKS) -> pd.DataFrame:
    """The heads whose effect was measured because it is large, the largest first."""
    own = table[table["chosen"] == TOP_HEADS]
    size = own[[f"effect_{name}" for name in risks]].abs().max(axis=1)
    return own.loc[size.sort_values(ascending=False, kind="stable").index]
