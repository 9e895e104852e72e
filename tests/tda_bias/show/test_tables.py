"""Tables with the columns they must have, numbers and names as text."""

import io
import math

import numpy as np
import pandas as pd
import pytest

from tda_bias.show.tables import latex, markdown, paper_table, write_table
from tda_bias.show.text import is_visible, latex_text, markdown_text, number_text, p_text
from tda_bias.store.run import parsed_table

COLUMNS = {
    "group": str,
    "layer": int,
    "value": float,
    "mass": float,
    "p": float,
    "unstable": bool,
    "s_.+": float,
}
GOOD = {
    "group": ["None", "NA", "nan"],
    "layer": [0, 1, 2],
    "value": [0.5, np.nan, -np.inf],
    "mass": [1.0, 2.0, 3.0],
    "p": [0.0, np.nan, 1.0],
    "unstable": [True, False, True],
    "s_male": [1, 2, 3],
}


def table(**changes) -> pd.DataFrame:
    content = {**GOOD, **changes}
    return pd.DataFrame({name: values for name, values in content.items() if values is not None})


def written(frame: pd.DataFrame, ending: str) -> tuple[bytes, str]:
    if ending == "csv":
        return frame.to_csv(index=False).encode(), "a.csv"
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue(), "a.parquet"


BAD = [
    ({"group": None}, "lacks the column 'group'"),
    ({"s_male": None}, "lacks the column 's_"),
    ({"layer": ["a", "b", "c"]}, "the column 'layer' must hold whole numbers"),
    ({"layer": [0, np.nan, 1]}, "the column 'layer' must hold whole numbers"),
    ({"value": ["a", "1", "2"]}, "the column 'value' must hold numbers"),
    ({"unstable": ["yes", "no", "yes"]}, "the column 'unstable' must hold true or false"),
    ({"unstable": [0, 1, 2]}, "the column 'unstable' must hold true or false"),
    ({"s_male": ["x", "y", "z"]}, "the column 's_male' must hold numbers"),
]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_table_that_does_not_fit_is_refused_by_its_column(changes, message, ending):
    content, name = written(table(**changes), ending)
    with pytest.raises(ValueError, match=message) as caught:
        parsed_table(content, name, COLUMNS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"PAR1", b'"', b"\xff\xfe\xfa", b"\n\n"])
def test_what_is_no_table_is_refused(content, ending):
    with pytest.raises(ValueError, match="no table|lacks the column") as caught:
        parsed_table(content, f"a.{ending}", COLUMNS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_comes_back_as_it_was_written(ending):
    content, name = written(table(), ending)
    back = parsed_table(content, name, COLUMNS)
    pd.testing.assert_frame_equal(back, table(s_male=[1.0, 2.0, 3.0]), check_exact=True)


# -- markup --

HOSTILE = ("a|b", "<script>x</script>", "$x$", r"\input{secret}", "[x](javascript:y)", "`x`", "**x")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_in_markdown_and_latex(name, tmp_path):
    table = pd.DataFrame({"group": [name], "mean": [1.0]})
    spec = paper_table(table, f"of {name}")
    row = markdown(spec).splitlines()[-1]
    assert row.count("|") == 3
    assert not set("<$") & set(row)
    assert r"\input{" not in latex(spec, "x")
    write_table(tmp_path, "t", spec)
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


# -- numbers as text --


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_undefined(value):
    assert number_text(value) == p_text(value) == "undefined"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.00"), (0.1, "0.10"), (0.0999, "0.0999"), (0.0001, "0.0001"), (4e-5, "4e-05"),
     (0.0, "0.0000")],
)  # fmt: skip
def test_a_small_p_never_reads_as_none(value, text):
    assert p_text(value) == text


def test_spaces_and_characters_of_no_width_are_no_text():
    assert is_visible("a\u200b")
    assert not any(map(is_visible, ("", " \n", "\u200b\u2060", "\x07", "\ufeff", "\u00a0")))
