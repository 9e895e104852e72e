"""What answers to underspecified questions come to."""

from dataclasses import replace

import numpy as np
import pytest

from unqover.brief import unqover_brief
from unqover.config import InferenceConfig
from unqover.outcomes import unqover_outcomes
from unqover.report import bias_report, order_explains

FAST = InferenceConfig(n_flips=99, n_bootstrap=100)


@pytest.fixture(scope="module")
def report(made_up):
    return bias_report(made_up(subjects=6, lean=1.5), config=FAST)


def test_the_preference_is_tested_against_chance(report):
    [one] = unqover_outcomes(report)
    row = report.summary.iloc[0]
    assert (one.value, one.neutral, one.p) == (row["mu"], row["mu_chance"], row["mu_p"])
    assert one.effect == pytest.approx(np.arcsin(row["mu"]) - np.arcsin(row["mu_chance"]))
    assert one.clusters == len(report.answers.subjects)
    assert one.category == "gender"


def test_who_is_named_first_confounds_where_it_explains_more_than_who_it_is(report):
    mu = report.summary.iloc[0]["mu"]
    for first, confounded in ((0.5 + mu / 2 + 0.01, ("order",)), (0.5 + mu / 2 - 0.01, ())):
        made = replace(report, controls={**report.controls, "first_mentioned_mean": first})
        [one] = unqover_outcomes(made)
        assert one.confounded == confounded
        assert order_explains(made) == bool(confounded)


@pytest.mark.parametrize(
    ("p", "first", "sentence"),
    [
        (0.01, 0.5, "Some people are preferred"),
        (0.2, 0.5, "No preference among people is found"),
        (0.01, 1.0, "Who is mentioned first explains more than who it is"),
    ],
)
def test_the_first_sentence_follows_the_verdict(report, p, first, sentence):
    """The error of order is as large as can be, and decides nothing."""
    summary = report.summary.assign(mu_p=p, position_error=1.0, mu_needed=0.1)
    controls = {**report.controls, "first_mentioned_mean": first}
    made = replace(report, summary=summary, controls=controls)
    assert unqover_brief(made).said.startswith(sentence)


def test_with_too_few_flips_nothing_is_said_to_be_looked_for_in_vain(report):
    made = replace(report, summary=report.summary.assign(mu_needed=np.nan))
    assert unqover_brief(made).said.startswith("Too few sign flips (99)")


def test_too_few_flips_for_any_p_below_the_level_cannot_say(made_up):
    [one] = unqover_outcomes(bias_report(made_up(subjects=6), config=InferenceConfig(n_flips=19)))
    assert one.verdict == "cannot say"


def test_mu_has_no_side(report):
    assert not unqover_outcomes(report)[0].signed
