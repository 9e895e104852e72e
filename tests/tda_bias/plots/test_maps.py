"""Maps of heads of any shape: square cells, and nothing beyond the picture."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from tda_bias.plots import run_page
from tda_bias.plots.maps import draw_tested_map, maps_figure, settled
from tda_bias.show.figures import captioned, print_style
from tests.support.canvas import unseen

LABEL = "z, dispersion test, triple minus twin: SDs above the mean under exchange"
SHAPES = [(1, 1), (1, 64), (4, 4), (6, 12), (12, 12), (30, 9), (48, 1), (48, 25), (48, 64)]


def drawn(layers, heads, panels, chance=2.5):
    """Maps of noise with one head that stands out, a long label and a caption."""
    values = np.random.default_rng(0).normal(size=(layers, heads))
    values[-1, -1] = 9.0
    with print_style():
        figure, axes = maps_figure(layers, heads, panels)
        for ax in axes:
            draw_tested_map(
                ax, values, survives=values > 5, unstable=values > 99, chance=chance,
                layers=range(layers), label=LABEL,
            )  # fmt: skip
            ax.set_title("a category of some length · a-model-of-a-long-name", fontsize="medium")
        captioned(figure, "Some words on what the map shows, and on how many texts it is of. " * 3)
        settled(figure)
    return figure, axes


@pytest.mark.parametrize("panels", [1, 2, 4])
@pytest.mark.parametrize(("layers", "heads"), SHAPES)
def test_no_text_lies_beyond_the_picture_and_cells_are_square(layers, heads, panels):
    figure, axes = drawn(layers, heads, panels)
    assert unseen(figure) == []
    for ax in axes:
        box = ax.get_window_extent()
        assert box.width / heads == pytest.approx(box.height / layers, rel=0.02)
        assert box.width / heads > 4  # pixels


def test_a_picture_on_the_page_has_the_colours_of_the_figure():
    """Of 256 colours only: the few cells that stand out are neither grey nor of another shade."""
    figure, _ = drawn(12, 12, 1)
    picture = run_page._picture("a map", figure)
    whole = BytesIO()
    figure.savefig(whole, dpi=run_page._SHARP * run_page._INCH)
    shown, printed = (
        np.asarray(Image.open(file).convert("RGB")).astype(int)
        for file in (BytesIO(picture.png), whole)
    )
    assert shown.shape == printed.shape
    assert np.abs(shown - printed).max() <= 12
    assert len(picture.png) < 0.6 * len(whole.getvalue())


def test_without_a_chance_level_survivors_have_one_colour():
    _, [ax] = drawn(4, 4, 1, chance=None)
    every, found = ax.get_images()
    assert every.get_clim()[1] == 9.0
    assert len({tuple(colour) for colour in found.cmap(found.norm([1.0, 9.0]))}) == 1
