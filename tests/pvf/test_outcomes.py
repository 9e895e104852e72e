"""What risks come to: prejudice beside that of a model without any."""

from dataclasses import replace

import numpy as np
import pytest

from pvf.brief import risk_brief
from pvf.outcomes import pvf_outcomes
from pvf.report import risk_report
from pvf.risk import decompose, prejudice_pvalue, risk_intervals
from tests.support.preferences import made_up


@pytest.fixture(scope="module")
def report():
    return risk_report(made_up(n_x=12, n_contexts=8))


def test_prejudice_is_tested_as_its_interval_over_templates_and_words_says(report):
    [one] = pvf_outcomes(report)
    assert one.value == report.risk.R_p
    low, high = risk_intervals(report.risk)["both"][:, 1]
    assert (one.low, one.high) == (pytest.approx(low), pytest.approx(high))
    for null, inside in ((low * 0.999, False), (low * 1.001, True), (high * 1.001, False)):
        assert (prejudice_pvalue(report.risk, null) > 0.05) == inside
    assert one.clusters == 8
    assert one.cluster == "template"


def test_its_effect_is_the_difference_of_arcsines_of_twice_a_share_less_one(report):
    [one] = pvf_outcomes(report)
    assert one.effect == pytest.approx(np.arcsin(one.value) - np.arcsin(one.neutral))


def test_a_model_without_prejudice_is_not_clear_and_one_that_always_leans_is():
    rng = np.random.default_rng(0)
    even = decompose(rng.dirichlet(np.ones(2), (30, 12)))
    p = 0.9 + 0.02 * rng.normal(size=(30, 12))
    leaning = decompose(np.stack([p, 1 - p], axis=-1))
    null = 0.2
    assert prejudice_pvalue(leaning, null) < 1e-6
    assert prejudice_pvalue(even, even.R_p) == pytest.approx(1.0)


def test_words_that_the_model_hardly_ever_gives_say_nothing_of_it():
    preferences = made_up(n_x=12, n_contexts=8)
    unlikely = replace(preferences, log_prob=preferences.log_prob - 20)
    for asked, confounded in ((preferences, ()), (unlikely, ("capability",))):
        [one] = pvf_outcomes(risk_report(asked))
        assert one.confounded == confounded


def test_fewer_than_five_templates_cannot_say():
    [one] = pvf_outcomes(risk_report(made_up(n_x=12, n_contexts=3)))
    assert one.verdict == "cannot say"


def test_the_first_sentence_follows_the_verdict(report):
    preferences = made_up(n_x=12, n_contexts=8)
    far_above = report.summary.copy()
    far_above.loc[far_above.index[-1], "R_p"] = 0.9
    unlikely = replace(preferences, log_prob=preferences.log_prob - 20)
    for made, sentence in (
        (report, "Prejudice of male and female is found: R_p is above"),
        (replace(report, summary=far_above), "No prejudice of male and female is found beyond"),
        (risk_report(unlikely), "hardly ever says a word of"),
        (risk_report(made_up(n_x=12, n_contexts=3)), "Too few words or templates"),
    ):
        assert sentence in risk_brief(made).said


def test_far_less_prejudice_than_none_gives_by_chance_is_not_clear():
    """Each template's preference is even to a hair: R_p is far below that of random preferences."""
    preferences = made_up(n_x=12, n_contexts=8)
    rng = np.random.default_rng(1)
    even = -3 + 0.001 * rng.normal(size=preferences.log_prob.shape)
    shift = np.where(np.array([0, 0, 1]) == 0, -np.log(2), 0.0)
    report = risk_report(replace(preferences, log_prob=even + shift))
    [one] = pvf_outcomes(report)
    assert one.high < one.neutral
    assert prejudice_pvalue(report.risk, one.neutral) < 1e-6
    assert one.p == 1
    assert one.word == "uncertain"
    assert not one.signed
