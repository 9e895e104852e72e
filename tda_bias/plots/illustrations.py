"""How the statistic comes about, drawn: pattern, filtration, step function, swap."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tda_bias.heads.kept_patterns import ExamplePattern
from tda_bias.runs.figures import BLUE, LIGHT_GREY, ORANGE, plain_text
from tda_bias.runs.text import counted
from tda_bias.topology.persistence import births_deaths, edge_weights
from tda_bias.topology.steps import step_function
from tda_bias.types import HeadId, InputError

FIRST_HEAD = HeadId(0, 0)


@plain_text
def plot_pattern(
    example: ExamplePattern, *, head: HeadId = FIRST_HEAD, ax: Axes | None = None
) -> Axes:
    """One attention matrix with its tokens. Source: Varadarajan & Songdechakraiwut, figure 2."""
    ax = ax or plt.subplots(layout="constrained")[1]
    image = ax.imshow(_pattern(example, head), cmap="Greys", vmin=0)
    places = range(len(example.tokens))
    ax.set_xticks(places, example.tokens, rotation=90, fontsize="x-small")
    ax.set_yticks(places, example.tokens, fontsize="x-small")
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    ax.figure.colorbar(image, ax=ax, label=f"attention weight, {head}", shrink=0.8)
    return ax


@plain_text
def plot_step_function(
    example: ExamplePattern, *, n_steps: int = 4, head: HeadId = FIRST_HEAD, ax: Axes | None = None
) -> Axes:
    """The births of one text: their pseudo-inverse, and its mean over a few equal steps.

    Source: Varadarajan & Songdechakraiwut, figure 1.
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    births = births_deaths(_pattern(example, head), attention=example.attention).births
    values = np.sort(np.asarray(births, dtype=float))
    m = len(values)
    ax.stairs(values, np.arange(m + 1) / m, color=LIGHT_GREY, baseline=None, label=f"{m} births")
    steps = step_function(values, n_steps)
    ax.stairs(
        steps, np.arange(n_steps + 1) / n_steps, color=ORANGE, baseline=None, linewidth=1.6,
        label=f"mean over {counted(n_steps, 'step')}",
    )  # fmt: skip
    ax.set_xlabel("share of births at or below")
    ax.set_ylabel("attention weight")
    ax.set_ylim(0, None)
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


@plain_text
def plot_swap(*, n_swapped: int = 2, seed: int = 1, axes: Any = None) -> list[Axes]:
    """Two made-up clusters of step functions, before and after some texts change places.

    Source: Varadarajan & Songdechakraiwut, figure 3.

    Args:
        n_swapped: Texts of each cluster that change places.
        seed: Of the made-up sets.
        axes: Two axes.
    """
    rng = np.random.default_rng(seed)
    n, n_steps = 4, 6
    tight = np.sort(0.35 + 0.05 * rng.normal(size=(n, 1)) + rng.uniform(0, 0.25, (n, n_steps)))
    loose = np.sort(0.4 + 0.17 * rng.normal(size=(n, 1)) + rng.uniform(0, 0.25, (n, n_steps)))
    if not 1 <= n_swapped <= n:
        raise InputError(f"`n_swapped` must lie between 1 and {n}; got {n_swapped}")
    swapped = tight.copy(), loose.copy()
    swapped[0][:n_swapped], swapped[1][:n_swapped] = loose[:n_swapped], tight[:n_swapped]
    if axes is None:
        axes = plt.subplots(1, 2, sharey=True, layout="constrained")[1]
    edges = np.arange(n_steps + 1) / n_steps
    for ax, clusters, title in zip(
        axes,
        ((tight, loose), swapped),
        ("as observed", f"{counted(n_swapped, 'text')} swapped"),
        strict=True,
    ):
        for cluster, colour, name in zip(
            clusters, (ORANGE, BLUE), ("stereotype", "anti-stereotype"), strict=True
        ):
            for number, values in enumerate(cluster):
                style = "--" if number < n_swapped else "-"
                ax.stairs(values, edges, color=colour, baseline=None, alpha=0.6, linestyle=style)
            spread = ((cluster - cluster.mean(0)) ** 2).mean()
            label = f"{name}\nvariance {1000 * spread:.1f}e-3"
            ax.stairs(
                cluster.mean(0), edges, color=colour, baseline=None, linewidth=2.2, label=label
            )
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel("share of the set")
        ax.legend(frameon=False, fontsize="x-small", loc="upper left")
        ax.set_ylim(0, 1.25)
    axes[0].set_ylabel("attention weight")
    return list(axes)


# -- the filtration, step by step ------------------------------------------------------------------


def filtration_figure(
    example: ExamplePattern, *, head: HeadId = FIRST_HEAD, n_tokens: int = 6
) -> Figure:
    """The graph of the first tokens of a text while its edges are dropped, weakest first.

    A causal model's first tokens see nothing of what follows, so their graph is that of a text that
    ends there.

    Args:
        example: The text.
        head: The head.
        n_tokens: Tokens to draw, 3 to 8.

    Raises:
        InputError: if the text is shorter, the number is out of range, or the head does not exist.
    """
    if not 3 <= n_tokens <= min(8, len(example.tokens)):
        raise InputError(f"`n_tokens` must lie between 3 and {min(8, len(example.tokens))}")
    graph = _graph(example, head, n_tokens)
    weights = sorted(data["weight"] for _, _, data in graph.edges(data=True))
    figure = Figure(figsize=(6.9, 4.4), layout="constrained")
    axes = figure.subplots(2, 3)
    cuts = [0, len(weights) // 3, 2 * len(weights) // 3, len(weights) - 2, len(weights)]
    for ax, dropped in zip(axes.flat, cuts, strict=False):
        plot_filtration_step(graph, dropped, ax=ax)
    plot_sorted_sets(example, head=head, n_tokens=n_tokens, ax=axes.flat[-1])
    return figure


@plain_text
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


@plain_text
def plot_sorted_sets(
    example: ExamplePattern,
    *,
    head: HeadId = FIRST_HEAD,
    n_tokens: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Births (weights of the tree) and deaths (all others), sorted: all the statistic sees."""
    ax = ax or plt.subplots(layout="constrained")[1]
    pattern = _pattern(example, head)[:n_tokens, :n_tokens]
    sets = births_deaths(pattern, attention=example.attention)
    for values, colour, marker, name in (
        (sets.births, ORANGE, "o", "births (tree)"),
        (sets.deaths, BLUE, "s", "deaths (others)"),
    ):
        ordered = np.sort(np.asarray(values, dtype=float))
        label = f"{len(ordered)} {name}"
        ax.plot(
            np.arange(1, len(ordered) + 1),
            ordered,
            color=colour,
            marker=marker,
            markersize=3,
            label=label,
        )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("rank")
    ax.set_ylabel("attention weight")
    ax.set_ylim(0, 1.45 * float(max(sets.births.max(), sets.deaths.max())))
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def _graph(example: ExamplePattern, head: HeadId, n_tokens: int) -> nx.Graph:
    """The complete graph of the first tokens; edges know whether the maximum tree holds them."""
    pattern = _pattern(example, head)[:n_tokens, :n_tokens]
    weight = edge_weights(
        torch.from_numpy(pattern.copy()), attention=example.attention, combine="max"
    )
    graph = nx.Graph()
    for node in range(n_tokens):
        graph.add_node(node, token=textwrap.shorten(example.tokens[node], 12, placeholder="…"))
    for u in range(n_tokens):
        for v in range(u + 1, n_tokens):
            graph.add_edge(u, v, weight=float(weight[u, v]), tree=False)
    for u, v in nx.maximum_spanning_edges(graph, data=False):
        graph[u][v]["tree"] = True
    return graph


def _pattern(example: ExamplePattern, head: HeadId) -> Float[np.ndarray, "query key"]:
    layers, heads = example.patterns.shape[:2]
    if not (0 <= head.layer < layers and 0 <= head.head < heads):
        raise InputError(f"{head} does not exist: {example.model} has {layers} layers of {heads}")
    return np.asarray(example.patterns[head.layer, head.head])
