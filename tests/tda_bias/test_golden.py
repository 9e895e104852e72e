"""Reference numbers: every case of the golden file at 1e-9."""

import json
from pathlib import Path

import numpy as np
import pytest

from tda_bias.heads.group_statistic import GroupStatistic, group_statistic
from tda_bias.heads.resampled import (
    label_flips,
    label_terms,
    paired_terms,
    paper_pvalue,
    relabellings,
    two_sided,
)
from tda_bias.topology.persistence import births_deaths
from tda_bias.topology.steps import step_function

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tda.json").read_text())
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
EXACT = {
    "p_paired_exact_two_sided": (label_flips, paired_terms),
    "p_label_exact_two_sided": (relabellings, label_terms),
}


@pytest.mark.parametrize("case", GOLDEN["persistence"], ids=lambda c: f"n{len(c['attention'])}")
def test_births_and_deaths_are_the_reference_ones(case):
    found = births_deaths(np.array(case["attention"]))
    np.testing.assert_allclose(found.births, case["births"], **TOLERANCE)
    np.testing.assert_allclose(found.deaths, case["deaths"], **TOLERANCE)


@pytest.mark.parametrize(
    "case", GOLDEN["steps"], ids=lambda c: f"{len(c['values'])}to{c['n_steps']}"
)
def test_step_functions_are_the_reference_ones(case):
    found = step_function(np.array(case["values"]), case["n_steps"])
    np.testing.assert_allclose(found, case["expected"], **TOLERANCE)


def _statistic(case: dict) -> GroupStatistic:
    n_steps = case["expected"]["n_steps"]
    roles = case["births_or_deaths"]
    longest = max(len(values) for role in roles.values() for values in role)
    assert n_steps == longest
    steps = {
        role: np.stack([step_function(np.array(v), n_steps) for v in values])
        for role, values in roles.items()
    }
    return group_statistic(*(steps[r] for r in ("stereotype", "anti_stereotype", "unrelated")))


def name_of(case: dict) -> str:
    return f"dim{case['dim']}n{case['n']}"


@pytest.fixture(params=GOLDEN["group"], ids=name_of)
def case(request):
    return request.param


def test_group_statistic_is_the_reference_one(case):
    stat, expected = _statistic(case), case["expected"]
    for name in ("var_stereotype", "var_anti", "var_unrelated", "S"):
        np.testing.assert_allclose(getattr(stat, name), expected[name], err_msg=name, **TOLERANCE)


@pytest.mark.parametrize(
    "case", [c for c in GOLDEN["group"] if c["attention"] is not None], ids=name_of
)
def test_the_attention_of_a_group_gives_its_births_or_deaths(case):
    for role, patterns in case["attention"].items():
        for pattern, expected in zip(patterns, case["births_or_deaths"][role], strict=True):
            found = births_deaths(np.array(pattern))
            values = found.births if case["dim"] == 0 else found.deaths
            np.testing.assert_allclose(values, expected, **TOLERANCE)


def test_paper_pvalue_and_metric_are_the_reference_ones(case):
    stat, expected = _statistic(case), case["expected"]
    pvalue = paper_pvalue(stat)
    np.testing.assert_allclose(pvalue, expected["p_paper"], **TOLERANCE)
    np.testing.assert_allclose((1 - pvalue) * stat.S, expected["T"], **TOLERANCE)


def test_the_swap_matrix_has_the_reference_mean_and_variance(case):
    stat, expected = _statistic(case), case["expected"]
    swap = 2 * (stat.q_stereotype[:, None] - stat.q_anti) / (stat.n * stat.var_unrelated)
    np.testing.assert_allclose(swap.mean(), expected["swap_matrix_mean"], **TOLERANCE)
    np.testing.assert_allclose(swap.var(), expected["swap_matrix_var"], **TOLERANCE)


@pytest.mark.parametrize(
    ("case", "key"),
    [
        pytest.param(c, key, id=f"{name_of(c)}-{key[2:8]}")
        for c in GOLDEN["group"]
        for key in EXACT
        if key in c["expected"]
    ],
)
def test_exact_resampled_pvalues_are_the_reference_ones(case, key):
    stat, (draw, terms) = _statistic(case), EXACT[key]
    draws = draw(stat.n, 99, np.random.default_rng(0))
    assert draws.exact
    np.testing.assert_allclose(two_sided(draws, terms(stat)), case["expected"][key], **TOLERANCE)
