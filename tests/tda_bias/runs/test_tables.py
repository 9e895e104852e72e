"""Tables are read with the columns they must have; anything else is one line."""

import io

import numpy as np
import pandas as pd
import pytest

from tda_bias.runs.tables import (
    check_columns,
    columns,
    counts,
    finite,
    flags,
    numbers,
    parsed_table,
    shares,
    texts,
)
from tda_bias.types import InputError

SCHEMA = columns(
    {
        "group": texts(),
        "layer": counts(),
        "value": numbers(),
        "mass": finite(),
        "p": shares(),
        "unstable": flags(),
        "s_.+": numbers(regex=True),
    }
)
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
    ({"s_male": None}, "lacks a column like"),
    ({"layer": ["a", "b", "c"]}, "the column 'layer' must hold whole numbers; got 'a'"),
    ({"layer": [0, np.nan, 1]}, "the column 'layer' is empty in row 2"),
    ({"layer": [0, -1, 1]}, "the column 'layer' must hold numbers from 0 on; got -1$"),
    ({"value": ["a", "1", "2"]}, "the column 'value' must hold numbers; got 'a'$"),
    ({"mass": [1.0, np.nan, 2.0]}, "the column 'mass' is empty in row 2"),
    ({"p": [0.1, 1.5, 0.2]}, "the column 'p' must hold numbers between 0 and 1; got 1.5$"),
    ({"unstable": ["yes", "no", "yes"]}, "the column 'unstable' must hold true or false; got"),
    ({"unstable": [0, 1, 2]}, "the column 'unstable' must hold true or false; got"),
    ({"s_male": ["x", "y", "z"]}, "the column 's_.*' must hold numbers; got 'x'"),
]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_table_that_does_not_fit_is_refused_by_its_column(changes, message, ending):
    content, name = written(table(**changes), ending)
    with pytest.raises(ValueError, match=message) as caught:
        parsed_table(content, name, SCHEMA)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("content", [b"", b"\0" * 50, b"PAR1", b'"', b"\xff\xfe\xfa", b"\n\n"])
def test_what_is_no_table_is_refused(content, ending):
    with pytest.raises(ValueError, match="no table|lacks the column") as caught:
        parsed_table(content, f"a.{ending}", SCHEMA)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_comes_back_as_it_was_written(ending):
    content, name = written(table(), ending)
    back = parsed_table(content, name, SCHEMA)
    pd.testing.assert_frame_equal(back, table(s_male=[1.0, 2.0, 3.0]), check_exact=True)


KINDS = {"group": str, "layer": int, "(value|mass)": float, "unstable": bool, "s_.+": float}


def test_columns_are_checked_by_name_and_type_and_whole_numbers_become_numbers():
    checked = check_columns(table(), KINDS, "a.csv")
    pd.testing.assert_frame_equal(checked, table(s_male=[1.0, 2.0, 3.0]), check_exact=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": None}, "a.csv: lacks the column 'group'"),
        ({"s_male": None}, r"lacks the column 's_\.\+'"),
        ({"layer": [0, np.nan, 1]}, "the column 'layer' must hold whole numbers"),
        ({"mass": ["a", "1", "2"]}, "the column 'mass' must hold numbers"),
        ({"unstable": [0, 1, 2]}, "the column 'unstable' must hold true or false"),
        ({"group": [1, 2, 3]}, "the column 'group' must hold texts"),
    ],
)
def test_a_column_of_another_type_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        check_columns(table(**changes), KINDS, "a.csv")
