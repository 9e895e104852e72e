"""Published rankings: what ships, how far they agree, and the page that says so."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.paper.published_run import PublishedAgreement, PublishedRecord
from tda_bias.paper.rankings import (
    against_published,
    agreement,
    page,
    published_models,
    published_rankings,
    reliability,
)
from tda_bias.types import InputError

PAGE = Path(__file__).parents[3] / "docs" / "results" / "rankings.md"


def table(x, y, layers=2):
    heads = len(x) // layers
    return pd.DataFrame(
        {
            "layer": np.repeat(np.arange(layers), heads),
            "head": np.tile(np.arange(heads), layers),
            "x": x,
            "y": y,
        }
    )


def test_models_without_published_scores_are_refused():
    with pytest.raises(
        InputError, match=r"`published` must be one of bert-base-uncased, .*got 'x'"
    ):
        published_rankings("x")


def test_more_always_means_that_a_head_carries_more():
    """In FASP's own table heads 11 and 62, from 1, leave most bias (seed 1: .65 and .70)."""
    scores = published_rankings("gpt2").scores
    by_head = scores.set_index(["layer", "head"])
    assert {(0, 10), (5, 1)} <= set(by_head["fasp_bias_gender_and_sex"].nsmallest(3).index)
    assert (0, 10) in by_head["fasp_ppl"].nlargest(3).index  # perplexity 255 without it
    assert (5, 10) in by_head["vig_indirect_winobias_dev_unfiltered"].nlargest(10).index
    # What is left past a head is small where much goes through it.
    direct = by_head["vig_direct_winobias_dev_unfiltered"]
    assert direct.corr(by_head["vig_indirect_winobias_dev_unfiltered"], method="spearman") > 0.7


def test_items_chosen_by_their_outcome_are_used_only_where_there_are_no_others():
    assert not [n for n in published_rankings("gpt2").titles if n.endswith("_filtered")
                and "unfiltered" not in n]  # fmt: skip
    assert "vig_indirect_winobias_test_filtered" in published_rankings("gpt2-xl").titles
    assert "vig_indirect_winobias_dev_filtered" in published_rankings("gpt2", filtered=True).titles
    assert not published_rankings("gpt2-xl", filtered=False).titles


@pytest.mark.parametrize("model", published_models())
def test_every_head_of_a_model_stands_once(model):
    scores = published_rankings(model).scores
    layers, heads = scores["layer"].nunique(), scores["head"].nunique()
    assert len(scores) == layers * heads == len(scores.drop_duplicates(["layer", "head"]))
    assert scores.notna().all().all()


def test_agreement_is_spearmans_correlation_and_the_shared_top():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=24), rng.normal(size=24)
    y[:5] = x[:5] = np.arange(5) + 10.0
    (row,) = agreement(table(x, y), top=6, n_resamples=999).to_dict("records")
    assert row["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)
    expected = set(np.argsort(-x)[:6]) & set(np.argsort(-y)[:6])
    assert row["overlap"] == len(expected) >= 5
    assert row["chance"] == pytest.approx(36 / 24)
    tables = [[row["overlap"], 6 - row["overlap"]], [6 - row["overlap"], 12 + row["overlap"]]]
    fisher = stats.fisher_exact(tables, alternative="greater").pvalue
    assert row["p_overlap"] == pytest.approx(fisher)


def test_p_is_the_share_of_permutations():
    x, y = np.array([1.0, 4.0, 2.0, 3.0, 6.0, 5.0]), np.array([2.0, 3.0, 1.0, 4.0, 5.0, 6.0])
    (row,) = agreement(table(x, y), top=2, n_resamples=40_000).to_dict("records")
    rho = stats.spearmanr(x, y).statistic
    null = np.array([stats.spearmanr(p, y).statistic for p in permutations(x)])
    assert row["p"] == pytest.approx(np.mean(np.abs(null) >= abs(rho) - 1e-12), abs=0.01)
    inside = np.array(
        [
            stats.spearmanr([*a, *b], y).statistic
            for a in permutations(x[:3])
            for b in permutations(x[3:])
        ]
    )
    expected = np.mean(np.abs(inside - inside.mean()) >= abs(rho - inside.mean()) - 1e-12)
    assert row["p_within_layers"] == pytest.approx(expected, abs=0.01)


def test_rankings_that_agree_about_layers_only_are_not_called_alike_within_layers():
    rng = np.random.default_rng(3)
    level = np.repeat([0.0, 10.0, 20.0], 8)
    x, y = level + rng.normal(size=24), level + rng.normal(size=24)
    (row,) = agreement(table(x, y, layers=3), n_resamples=1999).to_dict("records")
    assert row["spearman"] > 0.8
    assert row["p"] < 0.01
    assert row["p_within_layers"] > 0.05


def test_a_ranking_without_variation_has_no_correlation():
    (row,) = agreement(table(np.zeros(8), np.arange(8.0)), n_resamples=99).to_dict("records")
    assert np.isnan([row["spearman"], row["p"], row["p_within_layers"]]).all()


def test_mediation_shares_nine_of_ten_heads_between_its_halves():
    found = reliability("gpt2", n_resamples=99).set_index("ranking")
    assert found.loc["mediation, indirect, WinoBias dev", "overlap"] == 9
    assert found.loc["mediation, indirect, WinoBias dev, filtered items", "overlap"] == 9
    seeds = found["seeds"].dropna()
    assert len(seeds) == 5
    assert seeds.between(0, 1).all()
    assert reliability("bert-base-uncased").empty


def test_a_run_of_another_model_is_refused(heads_run):
    with pytest.raises(InputError, match="scores of 144 heads, the run ranks 8: they are not of"):
        against_published(heads_run, "gpt2")


class RunOfGpt2:
    """As much of a run as is asked, with the heads of GPT-2."""

    rank_by = "relative"
    categories = ("gender", "race")

    def top(self, n, *, category, by):
        scores = published_rankings("gpt2").scores
        z = scores["fasp_bias_gender_and_sex"] if category == "gender" else scores["fasp_ppl"]
        return scores[["layer", "head"]].assign(z=z).sample(frac=1, random_state=0)


def test_a_runs_map_stands_beside_every_published_ranking():
    found = against_published(RunOfGpt2(), "gpt2", n_resamples=99)
    titles = set(published_rankings("gpt2").titles.values())
    assert set(found["second"]) == titles
    assert len(found) == 2 * len(titles)
    own = found[found["category"] == "gender"].set_index("second")
    row = own.loc["FASP, bias left without the head, gender and sex"]
    assert (row["spearman"], row["overlap"]) == (pytest.approx(1.0), 10)
    assert abs(own.loc["mediation, indirect, WinoBias dev", "spearman"]) < 0.2


def test_an_agreement_is_read_as_it_was_saved(heads_run, tmp_path):
    found = PublishedAgreement(
        against_published(RunOfGpt2(), "gpt2", n_resamples=99),
        PublishedRecord(
            model=heads_run.record.model, published="gpt2", by="relative", top=10, n_resamples=99,
            seed=0,
        ),
    )  # fmt: skip
    found.save(tmp_path)
    again = PublishedAgreement.load(tmp_path)
    pd.testing.assert_frame_equal(again.agreement, found.agreement)
    assert again.is_of_other_name  # tiny-gpt2


def test_the_page_is_what_the_numbers_give():
    assert PAGE.read_text(encoding="utf-8") == page()
    text = page()
    for holder in ("2020 Sebastian Gehrmann", "2023 chandar-lab", "2025 Ana Pinto"):
        assert f"Copyright (c) {holder}" in text
