"""Items before and after: the change by brute force, the agreement by SciPy."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from tda_bias.comparison.paired import PairedItems, agreement_row
from tda_bias.stats.clusters import cluster_mean


def rng(seed=0):
    return np.random.default_rng(seed)


def made_up(seed, n=24, clusters=6, trainings=(), weighted=False):
    before, noise = rng(seed).normal(size=(2, n))
    after = rng(seed + 1).normal(0.4, 1, size=(n, *trainings))
    weight = rng(seed + 2).uniform(0.5, 2, n) if weighted else None
    return PairedItems(before + noise, after, np.arange(n) % clusters, weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_change_is_the_mean_over_items_with_its_error_over_clusters(weighted):
    items = made_up(0, weighted=weighted)
    change = [after - before for before, after in zip(items.before, items.after, strict=True)]
    found = items.change()
    assert found == cluster_mean(np.array(change), items.cluster, weight=items.weight)
    assert found.mean == pytest.approx(np.average(change, weights=items.weight))
    assert items.by_training() == pytest.approx([found.mean])


@pytest.mark.parametrize("weighted", [False, True])
def test_p_of_the_change_counts_all_exchanges_of_whole_clusters(weighted):
    items = made_up(1, weighted=weighted)
    weight = np.ones(24) if items.weight is None else items.weight
    sums = [(weight * (items.after - items.before))[items.cluster == c].sum() for c in range(6)]
    null = np.abs([np.dot(signs, sums) for signs in product((1, -1), repeat=6)])
    assert items.p_change(rng=rng()) == np.mean(null >= abs(sum(sums)) - 1e-9)


def test_p_of_items_that_are_their_own_clusters_is_scipys_of_pairs():
    items = made_up(2, n=10, clusters=10)
    reference = stats.permutation_test(
        (items.after, items.before),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples", vectorized=True,
    )  # fmt: skip
    assert items.p_change(rng=rng()) == pytest.approx(reference.pvalue)


def test_several_trainings_are_averaged_and_their_variance_is_added():
    items = made_up(3, trainings=(4,))
    each = items.after - items.before[:, None]
    found = items.change()
    assert items.by_training() == pytest.approx(each.mean(0))
    assert found.mean == pytest.approx(each.mean())
    over_items = cluster_mean(each.mean(1), items.cluster)
    variance = over_items.error**2 + each.mean(0).var(ddof=1) / 4
    assert found.error == pytest.approx(np.sqrt(variance))
    alone = PairedItems(items.before, items.after.mean(1), items.cluster)
    assert items.p_change(rng=rng()) == alone.p_change(rng=rng())


@pytest.mark.parametrize(("of", "name"), [("ranks", "rho"), ("values", "r")])
@pytest.mark.parametrize("exchanged", ["all", "within clusters"])
def test_a_row_of_agreement_is_scipys_correlation_beside_that_of_exchanged_items(
    of, name, exchanged
):
    items = made_up(4)
    correlation = stats.spearmanr if of == "ranks" else stats.pearsonr
    row = agreement_row("items", items, of=of, exchanged=exchanged, n_resamples=4999, rng=rng(5))
    assert list(row) == ["over", "n", name, "chance_low", "chance_high", "p"]
    assert (row["over"], row["n"]) == ("items", 24)
    assert row[name] == pytest.approx(correlation(items.before, items.after).statistic)
    generator, null = rng(6), []
    groups = [np.arange(24)] if exchanged == "all" else [np.arange(c, 24, 6) for c in range(6)]
    for _ in range(1000):
        moved = items.after.copy()
        for group in groups:
            moved[group] = generator.permutation(moved[group])
        null.append(correlation(items.before, moved).statistic)
    assert row["p"] == pytest.approx(np.mean(np.array(null) >= row[name] - 1e-12), abs=0.05)
    limits = np.quantile(null, [0.025, 0.975])
    assert (row["chance_low"], row["chance_high"]) == pytest.approx(limits, abs=0.08)


@pytest.mark.parametrize(
    "after", [np.array([1.0, 2.0]), np.full(9, 0.1)], ids=["two items", "nothing varies"]
)
def test_where_there_is_no_correlation_the_row_is_undefined_and_nothing_is_drawn(after):
    items, generator = PairedItems(np.arange(len(after)) + 0.5, after, np.arange(len(after))), rng()
    row = agreement_row("items", items, of="values", n_resamples=99, rng=generator)
    assert np.isnan([row[name] for name in ("r", "chance_low", "chance_high", "p")]).all()
    assert generator.random() == rng().random()
