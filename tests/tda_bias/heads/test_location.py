"""Location under exchange: against literal recomputation, enumeration, and simulations."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from tda_bias.heads.contrast import Contrast, DifferenceRows, contrast, version_products
from tda_bias.heads.group_statistic import Versions
from tda_bias.heads.hot_spots import (
    HotSpots,
    LocationMap,
    hot_spots,
    location_test,
    location_under_exchange,
    location_under_flips,
)
from tda_bias.heads.ranking_controls import smallest_share
from tda_bias.heads.resampled import label_flips, max_z, two_sided, version_draws
from tda_bias.stats.sign_flips import random_signs
from tests.support.grams import MadeUpGroup, made_up_group


def squared(f: np.ndarray) -> float:
    return float((f**2).sum())


def literal_location(differences) -> float:
    return squared(np.sum(differences, axis=0)) / sum(squared(d) for d in differences)


def reduced(group: MadeUpGroup) -> Contrast:
    return contrast(version_products(group.gram, group.layout))


def differences(group: MadeUpGroup, head: int) -> np.ndarray:
    """D of every version, triples first."""
    triples = group.stereotype[:, head] - group.anti[:, head]
    return np.concatenate([triples, group.twin_stereotype[:, head] - group.twin_anti[:, head]])


# -- the definition --


@pytest.mark.parametrize("n", [3, 15])
def test_flips_recompute_the_statistic_of_flipped_differences(n):
    group = made_up_group(n)
    flips = label_flips(n, 20, np.random.default_rng(0))
    null = location_under_flips(flips.signs, reduced(group).rows().of(slice(n)))
    for head in range(3):
        D = differences(group, head)[:n]
        expected = [literal_location(signs[:, None] * D) for signs in flips.signs]
        np.testing.assert_allclose(null[:, head], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("twins", [1, 3, (1, 2, 0, 3)])
def test_exchanges_recompute_the_statistic_of_exchanged_versions(twins):
    group = made_up_group(4, twins=twins)
    versions = group.layout.versions
    draws = version_draws(versions, 50, np.random.default_rng(1))
    null = location_under_exchange(draws, reduced(group).rows())
    for head in range(3):
        D = differences(group, head)
        for row, chosen in zip(null, draws.member, strict=True):
            contrasts = []
            for members, place in zip(versions.members, chosen, strict=True):
                others = [m for m in members if m != members[place]]
                contrasts.append(D[members[place]] - D[others].mean(0))
            assert row[head] == pytest.approx(literal_location(contrasts), rel=1e-4, abs=1e-5)


def test_an_exact_p_counts_all_arrangements():
    group = made_up_group(5, bias=0.5)
    found = reduced(group)
    flips = label_flips(5, 0, np.random.default_rng(0))
    null = location_under_flips(flips.signs, found.rows().of(slice(5)))
    single, _ = location_test(found.location, null, exact=flips.exact)
    for head in range(3):
        D = differences(group, head)[:5]
        every = [literal_location(np.array(s)[:, None] * D) for s in product([1, -1], repeat=5)]
        expected = np.mean(np.array(every) >= literal_location(D) - 1e-5)
        assert single[head] == pytest.approx(expected)
        assert single[head] >= 2 / 32  # the mirrored arrangement ties


def test_the_family_wise_p_is_of_the_largest_standardised_value():
    group = made_up_group(14, heads=6, bias=0.3)
    found = reduced(group)
    null = location_under_flips(
        label_flips(14, 300, np.random.default_rng(2)).signs, found.rows().of(slice(14))
    ).astype(float)
    single, family = location_test(found.location, null, exact=False)
    z = (null - null.mean(0)) / null.std(0)
    observed = (found.location - null.mean(0)) / null.std(0)
    expected = [(1 + (z.max(1) >= value - 1e-4).sum()) / 301 for value in observed]
    np.testing.assert_allclose(family, expected, atol=1 / 301)
    assert (family >= single - 1e-12).all()


def test_the_spread_of_exchanged_dispersions_is_that_of_all_arrangements():
    group = made_up_group(5, twins=(1, 3, 2, 1, 0))
    draws = version_draws(group.layout.versions, 0, np.random.default_rng(0))
    terms = reduced(group).dispersion
    assert draws.exact
    np.testing.assert_allclose(draws.sd(terms), (draws.signs @ terms).std(0))
    np.testing.assert_allclose((draws.signs @ terms).mean(0), 0, atol=1e-12)


def test_undefined_heads_take_no_part():
    null = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    single, family = location_test(np.array([np.nan, 0.5, 2.0]), null, exact=False)
    assert np.isnan([single[0], family[0]]).all()
    assert single[2] == 1 / 51


# -- over groups --


def test_a_category_is_the_mean_over_its_groups():
    rng = np.random.default_rng(0)
    observed = rng.random((3, 2, 4)) * 3
    null = rng.random((3, 99, 2, 4)).astype(np.float32) * 2
    observed[1, 0, 2] = np.nan
    collected = LocationMap()
    for values, draws in zip(observed, null, strict=True):
        collected.add(values, draws)
    found = collected.tested()
    means = observed.mean(1)
    np.testing.assert_allclose(found.z, np.nanmean(means, axis=0))
    expected = null.mean(2)
    at = expected[[0, 2]].mean(0)[:, 2]
    assert found.pvalue[2] == pytest.approx((1 + (at >= found.z[2] - 1e-5).sum()) / 100)
    together = expected.mean(0)
    assert found.pvalue[0] == pytest.approx((1 + (together[:, 0] >= found.z[0] - 1e-5).sum()) / 100)
    np.testing.assert_allclose(
        found.evidence[0], (found.z[0] - together[:, 0].mean()) / together[:, 0].std(), rtol=1e-4
    )


# -- simulations: uniform under the null, power, wording alone --


def pvalues_with_twins(statistic: str, seed: int, *, twins=1, **effect) -> np.ndarray:
    group = made_up_group(14, twins=twins, heads=4, seed=seed, **effect)
    found = reduced(group)
    draws = version_draws(group.layout.versions, 199, np.random.default_rng([1, seed]))
    if statistic == "dispersion":
        return two_sided(draws, found.dispersion / found.dispersion_total)
    null = location_under_exchange(draws, found.rows())
    return location_test(found.location_twin, null, exact=draws.exact)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statistic", "twins", "wording"),
    [("location", 1, 2.0), ("location", 3, 0.0), ("dispersion", 1, 0.0), ("dispersion", 3, 2.0)],
)
def test_p_is_uniform_without_an_interaction_however_strong_the_wording(statistic, twins, wording):
    """A planted difference that triple and twin share is no finding."""
    seeds = range(1000, 1400)
    options = {"twins": twins, "wording": wording}
    found = np.array([pvalues_with_twins(statistic, seed, **options) for seed in seeds])
    # The heads of a group share their draws: one of them tells of the distribution.
    assert kstest(found[:, 0], "uniform").pvalue > 0.001
    assert 0.03 < np.mean(found <= 0.05) < 0.075


@pytest.mark.slow
@pytest.mark.parametrize("twins", [1, 3])
@pytest.mark.parametrize(("statistic", "effect"), [("location", "bias"), ("dispersion", "spread")])
def test_a_planted_interaction_is_found(twins, statistic, effect):
    options = {"twins": twins, effect: 1.0}
    found = [pvalues_with_twins(statistic, seed, **options) for seed in range(60)]
    assert np.mean(np.array(found) <= 0.05) > 0.8


def differences_that_share(share: float, sizes, tests: int, rng) -> list[np.ndarray]:
    """Differences ``(context, rank, test)`` of groups; a part of each is common to its group."""
    sd, groups = 0.6 ** (np.arange(12)[:, None] / 2), []
    for n in sizes:
        noise, common = rng.normal(size=(n, 12, tests)) * sd, rng.normal(size=(12, tests)) * sd
        size = share / (1 - share) * (sd**2).sum() / (common**2).sum(0)
        groups.append(noise + common * np.sqrt(size))
    return groups


def exchanged_map(groups: list[np.ndarray], rng) -> HotSpots:
    collected = LocationMap()
    for rows in groups:
        null = location_under_flips(random_signs((499, len(rows)), rng), DifferenceRows(rows))
        observed = np.array([literal_location(of_test) for of_test in np.moveaxis(rows, 2, 0)])
        collected.add(observed[None], null[:, None])
    return collected.tested()


@pytest.mark.parametrize("sizes", [(6, 6, 6), (10, 30, 10, 30), (24,) * 8])
def test_a_head_with_the_smallest_share_survives_about_four_times_out_of_five(sizes):
    rng = np.random.default_rng(0)
    null = exchanged_map(differences_that_share(0.0, sizes, 100, rng), rng)
    groups = [
        SimpleNamespace(versions=SimpleNamespace(twinned=range(n)), has_twins=True) for n in sizes
    ]
    maps = pd.DataFrame({"sd_null_location_twin": null.null_sd})
    share = smallest_share(groups, maps, null.critical)
    found = exchanged_map(differences_that_share(share, sizes, 400, rng), rng)
    assert 0.72 < np.mean(found.evidence > null.critical) < 0.9
    assert smallest_share(groups, maps, 100 * null.critical) == 1


@pytest.mark.slow
def test_without_twins_the_same_wording_is_taken_for_an_effect():
    """Why twins are needed: the test without them finds what is common to both."""
    rejected = []
    for seed in range(60):
        group = made_up_group(14, heads=4, seed=seed, wording=0.8)
        found = reduced(group)
        flips = label_flips(14, 199, np.random.default_rng([1, seed]))
        null = location_under_flips(flips.signs, found.rows().of(slice(14)))
        rejected.append(location_test(found.location, null, exact=False)[0] <= 0.05)
    assert np.mean(rejected) > 0.8


@pytest.mark.slow
def test_the_family_wise_error_of_exchanged_maps_is_kept():
    """Over groups: some head survives in 5 % of the categories without any effect."""
    smallest = {"location": [], "dispersion": []}
    for seed in range(200):
        collected, terms = LocationMap(), []
        for number in range(3):
            group = made_up_group(9, heads=12, seed=1000 * seed + number, wording=1.0)
            found, versions = reduced(group), group.layout.versions
            rng = np.random.default_rng([2, seed, number])
            draws = version_draws(versions, 199, rng, enumerated=False)
            null = location_under_exchange(draws, found.rows())
            collected.add(found.location_twin[None], null[:, None])
            shares = found.dispersion / found.dispersion_total
            terms.append((shares, versions.given, draws.signs))
        smallest["location"].append(np.min(collected.tested().pvalue_max))
        smallest["dispersion"].append(np.min(hot_spots(terms).pvalue_max))
    for values in smallest.values():
        assert 0.01 < np.mean(np.array(values) <= 0.05) < 0.11


def test_max_z_of_exchanges_is_that_of_mne():
    """A second implementation of the max-type test; it gives all tests the same weight."""
    from mne import stats  # takes seconds to import

    rng = np.random.default_rng(0)
    terms = rng.normal(size=(16, 8)) + 0.6 * (np.arange(8) == 3)
    terms /= np.sqrt((terms**2).sum(0))
    draws = version_draws(Versions(np.tile(np.arange(16), 2), 16), 9999, np.random.default_rng(1))
    ours = max_z(draws, np.concatenate([terms, np.zeros_like(terms)]))
    _, theirs, _ = stats.permutation_t_test(terms, n_permutations=9999, tail=0, seed=2)
    np.testing.assert_allclose(ours, theirs, atol=0.03)
