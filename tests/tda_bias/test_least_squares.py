"""Least squares against statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm

from tda_bias.stats.least_squares import least_squares, with_intercept


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "factors"), [(6, 1), (40, 3)])
def test_a_fit_is_that_of_statsmodels(n, factors, weighted):
    rng = np.random.default_rng(n)
    x, weights = rng.normal(size=(n, factors)), rng.uniform(0.2, 3, n) if weighted else None
    y, design = x.sum(1) + rng.normal(size=n), with_intercept(x)
    expected = sm.WLS(y, design, 1.0 if weights is None else weights).fit()
    robust = expected.get_robustcov_results("HC3")
    found = least_squares(y, design, weights)
    tests, of_hc3 = found.t_tests(found.covariance), found.t_tests(found.hc3)
    new = with_intercept(rng.normal(size=(5, factors)))
    band = expected.get_prediction(new).summary_frame(alpha=0.3)
    for ours, theirs in [
        (found.coefficients, expected.params),
        (tests.error, expected.bse),
        (tests.t, expected.tvalues),
        (tests.p, expected.pvalues),
        (of_hc3.error, robust.bse),
        (of_hc3.p, robust.pvalues),
        (found.r2, expected.rsquared),
        (found.prediction_band(new, 0.7), (band["obs_ci_lower"], band["obs_ci_upper"])),
    ]:
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)
