"""What ablations come to: more than random heads, not more, language lost, too few random sets."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.ablation.finding import better_rankings
from tda_bias.ablation.outcomes import ablation_outcomes, curve_outcomes
from tda_bias.ablation.prune_curve import PruneCurve, PruneCurveRecord
from tda_bias.ablation.study import AblationRecord, AblationStudy, set_tests
from tda_bias.store.record import ModelRecord


def study(effect, *, n_random=39, survivors=1, quantity="beta", **language) -> AblationStudy:
    """A study whose random sets change the quantity by up to .1, and language by as much."""
    spread = np.linspace(-0.1, 0.1, n_random)
    effects = pd.DataFrame(
        {"kind": ["top_set", *["random_set"] * n_random], "heads": "L0H0"}
        | {f"d_{quantity}": [effect, *spread]}
        | {f"d_{name}": [change, *spread] for name, change in language.items()}
    )
    record = AblationRecord(
        model=ModelRecord(name="tiny"), category="gender", rank_by="evidence", top=2,
        ablation="mean", n_random=n_random, n_possible=500, n_resamples=99, seed=0, triples=8,
        survivors=survivors, base={quantity: 0.4},
    )  # fmt: skip
    column = "effect" if quantity == "log_odds" else f"effect_{quantity}"
    heads = pd.DataFrame({"layer": [0], "head": [0], "unstable": [False], column: [0.1]})
    return AblationStudy(effects, set_tests(effects), heads, pd.DataFrame(), record)


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (study(0.3), "clear"),
        (study(-0.3), "clear"),
        (study(0.05), "uncertain"),
        (study(0.3, n_random=19), "cannot say"),  # no p below .05
        (study(0.3, log_ppl_context=0.3), "confounded: capability"),
        (study(0.3, log_ppl_context=-0.3), "clear"),  # text is more probable
        (study(0.3, log_ppl_context=0.05), "clear"),  # as with random heads
        (study(0.3, log_ppl_unrelated=0.3), "confounded: capability"),
        (study(0.3, log_ppl_unrelated=0.3, log_ppl_context=0.0), "clear"),
    ],
)
def test_top_heads_change_more_than_random_ones_or_not(made, verdict):
    [one] = ablation_outcomes(made)
    test = made.set_tests.iloc[0]
    assert (one.question, one.verdict) == ("tests", verdict)
    assert one.name == "2 top heads ablated: target effect, gender"
    assert (one.value, one.p) == (test["effect"], test["p"])
    assert f"{len(one.items) - 1} random sets" in one.test_said


def test_what_would_have_been_found_is_the_size_from_which_p_is_small():
    [one] = ablation_outcomes(study(0.05))
    needed = float(one.power.removeprefix("p < .05 from a change of ").removesuffix(" nats"))
    for size, small in ((needed - 0.001, False), (needed + 0.001, True)):
        [found] = ablation_outcomes(study(size))
        assert (found.p < 0.05) == small
    assert ablation_outcomes(study(0.05, n_random=9))[0].power == ""


def test_a_card_says_where_no_head_survives_and_where_wording_is_in_the_change():
    [one] = ablation_outcomes(study(0.3, survivors=0, quantity="log_odds"))
    assert one.name.endswith("log-odds, gender")
    assert one.limits == [
        "by its ranking no head of the run survives",
        "without twins: wording is in it",
    ]
    assert ablation_outcomes(study(0.3))[0].limits == []


def test_each_kind_of_text_has_an_outcome():
    of_words, of_triples = study(0.3, quantity="R"), study(0.05)
    effects = of_triples.effects.assign(d_R=of_words.effects["d_R"])
    both = replace(
        of_triples,
        effects=effects,
        set_tests=set_tests(effects),
        heads=of_triples.heads.assign(effect_R=0.1),
    )
    words = {one.name.partition(": ")[2]: one.word for one in ablation_outcomes(both)}
    assert words == {"target effect, gender": "uncertain", "risk R, gender": "clear"}


def curve(pvalues, *, orders=99) -> PruneCurve:
    chosen = pd.DataFrame({"ranking": [f"map{n}" for n in range(len(pvalues))], "k": 4})
    chosen = chosen.assign(
        before_test=0.4, test=0.1, test_low=0.0, test_high=0.2, d_log_ppl=0.01, random_test=0.3,
        p_random=pvalues,
    )  # fmt: skip
    table = pd.DataFrame({"ranking": "random", "draw": range(orders), "k": 4, "log_ppl": 3.0})
    record = PruneCurveRecord(
        model=ModelRecord(name="tiny"), category="gender", quantity="beta", choosing=("a", "b")
    )
    return PruneCurve(table, chosen, record)


@pytest.mark.parametrize(
    ("pvalues", "orders", "words"),
    [
        ([0.01], 99, ["clear"]),
        ([0.01, 0.03], 99, ["clear", "uncertain"]),  # corrected for two rankings
        ([0.03], 19, ["cannot say"]),
        ([0.01, 0.4], 39, ["cannot say", "cannot say"]),  # 2 / 40 is not below .05
    ],
)
def test_a_ranking_brings_the_effect_closer_to_0_than_random_orders_or_not(pvalues, orders, words):
    outcomes = curve_outcomes(curve(pvalues, orders=orders))
    assert [one.word for one in outcomes] == words
    assert outcomes[0].name == "Heads by map0 ablated: target effect, gender"
    assert outcomes[0].value == pytest.approx(-0.3)
    assert "0.40 to 0.10 (0.00 to 0.20)" in outcomes[0].lines


@pytest.mark.parametrize("change", [{"k": 0, "test": 0.4}, {"test": 0.5}, {"test": -0.5}])
def test_what_ablates_no_head_or_ends_farther_from_0_brings_nothing_closer(change):
    """However much farther random orders end."""
    made = curve([0.01])
    made = replace(made, chosen=made.chosen.assign(**change))
    assert better_rankings(made) == []
    assert curve_outcomes(made)[0].word == "uncertain"
    assert better_rankings(curve([0.01])) == ["map0"]
