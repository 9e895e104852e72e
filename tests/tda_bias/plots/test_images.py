"""Pictures against stored ones, with a tolerance; `make baselines` draws them anew."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tda_bias.config import HeadBiasConfig
from tda_bias.inference.calibration import calibration
from tda_bias.patterns.example import ExamplePattern
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
from tda_bias.records.figures import COLUMN, PAGE, print_style
from tda_bias.records.record import HookedModelRecord
from tda_bias.results.head_bias import HeadBias
from tda_bias.results.record import ControlsRecord, HeadsRecord

compare = pytest.mark.mpl_image_compare(
    baseline_dir="baseline", style="default", tolerance=8, savefig_kwargs={"dpi": 90}
)
WORDS = ("My", "sister", "is", "here", ".", "She", "can", "cook", "well")


@pytest.fixture
def example():
    rng = np.random.default_rng(4)
    weights = np.tril(rng.gamma(0.7, size=(2, 2, 9, 9)))
    patterns = weights / weights.sum(-1, keepdims=True)
    return ExamplePattern("made-up", "sister", " ".join(WORDS), WORDS, "causal", patterns)


@pytest.fixture
def result():
    """Numbers that no model made: pictures must not change with a library's rounding."""
    rng = np.random.default_rng(5)
    names = {"gender": 6, "race": 9}
    groups = pd.DataFrame(
        [
            {"category": c, "group": f"{c}{i}", "n": 25, "reliability": rng.uniform(0, 0.6)}
            for c, n in names.items()
            for i in range(n)
        ]
    )
    for column in ("metric_mean", "length_statistic_0", "length_statistic_1"):
        groups[column] = rng.normal(size=len(groups))
    for dim in range(2):
        groups[f"S{dim}_mean_stable"] = groups["length_statistic_1"] + rng.normal(size=len(groups))
    layer, head = (axis.ravel() for axis in np.indices((6, 4)))
    maps = []
    for c in names:
        table = pd.DataFrame({"category": c, "layer": layer, "head": head, "unstable": head == 3})
        table["unstable"] &= layer == 2
        for name in ("z_metric", "z_relative"):
            table[name] = rng.normal(size=len(table))
        table["p_max_relative"] = np.where((layer == 4) & (head == 1), 0.01, 0.5)
        table["q_relative"] = np.where((layer == 1) & (head == 0), 0.03, 0.5)
        maps.append(table)
    controls = [
        {"category": c, "groups": n, "reliability": 0.6, "null_map_correlation": 0.8}
        for c, n in names.items()
    ]
    record = HeadsRecord.model_construct(
        model=HookedModelRecord.model_construct(name="made-up"),
        controls=tuple(ControlsRecord.model_construct(**each) for each in controls),
        config=HeadBiasConfig(rank_by="relative"),
    )
    return HeadBias(pd.DataFrame(), pd.DataFrame(), pd.concat(maps), groups, record)


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
