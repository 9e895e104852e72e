"""Published risks as printed, and runs among them."""

from dataclasses import replace

import numpy as np
import pytest

from pvf.config import RiskConfig
from pvf.published import paper_name, published, risk_table, unlike_the_papers
from pvf.report import risk_report
from pvf.templates import Template
from tda_bias.types import InputError
from tests.support.preferences import as_published

FEW = RiskConfig(n_resamples=100)


def test_published_values_are_those_of_the_papers():
    risk = published()["risk"]["tables"]
    assert len(risk["gender"]["rows"]) == 12
    for table in risk.values():
        assert table["source"]
        for name, R, R_p, R_v in table["rows"]:
            # Baichuan is misprinted in the paper.
            slack = 0.001 if name == "Baichuan-13B" else 0.00025
            assert pytest.approx(R_p + R_v, abs=slack) == R, name


@pytest.fixture(scope="module")
def published_report():
    return risk_report(as_published(), config=FEW)


def test_risk_stands_among_published_rows(published_report):
    table = risk_table({"gpt2": published_report}, "gender")
    assert len(table) == 13
    ours = table[table["from"] == "here"].iloc[0]
    assert ours["R"] == pytest.approx(float(published_report.summary.iloc[0]["R"]))
    assert ours["the same as"] == "GPT-2"
    assert table["R"].is_monotonic_decreasing
    assert paper_name("smollm2-135m") == ""
    with pytest.raises(InputError, match="`table` must be one of gender, race"):
        risk_table({}, "age")


def test_only_what_was_measured_as_the_papers_did_stands_in_their_table(published_report):
    preferences = published_report.preferences

    def reasons(changed=preferences, table="gender", weights=None, **settings):
        config = RiskConfig(n_resamples=100, **settings)
        return unlike_the_papers(risk_report(changed, config=config, x_weights=weights), table)

    assert reasons() == []
    other_x = replace(preferences, x=("pilot of a ship", *preferences.x[1:]))
    assert reasons(other_x) == ["words x are others than the papers' 120 occupations"]
    other_y = replace(preferences, classes=("men", "women"))
    assert reasons(other_y) == ["words y are others than the papers' of gender"]
    first = Template("The [X] thought that [Y]", 5.0)
    templates = replace(preferences, templates=(first, *preferences.templates[1:]))
    assert reasons(templates) == ["templates are others than the papers' ten"]
    assert reasons(criterion="l1") == ["criterion is l1, the papers' linf"]
    assert reasons(weights=np.arange(1.0, 121.0)) == ["words x have weights"]
    assert "words y are others" in reasons(table="race")[0]
    assert reasons(table="gender, in Chinese") == ["its templates or words are not published"]
    with pytest.raises(InputError, match="cannot stand in the papers' table of race: words y are"):
        risk_table({"gpt2": published_report}, "race")
