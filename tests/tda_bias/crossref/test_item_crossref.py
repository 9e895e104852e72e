"""Item by item: heads against the model's preference, by brute force, by simulation, as a run."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.config import ItemCrossrefConfig
from tda_bias.crossref import item_crossref
from tda_bias.crossref.brief import item_brief
from tda_bias.crossref.finding import item_finding
from tda_bias.crossref.item_crossref import (
    ItemCrossReference,
    cross_reference_items,
)
from tda_bias.heads.items import ItemDifferences
from tda_bias.scores.stereoset_scores import StereoSetRecord, StereoSetScores
from tda_bias.stats.correlation import permutations_within
from tda_bias.stats.resampling import benjamini_hochberg
from tda_bias.stats.seeds import generator
from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.store.result import writing_run
from tda_bias.store.run import content_hash, open_run
from tda_bias.twins.twins import TEXTS
from tda_bias.types import InputError


def rng(seed=0):
    return np.random.default_rng(seed)


def made_up(n=24, dims=2, layers=2, heads=3, groups=3, twins=True, seed=0, category="gender"):
    """Heads and preferences that have nothing to do with each other, in other orders."""
    generator = rng(seed)
    items = pd.DataFrame({"category": category, "group": [f"g{i % groups}" for i in range(n)]})
    items["id"] = [f"{category}{i}" for i in range(n)]
    shape = (n, dims, layers, heads)
    behaviour = items[["id"]].assign(
        log_prob_s=generator.normal(-20, 5, n),
        log_prob_a=generator.normal(-20, 5, n),
        tokens_s=generator.integers(4, 12, n),
        tokens_a=generator.integers(4, 12, n),
        beta_sum=generator.normal(size=n),
        beta_mean=generator.normal(size=n),
    )
    found = ItemDifferences(
        items,
        [0, 2][:layers],
        {"sum": generator.normal(size=shape)},
        {"sum": generator.normal(size=shape)} if twins else {},
    )
    return found, behaviour.sample(frac=1, random_state=seed)


def item_tests(*arguments, **options):
    table, summary, left_out = item_crossref.item_tests(*arguments, **options)
    return SimpleNamespace(table=table, summary=summary, left_out=left_out)


def ordered(heads, behaviour):
    return behaviour.set_index("id").loc[heads.items["id"]]


def of_head(table, way, dim, layer, head):
    chosen = (table["way"] == way) & (table["dim"] == dim)
    return table[chosen & (table["layer"] == layer) & (table["head"] == head)].iloc[0]


# -- bad input -------------------------------------------------------------------------------------


def test_runs_of_other_items_are_refused():
    heads, behaviour = made_up()
    with pytest.raises(InputError, match="share 9 items of gender, 10 are needed; run `tdabias st"):
        item_tests(heads, behaviour[behaviour["id"].isin([f"gender{i}" for i in range(9)])])
    with pytest.raises(InputError, match="names an item twice"):
        item_tests(heads, pd.concat([behaviour, behaviour.iloc[:1]]))


# -- the definition --------------------------------------------------------------------------------


def test_every_head_is_tested_as_by_hand_in_each_way():
    heads, behaviour = made_up(n=18)
    said = ordered(heads, behaviour)
    found = item_tests(heads, behaviour, n_resamples=80, seed=4)
    odds = (said["log_prob_s"] - said["log_prob_a"]).to_numpy()
    groups = heads.items["group"].to_numpy()
    sides = {"raw": (heads.raw, odds), "twins": (heads.twins, said["beta_sum"].to_numpy())}
    for way, (values, quantity) in sides.items():
        orders = permutations_within(groups, 80, generator(4, "items", "gender", way))
        columns = values["sum"].reshape(18, -1)  # dimensions, layers, heads
        null = np.array(
            [
                [stats.spearmanr(column, quantity[order]).statistic for column in columns.T]
                for order in orders
            ]
        )
        for number, (dim, layer, head) in enumerate(product(range(2), (0, 2), range(3))):
            row = of_head(found.table, way, dim, layer, head)
            rho = stats.spearmanr(columns[:, number], quantity).statistic
            assert row["rho"] == pytest.approx(rho)
            size = abs(rho) - 1e-9
            assert row["p"] == pytest.approx((1 + (abs(null[:, number]) >= size).sum()) / 81)
            # Family-wise over both dimensions.
            larger = (abs(null).max(1) >= size).sum()
            assert row["p_max"] == pytest.approx((1 + larger) / 81)


def test_measures_are_corrected_together_and_a_head_is_counted_once(tmp_path):
    found = cross_reference_items(heads(tmp_path), scores(), **OPTIONS)
    of_way = found.heads[found.heads["way"] == "raw"]
    assert len(of_way) == 12  # two measures, two dimensions, three heads
    np.testing.assert_allclose(of_way["q"], benjamini_hochberg(of_way["p"].to_numpy()))
    assert found.summary.groupby("way")["needed"].nunique().tolist() == [1, 1, 1]
    # Head 1 by two measures, head 2 by one: two heads, of which no table has both.
    made_up = found.heads.assign(p_max=0.5)
    twins = made_up["way"] == "twins"
    births = made_up["dim"] == 0
    made_up.loc[twins & births & (made_up["head"] == 1), "p_max"] = 0.01
    one = twins & ~births & (made_up["head"] == 2) & (made_up["measure"] == "sum")
    made_up.loc[one, "p_max"] = 0.01
    told = item_finding(replace(found, heads=made_up))
    assert told.result[0].startswith("Gender: 2 heads follow the target effect")
    assert "for one category and one way to compare" in told.control[1]


def test_token_counts_are_taken_out_of_both_sides():
    heads, behaviour = made_up(n=30)
    said = ordered(heads, behaviour)
    row = of_head(item_tests(heads, behaviour, n_resamples=99).table, "length", 1, 2, 0)
    counts = said[["tokens_s", "tokens_a"]].to_numpy(float)
    covariates = np.column_stack([counts, counts[:, 0] - counts[:, 1]])
    design = np.column_stack([np.ones(30), stats.rankdata(covariates, axis=0)])

    def left(values):
        ranks = stats.rankdata(values)
        return ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]

    odds = said["log_prob_s"] - said["log_prob_a"]
    expected = stats.pearsonr(left(heads.raw["sum"][:, 1, 1, 0]), left(odds)).statistic
    assert row["rho"] == pytest.approx(expected)


def test_per_token_scores_divide_each_text_by_its_own_count():
    heads, behaviour = made_up()
    said = ordered(heads, behaviour)
    found = item_tests(heads, behaviour, scoring="mean", n_resamples=99).table
    odds = said["log_prob_s"] / said["tokens_s"] - said["log_prob_a"] / said["tokens_a"]
    expected = stats.spearmanr(heads.raw["sum"][:, 0, 0, 1], odds).statistic
    assert of_head(found, "raw", 0, 0, 1)["rho"] == pytest.approx(expected)
    expected = stats.spearmanr(heads.twins["sum"][:, 0, 0, 1], said["beta_mean"]).statistic
    assert of_head(found, "twins", 0, 0, 1)["rho"] == pytest.approx(expected)


def test_without_twins_two_ways_remain():
    heads, behaviour = made_up(twins=False)
    assert set(item_tests(heads, behaviour, n_resamples=99).table["way"]) == {"raw", "length"}
    heads, behaviour = made_up()
    plain = behaviour.drop(columns=["beta_sum", "beta_mean"])
    assert set(item_tests(heads, plain, n_resamples=99).table["way"]) == {"raw", "length"}


def test_items_without_a_twin_leave_the_comparison_with_twins_only():
    heads, behaviour = made_up()
    behaviour.loc[behaviour["id"] == "gender3", ["beta_sum", "beta_mean"]] = np.nan
    heads.twins["sum"][5] = np.nan
    said = ordered(heads, behaviour)["beta_sum"].to_numpy()
    found = item_tests(heads, behaviour[behaviour["id"] != "gender7"], n_resamples=99)
    assert found.left_out == {"gender": 1}
    n = found.summary.set_index(["way", "dim"])["n"]
    assert n["raw", 0] == n["length", 1] == 23
    assert n["twins", 0] == 21
    kept = [i for i in range(24) if i not in (3, 5, 7)]
    expected = stats.spearmanr(heads.twins["sum"][kept, 0, 0, 0], said[kept]).statistic
    assert of_head(found.table, "twins", 0, 0, 0)["rho"] == pytest.approx(expected)


def test_categories_are_tested_apart():
    one, said_one = made_up()
    two, said_two = made_up(category="race", seed=1)
    both = ItemDifferences(
        pd.concat([one.items, two.items], ignore_index=True),
        one.layers,
        {"sum": np.concatenate([one.raw["sum"], two.raw["sum"]])},
        {"sum": np.concatenate([one.twins["sum"], two.twins["sum"]])},
    )
    found = item_tests(both, pd.concat([said_one, said_two]), n_resamples=99)
    alone = item_tests(two, said_two, n_resamples=99)
    own = found.table[found.table["category"] == "race"].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, alone.table)


def test_the_summary_names_the_largest_and_what_could_have_been_found():
    heads, behaviour = made_up(n=242, groups=10)
    odds = ordered(heads, behaviour).eval("log_prob_s - log_prob_a").to_numpy()
    heads.raw["sum"][:, 1, 1, 2] = -odds
    found = item_tests(heads, behaviour, n_resamples=199)
    row = found.summary.set_index(["way", "dim"]).loc["raw", 1]
    assert (row["largest"], row["layer"], row["head"]) == (pytest.approx(-1), 2, 2)
    assert row["family_wise"] == 1
    assert row["smallest"] == pytest.approx(0.18, abs=0.01)
    assert row["smallest"] > row["needed"] * 0.8


# -- guarantees ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_planted_head_is_found_with_twins_though_wording_hides_it():
    found = {way: 0 for way in ("raw", "length", "twins")}
    wrong = 0
    for seed in range(60):
        heads, behaviour = made_up(n=120, groups=6, layers=1, heads=10, dims=1, seed=seed)
        said = ordered(heads, behaviour)
        # Head 0 follows beta; as published, wording is ten times larger on either side.
        heads.twins["sum"][:, 0, 0, 0] = said["beta_sum"] + 1.5 * rng(seed).normal(size=120)
        wording = rng(seed + 500).normal(0, 10, (120, 2))
        heads.raw["sum"][:, 0, 0, 0] = heads.twins["sum"][:, 0, 0, 0] + wording[:, 0]
        said["log_prob_s"] = said["log_prob_a"] + said["beta_sum"] + wording[:, 1]
        table = item_tests(heads, said.reset_index(), n_resamples=199, seed=seed).table
        for way, own in table.groupby("way"):
            found[way] += own["p_max"].iloc[0] < 0.05
            wrong += (own["p_max"].iloc[1:] < 0.05).any()
    assert found["twins"] > 55
    assert max(found["raw"], found["length"]) < 12
    assert wrong / 180 < 0.1


# -- as a run --------------------------------------------------------------------------------------

MODEL = ModelRecord(name="m", weights="w")
N = 14
OPTIONS = {"config": ItemCrossrefConfig(n_permutations=99, seed=5)}


def differences():
    rng = np.random.default_rng(0)
    items = pd.DataFrame({"category": "gender", "group": list("ab") * (N // 2)})
    items["id"] = [f"i{k}" for k in range(N)]
    items[list(TEXTS)] = "a text"
    values = rng.normal(size=(2, 2, N, 2, 1, 3)).astype(np.float32)
    names = ("sum", "dispersion")
    raw, twins = (dict(zip(names, part, strict=True)) for part in values)
    return ItemDifferences(items, [0], raw, twins)


def heads(folder, *, model=MODEL, items=True):
    with writing_run(folder, RunRecord(command="heads", model=model)) as run:
        if items:
            differences().write(run)
    return open_run(folder, "heads")


def scores():
    rng = np.random.default_rng(1)
    items = differences().items.sample(frac=1, random_state=0).reset_index(drop=True)
    for name in ("log_prob_s", "log_prob_a", "beta_sum", "beta_mean"):
        items[name] = rng.normal(size=N)
    for name in ("tokens_s", "tokens_a"):
        items[name] = rng.integers(3, 9, N)
    texts = {"triples": N, "hash": "h"}
    record = StereoSetRecord(model=MODEL, kind="causal", texts=texts, confidence=0.95, seed=0)
    nothing = pd.DataFrame()
    twins = pd.DataFrame({"item": [0]})
    return StereoSetScores(
        items, nothing, nothing, twins, nothing, nothing, nothing, nothing, record
    )


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    other = heads(tmp_path / "other", model=MODEL.model_copy(update={"weights": "else"}))
    with pytest.raises(InputError, match="models with different weights"):
        cross_reference_items(other, scores(), **OPTIONS)
    with pytest.raises(InputError, match=r"has no items\.npz; run the same `tdabias heads` comm"):
        cross_reference_items(heads(tmp_path / "old", items=False), scores(), **OPTIONS)


def test_what_is_saved_is_loaded_again(tmp_path):
    found = cross_reference_items(heads(tmp_path / "heads"), scores(), **OPTIONS)
    found = found.with_record(heads="a", stereoset="b")
    paths = found.save(tmp_path / "items")
    assert {path.name for path in paths} == {"heads.csv", "summary.csv", "run.json"}
    assert found.record.made_from == {"heads": content_hash(open_run(tmp_path / "heads").record)}
    loaded = ItemCrossReference.load(tmp_path / "items")
    pd.testing.assert_frame_equal(loaded.heads, found.heads)
    pd.testing.assert_frame_equal(loaded.summary, found.summary)
    assert (loaded.record.heads, loaded.record.stereoset) == ("a", "b")
    assert repr(loaded).startswith("ItemCrossReference(m; rows: heads ")


def test_a_category_with_too_few_twins_is_told_of_without_them(tmp_path):
    found = cross_reference_items(heads(tmp_path / "heads"), scores(), **OPTIONS)
    age = found.summary[found.summary["way"] != "twins"].assign(category="age")
    both = replace(found, summary=pd.concat([found.summary, age]))
    begins = [line.partition(":")[0] for line in item_finding(both).result]
    assert begins == ["Gender", "Gender, without twins", "Age, without twins"]
    brief = item_brief(both)
    assert [line.label for line in brief.lines if "found" not in line.label] == [
        "gender, with twins", "without twins", "age",
    ]  # fmt: skip
    gender, age_said = brief.said.split("; ")
    assert gender.endswith("the target effect from item to item in gender")
    assert age_said.endswith("only its wording, from item to item in age.")
    assert "as of age, wording and target are not told apart" in brief.remarks[0]


def test_a_head_that_does_nothing_at_all_is_saved_as_undefined(tmp_path):
    run = heads(tmp_path / "heads")
    still = replace(scores(), items=scores().items.assign(log_prob_s=0.0, log_prob_a=0.0))
    found = cross_reference_items(run, still, **OPTIONS)
    assert (found.summary.loc[found.summary["way"] == "raw", "heads"] == 0).all()
    found.save(tmp_path / "items")
    loaded = ItemCrossReference.load(tmp_path / "items")
    assert loaded.heads.loc[loaded.heads["way"] == "raw", "rho"].isna().all()
