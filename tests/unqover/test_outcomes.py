"""Bias subject by subject: its means are the model's numbers."""

import numpy as np
import pytest

from tests.support.answers import made_up_answers
from unqover.config import InferenceConfig
from unqover.outcomes import bias_items
from unqover.report import bias_report


def test_means_over_subjects_are_mu_and_eta_of_the_report():
    answers = made_up_answers("gender", subjects=6, attributes=3)
    found = bias_items(answers)
    summary = bias_report(answers, config=InferenceConfig(n_flips=19, n_resamples=100)).summary
    row = summary[(summary["scale"] == "two_way") & (summary["compared"] == "subjects")].iloc[0]
    assert found["mu"].mean() == pytest.approx(row["mu"], rel=1e-12)
    assert found["eta"].mean() == pytest.approx(row["eta"], rel=1e-12)


def test_a_subject_that_was_never_compared_is_left_out():
    from dataclasses import replace

    answers = made_up_answers("gender", subjects=6, attributes=3)
    lost = answers.log_prob.copy()
    lost[(answers.first == 0) | (answers.second == 0)] = np.nan
    found = bias_items(replace(answers, log_prob=lost))
    assert answers.subjects[0] not in found["subject"].tolist()
    assert np.isfinite(found[["mu", "eta"]]).all(axis=None)
