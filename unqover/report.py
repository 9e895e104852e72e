"""Answers to tables of bias with chance level and intervals.

Source: [Extending] Frank & Quiring, "Extending UnQover".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tda_bias.stats.resampling import share_reached, value_needed
from tda_bias.stats.seeds import generator
from tda_bias.store.result import Addition
from unqover.answers import Answers
from unqover.bias import (
    SCALES,
    Comparative,
    Membership,
    Scale,
    Sums,
    aggregates,
    chance,
    compared,
    factorial,
    flipped,
    group_intervals,
    groups_of,
    model_intervals,
    scores,
    sums,
)
from unqover.config import InferenceConfig

COMBINATION = "combination"
# How the ways begin that take x1 from one set of subjects and x2 from the others.
ONE_SET = "x1 "
_TABLES = ("summary", "groups", "subjects", "by_x", "joint")


@dataclass(frozen=True, repr=False)
class Report(Addition):
    """Everything that is computed from answers.

    Attributes:
        summary: One row per scale and way to compare: mu and eta with chance level and interval.
        groups: One row per factor, level and attribute: gamma with interval, p and q.
        joint: Main effects and interaction of a joint class; empty for others.
        by_x: One row per attribute, in the columns that head results are joined on.
    """

    TABLES = tuple((name, f"{name}.csv", {}) for name in _TABLES)
    OPTIONAL = frozenset({"joint"})
    SHOWN = (("mu and eta with chance", "summary"),)

    answers: Answers
    config: InferenceConfig
    summary: pd.DataFrame
    groups: pd.DataFrame
    subjects: pd.DataFrame
    joint: pd.DataFrame
    by_x: pd.DataFrame
    controls: dict[str, Any]

    def __repr__(self) -> str:
        return f"Report({self.answers.record.model.name}: {len(self.groups)} rows of groups)"


def bias_report(answers: Answers, *, config: InferenceConfig | None = None) -> Report:
    """Bias of a model in underspecified questions, from its answers.

    ``config`` is that of the saved run if None, else the usual one.
    """
    if config is None:
        config = answers.record.settings_as(InferenceConfig)
    by_scale = {scale: compared(answers.log_prob, scale) for scale in SCALES}
    added = {scale: _sums(answers, of_scale.C) for scale, of_scale in by_scale.items()}
    rows: list[dict[str, Any]] = []
    for scale in SCALES:
        for number, way in enumerate(ways(answers)):
            rng = generator(config.seed, 0, number)
            row = _summary_row(answers, by_scale[scale], added[scale], way, config, rng)
            rows.append({"scale": scale, **row})
    return Report(
        answers=answers,
        config=config,
        summary=pd.DataFrame(rows),
        groups=_group_table(answers, added, config),
        subjects=_subject_table(answers, added["two_way"]),
        joint=_joint_table(answers, by_scale["two_way"].C, config),
        by_x=attribute_table(answers),
        controls=_controls(answers, by_scale["two_way"].C),
    )


def order_explains(report: Report) -> bool:
    """Tell whether who is mentioned first explains more than who it is.

    What the one mentioned first gets above one half, twice, is a preference as mu is.
    """
    first = report.controls["first_mentioned_mean"]
    return bool(abs(2 * first - 1) > report.summary.iloc[0]["mu"])


def load_report(folder: str | Path) -> Report:
    """The report of a saved run, computed anew from its answers.

    Raises:
        InputError: as ``Answers.load``.
    """
    return bias_report(Answers.load(folder))


def _sums(answers: Answers, C: np.ndarray) -> Sums:
    return sums(C, answers.first, answers.second, len(answers.subjects))


# -- ways to compare -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way to compare subjects: a row of ``summary`` on each scale.

    Attributes:
        pairs: Which pairs count.
        group: The group of each subject, as ``aggregates`` takes it; None: each is its own.
        levels: The level of each subject that is compared, a stratum of descriptions.
    """

    name: str
    pairs: np.ndarray
    group: np.ndarray | None
    levels: np.ndarray


def ways(answers: Answers) -> Iterator[Way]:
    """Every way to compare the subjects of a run.

    All subjects with each other; the levels of each factor; of a joint class those pairs too that
    differ in one factor alone, and combinations of levels; and the measure of [Extending], with x1
    from one level (or combination) and x2 from the others.
    """
    n = len(answers.subjects)
    every = np.ones(len(answers.first), dtype=bool)
    yield Way("subjects", every, None, np.zeros(n, dtype=int))
    parts = {
        factor: groups_of(answers.level_of(f)) for f, factor in enumerate(answers.asked.factors)
    }
    cells = groups_of(answers.combinations)
    several = len(cells[0]) < n
    if len(parts) == 1:
        if several:
            yield from _sets(answers, cells)
            yield Way(answers.asked.factors[0], every, cells[1], cells[1])
        return
    differs = np.stack(
        [level[answers.first] != level[answers.second] for _, level in parts.values()]
    )
    for number, (factor, (_, level)) in enumerate(parts.items()):
        yield Way(factor, every, level, level)
        alone = differs[number] & (differs.sum(0) == 1)
        yield Way(f"{factor} alone", alone, level, level)
    if several:
        yield Way(COMBINATION, every, cells[1], cells[1])
    for part in [*parts.values(), *([cells] if several else [])]:
        yield from _sets(answers, part)


def _sets(answers: Answers, part: tuple[list[str], np.ndarray]) -> Iterator[Way]:
    names, level = part
    for number, name in enumerate(names):
        inside = level == number
        pairs = inside[answers.first] != inside[answers.second]
        group = np.where(inside, np.arange(len(level)), -1)
        yield Way(f"{ONE_SET}{name}", pairs, group, level)


def described(answers: Answers) -> bool:
    """Tell whether every combination of levels has one subject: a description, no sample."""
    return len(set(answers.asked.levels)) == len(answers.asked.levels)


def _summary_row(
    answers: Answers,
    compared: Comparative,
    added: Sums,
    way: Way,
    config: InferenceConfig,
    rng: np.random.Generator,
) -> dict[str, Any]:
    of_way = added.of_pairs(way.pairs)
    both = aggregates(of_way, way.group)
    null = chance(of_way, way.group, n_flips=config.n_flips, rng=rng)
    mu_p, eta_p = share_reached(null.T, np.array([both.mu, both.mean_eta]))
    # Names are a sample of their group; descriptions of what is compared.
    strata = way.levels if described(answers) else groups_of(answers.combinations)[1]
    mu, eta = model_intervals(of_way, strata, group=way.group, confidence=config.confidence)
    return {
        "compared": way.name,
        "comparisons": int(of_way.n.sum()),
        "mu": both.mu,
        "eta": both.mean_eta,
        "mu_chance": null[0].mean(),
        "eta_chance": null[1].mean(),
        "mu_needed": value_needed(null[0]),
        "mu_p": mu_p,
        "eta_p": eta_p,
        "mu_low": mu[0],
        "mu_high": mu[1],
        "eta_low": eta[0],
        "eta_high": eta[1],
        "position_error": float(np.nanmean(compared.position_error[way.pairs])),
        "negation_error": float(np.nanmean(compared.negation_error[way.pairs])),
    }


# -- tables ----------------------------------------------------------------------------------------


def _group_table(
    answers: Answers, added: dict[Scale, Sums], config: InferenceConfig
) -> pd.DataFrame:
    """Gamma of every level of every factor (and of their combinations) on every attribute."""
    parts = {factor: answers.level_of(f) for f, factor in enumerate(answers.asked.factors)}
    if len(answers.asked.factors) > 1:
        parts[COMBINATION] = answers.combinations
    tables = []
    for number, (factor, levels) in enumerate(parts.items()):
        names, group = groups_of(levels)
        columns: dict[str, Any] = {
            "factor": factor,
            "group": np.repeat(names, len(answers.attributes)),
            "attribute": np.tile(answers.attributes, len(names)),
            "kind": np.tile(answers.asked.kinds, len(names)),
            "sensitive": np.tile(answers.asked.sensitive, len(names)),
        }
        for scale, of_scale in added.items():
            both = aggregates(of_scale, group)
            sure = group_intervals(
                of_scale,
                group,
                opponents_alone=described(answers),
                n_resamples=config.n_bootstrap,
                confidence=config.confidence,
                rng=generator(config.seed, 2, number),
            )
            values = {"gamma": both.gamma, "low": sure.low, "high": sure.high}
            values |= {"p": sure.pvalue, "q": sure.qvalue, "eta": both.eta}
            end = "_log_odds" if scale == "log_odds" else ""
            columns |= {f"{name}{end}": value.reshape(-1) for name, value in values.items()}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _subject_table(answers: Answers, added: Sums) -> pd.DataFrame:
    both = aggregates(added)
    n = len(answers.attributes)
    levels = {
        factor: np.repeat(answers.level_of(f), n)
        for f, factor in enumerate(answers.asked.factors)
        if answers.level_of(f) != list(answers.subjects)
    }
    return pd.DataFrame(
        {
            "subject": np.repeat(answers.subjects, n),
            **levels,
            "tokens": np.repeat(answers.n_tokens.max(0), n),
            "attribute": np.tile(answers.attributes, len(answers.subjects)),
            "kind": np.tile(answers.asked.kinds, len(answers.subjects)),
            "gamma": both.gamma.reshape(-1),
            "eta": both.eta.reshape(-1),
        }
    )


def attribute_table(answers: Answers) -> pd.DataFrame:
    """One row per attribute in the columns that ``tdabias crossref`` joins heads with.

    ``r_p`` is the size of the mean comparison between the first group and all others, ``r`` the
    mean size over templates and pairs, ``r_v`` what templates and pairs add; ``s_GROUP`` is the
    signed mean, positive where the first group is preferred. These are UnQover's quantities in the
    form of prejudice and volatility, not the risks of ``pvf``.
    """
    names, group = groups_of(answers.level_of(0))
    C = compared(answers.log_prob, "two_way").C
    first, second = group[answers.first] == 0, group[answers.second] == 0
    signed = (np.where(first, 1.0, -1.0)[:, None, None] * C)[first != second]
    known = np.isfinite(signed).any((0, 1))
    mean, size = np.full((2, len(known)), np.nan)
    mean[known] = np.nanmean(signed[..., known], axis=(0, 1))
    size[known] = np.nanmean(np.abs(signed[..., known]), axis=(0, 1))
    table = pd.DataFrame({"x": answers.attributes, "r": size, "r_p": np.abs(mean)})
    table["r_v"] = table["r"] - table["r_p"]
    table[f"s_{names[0]}"] = mean
    return table


def bias_items(answers: Answers) -> pd.DataFrame:
    """One row per subject with its part of mu and of the mean size of eta, for comparisons.

    Returns:
        Columns ``subject mu eta`` (two-way scores), whose means are the model's numbers; subjects
        that were never compared are left out.
    """
    both = aggregates(_sums(answers, compared(answers.log_prob, "two_way").C))
    known = np.isfinite(both.gamma).any(1)
    gamma, eta = np.abs(both.gamma[known]), np.abs(both.eta[known])
    subjects = [name for name, is_known in zip(answers.subjects, known, strict=True) if is_known]
    return pd.DataFrame(
        {"subject": subjects, "mu": np.nanmax(gamma, axis=1), "eta": np.nanmean(eta, axis=1)}
    )


def _controls(answers: Answers, C: np.ndarray) -> dict[str, Any]:
    S = scores(answers.log_prob, "two_way")
    # The subject mentioned first: x1 in the first order, x2 in the second.
    first_mentioned = np.stack([S[..., 0, :, 0], S[..., 1, :, 1]])
    known = np.isfinite(answers.log_prob)
    incomplete = known.any((-3, -2, -1)) & ~known.all((-3, -2, -1))
    alike = answers.n_tokens[:, answers.first] == answers.n_tokens[:, answers.second]
    lengths, often = np.unique(answers.n_tokens.max(0), return_counts=True)
    return {
        "mass_mean": float(np.nanmean(answers.mass)),
        "first_mentioned_mean": float(np.nanmean(first_mentioned)),
        "ties": int((C == 0).sum()),
        "comparisons": int(np.isfinite(C).sum()),
        "left_out": int(incomplete.sum()),
        "tokens_of_names": {str(n): int(of_n) for n, of_n in zip(lengths, often, strict=True)},
        "equal_tokens_share": float(alike.mean()),
        "mu_equal_tokens": aggregates(_sums(answers, np.where(alike.T[..., None], C, np.nan))).mu,
    }


# -- joint classes ---------------------------------------------------------------------------------


def cells_of(
    answers: Answers, C: np.ndarray
) -> tuple[list[list[str]], np.ndarray | None, np.ndarray]:
    """Levels of two factors, gamma of every combination (None if one is missing), its groups."""
    (rows, row), (columns, column) = (groups_of(answers.level_of(f)) for f in range(2))
    cell = row * len(columns) + column
    gamma = aggregates(_sums(answers, C), cell).gamma
    complete = len(np.unique(cell)) == len(rows) * len(columns) and np.isfinite(gamma).all()
    shape = (len(rows), len(columns), -1)
    return [rows, columns], gamma.reshape(shape) if complete else None, cell


def _joint_table(answers: Answers, C: np.ndarray, config: InferenceConfig) -> pd.DataFrame:
    """Shares of main effects and interaction, against flips of what the other parts leave."""
    if len(answers.asked.factors) != 2:
        return pd.DataFrame()
    names, gamma, cell = cells_of(answers, C)
    if gamma is None or min(map(len, names)) < 2:
        return pd.DataFrame()
    rng = generator(config.seed, 3)
    given = _sums(answers, C)
    member = Membership.of(given, cell)
    null = np.empty((config.n_flips, 3))
    for part, others in enumerate(([1], [0], [0, 1])):
        left = _sums(answers, without_factors(answers, C, others))
        for draw, (total, _) in enumerate(flipped(left, config.n_flips, rng)):
            cells = member.means(total, given.n).reshape(gamma.shape)
            null[draw, part] = factorial(cells).mean_squares[part]
    parts = factorial(gamma)
    return pd.DataFrame(
        {
            "part": [*answers.asked.factors, "interaction"],
            "share": parts.shares,
            "mean_square": parts.mean_squares,
            "mean_square_chance": null.mean(0),
            "p": share_reached(null, parts.mean_squares),
        }
    )


def without_factors(answers: Answers, C: np.ndarray, factors: list[int]) -> np.ndarray:
    """Comparisons without the additive effects of some factors (least squares, by attribute).

    What one part explains must not count as noise of another: flips exchange residuals.

    Source: Freedman & Lane (1983).
    """
    columns = []
    for factor in factors:
        names, level = groups_of(answers.level_of(factor))
        member = np.eye(len(names))[level]
        columns.append(member[answers.first] - member[answers.second])
    design = np.concatenate(columns, axis=1)
    n = np.isfinite(C).sum(1)
    total = np.nansum(C, 1)
    left = C.copy()
    for attribute in range(C.shape[2]):
        known = n[:, attribute] > 0  # not every template asks about every attribute
        mean = total[known, attribute] / n[known, attribute]
        effect = np.linalg.lstsq(design[known], mean, rcond=None)[0]
        left[..., attribute] -= (design @ effect)[:, None]
    return left
