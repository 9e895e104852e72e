"""Reference rows: reference numbers, simulation, and the finite-context null."""

import json
from pathlib import Path

import numpy as np
import pytest

from pvf.reference_models import (
    finite_context_null,
    randomly_initialised_risk,
    reference_models,
)
from pvf.risk import decompose
from tda_bias.types import InputError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pvf_unqover.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["random_init_expected"], ids=lambda c: f"K{c['K']}")
def test_closed_forms_are_the_reference_ones(case):
    for criterion in ("linf", "l1"):
        for scale in ("pcf", "bvf"):
            found = randomly_initialised_risk(case["K"], criterion=criterion, scale=scale)
            np.testing.assert_allclose(found, case[f"{criterion}_{scale}"], atol=1e-10)
    for scale in ("pcf", "bvf"):
        stereotyped = reference_models(case["K"], scale=scale)[1]
        np.testing.assert_allclose(stereotyped.R, case[f"max_{scale}"], atol=1e-10)


@pytest.mark.parametrize("criterion", ["linf", "l1", "l2"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_each_row_is_what_such_a_model_scores(n_classes, criterion):
    rng = np.random.default_rng(0)
    x, contexts = 40, 4000
    one_hot = np.eye(n_classes)
    simulated = {
        "ideally unbiased": np.full((x, contexts, n_classes), 1 / n_classes),
        "stereotyped": one_hot[np.repeat(rng.integers(n_classes, size=(x, 1)), contexts, axis=1)],
        "randomly stereotyped": one_hot[rng.integers(n_classes, size=(x, contexts))],
        "randomly initialised": rng.dirichlet(np.ones(n_classes), size=(x, contexts)),
    }
    for row in reference_models(n_classes, criterion=criterion):
        found = decompose(simulated[row.name], criterion=criterion)
        values = [found.R, found.R_p, found.R_v]
        np.testing.assert_allclose(values, [row.R, row.R_p, row.R_v], atol=0.03)


def test_few_contexts_show_prejudice_where_there_is_none():
    """Two classes, ten equal contexts: sd of the mean of a uniform on [-1, 1], half normal."""
    drawn = finite_context_null(np.ones(10), 2, n_draws=40_000, rng=np.random.default_rng(0))
    expected = np.sqrt(2 / np.pi) / np.sqrt(3 * 10)
    np.testing.assert_allclose(drawn.mean(), expected, atol=0.004)


def test_more_contexts_show_less_of_it():
    means = [
        finite_context_null(np.ones(n), 3, n_draws=2000, rng=np.random.default_rng(0)).mean()
        for n in (1, 10, 100)
    ]
    np.testing.assert_allclose(means[0], randomly_initialised_risk(3), atol=0.02)
    assert means[0] > 2 * means[1] > 4 * means[2]


def test_one_class_and_bad_weights_are_refused():
    with pytest.raises(InputError, match="`n_classes` must be at least 2; got 1"):
        randomly_initialised_risk(1)
    with pytest.raises(InputError, match="must be positive"):
        finite_context_null(np.array([1.0, 0.0]), 2, rng=np.random.default_rng(0))
