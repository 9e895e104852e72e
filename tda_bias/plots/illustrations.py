"""Drawings of how the statistic comes about and is tested; no run of a model is in them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import combinations

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tda_bias.heads.group_statistic import GroupStatistic, group_statistic
from tda_bias.heads.items import ExamplePattern
from tda_bias.heads.resampled import (
    label_terms,
    paired_test,
    paper_pvalue,
    relabellings,
    two_sided,
)
from tda_bias.show.figures import BLUE, LIGHT_GREY, ORANGE, PAGE, print_figure
from tda_bias.stats.seeds import generator
from tda_bias.topology.persistence import births_deaths, edge_weights
from tda_bias.topology.steps import step_function
from tda_bias.types import Attention

_N_STEPS, _N_TOKENS = 4, 6
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


# -- the filtration, step by step ------------------------------------------------------------------


def filtration_figure(example: ExamplePattern) -> Figure:
    """The graph of the first tokens of a text while its edges are dropped, weakest first.

    A causal model's first tokens see nothing of what follows, so their graph is that of a text that
    ends there.
    """
    n_tokens = min(_N_TOKENS, len(example.tokens))
    pattern = example.of(example.first)[:n_tokens, :n_tokens]
    graph = token_graph(example.tokens[:n_tokens], pattern, example.attention)
    weights = sorted(data["weight"] for _, _, data in graph.edges(data=True))
    figure = print_figure(PAGE, 4.4)
    axes = figure.subplots(2, 3)
    cuts = [0, len(weights) // 3, 2 * len(weights) // 3, len(weights) - 2, len(weights)]
    for ax, dropped in zip(axes.flat, cuts, strict=False):
        plot_filtration_step(graph, dropped, ax=ax)
    plot_sorted_sets(pattern, example.attention, ax=axes.flat[-1])
    return figure


def plot_filtration_step(graph: nx.Graph, dropped: int, *, ax: Axes) -> Axes:
    """The graph without its ``dropped`` weakest edges: tree edges solid, others dashed."""
    ranked = sorted(graph.edges(data=True), key=lambda edge: edge[2]["weight"])
    kept = ranked[dropped:]
    left = nx.Graph()
    left.add_nodes_from(graph)
    left.add_edges_from((u, v) for u, v, _ in kept)
    place = nx.circular_layout(graph)
    strongest = ranked[-1][2]["weight"]
    for in_tree, colour, style in ((False, BLUE, "dashed"), (True, ORANGE, "solid")):
        edges = [edge for edge in kept if edge[2]["tree"] == in_tree]
        nx.draw_networkx_edges(
            graph, place, ax=ax, edgelist=[(u, v) for u, v, _ in edges], edge_color=colour,
            style=style, width=[0.6 + 2.8 * data["weight"] / strongest for _, _, data in edges],
        )  # fmt: skip
    nx.draw_networkx_nodes(
        graph, place, ax=ax, node_color="white", edgecolors="black", node_size=60
    )
    for node, (x, y) in place.items():
        ax.annotate(
            graph.nodes[node]["token"], (1.36 * x, 1.4 * y), ha="center", va="center", fontsize=6.5
        )
    parts = nx.number_connected_components(left)
    cycles = len(kept) - len(graph) + parts
    ax.set_title(
        f"{dropped} of {len(ranked)} edges dropped\n"
        f"{parts} component{'s' * (parts > 1)}, {cycles} cycle{'s' * (cycles != 1)}",
        fontsize=7.5,
    )
    ax.set_xlim(-1.7, 1.7)
    ax.set_ylim(-1.6, 1.6)
    ax.axis("off")
    return ax


def plot_sorted_sets(
    pattern: Float[np.ndarray, "query key"], attention: Attention, *, ax: Axes
) -> Axes:
    """Births (weights of the tree) and deaths (all others), sorted: all the statistic sees."""
    sets = births_deaths(pattern, attention=attention)
    for values, colour, marker, name in (
        (sets.births, ORANGE, "o", "births (tree)"),
        (sets.deaths, BLUE, "s", "deaths (others)"),
    ):
        ordered = np.sort(np.asarray(values, dtype=float))
        rank, label = np.arange(1, len(ordered) + 1), f"{len(ordered)} {name}"
        ax.plot(rank, ordered, color=colour, marker=marker, markersize=3, label=label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("rank")
    ax.set_ylabel("attention weight")
    ax.set_ylim(0, 1.45 * float(max(sets.births.max(), sets.deaths.max())))
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def token_graph(
    tokens: Sequence[str], pattern: Float[np.ndarray, "query key"], attention: Attention
) -> nx.Graph:
    """The complete graph of tokens; edges know whether the maximum tree holds them."""
    weight = edge_weights(torch.from_numpy(pattern.copy()), attention)
    graph = nx.Graph()
    for node, token in enumerate(tokens):
        graph.add_node(node, token=textwrap.shorten(token, 12, placeholder="…"))
    for u, v in combinations(range(len(tokens)), 2):
        graph.add_edge(u, v, weight=float(weight[u, v]), tree=False)
    for u, v in nx.maximum_spanning_edges(graph, data=False):
        graph[u][v]["tree"] = True
    return graph


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
