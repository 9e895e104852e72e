"""Does a head's place in the topological ranking say what removing it does?

The one composition of ablation: heads of a run of ``head_bias`` are removed one at a time and
together, against random heads of the same layers; and over all heads, the topological maps and two
other attributions are held against the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.behaviour.ablation import Ablator, Outcomes, change
from tda_bias.behaviour.ablation_record import TABLES, AblationRecord
from tda_bias.behaviour.random_sets import random_sets
from tda_bias.records.parts import PartStore
from tda_bias.records.record import updated
from tda_bias.records.runs import content_hash, open_run
from tda_bias.records.writing import writing_run
from tda_bias.resampling import standardised_ranks, two_sided_share
from tda_bias.results.head_bias import HeadBias
from tda_bias.results.maps import map_columns
from tda_bias.types import HeadId, InputError, RankBy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[int, int], None]
ATTRIBUTIONS = ("importance", "abs_direct")


@dataclass(frozen=True)
class AblationStudy:
    """What removing heads changed.

    Attributes:
        effects: One row per set of heads: ``kind`` (top, bottom, random: one head; top_set,
            random_set), ``heads``, and the change of every summary, ``d_...``.
        set_tests: One row per summary: the effect of the top heads together, its percentile among
            random sets of the same layers, and a two-sided p of its size.
        heads: One row per head: the maps, first-order effect, the other attributions, and the
            exact effect on the log-odds where it was measured.
        agreement: One row per ranking: Spearman over heads with the size of the first-order and of
            the exact effect, with permutation p.
        record: Settings and counts.
    """

    effects: pd.DataFrame
    set_tests: pd.DataFrame
    heads: pd.DataFrame
    agreement: pd.DataFrame
    record: AblationRecord

    def __repr__(self) -> str:
        return (
            f"AblationStudy({self.record.model.name}: {self.record.category}, "
            f"{self.record.top} heads from each end, {self.record.triples} triples)"
        )

    @property
    def base(self) -> dict[str, float]:
        """Summaries of the unchanged model."""
        return self.record.base

    def save(self, folder: str | Path, *, figures: Mapping[str, Figure] | None = None) -> None:
        """Write one CSV per table, figures and ``run.json``: all of them, or none.

        Args:
            folder: Where to.
            figures: By name, drawn from this study.

        Raises:
            InputError: if the folder cannot be written.
        """
        with writing_run(folder, self.record) as run:
            for attribute, name, _ in TABLES:
                run.table(name, getattr(self, attribute))
            for name, figure in (figures or {}).items():
                run.figure(name, figure)

    @classmethod
    def load(cls, folder: str | Path) -> AblationStudy:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, "ablate")
        record = run.record_as(AblationRecord)
        return cls(
            **{name: run.table(file, schema) for name, file, schema in TABLES}, record=record
        )

    def with_record(self, **entries: Any) -> AblationStudy:
        """The same study with further entries in its record; new ones win."""
        return replace(self, record=updated(self.record, entries))


def ablation_study(
    ablator: Ablator,
    run: HeadBias,
    *,
    category: str,
    top: int = 10,
    n_random: int = 20,
    n_resamples: int = 9999,
    seed: int = 0,
    behaviour: Callable[[], dict[str, float]] | None = None,
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
        behaviour: Further summaries, called with heads removed: of the unchanged model, the top
            heads together, and every random set.
        store: Where finished batches are kept.
        progress: Called with finished steps and all.

    Raises:
        InputError: if there are too few heads for ``top`` or ``n_random`` is below 20.
    """
    if n_random < 20:
        raise InputError(f"`n_random` must be at least 20; got {n_random}")
    rng = np.random.default_rng(seed)
    chosen = _chosen(run, category, top, rng)
    sets = random_sets(chosen["top"], run.category_map(category).shape[1], n_random, rng=rng)
    labelled: list[tuple[str, tuple[HeadId, ...]]] = [("none", ())]
    labelled += [(kind, (head,)) for kind, heads in chosen.items() for head in heads]
    labelled += [("top_set", tuple(chosen["top"])), *(("random_set", own) for own in sets)]
    outcomes = ablator.without([heads for _, heads in labelled], store=store, progress=progress)
    summaries = [outcome.summary() for outcome in outcomes]
    if behaviour is not None:
        _add_behaviour(ablator, labelled, summaries, behaviour)
    base = summaries[0]
    effects = pd.DataFrame(
        [
            {
                "kind": kind,
                "heads": " ".join(map(str, heads)),
                **change(summary, {name: base[name] for name in base if name in summary}),
            }
            for (kind, heads), summary in zip(labelled[1:], summaries[1:], strict=True)
        ]
    )
    heads = _head_table(ablator, run, category, labelled, outcomes)
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
            ablation="zero" if ablator.replacement is None else "mean",
            n_random=len(sets),
            n_resamples=n_resamples,
            seed=seed,
            triples=len(outcomes[0].log_odds),
            share_prefix=ablator.packed,
            survivors=len(run.survivors(category=category)),
            base=base,
        ),
    )


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


def _add_behaviour(
    ablator: Ablator,
    labelled: Sequence[tuple[str, tuple[HeadId, ...]]],
    summaries: list[dict[str, float]],
    behaviour: Callable[[], dict[str, float]],
) -> None:
    for (kind, heads), summary in zip(labelled, summaries, strict=True):
        if kind in ("none", "top_set", "random_set"):
            with ablator.removed(heads):
                summary |= behaviour()


def _set_tests(effects: pd.DataFrame) -> pd.DataFrame:
    rows = []
    random = effects[effects["kind"] == "random_set"]
    own = effects[effects["kind"] == "top_set"].iloc[0]
    for name in (column for column in effects.columns if column.startswith("d_")):
        null, value = random[name].to_numpy(float), float(own[name])
        rows.append(
            {
                "outcome": name.removeprefix("d_"),
                "effect": value,
                "random_mean": float(null.mean()),
                "random_sd": float(null.std(ddof=1)) if len(null) > 1 else float("nan"),
                "percentile": 100 * float(np.mean(null <= value)),
                "p": two_sided_share(null, value),
            }
        )
    return pd.DataFrame(rows)


def _head_table(
    ablator: Ablator,
    run: HeadBias,
    category: str,
    labelled: Sequence[tuple[str, tuple[HeadId, ...]]],
    outcomes: Sequence[Outcomes],
) -> pd.DataFrame:
    first = ablator.first_order()
    table = run.category[run.category["category"] == category]
    maps = {f"z_{by}": table[column] for by, column in _maps_of(table).items()}
    table = table[["layer", "head"]].assign(**maps, unstable=table["unstable"])
    table = table.reset_index(drop=True)
    at = table["layer"].to_numpy(), table["head"].to_numpy()
    table["effect"] = first.effect[at]
    table["importance"] = first.importance[at]
    table["direct"] = first.direct[at]
    exact = {
        heads[0]: float((outcome.log_odds - outcomes[0].log_odds).mean())
        for (_, heads), outcome in zip(labelled, outcomes, strict=True)
        if len(heads) == 1
    }
    ids = [HeadId(int(layer), int(head)) for layer, head in zip(*at, strict=True)]
    table["exact"] = [exact.get(head, np.nan) for head in ids]
    return table


def _maps_of(category: pd.DataFrame) -> dict[RankBy, str]:
    """Rankings that a run has, and the columns they stand in."""
    columns = {by: map_columns(by, category.columns).value for by in get_args(RankBy)}
    return {by: column for by, column in columns.items() if column in category}


def _agreement(heads: pd.DataFrame, n_resamples: int, rng: np.random.Generator) -> pd.DataFrame:
    """Spearman of every ranking with the size of the effects over heads."""
    own = heads.assign(abs_direct=heads["direct"].abs(), abs_effect=heads["effect"].abs())
    own["abs_exact"] = own["exact"].abs()
    rows = []
    maps = [name for name in heads.columns if name.startswith("z_")]
    for ranking in (*maps, *ATTRIBUTIONS, "abs_effect"):
        row: dict[str, Any] = {"ranking": ranking}
        for target in ("abs_effect", "abs_exact"):
            both = own[[ranking, target]].dropna() if ranking != target else own.iloc[:0]
            found = _spearman(both.to_numpy(float).T, n_resamples, rng) if len(both) > 3 else {}
            row[f"n_{target[4:]}"] = len(both)
            row[f"rho_{target[4:]}"] = found.get("rho", np.nan)
            row[f"p_{target[4:]}"] = found.get("p", np.nan)
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
