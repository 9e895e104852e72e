import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.ablation.study import AblationRecord, AblationStudy
from tda_bias.crossref.target_tests import HeadMap
from tda_bias.plots.behaviour import plot_ablation, plot_correlation_map, plot_targets
from tda_bias.runs.record import ModelRecord


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_targets_are_points_and_names_do_not_cover_each_other():
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"category": "a", "target": [f"target {i}" for i in range(40)]})
    table["r"], table["mean_abs_T"] = generator.normal(size=(2, 40))
    ax = plot_targets(table, "r", "mean_abs_T")
    np.testing.assert_allclose(ax.collections[0].get_offsets(), table[["mean_abs_T", "r"]])
    expected = stats.spearmanr(table["r"], table["mean_abs_T"]).statistic
    assert ax.get_title() == f"40 targets, Spearman {expected:.2f}"
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert 5 <= len(boxes) <= 40
    covered = sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert covered <= 2  # widths of names are estimated


def test_a_constant_column_has_no_correlation_in_the_title():
    table = pd.DataFrame({"category": "a", "target": ["x", "y"], "r": 1.0, "T": [1.0, 2.0]})
    assert "undefined" in plot_targets(table, "r", "T").get_title()


def test_the_correlation_map_is_centred_on_zero_and_marks_survivors():
    table = pd.DataFrame([(i // 3, i % 3) for i in range(6)], columns=["layer", "head"])
    table["rho"] = [0.1, -0.6, 0.2, 0.3, 0.0, 0.4]
    table["p_max"] = [1, 0.01, 1, 1, 1, 1]
    table["q"] = [1, 0.02, 1, 0.04, 1, 1]
    ax = plot_correlation_map(HeadMap("r", table, {}), n=30)
    image = ax.images[0]
    np.testing.assert_allclose(image.get_array(), table["rho"].to_numpy().reshape(2, 3))
    assert image.get_clim() == (-0.6, 0.6)
    assert [c.get_offsets().tolist() for c in ax.collections[:2]] == [[[1, 0]], [[0, 1]]]


def test_the_ablation_plot_shows_every_head_and_the_measured_ones():
    heads = pd.DataFrame({"z_relative": [1.0, 2.0, 3.0], "effect": [0.1, -0.2, 0.3]})
    heads["exact"] = [np.nan, -0.25, np.nan]
    agreement = pd.DataFrame([{"ranking": "z_relative", "rho_effect": 0.5, "p_effect": 0.3}])
    empty = pd.DataFrame()
    record = AblationRecord(
        model=ModelRecord(name="made-up"), category="gender", rank_by="relative", top=1,
        n_random=20, seed=0, triples=1, share_prefix=True, survivors=0, base={},
    )  # fmt: skip
    study = AblationStudy(empty, empty, heads, agreement, record)
    ax = plot_ablation(study)
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(ax.collections[1].get_offsets(), [[2.0, 0.25]])
    assert "0.50" in ax.get_title()
