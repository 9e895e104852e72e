"""Pictures of behaviour show the numbers they are drawn from."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.ablation.study import AblationRecord, AblationStudy
from tda_bias.plots.behaviour import (
    plot_ablation,
    plot_conditions,
    plot_items_against_twins,
    plot_prune_curve,
    plot_targets,
    plot_twin_differences,
)
from tda_bias.show.figures import PAGE, print_figure, print_style
from tda_bias.store.record import ModelRecord
from tda_bias.types import InputError
from tests.support.canvas import unseen


@pytest.fixture
def ax():
    yield plt.subplots(layout="constrained")[1]
    plt.close("all")


def test_targets_are_points_and_names_do_not_cover_each_other(ax):
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"category": "a", "target": [f"target {i}" for i in range(40)]})
    table["r"], table["mean_abs_T"] = generator.normal(size=(2, 40))
    plot_targets(table, "r", "mean_abs_T", ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), table[["mean_abs_T", "r"]])
    expected = stats.spearmanr(table["r"], table["mean_abs_T"]).statistic
    assert ax.get_title() == f"40 targets, Spearman {expected:.2f}"
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert 5 <= len(boxes) <= 40
    covered = sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert covered <= 2  # widths of names are estimated


def test_numbers_of_a_narrow_range_are_apart():
    x = np.array([0.00101, 0.00102, 0.00103, 0.00104])
    table = pd.DataFrame({"category": "a", "target": list("wxyz"), "r": x[::-1], "T": x})
    with print_style():
        figure = print_figure(PAGE, 3.2)
        for ax in figure.subplots(1, 2):
            plot_targets(table, "r", "T", ax=ax)
    assert unseen(figure) == []


def test_a_constant_column_has_no_correlation_in_the_title(ax):
    table = pd.DataFrame({"category": "a", "target": ["x", "y"], "r": 1.0, "T": [1.0, 2.0]})
    assert "undefined" in plot_targets(table, "r", "T", ax=ax).get_title()


def test_the_ablation_plot_shows_every_head_and_the_measured_ones(ax):
    heads = pd.DataFrame({"z_relative": [1.0, 2.0, 3.0], "effect": [0.1, -0.2, 0.3]})
    heads["exact"] = [np.nan, -0.25, np.nan]
    agreement = pd.DataFrame([{"ranking": "z_relative", "rho_effect": 0.5, "p_effect": 0.3}])
    record = AblationRecord.model_construct(
        model=ModelRecord(name="made-up"), category="gender", rank_by="relative"
    )
    empty = pd.DataFrame()
    plot_ablation(AblationStudy(empty, empty, heads, agreement, record), ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(ax.collections[1].get_offsets(), [[2.0, 0.25]])
    assert "0.50" in ax.get_title()


# -- twins -----------------------------------------------------------------------------------------


@pytest.fixture
def items() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    wording = rng.normal(0, 15, 30)
    own = {"log_prob_s": wording + rng.normal(0.7, 1, 30), "log_prob_a": 0.0}
    return pd.DataFrame({**own, "log_prob_s_twin": wording, "log_prob_a_twin": 0.0})


def test_points_lie_where_their_log_odds_are_without_items_that_have_no_twin(items, ax):
    lacking = items.iloc[:1].assign(log_prob_s_twin=np.nan)
    plot_items_against_twins(pd.concat([items, lacking]), ax=ax)
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    expected = items[["log_prob_s_twin", "log_prob_s"]].to_numpy()
    np.testing.assert_allclose(np.sort(points, axis=0), np.sort(expected, axis=0))
    above = int((items["log_prob_s"] > items["log_prob_s_twin"]).sum())
    label = ax.get_legend_handles_labels()[1][0]
    assert label == f"more stereotype than about another target ({above} of 30)"
    r = np.corrcoef(items["log_prob_s"], items["log_prob_s_twin"])[0, 1]
    assert f"r = {r:.3f}" in ax.get_title()


def test_items_without_twins_are_refused(items, ax):
    with pytest.raises(InputError, match="the items have no twins; run `tdabias stereoset --twins"):
        plot_items_against_twins(items[["log_prob_s", "log_prob_a"]], ax=ax)


def test_the_histogram_counts_every_item_once_and_no_bar_holds_both_signs(ax):
    beta = np.array([-1.0, -0.2, 0.0, 0.1, 0.3, 2.0, np.nan])
    plot_twin_differences(pd.DataFrame({"beta_sum": beta}), ax=ax)
    positive, other = ax.containers
    assert [sum(bar.get_height() for bar in bars) for bars in (positive, other)] == [3, 3]
    assert all(bar.get_x() >= 0 for bar in positive if bar.get_height())


# -- ablation and training -------------------------------------------------------------------------


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def drawn(curve):
    return plot_prune_curve(curve)


def test_costs_start_at_zero_and_beta_is_shown_by_its_size(curve, drawn):
    shown = (curve["beta_test"].abs(), curve["log_odds_test"])
    for ax, values in zip(drawn.axes, shown, strict=True):
        lines = [line for line in ax.lines if len(line.get_xdata()) == 4]
        assert len(lines) == 7
        for line in lines:
            assert line.get_xdata()[0] == pytest.approx(0.0, abs=1e-12)
            assert np.isin(np.round(line.get_ydata(), 9), np.round(values, 9)).all()


def test_seven_rankings_and_the_random_orders_are_named_once_and_look_different(drawn):
    names = [text.get_text() for text in drawn.legends[0].get_texts()]
    named = [f"ranking {i}" for i in range(7)]
    assert names == ["random orders, 9 of 10", *named, "2 % of perplexity"]
    lines = {line.get_label(): line for line in drawn.axes[0].lines}
    assert len({(lines[name].get_color(), lines[name].get_marker()) for name in named}) == 7
    assert lines["2 % of perplexity"].get_xdata() == pytest.approx([np.log(1.02)] * 2)


def test_without_twins_there_is_one_panel(curve):
    [ax] = plot_prune_curve(curve.drop(columns="beta_test")).axes
    assert "log-odds" in ax.get_ylabel()


def test_the_band_holds_nine_of_ten_random_orders_at_their_mean_cost(curve, drawn):
    [band] = drawn.axes[0].collections
    path = band.get_paths()[0].vertices
    random = curve[(curve["ranking"] == "random") & (curve["k"] == 4)]
    at = path[np.isclose(path[:, 0], random["log_ppl"].mean() - 3.0)][:, 1]
    expected = np.quantile(random["beta_test"].abs(), [0.05, 0.95])
    assert [at.min(), at.max()] == pytest.approx(list(expected))


def test_a_ranking_has_one_colour_in_every_picture():
    conditions = pd.DataFrame(
        {"condition": ["importance", "evidence", "random"], "before": 0.3, "beta": [0.1, 0.2, 0.3],
         "low": [0.0, 0.1, np.nan], "high": [0.2, 0.3, np.nan], "perplexity": 1.0}
    )  # fmt: skip
    frontier = pd.DataFrame(
        {"condition": "random", "draw": [0, 1], "check": 1, "beta": [0.2, 0.4], "perplexity": 1.0}
    )
    dots = {row: line.get_color() for line in plot_conditions(conditions, frontier).axes[0].lines
            if line.get_marker() != "None" for row in line.get_ydata()}  # fmt: skip
    rows = [{"ranking": name, "draw": 0, "k": k, "log_ppl": 3.0 + k, "beta_test": 1.0}
            for name in ("evidence", "importance") for k in (0, 1)]  # fmt: skip
    lines = {
        line.get_label(): line.get_color()
        for line in plot_prune_curve(pd.DataFrame(rows)).axes[0].lines
    }
    assert dots == {0: lines["importance"], 1: lines["evidence"]}
    assert lines["importance"] != lines["evidence"]


def test_the_band_of_random_heads_is_beside_the_last_check_of_each_condition():
    conditions = pd.DataFrame(
        {"condition": ["untouched", "effect", "random"], "before": 0.3, "beta": [0.3, 0.3, 0.3],
         "low": 0.1, "high": 0.4, "perplexity": 0.0}
    )  # fmt: skip
    rows = [("effect", 0, 0, 0.3, 0.0), ("effect", 0, 1, 0.1, 2.0),
            ("random", 0, 0, 0.3, 0.0), ("random", 0, 1, 0.15, 1.0),
            ("random", 1, 0, 0.3, 0.0), ("random", 1, 1, 0.25, 1.5)]  # fmt: skip
    frontier = pd.DataFrame(rows, columns=["condition", "draw", "check", "beta", "perplexity"])
    for ax, last, band in zip(
        plot_conditions(conditions, frontier).axes, (0.1, 2.0), ((0.15, 0.25), (1.0, 1.5)),
        strict=True,
    ):  # fmt: skip
        [hollow] = [line for line in ax.lines if len(line.get_xdata()) == 1
                    and line.get_markerfacecolor() == "white"]  # fmt: skip
        assert (hollow.get_xdata()[0], hollow.get_ydata()[0]) == (last, 1)
        [span] = ax.patches
        assert span.get_extents().transformed(ax.transData.inverted()).intervalx == pytest.approx(
            band
        )
    single = frontier[frontier["draw"] == 0]
    for ax, at in zip(plot_conditions(conditions, single).axes, (0.15, 1.0), strict=True):
        [line] = [line for line in ax.lines if line.get_label().startswith("random heads")]
        assert list(line.get_xdata()) == [at, at]
