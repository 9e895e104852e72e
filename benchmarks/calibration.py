"""Levels of the printed p-values and coverage of the printed intervals, by simulation.

Every number is rejected or missed by the function that prints it, on made-up data without any
effect: 242 items of ten targets of StereoSet's sizes, items of three shapes, targets that resemble
themselves more or less. A p of .05 should reject in 5 % of cases, an interval of 95 % should hold
the truth in 95 %. Seeds are fixed; half an hour on one core. Run with
``python -m benchmarks.calibration``, which prints the tables of docs/method/calibration.md.
"""

# Every function is called before its loop goes on.
# ruff: noqa: B023

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.rankings import across_sources
from pvf.risk import Risk, decompose, risk_intervals, x_intervals
from tda_bias.ablation.prune_curve import RANDOM, _chosen
from tda_bias.ablation.study import _agreement, set_tests
from tda_bias.comparison.beta_agreement import agreement as beta_agreement
from tda_bias.comparison.head_maps import _moved
from tda_bias.comparison.outcome import Guard, is_kept, paired_change
from tda_bias.config import HeadBiasConfig
from tda_bias.crossref.item_crossref import item_tests
from tda_bias.crossref.rank_tests import correlations, head_map
from tda_bias.heads.confirmation import confirmation
from tda_bias.heads.group_result import GroupResult, joined_layers, layer_numbers, random_halves
from tda_bias.heads.group_statistic import GroupLayout
from tda_bias.heads.items import ItemDifferences
from tda_bias.heads.tables import tables
from tda_bias.paper.rankings import agreement
from tda_bias.scores.beta import TwinSets, exchange_test
from tda_bias.scores.stereoset import _scores_of, icat, wins
from tda_bias.stats.clusters import cluster_mean, flip_pvalue
from tda_bias.stats.resampling import holm, permutation_pvalue, share_reached
from unqover.bias import aggregates, chance, group_intervals, model_intervals, sums

SIZES = (21, 21, 21, 23, 24, 26, 26, 26, 27, 27)
TARGET = np.repeat(np.arange(10), SIZES)
SHAPES = ("normal", "skewed", "heavy tails")
# Intraclass correlations: of targets that do not differ, of beta's, and of four times as much.
ALIKE = (0.0, 0.013, 0.05)
LEVEL = 0.05
SIX = np.arange(6)


@dataclass(frozen=True)
class Row:
    """How often a p rejects or an interval holds, out of so many cases each."""

    name: str
    cases: int
    shares: list[float]


class Counts:
    """Shares of cases by name, a column after the other."""

    def __init__(self) -> None:
        self._held: dict[str, list[list[float]]] = defaultdict(list)

    def column(self, cases: int, one: Callable[[np.random.Generator], dict[str, Any]]) -> None:
        """Add a column: what ``one`` says of each of so many cases; NaN is left out."""
        rng = np.random.default_rng(1)
        for name, values in pd.DataFrame([one(rng) for _ in range(cases)]).astype(float).items():
            self._held[str(name)].append(values.dropna().tolist())

    def rows(self) -> Iterator[Row]:
        """A row a name."""
        for name, columns in self._held.items():
            yield Row(name, len(columns[0]), [float(np.mean(values)) for values in columns])


def drawn(shape: str, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values of mean 0 and variance 1; heavy tails are those of t with 3 degrees of freedom."""
    match shape:
        case "normal":
            return rng.standard_normal(size)
        case "skewed":
            return rng.exponential(size=size) - 1
        case _:
            return rng.standard_t(3, size) / np.sqrt(3)


def items(
    shape: str, alike: float, rng: np.random.Generator, extra: tuple[int, ...] = ()
) -> np.ndarray:
    """Differences of items of ten targets, without any effect."""
    own, shared = drawn(shape, (len(TARGET), *extra), rng), drawn(shape, (10, *extra), rng)
    return np.sqrt(1 - alike) * own + np.sqrt(alike) * shared[TARGET]


def within(limits: tuple[float, float], truth: float) -> bool:
    return limits[0] <= truth <= limits[1]


# -- items of ten targets --------------------------------------------------------------------------


def change(values: np.ndarray, rng: np.random.Generator) -> tuple[bool, bool]:
    """The mean of three trainings, which differ by a tenth of an item's deviation.

    And its one-sided bound: the truth lies on the margin, and passing it is the error.
    """
    table = pd.DataFrame({"cluster": TARGET, "weight": 1.0, "before": 0.0})
    for name in ("after", "after_2", "after_3"):
        table[name] = values + 0.1 * rng.standard_normal()
    guard = Guard(1e-9, 1, "")
    found = paired_change(table, tested=False, guard=guard)
    return within((found.low, found.high), 0), is_kept(guard, found.worst)


def items_and_targets(part: float) -> Iterator[Row]:
    """Numbers over targets and over items, by resemblance, each for the three shapes."""
    counts = Counts()
    for alike in ALIKE:
        for shape in SHAPES:
            many = of_many(shape, alike, 2_000_000)
            above, median = float((many > 0).mean()), float(np.median(many))

            def one(rng: np.random.Generator) -> dict[str, Any]:
                values = items(shape, alike, rng)
                won = cluster_mean((values > 0).astype(float), TARGET)
                held, passed = change(values, rng)
                # A share of one half is the absence of an effect on it.
                (p, _), (_, p_share) = (
                    exchange_test(
                        TwinSets(np.column_stack([of_items, 0 * values]), np.full(len(values), 2)),
                        n_resamples=199, rng=rng,
                    )
                    for of_items in (values, values - median)
                )  # fmt: skip
                signs = flip_pvalue(np.sign(values - median), TARGET, rng=rng)
                return {
                    "interval of a mean over targets": within(
                        cluster_mean(values, TARGET).limits(), 0
                    ),
                    "interval of a mean over five folds of two targets": within(
                        cluster_mean(values, TARGET % 5).limits(), 0
                    ),
                    "interval of a change over three trainings (compare)": held,
                    "guard passed with the loss on its margin (compare)": passed,
                    "interval of a share over targets (beta > 0)": within(
                        won.share_limits(), above
                    ),
                    "p over targets (beta, compare, confirm)": flip_pvalue(values, TARGET, rng=rng)
                    <= LEVEL,
                    "p over targets of a share (beta > 0)": signs <= LEVEL,
                    "interval of a mean over items": within(cluster_mean(values).limits(), 0),
                    "p over items (beta)": p <= LEVEL,
                    "p over items of a share (beta > 0)": p_share <= LEVEL,
                }

            counts.column(int(500 * part), one)
    yield from counts.rows()


def of_many(shape: str, alike: float, n: int) -> np.ndarray:
    """Items of as many targets: the truth of shares."""
    rng = np.random.default_rng(0)
    own, shared = drawn(shape, (n,), rng), drawn(shape, (n,), rng)
    return np.sqrt(1 - alike) * own + np.sqrt(alike) * shared


def stereoset(part: float) -> Iterator[Row]:
    """Scores of items whose preferences are shifted by 0 and by half a deviation."""

    def table(values: np.ndarray, language: np.ndarray, target: np.ndarray) -> pd.DataFrame:
        made = pd.DataFrame({"category": "gender", "group": target.astype(str)})
        for role, value in (("s", values), ("a", 0 * values), ("u", -1 - language)):
            made[f"log_prob_{role}"], made[f"tokens_{role}"] = value, 1
        return made

    counts = Counts()
    for shift in (0.0, 0.5):
        for shape in SHAPES:
            values, language = of_many(shape, 0.013, 2_000_000).reshape(2, -1)
            values, many = values + shift, {}
            many["ss"] = 100 * float((values > 0).mean())
            other = (values > -1 - language).mean() + (language > -1).mean()
            many["lms"] = 50 * float(other)
            many["icat"] = icat(many["lms"], many["ss"])

            def one(rng: np.random.Generator) -> dict[str, Any]:
                values, language = (items(shape, 0.013, rng) for _ in range(2))
                row = _scores_of(wins(table(values + shift, language, TARGET)), 0.95)
                return {
                    f"interval of {name}": within((row[f"{name}_low"], row[f"{name}_high"]), truth)
                    for name, truth in many.items()
                }

            counts.column(int(500 * part), one)
    yield from counts.rows()


# -- heads -----------------------------------------------------------------------------------------

# Columns of the tables of `heads`: of a target's heads, and of a category's map.
IN_TARGET = {"location": "location", "location, twins": "location_twin"}
IN_TARGET |= {"dispersion": "paired", "dispersion, twins": "dispersion_twin"}
OF_MAP = {"location": "location", "dispersion": "relative"}
OF_MAP |= {f"{name}, twins": f"{column}_twin" for name, column in OF_MAP.items()}


def made_up_heads(shape: str, alike: float, rng: np.random.Generator) -> list[GroupResult]:
    """Ten targets with twins, ten heads of four steps.

    The anti-stereotype texts of triples have the shape; those of twins and all stereotype texts
    are normal. So differences, and triples minus twins, are skewed where these are.
    """
    results, n_heads, n_steps = [], 10, 4
    for target, n in enumerate(SIZES):
        layout = GroupLayout(n, n, np.arange(n))
        texts = rng.standard_normal((layout.n_texts, n_heads, n_steps))
        own = drawn(shape, (n, n_heads, n_steps), rng)
        texts[layout.anti] = np.sqrt(1 - alike) * own
        texts[layout.anti] += np.sqrt(alike) * drawn(shape, (n_heads, n_steps), rng)
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


def heads(part: float) -> Iterator[Row]:
    """Every p of `heads`, of both kinds of `confirm`, and of heads that move between two runs."""
    counts = Counts()
    for shape, alike in (*((shape, 0.0) for shape in SHAPES), ("skewed", 0.05)):
        before: list[pd.DataFrame] = []

        def one(rng: np.random.Generator) -> dict[str, Any]:
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
                family_wise = of_map[f"p_max_{column}"].min() <= LEVEL
                found[f"p of the map, {name}, family-wise"] = family_wise
            for by, name in (("evidence", "dispersion"), ("location", "location")):
                few = {"top": 3, "n_splits": 10, "n_resamples": 99, "seed": seed}
                split = confirmation(results, layers=(0,), by=by, **few)
                found[f"p of confirm, {name}, halves"] = split.p <= LEVEL
                found[f"p of confirm, {name}, correlation"] = split.p_correlation <= LEVEL
            for other in before:
                chosen = other["evidence_location_twin"].nlargest(3).index
                adjusted = holm(of_map.loc[chosen, "p_location_twin"].to_numpy())
                found["p of confirm, location, new data (Holm)"] = adjusted.min() <= LEVEL
                two = [
                    SimpleNamespace(
                        value=run["z_location_twin"].to_numpy()[None],
                        expected=run["z_null_location_twin"].to_numpy()[None],
                        noise=run["sd_null_location_twin"].to_numpy()[None],
                        layers=(0,),
                    )
                    for run in (other, of_map)
                ]
                found["p of a head that moved (compare)"] = (_moved(*two)["p"] <= LEVEL).mean()
            before[:] = [of_map]
            return found

        counts.column(int(250 * part), one)
    yield from counts.rows()


def pinned(part: float) -> Iterator[Row]:
    """All flips of six skewed values of mean 0, a null that is not symmetric."""
    counts = Counts()

    def one(rng: np.random.Generator) -> dict[str, Any]:
        return {"p of all flips": flip_pvalue(rng.exponential(size=6) - 1, SIX, rng=rng) <= LEVEL}

    counts.column(int(10_000 * part), one)
    yield from counts.rows()


# -- heads and what the model says -----------------------------------------------------------------


def crossref(part: float) -> Iterator[Row]:
    """Ten targets of one category, and items of ten targets; three shapes."""
    counts = Counts()
    heads = pd.MultiIndex.from_product([range(2), range(10)], names=["layer", "head"])
    index = pd.MultiIndex.from_product([["gender"], range(10)], names=["category", "target"])
    for shape in SHAPES:

        def over_targets(rng: np.random.Generator) -> dict[str, Any]:
            names = ["r", "mean_T", "n_items", "tokens", "zipf"]
            table = pd.DataFrame(drawn(shape, (10, 5), rng), columns=names)
            draws = {"n_resamples": 199, "rng": rng}
            table = table.assign(category="gender")
            row = correlations(table, ["r"], ["mean_T"], **draws).iloc[0]
            vectors = pd.DataFrame(drawn(shape, (10, 20), rng), index=index, columns=heads)
            of_heads, _ = head_map(vectors, table["r"], **draws)
            return {
                "p over targets (crossref)": row["p"] <= LEVEL,
                "partial p over targets, three covariates (crossref)": row["p_partial"] <= LEVEL,
                "interval of a rank correlation over targets": within((row["low"], row["high"]), 0),
                "p of a head over targets (crossref)": (of_heads["p"] <= LEVEL).mean(),
                "p of a head over targets, family-wise": of_heads["p_max"].min() <= LEVEL,
            }

        counts.column(int(500 * part), over_targets)

        def over_items(rng: np.random.Generator) -> dict[str, Any]:
            """Targets differ on both sides."""
            n = len(TARGET)
            names = pd.DataFrame({"category": "gender", "group": TARGET, "id": np.arange(n)})
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
                family_wise = of_way["p_max"].min() <= LEVEL
                found[f"p of a head over items, {way}, family-wise"] = family_wise
            return found

        counts.column(int(500 * part), over_items)
    yield from counts.rows()


def rankings(part: float) -> Iterator[Row]:
    """Two skewed rankings of 12 x 12 heads, whose layers differ by 0, a tenth and a third."""
    counts = Counts()
    layer, head = np.divmod(np.arange(144), 12)
    known = dict.fromkeys("abcd", 1.0)
    for between in (0.0, 0.1, 0.33):

        def values(rng: np.random.Generator) -> np.ndarray:
            own, shared = drawn("skewed", (144,), rng), drawn("skewed", (12,), rng)
            return np.asarray(np.sqrt(1 - between) * own + np.sqrt(between) * shared[layer])

        def one(rng: np.random.Generator) -> dict[str, Any]:
            seed = int(rng.integers(2**31))
            table = pd.DataFrame({"layer": layer, "head": head})
            for name in "abcd":
                table[name] = values(rng)
            pair = agreement(table, [("a", "b")], n_resamples=199, seed=seed).iloc[0]
            both = across_sources(table, "ab", "cd", known, n_resamples=199, seed=seed)
            study = table.rename(columns={"a": "z_evidence", "b": "effect", "c": "direct"})
            study = study.assign(importance=values(rng), exact=np.nan)
            study = study.assign(exact_beta=np.nan, effect_beta=study["d"])
            over = _agreement(study, 199, rng).set_index("ranking").loc["z_evidence"]
            return {
                "p of two rankings (crossref, published)": pair["p"] <= LEVEL,
                "p of two rankings within layers": pair["p_within_layers"] <= LEVEL,
                "p of the overlap of their tops": pair["p_overlap"] <= LEVEL,
                "p of two sources (published)": both["p"] <= LEVEL,
                "p of a ranking and effects (ablate)": over["p_effect"] <= LEVEL,
                "p of a ranking and effects on beta (ablate)": over["p_effect_beta"] <= LEVEL,
            }

        counts.column(int(1000 * part), one)
    yield from counts.rows()


def two_models(part: float) -> Iterator[Row]:
    """Beta of two models, skewed; targets differ on both sides by their resemblance."""
    counts = Counts()
    for alike in ALIKE:

        def one(rng: np.random.Generator) -> dict[str, Any]:
            x, y = (items("skewed", alike, rng) for _ in range(2))
            rows = beta_agreement(x, y, TARGET, n_resamples=199, rng=rng)
            return {f"p of beta over {row['over']} (compare)": row["p"] <= LEVEL for row in rows}

        counts.column(int(1000 * part), one)
    yield from counts.rows()


# -- chosen heads against random ones --------------------------------------------------------------


def random_sets(part: float) -> Iterator[Row]:
    """A ranking that is one more random set; sets differ by 0, .003 and .01.

    The interval is about this set on targets that nobody saw, in folds of two targets.
    """
    for n_sets in (5, 19, 20):
        counts = Counts()
        for between in (0.0, 0.003, 0.01):

            def one(rng: np.random.Generator) -> dict[str, Any]:
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
                inside = within(limits, by_itself[0])
                return {
                    f"interval of *less than random heads*, {n_sets} sets (debias)": inside,
                    f"p over {n_sets} random sets (debias)": p <= LEVEL,
                    f"p over {n_sets} random sets (ablate)": tested.loc[0, "p"] <= LEVEL,
                }

            counts.column(int(2000 * part), one)
        yield from counts.rows()


def random_orders(part: float) -> Iterator[Row]:
    """A ranking that is one more random order of `ablate --curve`, 19 of them; three shapes.

    What is left of beta is 0.05 without and about that with every number of heads; half of the
    targets choose.
    """
    counts = Counts()
    test = TARGET % 2 == 1
    for shape in SHAPES:

        def one(rng: np.random.Generator) -> dict[str, Any]:
            places = [("a", 0), *((RANDOM, draw) for draw in range(19))]
            base, rows = items(shape, 0.013, rng), []
            for name, draw in places:
                effect = np.zeros(len(TARGET))
                for k in (0, 1, 2, 4, 8):
                    mean = cluster_mean((0.1 + base + effect)[test], TARGET[test])
                    low, high = mean.limits()
                    row = {"ranking": name, "draw": draw, "k": k, "log_ppl": 3.0}
                    row |= {"beta_choose": (0.1 + base + effect)[~test].mean()}
                    limits = {"beta_test_low": low, "beta_test_high": high}
                    rows.append(row | {"beta_test": mean.mean} | limits)
                    effect = effect + 0.3 * items(shape, 0.013, rng)
            chosen = _chosen(pd.DataFrame(rows), "beta", ["a"]).iloc[0]
            return {
                "p over 19 random orders (ablate --curve)": chosen["p_random"] <= LEVEL,
                "interval of what is left, five targets (ablate --curve)": within(
                    (chosen["test_low"], chosen["test_high"]), 0.1
                ),
            }

        counts.column(int(500 * part), one)
    yield from counts.rows()


# -- words and questions ---------------------------------------------------------------------------


def pvf_risks(part: float) -> Iterator[Row]:
    """R, R_p and R_v of 40 words, and r, r_p and r_v of a word; 10 and 30 templates."""
    rng = np.random.default_rng(5)

    def sample(rng: np.random.Generator, words: np.ndarray, n_templates: int) -> Risk:
        templates = rng.normal(0, 0.5, (1, n_templates))
        noise = rng.normal(0, 0.3, (len(words), n_templates))
        p = 1 / (1 + np.exp(-(0.5 + words[:, None] + templates + noise)))
        return decompose(np.stack([p, 1 - p], axis=-1))

    every = rng.normal(0, 0.5, 2000)
    whole = sample(rng, every, 2000)
    truth, each = [whole.R, whole.R_p, whole.R_v], np.stack([whole.r, whole.r_p, whole.r_v])
    counts = Counts()
    for n_templates in (10, 30):

        def one(rng: np.random.Generator) -> dict[str, Any]:
            chosen = rng.choice(2000, 40, replace=False)
            risk = sample(rng, every[chosen], n_templates)
            low, high = risk_intervals(risk)["both"]
            found = {
                f"interval of {name} (pvf)": within((low[i], high[i]), truth[i])
                for i, name in enumerate(("R", "R_p", "R_v"))
            }
            low, high = x_intervals(risk)
            held = ((low <= each[:, chosen]) & (each[:, chosen] <= high)).astype(float)
            # A word whose templates all lean one way has no volatility, and no interval of it.
            held = np.nanmean(np.where(np.isfinite(low), held, np.nan), axis=1)
            return found | {
                f"interval of {name} of a word (pvf)": held[i]
                for i, name in enumerate(("r", "r_p", "r_v"))
            }

        counts.column(int(500 * part), one)
    yield from counts.rows()


def questions(part: float) -> Iterator[Row]:
    """Two groups of ten names, 10 attributes: no name leans, and each name leans by itself."""
    counts = Counts()
    first, second = np.divmod(np.arange(100), 10)
    group = np.repeat([0, 1], 10)
    for lean in (0.0, 0.1):

        def one(rng: np.random.Generator) -> dict[str, Any]:
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
            return {f"{name} (unqover)": held for name, held in found.items()}

        counts.column(int(300 * part), one)
    yield from counts.rows()


# Parts of the tables, with what the numbers of their rows are.
_SHAPES = "items that are normal, skewed, heavy-tailed"
PARTS: dict[str, tuple[str, Callable[[float], Iterator[Row]]]] = {
    "items": (f"{_SHAPES}; targets alike, ICC .013, ICC .05", items_and_targets),
    "scores": (f"{_SHAPES}; at a preference of 0, and away from it", stereoset),
    "heads": (f"{_SHAPES}; skewed, ICC .05", heads),
    "crossref": (_SHAPES, crossref),
    "rankings": ("layers alike; ICC of layers .1, .33", rankings),
    "two models": ("targets alike; ICC .013, .05", two_models),
    "random sets": ("sets differ by 0, .003, .01", random_sets),
    "random orders": (_SHAPES, random_orders),
    "words": ("10, 30 templates", pvf_risks),
    "questions": ("no name leans; every name leans its own way", questions),
    "few": ("six skewed values", pinned),
}


def line(row: Row) -> str:
    """A row of the tables."""
    return f"| {row.name} | {row.cases} | {', '.join(f'{100 * v:.1f}' for v in row.shares)} |"


def main(chosen: list[str]) -> None:
    for name in chosen or PARTS:
        numbers, rows = PARTS[name]
        print(f"\n| {name} | cases | % of cases: {numbers} |\n|---|---|---|")
        for row in rows(1.0):
            print(line(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
