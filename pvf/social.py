"""Least squares of the risk of words on social factors; see docs/method/pvf.md.

Source: [PCF] equation 12 (with the intercept that their plots have), [BVF] figures 9 and 12-15.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from pvf.reference import BLS, official_rows
from pvf.words import numbers_by_x, word_frequencies
from tda_bias.stats.least_squares import least_squares, with_intercept
from tda_bias.types import InputError

WEIGHT = "weight"
FREQUENCY = "frequency"
_WOMEN, _ZIPF = "share of women, %", "word frequency, Zipf scale"


def load_factors(source: str | Path, x: Sequence[str]) -> pd.DataFrame:
    """The factors of words x: a named one, or those of a file.

    Args:
        source: ``bls``, the official US share of women by occupation in per cent, which ships;
            ``frequency``, how often a word is written, from the package wordfreq; or a CSV with the
            columns ``x``, one or more factors, and perhaps ``weight``.
        x: The words that were measured.

    Returns:
        A row per word, NaN where the source has nothing. A weight of 0 leaves a word out.

    Raises:
        InputError: as ``numbers_by_x``, if there is no factor, or if wordfreq is not installed.
    """
    if source == BLS:
        shares = {row["x"]: float(row["women"]) for row in official_rows()}
        return pd.DataFrame({_WOMEN: shares})
    if source == FREQUENCY:
        frequencies = word_frequencies(x)
        if frequencies is None:
            raise InputError("`factors` frequency needs wordfreq; pip install 'tdabias[frequency]'")
        table = pd.DataFrame({_ZIPF: frequencies}, index=list(x))
        return table.where(table > 0)  # a word of no list has no logarithm
    table = numbers_by_x(source, "factors", ("x",))
    if set(table) <= {WEIGHT}:
        raise InputError(f"`factors` {source} must have the columns x,factor,...[,weight]")
    return table


def regressions(by_x: pd.DataFrame, factors: pd.DataFrame, *, response: str = "r") -> pd.DataFrame:
    """Every factor alone, then all together; ordinary and, with weights, weighted least squares.

    ``response`` is the column of ``by_x`` that is explained: ``r``, ``r_p`` or ``r_v``.

    Returns:
        As ``regress``, with the columns ``factors`` (alone or together) and ``fit`` (OLS or WLS).

    Raises:
        InputError: if too few words of the file were measured.
    """
    measured = by_x.set_index("x")[response]
    weighted = WEIGHT in factors
    used = factors[factors[WEIGHT] > 0] if weighted else factors
    shared = [word for word in used.index if word in measured.index]
    if len(shared) < 4:
        raise InputError(
            f"`factors` has {len(shared)} of the {len(measured)} measured words, 4 are needed; "
            f"measured are {', '.join(measured.index[:5])}, ..."
        )
    names = [name for name in factors if name != WEIGHT]
    tables = []
    for label, chosen in [("alone", [n]) for n in names] + [("together", names)] * (len(names) > 1):
        values = factors.loc[shared, chosen].dropna()
        y = measured.loc[values.index]
        tables.append(regress(y, values).assign(factors=label, fit="OLS"))
        if weighted:
            table = regress(y, values, factors.loc[values.index, WEIGHT])
            tables.append(table.assign(factors=label, fit="WLS"))
    return pd.concat(tables, ignore_index=True)


def regress(
    response: pd.Series, factors: pd.DataFrame, weights: pd.Series | None = None
) -> pd.DataFrame:
    """Least squares of a response on factors together, with an intercept; ordinary without weights.

    Returns:
        One row per factor: ``slope se t p``, ``se_hc3 p_hc3`` with errors that are robust against
        heteroscedasticity (HC3), and ``intercept r2 n spearman spearman_p``. The Spearman
        correlation ignores the weights.

    Raises:
        InputError: if there are too few x for the number of factors, or factors are collinear.
    """
    y, names = response.to_numpy(), ", ".join(map(str, factors.columns))
    design = with_intercept(factors.to_numpy())
    n, parameters = design.shape
    if n < parameters + 2:
        raise InputError(f"{n} words have all of {names}; {parameters + 2} are needed")
    if np.linalg.matrix_rank(design) < parameters:
        raise InputError(f"{names}: a factor is constant or follows from the others")
    fit = least_squares(y, design, None if weights is None else weights.to_numpy())
    tests, robust = fit.t_tests(fit.covariance), fit.t_tests(fit.hc3)
    ranks = [stats.spearmanr(factors[name], y) for name in factors]
    return pd.DataFrame(
        {
            "factor": list(factors),
            "slope": fit.coefficients[1:],
            "se": tests.error[1:],
            "t": tests.t[1:],
            "p": tests.p[1:],
            "se_hc3": robust.error[1:],
            "p_hc3": robust.p[1:],
            "intercept": fit.coefficients[0],
            "r2": fit.r2,
            "n": n,
            "spearman": [rank.statistic for rank in ranks],
            "spearman_p": [rank.pvalue for rank in ranks],
        }
    )
