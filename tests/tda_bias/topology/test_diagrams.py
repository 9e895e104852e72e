"""Persistence diagrams and their distances: two backends, duality, bad input."""

import numpy as np
import ot
import pytest
import torch
from matplotlib.figure import Figure

from tda_bias.plots.diagrams import plot_barcode, plot_diagram
from tda_bias.topology import births_deaths, persistence_diagrams, wasserstein_distances
from tda_bias.types import InputError


def patterns(texts=4, tokens=7, seed=0):
    weights = np.tril(np.random.default_rng(seed).random((texts, tokens, tokens)))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (np.zeros((2, 3)), {}, "two equal axes"),
        (np.full((2, 2), np.nan), {}, "NaN or infinite"),
        (np.zeros((2, 2)), {"complex": "cubical"}, "must be one of graph, flag; got 'cubical'"),
        (np.full((2, 2), 1.5), {"complex": "flag"}, "weights from 0 to 1"),
    ],
)
def test_what_is_no_pattern_is_refused(given, options, message):
    with pytest.raises(InputError, match=message):
        persistence_diagrams(given, **options)


def test_diagrams_that_cannot_be_compared_are_refused():
    graph, flag = (persistence_diagrams(patterns(1), c)[0] for c in ("graph", "flag"))
    with pytest.raises(InputError, match="of graphs and of flag complexes"):
        wasserstein_distances([graph, flag])
    with pytest.raises(InputError, match="take backend pot"):
        wasserstein_distances([graph, graph], backend="gudhi")
    with pytest.raises(InputError, match="`order` must be at least 1"):
        wasserstein_distances([flag], order=0.5)
    with pytest.raises(InputError, match="`backend` must be one of pot, gudhi"):
        wasserstein_distances([flag], backend="numpy")
    with pytest.raises(InputError, match="so few tokens"):
        wasserstein_distances(persistence_diagrams(patterns(2, tokens=2)))


@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
def test_of_a_graph_components_begin_at_births_and_cycles_end_at_deaths(attention):
    given = patterns()
    sets = births_deaths(given, attention=attention)
    for number, diagram in enumerate(persistence_diagrams(given, attention=attention)):
        assert diagram.components[:, 0].tolist() == sets.births[number].tolist()
        assert diagram.cycles[:, 1].tolist() == sets.deaths[number].tolist()
        assert np.isposinf(diagram.components[:, 1]).all()
        assert np.isneginf(diagram.cycles[:, 0]).all()


def test_components_of_a_flag_complex_end_where_those_of_the_graph_begin():
    given = torch.from_numpy(patterns()).reshape(2, 2, 7, 7)
    graphs, flags = (persistence_diagrams(given, c) for c in ("graph", "flag"))
    for graph, flag in zip(graphs, flags, strict=True):
        ends = flag.components[:, 1]
        np.testing.assert_allclose(ends[:-1], np.sort(1 - graph.components[:, 0]))
        assert np.isposinf(ends[-1])
        assert (flag.cycles[:, 0] <= flag.cycles[:, 1]).all()


def test_distances_of_sets_are_pots_and_those_of_flags_are_heras():
    given = patterns()
    diagrams = persistence_diagrams(given)
    births, deaths = wasserstein_distances(diagrams)
    for found, name, place in ((births, "components", 0), (deaths, "cycles", 1)):
        sets = [getattr(diagram, name)[:, place] for diagram in diagrams]
        expected = [[np.sqrt(ot.emd2_1d(a, b)) for b in sets] for a in sets]
        np.testing.assert_allclose(found, expected, atol=1e-9)
    flags = persistence_diagrams(given, "flag")
    for order in (1, 2):
        by_pot = wasserstein_distances(flags, order=order)
        by_hera = wasserstein_distances(flags, order=order, backend="gudhi")
        for one, other in zip(by_pot, by_hera, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)
            assert (one == one.T).all()
            assert not one.diagonal().any()


def test_barcodes_and_diagrams_are_drawn(tmp_path):
    for complex_ in ("graph", "flag"):
        [diagram] = persistence_diagrams(patterns(1), complex_)
        ax = plot_barcode(diagram, ax=Figure().subplots())
        drawn = sum(len(lines.get_segments()) for lines in ax.collections)
        assert drawn == len(diagram.components) + len(diagram.cycles)
    assert len(plot_diagram(diagram, ax=Figure().subplots()).collections) == 2
    [graph] = persistence_diagrams(patterns(1))
    with pytest.raises(InputError, match="use plot_barcode"):
        plot_diagram(graph, ax=Figure().subplots())
