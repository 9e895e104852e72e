"""Effects of removing the top heads of a run, compared with its rankings of heads.

The heads are removed one at a time and together, against random heads of the same layers; and over
all heads, the topological maps and two other attributions are compared with the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import Field

from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.head_weights import n_possible_sets, random_sets, ranked_heads
from tda_bias.ablation.readings import Outcome
from tda_bias.config import StudyConfig
from tda_bias.heads.result import HeadBias
from tda_bias.heads.tables import map_columns
from tda_bias.stats.correlation import permuted_correlation
from tda_bias.stats.resampling import two_sided_share, value_needed
from tda_bias.stats.seeds import generator
from tda_bias.store.cache import Cache, Part
from tda_bias.store.record import DataRecord, Number, RunRecord, SourceOfRun
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
    further: dict[str, str] = Field(default_factory=dict)  # by outcome, what else was read
    pvf: str | None = None  # folder of the run whose words were read, as it was given
    bbq: DataRecord | None = None  # where the items of BBQ were read
    respond: str | None = None  # folder of the run whose responses were read, as it was given
    prompts: DataRecord | None = None  # where its prompts were read
    survivors: int  # heads of the map that survive correction
    base: dict[str, Number]  # summaries of the unchanged model

    def reads(self) -> list[SourceOfRun]:
        """The texts, and the items of BBQ and prompts where these were read."""
        own = [one for one in (self.bbq, self.prompts) if one is not None]
        more = [SourceOfRun(source=one.source, revision=one.revision) for one in own]
        return [*super().reads(), *more]


_EFFECT_COLUMNS = {"kind": str, "heads": str, "d_.+": float}
_SET_TEST_COLUMNS = {
    "outcome": str,
    **{name: float for name in ("effect", "random_mean", "random_sd", "percentile", "p")},
}
_HEAD_COLUMNS = {
    "layer": int,
    "head": int,
    "unstable": bool,
    "(effect|exact)(_.+)?": float,
    "z_.+": float,
}
_AGREEMENT_COLUMNS = {"ranking": str, "n_.+": int, "rho_.+": float, "p_.+": float}
# Outcomes with effects of single heads, the most telling first; and in the order in which
# permutations of heads are drawn for them.
_OUTCOMES = ("beta", "log_odds", "R", "R_p", "R_v", "bbq_bias", "response_effect", "decision")
# The most telling of each kind of text but triples.
_PRIMARY = ("R", "bbq_bias", "response_effect", "decision")
_DRAWN = ("log_odds", "beta", *_OUTCOMES[2:])
# Random sets that are asked for at least; where fewer are possible, all of them are drawn.
FEWEST_RANDOM = 20


def end_of(outcome: str) -> str:
    """What the columns of effects on an outcome end in; nothing for the log-odds."""
    return "" if outcome == "log_odds" else f"_{outcome}"


def _outcome_of(column: str) -> str:
    """The outcome of a column ``effect``, ``effect_beta``, ..."""
    return column.partition("_")[2] or "log_odds"


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
            ``exact_beta``, the effects on beta; of words ``effect_R``, ``exact_R`` and so on, of
            BBQ ``effect_bbq_bias``, of responses ``effect_response_effect``, ``effect_decision``.
        agreement: One row per ranking: Spearman over heads with the size of the first-order and of
            the exact effect (and of those on other outcomes), with permutation p.
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
    def primary(self) -> list[str]:
        """Of each kind of text the most telling: beta before the log-odds, R before its parts."""
        return [name for place, name in enumerate(self.outcomes) if place == 0 or name in _PRIMARY]

    @property
    def outcomes(self) -> list[str]:
        """What effects are on, the most telling first, from beta and log_odds to decisions."""
        there = {_outcome_of(name) for name in map(str, self.heads) if name.startswith("effect")}
        return [name for name in _OUTCOMES if name in there]


def ablation_study(
    ablator: Ablator,
    run: HeadBias,
    *,
    category: str,
    triples: bool = True,
    outcomes: Sequence[Outcome] = (),
    config: StudyConfig | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> AblationStudy:
    """Remove heads and compare.

    What is measured are the log-odds and beta of the ablator's triples, unless ``triples`` is
    False, and further ``outcomes`` of the same model, as ``WordRisk`` or ``RespondEffect``. The
    first heads from each end of the run's ranking are compared with as many random ones, and all
    top heads together against random sets of the same layers. Permutations of heads test the
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
    cache = cache or Cache()
    sources = [
        *([_source_of_triples(ablator, sets)] if triples else []),
        *(_source_of_outcome(ablator, outcome, sets, cache) for outcome in outcomes),
    ]
    parts = [part for source in sources for part in (*source.removals, *source.slopes)]
    arrays = cache.each(parts, progress=progress)
    summaries: list[dict[str, float]] = [{} for _ in sets]
    heads = maps_of_heads(run, category)
    at = heads["layer"].to_numpy(), heads["head"].to_numpy()
    for source in sources:
        removed, gradients = (
            islice(arrays, len(source.removals)),
            islice(arrays, len(source.slopes)),
        )
        found, columns = source.read(removed, gradients)
        summaries = [before | own for before, own in zip(summaries, found, strict=True)]
        heads = heads.assign(**{name: values[at] for name, values in columns.items()})
    base = summaries[0]
    effects = pd.DataFrame(
        [
            {"kind": kind, "heads": " ".join(map(str, removed))}
            | {f"d_{name}": summary[name] - base[name] for name in base}
            for kind, removed, summary in zip(kinds[1:], sets[1:], summaries[1:], strict=True)
        ]
    )
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
            triples=len(ablator.triples) if triples else 0,
            twinned=sum(map(bool, ablator.twins)) if triples else 0,
            further={outcome.name: outcome.read for outcome in outcomes},
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
    random, chosen = _of_kind(effects, "random_set"), _of_kind(effects, "top_set").iloc[0]
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


def _of_kind(effects: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Rows of a kind of sets; differences below what single precision resolves are ties."""
    return effects[effects["kind"] == kind].round(_DIGITS)


def size_needed(effects: pd.DataFrame, outcome: str) -> float:
    """Smallest change by the top heads with p < .05; NaN with too few random sets."""
    null = _of_kind(effects, "random_set")[f"d_{outcome}"].abs()
    return value_needed(null.to_numpy(float))


def maps_of_heads(run: HeadBias, category: str) -> pd.DataFrame:
    """One row per head of a run: its place in every map, ``z_*``, and whether it is unstable."""
    table = run.category[run.category["category"] == category]
    columns = {by: map_columns(by, table).value for by in get_args(RankBy)}
    maps = {f"z_{by}": table[column] for by, column in columns.items() if column in table}
    table = table[["layer", "head"]].assign(**maps, unstable=table["unstable"])
    return table.reset_index(drop=True)


# By set of heads the numbers of an outcome; and columns of heads, layers by heads.
_Found = tuple[list[dict[str, float]], dict[str, Float[np.ndarray, "layer head"]]]
_Arrays = Iterator[Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class _Source:
    """What is read for an outcome, and what follows from it."""

    removals: list[Part]
    slopes: list[Part]
    read: Callable[[_Arrays, _Arrays], _Found]


def _source_of_triples(ablator: Ablator, sets: Sequence[tuple[HeadId, ...]]) -> _Source:
    """Log-odds, and beta where there are twins, with two other attributions."""

    def read(removals: _Arrays, slopes: _Arrays) -> _Found:
        outcomes = ablator.outcomes(sets, removals)
        first = ablator.first_order(slopes)

        def exact(values: Sequence[Float[np.ndarray, " triple"]]) -> np.ndarray:
            changes = [float(np.nanmean(own - values[0])) for own in values]
            return _of_single_heads(changes, sets, first.effect)

        columns = {name: getattr(first, name) for name in ("effect", "importance", "direct")}
        columns["exact"] = exact([outcome.log_odds for outcome in outcomes])
        if np.isfinite(outcomes[0].beta).any():
            columns["effect_beta"] = first.beta
            columns["exact_beta"] = exact([outcome.beta for outcome in outcomes])
        return [outcome.summary() for outcome in outcomes], columns

    return _Source(ablator.removals(sets), ablator.slope_parts(), read)


def _source_of_outcome(
    ablator: Ablator, outcome: Outcome, sets: Sequence[tuple[HeadId, ...]], cache: Cache
) -> _Source:
    """The numbers of an outcome; of those that have slopes the effects of single heads."""
    unchanged = ablator.unchanged(outcome, cache)

    def read(removals: _Arrays, slopes: _Arrays) -> _Found:
        values = outcome.readings.by_tree(removals, len(sets))
        numbers = [outcome.summary(own) for own in values]
        columns = {}
        for name, estimate in ablator.estimates(outcome, unchanged, slopes).items():
            changes = [own[name] - numbers[0][name] for own in numbers]
            columns[f"effect_{name}"] = estimate
            columns[f"exact_{name}"] = _of_single_heads(changes, sets, estimate)
        return numbers, columns

    removals = ablator.removal_parts(outcome.readings, sets, outcome.name)
    return _Source(removals, ablator.estimate_parts(outcome, unchanged), read)


def _of_single_heads(
    changes: Sequence[float],
    sets: Sequence[tuple[HeadId, ...]],
    like: Float[np.ndarray, "layer head"],
) -> Float[np.ndarray, "layer head"]:
    """What is known of sets of one head, at their places; NaN for other heads."""
    every = np.full(like.shape, np.nan)
    for change, heads in zip(changes, sets, strict=True):
        if len(heads) == 1:
            every[heads[0].layer, heads[0].head] = change
    return every


def _agreement(heads: pd.DataFrame, n_resamples: int, rng: np.random.Generator) -> pd.DataFrame:
    """Spearman of every ranking with the size of the effects over heads."""
    names = [f"{kind}{end_of(one)}" for one in _DRAWN for kind in ("effect", "exact")]
    effects = [name for name in names if name in heads]
    sized = heads.assign(
        **{f"abs_{name}": heads[name].abs() for name in ("direct", *effects) if name in heads}
    )
    maps = [name for name in heads.columns if name.startswith("z_")]
    estimates = (f"abs_{name}" for name in effects if name.startswith("effect"))
    attributions = (name for name in ("importance", "abs_direct") if name in sized)
    rows = []
    for ranking in [*maps, *attributions, *estimates]:
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
