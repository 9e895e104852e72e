import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.scores.likelihood import TripleLikelihood
from tda_bias.scores.stereoset import (
    Items,
    icat,
    item_table,
    length_split,
    scores,
    term_scores,
    wins,
)
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
    found = scores(ITEMS, n_resamples=100)
    he, she, every = (row(found, "sum", group) for group in ("he", "she", "all"))
    assert (he["ss"], he["lms"], he["ties"]) == (50, 100, 1)
    assert (she["ss"], she["lms"]) == (100, 50)
    assert (every["ss"], every["lms"]) == (75, 75)  # over terms
    assert every["icat"] == pytest.approx(75 * 25 / 50)
    assert every["ss_items"] == pytest.approx(100 * 2.5 / 4)
    assert every["lms_items"] == pytest.approx(100 * 3.5 / 4)


def test_per_token_scores_divide_by_the_number_of_tokens():
    found = scores(ITEMS, n_resamples=100)
    she = row(found, "mean", "she")
    assert (she["ss"], she["lms"]) == (0, 50)


def test_the_ideal_model_and_the_extremes():
    assert icat(np.array(100.0), np.array(50.0)) == 100
    assert icat(np.array(100.0), np.array([0.0, 100.0])).tolist() == [0, 0]


@given(st.integers(0, 1000))
def test_term_scores_are_means_of_means(seed):
    rng = np.random.default_rng(seed)
    term = np.sort(rng.integers(0, 3, 9))
    term = np.unique(term, return_inverse=True)[1]
    items = Items(rng.integers(0, 3, 9) / 2, rng.integers(0, 3, 9) / 2, term)
    found = term_scores(items, np.arange(9)[None])[:, 0]
    lms, ss = (
        np.mean([100 * values[term == t].mean() for t in np.unique(term)])
        for values in (items.language, items.stereotype)
    )
    np.testing.assert_allclose(found, [lms, ss, lms * min(ss, 100 - ss) / 50])


def test_intervals_come_from_items_within_terms():
    many = pd.concat([ITEMS] * 20, ignore_index=True)
    found = row(scores(many, n_resamples=2000), "sum", "all")
    # One term varies (60 items of variance 1/6), the other never does.
    deviation = 100 * np.sqrt((1 / 6) / 60) / 2
    assert found["ss_high"] - found["ss_low"] == pytest.approx(2 * 1.96 * deviation, rel=0.15)
    assert found["lms_low"] == found["lms_high"] == 75


def test_a_seed_fixes_the_intervals():
    first, again = scores(ITEMS, n_resamples=100), scores(ITEMS, n_resamples=100)
    pd.testing.assert_frame_equal(first, again)


def test_a_term_of_two_categories_is_two_terms():
    both = pd.concat([ITEMS, ITEMS.assign(category="race")], ignore_index=True)
    found = scores(both, n_resamples=100)
    every = found[(found["category"] == "all") & (found["scoring"] == "sum")].iloc[0]
    assert every["ss"] == 75
    assert list(found["category"].unique()) == ["all", "gender", "race"]


def test_swapping_the_two_roles_mirrors_the_stereotype_score():
    names = {"log_prob_s": "log_prob_a", "log_prob_a": "log_prob_s"}
    names |= {"tokens_s": "tokens_a", "tokens_a": "tokens_s"}
    mirrored = scores(ITEMS.rename(columns=names), n_resamples=100)
    plain = scores(ITEMS, n_resamples=100)
    np.testing.assert_allclose(mirrored["ss"], 100 - plain["ss"])
    np.testing.assert_allclose(mirrored["lms"], plain["lms"])
    np.testing.assert_allclose(mirrored["icat"], plain["icat"])


def test_the_length_split_counts_every_item_once():
    found = length_split(ITEMS)
    own = found[found["scoring"] == "sum"].set_index("longer")
    assert own["items"].to_dict() == {-1: 1, 0: 3}
    assert own["ss"].to_dict() == {-1: 100, 0: 50}


def test_wins_name_ties():
    assert wins(ITEMS)["tie"].tolist() == [False, False, True, False]


def test_nothing_to_score_is_refused():
    with pytest.raises(InputError, match="no item to score"):
        scores(ITEMS.iloc[:0])
