"""Outcomes have names in words, each its own, wherever they are printed or drawn."""

import re
from pathlib import Path

import pytest

from tda_bias.crossref.rank_tests import SUMMARIES
from tda_bias.show.names import named

PAGE = Path(__file__).parents[3] / "docs" / "method" / "compare.md"
# Signs of the papers.
SIGNS = r"R_p|R_v|r_p|r_v|s_AMB"


def outcomes_of_the_page() -> list[str]:
    """The columns that the page of the method names, of one category."""
    table = PAGE.read_text(encoding="utf-8").partition("## Outcomes")[2].partition("## Tests")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    found = [name for row in rows for name in re.findall("`([^`]+)`", row)]
    place = {"CATEGORY": "gender", "TYPE": "age", "intrasentence_...": "intrasentence_ss_sum_race"}
    for sign, one in place.items():
        found = [name.replace(sign, one) for name in found]
    return found


def test_every_outcome_of_a_comparison_has_a_name_in_words_of_its_own():
    columns = outcomes_of_the_page()
    assert len(columns) > 20
    names = [named(column) for column in columns]
    assert not [name for name in names if "_" in re.sub(SIGNS, "", name)]
    assert len(set(names)) == len(columns)


@pytest.mark.parametrize(
    "column", ["r", "r_p", "r_v", "log_odds", "abs_log_odds", "beta", "abs_beta", *SUMMARIES]
)
def test_every_quantity_of_a_cross_reference_has_a_name_in_words(column):
    name = named(column)
    assert name != column
    assert "_" not in re.sub(SIGNS, "", name)


def test_a_name_begins_with_the_longest_that_is_known_and_categories_keep_theirs():
    assert named("log_odds_my_jobs") == "log-odds, my_jobs"
    assert named("crows-fr_age") == "CrowS-Pairs, French, age"
    assert named("pairs_beta_sum") == "beta_sum, log-odds"  # a set of one's own
    assert named("rate") == "rate"  # does not begin with r
