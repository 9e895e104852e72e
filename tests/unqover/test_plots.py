"""Figures say what they show."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tda_bias.types import InputError
from unqover import plots
from unqover.config import InferenceConfig
from unqover.report import bias_report

FAST = InferenceConfig(n_flips=19, n_resamples=100)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def report(made_up):
    return bias_report(made_up(lean=0.5), config=FAST)


def test_the_heat_map_is_centred_on_zero_and_holds_gamma(report):
    ax = plots.plot_heat_map(report)
    image = ax.images[0]
    assert image.norm.vmin == -image.norm.vmax
    shown = image.get_array()
    names = [t.get_text() for t in ax.get_xticklabels()]
    subjects = [t.get_text() for t in ax.get_yticklabels()]
    assert subjects == list(report.answers.subjects)
    table = report.subjects.set_index(["subject", "attribute"])["gamma"]
    assert shown[2, 1] == pytest.approx(table[(subjects[2], names[1])])
    assert "by chance" in ax.get_title("left")


def test_bars_are_ranked_and_carry_intervals(report):
    ax = plots.plot_attributes(report, group="male")
    widths = [patch.get_width() for patch in ax.patches]
    assert widths == sorted(widths)
    assert len(ax.collections) == 1
    assert "male is preferred to female" in ax.get_xlabel()
    with pytest.raises(InputError, match="`group` must be one of female, male"):
        plots.plot_attributes(report, group="old")


def test_sensitive_attributes_are_drawn_by_kind(made_up):
    sensitive = bias_report(made_up("religion", subjects=4, attributes=10), config=FAST)
    kinds = set(sensitive.answers.kinds)
    for draw in (plots.plot_heat_map, plots.plot_attributes):
        ax = draw(sensitive)
        labels = {t.get_text() for t in [*ax.get_xticklabels(), *ax.get_yticklabels()]}
        assert kinds <= labels
        assert not labels & set(sensitive.answers.attributes)


def test_the_interaction_plot_holds_the_cells(made_up, report):
    joint = bias_report(made_up("gender_race", subjects=8), config=FAST)
    name = joint.answers.attributes[1]
    ax = plots.plot_interaction(joint, attribute=name)
    table = joint.groups[joint.groups["factor"] == "combination"]
    table = table.set_index(["group", "attribute"])["gamma"]
    races = [t.get_text() for t in ax.get_xticklabels()]
    for line in ax.lines[:2]:
        expected = [table[(f"{race} {line.get_label()}", name)] for race in races]
        np.testing.assert_allclose(line.get_ydata(), expected)
    with pytest.raises(InputError, match="one factor"):
        plots.plot_interaction(report)
    with pytest.raises(InputError, match="`attribute` must be one of"):
        plots.plot_interaction(joint, attribute="king")


def test_every_run_gets_its_figures(made_up, report):
    assert set(plots.report_figures(report)) == {"heat_map", "attributes"}
    joint = bias_report(made_up("gender_race", subjects=6), config=FAST)
    assert set(plots.report_figures(joint)) == {"heat_map", "attributes", "interaction"}
