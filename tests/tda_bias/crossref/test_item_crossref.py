"""Item by item as a result of two runs: what is refused, what is saved."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.crossref.item_crossref import ItemCrossReference, cross_reference_items
from tda_bias.crossref.item_tests import item_tests
from tda_bias.heads.item_differences import ItemDifferences
from tda_bias.heads.texts import TEXTS
from tda_bias.runs.record import ModelRecord, RunRecord
from tda_bias.runs.run import open_run
from tda_bias.runs.writing import writing_run
from tda_bias.scores.stereoset_scores import StereoSetRecord, StereoSetScores
from tda_bias.types import InputError

MODEL = ModelRecord(name="m", weights="w")
N = 14
OPTIONS = {"n_resamples": 99, "seed": 5}


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
    record = StereoSetRecord(model=MODEL, kind="causal", texts={"triples": N, "hash": "h"})
    nothing = pd.DataFrame()
    return StereoSetScores(items, nothing, nothing, pd.DataFrame({"item": [0]}), nothing, record)


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    other = heads(tmp_path / "other", model=MODEL.model_copy(update={"weights": "else"}))
    with pytest.raises(InputError, match="models with different weights"):
        cross_reference_items(other, scores(), **OPTIONS)
    with pytest.raises(InputError, match=r"has no items\.npz; run the same `tdabias heads` comm"):
        cross_reference_items(heads(tmp_path / "old", items=False), scores(), **OPTIONS)


def test_its_numbers_are_those_of_the_tests(tmp_path):
    run = heads(tmp_path)
    found = cross_reference_items(run, scores(), scoring="mean", **OPTIONS)
    expected = item_tests(differences(), scores().items, scoring="mean", **OPTIONS)
    pd.testing.assert_frame_equal(found.heads, expected.table)
    pd.testing.assert_frame_equal(found.summary, expected.summary)
    assert set(found.heads["way"]) == {"raw", "length", "twins"}
    assert found.record.made_from == {"heads": run.content}
    assert found.record.scoring == "mean"


def test_what_is_saved_is_loaded_again(tmp_path):
    found = cross_reference_items(heads(tmp_path / "heads"), scores(), **OPTIONS)
    found = found.with_record(heads="a", stereoset="b")
    paths = found.save(tmp_path / "items")
    assert {path.name for path in paths} == {"heads.csv", "summary.csv", "run.json"}
    loaded = ItemCrossReference.load(tmp_path / "items")
    pd.testing.assert_frame_equal(loaded.heads, found.heads)
    pd.testing.assert_frame_equal(loaded.summary, found.summary)
    assert (loaded.record.heads, loaded.record.stereoset) == ("a", "b")
    assert repr(loaded) == "ItemCrossReference(m: items of gender 14)"


def test_a_head_that_does_nothing_at_all_is_saved_as_undefined(tmp_path):
    run = heads(tmp_path / "heads")
    still = replace(scores(), items=scores().items.assign(log_prob_s=0.0, log_prob_a=0.0))
    found = cross_reference_items(run, still, **OPTIONS)
    assert (found.summary.loc[found.summary["way"] == "raw", "heads"] == 0).all()
    found.save(tmp_path / "items")
    loaded = ItemCrossReference.load(tmp_path / "items")
    assert loaded.heads.loc[loaded.heads["way"] == "raw", "rho"].isna().all()
