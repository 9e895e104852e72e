"""CSV that a spreadsheet may open, and names in Markdown and LaTeX."""

import io

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.runs.tables import csv_text, latex, markdown, parsed_table, write_table
from tda_bias.runs.text import is_visible, latex_text, markdown_text

FORMULAS = ("=1+1", "+x", "-x", "@SUM(A1)", "\tx", '=HYPERLINK("http://x")')
HOSTILE = ("a|b", "<script>x</script>", "$x$", r"\input{secret}", "[x](javascript:y)", "`x`", "**x")


@pytest.mark.parametrize("name", FORMULAS)
def test_no_name_begins_like_a_formula_and_reading_gives_it_back(name):
    table = pd.DataFrame({"group": [name, "girl"], "z": [-1.5, 2.0]})
    text = csv_text(table)
    plain = pd.read_csv(io.StringIO(text))
    assert plain["group"][0] == f"'{name}"
    assert list(plain["z"]) == [-1.5, 2.0]
    assert list(parsed_table(text.encode(), "a.csv", {})["group"]) == [name, "girl"]


def test_numbers_that_are_written_as_texts_stay_numbers():
    table = pd.DataFrame({"change": ["-0.041", "+1e-5"]})
    assert csv_text(table) == "change\n-0.041\n+1e-5\n"


def test_a_commands_option_stays_what_it_is():
    table = pd.DataFrame({"option": ["--data", "'--data", "--SUM(A1)"]})
    assert csv_text(table) == "option\n--data\n'--data\n'--SUM(A1)\n"
    assert list(parsed_table(csv_text(table).encode(), "a.csv", {})["option"]) == list(
        table["option"]
    )


@given(st.lists(st.text(alphabet="'=+-@a1.\"\n, ", min_size=1, max_size=6), min_size=1, max_size=4))
def test_whatever_a_text_begins_with_comes_back(texts):
    table = pd.DataFrame({"x": pd.Series(texts, dtype=object), "n": 1})
    read = parsed_table(csv_text(table).encode(), "a.csv", {"x": str})
    assert list(read["x"]) == texts


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_in_markdown_and_latex(name, tmp_path):
    table = pd.DataFrame({"group": [name], "mean": [1.0]})
    row = markdown(table).splitlines()[-1]
    assert row.count("|") == 3
    assert not set("<$") & set(row)
    assert r"\input{" not in latex(table, name, "x")
    write_table(tmp_path, "t", table, f"of {name}")
    assert "<script" not in (tmp_path / "t.md").read_text()
    assert r"\input{" not in (tmp_path / "t.tex").read_text()


def test_markup_is_shown_and_not_obeyed():
    from markdown import markdown as rendered

    for name in HOSTILE:
        html = rendered(markdown_text(name))
        shown = html.removeprefix("<p>").removesuffix("</p>")
        assert "<" not in shown, html
    assert latex_text(r"50 % of a_b & \x{y}~^$#") == (
        r"50 \% of a\_b \& \textbackslash{}x\{y\}\textasciitilde{}\textasciicircum{}\$\#"
    )


def test_spaces_and_characters_of_no_width_are_no_text():
    assert is_visible("a\u200b")
    for blank in ("", " \n", "\u200b\u2060", "\x07", "\ufeff", "\u00a0"):
        assert not is_visible(blank)
