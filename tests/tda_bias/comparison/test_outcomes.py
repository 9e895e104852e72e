"""What a comparison of two models comes to."""

from dataclasses import replace

import pandas as pd
import pytest

from tda_bias.comparison.bbq_change import BBQChange, BBQChangeRecord
from tda_bias.comparison.finding import verdicts
from tda_bias.comparison.models import ComparisonRecord, ModelComparison
from tda_bias.comparison.outcome import Outcome, change_table
from tda_bias.comparison.outcomes import bbq_outcomes, comparison_outcomes
from tda_bias.show.verdict import corrected, under_test
from tda_bias.stats.resampling import holm
from tda_bias.store.record import ModelRecord


def compared(changes, **about) -> ModelComparison:
    """A comparison of one outcome, in which each item is a cluster and changes by so much."""
    n = len(changes)
    items = pd.DataFrame(
        {"outcome": "beta", "item": map(str, range(n)), "cluster": map(str, range(n))}
    ).assign(weight=1.0, before=1.0, after=[1 + one for one in changes])
    outcome = Outcome("beta", "bias", "nats", "the target effect", neutral=0.0, **about)
    table = change_table(items.assign(measured="both"), [outcome], n_flips=99)
    models = {name: ModelRecord(name=name) for name in ("model", "after")}
    more = {"measures": {}, "n_flips": 99, "confidence": 0.95, "seed": 0}
    return ModelComparison(table, items, ComparisonRecord(**models, **more))


def test_a_change_of_a_primary_outcome_has_its_p_its_interval_and_its_size_in_sds_of_items():
    changes = [-1.0, -2.0, -1.5, -0.5, -1.0, -2.5, -1.0, -1.5]
    [one] = comparison_outcomes(found := compared(changes, primary=True))
    row = found.table.iloc[0]
    assert (one.question, one.value, one.p) == ("change", row["change"], row["p"])
    assert one.effect == pytest.approx(pd.Series(changes).mean() / pd.Series(changes).std())
    assert one.verdict == "large, clear"
    assert list(one.items["change"]) == changes


def test_a_change_beside_a_guard_that_fails_is_paid_with_capability():
    made = compared([-1.0, -2.0, -1.5, -0.5, -1.0, -2.5, -1.0, -1.5], primary=True)
    [free] = comparison_outcomes(made)
    lost = made.table.assign(outcome="log_perplexity", primary=False, guard="fail")
    both = pd.concat([made.table.assign(guard=""), lost], ignore_index=True)
    [paid] = comparison_outcomes(replace(made, table=both))
    assert (free.confounded, paid.confounded) == ((), ("capability",))
    assert "a guard fails: quality is lost" in paid.lines


def test_other_outcomes_have_no_verdict_and_few_clusters_cannot_say():
    assert comparison_outcomes(compared([1.0, 2.0, 1.5], primary=False)) == []
    [one] = comparison_outcomes(compared([1.0, 2.0, 1.5], primary=True))
    assert one.verdict == "cannot say"


def test_five_clusters_have_no_exchange_that_could_be_clear():
    for n, word in ((5, "cannot say"), (6, "clear")):
        [one] = comparison_outcomes(compared([1.0, *[1.5] * (n - 1)], primary=True))
        assert one.word == word


def test_a_change_is_as_clear_as_the_finding_and_fail_on_take_it():
    """Of two primary outcomes of six clusters none can be clear after the correction over both.

    Where the other one is clearer, its p takes the stricter limit.
    """
    found = compared([-1.0, -2.0, -1.5, -0.5, -1.0, -2.5], primary=True)
    assert comparison_outcomes(found)[0].word == "clear"
    row = found.table.iloc[0]
    both = pd.concat([found.table, found.table.assign(outcome="other")])
    both["p_holm"] = holm(both["p"].to_numpy(float))
    first, _ = comparison_outcomes(replace(found, table=both))
    assert (first.p, first.p_corrected) == (row["p"], 2 * row["p"])
    assert first.word == "cannot say"
    both["p"], both["clusters"] = [row["p"], 0.001], [6, 12]
    both["p_holm"] = holm(both["p"].to_numpy(float))
    assert [one.word for one in comparison_outcomes(replace(found, table=both))] == ["clear"] * 2
    assert first.test_said.endswith("0.0625 corrected")
    assert not any(one.remains for one in corrected([first, first]))
    assert under_test([first, first]) == []


def test_the_finding_says_that_too_few_clusters_tell_nothing():
    for changes, said in (
        ([1.0, -2.0, 1.5], "after cannot be told from model by so few clusters"),
        ([1.0, -2.0, 1.5, -1.0, 0.5, -0.5, 1.0], "after is not measurably less biased than model"),
        ([-1.0] * 5 + [-0.5] * 5, "after is less biased than model in target effect"),
    ):
        assert verdicts(compared(changes, primary=True), numbers=False) == [said]


def answered(p, templates, *, condition="ambiguous") -> BBQChange:
    row = {"condition": condition, "measure": "s_AMB", "items": 40, "templates": templates}
    numbers = {"before": 0.2, "after": 0.05, "change": -0.15, "low": -0.2, "high": -0.1}
    models = {name: ModelRecord(name=name) for name in ("model", "after")}
    about = {"category": "all", "n_resamples": 99, "seed": 0, "items": 40, "only_one": 0}
    changes = pd.DataFrame([{**row, **numbers, "p": p, "smallest": 0.1}])
    return BBQChange(changes, BBQChangeRecord(**models, **about))


@pytest.mark.parametrize(
    ("p", "templates", "verdict"),
    [(0.01, 8, "clear"), (0.2, 8, "uncertain"), (0.0625, 5, "cannot say"), (0.5, 3, "cannot say")],
)
def test_the_bias_of_two_runs_of_bbq_changed_or_not(p, templates, verdict):
    [one] = bbq_outcomes(answered(p, templates))
    assert (one.question, one.name, one.verdict) == ("change", "Change: s_AMB of BBQ", verdict)
    assert (one.value, one.p, one.clusters) == (-0.15, p, templates)


def test_two_runs_of_bbq_that_share_no_ambiguous_text_have_no_verdict():
    assert bbq_outcomes(answered(0.01, 8, condition="disambiguated")) == []
