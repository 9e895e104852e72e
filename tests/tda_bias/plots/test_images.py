"""Pictures against stored ones, with a tolerance; `make baselines` draws them anew."""

from dataclasses import replace

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tda_bias.plots.heads import (
    plot_calibration,
    plot_categories,
    plot_heatmap,
    plot_length_control,
    plot_reliability,
)
from tda_bias.plots.illustrations import (
    calibration,
    plot_attention,
    plot_step_function,
    plot_swap,
)
from tda_bias.show.figures import COLUMN, PAGE, print_figure, print_style
from tests.support.plotted import made_up_example, made_up_heads


def drawn(plot, *arguments, height=2.6, **options) -> Figure:
    figure = print_figure(COLUMN, height)
    plot(*arguments, ax=figure.subplots(), **options)
    return figure


def pattern() -> Figure:
    example = made_up_example()
    return drawn(plot_attention, example.tokens, example.patterns[0, 0], title="L0H0", height=3.0)


def swap() -> Figure:
    figure = print_figure(PAGE, 2.8)
    plot_swap(axes=figure.subplots(1, 2, sharey=True))
    return figure


PICTURES = {
    "step_function": lambda: drawn(plot_step_function, made_up_example()),
    "pattern": pattern,
    "swap": swap,
    "heat_map": lambda: drawn(plot_heatmap, made_up_heads(), category="gender", by="relative"),
    "means": lambda: drawn(plot_categories, made_up_heads()),
    "spreads": lambda: drawn(plot_categories, made_up_heads(), "sd"),
    "length_control": lambda: drawn(plot_length_control, made_up_heads()),
    "reliability": lambda: drawn(plot_reliability, made_up_heads()),
    "calibration": lambda: drawn(plot_calibration, calibration(n_groups=20, n_resamples=99)),
}


@pytest.mark.mpl_image_compare(
    baseline_dir="baseline", style="default", tolerance=8, savefig_kwargs={"dpi": 90}
)
@pytest.mark.parametrize("name", PICTURES)
def test_picture(name):
    with print_style():
        return PICTURES[name]()


def test_heads_that_survive_correction_and_unstable_ones_are_marked():
    (ax, _) = PICTURES["heat_map"]().axes
    marked = [points.get_offsets().tolist() for points in ax.collections]
    assert marked == [[[1, 4]], [[0, 1]], [[3, 2]]]  # filled, open, crossed out


def test_seven_categories_are_drawn_with_the_marks_there_are():
    two = made_up_heads()
    names = [f"own{number}" for number in range(7)]
    seven = replace(
        two,
        **{
            field: pd.concat([getattr(two, field).assign(category=name) for name in names])
            for field in ("category", "groups")
        },
    )
    (axes,) = drawn(plot_length_control, seven).axes
    assert [text.get_text().split(",")[0] for text in axes.get_legend().get_texts()] == names
