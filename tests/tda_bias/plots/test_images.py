"""Pictures against stored ones, with a tolerance; `make baselines` draws them anew."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from tda_bias.heads.paper_p import calibration
from tda_bias.plots.heat_map import plot_heatmap
from tda_bias.plots.illustrations import (
    filtration_figure,
    plot_pattern,
    plot_step_function,
    plot_swap,
)
from tda_bias.plots.overview import (
    plot_calibration,
    plot_category_means,
    plot_category_spreads,
    plot_length_control,
    plot_reliability,
)
from tda_bias.runs.figures import COLUMN, PAGE, print_style
from tests.support.plotted import made_up_example, made_up_heads

compare = pytest.mark.mpl_image_compare(
    baseline_dir="baseline", style="default", tolerance=8, savefig_kwargs={"dpi": 90}
)


@pytest.fixture
def example():
    return made_up_example()


@pytest.fixture
def result():
    return made_up_heads()


def drawn(draw, size=(COLUMN, 2.6), **more):
    with print_style():
        figure = Figure(figsize=size, layout="constrained")
        draw(ax=figure.subplots(), **more)
        return figure


@compare
def test_step_function(example):
    return drawn(lambda ax: plot_step_function(example, ax=ax))


@compare
def test_pattern(example):
    return drawn(lambda ax: plot_pattern(example, ax=ax), size=(COLUMN, 3.0))


@compare
def test_filtration(example):
    with print_style():
        return filtration_figure(example)


@compare
def test_swap():
    with print_style():
        figure = Figure(figsize=(PAGE, 2.8), layout="constrained")
        plot_swap(axes=figure.subplots(1, 2, sharey=True))
        return figure


@compare
def test_heat_map(result):
    return drawn(lambda ax: plot_heatmap(result, ax=ax, category="gender", by="relative"))


@compare
def test_means(result):
    return drawn(lambda ax: plot_category_means(result, ax=ax))


@compare
def test_spreads(result):
    return drawn(lambda ax: plot_category_spreads(result, ax=ax))


@compare
def test_length_control(result):
    return drawn(lambda ax: plot_length_control(result, ax=ax))


@compare
def test_reliability(result):
    return drawn(lambda ax: plot_reliability(result, ax=ax))


@compare
def test_calibration():
    found = calibration(n_groups=20, n_resamples=99)
    return drawn(lambda ax: plot_calibration(replace(found), ax=ax))
