"""Reports to matplotlib axes: the papers' figures, each with what it must be compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from scipy import stats
from scipy.interpolate import make_smoothing_spline

from pvf.config import Quantity
from pvf.social import WEIGHT
from tda_bias.show.figures import BLUE, GREY, ORANGE, label_point, plain_numbers, print_figure
from tda_bias.show.text import counted, short_name, short_names
from tda_bias.stats.least_squares import least_squares, with_intercept
from tda_bias.stats.seeds import generator
from tda_bias.types import InputError

if TYPE_CHECKING:
    from pvf.preferences import Preferences
    from pvf.report import RiskReport

# More names on a side would overlap.
_MOST_NAMES = 8
_NAME = {"r": "risk r", "r_p": "prejudice r_p", "r_v": "volatility r_v"}


def plot_signed_means(reports: Mapping[str, RiskReport], *, ax: Axes, label: int = 5) -> Axes:
    """Box per model of the mean stereotype over templates, one point per x.

    Positive values lean to the first class. Where one model is drawn, the ``label`` (at most 8)
    most extreme x on each side are named. Source: [BVF] figure 5.
    """
    first = next(iter(reports.values()))
    values = [report.risk.mean_s[:, 0] for report in reports.values()]
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.boxplot(values, widths=0.5, showfliers=False, medianprops={"color": ORANGE})
    rng = generator(0)
    for place, column in enumerate(values, start=1):
        spread = rng.uniform(-0.12, 0.12, len(column))
        ax.scatter(place + spread, column, s=8, alpha=0.5, color=BLUE, linewidth=0)
    if len(reports) == 1:
        _name_extremes(ax, first, label)
    ax.set_xticks(range(1, len(reports) + 1), short_names(list(reports)))
    own, *others = first.preferences.printed_classes
    ax.set_ylabel(f"mean stereotype s over templates\n(> 0: {own}; < 0: {' or '.join(others)})")
    ax.set_title(_counted(first), fontsize="small")
    return ax


def _name_extremes(ax: Axes, report: RiskReport, label: int) -> None:
    values = report.risk.mean_s[:, 0]
    order = _by_leaning(report)
    label = min(label, _MOST_NAMES, len(order) // 2)
    gap = 0.055 * (np.ptp(values) or 1.0)
    for chosen, step in ((order[:label], 1), (order[::-1][:label], -1)):
        height = -np.inf * step
        for index in chosen:
            # Labels keep their distance; a line leads from the point to its name.
            height = (max if step > 0 else min)(values[index], height + step * gap)
            ax.plot(1.31, values[index], marker="o", markersize=3, color=ORANGE)
            ax.annotate(
                report.preferences.x[index],
                (1.33, values[index]),
                xytext=(1.5, height),
                fontsize="small",
                va="center",
                arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.5, "relpos": (0, 0.5)},
            )
    ax.set_xlim(0.6, 2.0)


def plot_distribution(report: RiskReport, *, quantity: Quantity = "r_p", ax: Axes) -> Axes:
    """Histogram over x of r, r_p or r_v, with a normal fit for r and r_p, a spline for r_v.

    Source: [BVF] figures 10 and 16; the normal by maximum likelihood, the spline smoothed by
    generalised cross-validation.
    """
    values = getattr(report.risk, quantity)
    counts, edges, _ = ax.hist(values, bins=25, color=BLUE, alpha=0.75)
    ax.axvline(values.mean(), color=ORANGE, label=f"mean {values.mean():.3f}")
    if quantity != "r_v" and np.ptp(values) > 0:
        grid = np.linspace(0, values.max() * 1.05, 200)
        width = np.ptp(values) / 25
        fit = stats.norm(values.mean(), values.std()).pdf(grid) * len(values) * width
        ax.plot(grid, fit, color=GREY, linestyle="--", label="normal fit")
    elif np.ptp(values) > 0:
        spline = make_smoothing_spline((edges[1:] + edges[:-1]) / 2, np.asarray(counts))
        grid = np.linspace(edges[0], edges[-1], 200)
        ax.plot(grid, np.maximum(spline(grid), 0), color=GREY, linestyle="--", label="spline")
    ax.set_xlabel(f"{_NAME[quantity]} of a word x")
    ax.set_ylabel("words x")
    ax.set_title(f"{short_name(report.model)}\n{_counted(report)}", fontsize="small")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_preferences(preferences: Preferences, x: Sequence[str], *, ax: Axes) -> Axes:
    """Heat map of the preference for the first class: chosen x by templates.

    Raises:
        InputError: if an x was not read.

    Source: [BVF] figure 11.
    """
    for word in x:
        if word not in preferences.x:
            raise InputError(f"{word!r} was not read; read were {', '.join(preferences.x[:5])}")
    rows = [preferences.x.index(word) for word in x]
    values = preferences.by_class().p[rows, :, 0]
    centre = 1.0 / len(preferences.classes)
    reach = max(1.0 - centre, centre)
    image = ax.imshow(
        values, cmap="RdBu_r", vmin=centre - reach, vmax=centre + reach, aspect="auto"
    )
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if abs(value - centre) > 0.6 * reach else "black"
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    shown = [t.text.replace("[X]", "…").replace("[Y]", "").strip() for t in preferences.templates]
    ax.set_xticks(range(len(shown)), shown, rotation=40, ha="right", fontsize="small")
    ax.set_yticks(range(len(x)), x)
    ax.set_title(short_name(preferences.model), fontsize="small")
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(f"preference for {preferences.printed_classes[0]}")
    bar.ax.set_ylim(0, 1)
    return ax


def plot_reference(report: RiskReport, *, ax: Axes, label: int = 3) -> Axes:
    """The mean preference for the last class of every x, against its share in the reference.

    On the diagonal a model prefers a class as often as the reference says. The ``label`` words
    furthest above and below it are named.

    Raises:
        InputError: if the report has no reference.
    """
    preferences = report.preferences
    column = f"reference_{preferences.classes[-1]}"
    if column not in report.by_x:
        raise InputError("the risks have no `reference`; give one, for example bls")
    shares = report.by_x[column].to_numpy()
    means = preferences.by_class().p[..., -1] @ report.risk.context_weights
    r = stats.spearmanr(shares, means).statistic if np.ptp(shares) and np.ptp(means) else np.nan
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    ax.scatter(shares, means, s=10, color=BLUE, alpha=0.6, linewidth=0)
    order = np.argsort(means - shares, kind="stable")
    for word in {*order[:label], *order[::-1][:label]}:
        # Names stay within the frame.
        how: dict[str, Any] = {"ha": "right", "shift": (-3, 3)} if shares[word] > 0.6 else {}
        label_point(ax, preferences.x[word], (shares[word], means[word]), fontsize=7, **how)
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    ax.set_aspect("equal")
    ax.set_xlabel(f"share of {preferences.printed_classes[-1]} in {report.against}")
    ax.set_ylabel(f"mean preference for {preferences.printed_classes[-1]}")
    ax.set_title(
        f"{short_name(report.model)}\n{counted(len(shares), 'word')}, Spearman {r:.2f}",
        fontsize="small",
    )
    return ax


def plot_against_size(reports: Mapping[str, RiskReport], *, ax: Axes) -> Axes:
    """R_p and R_v with their intervals against the number of parameters. Source: [BVF] figure 7."""
    sizes = {n: r.preferences.record.model.parameters or np.nan for n, r in reports.items()}
    names = sorted(reports, key=lambda name: np.nan_to_num(sizes[name], nan=np.inf))
    x = np.array([sizes[name] for name in names])
    _with_intervals(ax, (x, x), [reports[name] for name in names])
    ax.set_xscale("log")
    plain_numbers(ax.xaxis)
    ax.xaxis.set_major_formatter(EngFormatter(sep=" "))
    for name, short in zip(names, short_names(names), strict=True):
        place = (sizes[name], reports[name].risk.R_p)
        ax.annotate(short, place, xytext=(4, 4), textcoords="offset points", fontsize=7)
    ax.set_xlabel("parameters")
    return ax


def plot_change(before: RiskReport, after: RiskReport, *, ax: Axes) -> Axes:
    """R_p and R_v of two models, for example before and after training. Source: [BVF] 6 and 8."""
    x = np.arange(2)  # Side by side, so that no interval covers another.
    _with_intervals(ax, (x - 0.03, x + 0.03), (before, after))
    ax.set_xticks([0, 1], short_names([before.model, after.model]))
    ax.set_xlim(-0.4, 1.4)
    return ax


def _with_intervals(
    ax: Axes, x: tuple[np.ndarray, np.ndarray], reports: Sequence[RiskReport]
) -> None:
    """R_p and R_v of several models, each at its places of the x axis."""
    rows = pd.DataFrame([report.summary.iloc[0] for report in reports])
    for places, quantity, colour, marker in (
        (x[0], "R_p", BLUE, "o"),
        (x[1], "R_v", ORANGE, "s"),
    ):
        values = rows[quantity].to_numpy(dtype=float)
        low, high = (
            rows[f"{quantity}_{end}_both"].to_numpy(dtype=float) for end in ("low", "high")
        )
        bars = np.array([values - low, high - values])
        ax.errorbar(places, values, bars, color=colour, marker=marker, capsize=3, label=quantity)
    ax.set_ylabel("risk over all words x")
    ax.legend(frameon=False, fontsize="small")


def plot_regression(
    by_x: pd.DataFrame,
    factors: pd.DataFrame,
    factor: str,
    *,
    response: Quantity = "r",
    ax: Axes,
) -> Axes:
    """Response against one factor: points sized by weight, both lines, a prediction band.

    The band is of the weighted line (of the ordinary one without weights) and holds one half, as
    the papers draw it. A weight of 0 leaves an x out. Source: [PCF] figure 6, [BVF] figures 9 and
    12-15.
    """
    if WEIGHT in factors:
        factors = factors[factors[WEIGHT] > 0]
    measured = by_x.set_index("x")[response]
    values = factors[factor].dropna()
    values = values.loc[[word for word in values.index if word in measured.index]]
    y, x = measured.loc[values.index].to_numpy(), values.to_numpy()
    weights = factors.loc[values.index, WEIGHT].to_numpy() if WEIGHT in factors else None
    size = np.full(len(x), 14.0) if weights is None else 6 + 90 * weights / weights.max()
    ax.scatter(x, y, s=size, color=BLUE, alpha=0.5, linewidth=0)
    grid, design = with_intercept(np.linspace(x.min(), x.max(), 100)), with_intercept(x)
    fits = {"OLS": (least_squares(y, design), GREY, "-")}
    if weights is not None:
        fits["WLS"] = (least_squares(y, design, weights / weights.mean()), ORANGE, "--")
    for name, (fit, colour, style) in fits.items():
        p = fit.t_tests(fit.covariance).p[1]
        slope = f"{name}: slope {fit.coefficients[1]:.3g}, p {p:.2g}"
        line = grid @ fit.coefficients
        ax.plot(grid[:, 1], line, color=colour, linestyle=style, label=slope)
    last, colour, _ = list(fits.values())[-1]
    low, high = last.prediction_band(grid, 0.5)
    text = "50% prediction band"
    ax.fill_between(grid[:, 1], low, high, color=colour, alpha=0.15, linewidth=0, label=text)
    ax.set_xlabel(factor)
    ax.set_ylabel(_NAME[response])
    ax.set_title(counted(len(x), "word"), fontsize="small")
    ax.legend(frameon=False, fontsize="small")
    return ax


def report_figures(
    report: RiskReport, *, x: Sequence[str] | None = None, label: int = 5
) -> dict[str, Figure]:
    """The figures that every run gets, by file name.

    ``x`` are the rows of the heat map (by default the six that lean most to each side), ``label``
    is how many words are named on each side of the signed means.
    """
    words = x or extreme_words(report)
    means, distributions = print_figure(4.8, 4.2), print_figure(7.5, 3.2)
    heat_map = print_figure(7.5, 1.8 + 0.26 * len(words))
    plot_signed_means({report.model: report}, label=label, ax=means.subplots())
    left, right = distributions.subplots(1, 2)
    plot_distribution(report, quantity="r_p", ax=left)
    plot_distribution(report, quantity="r_v", ax=right)
    plot_preferences(report.preferences, words, ax=heat_map.subplots())
    figures = {"signed_means": means, "distributions": distributions, "preferences": heat_map}
    if report.reference is not None:
        figures["reference"] = print_figure(4.2, 4.2)
        plot_reference(report, ax=figures["reference"].subplots())
    return figures


def figures_of_runs(
    reports: Mapping[str, RiskReport], *, x: Sequence[str] | None = None
) -> dict[str, Figure]:
    """The figures of each of several runs, with the words ``x``, and those that compare them."""
    figures: dict[str, Figure] = {}
    for name, report in reports.items():
        prefix = f"{name.replace('/', '--')}-" if len(reports) > 1 else ""
        for kind, figure in report_figures(report, x=x).items():
            figures[prefix + kind] = figure
    if len(reports) > 1:
        figures["models-signed_means"] = print_figure(1.6 + 1.4 * len(reports), 4.2)
        plot_signed_means(reports, ax=figures["models-signed_means"].subplots())
        figures["models-size"] = print_figure(4.8, 3.6)
        plot_against_size(reports, ax=figures["models-size"].subplots())
    if len(reports) == 2:
        figures["models-change"] = print_figure(3.8, 3.6)
        plot_change(*reports.values(), ax=figures["models-change"].subplots())
    return figures


def extreme_words(report: RiskReport) -> list[str]:
    """The six words x of weight that lean most to each side; all where there are no more."""
    order = _by_leaning(report)
    chosen = order if len(order) <= 12 else np.concatenate([order[:6], order[-6:]])
    return [report.preferences.x[index] for index in chosen[::-1]]


def _by_leaning(report: RiskReport) -> np.ndarray:
    """Numbers of the words x with a weight, from the last class to the first."""
    order = np.argsort(report.risk.mean_s[:, 0], kind="stable")
    return order[report.risk.x_weights[order] > 0]


def _counted(report: RiskReport) -> str:
    n = report.controls
    words, templates = counted(n["x"], "word"), counted(n["templates"], "template")
    return f"{words}, {templates} ({n['n_effective_contexts']:.1f} effective)"
