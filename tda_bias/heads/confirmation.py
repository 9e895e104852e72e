"""Tests that heads which stand out on some targets stand out on others.

The heads that rank first on one half of the targets are tested on the other half, and the other way
round; over many splits. How often they replicate is compared with the same procedure on maps whose
labels were exchanged: choosing and testing are both in the chance line. By location it is compared
with as many random heads: where every target moves heads in a direction of its own, any head
replicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.config import ConfirmConfig
from tda_bias.heads.group_result import GroupResult, part_identity
from tda_bias.heads.hot_spots import (
    exchanged,
    flipped,
    location_under_exchange,
    location_under_flips,
    z_over_heads,
)
from tda_bias.heads.resampled import relative_terms, version_draws
from tda_bias.heads.result import HeadBias
from tda_bias.show.text import Finding, counted
from tda_bias.stats.correlation import standardised_ranks
from tda_bias.stats.resampling import (
    LEVEL,
    holm,
    permutation_pvalue,
    share_reached,
    threshold,
    value_needed,
)
from tda_bias.stats.seeds import generator
from tda_bias.stats.sign_flips import random_signs
from tda_bias.store.cache import Cache, Part
from tda_bias.store.record import RunRecord
from tda_bias.store.result import Result
from tda_bias.triples import load_triples
from tda_bias.types import InputError

By = Literal["evidence", "location"]
# Standardised values of a map that are closer are ties.
_TIE = 1e-9


def saved_groups(folder: Path, run: HeadBias, category: str) -> list[GroupResult]:
    """The groups of a category, as `tdabias heads` saved them in a folder.

    Raises:
        InputError: if one is missing, damaged, or of other settings than the run's.
    """
    model, groups = run.record.model, []
    identity = part_identity(
        run.record.config, model=model.name, weights=str(model.weights), dtype=str(model.dtype)
    )
    cache = Cache(folder / "groups", identity)
    for group in run.record.groups:
        if group.category != category:
            continue

        def missing(group: str = group.group) -> NoReturn:
            raise InputError(
                f"{folder / 'groups'} lacks the group {group!r}; the same `tdabias heads` command "
                "makes it again"
            )

        name = f"{category}/{group.group}"
        part = Part(name, 1.0, partial(getattr, group, "depends_on"), missing)
        groups.append(GroupResult.from_arrays(category, group.group, cache.get(part)))
    return groups


@dataclass(frozen=True)
class Confirmation:
    """Heads and maps that replicate between halves of the targets.

    Attributes:
        heads: One row per head that was chosen at least once: ``layer head chosen replicated``, the
            share of the halves in which it was among the first, and of these in which it had
            p <= .05 on the other half.
        replicated: Share of all chosen heads with p <= .05 on the other half.
        all_heads: The same share of all heads.
        chance: ``replicated`` where labels were exchanged, mean; about .05.
        p: Of ``replicated`` among the values under exchange; by location, among those of random
            heads in the place of the chosen ones.
        needed: The share above which p is below .05.
        correlation: Mean Spearman over heads between the maps of the halves.
        correlation_chance: The same under exchange.
        p_correlation: Of ``correlation``.
        record: Settings: targets, splits, whether these are all there are.
    """

    heads: pd.DataFrame
    replicated: float
    all_heads: float
    chance: float
    p: float
    needed: float
    correlation: float
    correlation_chance: float
    p_correlation: float
    record: dict[str, Any]


@dataclass(frozen=True, repr=False)
class Confirmed(Result):
    """A finished run of ``tdabias confirm``.

    Attributes:
        table: One row per head, or per item of a trained model.
        summary: The numbers, the ``finding``, and of what is printed the ``title``.
        record: Settings and model.
    """

    COMMAND = "confirm"
    RECORD = RunRecord
    TABLES = (("table", "confirm.csv", {}),)
    DOCUMENTS = (("summary", "summary.json"),)

    table: pd.DataFrame
    summary: dict[str, Any]
    record: RunRecord

    @property
    def finding(self) -> Finding:
        """What was found, and the commands that follow."""
        return Finding.of_values(self.summary["finding"])


def confirmation(
    results: Sequence[GroupResult],
    *,
    layers: Sequence[int],
    config: ConfirmConfig | None = None,
) -> Confirmation:
    """Choose on half of the targets, test on the other half, and back, over many splits.

    Args:
        results: The groups of one category; where any has twins, those without are left out.
        layers: The model's numbers of its layers with attention.
        config: Which ranking: the spread (``evidence``) or the shift (``location``); how many heads
            are chosen on a half, splits, exchanges, and the seed of both.

    Raises:
        InputError: if there are fewer than 2 targets, or not more heads than ``top``.
    """
    config = config or ConfirmConfig()
    by, top, n_splits, seed = config.rank_by, config.top, config.n_splits, config.seed
    n_resamples = config.n_permutations
    # As the run ranks them: by triples minus twins where there are any.
    twins = any(result.has_twins for result in results)
    given, results = len(results), [r for r in results if r.has_twins or not twins]
    if len(results) < 2:
        lacking = given - len(results)
        without = f" with twins, and {lacking} without, which are left out" if lacking else ""
        raise InputError(f"a confirmation needs at least 2 targets; got {len(results)}{without}")
    shape = results[0].contrast.location.shape[1:]
    if not 1 <= top < shape[0] * shape[1]:
        raise InputError(f"`top` must lie between 1 and {shape[0] * shape[1] - 1}; got {top}")
    maps = [_maps(result, by, twins, n_resamples, seed) for result in results]
    # The first row is the data, the others are exchanges: all go the same way.
    stacked = np.stack([np.concatenate([observed[None], null]) for observed, null in maps])
    chosen = np.zeros((2, shape[0] * shape[1]))
    # The first row is the heads themselves, the others put random heads in their places.
    n_heads, rng = chosen.shape[1], generator(seed, "random heads")
    others = [rng.permutation(n_heads) for _ in range(n_resamples)]
    heads = np.stack([np.arange(n_heads), *others])
    rates, of_random, everywhere = [], [], []
    correlations, halves = [], list(splits(len(results), n_splits, seed))
    for first in halves:
        other = [group for group in range(len(results)) if group not in first]
        sides = [_standardised(stacked[list(part)].mean(0)) for part in (first, other)]
        ranks = [np.nan_to_num(standardised_ranks(maps, axis=1)) for maps in sides]
        correlations.append((ranks[0] * ranks[1]).sum(1))
        for choosing, testing in (sides, sides[::-1]):
            places = np.argsort(-choosing, axis=1, kind="stable")[:, :top]
            small = _pvalues(testing) <= LEVEL
            rates.append(np.take_along_axis(small, places, axis=1).mean(1))
            of_random.append(small[0, heads[:, places[0]]].mean(1))
            everywhere.append(small[0].mean())
            chosen[0, places[0]] += 1
            chosen[1, places[0]] += small[0, places[0]]
    rate, correlation = np.mean(rates, axis=0), np.mean(correlations, axis=0)
    null = (np.mean(of_random, axis=0) if by == "location" else rate)[1:]
    ever = np.flatnonzero(chosen[0])
    table = pd.DataFrame(
        {
            "layer": np.asarray(layers)[ever // shape[1]],
            "head": ever % shape[1],
            "chosen": chosen[0, ever] / len(rates),
            "replicated": chosen[1, ever] / chosen[0, ever],
        }
    ).sort_values("chosen", ascending=False, kind="stable", ignore_index=True)
    return Confirmation(
        heads=table,
        replicated=float(rate[0]),
        all_heads=float(np.mean(everywhere)),
        chance=float(rate[1:].mean()),
        p=float(share_reached(null, rate[0])),
        needed=value_needed(null),
        correlation=float(correlation[0]),
        correlation_chance=float(correlation[1:].mean()),
        p_correlation=float(share_reached(correlation[1:], correlation[0])),
        record={
            "by": by,
            "twins": twins,
            "targets": [result.group for result in results],
            "without_twins": given - len(results),
            "top": top,
            "splits": len(halves),
            "all_splits": len(halves) == _n_splits(len(results)),
            "n_resamples": n_resamples,
            "seed": seed,
        },
    )


def splits(n: int, n_splits: int, seed: int) -> Iterator[tuple[int, ...]]:
    """One half of every split of n targets: all there are, or so many random ones.

    The half holds ``n // 2`` targets; of an even number each split is given once.
    """
    if _n_splits(n) <= n_splits:
        for half in combinations(range(n), n // 2):
            if n % 2 or 0 in half:
                yield half
        return
    rng = generator(seed, "splits of targets")
    for _ in range(n_splits):
        yield tuple(sorted(rng.permutation(n)[: n // 2].tolist()))


def _n_splits(n: int) -> int:
    return comb(n, n // 2) // (1 if n % 2 else 2)


def _maps(
    result: GroupResult, by: By, twins: bool, n_resamples: int, seed: int
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, "resample head"]]:
    """A group's part of the category's map, and the same under exchange."""
    rng = generator(seed, "confirmation", result.category, result.group)
    n, contrast = result.versions.n, result.contrast
    dims = contrast.location.shape[0]
    if by == "location":
        rows = contrast.rows()
        if twins:
            draws = version_draws(result.versions, n_resamples, rng, enumerated=False)
            null = location_under_exchange(draws, rows)
        else:
            signs = random_signs((n_resamples, n), rng)
            null = location_under_flips(signs, rows.of(slice(n)))
        observed = contrast.location_twin if twins else contrast.location
        mean = observed.reshape(dims, -1).mean(0), null.reshape(n_resamples, dims, -1).mean(1)
        return np.nan_to_num(mean[0], nan=1.0), np.nan_to_num(mean[1], nan=1.0)
    if twins:
        terms, given, weights = exchanged(result, n_resamples, rng)
    else:
        terms, given, weights = flipped(relative_terms(result.statistic), n_resamples, rng)
    observed, null = z_over_heads(np.abs(given @ terms)), z_over_heads(np.abs(weights @ terms))
    return np.nan_to_num(observed), np.nan_to_num(null)


def _standardised(maps: Float[np.ndarray, "row head"]) -> Float[np.ndarray, "row head"]:
    """Every head by its mean and SD under exchange."""
    mean, sd = maps[1:].mean(0), maps[1:].std(0)
    return np.asarray((maps - mean) / np.where(sd > 0, sd, 1.0))


def _pvalues(maps: Float[np.ndarray, "row head"]) -> Float[np.ndarray, "row head"]:
    """P of every row among all of them: (1 + others at least as large) over all."""
    below = [np.searchsorted(np.sort(head), threshold(head, tolerance=_TIE)) for head in maps.T]
    return permutation_pvalue(len(maps) - np.stack(below, axis=1), len(maps), exact=True)


# -- other data ------------------------------------------------------------------------------------


def confirmed_on(
    run: HeadBias,
    other: HeadBias,
    *,
    category: str | None = None,
    by: By = "evidence",
    top: int = 10,
) -> pd.DataFrame:
    """The heads that rank first in a run, tested in a run on other targets.

    Args:
        run: Where heads are chosen.
        other: Where they are tested: the same model, and no target in common.
        category: The category of both, where they have several.
        by: The ranking.
        top: Number of heads to test.

    Returns:
        Columns ``layer head z z_other p_other p_holm``; Holm's p is for the heads tested together.

    Raises:
        InputError: if the weights differ, the runs share a target, or only one has twins.
    """
    if run.record.model.weights != other.record.model.weights:
        raise InputError("the runs are of models with different weights: nothing can be confirmed")
    _refuse_shared(run, other.groups["group"], "the other run")
    columns = [result.columns(category, by=by) for result in (run, other)]
    if columns[0] != columns[1]:
        raise InputError("one run has twins and the other has none; run both alike")
    chosen = run.top(top, category=category, by=by)[["layer", "head", "z"]]
    tested = other.top(None, category=category, by=by).set_index(["layer", "head"])
    places = list(zip(chosen["layer"], chosen["head"], strict=True))
    rows = tested.loc[places]
    table = chosen.assign(z_other=rows["z"].to_numpy(), p_other=rows["p"].to_numpy())
    return table.assign(p_holm=holm(table["p_other"].to_numpy(float)))


def refuse_shared_targets(run: HeadBias, category: str, data: str) -> None:
    """Raise an ``InputError`` if other data has a target of a run."""
    there = (triple.group for triple in load_triples(data, category=category))
    _refuse_shared(run, there, f"`data` {data}")


def _refuse_shared(run: HeadBias, groups: Iterable[str], what: str) -> None:
    targets = {str(group).casefold() for group in run.groups["group"]}
    if shared := sorted({group for group in groups if group.casefold() in targets}):
        raise InputError(
            f"{what} shares {counted(len(shared), 'target')} with the run "
            f"({', '.join(shared[:3])}): heads chosen on a target cannot be confirmed on it; give "
            "data with other targets"
        )
