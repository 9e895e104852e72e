"""Tables are read with the columns they must have; anything else is one line."""

import io

import numpy as np
import pandas as pd
import pytest

from tda_bias.runs.tables import parsed_table

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
