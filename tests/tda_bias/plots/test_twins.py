"""The picture of items against their twins."""

import numpy as np
import pandas as pd
import pytest

from tda_bias.plots.twins import plot_items_against_twins
from tda_bias.types import InputError


def items(n: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    wording = rng.normal(0, 15, n)
    return pd.DataFrame(
        {
            "log_prob_s": wording + rng.normal(0.7, 1, n),
            "log_prob_a": np.zeros(n),
            "logprob_s_twin": wording,
            "logprob_a_twin": np.zeros(n),
        }
    )


def test_points_lie_where_their_log_odds_are():
    table = items()
    ax = plot_items_against_twins(table)
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    expected = table[["logprob_s_twin", "log_prob_s"]].to_numpy()
    np.testing.assert_allclose(np.sort(points, axis=0), np.sort(expected, axis=0))
    above = int((table["log_prob_s"] > table["logprob_s_twin"]).sum())
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0] == f"more for the target: {above} of 30"
    r = np.corrcoef(table["log_prob_s"], table["logprob_s_twin"])[0, 1]
    assert f"r = {r:.3f}" in ax.get_title()


def test_items_without_a_twin_are_left_out():
    table = items()
    table.loc[3, "logprob_s_twin"] = np.nan
    ax = plot_items_against_twins(table)
    assert sum(len(c.get_offsets()) for c in ax.collections) == 29


def test_items_without_twins_are_refused():
    with pytest.raises(InputError, match="the items have no twins; run `tdabias stereoset --twins"):
        plot_items_against_twins(items()[["log_prob_s", "log_prob_a"]])
