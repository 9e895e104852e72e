"""The paper's claims as numbers."""

import numpy as np
import pytest
from scipy import stats

from tda_bias.paper.page import claims, counts_of_tests, edge_difference, page, survivors_line
from tda_bias.paper.published import unlike_the_paper
from tda_bias.runs.record import DataRecord
from tda_bias.types import STARTER_CAUTION


def test_every_claim_is_answered(heads_run):
    found = claims(heads_run)
    assert len(found) == 5
    assert not any("nan" in here for here in found.values())
    values = heads_run.groups.query("category == 'gender'")["metric_mean"]
    first = next(iter(found.values()))
    assert f"gender {values.mean():+.3f}" in first
    assert f"p {stats.ttest_1samp(values, 0).pvalue:.2g}" in first


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
    monkeypatch.setattr("tda_bias.paper.page._RESAMPLES", 499)
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


def test_the_page_holds_tables_claims_and_controls(heads_run, tmp_path):
    from pathlib import Path

    result = heads_run
    text = page(
        result,
        pictures={"fig8_means": Path("figures/fig8_means.png")},
        command="tdabias reproduce --model tiny",
        seconds=75,
        run_id="abc",
    )
    for words in (
        "tdabias reproduce --model tiny", "Wall time 1 min 15 s", "**Table 1, gender**",
        "**Table 4, religion**", "mean, paper", "![fig8_means](figures/fig8_means.png)",
        "The SD over groups is ten times larger", "paired, p < .05", "`abc`",
        "Unlike the paper: another model (tiny-gpt2)", survivors_line(result),
    ):  # fmt: skip
        assert words in text, words
    assert "nan" not in text
    assert STARTER_CAUTION not in text


def test_the_page_of_starter_triples_says_that_they_measure_nothing(heads_run):
    data = DataRecord(source="starter")
    text = page(heads_run.with_record(data=data), pictures={}, command="", seconds=1, run_id="abc")
    assert "texts from starter instead of StereoSet's" in text
    assert STARTER_CAUTION in text


def test_only_the_papers_model_texts_and_statistic_are_like_the_paper(heads_run):
    model = heads_run.record.model.model_copy(update={"name": "gpt2"})
    same = heads_run.with_record(model=model, data=DataRecord(source="stereoset"), settings={})
    assert unlike_the_paper(same) == []
    fewer = same.with_record(settings={"limit": 4})
    assert unlike_the_paper(fewer) == ["at most 4 triples of each group"]
    exact = same.with_record(config=same.record.config.model_copy(update={"distance": "exact"}))
    assert unlike_the_paper(exact) == ["distance exact, the paper's is steps"]
