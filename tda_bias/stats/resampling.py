"""p-values from resampling, their ties and corrections: once, for all packages.

Pure arrays in, numbers out. A value is undefined (NaN) where it cannot be computed, never 0.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, stats

# A p below it is told from chance, everywhere.
LEVEL = 0.05

# Single precision: values that are closer are equal (``tolerance``; the default is for double).
SINGLE_PRECISION = 1e-5

# What numbers of a model in single precision may differ by, as a share of their size, when the same
# text is run in another batch.
_ROUNDING_OF_MODELS = 1e-6

# How close values may lie to be equal: a number, or one for every test.
Tolerance = Float[np.ndarray, "..."] | float


def rounding(size: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
    """What rounding of double precision makes of a value: 1e-12 plus a billionth of its size.

    Far above rounding errors, far below any difference that data could show.
    """
    return np.asarray(1e-12 + 1e-9 * np.abs(size))


def beyond_rounding(
    difference: Float[np.ndarray, "..."],
    size: Float[np.ndarray, "..."],
    *,
    share: float = _ROUNDING_OF_MODELS,
) -> Float[np.ndarray, "..."]:
    """A difference of two numbers of a model; 0 where rounding in single precision could make it.

    Args:
        difference: Of the numbers; NaN stays NaN.
        size: How large the two are together.
        share: What rounding can make, as a share of the size.

    Examples:
        >>> beyond_rounding(np.array([1e-6, 1e-3]), np.array([40.0, 40.0])).tolist()
        [0.0, 0.001]
    """
    return np.where(np.abs(difference) <= share * size, 0.0, difference)


def threshold(
    observed: Float[np.ndarray, "..."] | float, *, tolerance: Tolerance | None = None
) -> Float[np.ndarray, "..."]:
    """The one tie rule: what reaches this is as large as the observed value.

    Args:
        observed: Values; NaN stays NaN.
        tolerance: How close values are equal, whatever rounding makes of them; ``rounding`` of the
            observed ones if None, which is for double precision.

    Examples:
        >>> bool(0.1 + 0.1 + 0.1 >= threshold(0.3)), bool(0.29 >= threshold(0.3))
        (True, False)
    """
    return np.asarray(observed - (rounding(observed) if tolerance is None else tolerance))


def permutation_pvalue(
    count: Int[np.ndarray, "..."], n_resamples: int, exact: bool
) -> Float[np.ndarray, "..."]:
    """(1 + count) / (1 + n_resamples), or count / n_resamples where all were enumerated.

    Source: Phipson & Smyth (2010), Permutation p-values should never be zero.

    Examples:
        >>> float(permutation_pvalue(np.array(3), 99, exact=False))
        0.04
    """
    if exact:
        return np.asarray(count / n_resamples)
    return np.asarray((1 + count) / (1 + n_resamples))


def least_pvalue(draws: float) -> float:
    """The smallest p that so many random draws can give, of which none reaches what was observed.

    Examples:
        >>> least_pvalue(19), least_pvalue(0)
        (0.05, 1.0)
    """
    return 1.0 / (1.0 + draws)


def share_reached(
    null: Float[np.ndarray, "draw *test"],
    observed: Float[np.ndarray, "*test"] | float,
    *,
    exact: bool = False,
    tolerance: Tolerance | None = None,
) -> Float[np.ndarray, "*test"]:
    """Permutation p of values at least as large as the observed ones; ties count.

    Args:
        null: The values in every draw; for a two-sided p their sizes.
        observed: The values themselves; for a two-sided p their sizes.
        exact: ``null`` are all arrangements there are, the observed one among them.
        tolerance: Of ties; see ``threshold``.

    Returns:
        One p per test; NaN where the observed value is.

    Examples:
        >>> float(share_reached(np.array([0.1, 0.3, 0.2, 0.4]), 0.3))
        0.6
    """
    count = np.asarray((null >= threshold(observed, tolerance=tolerance)).sum(0))
    pvalue = permutation_pvalue(count, len(null), exact)
    return np.where(np.isnan(observed), np.nan, pvalue)


def value_needed(null: Float[np.ndarray, " draw"]) -> float:
    """The value above which ``share_reached`` is below .05; NaN where draws are too few."""
    allowed = math.ceil(LEVEL * (1 + len(null))) - 2  # draws that may reach it
    return float(np.sort(null)[-1 - allowed]) if allowed >= 0 else float("nan")


def two_sided_share(
    null: Float[np.ndarray, " draw"],
    observed: float,
    *,
    exact: bool = False,
    tolerance: Tolerance | None = None,
) -> float:
    """Permutation p of one value by its distance from 0; see ``share_reached``."""
    return float(share_reached(np.abs(null), abs(observed), exact=exact, tolerance=tolerance))


def family_wise_share(
    largest: Float[np.ndarray, " draw"],
    observed: Float[np.ndarray, " test"],
    *,
    exact: bool = False,
    tolerance: Tolerance | None = None,
) -> Float[np.ndarray, " test"]:
    """Permutation p of each value among the largest of all tests per draw.

    Arguments and result are those of ``share_reached``, with one null value per draw for all tests.

    Source: Westfall & Young (1993), single-step maxT.
    """
    reached = threshold(observed, tolerance=tolerance)
    count = len(largest) - np.searchsorted(np.sort(largest), reached, side="left")
    pvalue = permutation_pvalue(count, len(largest), exact)
    return np.where(np.isnan(observed), np.nan, pvalue)


def benjamini_hochberg(pvalue: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """False-discovery-rate q of all defined p-values together; NaN stays NaN.

    Source: Benjamini & Hochberg (1995).

    Examples:
        >>> benjamini_hochberg(np.array([0.01, 0.04, np.nan, 0.5])).round(2).tolist()
        [0.03, 0.06, nan, 0.5]
    """
    q = np.full(np.shape(pvalue), np.nan)
    defined = np.isfinite(pvalue)
    if defined.any():
        q[defined] = stats.false_discovery_control(np.asarray(pvalue)[defined], method="bh")
    return q


def holm(pvalue: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Holm's adjusted p of all defined p-values together; NaN stays NaN.

    Source: Holm (1979).

    Examples:
        >>> holm(np.array([0.01, 0.04, np.nan, 0.5])).round(2).tolist()
        [0.03, 0.08, nan, 0.5]
    """
    adjusted = np.full(np.shape(pvalue), np.nan)
    known = np.flatnonzero(np.isfinite(pvalue))
    order = known[np.argsort(pvalue[known], kind="stable")]
    scaled = pvalue[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


# -- one sample ------------------------------------------------------------------------------------


def smallest_effect(n: float) -> float:
    """The mean in SDs that a two-sided t-test of n items at .05 finds four times out of five.

    Examples:
        >>> round(smallest_effect(34), 2)
        0.5
    """
    critical = stats.t.ppf(0.975, n - 1)

    def lacking(mean: float) -> float:
        shift = mean * np.sqrt(n)
        # The wrong side's share is NaN where it is too small for SciPy.
        wrong_side = np.nan_to_num(stats.nct.cdf(-critical, n - 1, shift))
        return float(stats.nct.sf(critical, n - 1, shift) + wrong_side) - 0.8

    upper = 1 / np.sqrt(n)
    while lacking(upper) < 0:
        upper *= 1.5
    return float(optimize.brentq(lacking, upper / 1.5, upper, xtol=1e-12))
