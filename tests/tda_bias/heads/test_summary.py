"""What is compared of a pattern is a choice: the exact distances, against POT."""

import numpy as np
import ot
import pytest
import torch

from tda_bias import HeadBiasConfig, InputError, head_bias, load_triples
from tda_bias.heads.group_result import length_statistic, uniform_sets
from tda_bias.heads.group_statistic import GroupLayout, statistic_from_gram
from tda_bias.topology.gram import GroupSampler
from tda_bias.topology.persistence import births_deaths

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
    n_tokens = LENGTHS.reshape(3, 3).T
    found = length_statistic([7, 21], n_tokens, "causal", "graph-exact")
    for dim in (0, 1):
        sets = [uniform_sets(n, "causal")[dim] for n in n_tokens.T.ravel().tolist()]
        assert found[dim] == pytest.approx(float(from_distances(sets)), rel=1e-9)


def test_a_run_names_its_summary_and_texts_of_one_length_need_none(tiny):
    model, triples = tiny("gpt2"), load_triples("starter", category="gender", limit=3)
    usual, exact = (
        head_bias(model, triples, config=HeadBiasConfig(n_permutations=99, summary=summary))
        for summary in ("graph", "graph-exact")
    )
    assert exact.record.config.summary == "graph-exact"
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
