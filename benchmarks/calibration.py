"""Levels of the printed p-values and coverage of the printed intervals, by simulation.

Every number is rejected or missed by the function that prints it, on made-up data without any
effect: 242 items of ten targets of StereoSet's sizes, items of three shapes, targets that resemble
themselves more or less. A p of .05 should reject in 5 % of cases, an interval of 95 % should hold
the truth in 95 %. Seeds are fixed; half an hour on one core. Run with
``python -m benchmarks.calibration``, which prints the rows of ``TABLE``. Those that miss their
level are on docs/method/calibration.md.

Each function below draws one case after the other, under one condition: a column of its table.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.rankings import across_sources
from pvf.risk import Risk, decompose, risk_intervals, x_intervals
from tda_bias.ablation.prune_curve import RANDOM, _chosen
from tda_bias.ablation.study import _agreement, set_tests
from tda_bias.comparison.beta_agreement import agreement as beta_agreement
from tda_bias.comparison.head_maps import _moved
from tda_bias.comparison.outcome import Guard, is_kept, paired_change
from tda_bias.config import ConfirmConfig, HeadBiasConfig
from tda_bias.crossref.item_crossref import item_tests
from tda_bias.crossref.rank_tests import correlations, head_map
from tda_bias.crossref.rankings import agreement
from tda_bias.heads.confirmation import confirmation
from tda_bias.heads.group_result import GroupResult, joined_layers, layer_numbers, random_halves
from tda_bias.heads.group_statistic import GroupLayout
from tda_bias.heads.items import ItemDifferences
from tda_bias.heads.tables import of_two_tests, tables
from tda_bias.scores.beta import TwinSets, exchange_test
from tda_bias.scores.stereoset import _scores_of, icat, wins
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import holm, permutation_pvalue, share_reached
from tda_bias.stats.sign_flips import flip_pvalue
from unqover.bias import aggregates, chance, group_intervals, model_intervals, sums

Rng = np.random.Generator
# What was rejected, or held the truth, in one case after the other.
Cases = Iterator[dict[str, Any]]
SIZES = (21, 21, 21, 23, 24, 26, 26, 26, 27, 27)
TARGET = np.repeat(np.arange(10), SIZES)
# All rows, as `main` prints them.
TABLE = Path(__file__).with_name("calibration.csv")
SHAPES = ("normal", "skewed", "heavy tails")
# Intraclass correlations: of targets that do not differ, of beta's, and of four times as much.
ALIKE = (0.0, 0.013, 0.05)
LEVEL = 0.05


def drawn(shape: str, size: tuple[int, ...], rng: Rng) -> np.ndarray:
    """Values of mean 0 and variance 1; heavy tails are those of t with 3 degrees of freedom."""
    match shape:
        case "normal":
            return rng.standard_normal(size)
        case "skewed":
            return rng.exponential(size=size) - 1
        case _:
            return rng.standard_t(3, size) / np.sqrt(3)


def mixed(own: np.ndarray, shared: np.ndarray, alike: float) -> np.ndarray:
    """Values of which the share ``alike`` of the variance is shared."""
    return np.asarray(np.sqrt(1 - alike) * own + np.sqrt(alike) * shared)


def items(shape: str, alike: float, rng: Rng, extra: tuple[int, ...] = ()) -> np.ndarray:
    """Differences of items of ten targets, without any effect."""
    own, shared = drawn(shape, (len(TARGET), *extra), rng), drawn(shape, (10, *extra), rng)
    return mixed(own, shared[TARGET], alike)


def of_many(shape: str, alike: float) -> np.ndarray:
    """Items of as many targets: the truth of shares."""
    rng = np.random.default_rng(0)
    own, shared = drawn(shape, (2_000_000,), rng), drawn(shape, (2_000_000,), rng)
    return mixed(own, shared, alike)


def within(limits: tuple[float, float], truth: float) -> bool:
    return limits[0] <= truth <= limits[1]


# -- items of ten targets --------------------------------------------------------------------------


def items_and_targets(rng: Rng, alike: float, shape: str) -> Cases:
    """Numbers over targets and over items."""
    many = of_many(shape, alike)
    above, median = float((many > 0).mean()), float(np.median(many))

    def exchanged(values: np.ndarray) -> tuple[float, float]:
        sets = TwinSets(np.column_stack([values, 0 * values]), np.full(len(values), 2))
        return exchange_test(sets, n_resamples=199, rng=rng)

    while True:
        values = items(shape, alike, rng)
        won = cluster_mean((values > 0).astype(float), TARGET)
        over_targets, over_folds, over_items = (
            cluster_mean(values, cluster).limits() for cluster in (TARGET, TARGET % 5, None)
        )
        held, passed = change(values, rng)
        # A share of one half is the absence of an effect on it.
        (p, _), (_, p_share) = exchanged(values), exchanged(values - median)
        signs = flip_pvalue(np.sign(values - median), TARGET, rng=rng)
        yield {
            "interval of a mean over targets": within(over_targets, 0),
            "interval of a mean over five folds of two targets": within(over_folds, 0),
            "interval of a change over three trainings (compare)": held,
            "guard passed with the loss on its margin (compare)": passed,
            "interval of a share over targets (beta > 0)": within(won.share_limits(), above),
            "p over targets (beta, compare, confirm)": flip_pvalue(values, TARGET, rng=rng)
            <= LEVEL,
            "p over targets of a share (beta > 0)": signs <= LEVEL,
            "interval of a mean over items": within(over_items, 0),
            "p over items (beta)": p <= LEVEL,
            "p over items of a share (beta > 0)": p_share <= LEVEL,
        }


def change(values: np.ndarray, rng: Rng) -> tuple[bool, bool]:
    """The mean of three trainings, which differ by a tenth of an item's deviation.

    And its one-sided bound: the truth lies on the margin, and passing it is the error.
    """
    table = pd.DataFrame({"cluster": TARGET, "weight": 1.0, "before": 0.0})
    for name in ("after", "after_2", "after_3"):
        table[name] = values + 0.1 * rng.standard_normal()
    guard = Guard(1e-9, 1, "")
    found = paired_change(table, tested=False, guard=guard)
    return within((found.low, found.high), 0), is_kept(guard, found.worst)


def stereoset(rng: Rng, shift: float, shape: str) -> Cases:
    """Scores of items whose preferences are shifted by so many deviations."""
    values, language = of_many(shape, 0.013).reshape(2, -1)
    values = values + shift
    truth = {"ss": 100 * float((values > 0).mean())}
    truth["lms"] = 50 * float((values > -1 - language).mean() + (language > -1).mean())
    truth["icat"] = icat(truth["lms"], truth["ss"])
    while True:
        values, language = (items(shape, 0.013, rng) for _ in range(2))
        table = pd.DataFrame({"category": "gender", "group": TARGET.astype(str)})
        for role, value in (("s", values + shift), ("a", 0 * values), ("u", -1 - language)):
            table[f"log_prob_{role}"], table[f"tokens_{role}"] = value, 1
        row = _scores_of(wins(table), 0.95)
        yield {
            f"interval of {name}": within((row[f"{name}_low"], row[f"{name}_high"]), value)
            for name, value in truth.items()
        }


def all_flips(rng: Rng) -> Cases:
    """All flips of six skewed values of mean 0, a null that is not symmetric."""
    while True:
        p = flip_pvalue(rng.exponential(size=6) - 1, np.arange(6), rng=rng)
        yield {"p of all flips": p <= LEVEL}


# -- heads -----------------------------------------------------------------------------------------

# Columns of the tables of `heads`: of a target's heads, and of a category's map.
IN_TARGET = {"location": "location", "location, twins": "location_twin"}
IN_TARGET |= {"dispersion": "paired", "dispersion, twins": "dispersion_twin"}
OF_MAP = {"location": "location", "dispersion": "relative"}
OF_MAP |= {f"{name}, twins": f"{column}_twin" for name, column in OF_MAP.items()}


def made_up_heads(shape: str, alike: float, rng: Rng) -> list[GroupResult]:
    """Ten targets with twins, ten heads of four steps.

    The anti-stereotype texts of triples have the shape; those of twins and all stereotype texts
    are normal. So differences, and triples minus twins, are skewed where these are.
    """
    results, n_heads, n_steps = [], 10, 4
    for target, n in enumerate(SIZES):
        layout = GroupLayout(n, n, np.arange(n))
        texts = rng.standard_normal((layout.n_texts, n_heads, n_steps))
        own = drawn(shape, (n, n_heads, n_steps), rng)
        texts[layout.anti] = mixed(own, drawn(shape, (n_heads, n_steps), rng), alike)
        context = rng.standard_normal((n, n_heads, n_steps))
        for places in (layout.stereotype_of_version, layout.anti_of_version):
            texts[places] += np.tile(context, (2, 1, 1))
        columns = np.moveaxis(texts - texts.mean(0), 1, 0)
        gram = columns @ columns.mT / n_steps
        numbers = layer_numbers(gram, texts.sum(2).T, layout, random_halves(n, 2, rng))
        arrays = joined_layers([[numbers, numbers]], 1) | {
            "n_tokens": np.full((n, 3), 9),
            "n_steps": np.full(2, n_steps),
            "length_statistic": np.zeros(2),
            "versions": layout.versions.context,
            "provenance": np.array("{}"),
        }
        results.append(GroupResult.from_arrays("made up", str(target), arrays))
    return results


def heads(rng: Rng, shape: str, alike: float) -> Cases:
    """Every p of `heads`, of both kinds of `confirm`, and of heads that move between two runs."""
    before: pd.DataFrame | None = None
    while True:
        results, seed = made_up_heads(shape, alike, rng), int(rng.integers(2**31))
        config = HeadBiasConfig(n_permutations=99, seed=seed)
        made = tables(results, config, model="made up", layers=(0,))
        own, of_map, found = made.table.groupby("group"), made.category, {}
        for name, column in IN_TARGET.items():
            found[f"p in a target, {name}"] = (made.table[f"p_{column}"] <= LEVEL).mean()
            family = "p_max" if column == "paired" else f"p_max_{column}"
            found[f"p in a target, {name}, family-wise"] = (own[family].min() <= LEVEL).mean()
        for name, column in OF_MAP.items():
            found[f"p of the map, {name}"] = (of_map[f"p_{column}"] <= LEVEL).mean()
            found[f"p of the map, {name}, family-wise"] = of_map[f"p_max_{column}"].min() <= LEVEL
        # As `HeadBias.found`: by the dispersion test with twins, else by location family-wise.
        first = of_map[["p_max_relative_twin", "q_relative_twin"]].min(axis=None)
        second = of_two_tests(of_map["p_max_location_twin"]).min()
        found["a head is found, either test"] = min(first, second) <= LEVEL
        few: dict[str, Any] = {"top": 3, "n_splits": 10, "n_permutations": 99, "seed": seed}
        for by, name in (("evidence", "dispersion"), ("location", "location")):
            split = confirmation(results, layers=(0,), config=ConfirmConfig(rank_by=by, **few))
            found[f"p of confirm, {name}, halves"] = split.p <= LEVEL
            found[f"p of confirm, {name}, correlation"] = split.p_correlation <= LEVEL
        if before is not None:
            chosen = before["evidence_location_twin"].nlargest(3).index
            adjusted = holm(of_map.loc[chosen, "p_location_twin"].to_numpy())
            found["p of confirm, location, new data (Holm)"] = adjusted.min() <= LEVEL
            moved = _moved(location_map(before), location_map(of_map))
            found["p of a head that moved (compare)"] = (moved["p"] <= LEVEL).mean()
        before = of_map
        yield found


def location_map(of_map: pd.DataFrame) -> Any:
    """As much of a run's map as is compared."""
    names = {"value": "z", "expected": "z_null", "noise": "sd_null"}
    rows = {name: of_map[f"{z}_location_twin"].to_numpy()[None] for name, z in names.items()}
    return SimpleNamespace(layers=(0,), **rows)


# -- heads and what the model says -----------------------------------------------------------------


def over_targets(rng: Rng, shape: str) -> Cases:
    """Ten targets of one category."""
    heads = pd.MultiIndex.from_product([range(2), range(10)], names=["layer", "head"])
    index = pd.MultiIndex.from_product([["gender"], range(10)], names=["category", "target"])
    while True:
        names = ["r", "mean_T", "n_items", "tokens", "zipf"]
        table = pd.DataFrame(drawn(shape, (10, 5), rng), columns=names).assign(category="gender")
        row = correlations(table, ["r"], ["mean_T"], n_resamples=199, rng=rng).iloc[0]
        vectors = pd.DataFrame(drawn(shape, (10, 20), rng), index=index, columns=heads)
        of_heads, _ = head_map(vectors, table["r"], n_resamples=199, rng=rng)
        yield {
            "p over targets (crossref)": row["p"] <= LEVEL,
            "partial p over targets, three covariates (crossref)": row["p_partial"] <= LEVEL,
            "interval of a rank correlation over targets": within((row["low"], row["high"]), 0),
            "p of a head over targets (crossref)": (of_heads["p"] <= LEVEL).mean(),
            "p of a head over targets, family-wise": of_heads["p_max"].min() <= LEVEL,
        }


def over_items(rng: Rng, shape: str) -> Cases:
    """Items of ten targets, which differ on both sides."""
    n = len(TARGET)
    names = pd.DataFrame({"category": "gender", "group": TARGET, "id": np.arange(n)})
    while True:
        measured = {"sum": items(shape, 0.05, rng, (1, 1, 20))}
        said = pd.DataFrame({"id": np.arange(n), "log_prob_a": 0.0})
        said["log_prob_s"] = said["beta_sum"] = items(shape, 0.05, rng)
        for role in "sa":
            said[f"tokens_{role}"] = rng.integers(5, 15, n)
        made = ItemDifferences(names, (0,), measured, measured)
        tests, *_ = item_tests(made, said, n_resamples=199, seed=int(rng.integers(2**31)))
        found = {}
        for way, of_way in tests.groupby("way"):
            found[f"p of a head over items, {way} (crossref)"] = (of_way["p"] <= LEVEL).mean()
            found[f"p of a head over items, {way}, family-wise"] = of_way["p_max"].min() <= LEVEL
        yield found


def rankings(rng: Rng, between: float) -> Cases:
    """Two skewed rankings of 12 x 12 heads, whose layers differ."""
    layer, head = np.divmod(np.arange(144), 12)
    known = dict.fromkeys("abcd", 1.0)

    def values() -> np.ndarray:
        own, shared = drawn("skewed", (144,), rng), drawn("skewed", (12,), rng)
        return mixed(own, shared[layer], between)

    while True:
        seed = int(rng.integers(2**31))
        table = pd.DataFrame({"layer": layer, "head": head})
        for name in "abcd":
            table[name] = values()
        pair = agreement(table, [("a", "b")], n_resamples=199, seed=seed).iloc[0]
        both = across_sources(table, "ab", "cd", known, n_resamples=199, seed=seed)
        study = table.rename(columns={"a": "z_evidence", "b": "effect", "c": "direct"})
        study = study.assign(importance=values(), exact=np.nan)
        study = study.assign(exact_beta=np.nan, effect_beta=study["d"])
        over = _agreement(study, 199, rng).set_index("ranking").loc["z_evidence"]
        yield {
            "p of two rankings (crossref, published)": pair["p"] <= LEVEL,
            "p of two rankings within layers": pair["p_within_layers"] <= LEVEL,
            "p of the overlap of their tops": pair["p_overlap"] <= LEVEL,
            "p of two sources (published)": both["p"] <= LEVEL,
            "p of a ranking and effects (ablate)": over["p_effect"] <= LEVEL,
            "p of a ranking and effects on beta (ablate)": over["p_effect_beta"] <= LEVEL,
        }


def two_models(rng: Rng, alike: float) -> Cases:
    """Beta of two models, skewed; targets differ on both sides by their resemblance."""
    while True:
        x, y = (items("skewed", alike, rng) for _ in range(2))
        rows = beta_agreement(x, y, TARGET, n_resamples=199, rng=rng)
        yield {f"p of beta over {row['over']} (compare)": row["p"] <= LEVEL for row in rows}


# -- chosen heads against random ones --------------------------------------------------------------


def random_sets(rng: Rng, n_sets: int, between: float) -> Cases:
    """A ranking that is one more random set, where sets differ.

    The interval is about this set on targets that nobody saw, in folds of two targets.
    """
    while True:
        own = 0.05 * rng.standard_normal((1 + n_sets, len(TARGET)))
        shared = 0.01 * rng.standard_normal((1 + n_sets, 10))[:, TARGET]
        by_itself = between * rng.standard_normal(1 + n_sets)
        beta = own + shared + by_itself[:, None]
        left = beta.mean(1)
        p = permutation_pvalue(np.sum(left[1:] <= left[0]), n_sets, exact=False)
        kinds = ["top_set", *["random_set"] * n_sets]
        tested = set_tests(pd.DataFrame({"kind": kinds, "d_beta": left}))
        apart = cluster_mean(beta[0] - beta[1:].mean(0), TARGET // 2)
        limits = apart.plus(cluster_mean(left[1:])).limits()
        interval = f"interval of *less than random heads*, {n_sets} sets (debias)"
        yield {
            interval: within(limits, by_itself[0]),
            f"p over {n_sets} random sets (debias)": p <= LEVEL,
            f"p over {n_sets} random sets (ablate)": tested.loc[0, "p"] <= LEVEL,
        }


def random_orders(rng: Rng, shape: str) -> Cases:
    """A ranking that is one more random order of `ablate --curve`, 19 of them.

    What is left of beta is 0.05 without and about that with every number of heads; half of the
    targets choose.
    """
    test = TARGET % 2 == 1
    places = [("a", 0), *((RANDOM, draw) for draw in range(19))]
    while True:
        base, rows = items(shape, 0.013, rng), []
        for name, draw in places:
            effect = np.zeros(len(TARGET))
            for k in (0, 1, 2, 4, 8):
                left = 0.1 + base + effect
                mean = cluster_mean(left[test], TARGET[test])
                low, high = mean.limits()
                limits = {"beta_test_low": low, "beta_test_high": high}
                row = {"ranking": name, "draw": draw, "k": k, "log_ppl": 3.0, **limits}
                rows.append(row | {"beta_choose": left[~test].mean(), "beta_test": mean.mean})
                effect = effect + 0.3 * items(shape, 0.013, rng)
        chosen = _chosen(pd.DataFrame(rows), "beta", ["a"]).iloc[0]
        held = within((chosen["test_low"], chosen["test_high"]), 0.1)
        yield {
            "p over 19 random orders (ablate --curve)": chosen["p_random"] <= LEVEL,
            "interval of what is left, five targets (ablate --curve)": held,
        }


# -- words and questions ---------------------------------------------------------------------------


def pvf_risks(rng: Rng, n_templates: int) -> Cases:
    """R, R_p and R_v of 40 words, and r, r_p and r_v of a word."""
    truth_rng = np.random.default_rng(5)
    every = truth_rng.normal(0, 0.5, 2000)
    whole = made_up_risk(every, 2000, truth_rng)
    truth, each = [whole.R, whole.R_p, whole.R_v], np.stack([whole.r, whole.r_p, whole.r_v])
    while True:
        chosen = rng.choice(2000, 40, replace=False)
        risk = made_up_risk(every[chosen], n_templates, rng)
        low, high = risk_intervals(risk)["both"]
        found = {
            f"interval of {name} (pvf)": within((low[i], high[i]), truth[i])
            for i, name in enumerate(("R", "R_p", "R_v"))
        }
        low, high = x_intervals(risk)
        held = ((low <= each[:, chosen]) & (each[:, chosen] <= high)).astype(float)
        # A word whose templates all lean one way has no volatility, and no interval of it.
        held = np.nanmean(np.where(np.isfinite(low), held, np.nan), axis=1)
        of_words = (f"interval of {name} of a word (pvf)" for name in ("r", "r_p", "r_v"))
        yield found | dict(zip(of_words, held, strict=True))


def made_up_risk(words: np.ndarray, n_templates: int, rng: Rng) -> Risk:
    templates = rng.normal(0, 0.5, (1, n_templates))
    noise = rng.normal(0, 0.3, (len(words), n_templates))
    p = 1 / (1 + np.exp(-(0.5 + words[:, None] + templates + noise)))
    return decompose(np.stack([p, 1 - p], axis=-1))


def questions(rng: Rng, lean: float) -> Cases:
    """Two groups of ten names, 10 attributes; every name leans its own way, by so much."""
    first, second = np.divmod(np.arange(100), 10)
    group = np.repeat([0, 1], 10)
    while True:
        own = rng.normal(0, lean, (20, 10)) if lean else np.zeros((20, 10))
        noise = 0.05 * rng.laplace(size=(100, 4, 10))
        none = (own[first] - own[second + 10])[:, None] + noise
        given = sums(none, first, second + 10, 20)
        both = aggregates(given, group)
        null = chance(given, group, n_flips=99, rng=rng)
        p = share_reached(null.T, np.array([both.mu, both.mean_eta]))
        found = {"p of mu": p[0] <= LEVEL, "p of eta": p[1] <= LEVEL}
        of_groups = group_intervals(given, group, n_resamples=200, rng=rng)
        found["p of gamma"] = of_groups.pvalue[0, 0] <= LEVEL
        bias = rng.normal(0, 0.1, 10)
        given = sums(none + bias, first, second + 10, 20)
        mu, _ = model_intervals(given, group, group=group)
        found["interval of mu"] = within(mu, float(np.abs(bias).max()))
        of_groups = group_intervals(given, group, n_resamples=200, rng=rng)
        inside = (of_groups.low[0] <= bias) & (bias <= of_groups.high[0])
        found["interval of gamma"] = inside.mean()
        yield {f"{name} (unqover)": held for name, held in found.items()}


# -- the tables ------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A table: what its columns are, the cases of each, their conditions, and what draws them."""

    about: str
    cases: int
    conditions: list[tuple[Any, ...]]
    draws: tuple[Callable[..., Cases], ...]


class Row(NamedTuple):
    """Share of simulated cases in which a p rejects, or an interval holds, by condition."""

    name: str
    cases: int
    shares: list[float]


_SHAPES = "items that are normal, skewed, heavy-tailed"
_EACH = [(shape,) for shape in SHAPES]
_SETS = list(product((5, 19, 20), (0.0, 0.003, 0.01)))
PARTS = {
    "items": Part(f"{_SHAPES}; targets alike, ICC .013, ICC .05", 500,
                  list(product(ALIKE, SHAPES)), (items_and_targets,)),
    "scores": Part(f"{_SHAPES}; at a preference of 0, and away from it", 500,
                   list(product((0.0, 0.5), SHAPES)), (stereoset,)),
    "heads": Part(f"{_SHAPES}; skewed, ICC .05", 250,
                  [*((shape, 0.0) for shape in SHAPES), ("skewed", 0.05)], (heads,)),
    "crossref": Part(_SHAPES, 500, _EACH, (over_targets, over_items)),
    "rankings": Part("layers alike; ICC of layers .1, .33", 1000, [(0.0,), (0.1,), (0.33,)],
                     (rankings,)),
    "two models": Part("targets alike; ICC .013, .05", 1000, [(a,) for a in ALIKE], (two_models,)),
    "random sets": Part("sets differ by 0, .003, .01", 2000, _SETS, (random_sets,)),
    "random orders": Part(_SHAPES, 500, _EACH, (random_orders,)),
    "words": Part("10, 30 templates", 500, [(10,), (30,)], (pvf_risks,)),
    "questions": Part("no name leans; every name leans its own way", 300, [(0.0,), (0.1,)],
                      (questions,)),
    "few": Part("six skewed values", 10_000, [()], (all_flips,)),
}  # fmt: skip


def simulated(part: Part, share: float = 1.0) -> Iterator[Row]:
    """The rows of a table, from a share of its cases; what is NaN in a case is left out of it."""
    columns: dict[str, list[list[float]]] = defaultdict(list)
    for draw in part.draws:
        for condition in part.conditions:
            cases = islice(draw(np.random.default_rng(1), *condition), int(part.cases * share))
            for name, values in pd.DataFrame(list(cases)).astype(float).items():
                columns[str(name)].append(values.dropna().tolist())
    for name, held in columns.items():
        yield Row(name, len(held[0]), [float(np.mean(values)) for values in held])


def main(chosen: list[str]) -> None:
    """Print the rows of some parts, or of all, as ``TABLE`` has them."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["part", "conditions", "name", "cases", "percent"])
    for name in chosen or PARTS:
        for row in simulated(PARTS[name]):
            percent = " ".join(f"{100 * share:.1f}" for share in row.shares)
            out.writerow([name, PARTS[name].about, row.name, row.cases, percent])
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
