"""The figure of a prune curve: costs are changes, every ranking is named once."""

import numpy as np
import pandas as pd
import pytest

from tda_bias.plots.prune_curve import plot_prune_curve


@pytest.fixture
def curve() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"ranking": name, "draw": draw, "k": k, "log_ppl": 3.0 + 0.1 * k + 0.01 * draw * (k > 0)}
        for name, draws in (*((f"ranking {i}", 1) for i in range(7)), ("random", 20))
        for draw in range(draws)
        for k in (0, 1, 2, 4)
    ]
    table = pd.DataFrame(rows)
    table["beta_test"], table["log_odds_test"] = rng.normal(size=(2, len(table)))
    return table


def test_costs_start_at_zero_and_beta_is_shown_by_its_size(curve):
    beta, log_odds = plot_prune_curve(curve).axes
    for ax, values in ((beta, curve["beta_test"].abs()), (log_odds, curve["log_odds_test"])):
        drawn = [line for line in ax.lines if len(line.get_xdata()) == 4]
        assert len(drawn) == 27
        for line in drawn:
            assert line.get_xdata()[0] == pytest.approx(0.0, abs=1e-12)
            assert np.isin(np.round(line.get_ydata(), 9), np.round(values, 9)).all()


def test_seven_rankings_and_the_random_orders_are_named_once_and_look_different(curve):
    figure = plot_prune_curve(curve)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    named = [f"ranking {i}" for i in range(7)]
    assert names == ["random orders", *named, "2 % of perplexity"]
    looks = {
        (line.get_color(), line.get_linestyle(), line.get_marker())
        for line in figure.axes[0].lines
        if line.get_label() in named
    }
    assert len(looks) == 7
    [allowed] = [ax for ax in figure.axes[0].lines if ax.get_label() == "2 % of perplexity"]
    assert allowed.get_xdata() == pytest.approx([np.log(1.02)] * 2)


def test_without_twins_there_is_one_panel(curve):
    [ax] = plot_prune_curve(curve.drop(columns="beta_test")).axes
    assert "log-odds" in ax.get_ylabel()
