"""What the explaining pictures show is what the statistic uses."""

from typing import get_args

import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure

from tda_bias.heads.items import ExamplePattern
from tda_bias.plots.illustrations import filtration_figure, plot_step_function, token_graph
from tda_bias.store.run import open_run
from tda_bias.topology.persistence import births_deaths
from tda_bias.topology.steps import step_function
from tda_bias.types import Attention
from tests.support.models import tiny_hf_model


def test_the_example_is_the_models_pattern(tokenizer, example, heads_run, tmp_path):
    import torch

    ids = tokenizer(example.text)["input_ids"]
    plain = tiny_hf_model("gpt2", len(tokenizer))
    with torch.no_grad():
        expected = plain(torch.tensor([ids]), output_attentions=True).attentions
    np.testing.assert_allclose(example.patterns, torch.stack(expected)[:, 0].numpy(), atol=1e-5)
    assert len(example.tokens) == len(ids)
    heads_run.with_patterns(example).save(tmp_path)
    again = ExamplePattern.read(open_run(tmp_path))
    np.testing.assert_array_equal(again.patterns, example.patterns)
    assert (again.text, again.tokens, again.attention) == (
        example.text, example.tokens, example.attention,
    )  # fmt: skip


@pytest.mark.parametrize("attention", get_args(Attention))
def test_the_solid_edges_are_the_births(example, attention):
    pattern = example.patterns[1, 2, :6, :6]
    graph = token_graph(example.tokens[:6], pattern, attention)
    found = births_deaths(pattern, attention=attention)
    tree = sorted(d["weight"] for _, _, d in graph.edges(data=True) if d["tree"])
    rest = sorted(d["weight"] for _, _, d in graph.edges(data=True) if not d["tree"])
    np.testing.assert_allclose(tree, found.births)
    np.testing.assert_allclose(rest, found.deaths)


def test_components_and_cycles_are_counted_as_networkx_counts_them(example):
    figure = filtration_figure(example)
    titles = [ax.get_title() for ax in figure.axes[:-1]]
    graph = token_graph(example.tokens[:6], example.patterns[0, 0, :6, :6], "causal")
    ranked = sorted(graph.edges(data="weight"), key=lambda e: e[2])
    for title in titles:
        dropped = int(title.split()[0])
        left = nx.Graph()
        left.add_nodes_from(range(6))
        left.add_edges_from((u, v) for u, v, _ in ranked[dropped:])
        assert f"{nx.number_connected_components(left)} component" in title
        assert f"{len(nx.cycle_basis(left))} cycle" in title
    assert titles[-1].startswith("15 of 15")


def test_the_orange_line_is_the_step_function(example):
    ax = plot_step_function(example, ax=Figure().subplots())
    births = births_deaths(example.patterns[0, 0], attention="causal").births
    np.testing.assert_allclose(ax.patches[1].get_data().values, step_function(births, 4))
