"""Effects, their tests and words: by the definition, at their extremes, and at their level."""

from itertools import combinations, product

import numpy as np
import pytest

from tda_bias.responses.effects import (
    SIDES,
    difference_pvalues,
    differences,
    effect_pvalue,
    effect_row,
    impact_ratio,
    parted,
    response_effects,
)
from tda_bias.responses.word_shifts import word_table
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import SINGLE_PRECISION, beyond_rounding


@pytest.fixture
def divergence():
    rng = np.random.default_rng(0)
    made = rng.random((5, 4, 4))
    made[:, range(4), range(4)] = 0
    return made


def literal(one, together):
    """Mean over ordered pairs: of people who are parted, and of those who stay together."""
    apart, same = [], []
    for i, j in product(range(4), repeat=2):
        if i != j:
            inside = any({i, j} == set(pair) for pair in together)
            (same if inside else apart).append(one[i, j])
    return np.mean(apart), np.mean(same)


def test_people_are_parted_in_three_ways_whose_effects_sum_to_0(divergence):
    ways = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    means = parted(divergence)
    for prompt, one in enumerate(divergence):
        for way, pairs in enumerate(ways):
            np.testing.assert_allclose(means[prompt, way], literal(one, pairs), rtol=1e-12)
    effects = response_effects(divergence)
    np.testing.assert_allclose(effects, means[..., 0] - means[..., 1])
    np.testing.assert_allclose(effects.sum(1), 0, atol=1e-12)


def test_the_p_of_an_effect_is_the_share_of_all_ways_that_reach_it(divergence):
    effects = response_effects(divergence)
    observed = np.mean([row[0] for row in effects])
    drawn = [np.mean([row[w] for row, w in zip(effects, ways, strict=True)])
             for ways in product(range(3), repeat=5)]  # fmt: skip
    expected = np.mean([value >= observed - 1e-12 for value in drawn])
    assert effect_pvalue(effects, 99, np.random.default_rng(0)) == pytest.approx(expected)


def test_sides_are_all_ways_to_give_two_of_four_people_one_side_and_the_first_is_real():
    listed = {tuple(np.flatnonzero(row > 0)) for row in SIDES}
    assert listed == set(combinations(range(4), 2))
    assert SIDES[0].tolist() == [1, 1, -1, -1]
    values = np.array([[3.0, 5.0, 1.0, 2.0]])
    assert differences(values).tolist() == [2.5]


def test_the_p_of_a_difference_is_the_share_of_all_changes_of_sides():
    values = np.random.default_rng(1).normal(size=(3, 4, 2)) + np.array([1, 1, 0, 0])[:, None]
    found = difference_pvalues(values, 99, np.random.default_rng(0))
    for test in range(2):
        sums = []
        for chosen in product(list(combinations(range(4), 2)), repeat=3):
            total = 0.0
            for prompt, pair in enumerate(chosen):
                for person in range(4):
                    total += values[prompt, person, test] * (1 if person in pair else -1)
            sums.append(abs(total))
        real = abs(sum((values[p, :2, test].sum() - values[p, 2:, test].sum()) for p in range(3)))
        assert found[test] == pytest.approx(np.mean(np.array(sums) >= real - 1e-12))


def test_an_effect_has_the_interval_of_its_prompts(divergence):
    tokens = np.array([10.0, 20, 30, 40, 50])
    row = effect_row(divergence, tokens, n_permutations=99, confidence=0.9,
                     rng=np.random.default_rng(0))  # fmt: skip
    effects = response_effects(divergence)[:, 0]
    known = cluster_mean(effects)
    assert row["value"] == pytest.approx(np.mean(effects))
    assert (row["low"], row["high"]) == known.limits(0.9)
    assert row["smallest"] == known.smallest()
    assert row["per_token"] == pytest.approx(effects.sum() / 150)
    assert row["twins"] - row["placebos"] == pytest.approx(row["value"])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_prompts_too_few_for_any_p_below_5_percent_have_none(divergence, n):
    apart = np.zeros((n, 4, 4))
    apart[:, :2, 2:] = 1
    row = effect_row(apart + divergence[:n] / 9, np.full(n, 9.0), n_permutations=99,
                     confidence=0.95, rng=np.random.default_rng(0))  # fmt: skip
    if n < 3:
        assert np.isnan(row["p"])
        assert np.isnan(row["smallest"])
    else:
        assert row["p"] == pytest.approx(1 / 27)
        assert row["smallest"] > 0


def test_what_rounding_makes_of_equal_distributions_is_nothing():
    divergence = np.full((2, 4, 4), 5e-4)
    kept = beyond_rounding(
        divergence, np.array([60.0, 40.0])[:, None, None], share=SINGLE_PRECISION
    )
    assert kept[0].tolist() == np.zeros((4, 4)).tolist()  # 6e-4 for 60 tokens
    assert kept[1].tolist() == divergence[1].tolist()
    nothing = np.zeros((6, 4, 4))
    assert effect_pvalue(response_effects(nothing), 99, np.random.default_rng(0)) == 1


def test_the_impact_ratio_is_that_of_mean_probabilities_with_its_interval():
    first, second = np.full(8, 0.4), np.linspace(0.45, 0.55, 8)
    found = impact_ratio(first, second)
    assert found["value"] == pytest.approx(0.8)
    assert found["low"] < 0.8 < found["high"] < 1
    wide = impact_ratio(first, np.linspace(0.1, 0.9, 8))
    assert wide["high"] - wide["low"] > 5 * (found["high"] - found["low"])
    assert np.isnan(impact_ratio(first[:1], second[:1])["low"])


def prompts_without_groups(rng, n, prompts=20, samples=4):
    """Made-up divergences of people who differ as people do, groups bringing nothing.

    Each person has a place; the divergence is the squared distance, with the error of a mean over
    samples, whose size follows the divergence.
    """
    person = rng.standard_t(4, size=(n, prompts, 4, 3))
    exact = ((person[..., :, None, :] - person[..., None, :, :]) ** 2).sum(-1)
    noise = rng.gamma(samples, 1 / samples, size=exact.shape)
    return exact * noise


@pytest.mark.slow
def test_the_p_of_effects_keeps_its_level_at_20_prompts_and_four_samples():
    rng, reached, covered = np.random.default_rng(0), 0, 0
    n = 1500
    for divergence in prompts_without_groups(rng, n):
        effects = response_effects(divergence)
        reached += effect_pvalue(effects, 199, rng) <= 0.05
        low, high = cluster_mean(effects[:, 0]).limits()
        covered += low <= 0 <= high
    assert abs(reached / n - 0.05) < 0.017  # three standard errors
    assert covered / n > 0.93


def test_an_effect_of_groups_is_found():
    rng = np.random.default_rng(0)
    divergence = prompts_without_groups(rng, 1)[0]
    divergence[:, :2, 2:] += 6
    divergence[:, 2:, :2] += 6
    assert effect_pvalue(response_effects(divergence), 999, rng) <= 0.01


@pytest.mark.slow
def test_the_p_of_words_keeps_its_level():
    rng, n = np.random.default_rng(0), 1500
    values = rng.gamma(0.5, 1.0, size=(20, 4, n))
    p = difference_pvalues(values, 999, rng)
    assert abs((p <= 0.05).mean() - 0.05) < 0.017


def test_words_are_those_of_enough_prompts_and_echo_takes_no_part_in_the_correction():
    rng = np.random.default_rng(0)
    expected = rng.uniform(0.08, 0.12, size=(20, 4, 4))
    expected[:, :2, 0] *= 3  # found
    expected[:, 2:, 1] *= 5  # an echo
    expected[4:, :, 2] = 0  # of too few prompts
    table = word_table(expected, ["kind", "he", "rare", "the"], [False, True, False, False],
                       ("female", "male"), n_permutations=999, rng=rng)  # fmt: skip
    assert table["word"].tolist() == ["kind", "the", "he"]
    kind, the, he = table.to_dict("records")
    assert (kind["likelier"], he["likelier"]) == ("female", "male")
    assert kind["log_ratio"] == pytest.approx(np.log(3), abs=0.05)
    assert kind["q"] == pytest.approx(2 * kind["p"])
    assert the["q"] == pytest.approx(the["p"])
    assert np.isnan(he["q"])
    assert he["p"] <= 0.01
