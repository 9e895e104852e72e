"""Published rankings: what ships, how far they agree, and the page that says so."""

from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.rankings import across_sources, rank_reliability, reliability
from tda_bias.config import CrossrefConfig
from tda_bias.crossref.rankings import agreement
from tda_bias.paper.finding import published_finding
from tda_bias.paper.outcomes import published_outcomes
from tda_bias.paper.rankings import (
    PublishedAgreement,
    about_rankings,
    published_agreement,
    published_models,
    published_rankings,
)
from tda_bias.show.verdict import corrected as corrected_beside
from tda_bias.show.verdict import told
from tda_bias.stats.resampling import holm
from tda_bias.types import InputError
from tests.support.runs import record_of

PAGE = Path(__file__).parents[3] / "docs" / "results" / "rankings.md"


def table(x, y, layers=2):
    heads = len(x) // layers
    layer, head = np.repeat(np.arange(layers), heads), np.tile(np.arange(heads), layers)
    return pd.DataFrame({"layer": layer, "head": head, "x": x, "y": y})


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
    # The direct effect, past the head, is small where much goes through it.
    direct = by_head["vig_direct_winobias_dev_unfiltered"]
    assert direct.corr(by_head["vig_indirect_winobias_dev_unfiltered"], method="spearman") > 0.7


def test_items_chosen_by_their_outcome_are_used_only_where_there_are_no_others():
    assert not [n for n in published_rankings("gpt2").titles if n.endswith("_filtered")
                and "unfiltered" not in n]  # fmt: skip
    assert "vig_indirect_winobias_test_filtered" in published_rankings("gpt2-xl").titles
    assert "vig_indirect_winobias_dev_filtered" in published_rankings("gpt2", filtered=True).titles


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
    orders = product(permutations(x[:3]), permutations(x[3:]))
    inside = np.array([stats.spearmanr([*a, *b], y).statistic for a, b in orders])
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
    found = reliability("gpt2", n_draws=99).set_index("ranking")
    assert found.loc["mediation, indirect, WinoBias dev", "overlap"] == 9
    assert found.loc["mediation, indirect, WinoBias dev, filtered items", "overlap"] == 9
    scores = published_rankings("gpt2").scores
    halves = [scores[f"vig_indirect_winobias_{half}_unfiltered"] for half in ("dev", "test")]
    expected = stats.spearmanr(*halves).statistic
    ranks = found.loc[[f"mediation, indirect, WinoBias {h}" for h in ("dev", "test")], "ranks"]
    assert ranks.tolist() == pytest.approx([expected] * 2)
    seeds = found[found["variance"].notna()]
    assert len(seeds) == 5
    assert (seeds["ranks"] <= seeds["variance"]).all()  # a few extreme heads make the variance
    assert reliability("bert-base-uncased").empty


@pytest.mark.parametrize(("df", "error"), [(3, 1.0), (30, 0.3)])
def test_the_reliability_of_ranks_is_the_correlation_of_two_measurements(df, error):
    rng = np.random.default_rng(0)
    literal, estimated = [], []
    for _ in range(60):
        true = rng.standard_t(df, size=144)
        one, two = (true + error * rng.standard_normal(144) for _ in range(2))
        literal.append(stats.spearmanr(one, two).statistic)
        estimated.append(rank_reliability(one, np.full(144, error), 200, rng))
    assert np.mean(estimated) == pytest.approx(np.mean(literal), abs=0.04)


def test_a_few_extreme_heads_make_variance_reliable_and_ranks_not():
    rng = np.random.default_rng(0)
    errors, estimated = np.ones(144), []
    for _ in range(60):
        values = np.where(np.arange(144) < 4, 9.0, 0.0) + rng.standard_normal(144)
        estimated.append(rank_reliability(values, errors, 200, rng))
    assert 1 - 1 / values.var() > 0.6
    assert np.mean(estimated) < 0.15


def test_correlations_across_sources_are_counted_pair_by_pair():
    rng = np.random.default_rng(1)
    true = rng.normal(size=40)
    names = ["a", "b", "c", "d"]
    scores = pd.DataFrame({name: true + rng.normal(size=40) for name in names})
    known = {"a": 0.5, "c": 0.6, "d": 0.4}
    found = across_sources(scores, ["a", "b"], ["c", "d"], known, n_resamples=4999)
    rho = {(x, y): stats.spearmanr(scores[x], scores[y]).statistic for x in "ab" for y in "cd"}
    assert found["pairs"] == 4
    assert found["mean"] == pytest.approx(np.mean(list(rho.values())))
    assert found["known"] == 2
    assert found["known_mean"] == pytest.approx((rho["a", "c"] + rho["a", "d"]) / 2)
    assert found["ceiling"] == pytest.approx((0.3**0.5 + 0.2**0.5) / 2)
    null = []
    for _ in range(600):
        order = rng.permutation(40)
        moved = {name: scores[name].to_numpy()[order] for name in ("a", "b")}
        null.append(np.mean([stats.spearmanr(moved[x], scores[y]).statistic for x, y in rho]))
    assert found["found"] == pytest.approx(2.8016 * np.std(null), rel=0.12)
    assert found["p"] == pytest.approx(np.mean(np.abs(null) >= abs(found["mean"])), abs=0.03)


def test_a_run_of_another_model_is_refused(heads_run):
    with pytest.raises(InputError, match="scores of 144 heads, the run ranks 8: they are not of"):
        published_agreement(heads_run, "gpt2")


class RunOfGpt2:
    """As much of a run as is asked, with the heads of GPT-2."""

    rank_by = "relative"
    categories = ("gender", "race")
    record = record_of("heads")

    def top(self, n, *, category, by):
        scores = published_rankings("gpt2").scores
        z = scores["fasp_bias_gender_and_sex"] if category == "gender" else scores["fasp_ppl"]
        return scores[["layer", "head"]].assign(z=z).sample(frac=1, random_state=0)


def test_a_runs_map_stands_beside_every_published_ranking():
    found = published_agreement(
        RunOfGpt2(), "gpt2", config=CrossrefConfig(n_permutations=99)
    ).agreement
    titles = set(published_rankings("gpt2").titles.values())
    assert set(found["second"]) == titles
    assert len(found) == 2 * len(titles)
    own = found[found["category"] == "gender"].set_index("second")
    row = own.loc["FASP, bias remaining without the head, gender and sex"]
    assert (row["spearman"], row["overlap"]) == (pytest.approx(1.0), 10)
    assert abs(own.loc["mediation, indirect, WinoBias dev", "spearman"]) < 0.2


def test_an_agreement_is_read_as_it_was_saved(tmp_path):
    found = published_agreement(RunOfGpt2(), "gpt2", config=CrossrefConfig(n_permutations=99))
    found.save(tmp_path)
    again = PublishedAgreement.load(tmp_path)
    pd.testing.assert_frame_equal(again.agreement, found.agreement)
    finding = published_finding(again)
    assert "The run's model is called tiny" in finding.control[-1]
    assert finding.power == [
        "With 144 heads a true correlation of 0.24 over all heads is found four times out of five."
    ]


def test_the_verdict_is_of_the_smallest_p_within_layers_after_correction():
    found = published_agreement(RunOfGpt2(), "gpt2", config=CrossrefConfig(n_permutations=999))
    [one] = published_outcomes(found)
    corrected = holm(found.agreement["p_within_layers"].to_numpy(float))
    assert one.p == corrected.min()
    assert one.value == pytest.approx(1.0)  # one of the run's maps is a published ranking
    assert one.verdict == "clear"
    assert one.limits[0].startswith("The run's model is called tiny")
    # What layers alone give is no agreement of heads: less than that is less.
    below = found.agreement.iloc[:2].assign(
        spearman=0.72, by_layers=0.85, p_within_layers=[0.001, 0.5], power_80=0.03
    )
    [less] = published_outcomes(replace(found, agreement=below))
    assert (less.neutral, told(less), less.p) == (0.85, "below", 0.002)
    assert less.power.startswith("rho 0.03 away from what layers give")
    # Of several tests on a page it counts as what it is: the smallest of two.
    beside = [replace(less, p=p) for p in (0.5, 0.5, 0.5)]
    assert corrected_beside([less, *beside])[0].p_holm == pytest.approx(0.008)
    unlike = found.agreement.assign(p_within_layers=0.5)
    assert published_outcomes(replace(found, agreement=unlike))[0].verdict == "uncertain"
    few = published_agreement(RunOfGpt2(), "gpt2", config=CrossrefConfig(n_permutations=99))
    assert published_outcomes(few)[0].verdict == "cannot say"


def test_the_pages_tables_and_findings_are_what_the_numbers_give():
    text = PAGE.read_text(encoding="utf-8")
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    published = published_rankings("gpt2")
    agreed = agreement(published.scores, n_resamples=9)  # of which p is not on the page
    sources = {"mediation": "vig_", "FASP": "fasp_bias"}
    means = {row[0]: row[1:] for row in cells if len(row) == 4}
    for one, other in (("mediation", "mediation"), ("FASP", "FASP"), ("mediation", "FASP")):
        pairs = agreed[
            agreed["first"].str.startswith(sources[one])
            & agreed["second"].str.startswith(sources[other])
        ]
        spearman, shared = pairs["spearman"].mean(), pairs["overlap"].mean()
        expected = [f"{len(pairs)}", f"{spearman:z.2f}", f"{shared:.1f}"]
        assert means[f"{one}, {other}"] == expected
    reliable = reliability("gpt2", n_draws=999).set_index("name")
    shown = {row[0]: row for row in cells if row[0] in set(reliable["ranking"])}
    for row in reliable.to_dict("records"):
        if row["ranking"] in shown:  # of two halves one stands for both
            assert shown[row["ranking"]][1:3] == [row["with"], f"{row['ranks']:.2f}"]
    mediation, fasp = (
        [name for name in published.titles if name.startswith(start)]
        for start in ("vig_", "fasp_bias")
    )
    found = across_sources(
        published.scores, mediation, fasp, dict(reliable["ranks"]), n_resamples=999
    )
    for said in (
        f"a mean correlation of {found['mean']:z.2f} (p {found['p']:.2f}, heads permuted)",
        f"reliability is {min(reliable['ranks'][fasp]):.2f} to {max(reliable['ranks'][fasp]):.2f}",
        f"correlate by only {found['ceiling']:.2f} on average",
        f"over the {found['known']} pairs",
        f"A mean correlation of {found['found']:.2f} would have been found",
    ):
        assert said in text, said


def test_the_page_names_every_source_with_its_licence():
    text = PAGE.read_text(encoding="utf-8")
    for source in about_rankings()["sources"].values():
        about = f"- {source['title']}. {source['repository']}, commit {source['commit']}."
        assert f"{about} {source['licence']}." in text
