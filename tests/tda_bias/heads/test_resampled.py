"""p-values: against enumeration, literal formulas, and each other."""

from dataclasses import replace
from itertools import combinations, product
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, norm, permutation_test, spearmanr

from tda_bias.heads.group_statistic import GroupStatistic, group_statistic
from tda_bias.heads.hot_spots import hot_spots, z_over_heads
from tda_bias.heads.resampled import (
    label_flips,
    label_terms,
    max_z,
    paired_terms,
    paired_test,
    paper_pvalue,
    relabellings,
    two_sided,
)
from tests.support.grams import in_groups


def statistic(seed: int = 0, n: int = 5, heads: int = 4, effect: float = 0.0) -> GroupStatistic:
    rng = np.random.default_rng(seed)
    shape = (n, heads, 6)
    anti = rng.normal(size=shape) * (1 + effect)
    return group_statistic(rng.normal(size=shape), anti, rng.normal(size=shape))


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# -- the published p --


@given(st.integers(0, 10_000), st.integers(2, 9))
def test_the_paper_p_is_the_mixture_of_normals_over_swap_lengths(seed, n):
    stat = statistic(seed, n, heads=2)
    found = paper_pvalue(stat)
    for head in range(2):
        S, qs, qa = stat.S[head], stat.q_stereotype[:, head], stat.q_anti[:, head]
        total = sum(comb(n, t) ** 2 * factorial(t) for t in range(1, n + 1))
        above = 0.0
        for t in range(1, n + 1):
            mean = t * (-2 * S / n)
            scale = (2 / (n * stat.var_unrelated[head])) ** 2
            variance = scale * t * (n - t) / (n - 1) * (qs.var() + qa.var())
            if variance > 0:
                tail = 1 - norm.cdf(-mean / np.sqrt(variance))
            else:
                tail = 0.5 if mean == 0 else float(mean > 0)
            above += comb(n, t) ** 2 * factorial(t) / total * tail
        expected = above if S >= 0 else 1 - above
        np.testing.assert_allclose(found[head], expected, atol=1e-10)


def test_the_paper_p_is_a_probability_where_its_weights_add_up_to_more_than_1():
    """Rounding made it -2.2e-16, and the tables of the run could not be opened."""
    for n in range(2, 60):
        alike = statistic(n=n)
        stat = replace(
            alike,
            S=-np.abs(alike.S),
            q_stereotype=np.ones_like(alike.q_stereotype),
            q_anti=np.ones_like(alike.q_anti),
        )
        assert (paper_pvalue(stat) >= 0).all()


def test_the_paper_p_of_a_large_group_does_not_overflow():
    assert np.isfinite(paper_pvalue(statistic(n=400))).all()


# -- enumeration --


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_the_exact_paired_p_counts_all_sign_flips(seed, n):
    stat = statistic(seed, n, heads=2)
    found = paired_test(stat, rng=rng())
    assert label_flips(n, 99, rng()).exact
    for head in range(2):
        difference = stat.q_anti[:, head] - stat.q_stereotype[:, head]
        observed = abs(difference.sum())
        flipped = [abs(np.dot(f, difference)) for f in product([1, -1], repeat=n)]
        expected = np.mean([value >= observed - 1e-9 for value in flipped])
        np.testing.assert_allclose(found[head], expected)


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_the_exact_label_p_counts_all_relabellings(seed, n):
    stat = statistic(seed, n, heads=2)
    labels = relabellings(n, 99, rng())
    found = two_sided(labels, label_terms(stat))
    assert labels.exact
    for head in range(2):
        q = np.concatenate([stat.q_stereotype[:, head], stat.q_anti[:, head]])
        observed = abs(q[n:].sum() - q[:n].sum())
        values = [abs(2 * q[list(c)].sum() - q.sum()) for c in combinations(range(2 * n), n)]
        expected = np.mean([value >= observed - 1e-9 for value in values])
        np.testing.assert_allclose(found[head], expected)


def test_swapping_texts_and_computing_S_anew_gives_the_same_exact_p():
    """The shortcut through q against the definition: S itself under every swap."""
    generator, n = np.random.default_rng(3), 4
    s, a, u = (generator.normal(size=(n, 5)) for _ in range(3))
    observed = group_statistic(s, a, u)
    count = 0
    for flip in product([False, True], repeat=n):
        chosen = np.array(flip)[:, None]
        permuted = group_statistic(np.where(chosen, a, s), np.where(chosen, s, a), u)
        count += abs(permuted.S) >= abs(observed.S) - 1e-9
    np.testing.assert_allclose(paired_test(observed, rng=rng()), count / 2**n)


# -- sampling --


def test_random_flips_come_close_to_scipys_permutation_test():
    stat = statistic(1, n=14, heads=1, effect=0.5)
    found = paired_test(stat, n_resamples=9999, rng=rng())
    reference = permutation_test(
        (stat.q_anti[:, 0], stat.q_stereotype[:, 0]),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    np.testing.assert_allclose(found[0], reference.pvalue, atol=0.015)


def test_the_p_of_a_draw_is_never_zero_and_ties_count():
    n = 20
    tied = group_statistic(*(np.zeros((n, 1)) + np.arange(n)[:, None] for _ in range(3)))
    assert paired_test(tied, n_resamples=99, rng=rng()) == 1.0
    strong = statistic(n=30, effect=30)
    assert paired_test(strong, n_resamples=99, rng=rng()).min() == 1 / 100


def test_results_do_not_depend_on_the_size_of_blocks(monkeypatch):
    stat = statistic(n=15)
    whole = paired_test(stat, n_resamples=500, rng=rng())
    monkeypatch.setattr("tda_bias.heads.resampled.BLOCK", 30)
    np.testing.assert_array_equal(paired_test(stat, n_resamples=500, rng=rng()), whole)


def test_an_undefined_statistic_has_an_undefined_p():
    generator = np.random.default_rng(0)
    s, a, u = (generator.normal(size=(5, 2, 6)) for _ in range(3))
    u[:, 1] = 1.0
    stat = group_statistic(s, a, u)
    label = two_sided(relabellings(5, 99, rng()), label_terms(stat))
    for found in (paired_test(stat, rng=rng()), label, paper_pvalue(stat)):
        assert np.isnan(found).tolist() == [False, True]


# -- many heads --


def test_max_z_is_the_largest_of_all_tests_under_the_same_flips():
    stat, n = statistic(4, n=5, heads=3), 5
    draws = label_flips(n, 99, rng())
    found = max_z(draws, paired_terms(stat))
    terms = paired_terms(stat)
    sd = np.sqrt((terms**2).sum(0))
    observed = np.abs(terms.sum(0)) / sd
    largest = [max(abs(np.array(f) @ terms) / sd) for f in product([1, -1], repeat=n)]
    expected = [np.mean([value >= z - 1e-9 for value in largest]) for z in observed]
    np.testing.assert_allclose(found, expected)


def test_max_z_under_relabelling_standardises_by_the_permutation_sd():
    stat, n = statistic(4, n=4, heads=3), 4
    draws = relabellings(n, 99, rng())
    terms = label_terms(stat)
    null = draws.signs @ terms
    np.testing.assert_allclose(draws.sd(terms), null.std(0))
    z = np.abs(draws.given @ terms) / null.std(0)
    largest = (np.abs(null) / null.std(0)).max(1)
    expected = [(largest >= value - 1e-9).mean() for value in z]
    np.testing.assert_allclose(max_z(draws, terms), expected)


def test_max_z_leaves_out_what_is_undefined():
    terms = paired_terms(statistic(n=5, heads=3))
    terms[:, 1] = np.nan
    terms[:, 2] = 0.0
    found = max_z(label_flips(5, 99, rng()), terms)
    assert np.isfinite(found[0])
    assert np.isnan(found[1:]).all()


def test_z_over_heads_leaves_nan_out():
    values = np.array([[1.0, 2.0, np.nan, 6.0], [3.0, 3.0, 3.0, 3.0]])
    found = z_over_heads(values)
    defined = np.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(found[0, [0, 1, 3]], (defined - defined.mean()) / defined.std())
    assert np.isnan(found[0, 2])
    assert np.isnan(found[1]).all()


# -- hot spots --


def rngs() -> list[np.random.Generator]:
    return [np.random.default_rng(i) for i in range(3)]


def category_terms(seed: int = 0, heads: int = 6) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(n, heads)) / n for n in (7, 9, 11)]


def test_hot_spots_are_the_map_recomputed_under_every_draw():
    groups = category_terms()
    seeds = [11, 12, 13]
    found = hot_spots(in_groups(groups, [np.random.default_rng(s) for s in seeds], n_resamples=199))

    def heat(signs: list[np.ndarray]) -> np.ndarray:
        rows = [np.abs(f @ terms) for f, terms in zip(signs, groups, strict=True)]
        return np.mean([(r - r.mean()) / r.std() for r in rows], axis=0)

    observed = heat([np.ones(len(terms)) for terms in groups])
    np.testing.assert_allclose(found.z, observed)
    generators = [np.random.default_rng(s) for s in seeds]
    draws = [
        1 - 2.0 * g.integers(0, 2, size=(199, len(terms)), dtype=np.int8)
        for g, terms in zip(generators, groups, strict=True)
    ]
    null = np.array([heat([d[r] for d in draws]) for r in range(199)])
    np.testing.assert_allclose(found.pvalue, (1 + (null >= observed - 1e-5).sum(0)) / 200)
    z = (null - null.mean(0)) / null.std(0)
    largest = z.max(1)
    size = (observed - null.mean(0)) / null.std(0)
    expected = [(1 + (largest >= value - 1e-4).sum()) / 200 for value in size]
    np.testing.assert_allclose(found.pvalue_max, expected)
    np.testing.assert_allclose(found.qvalue, false_discovery_control(found.pvalue))
    np.testing.assert_allclose(found.null_mean, null.mean(0), atol=1e-6)


def test_a_head_undefined_in_a_group_is_averaged_over_the_others_and_in_all_has_no_p():
    groups = category_terms()
    groups[0][:, 2] = np.nan
    for terms in groups:
        terms[:, 0] = np.nan
    found = hot_spots(in_groups(groups, rngs(), n_resamples=99))
    rows = [z_over_heads(np.abs(terms.sum(0))) for terms in groups]
    np.testing.assert_allclose(found.z[2], (rows[1][2] + rows[2][2]) / 2)
    assert np.isfinite(found.pvalue[1:]).all()
    assert np.isnan([found.z[0], found.pvalue[0], found.pvalue_max[0], found.qvalue[0]]).all()


def test_the_size_of_the_unit_does_not_matter_to_hot_spots():
    groups = category_terms()
    plain = hot_spots(in_groups(groups, rngs(), n_resamples=199))
    scaled = [1e12 * terms for terms in groups]
    huge = hot_spots(in_groups(scaled, rngs(), n_resamples=199))
    assert spearmanr(plain.pvalue, huge.pvalue).statistic == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("pvalue", "draw", "terms"),
    [("paired", label_flips, paired_terms), ("label", relabellings, label_terms)],
)
def test_the_smallest_testable_group_is_the_first_that_can_reach_significance(pvalue, draw, terms):
    from tda_bias.heads.tables import SMALLEST_TESTABLE

    def smallest_p(n: int) -> float:
        """All anti-stereotype texts farther out than all stereotype texts."""
        s = np.linspace(-0.1, 0.1, n)[:, None]
        a = np.linspace(-9.0, 9.0, n)[:, None] + np.where(np.arange(n) % 2, 5.0, -5.0)[:, None]
        return float(two_sided(draw(n, 99, rng()), terms(group_statistic(s, a, s + 1))))

    n = SMALLEST_TESTABLE[pvalue]
    assert smallest_p(n) < 0.05 < smallest_p(n - 1)
