"""Two runs of ``heads``: what is refused, the agreement by hand, and what moved."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias import HeadBiasConfig, InputError, head_bias, load_triples
from tda_bias.comparison.agreement_outcomes import heads_outcomes
from tda_bias.comparison.head_maps import HeadsComparison, compare_heads
from tda_bias.plots.figures import plot_head_comparison
from tda_bias.show.figures import print_style
from tda_bias.store.record import updated
from tests.support.canvas import unseen
from tests.support.measures import sharpened

CONFIG = HeadBiasConfig(n_permutations=99)


@pytest.fixture(scope="module")
def triples():
    return load_triples("starter", category="gender", limit=3)


@pytest.fixture(scope="module")
def before(tiny, triples):
    return head_bias(tiny("gpt2"), triples, twins=None, config=CONFIG)


@pytest.fixture(scope="module")
def after(tiny, triples):
    return head_bias(sharpened(tiny("gpt2")), triples, twins=None, config=CONFIG)


def test_unusable_runs_are_refused_in_one_line(before, after, tiny, triples):
    with pytest.raises(InputError, match="same weights and texts: was the checkpoint loaded"):
        compare_heads(before, before)
    with pytest.raises(InputError, match="`by` must be one of evidence, .*noise is unknown"):
        compare_heads(before, after, by="metric")
    with pytest.raises(InputError, match=r"one that both runs have \(gender\); got 'race'"):
        compare_heads(before, after, category="race")
    other = CONFIG.model_copy(update={"edges": "output"})
    elsewhere = replace(after, record=updated(after.record, {"config": other}))
    with pytest.raises(InputError, match="computed differently .`edges` attention and output"):
        compare_heads(before, elsewhere)


def test_the_agreement_is_scipys_spearman_and_its_chance_that_of_permutations(before, after):
    found = compare_heads(before, after, n_resamples=4999)
    x, y = (run.category_map().ravel() for run in (before, after))
    row = found.agreement.set_index("over").loc["heads"]
    assert row["rho"] == pytest.approx(stats.spearmanr(x, y).statistic)
    assert row["n"] == 8
    rng = np.random.default_rng(0)
    null = [stats.spearmanr(x, rng.permutation(y)).statistic for _ in range(1000)]
    assert row["p"] == pytest.approx(np.mean(np.array(null) >= row["rho"] - 1e-12), abs=0.04)
    assert row["chance_high"] == pytest.approx(np.quantile(null, 0.975), abs=0.06)


def test_what_moved_is_the_change_beyond_chance_over_both_noises(before, after):
    heads = compare_heads(before, after, by="relative").heads
    tables = [run.category.sort_values(["layer", "head"]) for run in (before, after)]
    one, other = (table.reset_index(drop=True) for table in tables)
    for number, row in enumerate(heads.to_dict("records")):
        a, b = one.iloc[number], other.iloc[number]
        name = "relative"
        change = (b[f"z_{name}"] - b[f"z_null_{name}"]) - (a[f"z_{name}"] - a[f"z_null_{name}"])
        noise = (a[f"sd_null_{name}"] ** 2 + b[f"sd_null_{name}"] ** 2) ** 0.5
        assert row["z"] == pytest.approx(change / noise)
        assert row["p"] == pytest.approx(2 * (1 - stats.norm.cdf(abs(change / noise))))


def test_a_moved_head_is_found_and_the_others_are_not(before):
    changed = before.category.copy()
    place = changed.index[(changed["layer"] == 1) & (changed["head"] == 2)][0]
    name = "relative_twin" if "z_relative_twin" in changed else "relative"
    changed.loc[place, f"z_{name}"] += 20 * changed.loc[place, f"sd_null_{name}"]
    model = before.record.model.model_copy(update={"weights": "other"})
    after = replace(before, category=changed, record=updated(before.record, {"model": model}))
    found = compare_heads(before, after)
    certain = found.heads[found.heads["p_holm"] < 0.05]
    assert certain[["layer", "head"]].to_numpy().tolist() == [[1, 2]]


def test_two_sizes_are_compared_by_relative_depth(before, tiny, triples, tmp_path):
    deeper = head_bias(tiny("gpt2", n_layer=6), triples, twins=None, config=CONFIG)
    found = compare_heads(before, deeper)
    assert not found.record.matched
    assert found.heads.empty
    assert found.agreement["over"].tolist() == ["layers"]
    assert found.agreement["n"].tolist() == [2]
    assert np.isnan(found.agreement["rho"]).all()  # of two layers there is no correlation
    profile = found.layers[found.layers["model"] == "after"]
    np.testing.assert_allclose(profile["depth"], (np.arange(6) + 0.5) / 6)
    np.testing.assert_allclose(profile["value"], np.nanmean(deeper.category_map(), axis=1))
    assert plot_head_comparison(found).axes
    found.save(tmp_path)
    assert HeadsComparison.load(tmp_path).heads.empty


def test_long_names_of_models_are_whole(before, after):
    found = compare_heads(before, after, n_resamples=99)
    record, name = found.record, "a-model-with-quite-a-long-name-of-7b-instruct"
    named = {
        side: getattr(record, side).model_copy(update={"name": f"{name}-{side}"})
        for side in ("model", "after")
    }
    with print_style():
        figure = plot_head_comparison(replace(found, record=record.model_copy(update=named)))
    assert unseen(figure) == []


def test_what_is_saved_is_read_back(before, after, tmp_path):
    found = compare_heads(before, after, n_resamples=99)
    found.save(tmp_path, figures={"compare": plot_head_comparison(found)})
    loaded = HeadsComparison.load(tmp_path)
    for name in ("agreement", "layers", "heads"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(found, name))
    assert loaded.record.matched
    assert (tmp_path / "compare.png").stat().st_size > 1000


def test_agreement_and_movement_have_verdicts_that_are_the_tables(before, after):
    found = compare_heads(before, after, n_resamples=999)
    agreed, moved = heads_outcomes(found)
    row = found.agreement.iloc[0]
    assert (agreed.value, agreed.p, agreed.clusters) == (row["rho"], row["p"], row["n"])
    assert agreed.word == ("clear" if row["p"] < 0.05 else "uncertain")
    assert (moved.found, moved.of) == ((found.heads["p_holm"] < 0.05).sum(), 8)
    assert moved.word == ("clear" if moved.found else "none found")
    still = found.heads.assign(p=0.5, p_holm=1.0)
    assert heads_outcomes(replace(found, heads=still))[1].verdict == "none found"
    gone = found.heads.assign(p=1e-9, p_holm=1e-8)
    assert heads_outcomes(replace(found, heads=gone))[1].value_said == "8 of 8 heads moved"
    other = found.record.model_copy(update={"matched": False, "n_resamples": 19})
    [alone] = heads_outcomes(replace(found, record=other))
    assert alone.verdict == "cannot say"  # 19 exchanges have no p below .05
