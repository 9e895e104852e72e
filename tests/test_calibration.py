"""The levels that docs/method/calibration.md prints, simulated again with fewer cases."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.calibration import PARTS

PAGE = Path(__file__).parents[1] / "docs/method/calibration.md"
# Rows that the page marks, and explains.
OFF = " (off)"


def printed():
    """Cases and shares of every row of the page's tables."""
    found = re.findall(r"^\| ([^|]+) \| (\d+) \| ([\d., ]+) \|$", PAGE.read_text("utf-8"), re.M)
    return {
        name: (int(cases), np.array(shares.split(", "), float) / 100)
        for name, cases, shares in found
    }


def test_the_page_marks_what_does_not_keep_its_level_by_more_than_chance():
    for name, (cases, shares) in printed().items():
        chance = 3 * np.sqrt(0.05 * 0.95 / cases)
        off = shares > max(0.07, 0.05 + chance)
        if "interval" in name:
            off = shares < min(0.92, 0.95 - chance)
        assert off.any() == name.endswith(OFF), name


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_tables_are_what_the_printing_functions_give(part):
    table = {name.removesuffix(OFF): row for name, row in printed().items()}
    _, rows = PARTS[part]
    for row in rows(0.1):
        cases, said = table[row.name]
        both = 1 / row.cases + 1 / cases
        # Four standard errors, and no less than one case.
        apart = 4 * np.sqrt(np.maximum(said * (1 - said), 0.01) * both)
        assert (np.abs(np.array(row.shares) - said) <= apart).all(), row.name
