import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from pvf import plots
from pvf.reference import Reference
from pvf.report import risk_report
from pvf.social import regressions
from tda_bias.types import InputError
from tests.support.preferences import made_up


@pytest.fixture(scope="module")
def reports():
    return {f"m{i}": risk_report(made_up(i, n_x=30)) for i in range(2)}


def axes():
    return Figure().subplots()


def test_the_box_plot_shows_every_x_of_every_model(reports):
    ax = plots.plot_signed_means(reports, ax=axes())
    points = [c.get_offsets()[:, 1] for c in ax.collections]
    for shown, report in zip(points, reports.values(), strict=True):
        np.testing.assert_allclose(shown, report.risk.mean_s[:, 0])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["m0", "m1"]


def test_one_model_gets_the_names_of_its_extremes(reports):
    ax = plots.plot_signed_means({"m0": reports["m0"]}, label=2, ax=axes())
    order = np.argsort(reports["m0"].risk.mean_s[:, 0])
    expected = {f"job{i}" for i in (*order[:2], *order[-2:])}
    assert {text.get_text() for text in ax.texts} == expected


def test_the_histogram_counts_every_x(reports):
    for quantity in ("r", "r_p", "r_v"):
        ax = plots.plot_distribution(reports["m0"], quantity=quantity, ax=axes())
        assert sum(bar.get_height() for bar in ax.patches) == 30
        labels = [line.get_label() for line in ax.lines]
        assert ("spline" if quantity == "r_v" else "normal fit") in labels


def test_the_heat_map_shows_the_preferences_of_the_class(reports):
    preferences = reports["m0"].preferences
    ax = plots.plot_preferences(preferences, ["job3", "job1"], ax=axes())
    np.testing.assert_allclose(ax.images[0].get_array(), preferences.by_class().p[[3, 1], :, 0])
    with pytest.raises(InputError, match="'job99' was not read; read were job0"):
        plots.plot_preferences(preferences, ["job99"], ax=axes())


def test_change_and_size_show_measured_values(reports):
    first, second = reports.values()
    ax = plots.plot_change(first, second, ax=axes())
    lines = {container.get_label(): container.lines[0] for container in ax.containers}
    np.testing.assert_allclose(lines["R_p"].get_ydata(), [first.risk.R_p, second.risk.R_p])
    ax = plots.plot_against_size(reports, ax=axes())
    lines = {container.get_label(): container.lines[0] for container in ax.containers}
    np.testing.assert_allclose(lines["R_v"].get_xdata(), [10, 11])
    np.testing.assert_allclose(lines["R_v"].get_ydata(), [first.risk.R_v, second.risk.R_v])


def test_the_regression_plot_draws_both_lines(reports):
    by_x = reports["m0"].by_x
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"pay": generator.normal(size=30)}, index=by_x["x"])
    weighted = table.assign(weight=generator.uniform(1, 5, 30))
    ax = plots.plot_regression(by_x, weighted, "pay", ax=axes())
    ols = ax.lines[0]
    slope, intercept = np.polyfit(table["pay"], by_x["r"], 1)
    np.testing.assert_allclose(ols.get_ydata(), intercept + slope * ols.get_xdata())
    assert len(ax.lines) == 2


def test_the_regression_plot_leaves_out_words_of_weight_0_like_the_table(reports):
    by_x = reports["m0"].by_x
    factors = pd.DataFrame({"pay": np.arange(30.0) ** 2, "weight": 1.0}, index=by_x["x"])
    factors.loc[by_x["x"][20:], "weight"] = 0
    ax = plots.plot_regression(by_x, factors, "pay", ax=axes())
    table = regressions(by_x, factors).set_index("fit")
    for line, fit in zip(ax.lines, ("OLS", "WLS"), strict=True):
        drawn = np.ptp(line.get_ydata()) / np.ptp(line.get_xdata())
        assert drawn == pytest.approx(abs(table.loc[fit, "slope"]))
    assert ax.get_title() == f"{table.loc['OLS', 'n']} words" == "20 words"


def test_preferences_are_drawn_against_a_reference_and_those_furthest_from_it_are_named(reports):
    shares = np.column_stack([np.linspace(0.9, 0.1, 30), np.linspace(0.1, 0.9, 30)])
    made = made_up(0, n_x=30)
    report = risk_report(made, reference=Reference.of(shares, "mine"))
    ax = plots.plot_reference(report, ax=axes(), label=1)
    drawn = ax.collections[0].get_offsets()
    p, weights = made.by_class().p[..., 1], report.risk.context_weights
    expected = [np.average(word, weights=weights) for word in p]
    np.testing.assert_allclose(drawn, np.column_stack([shares[:, 1], expected]))
    above = expected - shares[:, 1]
    named = {text.get_text() for text in ax.texts}
    assert named == {made.x[above.argmin()], made.x[above.argmax()]}
    assert "reference" in plots.report_figures(report)
    with pytest.raises(InputError, match="have no `reference`"):
        plots.plot_reference(reports["m0"], ax=axes())


def test_every_run_gets_its_figures_and_two_are_compared(reports):
    own = {"signed_means", "distributions", "preferences"}
    assert set(plots.figures_of_runs({"m0": reports["m0"]}, x=["job1"])) == own
    several = set(plots.figures_of_runs(reports))
    of_each = {f"{name}-{figure}" for name in reports for figure in own}
    assert several == of_each | {"models-signed_means", "models-size", "models-change"}
