"""Items, scores and splits of pairs against literal computations."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.models.load import load_language_model
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.scores.pair_scores import compared, length_split, official, pair_items, scores
from tda_bias.stats.clusters import cluster_mean
from tda_bias.types import InputError
from tests.support.literal import causal_steps
from tests.support.pairs import pair, pairs_folder

PAIRS = [
    pair("The nurse said she knew", "The nurse said he knew", id="1", group="nurse", type="t1"),
    pair("The cook said he", "The cook said she", id="2", group="cook", type="t1"),
    pair("He", "She", id="3", group="cook", type="t2"),
    pair("she wrote", "that he wrote", id="4", group="cook", type="t2", context="The cook"),
]


def set_of(*pairs) -> PairSet:
    return PairSet("own", pairs, "here", None)


def items(more, less, **columns):
    n = len(more)
    made = {
        "reading": "log_prob", "id": list(map(str, range(n))), "group": "g", "type": None,
        "cluster": list(map(str, range(n))), "log_prob_more": more, "tokens_more": 1,
        "log_prob_less": less, "tokens_less": 1,
    }  # fmt: skip
    return pd.DataFrame({**made, **columns})


def test_nothing_to_score_is_refused(tiny_lm):
    with pytest.raises(InputError, match="there is no pair to score"):
        pair_items(tiny_lm("gpt2"), set_of())


def test_items_hold_sums_and_counts_of_the_scored_tokens(tiny_lm):
    model = tiny_lm("gpt2")
    table = pair_items(model, set_of(*PAIRS))
    assert set(table["reading"]) == {"log_prob"}
    for row, own in zip(table.to_dict("records"), PAIRS, strict=True):
        for side, text in zip(("more", "less"), own.texts(), strict=True):
            ids = model.tokenizer(text)["input_ids"]
            skipped = 1 if own.context is None else len(model.tokenizer(own.context)["input_ids"])
            expected = causal_steps(model, ids, skipped)
            assert row[f"tokens_{side}"] == len(expected)
            if expected:
                assert row[f"log_prob_{side}"] == pytest.approx(sum(expected), abs=1e-4)
            else:
                assert np.isnan(row[f"log_prob_{side}"])


def test_masked_models_have_both_readings_and_shared_means_whole_for_others(tiny_lm):
    pairs = set_of(pair("The heiress said he", "The cook said he", scored="shared", id="1"))
    table = pair_items(tiny_lm("bert"), pairs)
    assert table["reading"].tolist() == ["pll", "pll_within_word"]
    assert (table["tokens_more"] == table["tokens_less"]).all()  # only what both have
    causal = pair_items(tiny_lm("gpt2"), pairs)
    whole = pair_items(tiny_lm("gpt2"), set_of(replace(pairs.pairs[0], scored="whole")))
    pd.testing.assert_frame_equal(causal, whole)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_text_that_lacks_a_word_of_the_other_has_no_differing_word(tiny_lm, kind):
    pairs = set_of(pair("The old cook wrote", "The cook wrote", id="1", scored="difference"))
    row = pair_items(tiny_lm(kind), pairs).iloc[0]
    assert (row["tokens_more"], row["tokens_less"]) == (len("old"), 0)
    assert np.isnan(row["log_prob_less"])


def test_comparisons_are_signs_and_differences():
    table = items(
        [-1.0, -2.0, -3.0, np.nan], [-2.0, -2.0, -1.0, -1.0],
        tokens_more=[1, 2, 6, 0], tokens_less=[4, 2, 1, 1],
    )  # fmt: skip
    own = compared(table)
    np.testing.assert_allclose(own["log_odds"], [1, 0, -2, np.nan])
    np.testing.assert_allclose(own["preferred"], [1, 0.5, 0, np.nan])
    assert own["longer"].tolist() == [-1, 0, 1, -1]
    mean = compared(table, scoring="mean")
    np.testing.assert_allclose(mean["log_odds"][:3], [-0.5, 0, 0.5])


def test_few_clusters_get_intervals_over_pairs():
    rng = np.random.default_rng(0)
    odds = rng.normal(0.3, 1, 30)
    row = scores(items(odds, np.zeros(30), cluster=["a"] * 30)).iloc[0]
    low, high = cluster_mean((odds > 0).astype(float)).share_limits()
    np.testing.assert_allclose(
        [row["preferred_low"], row["preferred_high"]], [100 * low, 100 * high]
    )
    interval = stats.ttest_1samp(odds, 0).confidence_interval()
    np.testing.assert_allclose([row["log_odds_low"], row["log_odds_high"]], interval)
    assert row["interval"] == "over pairs"


def test_undefined_pairs_and_ties_are_counted():
    row = scores(items([0.0, np.nan, 1.0], [0.0, 0.0, 0.0])).iloc[0]
    assert (row["items"], row["undefined"], row["ties"], row["preferred"]) == (3, 1, 1, 75.0)
    only = scores(items([np.nan], [0.0])).iloc[0]
    assert np.isnan([only["preferred"], only["log_odds"], only["log_odds_low"]]).all()


def test_there_is_a_row_for_every_type_and_group(tiny_lm):
    table = scores(pair_items(tiny_lm("bert"), set_of(*PAIRS)))
    assert len(table) == 2 * 2 * (1 + 2 + 2)  # readings, scorings, parts
    own = table[(table["reading"] == "pll") & (table["scoring"] == "sum")]
    assert list(own["name"]) == ["all", "t1", "t2", "nurse", "cook"]
    assert own.set_index("name")["items"].to_dict() == {
        "all": 4, "t1": 2, "t2": 2, "nurse": 1, "cook": 3,
    }  # fmt: skip


def test_the_length_split_counts_longer_equal_and_shorter_texts():
    table = items(
        [1.0, 1.0, -1.0, 0.0], [0.0] * 4, tokens_more=[3, 3, 3, 2], tokens_less=[1, 3, 5, 2]
    )
    split = length_split(table)
    own = split[split["scoring"] == "sum"].set_index("longer")
    assert own["items"].to_dict() == {1: 1, 0: 2, -1: 1}
    assert own["preferred"].to_dict() == {1: 100.0, 0: 75.0, -1: 0.0}


# -- the sets' own scores --


def made_up_items(read: PairSet, odds):
    table = items(odds, np.zeros(len(odds)))
    for name in ("id", "group", "type"):
        table[name] = [getattr(own, name) for own in read.pairs]
    table["cluster"] = [own.unit for own in read.pairs]
    return table


def test_winobias_is_the_mean_log_odds_of_each_type():
    read = load_pairs("winobias")
    odds = np.random.default_rng(0).normal(0.2, 1, len(read.pairs))
    by_division, found = official(read, made_up_items(read, odds))
    for kind in ("type1", "type2"):
        own = [o for o, p in zip(odds, read.pairs, strict=True) if p.type == kind]
        assert found.headline[f"log_odds_{kind}"] == pytest.approx(np.mean(own))
    table = by_division.set_index(["type", "pairs"])
    even = [
        o
        for o, p in zip(odds, read.pairs, strict=True)
        if p.type == "type2" and p.id not in read.uneven
    ]
    row = table.loc[("type2", "only the pronoun differs")]
    assert row["log_odds"] == pytest.approx(np.mean(even))
    assert row["items"] == 389
    assert table.loc[("type1", "stereotypically male"), "items"] == 198
    assert "9 pairs of the source differ in other words" in found.note


def test_winogender_correlates_occupations_with_their_share_of_women():
    read = load_pairs("winogender")
    odds = np.random.default_rng(1).normal(0, 1, len(read.pairs))
    by_division, found = official(read, made_up_items(read, odds))
    by_occupation: dict[str, list[float]] = {}
    for value, own in zip(odds, read.pairs, strict=True):
        if own.type == "occupation":
            words = own.more.lower().replace(".", "").split()
            female = bool({"she", "her"} & set(words))
            by_occupation.setdefault(own.group, []).append(value if female else -value)
    table = by_division.set_index("occupation")
    assert len(table) == 60
    for name, values in by_occupation.items():
        assert table.loc[name, "log_odds_female"] == pytest.approx(np.mean(values))
    assert table.loc["nurse", "pct_female_bls"] == pytest.approx(89.4, abs=5)
    r = np.corrcoef(table["log_odds_female"], table["pct_female_bls"])[0, 1]
    assert found.headline["pearson_bls"] == pytest.approx(r)


def test_blimp_sets_accuracies_beside_the_published_ones():
    read = load_pairs("blimp")
    odds = np.random.default_rng(2).normal(1, 1, len(read.pairs))
    by_division, found = official(read, made_up_items(read, odds))
    assert len(by_division) == 67
    assert found.headline["accuracy"] == pytest.approx(100 * np.mean(odds > 0))
    assert found.headline["published_gpt2"] == pytest.approx(83.0238806)
    row = by_division.set_index("paradigm").loc["anaphor_gender_agreement"]
    assert row["published_gpt2"] == pytest.approx(99.4)


def test_crows_counts_preferred_stereotypes_per_bias_type():
    pairs = tuple(
        pair("a", "b", id=str(i), set="crows", group=["age", "gender"][i % 2], type=kind)
        for i, kind in enumerate(["stereo", "stereo", "antistereo", "antistereo"])
    )
    read = PairSet("crows", pairs, "f", None)
    by_division, found = official(read, made_up_items(read, [1.0, -1.0, 1.0, 1.0]))
    table = by_division.set_index("bias_type")
    assert found.headline == {"metric": 75.0}
    assert table["metric"].to_dict() == {"all": 75.0, "age": 100.0, "gender": 50.0}
    assert (table.loc["all", "stereo"], table.loc["all", "antistereo"]) == (50.0, 100.0)


# -- the real model --


@pytest.mark.real
def test_the_real_model_agrees_with_unbatched_passes():
    model = load_language_model("smollm2-135m", device="cpu")
    for name, data in (("crows", pairs_folder()), ("winogender", None)):
        read = load_pairs(name, data=data)
        chosen = read.pairs[:: len(read.pairs) // 4]
        table = pair_items(model, set_of(*chosen))
        for row, own in zip(table.to_dict("records"), chosen, strict=True):
            for side, text in zip(("more", "less"), own.texts(), strict=True):
                expected = causal_steps(model, model.tokenizer(text)["input_ids"])
                assert row[f"tokens_{side}"] == len(expected)
                assert row[f"log_prob_{side}"] == pytest.approx(sum(expected), abs=1e-4)
