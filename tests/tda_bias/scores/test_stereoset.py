import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.scores.likelihood import TripleLikelihood
from tda_bias.scores.stereoset import _scores_of, item_table, length_split, scores, wins
from tda_bias.stats.clusters import cluster_mean
from tda_bias.types import InputError, Triple


def table(rows):
    """Items from (group, log-probabilities s a u, tokens s a u)."""
    triples, likelihoods = [], []
    for group, totals, tokens in rows:
        triples.append(Triple(group, "gender", "c", "s", "a", "u"))
        parts = [np.full(n, t / n) for t, n in zip(totals, tokens, strict=True)]
        likelihoods.append(TripleLikelihood(tuple(parts)))
    return item_table(triples, likelihoods)


ITEMS = table(
    [
        ("he", (-1.0, -2.0, -9.0), (4, 4, 4)),  # stereotype wins
        ("he", (-2.0, -1.0, -9.0), (4, 4, 4)),  # anti-stereotype wins
        ("he", (-2.0, -2.0, -9.0), (4, 4, 4)),  # tie
        ("she", (-3.0, -4.0, -3.5), (2, 8, 4)),  # wins in sum; per token -1.5, -0.5, -0.875
    ]
)


def row(found, scoring, group):
    return found[(found["scoring"] == scoring) & (found["group"] == group)].iloc[0]


def test_scores_by_hand():
    found = scores(ITEMS)
    he, she, every = (row(found, "sum", group) for group in ("he", "she", "all"))
    assert (he["ss"], he["lms"], he["ties"]) == (50, 100, 1)
    assert (she["ss"], she["lms"]) == (100, 50)
    assert (every["ss"], every["lms"]) == (75, 75)  # over terms
    assert every["icat"] == pytest.approx(75 * 25 / 50)
    assert every["ss_items"] == pytest.approx(100 * 2.5 / 4)
    assert every["lms_items"] == pytest.approx(100 * 3.5 / 4)
    per_token = row(found, "mean", "she")
    assert (per_token["ss"], per_token["lms"]) == (0, 50)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_means_of_means_of_terms(seed):
    rng = np.random.default_rng(seed)
    rows = [(f"g{rng.integers(3)}", tuple(rng.integers(-3, 0, 3)), (1, 1, 1)) for _ in range(9)]
    found = row(scores(table(rows)), "sum", "all")
    won = wins(table(rows)).groupby("group")
    lms, ss = (100 * won[name].mean().mean() for name in ("language", "stereotype"))
    expected = [lms, ss, lms * min(ss, 100 - ss) / 50]
    np.testing.assert_allclose(found[["lms", "ss", "icat"]].astype(float), expected)


def of_terms(n_terms, seed=0, size=9):
    """Items of made-up terms; a term's items resemble each other, and terms differ in size."""
    rng = np.random.default_rng(seed)
    rows = []
    for term in range(n_terms):
        lean = rng.normal(0.3, 0.5)
        rows += [
            (f"g{term}", (lean + rng.normal(), rng.normal(), rng.normal(-1)), (1, 1, 1))
            for _ in range(size + term)
        ]
    return table(rows)


def test_from_six_terms_on_intervals_are_those_of_the_terms_scores():
    items = of_terms(8)
    found = row(scores(items), "sum", "all")
    assert found["over"] == "targets"
    by_term = wins(items).groupby("group")[["language", "stereotype"]].mean().to_numpy()
    t = stats.t.ppf(0.975, 7)
    for place, name in enumerate(("lms", "ss")):
        share, error = by_term[:, place].mean(), stats.sem(by_term[:, place])
        n = share * (1 - share) / error**2
        for end in ("low", "high"):
            limit = found[f"{name}_{end}"] / 100
            assert abs(share - limit) / np.sqrt(limit * (1 - limit) / n) == pytest.approx(t)


def test_icat_varies_as_its_scores_do():
    """Leaving out terms shows the same spread, to first order."""
    items = of_terms(12, seed=3, size=30)
    names = sorted(items["group"].unique())
    won = wins(items)
    without = [_scores_of(won[won["group"] != g], 0.95)["icat"] for g in names]
    error = np.sqrt(11 / 12 * np.sum((np.array(without) - np.mean(without)) ** 2))
    found = _scores_of(won, 0.95)
    width = 2 * stats.t.ppf(0.975, 11) * error
    assert found["icat_high"] - found["icat_low"] == pytest.approx(width, rel=0.1)


def test_of_few_terms_intervals_are_over_their_items():
    items = of_terms(3)
    found = scores(items)
    assert (found["over"] == "items").all()
    one = row(found, "sum", "g0")
    won = wins(items)
    own = won.loc[won["group"] == "g0", "stereotype"]
    low, high = cluster_mean(own.to_numpy()).share_limits()
    assert (one["ss_low"], one["ss_high"]) == pytest.approx((100 * low, 100 * high))
    assert scores(ITEMS)[["ss_low", "lms_high", "icat_low"]].isna().all(axis=None)


def test_a_term_of_two_categories_is_two_terms():
    both = pd.concat([ITEMS, ITEMS.assign(category="race")], ignore_index=True)
    found = scores(both)
    every = found[(found["category"] == "all") & (found["scoring"] == "sum")].iloc[0]
    assert every["ss"] == 75
    assert list(found["category"].unique()) == ["all", "gender", "race"]


def test_swapping_the_two_roles_mirrors_the_stereotype_score():
    names = {"log_prob_s": "log_prob_a", "log_prob_a": "log_prob_s"}
    names |= {"tokens_s": "tokens_a", "tokens_a": "tokens_s"}
    mirrored = scores(ITEMS.rename(columns=names))
    plain = scores(ITEMS)
    np.testing.assert_allclose(mirrored["ss"], 100 - plain["ss"])
    np.testing.assert_allclose(mirrored["lms"], plain["lms"])
    np.testing.assert_allclose(mirrored["icat"], plain["icat"])


def test_the_length_split_counts_every_item_once():
    found = length_split(ITEMS)
    own = found[found["scoring"] == "sum"].set_index("longer")
    assert own["items"].to_dict() == {-1: 1, 0: 3}
    assert own["ss"].to_dict() == {-1: 100, 0: 50}


def test_nothing_to_score_is_refused():
    with pytest.raises(InputError, match="no item to score"):
        scores(ITEMS.iloc[:0])
