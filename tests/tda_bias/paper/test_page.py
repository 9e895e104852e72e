"""The paper's tables and claims: published numbers as printed, ours as computed."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias import load_triples
from tda_bias.paper.claims import claims, edge_difference
from tda_bias.paper.model import published, why_another
from tda_bias.paper.page import (
    beside_published,
    counts_of_tests,
    extreme_groups,
    page,
    survivors_line,
    unlike_the_paper,
)
from tda_bias.scores.stereoset_scores import stereoset_scores
from tda_bias.show.tables import latex, markdown, paper_table, write_table
from tda_bias.store.record import DataRecord
from tda_bias.types import STARTER_CAUTION


@pytest.fixture(scope="module")
def said(tiny_lm):
    """What a model with random weights says of the triples of ``heads_run``."""
    triples = load_triples("starter", category="all", limit=4)
    return stereoset_scores(tiny_lm("gpt2"), triples, twins=None)


def test_every_claim_is_answered(heads_run, said):
    found = claims(heads_run, said)
    assert len(found) == 8
    assert not any("nan" in here for here in found.values())
    values = heads_run.groups.query("category == 'gender'")["metric_mean"]
    here = next(here for paper, here in found.items() if "figure 8" in paper)
    assert f"gender {values.mean():+.3f}" in here
    assert f"p {stats.ttest_1samp(values, 0).pvalue:.2g}" in here


def answer(found, words):
    return next(here for paper, here in found.items() if words in paper)


def test_the_stereotype_score_is_the_mean_over_groups(heads_run, said):
    here = answer(claims(heads_run, said), "52 %")
    gender = said.items[said.items["category"] == "gender"]
    wins = gender["log_prob_s"] > gender["log_prob_a"]
    assert f"gender {100 * wins.groupby(gender['group']).mean().mean():.1f} %" in here


def test_the_largest_range_is_named_beside_that_of_the_median_group(heads_run, said):
    here = answer(claims(heads_run, said), "large range")
    heads = heads_run.combined[heads_run.combined["category"] == "race"]
    ranges = {
        group: values.max() - values.min()
        for group, values in heads.groupby("group")["combined_metric"]
    }
    widest = max(ranges, key=ranges.get)
    values = heads[heads["group"] == widest]["combined_metric"]
    told = f"race {values.min():+.3f} to {values.max():+.3f} ({widest}; the median group's range"
    assert f"{told} is {np.median(list(ranges.values())):.3f}" in here


def test_positive_is_more_negative_is_asked_of_the_stereotype_scores_of_groups(heads_run, said):
    here = answer(claims(heads_run, said), "more negative")
    means, shares = [], []
    for row in heads_run.groups.itertuples():
        own = said.items[(said.items["category"] == row.category)]
        own = own[own["group"] == row.group]
        means.append(row.metric_mean)
        shares.append((own["log_prob_s"] > own["log_prob_a"]).mean())
    rho = stats.spearmanr(means, shares).statistic
    assert f"all together {rho:+.2f} over {len(means)} groups" in here
    assert "religion undefined over" in here  # fewer than five


def test_a_model_whose_texts_cannot_be_scored_has_the_reason_on_its_page(heads_run):
    found = claims(heads_run, "not measured: it has no head.")
    assert list(found.values()).count("not measured: it has no head.") == 2


def test_edge_heads_are_compared_with_their_layers():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12, 8))
    difference, p = edge_difference(values, np.random.default_rng(1))
    by_hand = values[:, [0, 7]].mean() - values[:, 1:7].mean()
    assert difference == pytest.approx(by_hand)
    assert p > 0.01
    values[:, [0, -1]] += 2
    assert edge_difference(values, np.random.default_rng(1))[1] == 1e-4


@pytest.mark.slow
def test_p_of_edge_heads_is_uniform_without_effect(monkeypatch):
    monkeypatch.setattr("tda_bias.paper.claims._RESAMPLES", 499)
    found = [
        edge_difference(
            np.random.default_rng([s, 7]).normal(size=(4, 5)), np.random.default_rng([s, 1])
        )[1]
        for s in range(1000)
    ]
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_tests_are_counted_beside_what_chance_gives(heads_run):
    table = counts_of_tests(heads_run).set_index("category")
    own = heads_run.table.query("category == 'race'")
    assert table.loc["race", "tests"] == len(own)
    assert table.loc["race", "paired, p < .05"] == (own["p_paired"] < 0.05).sum()
    assert table.loc["race", "expected"] == round(0.05 * len(own))


def test_the_page_holds_tables_claims_and_controls(heads_run, said):
    text = page(
        heads_run,
        pictures={"fig8_means": Path("figures/fig8_means.png")},
        command="tdabias reproduce --model tiny",
        seconds=75,
        run_id="abc",
        other_model=why_another(heads_run.record.model, {}, None),
        said=said,
    )
    for words in (
        "tdabias reproduce --model tiny", "Wall time 1 min 15 s", "**Table 1, gender**",
        "**Table 4, religion**", "mean, paper", "![fig8_means](figures/fig8_means.png)",
        "The SD over groups is ten times larger", "paired, p < .05", "`abc`",
        "Unlike the paper: another model (tiny-gpt2)", survivors_line(heads_run),
    ):  # fmt: skip
        assert words in text, words
    assert "nan" not in text
    assert STARTER_CAUTION not in text


def test_the_page_of_starter_triples_says_that_they_measure_nothing(heads_run):
    data = DataRecord(source="starter")
    rest = {"command": "", "seconds": 1, "run_id": "abc", "other_model": None, "said": "unknown"}
    text = page(heads_run.with_record(data=data), pictures={}, **rest)
    assert "texts from starter instead of StereoSet's" in text
    assert STARTER_CAUTION in text


def test_only_the_papers_model_texts_and_statistic_are_like_the_paper(heads_run):
    same = heads_run.with_record(data=DataRecord(source="stereoset"), settings={})
    assert unlike_the_paper(same, None) == []
    assert unlike_the_paper(same, "another model (x)") == ["another model (x)"]
    fewer = same.with_record(settings={"limit": 4})
    assert unlike_the_paper(fewer, None) == ["at most 4 triples of each group"]
    output = same.with_record(config=same.record.config.model_copy(update={"edges": "output"}))
    assert unlike_the_paper(output, None) == ["edges output, the paper's is attention"]


# -- tables --


def test_published_values_are_those_of_the_papers():
    tables = published()["heads"]["tables"]
    assert ["Norway", -1.638, -19.774, 6.098] in tables["race"]
    sizes = {category: len(rows) for category, rows in tables.items()}
    assert sizes == {"gender": 4, "profession": 4, "race": 4, "religion": 3}


def test_tables_hold_the_extreme_groups(heads_run):
    table = extreme_groups(heads_run, "gender")
    own = heads_run.groups[heads_run.groups["category"] == "gender"]
    means = own.set_index("group")["metric_mean"].sort_values(ascending=False)
    assert list(table["group"]) == [*means.index[:2], *means.index[-2:]]
    np.testing.assert_allclose(table["mean"], means[table["group"]])
    rows = heads_run.combined[heads_run.combined["group"] == table["group"][0]]
    assert table["minimum"][0] == pytest.approx(rows["combined_metric"].min())
    assert table["unstable"][0] == rows["unstable"].sum()
    stable = rows.loc[~rows["unstable"], "combined_metric"].mean()
    assert table["mean of the others"][0] == pytest.approx(stable)


def test_groups_stand_beside_the_papers(heads_run, monkeypatch):
    name = heads_run.groups.query("category == 'gender'")["group"].iloc[0]
    content = json.loads(json.dumps(published()))
    content["heads"]["tables"]["gender"] = [[name.upper(), 1.0, -2.0, 3.0], ["nobody", 0.5, 0, 1]]
    monkeypatch.setattr("tda_bias.paper.page.published", lambda: content)
    table = beside_published(heads_run, "gender").set_index("group")
    own = heads_run.groups.set_index("group").loc[name]
    assert table.loc[name.upper(), "mean, paper"] == 1.0
    assert table.loc[name.upper(), "mean, here"] == pytest.approx(own["metric_mean"])
    assert table.loc[name.upper(), "rank here"].endswith("of 4")
    assert np.isnan(table.loc["nobody", "mean, here"])
    assert table.loc["nobody", "rank here"] == ""


def test_formats_hold_the_same_numbers(tmp_path):
    table = pd.DataFrame({"group": ["a_b", "c & d"], "mean": [0.12345, np.nan], "n": [1, 2]})
    shown = markdown(paper_table(table))
    assert "| a_b" in shown
    assert "0.123" in shown
    assert "nan" not in shown
    text = latex(paper_table(table, "50 % of a_b"), "x")
    assert r"a\_b" in text
    assert r"c \& d" in text
    assert r"\toprule" in text
    assert r"50 \% of a\_b" in text
    files = write_table(tmp_path, "t", paper_table(table, "caption"))
    assert sorted(f.name for f in files) == ["t.csv", "t.md", "t.tex"]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "t.csv"), table)
