"""Answers to tables: bias per subject, group and attribute, with chance level and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tda_bias.runs.result import summary_html
from tda_bias.runs.writing import adding_to_run
from tda_bias.stats.resampling import share_reached
from tda_bias.types import InputError
from unqover.answers import Answers
from unqover.bias import (
    Aggregates,
    Comparative,
    Membership,
    Sums,
    aggregates,
    comparative,
    factorial,
    groups_of,
    scores,
    sums,
)
from unqover.config import SCALES, InferenceConfig, Scale
from unqover.inference import (
    Flip,
    Interval,
    chance,
    flipped_sums,
    group_intervals,
    model_intervals,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = "combination"


@dataclass(frozen=True)
class Report:
    """Everything that is computed from answers.

    Attributes:
        answers: The answers.
        config: How sure-ness was computed.
        summary: One row per scale and way to compare: mu and eta with chance level and interval.
        groups: One row per factor, level and attribute: gamma with interval, p and q.
        subjects: One row per subject and attribute.
        joint: Main effects and interaction of a joint class; empty for others.
        by_x: One row per attribute, in the columns that head results are joined on.
        controls: What must stand beside the numbers.
    """

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

    def _repr_html_(self) -> str:
        return summary_html(repr(self), tables={"mu and eta with chance": self.summary})

    def save(self, folder: str | Path, *, figures: Mapping[str, Figure] | None = None) -> None:
        """Add the tables and figures to the run of the answers: all of them, or none.

        Args:
            folder: Where the answers were saved.
            figures: By name, drawn from this report.

        Raises:
            InputError: if the folder holds no run, or cannot be written.
        """
        names = ["summary", "groups", "subjects", "by_x"] + ["joint"] * (not self.joint.empty)
        with adding_to_run(folder, anew=True) as run:
            for name in names:
                run.table(f"{name}.csv", getattr(self, name))
            for name, figure in (figures or {}).items():
                run.figure(name, figure)


def bias_report(answers: Answers, *, config: InferenceConfig | None = None) -> Report:
    """Bias of a model in underspecified questions, from its answers.

    Args:
        answers: From ``ask_questions`` or ``Answers.load``.
        config: Numbers of flips and resamples.
    """
    config = config or InferenceConfig()
    by_scale = {scale: comparative(scores(answers.log_prob, scale)) for scale in SCALES}
    added = {scale: _sums(answers, compared) for scale, compared in by_scale.items()}
    rows = []
    for scale in SCALES:
        for number, way in enumerate(_ways(answers)):
            rows.append(
                _summary_row(answers, by_scale[scale], added[scale], scale, way, config, number)
            )
    groups = _group_table(answers, added, config)
    return Report(
        answers=answers,
        config=config,
        summary=pd.DataFrame(rows),
        groups=groups,
        subjects=_subject_table(answers, added["two_way"]),
        joint=_joint_table(answers, by_scale["two_way"], config),
        by_x=attribute_table(answers),
        controls=_controls(answers, by_scale["two_way"]),
    )


def attribute_table(answers: Answers) -> pd.DataFrame:
    """One row per attribute in the columns that ``tdabias crossref`` joins heads with.

    ``r_p`` is the size of the mean comparison between the first group and all others, ``r`` the
    mean size over templates and pairs, ``r_v`` what templates and pairs add; ``s_GROUP`` is the
    signed mean, positive where the first group is preferred. These are UnQover's quantities in the
    form of prejudice and volatility, not the risks of ``pvf``.
    """
    names, group = groups_of(answers.level_of(0))
    C = comparative(scores(answers.log_prob, "two_way")).C
    first, second = group[answers.first], group[answers.second]
    sign = np.where(first == 0, 1.0, -1.0)
    kept = (first == 0) != (second == 0)
    signed = (sign[:, None, None] * C)[kept]
    known = np.isfinite(signed).any((0, 1))
    mean, size = np.full((2, len(known)), np.nan)
    mean[known] = np.nanmean(signed[..., known], axis=(0, 1))
    size[known] = np.nanmean(np.abs(signed[..., known]), axis=(0, 1))
    table = pd.DataFrame({"x": answers.attributes, "r": size, "r_p": np.abs(mean)})
    table["r_v"] = table["r"] - table["r_p"]
    table[f"s_{names[0]}"] = mean
    return table


# -- ways to compare -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Way:
    """Which pairs are compared, and between what.

    Attributes:
        name: As it stands in the summary.
        pairs: Which pairs.
        group: Group of each subject, or None for the subjects themselves.
    """

    name: str
    pairs: np.ndarray
    group: np.ndarray | None


def _ways(answers: Answers) -> Iterator[_Way]:
    every = np.ones(len(answers.first), dtype=bool)
    yield _Way("subjects", every, None)
    names, cells = groups_of(answers.combinations)
    several = len(names) < len(answers.subjects)
    if several and len(answers.factors) == 1:
        for number, name in enumerate(names):
            # [Extending]: x1 from one set of subjects, x2 from the others.
            rows = np.where(cells == number, np.arange(len(cells)), -1)
            yield _Way(f"x1 {name}", every, rows)
    if len(answers.factors) == 1:
        if several:
            yield _Way(answers.factors[0], every, cells)
        return
    levels = [groups_of(answers.level_of(f))[1] for f in range(len(answers.factors))]
    differs = np.stack([level[answers.first] != level[answers.second] for level in levels])
    for number, factor in enumerate(answers.factors):
        yield _Way(factor, every, levels[number])
        alone = differs[number] & (differs.sum(0) == 1)
        yield _Way(f"{factor} alone", alone, levels[number])
    if several:
        yield _Way(CELLS, every, cells)


def _described(answers: Answers) -> bool:
    """Tell whether every combination of levels has one subject: a description, no sample."""
    return len(set(answers.levels)) == len(answers.levels)


def _sums(answers: Answers, compared: Comparative) -> Sums:
    return sums(compared.C, answers.first, answers.second, len(answers.subjects))


def _summary_row(
    answers: Answers,
    compared: Comparative,
    added: Sums,
    scale: Scale,
    way: _Way,
    config: InferenceConfig,
    number: int,
) -> dict[str, Any]:
    of_way = added.of_pairs(way.pairs)
    C = compared.C[way.pairs]
    both = aggregates(of_way, way.group)
    row: dict[str, Any] = {
        "scale": scale,
        "compared": way.name,
        "comparisons": int(np.isfinite(C).sum()),
        "mu": both.mu,
        "eta": both.mean_eta,
    }
    flips: tuple[Flip, ...] = ("comparison", "pair")
    for flip in flips:
        null = chance(
            C, of_way.first, of_way.second, of_way.n_subjects,
            group=way.group,
            flip=flip,
            n_flips=config.n_flips,
            rng=np.random.default_rng([config.seed, 0, number]),
        )  # fmt: skip
        end = "" if flip == "comparison" else "_pair"
        row[f"mu_chance{end}"], row[f"eta_chance{end}"] = null.mu.mean(), null.eta.mean()
        row[f"mu_p{end}"], row[f"eta_p{end}"] = null.pvalues(both.mu, both.mean_eta)
    row["mu_above_chance"] = row["mu"] - row["mu_chance"]
    limits = _limits(answers, of_way, way, config, number)
    for name, interval in zip(("mu", "eta"), limits, strict=True):
        row[f"{name}_low"], row[f"{name}_high"] = interval.low, interval.high
        row[f"{name}_interval"] = interval.method
    row["position_error"] = float(np.nanmean(compared.position_error[way.pairs]))
    row["negation_error"] = float(np.nanmean(compared.negation_error[way.pairs]))
    return row


def _limits(
    answers: Answers, of_way: Sums, way: _Way, config: InferenceConfig, number: int
) -> tuple[Interval, Interval]:
    # Names are drawn within their groups; descriptions within what is compared.
    strata = way.group if _described(answers) else groups_of(answers.combinations)[1]
    try:
        return model_intervals(
            of_way,
            np.zeros(of_way.n_subjects, dtype=int) if strata is None else strata,
            group=way.group,
            n_resamples=config.n_resamples,
            confidence=config.confidence,
            rng=np.random.default_rng([config.seed, 1, number]),
        )
    except InputError:  # too few to draw from: there is no interval, and the method says so
        nothing = Interval(np.nan, np.nan, "none: too few subjects or attributes")
        return nothing, nothing


# -- tables ----------------------------------------------------------------------------------------


def _group_table(
    answers: Answers, added: dict[Scale, Sums], config: InferenceConfig
) -> pd.DataFrame:
    """Gamma of every level of every factor (and of their combinations) on every attribute."""
    parts = [(factor, answers.level_of(f)) for f, factor in enumerate(answers.factors)]
    if len(answers.factors) > 1:
        parts.append((CELLS, answers.combinations))
    described = _described(answers)
    tables = []
    for number, (factor, levels) in enumerate(parts):
        names, group = groups_of(levels)
        columns: dict[str, Any] = {
            "factor": factor,
            "group": np.repeat(names, len(answers.attributes)),
            "attribute": np.tile(answers.attributes, len(names)),
            "kind": np.tile(answers.kinds, len(names)),
            "sensitive": np.tile(answers.sensitive, len(names)),
        }
        scales: tuple[tuple[Scale, str], ...] = (("two_way", ""), ("log_odds", "_log_odds"))
        for scale, end in scales:
            both = aggregates(added[scale], group)
            sure = group_intervals(
                added[scale],
                group,
                drawn="opponents" if described else "both",
                n_resamples=config.n_resamples,
                confidence=config.confidence,
                rng=np.random.default_rng([config.seed, 2, number]),
            )
            values = {"gamma": both.gamma, "low": sure.low, "high": sure.high}
            values |= {"p": sure.pvalue, "q": sure.qvalue, "eta": both.eta}
            columns |= {f"{name}{end}": value.reshape(-1) for name, value in values.items()}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _subject_table(answers: Answers, added: Sums) -> pd.DataFrame:
    both: Aggregates = aggregates(added)
    n = len(answers.attributes)
    tokens = answers.n_tokens.max(0)
    return pd.DataFrame(
        {
            "subject": np.repeat(answers.subjects, n),
            **{
                factor: np.repeat(answers.level_of(f), n)
                for f, factor in enumerate(answers.factors)
                if answers.level_of(f) != list(answers.subjects)
            },
            "tokens": np.repeat(tokens, n),
            "attribute": np.tile(answers.attributes, len(answers.subjects)),
            "kind": np.tile(answers.kinds, len(answers.subjects)),
            "gamma": both.gamma.reshape(-1),
            "eta": both.eta.reshape(-1),
        }
    )


def cells_of(
    answers: Answers, C: np.ndarray
) -> tuple[list[list[str]], np.ndarray | None, np.ndarray]:
    """Levels of two factors, gamma of every combination (None if one is missing), its groups."""
    levels = [groups_of(answers.level_of(f)) for f in range(2)]
    cell = levels[0][1] * len(levels[1][0]) + levels[1][1]
    shape = (len(levels[0][0]), len(levels[1][0]))
    total = sums(C, answers.first, answers.second, len(answers.subjects))
    gamma = aggregates(total, cell).gamma
    complete = len(np.unique(cell)) == shape[0] * shape[1] and bool(np.isfinite(gamma).all())
    names = [levels[0][0], levels[1][0]]
    return names, gamma.reshape(*shape, -1) if complete else None, cell


def _joint_table(answers: Answers, compared: Comparative, config: InferenceConfig) -> pd.DataFrame:
    """Shares of main effects and interaction, against flips of what the other parts leave."""
    if len(answers.factors) != 2:
        return pd.DataFrame()
    names, gamma, cell = cells_of(answers, compared.C)
    if gamma is None or min(map(len, names)) < 2:
        return pd.DataFrame()
    observed = factorial(gamma)
    rng = np.random.default_rng([config.seed, 3])
    given = _sums(answers, compared)
    member = Membership.of(given, cell)
    null = np.empty((config.n_flips, 3))
    for part, others in enumerate(([1], [0], [0, 1])):
        left = without_factors(answers, compared.C, others)
        drawn = flipped_sums(left, "pair", n_flips=config.n_flips, rng=rng)
        for draw, (total, _) in enumerate(drawn):
            flipped = member.means(total, given.n).reshape(gamma.shape)
            null[draw, part] = _mean_squares(flipped)[part]
    squares = _mean_squares(gamma)
    return pd.DataFrame(
        {
            "part": [*answers.factors, "interaction"],
            "share": observed.shares,
            "mean_square": squares,
            "mean_square_chance": null.mean(0),
            "p": share_reached(null, squares),
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


def _mean_squares(gamma: np.ndarray) -> np.ndarray:
    parts = factorial(gamma)
    rows, columns = gamma.shape[:2]
    squares = [
        columns * (parts.main[0] ** 2).sum() / (rows - 1),
        rows * (parts.main[1] ** 2).sum() / (columns - 1),
        (parts.interaction**2).sum() / ((rows - 1) * (columns - 1)),
    ]
    return np.array([square / gamma.shape[2] for square in squares])


def _controls(answers: Answers, compared: Comparative) -> dict[str, Any]:
    S = scores(answers.log_prob, "two_way")
    # The subject mentioned first: x1 in the first order, x2 in the second.
    first_mentioned = np.stack([S[..., 0, :, 0], S[..., 1, :, 1]])
    asked = np.isfinite(answers.log_prob).any((-3, -2, -1))
    incomplete = asked & ~np.isfinite(answers.log_prob).all((-3, -2, -1))
    tokens = answers.n_tokens[:, answers.first] == answers.n_tokens[:, answers.second]
    equal = np.where(tokens.T[..., None], compared.C, np.nan)
    equal_length = aggregates(sums(equal, answers.first, answers.second, len(answers.subjects)))
    return {
        "mass_mean": float(np.nanmean(answers.mass)),
        "first_mentioned_mean": float(np.nanmean(first_mentioned)),
        "ties": int((compared.C == 0).sum()),
        "comparisons": int(np.isfinite(compared.C).sum()),
        "left_out": int(incomplete.sum()),
        "tokens_of_names": {
            str(n): int(count)
            for n, count in zip(
                *np.unique(answers.n_tokens.max(0), return_counts=True), strict=True
            )
        },
        "equal_tokens_share": float(tokens.mean()),
        "mu_equal_tokens": equal_length.mu,
    }


def bias_items(answers: Answers) -> pd.DataFrame:
    """One row per subject with its part of mu and of the mean size of eta, for comparisons.

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
