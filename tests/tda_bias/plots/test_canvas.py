"""The check of texts finds what a reader would see, and nothing else."""

from matplotlib.figure import Figure

from tests.support.canvas import unseen


def plain(**ticks):
    figure = Figure(figsize=(3, 4), layout="constrained")
    ax = figure.subplots()
    ax.set_yticks([])
    ax.set_title("a title")
    ax.set_xticks(range(4), ["a long name of a tick"] * 4, **ticks)
    return figure, ax


def test_labels_that_are_turned_do_not_overlap_and_level_ones_do():
    assert unseen(plain(rotation=90)[0]) == []
    assert unseen(plain(rotation=40, ha="right")[0]) == []
    assert any(line.startswith("overlap: 'a long name") for line in unseen(plain()[0]))


def test_a_text_beyond_the_picture_is_named():
    figure, ax = plain(rotation=90)
    ax.text(1.2, 0.5, "far away", transform=ax.transAxes).set_in_layout(False)
    assert unseen(figure) == ["cut off: 'far away'"]


def test_ticks_beyond_the_axis_are_not_looked_at():
    figure, ax = plain(rotation=90)
    ax.set_xlim(-0.5, 0.5)
    assert unseen(figure) == []
