"""What the printed p-values and intervals promise, held to by simulation.

Every number is rejected or missed by the function that prints it, on made-up data without any
effect: 242 items of ten targets of StereoSet's sizes, items of three shapes, targets that resemble
themselves more or less. A p of .05 should reject in 5 % of cases, an interval of 95 % should hold
the truth in 95 %. Seeds are fixed; a few minutes on one core. Run with
``python -m benchmarks.calibration``, which prints the tables of docs/method/inference.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pandas as pd

from pvf.risk import Risk, decompose, risk_intervals
from tda_bias.comparison.outcome import paired_change
from tda_bias.crossref.rank_tests import correlation
from tda_bias.heads.hot_spots import LocationMap, location_test, location_under_flips
from tda_bias.heads.resampled import random_flips
from tda_bias.scores.beta import TwinSets, exchange_test
from tda_bias.scores.stereoset import scores
from tda_bias.stats.clusters import cluster_mean, flip_pvalue, limits_against_draws
from tda_bias.stats.resampling import permutation_pvalue
from unqover.bias import group_intervals, model_intervals, sums

SIZES = (21, 21, 21, 23, 24, 26, 26, 26, 27, 27)
TARGET = np.repeat(np.arange(10), SIZES)
SHAPES = ("normal", "skewed", "heavy tails")
# Intraclass correlations: of targets that do not differ, of beta's, and of four times as much.
ALIKE = (0.0, 0.013, 0.05)
RUNS = 2000
LEVEL = 0.05


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


def over_targets(values: np.ndarray, rng: np.random.Generator) -> bool:
    return within(cluster_mean(values, TARGET).limits(), 0)


def over_folds(values: np.ndarray, rng: np.random.Generator) -> bool:
    return within(cluster_mean(values, TARGET % 5).limits(), 0)


def over_items(values: np.ndarray, rng: np.random.Generator) -> bool:
    return within(cluster_mean(values).limits(), 0)


def change(values: np.ndarray, rng: np.random.Generator) -> bool:
    """The mean of three trainings, which differ by a tenth of an item's deviation."""
    table = pd.DataFrame({"cluster": TARGET, "weight": 1.0, "before": 0.0})
    for name in ("after", "after_2", "after_3"):
        table[name] = values + 0.1 * rng.standard_normal()
    found = paired_change(table, tested=False)
    return within((found.low, found.high), 0)


def p_over_targets(values: np.ndarray, rng: np.random.Generator) -> bool:
    return flip_pvalue(values, TARGET, rng=rng) <= LEVEL


def p_over_items(values: np.ndarray, rng: np.random.Generator) -> bool:
    sets = TwinSets(np.column_stack([values, np.zeros(len(values))]), np.full(len(values), 2))
    return exchange_test(sets, n_resamples=199, rng=rng).p <= LEVEL


def share(quantity: str, truth: dict[tuple[str, float], float]) -> Callable[..., bool]:
    """Of shares the truth depends on the shape: it is that of very many targets."""

    def holds(values: np.ndarray, rng: np.random.Generator, shape: str, alike: float) -> bool:
        won = (values > 0).astype(float)
        if quantity == "share":
            return within(cluster_mean(won, TARGET).share_limits(), truth[shape, alike])
        table = pd.DataFrame({"category": "gender", "group": TARGET.astype(str)})
        for role, value in (("s", values), ("a", 0 * values), ("u", -9 + 0 * values)):
            table[f"log_prob_{role}"], table[f"tokens_{role}"] = value, 1
        row = scores(table).query("group == 'all' and scoring == 'sum'").iloc[0]
        return within((row["ss_low"], row["ss_high"]), 100 * truth[shape, alike])

    return holds


def share_above_0(shape: str, alike: float) -> float:
    rng = np.random.default_rng(0)
    n = 2_000_000
    values = np.sqrt(1 - alike) * drawn(shape, (n,), rng)
    return float((values + np.sqrt(alike) * drawn(shape, (n,), rng) > 0).mean())


def of_items() -> Iterator[tuple[str, list[str]]]:
    """Rows of the first table: per cent of cases, by resemblance, each for the three shapes."""
    truth = {(shape, alike): share_above_0(shape, alike) for shape in SHAPES for alike in ALIKE}
    rows: dict[str, tuple[Callable[..., bool], int]] = {
        "interval of a mean over targets": (over_targets, RUNS),
        "interval of a mean over five folds of two targets": (over_folds, RUNS),
        "interval of a change over three trainings": (change, 500),
        "interval of a share over targets (beta > 0)": (share("share", truth), RUNS),
        "interval of the stereotype score": (share("score", truth), 500),
        "interval of a mean over items": (over_items, RUNS),
        "p over targets (beta, compare, confirm)": (p_over_targets, RUNS),
        "p over items (beta)": (p_over_items, RUNS),
    }
    for name, (holds, runs) in rows.items():
        cells = []
        for alike in ALIKE:
            found = []
            for shape in SHAPES:
                rng = np.random.default_rng([1, runs])
                about = (shape, alike) if "share" in name or "score" in name else ()
                held = [holds(items(shape, alike, rng), rng, *about) for _ in range(runs)]
                found.append(np.mean(held))
            cells.append(_cell(found))
        yield name, cells


# -- heads -----------------------------------------------------------------------------------------


def location(
    *, n_heads: int = 400, rank: int = 5, n_flips: int = 499
) -> Iterator[tuple[str, list[str]]]:
    """Levels of the location test of heads: in a target, and of the map of a category."""
    cells: dict[str, list[str]] = {"in a target": [], "of the map": []}
    for alike in ALIKE:
        found: dict[str, list[float]] = {name: [] for name in cells}
        for shape in SHAPES:
            rng = np.random.default_rng(2)
            rows, category, single = items(shape, alike, rng, (rank, n_heads)), LocationMap(), []
            for target in range(10):
                own = rows[target == TARGET]
                observed = (own.sum(0) ** 2).sum(0) / (own**2).sum((0, 1))
                flips = random_flips(len(own), n_flips, rng)
                null = location_under_flips(flips, own)
                single.append(location_test(observed, null, exact=False)[0])
                category.add(observed[None], null[:, None])
            found["in a target"].append(np.mean(np.array(single) <= LEVEL))
            found["of the map"].append(np.mean(category.tested().pvalue <= LEVEL))
        for name in cells:
            cells[name].append(_cell(found[name]))
    for name, of_alike in cells.items():
        yield f"p of the location test {name}", of_alike


def pinned() -> float:
    """Level of all flips of six skewed values of mean 0, a null that is not symmetric."""
    rng = np.random.default_rng(1701)
    values = rng.exponential(size=(10_000, 6)) - 1
    return float(np.mean([flip_pvalue(row, np.arange(6), rng=rng) <= LEVEL for row in values]))


# -- what has no items of ten targets --------------------------------------------------------------


def random_sets() -> Iterator[tuple[str, str]]:
    """A ranking that is one more random set; sets differ by 0, .003 and .01."""
    for n_sets in (5, 19, 20):
        held, rejected = [], []
        for between in (0.0, 0.003, 0.01):
            rng, inside, p = np.random.default_rng(3), [], []
            for _ in range(RUNS):
                own = 0.05 * rng.standard_normal((1 + n_sets, len(TARGET)))
                shared = 0.01 * rng.standard_normal((1 + n_sets, 10))[:, TARGET]
                left = (own + shared).mean(1) + between * rng.standard_normal(1 + n_sets)
                inside.append(within(limits_against_draws(left[0], left[1:]), 0))
                less = np.sum(left[1:] <= left[0])
                p.append(permutation_pvalue(less, n_sets, exact=False) <= LEVEL)
            held.append(float(np.mean(inside)))
            rejected.append(float(np.mean(p)))
        yield f"interval of *less than random heads*, {n_sets} sets", _cell(held)
        yield f"p over {n_sets} random sets", _cell(rejected)


def correlations() -> Iterator[tuple[str, str]]:
    """Spearman over ten targets that is 0, .48 and .79."""
    cells = []
    for shared in (0.0, 0.5, 0.8):
        rng, held = np.random.default_rng(4), []
        for _ in range(RUNS):
            x, noise = rng.standard_normal((2, 10))
            y = shared * x + np.sqrt(1 - shared**2) * noise
            found = correlation(x, y, np.arange(10)[None])
            held.append(within((found["low"], found["high"]), 6 / np.pi * np.arcsin(shared / 2)))
        cells.append(float(np.mean(held)))
    yield "interval of a rank correlation over ten targets (crossref)", _cell(cells)


def pvf_risks() -> Iterator[tuple[str, str]]:
    """R, R_p and R_v of 40 words and 10 or 30 templates."""
    rng = np.random.default_rng(5)

    def sample(n_words: int, n_templates: int) -> Risk:
        lean = 0.5 + rng.normal(0, 0.5, (n_words, 1)) + rng.normal(0, 0.5, (1, n_templates))
        p = 1 / (1 + np.exp(-lean))
        return decompose(np.stack([p, 1 - p], axis=-1))

    whole = sample(2000, 2000)
    truth = [whole.R, whole.R_p, whole.R_v]
    for n_templates in (10, 30):
        held = np.zeros(3)
        for _ in range(1000):
            low, high = risk_intervals(sample(40, n_templates))["both"]
            held += (low <= truth) & (truth <= high)
        yield f"intervals of R, R_p, R_v (pvf), {n_templates} templates", _cell(held / 1000)


def questions() -> Iterator[tuple[str, str]]:
    """Mu and gamma of two groups of ten names, 10 attributes; names differ by themselves."""
    rng, mu, gamma, p = np.random.default_rng(6), [], [], []
    first, second = np.divmod(np.arange(100), 10)
    group = np.repeat([0, 1], 10)
    for _ in range(300):
        bias = rng.normal(0, 0.1, 10)
        bias[0] = 0.0
        own = rng.normal(0, 0.1, (20, 10))
        c = (bias + own[first] - own[second + 10])[:, None] + rng.normal(0, 0.05, (100, 4, 10))
        given = sums(c, first, second + 10, 20)
        mu.append(within(model_intervals(given, group, group=group)[0], np.abs(bias).max()))
        found = group_intervals(given, group, n_resamples=200, rng=rng)
        gamma.append(np.mean((found.low[0] <= bias) & (bias <= found.high[0])))
        p.append(found.pvalue[0, 0] <= LEVEL)
    yield "interval of mu (unqover), ten names a group", _cell([float(np.mean(mu))])
    yield "interval of gamma (unqover)", _cell([float(np.mean(gamma))])
    yield "p of gamma (unqover)", _cell([float(np.mean(p))])


def _cell(shares: Iterable[float]) -> str:
    return ", ".join(f"{100 * value:.1f}" for value in shares)


def main() -> None:
    print("| | targets do not differ | intraclass correlation .013 | .05 |")
    print("|---|---|---|---|")
    for part in (of_items(), location()):
        for name, cells in part:
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| | % of cases |\n|---|---|")
    for rows in (random_sets(), correlations(), pvf_risks(), questions()):
        for name, cell in rows:
            print(f"| {name} | {cell} |", flush=True)
    print(f"| p of all flips of six skewed values | {_cell([pinned()])} |")


if __name__ == "__main__":
    main()
