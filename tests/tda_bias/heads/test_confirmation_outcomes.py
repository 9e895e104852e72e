"""What confirmations come to: found again, not, or nothing that could have been."""

import math

import numpy as np
import pandas as pd
import pytest

from tda_bias.config import ConfirmConfig
from tda_bias.debias import confirmation as of_models
from tda_bias.heads.confirmation import Confirmed, confirmation
from tda_bias.heads.confirmation_outcomes import confirm_outcomes
from tda_bias.show.page import page_html
from tda_bias.stats.resampling import holm
from tda_bias.store.files import plain
from tda_bias.store.record import ModelRecord, RunRecord
from tests.support.grams import planted_group


def confirmed(table, summary) -> Confirmed:
    """A result as it is read from its files, in which what is undefined is null."""
    record = RunRecord(command="confirm", model=ModelRecord(name="tiny"))
    return Confirmed(table, plain(summary), record)


def on_other_half(targets=6, *, bias_in=None, by="evidence", draws=99) -> Confirmed:
    config = ConfirmConfig.model_construct(
        rank_by=by, top=1, n_splits=200, n_permutations=draws, seed=0
    )
    groups = [planted_group(n, heads=40, bias_in=bias_in) for n in range(targets)]
    found = confirmation(groups, layers=(2,), config=config)
    numbers = {
        name: value for name, value in vars(found).items() if name not in ("heads", "record")
    }
    return confirmed(found.heads, {**numbers, **found.record, "category": "gender"})


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        ({"bias_in": 3}, "clear"),
        ({}, "uncertain"),
        ({"bias_in": 3, "targets": 4}, "cannot say"),  # says nothing of other targets
        ({"bias_in": 3, "draws": 10}, "cannot say"),  # whose p cannot be below .05
    ],
)
def test_heads_are_found_again_on_the_other_half_beyond_chance_or_not(made, verdict):
    result = on_other_half(by="location", **made)
    [one] = confirm_outcomes(result)
    assert (one.question, one.name, one.verdict) == ("tests", "Heads found again: gender", verdict)
    assert one.value == 100 * result.summary["replicated"]
    assert one.p == result.summary["p"]
    assert ("found again" in one.power) == (made.get("draws") is None)
    assert (one.items["head"][0] == "L2H3") == ("bias_in" in made)


def test_by_location_chance_is_what_any_heads_do_and_else_that_of_exchanged_labels():
    for by, chance in (("evidence", "chance"), ("location", "all_heads")):
        result = on_other_half(by=by)
        [one] = confirm_outcomes(result)
        assert one.neutral == 100 * result.summary[chance]


def on_other_data(pvalues, *, smallest=0.01) -> Confirmed:
    table = pd.DataFrame({"layer": 0, "head": range(len(pvalues)), "z": 3.0, "z_other": 1.0})
    table = table.assign(p_other=pvalues, p_holm=holm(np.array(pvalues)))
    summary = {"confirmed": int((table["p_holm"] < 0.05).sum()), "smallest_p": smallest}
    return confirmed(table, {**summary, "targets": 6, "category": "gender"})


@pytest.mark.parametrize(
    ("pvalues", "smallest", "verdict", "found"),
    [
        ([0.01, 0.02, 0.6], 0.01, "clear", 2),
        ([0.03, 0.2, 0.6], 0.01, "none found", 0),
        ([0.03, 0.2, 0.6], 0.02, "cannot say", 0),  # three times .02 is no small p
        ([0.03, 0.2, 0.6], math.nan, "none found", 0),  # a run that did not say
    ],
)
def test_heads_are_found_on_other_data_after_holms_correction(pvalues, smallest, verdict, found):
    [one] = confirm_outcomes(on_other_data(pvalues, smallest=smallest))
    assert (one.verdict, one.found, one.of) == (verdict, found, 3)
    assert one.p == pytest.approx(3 * pvalues[0])
    assert "a z of 3.0 there" in one.power  # by the normal distribution: .05 / 3, and four fifths


def of_model(monkeypatch, before, after) -> Confirmed:
    groups = [f"target {n}" for n in range(len(before))]
    read = iter([(groups, np.array(before)), (groups, np.array(after))])
    monkeypatch.setattr(of_models, "_read", lambda *_: next(read))
    look = of_models.look([], [lambda: None, lambda: None])
    return confirmed(look.table, look.summary)


@pytest.mark.parametrize(
    ("after", "verdict", "said"),
    [
        ([0.01, 0.03, 0.02, 0.01, 0.02, 0.04, 0.0, 0.02], "large, clear", "less biased"),
        ([0.3, 0.0, 0.05, 0.2, 0.1, 0.02, 0.0, 0.1], "small, uncertain", "not measurably less"),
        ([0.01, 0.03, 0.02, 0.01, 0.02], "cannot say", "not measurably less"),
        ([0.01, 0.03], "cannot say", "not measurably less"),
    ],
)
def test_a_trained_model_is_changed_on_other_targets_or_not(monkeypatch, after, verdict, said):
    before = [0.1, 0.15, 0.08, 0.12, 0.1, 0.14, 0.09, 0.11][: len(after)]
    result = of_model(monkeypatch, before, after)
    [one] = confirm_outcomes(result)
    assert (one.question, one.verdict) == ("change", verdict)
    assert one.name == "Change: target effect on new targets"
    assert one.value == result.summary["change"]
    assert one.lines[1].startswith(said)
    assert list(one.items["change"]) == pytest.approx(np.subtract(after, before))
    assert "nats per token, four times out of five" in one.power


def test_a_page_of_each_confirmation_has_a_card_and_no_sentence_about_heads_that_differ(
    monkeypatch,
):
    outcomes = [
        *confirm_outcomes(on_other_half()),
        *confirm_outcomes(on_other_data([0.03, 0.2])),
        *confirm_outcomes(of_model(monkeypatch, [0.1] * 6, [0.0, 0.01, 0.02, 0.01, 0.0, 0.03])),
    ]
    text = page_html("tiny", outcomes, model="tiny")
    for one in outcomes:
        assert f'aria-label="{one.name}"' in text
    assert "treat" not in text.partition("What this means")[2].partition("</section>")[0]
