import math

import numpy as np
import pytest

from tda_bias.runs.text import counted, number_text, p_text


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_undefined(value):
    assert number_text(value) == "undefined"
    assert p_text(value) == "undefined"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00"),
        (0.5, "0.50"),
        (0.1, "0.10"),
        (0.0999, "0.0999"),
        (0.0001, "0.0001"),
        (0.00004, "4e-05"),
        (1e-6, "1e-06"),
        (0.0, "0.0000"),
    ],
)
def test_a_small_p_never_reads_as_none(value, text):
    assert p_text(value) == text


def test_decimals_are_a_choice():
    assert number_text(-0.126) == "-0.13"
    assert number_text(2.0, 3) == "2.000"


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 heads"), (1, "1 head"), (np.int64(1), "1 head"), (2, "2 heads")]
)
def test_a_noun_stands_in_the_singular_behind_1_alone(number, text):
    assert counted(number, "head") == text
    assert counted(number, "head is", "heads are").startswith(text)
