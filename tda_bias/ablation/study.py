"""Effects of removing the top heads of a run, compared with its rankings of heads.

The heads are removed one at a time and together, against random heads of the same layers; and over
all heads, the topological maps and two other attributions are compared with the effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import Field

from tda_bias.ablation.ablator import Ablator, FirstOrder, Outcomes
from tda_bias.ablation.head_weights import n_possible_sets, random_sets, ranked_heads
from tda_bias.config import StudyConfig
from tda_bias.heads.result import HeadBias
from tda_bias.heads.tables import map_columns
from tda_bias.stats.correlation import permuted_correlation
from tda_bias.stats.resampling import two_sided_share
from tda_bias.stats.seeds import generator
from tda_bias.store.cache import Cache
from tda_bias.store.record import Number, RunRecord
from tda_bias.store.result import Result
from tda_bias.store.run import content_hashes
from tda_bias.types import Ablation, HeadId, InputError, Progress, RankBy

# Decimals to which effects are distinguished.
_DIGITS = 5


class AblationRecord(RunRecord):
    """Everything needed to repeat an ablation."""

    command: str = "ablate"
    run: str | None = None  # folder of the run whose heads were removed, as it was given
    category: str
    rank_by: RankBy
    top: int = Field(ge=1)  # heads from each end of the ranking
    ablation: Ablation
    precision: str = "float32"
    n_random: int  # random sets of heads, all different
    n_possible: int  # different random sets there are
    n_resamples: int
    seed: int
    triples: int
    twinned: int = 0  # triples with twins
    twins: dict[str, Any] | None = None  # how the twins were made; None without
    survivors: int  # heads of the map that survive correction
    base: dict[str, Number]  # summaries of the unchanged model


_EFFECT_COLUMNS = {"kind": str, "heads": str, "d_log_odds": float, "d_.+": float}
_SET_TEST_COLUMNS = {
    "outcome": str,
    **{name: float for name in ("effect", "random_mean", "random_sd", "percentile", "p")},
}
_HEAD_COLUMNS = {
    "layer": int,
    "head": int,
    "unstable": bool,
    **{name: float for name in ("effect", "importance", "direct", "exact")},
    "z_.+": float,
}
_AGREEMENT_COLUMNS = {"ranking": str, "n_.+": int, "rho_.+": float, "p_.+": float}
# Random sets that are asked for at least; where fewer are possible, all of them are drawn.
FEWEST_RANDOM = 20


@dataclass(frozen=True, repr=False)
class AblationStudy(Result):
    """Effects of removing heads.

    Attributes:
        effects: One row per set of heads: ``kind`` (top, bottom, random: one head; top_set,
            random_set), ``heads``, and the change of every summary, ``d_...``.
        set_tests: One row per summary: the effect of the top heads together, its percentile among
            random sets of the same layers, and a two-sided p of its size.
        heads: One row per head: the maps, first-order effect, the other attributions, and the
            exact effect on the log-odds where it was measured. With twins also ``effect_beta`` and
            ``exact_beta``, the effects on beta.
        agreement: One row per ranking: Spearman over heads with the size of the first-order and of
            the exact effect (and of those on beta), with permutation p.
        record: Settings and counts.
    """

    COMMAND = "ablate"
    RECORD = AblationRecord
    TABLES = (
        ("effects", "effects.csv", _EFFECT_COLUMNS),
        ("set_tests", "set_tests.csv", _SET_TEST_COLUMNS),
        ("heads", "heads.csv", _HEAD_COLUMNS),
        ("agreement", "agreement.csv", _AGREEMENT_COLUMNS),
    )
    SHOWN = (
        ("the chosen heads against random ones", "set_tests"),
        ("agreement of rankings", "agreement"),
    )

    effects: pd.DataFrame
    set_tests: pd.DataFrame
    heads: pd.DataFrame
    agreement: pd.DataFrame
    record: AblationRecord

    @property
    def has_beta(self) -> bool:
        """Tell whether there were twins, and so effects on beta."""
        return "exact_beta" in self.heads


def ablation_study(
    ablator: Ablator,
    run: HeadBias,
    *,
    category: str,
    config: StudyConfig | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> AblationStudy:
    """Remove heads and compare.

    The first heads from each end of the run's ranking are compared with as many random ones, and
    all top heads together against random sets of the same layers. Permutations of heads test the
    agreement of rankings.

    Raises:
        InputError: if there are too few heads for ``top`` or ``n_random`` is below 20.
        ShareDone: if the batches are shared by several processes and another one gathers.
    """
    config = config or StudyConfig()
    top, n_random, seed = config.top, config.n_random, config.seed
    n_resamples = config.n_permutations
    rng = generator(seed)
    kinds, sets, n_possible = _head_sets(run, category, top, n_random, rng)
    removals, slopes = ablator.removals(sets), ablator.slope_parts()
    arrays = (cache or Cache()).each([*removals, *slopes], progress=progress)
    outcomes = ablator.outcomes(sets, islice(arrays, len(removals)))
    first_order = ablator.first_order(arrays)
    summaries = [outcome.summary() for outcome in outcomes]
    base = summaries[0]
    effects = pd.DataFrame(
        [
            {"kind": kind, "heads": " ".join(map(str, removed))}
            | {f"d_{name}": summary[name] - base[name] for name in base}
            for kind, removed, summary in zip(kinds[1:], sets[1:], summaries[1:], strict=True)
        ]
    )
    heads = _head_table(first_order, run, category, sets, outcomes)
    return AblationStudy(
        effects=effects,
        set_tests=set_tests(effects),
        heads=heads,
        agreement=_agreement(heads, n_resamples, rng),
        record=AblationRecord(
            model=run.record.model,
            made_from=content_hashes({run.record.command: run.record}),
            category=category,
            rank_by=run.rank_by,
            top=top,
            ablation=ablator.ablation,
            precision=ablator.precision,
            n_random=kinds.count("random_set"),
            n_possible=n_possible,
            n_resamples=n_resamples,
            seed=seed,
            triples=len(outcomes[0].log_odds),
            twinned=int(np.isfinite(outcomes[0].beta).sum()),
            survivors=len(run.survivors(category=category)),
            base=base,
        ),
    )


def _head_sets(
    run: HeadBias, category: str, top: int, n_random: int, rng: np.random.Generator
) -> tuple[list[str], list[tuple[HeadId, ...]], int]:
    """Kinds of sets that a study removes, the sets, and how many random ones are possible.

    Nothing, single heads (from both ends of the ranking, and as many others of the top heads'
    layers), the top heads together, and random sets.
    """
    total, n_heads = run.category_map(category).size, run.category_map(category).shape[1]
    if n_random < FEWEST_RANDOM:
        raise InputError(f"`n_random` must be at least {FEWEST_RANDOM}; got {n_random}")
    if not 1 <= top <= total // 3:
        raise InputError(f"`top` must lie between 1 and {total // 3} for {total} heads; got {top}")
    ranked = ranked_heads(run, category)
    best, worst = ranked[:top], ranked[-top:]
    layers = {head.layer for head in best}
    rest = [h for h in ranked if h.layer in layers and h not in best and h not in worst]
    others = rng.choice(len(rest), size=min(top, len(rest)), replace=False)
    single = {"top": best, "bottom": worst, "random": [rest[i] for i in others]}
    drawn = random_sets(best, n_heads, n_random, rng=rng)
    sets: list[tuple[str, tuple[HeadId, ...]]] = [
        ("none", ()),
        *((kind, (head,)) for kind, heads in single.items() for head in heads),
        ("top_set", tuple(best)),
        *(("random_set", heads) for heads in drawn),
    ]
    return [kind for kind, _ in sets], [heads for _, heads in sets], n_possible_sets(best, n_heads)


def set_tests(effects: pd.DataFrame) -> pd.DataFrame:
    """Test every effect of the ``top_set`` of ``AblationStudy.effects`` against random sets."""
    rows = []
    # Differences below what single precision resolves are ties.
    effects = effects.round(_DIGITS)
    random = effects[effects["kind"] == "random_set"]
    chosen = effects[effects["kind"] == "top_set"].iloc[0]
    for name in (column for column in effects.columns if column.startswith("d_")):
        null, value = random[name].to_numpy(float), float(chosen[name])
        rows.append(
            {
                "outcome": name.removeprefix("d_"),
                "effect": value,
                "random_mean": float(null.mean()),
                "random_sd": float(null.std(ddof=1)) if len(null) > 1 else np.nan,
                # Values as large count half, so 50 where all are alike.
                "percentile": 50 * float(1 + np.mean(null < value) - np.mean(null > value)),
                "p": two_sided_share(null, value),
            }
        )
    return pd.DataFrame(rows)


def maps_of_heads(run: HeadBias, category: str) -> pd.DataFrame:
    """One row per head of a run: its place in every map, ``z_*``, and whether it is unstable."""
    table = run.category[run.category["category"] == category]
    columns = {by: map_columns(by, table).value for by in get_args(RankBy)}
    maps = {f"z_{by}": table[column] for by, column in columns.items() if column in table}
    table = table[["layer", "head"]].assign(**maps, unstable=table["unstable"])
    return table.reset_index(drop=True)


def _head_table(
    first: FirstOrder,
    run: HeadBias,
    category: str,
    sets: Sequence[tuple[HeadId, ...]],
    outcomes: Sequence[Outcomes],
) -> pd.DataFrame:
    """One row per head: its place in the run's maps, estimates, exact effects where measured."""
    table = maps_of_heads(run, category)
    at = table["layer"].to_numpy(), table["head"].to_numpy()
    single = [place for place, heads in enumerate(sets) if len(heads) == 1]

    def exact(values: Sequence[Float[np.ndarray, " triple"]]) -> Float[np.ndarray, " head"]:
        """Change of a mean over triples on removal of each head; NaN where it was not removed."""
        changes = np.full(first.effect.shape, np.nan)
        for place in single:
            (head,) = sets[place]
            changes[head.layer, head.head] = np.nanmean(values[place] - values[0])
        return np.asarray(changes[at])

    for name in ("effect", "importance", "direct"):
        table[name] = getattr(first, name)[at]
    table["exact"] = exact([outcome.log_odds for outcome in outcomes])
    if np.isfinite(outcomes[0].beta).any():
        table["effect_beta"] = first.beta[at]
        table["exact_beta"] = exact([outcome.beta for outcome in outcomes])
    return table


def _agreement(heads: pd.DataFrame, n_resamples: int, rng: np.random.Generator) -> pd.DataFrame:
    """Spearman of every ranking with the size of the effects over heads."""
    effects = [n for n in ("effect", "exact", "effect_beta", "exact_beta") if n in heads.columns]
    sized = heads.assign(**{f"abs_{name}": heads[name].abs() for name in ("direct", *effects)})
    maps = [name for name in heads.columns if name.startswith("z_")]
    estimates = (f"abs_{name}" for name in effects if name.startswith("effect"))
    rows = []
    for ranking in [*maps, "importance", "abs_direct", *estimates]:
        row: dict[str, Any] = {"ranking": ranking}
        for name in effects:
            target = f"abs_{name}"
            both = sized[[ranking, target]].dropna() if ranking != target else sized.iloc[:0]
            row[f"n_{name}"], rho, p = len(both), np.nan, np.nan
            if len(both) > 3:
                x, y = (both[column].to_numpy(float) for column in (ranking, target))
                found = permuted_correlation(
                    y, x, n_resamples=n_resamples, rng=rng, drawn="by shuffling"
                )
                rho, p = found.r, found.p_two_sided()
            row |= {f"rho_{name}": rho, f"p_{name}": p}
        rows.append(row)
    return pd.DataFrame(rows)
