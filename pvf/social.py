"""Does the risk of an occupation go with what is known of it? Least squares on a user's factors.

No factor data come with the package. The papers used years of education, the share of women, hourly
pay (all US Bureau of Labor Statistics) and the log frequency of the word; see docs/method/pvf.md.

Source: [PCF] equation 12 (with the intercept that their plots have), [BVF] figures 9 and 12-15.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.runs.files import read_text
from tda_bias.types import InputError

WEIGHT = "weight"


@dataclass(frozen=True)
class Factors:
    """Factors of words.

    Attributes:
        table: One row per x, one column per factor; NaN where the file has nothing.
        weights: Weight of each x, or None if the file has no such column.
    """

    table: pd.DataFrame
    weights: pd.Series | None


def load_factors(path: str | Path) -> Factors:
    """Read a CSV with the columns ``x``, one or more factors, and perhaps ``weight``.

    Raises:
        InputError: naming the line, if a column is missing, a word stands twice, or a value is not
            a number (an empty one is missing) or a weight not positive.
    """
    reader = csv.DictReader(read_text(path, setting="factors", named=()).splitlines(), strict=True)
    columns = list(reader.fieldnames or ())
    names = [name for name in columns if name not in ("x", WEIGHT)]
    if "x" not in columns or not names or len(set(columns)) < len(columns):
        raise InputError(f"`factors` {path} must have the columns x,factor,...[,weight], each once")
    rows: dict[str, dict[str, float]] = {}
    try:
        for row in reader:
            where = f"`factors` {path} line {reader.line_num}"
            if None in row or None in row.values():
                raise InputError(f"{where}: it must have {len(columns)} values")
            word = row["x"].strip()
            if not word or word in rows:
                raise InputError(f"{where}: the word {word!r} is empty or stands twice")
            rows[word] = {n: _number(row[n], n, where) for n in columns if n != "x"}
    except csv.Error as error:
        raise InputError(f"`factors` {path} line {reader.reader.line_num}: {error}") from None
    if not rows:
        raise InputError(f"`factors` {path} has no row")
    table = pd.DataFrame.from_dict(rows, orient="index")
    return Factors(table[names], table[WEIGHT] if WEIGHT in columns else None)


def _number(text: str, name: str, where: str) -> float:
    if not text.strip() and name != WEIGHT:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (name == WEIGHT and value <= 0):
        kind = "positive number" if name == WEIGHT else "number"
        raise InputError(f"{where}: {name} must be a {kind}; got {text!r}")
    return value


def regress(
    response: Float[np.ndarray, " x"],
    factors: Mapping[str, Float[np.ndarray, " x"]],
    weights: Float[np.ndarray, " x"] | None = None,
) -> pd.DataFrame:
    """Least squares of a response on factors together, with an intercept.

    Args:
        response: For example r of each x.
        factors: Name to value for each x.
        weights: For example the number of people in the occupation; ordinary least squares if None.

    Returns:
        One row per factor: ``slope se t p``, ``se_hc3 p_hc3`` with errors that are robust against
        heteroscedasticity (HC3), and ``intercept r2 n spearman spearman_p``. The Spearman
        correlation ignores the weights.

    Raises:
        InputError: if there are too few x for the number of factors, or factors are collinear.
    """
    import statsmodels.api as sm

    design = sm.add_constant(np.column_stack(list(factors.values())), has_constant="add")
    n, parameters = design.shape
    if n < parameters + 2:
        raise InputError(f"{n} words have all of {', '.join(factors)}; {parameters + 2} are needed")
    if np.linalg.matrix_rank(design) < parameters:
        raise InputError(f"{', '.join(factors)}: a factor is constant or follows from the others")
    model = sm.OLS(response, design) if weights is None else sm.WLS(response, design, weights)
    fit = model.fit()
    robust = fit.get_robustcov_results("HC3")
    rows = []
    for number, (name, values) in enumerate(factors.items(), start=1):
        rank = stats.spearmanr(values, response)
        rows.append(
            {
                "factor": name,
                "slope": fit.params[number],
                "se": fit.bse[number],
                "t": fit.tvalues[number],
                "p": fit.pvalues[number],
                "se_hc3": robust.bse[number],
                "p_hc3": robust.pvalues[number],
                "intercept": fit.params[0],
                "r2": fit.rsquared,
                "n": n,
                "spearman": rank.statistic,
                "spearman_p": rank.pvalue,
            }
        )
    return pd.DataFrame(rows)


def regressions(by_x: pd.DataFrame, factors: Factors, *, response: str = "r") -> pd.DataFrame:
    """Every factor alone, then all together; ordinary and, with weights, weighted least squares.

    Args:
        by_x: With the columns ``x`` and ``response``.
        factors: From ``load_factors``.
        response: What is explained.

    Returns:
        As ``regress``, with the columns ``factors`` (alone or together) and ``fit`` (OLS or WLS).

    Raises:
        InputError: if too few words of the file were measured.
    """
    measured = by_x.set_index("x")[response]
    shared = [word for word in factors.table.index if word in measured.index]
    if len(shared) < 4:
        raise InputError(
            f"`factors` has {len(shared)} of the {len(measured)} measured words, 4 are needed; "
            f"measured are {', '.join(measured.index[:5])}, ..."
        )
    names = list(factors.table.columns)
    tables = []
    for label, chosen in [("alone", [n]) for n in names] + [("together", names)] * (len(names) > 1):
        values = factors.table.loc[shared, chosen].dropna()
        columns = {name: values[name].to_numpy() for name in chosen}
        fits: list[tuple[str, np.ndarray | None]] = [("OLS", None)]
        if factors.weights is not None:
            fits.append(("WLS", factors.weights.loc[values.index].to_numpy()))
        for fit, weights in fits:
            table = regress(measured.loc[values.index].to_numpy(), columns, weights)
            tables.append(table.assign(factors=label, fit=fit))
    return pd.concat(tables, ignore_index=True)
