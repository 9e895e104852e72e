"""Bias subject by subject, for comparisons of models: means over the rows are mu and eta."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unqover.answers import Answers
from unqover.bias import aggregates, comparative, scores, sums


def bias_items(answers: Answers) -> pd.DataFrame:
    """One row per subject with its part of mu and of the mean size of eta.

    Returns:
        Columns ``subject mu eta`` (two-way scores), whose means are the model's numbers; subjects
        that were never compared are left out.
    """
    C = comparative(scores(answers.log_prob, "two_way")).C
    both = aggregates(sums(C, answers.first, answers.second, len(answers.subjects)))
    known = np.isfinite(both.gamma).any(1)
    gamma, eta = np.abs(both.gamma[known]), np.abs(both.eta[known])
    subjects = [name for name, is_known in zip(answers.subjects, known, strict=True) if is_known]
    return pd.DataFrame(
        {"subject": subjects, "mu": np.nanmax(gamma, axis=1), "eta": np.nanmean(eta, axis=1)}
    )
