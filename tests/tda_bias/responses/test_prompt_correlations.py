"""Correlations over prompts: ranks counted one by one, and what cannot be correlated."""

from dataclasses import replace
from math import atanh, nan, sqrt, tanh

import numpy as np
import pandas as pd
import pytest

from tda_bias.config import RespondConfig
from tda_bias.responses.prompt_correlations import DECISION_SIZE, prompt_correlations
from tda_bias.responses.respond import respond
from tda_bias.responses.result import Responses
from tda_bias.stats.clusters import FEWEST_CLUSTERS
from tests.support.responses import some_people, some_prompts, writing_model

COLUMNS = ("twins", "placebos", "effect", "echo", "sampled", "tokens")
# Of the normal distribution, as printed in tables.
QUANTILE = {0.95: 1.959964, 0.9: 1.644854}


def some_tables(n=14, decisions=9):
    """Prompts with tied numbers, and decisions of some of them in another order."""
    rng = np.random.default_rng(3)
    numbers = {name: rng.normal(size=n).round(1) for name in COLUMNS}
    prompts = pd.DataFrame({"id": [f"p{i}" for i in range(n)], **numbers})
    asked = rng.permutation(n)[:decisions]
    differences = prompts["effect"].to_numpy()[asked] * rng.choice([-1, 1], decisions)
    return prompts, pd.DataFrame(
        {"id": [f"p{i}" for i in asked], "difference": differences + rng.normal(0, 0.3, decisions)}
    )


def literal_rank(value, values):
    """Those below, and half of those alike."""
    return sum(1.0 for one in values if one < value) + sum(0.5 for one in values if one == value)


def literal_spearman(x, y):
    ranks = [[literal_rank(value, line) for value in line] for line in (x, y)]
    centre = [sum(line) / len(x) for line in ranks]
    products = [
        sum((p - centre[i]) * (q - centre[j]) for p, q in zip(ranks[i], ranks[j], strict=True))
        for i, j in ((0, 1), (0, 0), (1, 1))
    ]
    return products[0] / sqrt(products[1] * products[2]) if products[1] * products[2] else nan


def literal(prompts, decisions, confidence):
    """Every row, prompt by prompt."""
    pairs = [("twins", "placebos"), ("effect", "twins"), ("effect", "placebos")]
    pairs += [("effect", "echo"), ("effect", "sampled"), ("effect", "tokens")]
    rows = []
    for quantity, other in [*pairs, ("effect", "decision size")]:
        x, y = [], []
        for prompt in prompts.to_dict("records"):
            if other != "decision size":
                y.append(prompt[other])
            else:
                own = [d for d in decisions.to_dict("records") if d["id"] == prompt["id"]]
                if not own:
                    continue
                y.append(abs(own[0]["difference"]))
            x.append(prompt[quantity])
        rho = literal_spearman(x, y)
        limits = (nan, nan)
        if len(x) >= FEWEST_CLUSTERS and abs(rho) < 1 - 1e-9:  # else all agree
            half = QUANTILE[confidence] * sqrt((1 + rho**2 / 2) / (len(x) - 3))
            limits = (tanh(atanh(rho) - half), tanh(atanh(rho) + half))
        rows.append((quantity, other, len(x), rho, *limits))
    return rows


@pytest.mark.parametrize("confidence", QUANTILE)
def test_every_correlation_and_interval_is_the_literal_one(confidence):
    prompts, decisions = some_tables()
    found = prompt_correlations(prompts, decisions, confidence=confidence)
    expected = literal(prompts, decisions, confidence)
    assert len(found) == len(expected)
    for row, own in zip(found.itertuples(index=False), expected, strict=True):
        assert tuple(row)[:3] == own[:3]
        assert tuple(row)[3:] == pytest.approx(own[3:], abs=1e-6)
    by_decision = found.set_index("other").loc[DECISION_SIZE]
    assert by_decision["prompts"] == 9


def test_what_cannot_be_correlated_has_no_number():
    prompts, decisions = some_tables()
    alone = prompt_correlations(prompts.assign(echo=0.0), decisions[:2]).set_index(
        ["quantity", "other"]
    )
    for pair in (("effect", "echo"), ("effect", DECISION_SIZE)):
        assert alone.loc[pair, ["spearman", "low", "high"]].isna().all()
    assert alone.loc[("effect", DECISION_SIZE), "prompts"] == 2
    few = prompt_correlations(prompts[:4], decisions[:0])
    assert DECISION_SIZE not in few["other"].tolist()
    assert few["spearman"].notna().all()
    assert few["low"].isna().all()


def test_a_run_has_those_of_its_own_prompts_and_runs_before_had_none(tmp_path):
    config = RespondConfig(samples=1, tokens=5, n_permutations=99, confidence=0.9)
    asked = writing_model(), some_prompts(4, 3), some_people()
    run = respond(*asked, config=config)
    expected = literal(run.prompts, run.decisions, 0.9)
    for row, own in zip(run.correlations.itertuples(index=False), expected, strict=True):
        assert tuple(row)[:3] == own[:3]
        assert tuple(row)[3:] == pytest.approx(own[3:], abs=1e-6, nan_ok=True)
    assert run.correlations["low"].notna().any()
    run.save(tmp_path / "run")
    pd.testing.assert_frame_equal(Responses.load(tmp_path / "run").correlations, run.correlations)
    replace(run, correlations=run.correlations[:0]).save(tmp_path / "before")
    assert not (tmp_path / "before" / "correlations.csv").exists()
    assert Responses.load(tmp_path / "before").correlations.empty
    greedy = respond(*asked, config=config.model_copy(update={"greedy": True})).correlations
    assert greedy["spearman"].notna().any()
    assert greedy[["low", "high"]].isna().all(axis=None)
