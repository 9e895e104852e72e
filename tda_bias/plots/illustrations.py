"""Drawings of how the statistic comes about and is tested; no run of a model is in them."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from tda_bias.heads.group_statistic import GroupStatistic, group_statistic
from tda_bias.heads.items import ExamplePattern
from tda_bias.heads.resampled import (
    label_terms,
    paired_test,
    paper_pvalue,
    relabellings,
    two_sided,
)
from tda_bias.show.figures import BLUE, LIGHT_GREY, ORANGE
from tda_bias.stats.seeds import generator
from tda_bias.topology.persistence import births_deaths
from tda_bias.topology.steps import step_function

_N_STEPS = 4
# Texts of each made-up cluster, those that change places, and their steps.
_TEXTS, _SWAPPED, _STEPS = 4, 2, 6


def plot_attention(
    tokens: Sequence[str],
    pattern: Float[np.ndarray, "query key"],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """A head's attention on a text: rows are the tokens that look, columns those looked at.

    Source: Varadarajan & Songdechakraiwut, figure 2.
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    image = ax.imshow(pattern, cmap="Greys", vmin=0)
    places = range(len(tokens))
    ax.set_xticks(places, tokens, rotation=90, fontsize="x-small")
    ax.set_yticks(places, tokens, fontsize="x-small")
    ax.set_xlabel("key: the token looked at")
    ax.set_ylabel("query: the token that looks")
    ax.figure.colorbar(image, ax=ax, label=f"attention weight, {title}", shrink=0.8)
    return ax


def plot_step_function(example: ExamplePattern, *, ax: Axes) -> Axes:
    """The births of one text: their pseudo-inverse, and its mean over a few equal steps.

    Source: Varadarajan & Songdechakraiwut, figure 1.
    """
    sets = births_deaths(example.of(example.first), attention=example.attention)
    births = sets.births
    values = np.sort(np.asarray(births, dtype=float))
    m = len(values)
    ax.stairs(values, np.arange(m + 1) / m, color=LIGHT_GREY, baseline=None, label=f"{m} births")
    steps, label = step_function(values, _N_STEPS), f"mean over {_N_STEPS} steps"
    edges = np.arange(_N_STEPS + 1) / _N_STEPS
    ax.stairs(steps, edges, color=ORANGE, baseline=None, linewidth=1.6, label=label)
    ax.set_xlabel("share of births at or below")
    ax.set_ylabel("attention weight")
    ax.set_ylim(0, None)
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def plot_swap(*, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Two made-up clusters of step functions, before and after some texts change places.

    Source: Varadarajan & Songdechakraiwut, figure 3.
    """
    rng = generator(1)
    first, second = (
        np.sort(
            place + width * rng.normal(size=(_TEXTS, 1)) + rng.uniform(0, 0.25, (_TEXTS, _STEPS))
        )
        for place, width in ((0.35, 0.05), (0.4, 0.17))
    )
    n = _SWAPPED
    after = np.concatenate([second[:n], first[n:]]), np.concatenate([first[:n], second[n:]])
    edges = np.arange(_STEPS + 1) / _STEPS
    titles = ("as observed", f"{n} texts swapped")
    for ax, clusters, title in zip(axes, ((first, second), after), titles, strict=True):
        for cluster, colour, name in zip(
            clusters, (ORANGE, BLUE), ("stereotype", "anti-stereotype"), strict=True
        ):
            for number, values in enumerate(cluster):
                style = "--" if number < n else "-"
                ax.stairs(values, edges, color=colour, baseline=None, alpha=0.6, linestyle=style)
            centre = cluster.mean(0)
            label = f"{name}\nvariance {1000 * ((cluster - centre) ** 2).mean():.1f}e-3"
            ax.stairs(centre, edges, color=colour, baseline=None, linewidth=2.2, label=label)
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel("share of the set")
        ax.legend(frameon=False, fontsize="x-small", loc="upper left")
        ax.set_ylim(0, 1.25)
    axes[0].set_ylabel("attention weight")
    return axes


# -- p-values without any effect -------------------------------------------------------------------


def simulated_group(
    rng: np.random.Generator, *, spread: float = 1.0, shared: float = 0.6
) -> GroupStatistic:
    """A group whose texts of one context resemble each other, and whose heads are correlated.

    Args:
        rng: Generator.
        spread: Factor on the anti-stereotype texts' distance from their centre; 1 is the null.
        shared: Share of the variance that the texts of a context have in common.
    """
    n_contexts, n_heads, n_steps = 25, 20, 12
    shape = (n_contexts, n_heads, n_steps)
    common = rng.normal(size=(n_contexts, 1, n_steps)) + rng.normal(size=shape)

    def texts() -> np.ndarray:
        noise = rng.normal(size=shape)
        # A few texts vary far more than others, as long ones do.
        heavy = rng.gamma(2.0, 0.5, size=(n_contexts, 1, 1))
        return np.asarray(np.sqrt(shared) * common + np.sqrt(1 - shared) * noise * heavy)

    anti = texts()
    anti = anti.mean(0) + spread * (anti - anti.mean(0))
    return group_statistic(texts(), anti, texts())


def calibration(*, n_groups: int, n_resamples: int = 499) -> dict[str, Float[np.ndarray, " head"]]:
    """p-values of ``paper``, ``paired`` and ``label`` on simulated groups without any effect."""
    by_test: dict[str, list[np.ndarray]] = {"paper": [], "paired": [], "label": []}
    for index in range(n_groups):
        rng = generator(0, index)
        group = simulated_group(rng)
        by_test["paper"].append(paper_pvalue(group))
        by_test["paired"].append(paired_test(group, n_resamples=n_resamples, rng=rng))
        labels = relabellings(group.n, n_resamples, rng)
        by_test["label"].append(two_sided(labels, label_terms(group)))
    return {name: np.concatenate(values) for name, values in by_test.items()}
