"""The picture of BBQ's scores shows the numbers of its runs."""

import numpy as np
import pytest

from tda_bias.show.figures import drawings
from tda_bias.store.run import open_run
from tests.support.bbq import write_rows
from unqover.bbq.answers import GivenAnswers
from unqover.bbq.plots import FIGURES, bbq_figure
from unqover.bbq.readers import load_bbq
from unqover.bbq.result import answer_scores


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Answers at random, and "unknown" alone: no person is named, and no share of them right."""
    asked = load_bbq(write_rows(tmp_path_factory.mktemp("bbq"), templates=8))
    drawn = np.random.default_rng(1).integers(0, 3, len(asked.items))
    unknown = np.array([one.unknown for one in asked.items])
    return [
        answer_scores(asked, GivenAnswers(places, 0, 0, f"{name}.jsonl", "r"))
        for name, places in (("drawn", drawn), ("unknown", unknown))
    ]


def points(ax):
    """Values and rows of the points of a panel, and ends of its intervals."""
    marked = [line for line in ax.lines if line.get_marker() in ("o", "s")]
    lines = [
        line for line in ax.lines if line.get_marker() == "None" and line.get_linestyle() == "-"
    ]
    where = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in marked]
    return where, [tuple(map(float, line.get_xdata())) for line in lines]


def test_a_point_is_a_score_and_a_line_its_interval_and_what_is_undefined_has_none(results):
    left, right = bbq_figure(results).axes
    row = results[0].value("right", "disambiguated")
    assert points(left) == ([(pytest.approx(row["value"]), 1)],
                            [(pytest.approx(row["low"]), pytest.approx(row["high"]))])  # fmt: skip
    named = [label.get_text() for label in left.get_yticklabels()]
    assert named == ["unknown · Hands (en)", "drawn · Hands (en)"]
    # The share of answers has no probabilities; always "unknown" has an s_AMB of 0.
    s_amb = results[0].value("s_AMB", "ambiguous")
    where, _ = points(right)
    assert [value for value, _ in where] == [pytest.approx(s_amb["value"]), 0]
    assert right.get_xlim()[0] == pytest.approx(-right.get_xlim()[1])


def test_runs_are_drawn_together(results, tmp_path):
    for number, result in enumerate(results):
        result.save(tmp_path / str(number))
    runs = [open_run(tmp_path / str(number)) for number in range(2)]
    [drawn] = drawings(runs, FIGURES)
    assert drawn.name == "bbq_scores"
    assert len(drawn.figure.axes[0].get_yticklabels()) == 2
    assert "96 items" not in drawn.figure.get_label()
    assert "128 items; 95% intervals over templates" in drawn.figure.get_label()
