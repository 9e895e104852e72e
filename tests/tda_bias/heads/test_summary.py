"""What is compared of a pattern is a choice: the exact distances, against POT."""

import sys
from dataclasses import replace

import numpy as np
import ot
import pytest
import torch

from tda_bias import HeadBiasConfig, InputError, head_bias, load_triples
from tda_bias.heads.group_result import length_statistic, part_identity, uniform_pattern
from tda_bias.heads.group_statistic import GroupLayout, statistic_from_gram
from tda_bias.heads.summaries import KINDS
from tda_bias.topology.gram import GroupSampler
from tda_bias.topology.persistence import births_deaths
from tda_bias.types import Triple

LENGTHS = np.array([5, 6, 4, 7, 6, 5, 8, 4, 5])  # three contexts: stereotype, anti, unrelated


def from_distances(sets: list[np.ndarray]) -> np.ndarray:
    """S literally: variances and midpoint from exact distances of all pairs, by POT."""
    squared = np.array([[float(ot.wasserstein_1d(a, b, p=2)) for b in sets] for a in sets])
    centring = np.eye(len(sets)) - 1 / len(sets)
    gram = -0.5 * centring @ squared @ centring
    return statistic_from_gram(gram, GroupLayout(3, 3)).S


@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
def test_the_statistic_of_exact_distances_is_that_of_pots(attention):
    rng = np.random.default_rng(0)
    widest = int(LENGTHS.max())
    patterns = torch.zeros(len(LENGTHS), 2, 3, widest, widest, dtype=torch.float64)
    for text, n in enumerate(LENGTHS.tolist()):
        patterns[text, ..., :n, :n] = torch.from_numpy(rng.dirichlet(np.ones(n), (2, 3, n)))
    sampler = GroupSampler(LENGTHS, n_layers=2, attention=attention, summary="graph-exact")
    sampler.add(patterns, torch.arange(len(LENGTHS)), torch.from_numpy(LENGTHS))
    grams = [torch.cat([dims[d][0] for dims in [*sampler.layers()]]) for d in (0,)]
    found = statistic_from_gram(grams[0].numpy(), GroupLayout(3, 3)).S
    for row in range(6):
        sets = [
            births_deaths(
                patterns[t, row // 3, row % 3, :n, :n].numpy(), attention=attention
            ).births
            for t, n in enumerate(LENGTHS.tolist())
        ]
        assert found[row] == pytest.approx(float(from_distances(sets)), rel=1e-9)


def test_what_lengths_alone_show_is_measured_by_the_same_distances():
    sampler = GroupSampler(LENGTHS, n_layers=1, attention="causal", summary="graph-exact")
    found = length_statistic(sampler, LENGTHS, GroupLayout(3, 3), "causal")
    uniform = [births_deaths(uniform_pattern(n, "causal")) for n in LENGTHS.tolist()]
    for dim, name in enumerate(("births", "deaths")):
        sets = [getattr(of_text, name) for of_text in uniform]
        assert found[dim] == pytest.approx(float(from_distances(sets)), rel=1e-9)


def test_a_run_names_its_summary_and_texts_of_one_length_need_none(tiny):
    model, triples = tiny("gpt2"), load_triples("starter", category="gender", limit=3)
    usual, exact = (
        head_bias(model, triples, config=HeadBiasConfig(n_permutations=99, summary=summary))
        for summary in ("graph", "graph-exact")
    )
    assert exact.record.config.summary == "graph-exact"
    cost = usual.record.smoothing
    tables = [result.table.set_index("group").loc[cost.group] for result in (usual, exact)]
    change = (tables[0]["S"].to_numpy() - tables[1]["S"].to_numpy())[~tables[0]["unstable"]]
    assert 0 < cost.largest == pytest.approx(np.abs(change).max())
    assert cost.size == pytest.approx(tables[1]["S"].abs().median())
    assert exact.record.smoothing is None
    rank = [result.table["S"].rank().corr(usual.table["S"].rank()) for result in (exact,)]
    assert 0.9 < rank[0] < 1.0


def test_runs_of_two_summaries_are_not_compared(tiny):
    from tda_bias.comparison.head_maps import compare_heads

    model, triples = tiny("gpt2"), load_triples("starter", category="gender", limit=3)
    runs = [
        head_bias(model, triples, config=HeadBiasConfig(n_permutations=99, summary=summary))
        for summary in ("graph", "graph-exact")
    ]
    model_record = runs[1].record.model.model_copy(update={"weights": "another"})
    with pytest.raises(InputError, match="summary"):
        compare_heads(runs[0], runs[1].with_record(model=model_record))


# -- every summary, on a tiny model --


@pytest.fixture(scope="module")
def run(tiny):
    model, triples = tiny("gpt2"), load_triples("starter", category="gender", limit=3)

    def made(summary, **settings):
        config = HeadBiasConfig(n_permutations=99, summary=summary, **settings)
        return head_bias(model, triples, config=config)

    return made


@pytest.mark.parametrize("summary", ["flag", "attention", "flag-wasserstein"])
def test_every_summary_gives_tables_with_tests_of_the_target(run, summary):
    heads = {"heads": ("l0h1", "L1H0")} if summary == "flag-wasserstein" else {}
    found = run(summary, **heads)
    assert set(found.table["dim"]) == {0, 1}
    tested = found.category.dropna(subset=["p_max_location_twin"])
    assert len(tested) == (2 if heads else len(found.category))
    assert tested["p_max_location_twin"].between(0, 1).all()
    left = found.controls()["twins"]["difference_left"]
    assert 0 < left < 2
    assert (found.controls()["negative_share"] is not None) == bool(heads)
    if heads:
        assert np.isnan(found.controls()["twins"]["smallest_share"])
        others = found.table.set_index(["layer", "head"]).drop([(0, 1), (1, 0)])
        assert set(others["reason"]) == {"not among the heads that were named"}
        assert set(map(tuple, found.top(None)[["layer", "head"]].to_numpy())) == {(0, 1), (1, 0)}


def test_heads_of_distances_are_named_and_exist(run):
    with pytest.raises(InputError, match=r"about .* minutes for a head .* name the heads"):
        run("flag-wasserstein")
    with pytest.raises(InputError, match="L9H0 does not exist: the model has heads 0 to"):
        run("flag-wasserstein", heads="L9H0")
    with pytest.raises(ValueError, match="graph reads all heads"):
        HeadBiasConfig(heads="L0H0")
    with pytest.raises(ValueError, match="must look like L5H3"):
        HeadBiasConfig(summary="flag-wasserstein", heads="5.3")


def test_summaries_that_cannot_be_are_one_line(run, tiny, monkeypatch):
    with pytest.raises(ValueError, match="must be one of graph, .* or module:function"):
        HeadBiasConfig(summary="grph")
    with pytest.raises(ValueError, match="needs weights from 0 to 1"):
        HeadBiasConfig(summary="flag", edges="output")
    monkeypatch.setattr("tda_bias.heads.summaries.KINDS", {"flag": _short(KINDS["flag"])})
    with pytest.raises(InputError, match="at most 4 tokens; the longest has"):
        run("flag")


def _short(kind):
    return replace(kind, most_tokens=4)


def test_attention_needs_a_context(tiny):
    texts = [("The cook ate.", "The cook sat."), ("A cook won.", "A cook hid.")]
    pairs = [Triple("cook", "own", "", more, less, "") for more, less in texts]
    config = HeadBiasConfig(n_permutations=99, summary="attention")
    with pytest.raises(InputError, match="pairs have none"):
        head_bias(tiny("gpt2"), pairs, twins=None, config=config)


OWN = """
import numpy as np

def corner(patterns, places):
    return np.stack([patterns[:, :, -1, 0], patterns[:, :, 1, 0]], axis=2)

def to_target(patterns, places):
    return np.stack([of[:, :, mark.target].mean((1, 2))[:, None]
                     for of, mark in zip(patterns, places)])

def nan(patterns, places):
    return np.full((*patterns.shape[:2], 1), np.nan)

def flat(patterns, places):
    return patterns[:, 0, 0]

def lengths(patterns, places):
    return patterns[:, :, 0]

def fails(patterns, places):
    raise KeyError("x")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_summary_under_test.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_summary_under_test", None)


def test_a_function_of_ones_own_is_a_summary_and_its_source_counts(own, run):
    found = run("own_summary_under_test:corner")
    assert set(found.table["dim"]) == {0}
    assert found.controls()["length_correlation_1"] is None or np.isnan(
        found.controls()["length_correlation_1"]
    )
    assert run("own_summary_under_test:to_target").table["S"].notna().all()
    model = {"model": "m", "weights": "w", "dtype": "d"}
    before = part_identity(found.record.config, **model)
    sys.modules.pop("own_summary_under_test")
    (own / "own_summary_under_test.py").write_text(OWN + "\n# changed\n")
    assert part_identity(found.record.config, **model) != before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_summary_under_test:nan", "NaN or infinite"),
        ("own_summary_under_test:flat", r"must give values of the shape \(text, head, value\)"),
        ("own_summary_under_test:lengths", "as many values of every text; got"),
        ("own_summary_under_test:fails", "failed on patterns of the shape .*KeyError"),
        ("own_summary_under_test:nothing", "has no function nothing"),
        ("no_such_module:f", "no_such_module cannot be imported"),
    ],
)
def test_functions_that_give_something_else_are_one_line(own, run, name, message):
    with pytest.raises(InputError, match=message):
        run(name)
