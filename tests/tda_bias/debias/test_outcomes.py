"""What trainings for less bias come to: less, perhaps chance, too dear, or too few folds to say."""

import pytest

from tda_bias.debias.outcomes import debias_outcomes
from tda_bias.debias.protocol import Protocol
from tda_bias.debias.run_debias import DebiasRun
from tda_bias.debias.summary import DebiasRecord, conditions_table, frontier_table, items_table
from tda_bias.store.record import ModelRecord
from tests.support.trainings import GROUPS, of_folds, study, trajectories, with_language


def finished(results, *, recommended="effect", **about) -> DebiasRun:
    protocol = Protocol(n_random=2)
    record = DebiasRecord(
        model=ModelRecord(name="tiny"), category="gender", protocol=protocol, protocol_hash="",
        fixed="", folds=[], neutral={}, matching="", recommended=recommended, verdict="",
        **{"twins": {}, **about},
    )  # fmt: skip
    items = items_table(results, GROUPS, [f"item {n}" for n in range(len(GROUPS))])
    return DebiasRun(
        conditions_table(results, GROUPS, protocol, matched={}),
        frontier_table(results),
        record,
        extras={"items.parquet": items},
    )


def dear(results):
    with_language(results, 0.7)
    return results


def moved(results):
    """Every fold's items are moved, this one up and the next one down."""
    for number, trajectory in enumerate(trajectories(results)):
        trajectory.checks[1].test.gap[:] += 0.5 * (-1) ** number
    return results


@pytest.mark.parametrize(
    ("results", "verdict", "said"),
    [
        (study(0.2, [0.8, 0.9]), "large, clear", "guards hold"),
        (moved(study(0.9, [0.8, 0.9])), "small, uncertain", "guards hold"),
        (of_folds(study(0.2, [0.8, 0.9]), 4), "cannot say", "guards hold"),
        (dear(study(0.2, [0.8, 0.9])), "confounded: capability", "language-model score -10"),
    ],
)
def test_less_bias_is_clear_over_folds_where_the_guards_hold(results, verdict, said):
    run = finished(results)
    [one] = debias_outcomes(run)
    row = run.conditions.set_index("condition").loc["effect"]
    assert (one.question, one.verdict) == ("change", verdict)
    assert (one.value, one.clusters) == (row["change"], row["folds"])
    assert one.name == "Change: target effect after training 2 heads"
    assert any(line.startswith(said) for line in one.lines)
    # The p is that of the interval.
    inside = not row["change_low"] * row["change_high"] > 0
    assert (one.p >= 0.05 or one.word == "cannot say") == inside
    assert list(one.items["after"] - one.items["before"]) == pytest.approx(
        list(run.table("items").query("condition == 'effect'").eval("beta - beta_before"))
    )


def test_of_random_sets_the_items_are_means_over_the_sets():
    run = finished(study(0.2, [0.5, 0.9]), recommended="random")
    [one] = debias_outcomes(run)
    row = run.conditions.set_index("condition").loc["random"]
    assert one.items["after"].mean() == pytest.approx(row["beta"])
    assert len(one.items) == 12


def test_without_twins_it_is_the_log_odds_that_change_and_an_unchanged_model_is_said():
    [one] = debias_outcomes(finished(study(0.2, [0.8, 0.9]), twins=None, unchanged=True))
    assert one.name == "Change: log-odds after training 2 heads"
    assert one.limits == ["the saved model is the original"]
