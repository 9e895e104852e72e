"""What scores come to: their own p over clusters, their standardised effect, what explains them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.pairs import PairSet
from tda_bias.scores.outcomes import pairs_outcomes, sentence_outcomes, stereoset_outcomes
from tda_bias.scores.pair_scores import pair_set_scores
from tda_bias.scores.stereoset_scores import sentence_scores, stereoset_scores
from tda_bias.show.verdict import share_effect
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.sign_flips import smallest_flip_p
from tda_bias.triples import SentenceTriple, load_triples
from tests.support.pairs import pair, scored_pairs


@pytest.fixture(scope="module")
def triples():
    return load_triples("starter", category="gender", limit=3)


def test_the_target_effect_comes_with_its_p_over_targets_and_in_sds_of_items(tiny_lm, triples):
    result = stereoset_scores(tiny_lm("gpt2"), triples)
    of_more = {"p_targets": 0.01, "targets": 8, "beta_low_targets": 1.0, "beta_high_targets": 20.0}
    result = replace(result, beta=result.beta.assign(**of_more))
    [one] = stereoset_outcomes(result)
    row = result.beta[(result.beta["group"] == "all") & (result.beta["scoring"] == "sum")].iloc[0]
    beta = result.items["beta_sum"].dropna().to_numpy()
    assert (one.value, one.p, one.clusters) == (row["beta"], row["p_targets"], row["targets"])
    assert (one.low, one.high) == (row["beta_low_targets"], row["beta_high_targets"])
    assert one.effect == pytest.approx(beta.mean() / beta.std(ddof=1))
    assert [bar.share for bar in one.bars] == [row["explained"], 1 - row["explained"]]
    assert one.confounded == ()
    assert one.verdict.endswith("clear")


def test_the_items_have_their_texts_and_those_of_their_twins_and_add_up(tiny_lm, triples):
    [one] = stereoset_outcomes(stereoset_scores(tiny_lm("gpt2"), triples))
    assert len(one.items) == len(triples)
    assert list(one.items["stereotype"]) == [t.texts()[0] for t in triples]
    twinned = one.items[one.items["twin, stereotype"] != ""]
    assert len(twinned)
    assert (twinned["stereotype"] != twinned["twin, stereotype"]).all()
    left = twinned["log-odds, nats"] - twinned["twin's log-odds"]
    np.testing.assert_allclose(left, twinned["target effect"])
    assert one.value == pytest.approx(one.items["target effect"].mean())


def test_the_example_is_the_item_nearest_to_the_mean_with_the_shares_of_both_texts(
    tiny_lm, triples
):
    result = stereoset_scores(tiny_lm("gpt2"), triples)
    [one] = stereoset_outcomes(result)
    away = (result.items["beta_sum"] - one.value).abs()
    item = result.items.loc[away.idxmin()]
    text, twin = one.example.sides
    assert (text.first, twin.first) == (item["stereotype"], item["twin_stereotype"])
    p_s, p_a = np.exp(item["log_prob_s"]), np.exp(item["log_prob_a"])
    assert text.share == pytest.approx(p_s / (p_s + p_a))


def test_without_twins_the_stereotype_score_is_told_and_that_wording_is_in_it(tiny_lm, triples):
    result = stereoset_scores(tiny_lm("gpt2"), triples, twins=None)
    [one] = stereoset_outcomes(result)
    row = result.scores[(result.scores["group"] == "all")].iloc[0]
    assert (one.value, one.low, one.high) == (row["ss"], row["ss_low"], row["ss_high"])
    assert one.effect == pytest.approx(share_effect(row["ss"] / 100))
    assert one.neutral == 50
    assert "wording" in one.lines[0]
    assert one.example is None


def test_too_few_targets_cannot_say(tiny_lm):
    few = load_triples("starter", category="gender", groups=["girl", "boy"], limit=4)
    [one] = stereoset_outcomes(stereoset_scores(tiny_lm("gpt2"), few))
    assert one.verdict == "cannot say"


def test_whole_sentences_have_an_outcome_for_each_category(tiny_lm):
    made = [
        SentenceTriple(
            f"{c}{n}", f"t{n}", c, f"the man {n} wrote", f"she {n} wrote", "nurse the", ""
        )
        for c in ("gender", "race")
        for n in range(6)
    ]
    found = sentence_outcomes(sentence_scores(tiny_lm("gpt2"), made))
    assert [one.name for one in found] == ["Gender inside sentences", "Race inside sentences"]
    assert all(len(one.items) == one.clusters == 6 for one in found)


# -- pairs --


def of_pairs(tiny_lm, odds, longer):
    """The outcome of pairs with these log-odds and differences of length."""
    [one] = pairs_outcomes(scored_pairs(tiny_lm("gpt2"), odds, longer))
    return one


@pytest.mark.parametrize(
    ("longer_wins", "shorter_wins", "confounded"),
    [
        (2, 18, ("length",)),  # turns round
        (18, 2, ("length",)),  # the other way
        (18, 18, ()),
        (9, 11, ()),  # on two sides, and not told apart
        (12, 19, ()),  # told apart, and on one side
    ],
)
def test_a_preference_that_turns_round_with_length_is_confounded(
    tiny_lm, longer_wins, shorter_wins, confounded
):
    won = [longer_wins, shorter_wins]
    odds = [1.0 if n < w else -1.0 for w in won for n in range(20)]
    one = of_pairs(tiny_lm, odds, [1] * 20 + [-1] * 20)
    assert one.confounded == confounded
    assert one.lines[1] == f"longer {5 * longer_wins} %, shorter {5 * shorter_wins} %"


def test_a_share_of_pairs_is_tested_against_one_half_over_clusters(tiny_lm):
    one = of_pairs(tiny_lm, [1.0] * 16 + [-1.0] * 4, [0] * 20)
    mean = cluster_mean(np.array([1.0] * 16 + [0.0] * 4))
    assert (one.value, one.p) == (80.0, mean.share_pvalue())
    assert one.verdict == "medium, clear"
    assert list(one.items["first text"]) == ["The cook said he"] * 20


def test_a_set_of_grammar_is_no_bias(tiny_lm):
    made = pair_set_scores(
        tiny_lm("gpt2"), PairSet("own", (pair("He", "She"), pair("he sat", "she")), "f", None)
    )
    record = made.record.model_copy(update={"set": "blimp"})
    assert pairs_outcomes(replace(made, record=record)) == []
    assert len(pairs_outcomes(made)) == 1


def test_runs_from_before_texts_were_kept_have_outcomes_too(tiny_lm, triples):
    result = stereoset_scores(tiny_lm("gpt2"), triples)
    texts = [name for name in result.items if name.endswith("stereotype")]
    [one] = stereoset_outcomes(replace(result, items=result.items.drop(columns=texts)))
    assert one.example is None
    assert set(one.items["stereotype"]) == {""}
    assert isinstance(one.items, pd.DataFrame)


@pytest.mark.parametrize(("targets", "word"), [(5, "cannot say"), (6, "clear")])
def test_five_targets_have_no_flips_that_could_be_clear(tiny_lm, triples, targets, word):
    result = stereoset_scores(tiny_lm("gpt2"), triples)
    p = smallest_flip_p(targets)
    of_more = {"p_targets": p, "targets": targets}
    [one] = stereoset_outcomes(replace(result, beta=result.beta.assign(**of_more)))
    assert one.word == word


def test_each_category_has_the_smallest_effect_of_its_own(tiny_lm):
    triples = load_triples("starter", limit=2)
    result = stereoset_scores(tiny_lm("gpt2"), triples)
    outcomes = stereoset_outcomes(result)
    rows = result.beta[(result.beta["group"] == "all") & (result.beta["scoring"] == "sum")]
    assert len(outcomes) > 1
    for one in outcomes:
        [smallest] = rows.loc[rows["category"] == one.category, "smallest"]
        assert one.power == f"{smallest:.2f} nats, four times out of five"
    result = stereoset_scores(tiny_lm("gpt2"), load_triples("starter", limit=6), twins=None)
    outcomes = stereoset_outcomes(result)
    rows = result.scores[(result.scores["group"] != "all") & (result.scores["scoring"] == "sum")]
    for one in outcomes:
        away = cluster_mean(rows.loc[rows["category"] == one.category, "ss"].to_numpy()).smallest()
        assert one.power.startswith((f"{50 - away:.0f} or {50 + away:.0f} %", "no share"))
