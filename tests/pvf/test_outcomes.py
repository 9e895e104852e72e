"""Risk word by word: its means are the model's numbers."""

import pytest

from pvf.config import RiskConfig
from pvf.outcomes import risk_items
from pvf.report import risk_report
from tests.support.preferences import made_up


def test_means_over_words_are_the_risks_of_the_report():
    preferences = made_up()
    found = risk_items(preferences)
    risk = risk_report(preferences, config=RiskConfig(n_resamples=100)).risk
    assert found["x"].tolist() == list(preferences.x)
    for name in ("R", "R_p", "R_v"):
        assert found[name].mean() == pytest.approx(getattr(risk, name), rel=1e-12)
