"""Published risks as printed, and runs among them."""

import pytest

from pvf.published import paper_name, published, risk_table
from tda_bias.types import InputError


def test_published_values_are_those_of_the_papers():
    risk = published()["risk"]["tables"]
    assert len(risk["gender"]["rows"]) == 12
    for table in risk.values():
        assert table["source"]
        for name, R, R_p, R_v in table["rows"]:
            # Baichuan is misprinted in the paper.
            slack = 0.001 if name == "Baichuan-13B" else 0.00025
            assert pytest.approx(R_p + R_v, abs=slack) == R, name


def test_risk_stands_among_published_rows(risk_report_of_two):
    table = risk_table({"gpt2": risk_report_of_two}, "gender")
    assert len(table) == 13
    ours = table[table["from"] == "here"].iloc[0]
    assert ours["R"] == pytest.approx(float(risk_report_of_two.summary.iloc[0]["R"]))
    assert ours["the same as"] == "GPT-2"
    assert table["R"].is_monotonic_decreasing
    assert paper_name("smollm2-135m") == ""
    with pytest.raises(InputError, match="`table` must be one of gender, race"):
        risk_table({}, "age")
