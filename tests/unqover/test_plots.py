"""Figures say what they show."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from unqover import plots
from unqover.config import InferenceConfig
from unqover.report import bias_report

FAST = InferenceConfig(n_flips=19, n_bootstrap=100)


def axes():
    return Figure().subplots()


@pytest.fixture(scope="module")
def report(made_up):
    return bias_report(made_up(lean=0.5), config=FAST)


def test_the_heat_map_is_centred_on_zero_and_holds_gamma(report):
    ax = plots.plot_heat_map(report, ax=axes())
    image = ax.images[0]
    assert image.norm.vmin == -image.norm.vmax
    shown = image.get_array()
    names = [t.get_text() for t in ax.get_xticklabels()]
    subjects = [t.get_text() for t in ax.get_yticklabels()]
    assert subjects == list(report.answers.subjects)
    table = report.subjects.set_index(["subject", "attribute"])["gamma"]
    assert shown[2, 1] == pytest.approx(table[(subjects[2], names[1])])


def test_figures_name_groups_chance_and_what_survives(made_up):
    for lean, marked in ((0.0, False), (1.5, True)):
        report = bias_report(made_up(lean=lean, noise=0.5), config=FAST)
        null = report.summary.iloc[0]["mu_chance"]
        rows = report.groups[report.groups["group"] == "female"].set_index("attribute")
        assert (rows["q"] < 0.05).any() == marked
        ax = plots.plot_heat_map(report, ax=axes())
        assert f"by chance {null:.3f}" in ax.get_title("left")
        assert [text.get_text() for text in ax.texts] == ["female", "male"]
        shown = {label.get_text() for label in ax.get_xticklabels()}
        assert shown == {f"{a} *" if rows["q"][a] < 0.05 else a for a in rows.index}
        assert ("no gamma" in ax.get_xlabel()) != marked
        ax = plots.plot_attributes(report, ax=axes())
        dark = [bar.get_alpha() > 0.5 for bar in ax.patches]
        names = [label.get_text() for label in ax.get_yticklabels()]
        assert dark == [rows["q"][name] < 0.05 for name in names]
    # Where each subject is its own group, cells are marked.
    report = bias_report(made_up("education", subjects=5, lean=2.0, noise=0.3), config=FAST)
    marked = plots.plot_heat_map(report, ax=axes()).texts
    assert len(marked) == (report.groups["q"] < 0.05).sum() > 0


def test_bars_are_ranked_and_carry_intervals(report):
    ax = plots.plot_attributes(report, ax=axes())
    widths = [patch.get_width() for patch in ax.patches]
    assert widths == sorted(widths)
    assert len(ax.collections) == 1
    assert "female is preferred to male" in ax.get_xlabel()


def test_sensitive_attributes_are_drawn_by_kind(made_up):
    sensitive = bias_report(made_up("religion", subjects=3, attributes=6), config=FAST)
    kinds = set(sensitive.answers.asked.kinds)
    for draw in (plots.plot_heat_map, plots.plot_attributes):
        ax = draw(sensitive, ax=axes())
        labels = {t.get_text() for t in [*ax.get_xticklabels(), *ax.get_yticklabels()]}
        assert kinds <= labels
        assert not labels & set(sensitive.answers.attributes)


def test_the_interaction_plot_holds_the_cells(made_up, report):
    joint = bias_report(made_up("gender_race", subjects=6, attributes=3), config=FAST)
    ax = plots.plot_interaction(joint, ax=axes())
    (name,) = (a for a in joint.answers.attributes if f"“{a}”" in ax.get_ylabel())
    table = joint.groups[joint.groups["factor"] == "combination"]
    table = table.set_index(["group", "attribute"])["gamma"]
    races = [t.get_text() for t in ax.get_xticklabels()]
    for line in ax.lines[:2]:
        expected = [table[(f"{race} {line.get_label()}", name)] for race in races]
        np.testing.assert_allclose(line.get_ydata(), expected)
    assert set(plots.report_figures(joint)) == {"heat_map", "attributes", "interaction"}
    assert set(plots.report_figures(report)) == {"heat_map", "attributes"}
