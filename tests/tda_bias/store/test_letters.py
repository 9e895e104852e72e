"""Letters that the usual font lacks."""

import logging
from dataclasses import replace
from io import BytesIO

import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from tda_bias.store.letters import _fonts_with
from tda_bias.store.result import save_figure


def characters(path) -> set[str]:
    return set(map(chr, font_manager.get_font(path).get_charmap()))


@pytest.fixture
def elsewhere() -> str:
    """A letter that the usual font lacks and another installed one has."""
    usual = characters(font_manager.findfont("DejaVu Sans"))
    for entry in font_manager.fontManager.ttflist:
        others = sorted(characters(entry.fname) - usual)
        if others and not entry.name.startswith("Last Resort"):
            return others[0]
    pytest.skip("all installed fonts have the same letters")


def picture(text: str) -> tuple[Figure, bytes]:
    figure = Figure(figsize=(2, 1))
    figure.subplots().set_xticks([0, 1], [text, "b"])
    file = BytesIO()
    save_figure(file, figure)
    return figure, file.getvalue()


def test_a_letter_is_taken_from_another_font_without_a_warning(elsewhere, caplog):
    figure, drawn = picture(f"a{elsewhere}")
    assert not caplog.messages
    (label, _) = figure.axes[0].get_xticklabels()
    assert len(label.get_fontfamily()) > 1
    assert drawn == picture(f"a{elsewhere}")[1]


def test_of_a_family_the_face_counts_that_is_drawn_with(monkeypatch):
    regular, other = (
        next(e for e in font_manager.fontManager.ttflist if e.fname.endswith(f"/ttf/{name}"))
        for name in ("STIXGeneral.ttf", "DejaVuSans-Bold.ttf")
    )
    bold = replace(other, name="STIXGeneral", weight=700)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [regular, bold])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    _fonts_with.cache_clear()
    assert _fonts_with(frozenset("\u20d2")) == ("STIXGeneral",)
    _fonts_with.cache_clear()


def test_a_letter_that_no_font_has_is_said_in_one_line(caplog):
    with caplog.at_level(logging.WARNING, logger="tda_bias"):
        for _ in range(2):
            picture("a\U0010ffff\U0010fffe")
    [said] = caplog.messages
    assert "no installed font has the letters" in said
    assert "\n" not in said


def test_usual_letters_are_drawn_once_and_other_warnings_go_on(monkeypatch):
    import warnings

    drawn = []

    def savefig(self, *_, **__):
        drawn.append(self)
        warnings.warn("of another kind", UserWarning, stacklevel=1)

    monkeypatch.setattr(Figure, "savefig", savefig)
    with pytest.warns(UserWarning, match="of another kind"):
        picture("abc")
    assert len(drawn) == 1
