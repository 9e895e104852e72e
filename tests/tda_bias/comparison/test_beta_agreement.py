"""Agreement of two models' target effects: by definition, by simulation, as a person sees it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.comparison.agreement_outcomes import beta_outcomes
from tda_bias.comparison.beta_agreement import agreement, compare_beta
from tda_bias.comparison.finding import agreement_finding
from tda_bias.comparison.two_runs import shared_category
from tda_bias.scores.stereoset_scores import StereoSetScores
from tda_bias.types import InputError
from tdabias_cli.main import run


def rows(x, y, target, n_resamples=199):
    found = agreement(x, y, target, n_resamples=n_resamples, rng=np.random.default_rng(0))
    return {row["over"]: row for row in found}


def simulated(seed, targets=40, between=1.0, shared=0.5, noise=2.0, common=0.8):
    """Two models whose targets correlate ``shared`` and whose items' noise ``common``."""
    rng = np.random.default_rng(seed)
    size = rng.integers(5, 20, targets)
    target = np.repeat(np.arange(targets), size)
    mixed = [np.array([[1, r], [r, 1]]) for r in (shared, common)]
    means = between * rng.multivariate_normal([0, 0], mixed[0], targets)
    items = means[target] + noise * rng.multivariate_normal([0, 0], mixed[1], len(target))
    return items[:, 0], items[:, 1], target.astype(str)


def test_correlations_are_scipys():
    x, y, target = simulated(0)
    found = rows(x, y, target)
    table = pd.DataFrame({"x": x, "y": y, "target": target})
    means = table.groupby("target").mean()
    within = table[["x", "y"]] - table.groupby("target")[["x", "y"]].transform("mean")
    for over, (a, b) in {
        "items": (x, y),
        "items within targets": (within["x"], within["y"]),
        "targets": (means["x"], means["y"]),
    }.items():
        assert found[over]["r"] == pytest.approx(stats.pearsonr(a, b).statistic)
        assert found[over]["n"] == len(a)
        assert found[over]["chance_low"] < found[over]["r"]


def literal_corrected(x, y, target):
    """Components from sums over single items, written out."""
    labels, n = sorted(set(target)), len(x)
    own = {g: [i for i in range(n) if target[i] == g] for g in labels}
    n0 = (n - sum(len(i) ** 2 for i in own.values()) / n) / (len(labels) - 1)

    def component(u, v):
        u_all, v_all = sum(u) / n, sum(v) / n
        apart, inside = 0.0, 0.0
        for i in own.values():
            mu, mv = sum(u[j] for j in i) / len(i), sum(v[j] for j in i) / len(i)
            apart += len(i) * (mu - u_all) * (mv - v_all)
            inside += sum((u[j] - mu) * (v[j] - mv) for j in i)
        inside /= n - len(labels)
        return (apart / (len(labels) - 1) - inside) / n0, inside

    (xx, noise), (yy, _), (xy, _) = component(x, x), component(y, y), component(x, y)
    return xy / np.sqrt(xx * yy), xx / (xx + noise / n0)


def test_the_corrected_value_is_the_correlation_of_the_components_between_targets():
    x, y, target = simulated(1)
    found = rows(x, y, target)["targets"]
    corrected, reliability = literal_corrected(x, y, target)
    assert found["corrected"] == pytest.approx(corrected)
    assert found["reliability_before"] == pytest.approx(reliability)


def test_noise_that_items_bring_to_both_models_is_corrected_for():
    """Divided by reliabilities, the common noise of items would be taken for agreement."""
    found = [rows(*simulated(seed, targets=300, shared=0.2), 99)["targets"] for seed in range(20)]
    assert np.mean([row["corrected"] for row in found]) == pytest.approx(0.2, abs=0.06)
    assert np.mean([row["r"] for row in found]) > 0.28


def test_where_targets_do_not_differ_nothing_is_corrected():
    rng = np.random.default_rng(0)
    target = np.repeat(["a", "b", "c"], 10)
    x, y = np.tile(rng.normal(size=(2, 10)), 3)
    found = rows(x, y, target)["targets"]
    assert np.isnan(found["corrected"])
    assert found["reliability_before"] == 0


def test_a_correlation_that_correction_takes_past_1_is_explained(runs):
    one, two = (StereoSetScores.load(runs / name) for name in ("one", "two"))
    found = compare_beta(one, two, n_resamples=99)
    table = found.agreement.assign(corrected=1.36)
    (power,) = agreement_finding(replace(found, agreement=table)).power
    assert "correlation is 1.36: estimates can pass 1" in power


def test_the_verdict_is_of_the_correlation_over_targets(runs):
    one, two = (StereoSetScores.load(runs / name) for name in ("one", "two"))
    found = compare_beta(one, two, n_resamples=99)
    table = found.agreement
    keys = table[["quantity", "scoring", "over"]].agg(" ".join, axis=1)
    over = keys == "beta sum targets"
    row = table[over].iloc[0]
    [said] = beta_outcomes(found)
    assert (said.value, said.p, said.clusters) == (row["r"], row["p"], row["n"])
    assert row["n"] < 5
    assert said.word == "cannot say"
    for p, word in ((0.01, "clear"), (0.2, "uncertain")):
        changed = replace(found, agreement=table.assign(p=table["p"].where(~over, p), n=9))
        assert beta_outcomes(changed)[0].word == word


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("agreement")
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "gender"]
    assert run([*command, "--out", str(folder / "one"), "--quiet"]) == 0
    assert run([*command, "--twins", "none", "--out", str(folder / "plain"), "--quiet"]) == 0
    scored = StereoSetScores.load(folder / "one")
    other = scored.record.model.model_copy(update={"weights": "other", "name": "other"})
    rng = np.random.default_rng(0)
    changed = scored.items.assign(
        beta_sum=scored.items["beta_sum"] + rng.normal(size=len(scored.items)),
        log_prob_s=scored.items["log_prob_s"] + rng.normal(size=len(scored.items)),
    ).iloc[4:]
    replace(scored, items=changed).with_record(model=other).save(folder / "two")
    return folder


def test_two_runs_of_stereoset_are_compared_shown_and_reported(runs, capsys):
    one, two, out = (str(runs / name) for name in ("one", "two", "compared"))
    command = ["compare", one, two, "--out", out, "--n-flips", "199"]
    assert run([*command, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["agreement"]
    assert len(found) == 12
    betas = [StereoSetScores.load(path).items.set_index("id")["beta_sum"] for path in (one, two)]
    both = pd.concat(betas, axis=1, join="inner").dropna().to_numpy()
    assert found[0]["n"] == len(both) == 44
    assert found[0]["r"] == pytest.approx(stats.pearsonr(*both.T).statistic)
    assert run(["show", out, "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "The target effects (beta, by sums) of" in printed
    assert "The log-odds as published correlate" in printed
    page = runs / "page.html"
    assert run(["report", out, "--out", str(page), "--quiet"]) == 0
    assert "target effects" in page.read_text(encoding="utf-8")


def test_runs_that_cannot_be_compared_are_refused(runs):
    one, plain, two = (StereoSetScores.load(runs / name) for name in ("one", "plain", "two"))
    with pytest.raises(InputError, match="with the same weights"):
        compare_beta(one, one)
    with pytest.raises(InputError, match="a run has no twins"):
        compare_beta(plain, two)
    with pytest.raises(InputError, match="`category` must be one that both runs have"):
        compare_beta(one, two, category="race")
    with pytest.raises(InputError, match="give --category gender or race"):
        shared_category(["gender", "race"], ["gender", "race", "age"], None)
