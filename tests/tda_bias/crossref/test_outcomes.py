"""What cross-references come to: a link, none, or nothing that could have been found."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.crossref.crossref import CrossReference, CrossrefRecord
from tda_bias.crossref.head_crossref import RISKS, HeadCrossReference, HeadCrossrefRecord
from tda_bias.crossref.item_crossref import ItemCrossReference, ItemCrossrefRecord
from tda_bias.crossref.outcomes import head_outcomes, item_outcomes, target_outcomes
from tda_bias.crossref.rank_tests import correlations
from tda_bias.store.record import ModelRecord

MODEL = ModelRecord(name="tiny")


def over_targets(*, n=12, linked=True, draws=99, seed=0) -> CrossReference:
    rng = np.random.default_rng(seed)
    targets = pd.DataFrame({"category": "gender", "target": [f"t{k}" for k in range(n)]})
    targets["r"] = rng.normal(size=n)
    targets["mean_T"] = targets["r"] if linked else rng.normal(size=n)
    targets["gini"] = rng.normal(size=n)
    table = correlations(targets, ["r"], ["mean_T", "gini"], n_resamples=draws, rng=rng)
    record = CrossrefRecord(model=MODEL, by="relative", statistic="T", n_resamples=draws, seed=0)
    return CrossReference(targets, table, pd.DataFrame(), record)


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        ({}, "clear"),
        ({"linked": False}, "uncertain"),
        ({"n": 4}, "cannot say"),
        ({"draws": 19}, "cannot say"),  # no p below .05
    ],
)
def test_what_heads_do_goes_with_what_is_said_of_targets_or_not(made, verdict):
    result = over_targets(**made)
    [one] = target_outcomes(result)
    first = result.correlations.sort_values("p").iloc[0]
    assert (one.question, one.verdict, one.category) == ("tests", verdict, "gender")
    assert (one.value, one.p) == (first["spearman"], result.correlations["q"].min())
    assert one.clusters == len(result.targets)
    kept = int((result.correlations["q"] < 0.05).sum())
    assert f"{kept} of 2 correlations survive" in one.lines


def test_where_no_correlation_is_defined_nothing_can_be_said():
    result = over_targets()
    empty = result.correlations.assign(p=np.nan, q=np.nan, spearman=np.nan)
    [one] = target_outcomes(replace(result, correlations=empty))
    assert one.verdict == "cannot say"


def over_items(p_max, *, ways=("raw", "twins"), draws=99) -> ItemCrossReference:
    """Three heads; without twins one of them survives."""
    place = {"category": "gender", "measure": "sum", "dim": 0}
    heads = pd.concat(
        [
            pd.DataFrame({**place, "way": way, "layer": 0, "head": range(3), "rho": 0.3, "p": 0.01})
            for way in ways
        ]
    )
    heads["p_max"] = np.where(heads["way"] == "raw", [0.01, 0.5, 0.5] * len(ways), 1.0)
    heads.loc[heads["way"] == ways[-1], "p_max"] = p_max
    numbers = {"n": 40, "heads": 3, "p05": 3, "expected": 0.15, "family_wise": 0}
    numbers |= {"largest": -0.3, "needed": 0.42, "smallest": 0.4, "layer": 0, "head": 0}
    summary = pd.DataFrame([{**place, "way": way, **numbers} for way in ways])
    record = ItemCrossrefRecord(model=MODEL, scoring="sum", n_resamples=draws, seed=0)
    return ItemCrossReference(heads, summary, record)


@pytest.mark.parametrize(
    ("result", "verdict", "found"),
    [
        (over_items([0.01, 0.04, 0.5]), "clear", 2),
        (over_items([0.05, 0.2, 0.5]), "none found", 0),
        (over_items([0.05, 0.2, 0.5], draws=19), "cannot say", 0),
        (over_items([np.nan] * 3), "cannot say", 0),
    ],
)
def test_heads_follow_the_target_effect_of_items_or_not(result, verdict, found):
    [one] = item_outcomes(result)
    assert (one.verdict, one.found, one.of) == (verdict, found, 3)
    assert one.name == "Heads that follow the target effect: gender"
    assert "without twins 1, perhaps for wording" in one.lines
    assert one.power == "p < .05 from a rho of 0.42"


def test_without_twins_it_is_said_that_wording_is_in_what_is_found():
    [one] = item_outcomes(over_items([0.01, 0.5, 0.5], ways=("raw",)))
    assert one.name == "Heads that follow the log-odds: gender"
    assert one.limits == ["without twins: wording is in it"]
    assert one.verdict == "clear"


def over_heads(*, q=0.5, draws=99, agree=0.9, survivors=1) -> HeadCrossReference:
    rows = [
        {
            "ranking": "z_evidence", "risk": risk, "aspect": aspect, "heads": 8, "overlap": 1,
            "spearman": 0.6, "by_layers": 0.2, "p_within_layers": 0.01,
            "q": q if (risk, aspect) == ("R_p", "fall") else 0.5,
            "significant": 0.3, "power_80": 0.4, "chance": 1.0,
        }
        for risk in RISKS
        for aspect in ("size", "fall")
    ]  # fmt: skip
    effects = {f"{kind}_{risk}": 0.1 for kind in ("effect", "exact") for risk in RISKS}
    heads = pd.DataFrame({"layer": 0, "head": range(8), "z_evidence": 1.0, **effects})
    agreement = pd.DataFrame(
        {"risk": RISKS, "chosen": "all", "heads": 8, "spearman": [0.9, agree, 0.9]}
    )
    record = HeadCrossrefRecord(
        model=MODEL, category="gender", rank_by="evidence", statistic="T", ablation="mean", top=2,
        n_resamples=draws, seed=0, words=3, templates=2, criterion="abs", survivors=survivors,
    )  # fmt: skip
    return HeadCrossReference(
        heads, pd.DataFrame(rows), agreement.assign(same_sign=0.9, ratio=1.0), record
    )


@pytest.mark.parametrize(
    ("made", "word"),
    [({"q": 0.01}, "clear"), ({}, "uncertain"), ({"q": 0.01, "draws": 19}, "cannot say")],
)
def test_the_heads_that_rank_first_carry_a_risk_or_not(made, word):
    outcomes = head_outcomes(over_heads(**made))
    assert [one.name for one in outcomes] == [
        f"Ranks of heads and {risk}: gender"
        for risk in ("risk R", "prejudice R_p", "volatility R_v")
    ]
    one = outcomes[1]
    assert one.word == word
    assert (one.value, one.neutral, one.p) == (0.6, 0.2, 0.01)
    assert {other.word for other in (outcomes[0], outcomes[2])} <= {"uncertain", "cannot say"}


def test_a_card_says_where_estimates_and_rankings_are_noise():
    outcomes = head_outcomes(over_heads(agree=0.2, survivors=0))
    noise = "by its ranking no head of the run survives"
    assert outcomes[0].limits == [noise]
    assert outcomes[1].limits == [noise, "estimates say little of ablation"]
