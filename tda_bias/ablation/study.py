"""Does a head's place in the topological ranking say what removing it does?

The one composition of ablation: heads of a run of ``head_bias`` are removed one at a time and
together, against random heads of the same layers; and over all heads, the topological maps and two
other attributions are held against the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import Field

from tda_bias.ablation.ablator import Ablation, Ablator, Outcomes, change
from tda_bias.ablation.first_order import FirstOrder
from tda_bias.ablation.random_sets import n_possible_sets, random_sets
from tda_bias.heads.maps import map_columns
from tda_bias.heads.result import HeadBias
from tda_bias.models.load import LanguageModel
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore
from tda_bias.runs.record import Number, RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.run import content_hash
from tda_bias.runs.text import counted
from tda_bias.runs.work import Job
from tda_bias.stats.resampling import standardised_ranks, two_sided_share
from tda_bias.types import HeadId, InputError, RankBy


class AblationRecord(RunRecord):
    """Everything needed to repeat an ablation.

    Attributes:
        run: Folder of the run whose heads were removed, as it was given.
        category: The map that ranked them.
        rank_by: Which of its values did.
        top: Heads from each end of the ranking.
        ablation: What replaces a removed head's output.
        precision: Of matrix products while heads were removed.
        n_random: Random sets of heads, all different.
        n_possible: How many different ones are possible; None in records of version 0.1.
        n_resamples: Permutations for the agreement.
        seed: Of random sets and permutations.
        triples: Number of texts' triples.
        twinned: How many of them have twins.
        twins: How the twins came about; None for a run without.
        share_prefix: Whether a triple's common beginning was run once.
        survivors: Heads of the map that survive correction.
        base: Summaries of the unchanged model.
    """

    command: str = "ablate"
    run: str | None = None
    category: str
    rank_by: RankBy
    top: int = Field(ge=1)
    ablation: Ablation | None = None
    precision: str = "float32"
    n_random: int
    n_possible: int | None = None
    n_resamples: int | None = None
    seed: int
    triples: int
    twinned: int = 0
    twins: dict[str, Any] | None = None
    share_prefix: bool
    survivors: int
    base: dict[str, Number]


EFFECT_COLUMNS = {"kind": str, "heads": str, "d_log_odds": float, "d_.+": float}
SET_TEST_COLUMNS = {
    "outcome": str,
    **{name: float for name in ("effect", "random_mean", "random_sd", "percentile")},
    "p": float,
}
HEAD_COLUMNS = {
    "layer": int,
    "head": int,
    "unstable": bool,
    **{name: float for name in ("effect", "importance", "direct", "exact")},
    r"(z|evidence)_.+": float,
}
AGREEMENT_COLUMNS = {"ranking": str, "n_.+": int, "rho_.+": float, "p_.+": float}
# Attribute of ``AblationStudy``, file and columns.
TABLES = (
    ("effects", "effects.csv", EFFECT_COLUMNS),
    ("set_tests", "set_tests.csv", SET_TEST_COLUMNS),
    ("heads", "heads.csv", HEAD_COLUMNS),
    ("agreement", "agreement.csv", AGREEMENT_COLUMNS),
)


ATTRIBUTIONS = ("importance", "abs_direct")
# Random sets that are asked for at least; where fewer are possible, all of them are drawn.
FEWEST_RANDOM = 20
# Kinds of sets for which further outcomes are measured too.
_WHOLE = ("none", "top_set", "random_set")


@dataclass(frozen=True)
class AblationStudy(SavedResult):
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
    TABLES = TABLES
    SHOWN = (
        ("the chosen heads against random ones", "set_tests"),
        ("agreement of rankings", "agreement"),
    )

    effects: pd.DataFrame
    set_tests: pd.DataFrame
    heads: pd.DataFrame
    agreement: pd.DataFrame
    record: AblationRecord

    def __repr__(self) -> str:
        return (
            f"AblationStudy({self.record.model.name}: {self.record.category}, "
            f"{counted(self.record.top, 'head')} from each end, "
            f"{counted(self.record.triples, 'triple')})"
        )

    @property
    def base(self) -> dict[str, float]:
        """Summaries of the unchanged model."""
        return self.record.base

    @property
    def has_beta(self) -> bool:
        """Tell whether there were twins, and so effects on beta."""
        return "exact_beta" in self.heads


def ablation_study(
    ablator: Ablator,
    run: HeadBias,
    *,
    category: str,
    top: int = 10,
    n_random: int = 20,
    n_resamples: int = 9999,
    seed: int = 0,
    behaviour: Callable[[LanguageModel], dict[str, float]] | None = None,
    store: PartStore | None = None,
    progress: Progress | None = None,
) -> AblationStudy:
    """Remove heads and compare.

    Args:
        ablator: On the texts whose outcomes count.
        run: The run whose maps rank the heads.
        category: The map.
        top: Heads from each end of the ranking.
        n_random: Random sets to hold the top heads against, at least 20.
        n_resamples: Permutations of heads for the agreement.
        seed: Of random heads and permutations.
        behaviour: Further summaries of a model, which is unchanged, or without the top heads
            together or a random set.
        store: Where finished batches are kept.
        progress: Called with finished steps and all.

    Raises:
        InputError: if there are too few heads for ``top`` or ``n_random`` is below 20.
        ShareDone: if the store's batches are shared by several processes and another one gathers.
    """
    rng = np.random.default_rng(seed)
    labelled, n_possible = head_sets(run, category, top=top, n_random=n_random, rng=rng)
    measured = _measured(ablator, labelled, behaviour, store, progress)
    outcomes, summaries = measured.outcomes, measured.summaries
    base = summaries[0]
    effects = pd.DataFrame(
        [
            {
                "kind": removal.kind,
                "heads": " ".join(map(str, removal.heads)),
                **change(summary, {name: base[name] for name in base if name in summary}),
            }
            for removal, summary in zip(labelled[1:], summaries[1:], strict=True)
        ]
    )
    heads = _head_table(measured.first_order, run, category, labelled, outcomes)
    return AblationStudy(
        effects=effects,
        set_tests=_set_tests(effects),
        heads=heads,
        agreement=_agreement(heads, n_resamples, rng),
        record=AblationRecord(
            model=run.record.model,
            made_from=_made_from(run),
            category=category,
            rank_by=run.rank_by,
            top=top,
            ablation=ablator.ablation,
            precision=ablator.precision,
            n_random=sum(removal.kind == "random_set" for removal in labelled),
            n_possible=n_possible,
            n_resamples=n_resamples,
            seed=seed,
            triples=len(outcomes[0].log_odds),
            twinned=int(np.isfinite(outcomes[0].beta).sum()),
            share_prefix=ablator.packed,
            survivors=len(run.survivors(category=category)),
            base=base,
        ),
    )


@dataclass(frozen=True)
class HeadSet:
    """Heads that are removed together.

    Attributes:
        kind: none; top, bottom or random for one head; top_set or random_set.
        heads: The heads.
    """

    kind: str
    heads: tuple[HeadId, ...]


def head_sets(
    run: HeadBias, category: str, *, top: int, n_random: int, rng: np.random.Generator
) -> tuple[list[HeadSet], int]:
    """Sets that a study removes: nothing, single heads, the top heads together, and random sets.

    Args:
        run: The run whose map ranks the heads.
        category: The map.
        top: Heads from each end of the ranking.
        n_random: Random sets; where fewer are possible, all of them.
        rng: Of what is drawn.

    Returns:
        The sets, and how many different random ones are possible.

    Raises:
        InputError: if there are too few heads for ``top`` or ``n_random`` is below 20.
    """
    if n_random < FEWEST_RANDOM:
        raise InputError(f"`n_random` must be at least {FEWEST_RANDOM}; got {n_random}")
    chosen = _chosen(run, category, top, rng)
    n_heads = run.category_map(category).shape[1]
    drawn = random_sets(chosen["top"], n_heads, n_random, rng=rng)
    sets = [HeadSet("none", ())]
    sets += [HeadSet(kind, (head,)) for kind, heads in chosen.items() for head in heads]
    sets += [HeadSet("top_set", tuple(chosen["top"]))]
    sets += [HeadSet("random_set", heads) for heads in drawn]
    return sets, n_possible_sets(chosen["top"], n_heads)


def _made_from(run: HeadBias) -> dict[str, str]:
    """The results that heads were chosen by, where they were read from a folder."""
    content = content_hash(run.record)
    return {} if content is None else {run.record.command: content}


def _chosen(
    run: HeadBias, category: str, top: int, rng: np.random.Generator
) -> dict[str, list[HeadId]]:
    """Heads from both ends of the ranking, and as many others of the top heads' layers."""
    total = run.category_map(category).size
    if not 1 <= top <= total // 3:
        raise InputError(f"`top` must lie between 1 and {total // 3} for {total} heads; got {top}")
    ranked = [HeadId(int(r["layer"]), int(r["head"])) for r in _ranked(run, category)]
    best, worst = ranked[:top], ranked[-top:]
    layers = {head.layer for head in best}
    rest = [h for h in ranked if h.layer in layers and h not in best and h not in worst]
    others = rng.choice(len(rest), size=min(top, len(rest)), replace=False)
    return {"top": best, "bottom": worst, "random": [rest[i] for i in others]}


def _ranked(run: HeadBias, category: str) -> list[dict[str, Any]]:
    table = run.top(10**9, category=category)
    return [{"layer": row.layer, "head": row.head} for row in table.itertuples()]


@dataclass(frozen=True)
class _Measured:
    """Outcomes without each set of heads, and the estimates for every head."""

    outcomes: list[Outcomes]
    first_order: FirstOrder
    summaries: list[dict[str, float]]


def _measured(
    ablator: Ablator,
    labelled: Sequence[HeadSet],
    behaviour: Callable[[LanguageModel], dict[str, float]] | None,
    store: PartStore | None,
    progress: Progress | None,
) -> _Measured:
    """Everything that is run: batches of texts without heads and with slopes, and behaviour."""
    sets = [removal.heads for removal in labelled]
    removals, slopes = ablator.removals(sets), ablator.slope_parts()
    further = [] if behaviour is None else _behaviours(ablator, labelled, behaviour)
    jobs = [*removals, *slopes, *further]
    parts = ablator.parts(jobs, store, progress)
    outcomes = ablator.outcomes(sets, islice(parts, len(removals)))
    first_order = ablator.first_order(islice(parts, len(slopes)))
    summaries = [outcome.summary() for outcome in outcomes]
    whole = (place for place, removal in enumerate(labelled) if removal.kind in _WHOLE)
    for values, place in zip(parts, whole, strict=bool(further)):
        summaries[place] |= {name: float(value) for name, value in values.items()}
    return _Measured(outcomes, first_order, summaries)


def _behaviours(
    ablator: Ablator,
    labelled: Sequence[HeadSet],
    behaviour: Callable[[LanguageModel], dict[str, float]],
) -> list[Job]:
    """One part per set of heads whose behaviour is measured."""
    # As much as all texts once: the published words and templates are many.
    cost = float(sum(ablator.readings.tokens))

    def job(number: int, heads: tuple[HeadId, ...]) -> Job:
        def computed() -> dict[str, np.ndarray]:
            with ablator.removed(heads):
                values = behaviour(ablator.model)
            return {name: np.array(value) for name, value in values.items()}

        about = {"heads": [str(head) for head in heads], **ablator.about}
        return Job(f"behaviour {number}", cost, lambda: about, computed)

    whole = [removal.heads for removal in labelled if removal.kind in _WHOLE]
    return [job(number, heads) for number, heads in enumerate(whole)]


def _set_tests(effects: pd.DataFrame) -> pd.DataFrame:
    rows = []
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
                "percentile": 100 * float(np.mean(null <= value)),
                "p": two_sided_share(null, value),
            }
        )
    return pd.DataFrame(rows)


def _maps_of(category: pd.DataFrame) -> dict[RankBy, str]:
    """Rankings that a run has, and the columns they stand in."""
    columns = {by: map_columns(by, category.columns).value for by in get_args(RankBy)}
    return {by: column for by, column in columns.items() if column in category}


def _head_table(
    first: FirstOrder,
    run: HeadBias,
    category: str,
    labelled: Sequence[HeadSet],
    outcomes: Sequence[Outcomes],
) -> pd.DataFrame:
    table = run.category[run.category["category"] == category]
    maps = {f"z_{by}": table[column] for by, column in _maps_of(table).items()}
    table = table[["layer", "head"]].assign(**maps, unstable=table["unstable"])
    table = table.reset_index(drop=True)
    at = table["layer"].to_numpy(), table["head"].to_numpy()
    for name in ("effect", "importance", "direct"):
        table[name] = getattr(first, name)[at]
    table["exact"] = _exact(table, labelled, [outcome.log_odds for outcome in outcomes])
    if np.isfinite(outcomes[0].beta).any():
        table["effect_beta"] = first.beta[at]
        table["exact_beta"] = _exact(table, labelled, [outcome.beta for outcome in outcomes])
    return table


def _exact(
    table: pd.DataFrame, labelled: Sequence[HeadSet], values: Sequence[Float[np.ndarray, " triple"]]
) -> list[float]:
    """Change of a mean over triples on removal of each head; NaN where it was not removed."""
    changes = {
        removal.heads: float(np.nanmean(value - values[0]))
        for removal, value in zip(labelled, values, strict=True)
        if len(removal.heads) == 1
    }
    ids = zip(table["layer"], table["head"], strict=True)
    return [changes.get((HeadId(int(layer), int(head)),), np.nan) for layer, head in ids]


def _agreement(heads: pd.DataFrame, n_resamples: int, rng: np.random.Generator) -> pd.DataFrame:
    """Spearman of every ranking with the size of the effects over heads."""
    effects = [n for n in ("effect", "exact", "effect_beta", "exact_beta") if n in heads.columns]
    sized = heads.assign(**{f"abs_{name}": heads[name].abs() for name in ("direct", *effects)})
    maps = [name for name in heads.columns if name.startswith("z_")]
    rankings = [*maps, *ATTRIBUTIONS, *(f"abs_{n}" for n in effects if n.startswith("effect"))]
    rows = []
    for ranking in rankings:
        row: dict[str, Any] = {"ranking": ranking}
        for name in effects:
            target = f"abs_{name}"
            both = sized[[ranking, target]].dropna() if ranking != target else sized.iloc[:0]
            correlation = (
                _spearman(both.to_numpy(float).T, n_resamples, rng) if len(both) > 3 else {}
            )
            row[f"n_{name}"] = len(both)
            row[f"rho_{name}"] = correlation.get("rho", np.nan)
            row[f"p_{name}"] = correlation.get("p", np.nan)
        rows.append(row)
    return pd.DataFrame(rows)


def _spearman(
    pair: Float[np.ndarray, "2 head"], n_resamples: int, rng: np.random.Generator
) -> dict[str, float]:
    first, second = (standardised_ranks(values) for values in pair)
    rho = float(first @ second)
    if np.isnan(rho):
        return {"rho": np.nan, "p": np.nan}
    null = rng.permuted(np.tile(first, (n_resamples, 1)), axis=1) @ second
    return {"rho": rho, "p": two_sided_share(null, rho)}
