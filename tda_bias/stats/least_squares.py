"""Least squares with weights, and errors that are robust against heteroscedasticity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats


class CoefficientTests(NamedTuple):
    """Standard errors of coefficients, and their two-sided t-tests against zero."""

    error: Float[np.ndarray, "coefficient"]
    t: Float[np.ndarray, "coefficient"]
    p: Float[np.ndarray, "coefficient"]


@dataclass(frozen=True)
class LeastSquares:
    """A fit of least squares.

    Attributes:
        covariance: Of the coefficients, if the errors of all items are alike (up to weights).
        hc3: The same if they are not, HC3 of MacKinnon and White (1985).
        variance: Of an item's error, of one of weight 1 where items have weights.
        df: Items less coefficients.
        r2: Share of the (weighted) squared deviations from the mean that the fit explains.
    """

    coefficients: Float[np.ndarray, "coefficient"]
    covariance: Float[np.ndarray, "coefficient coefficient"]
    hc3: Float[np.ndarray, "coefficient coefficient"]
    variance: float
    df: int
    r2: float

    def t_tests(self, covariance: Float[np.ndarray, "coefficient coefficient"]) -> CoefficientTests:
        """Tests of the coefficients with one of the two covariances."""
        error = np.sqrt(np.diag(covariance))
        t = self.coefficients / error
        return CoefficientTests(error, t, 2 * stats.t.sf(np.abs(t), self.df))

    def prediction_band(
        self, design: Float[np.ndarray, "item coefficient"], share: float
    ) -> tuple[Float[np.ndarray, "item"], Float[np.ndarray, "item"]]:
        """Limits between which a share of new items of weight 1 is expected to lie."""
        of_mean = np.einsum("ij,jk,ik->i", design, self.covariance, design)
        half = stats.t.ppf((1 + share) / 2, self.df) * np.sqrt(of_mean + self.variance)
        expected = design @ self.coefficients
        return expected - half, expected + half


def with_intercept(factors: Float[np.ndarray, "..."]) -> Float[np.ndarray, "item coefficient"]:
    """The design of one factor or of several: a column of ones before them."""
    return np.column_stack([np.ones(len(factors)), factors])


def least_squares(
    y: Float[np.ndarray, "item"],
    design: Float[np.ndarray, "item coefficient"],
    weights: Float[np.ndarray, "item"] | None = None,
) -> LeastSquares:
    """Fit by least squares; ``weights`` are inverse variances of items, up to a factor."""
    n, parameters = design.shape
    w = np.ones(n) if weights is None else weights
    root = np.sqrt(w)
    X, target = design * root[:, None], y * root
    solve = np.linalg.pinv(X)
    coefficients = solve @ target
    residual = target - X @ coefficients
    squares = float(residual @ residual)
    variance = squares / (n - parameters)
    leverage = np.einsum("ij,ji->i", X, solve)
    by_item = solve * (residual / (1 - leverage))
    deviation = root * (y - np.average(y, weights=w))
    return LeastSquares(
        coefficients=coefficients,
        covariance=variance * solve @ solve.T,
        hc3=by_item @ by_item.T,
        variance=variance,
        df=n - parameters,
        r2=1 - squares / float(deviation @ deviation),
    )
