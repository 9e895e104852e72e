"""The levels in benchmarks/calibration.csv, simulated again with fewer cases, and their page."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.calibration import PARTS, TABLE, simulated

PAGE = Path(__file__).parents[1] / "docs/method/calibration.md"


def printed():
    """Cases and shares of every row that was simulated."""
    table = pd.read_csv(TABLE)
    shares = [np.array(percent.split(), float) / 100 for percent in table["percent"].astype(str)]
    return dict(zip(table["name"], zip(table["cases"], shares, strict=True), strict=True))


def is_off(name, cases, shares):
    """Whether a level or a coverage is missed by more than chance."""
    chance = 3 * np.sqrt(0.05 * 0.95 / cases)
    if "interval" in name:
        return (shares < min(0.92, 0.95 - chance)).any()
    return (shares > max(0.07, 0.05 + chance)).any()


def test_the_page_has_what_does_not_keep_its_level_by_more_than_chance():
    found = re.findall(r"^\| ([^|]+) \| (\d+) \| ([\d., ]+) \|$", PAGE.read_text("utf-8"), re.M)
    shown = {name: (int(cases), shares) for name, cases, shares in found}
    rows = printed()
    assert list(shown) == [name for name, row in rows.items() if is_off(name, *row)]
    for name, (cases, shares) in shown.items():
        simulated_cases, simulated_shares = rows[name]
        assert cases == simulated_cases
        assert shares == ", ".join(f"{100 * share:.1f}" for share in simulated_shares)
    assert f"has all {len(rows)} rows" in PAGE.read_text("utf-8")


# That of heads takes as long as the others together, and has simulations of its own in `heads/`.
_PARTS = [pytest.param(p, marks=[pytest.mark.long] if p == "heads" else []) for p in PARTS]


@pytest.mark.slow
@pytest.mark.parametrize("part", _PARTS)
def test_the_table_is_what_the_printing_functions_give(part):
    table = printed()
    for row in simulated(PARTS[part], 0.1):
        cases, said = table[row.name]
        both = 1 / row.cases + 1 / cases
        # Four standard errors, and no less than one case.
        apart = 4 * np.sqrt(np.maximum(said * (1 - said), 0.01) * both)
        assert (np.abs(np.array(row.shares) - said) <= apart).all(), row.name
