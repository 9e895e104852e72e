"""StereoSet's targets: what their heads do, and which words of another run stand for them."""

from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from tda_bias.crossref.targets import (
    WordScores,
    head_summaries,
    head_vectors,
    joined,
    match_words,
    normalised_target,
    same_model,
)
from tda_bias.runs.record import ModelRecord, RunRecord
from tda_bias.runs.writing import writing_run
from tda_bias.types import InputError

# -- heads -----------------------------------------------------------------------------------------


def made_up_heads(
    targets=("nurse", "engineer", "tailor"), layers=2, heads=5, category="profession"
):
    generator = np.random.default_rng(1)
    rows = [
        {"category": "profession", "group": t, "layer": layer, "head": head}
        for t in targets
        for layer in range(layers)
        for head in range(heads)
    ]
    combined = pd.DataFrame(rows)
    combined["combined_relative"] = generator.normal(size=len(rows))
    table = pd.concat([combined.assign(dim=dim) for dim in (0, 1)], ignore_index=True)
    table["n"] = 9
    table["q_bh"] = generator.uniform(size=len(table))
    return table, combined


def test_summaries_by_hand():
    table, combined = made_up_heads()
    found = head_summaries(table, combined).set_index("target")
    own = combined[combined["group"] == "tailor"]["combined_relative"].to_numpy()
    row = found.loc["tailor"]
    size = np.sort(np.abs(own))
    assert row["mean_T"] == pytest.approx(own.mean())
    assert row["mean_abs_T"] == pytest.approx(size.mean())
    assert row["max_abs_T"] == pytest.approx(size[-1])
    assert row["sd_T"] == pytest.approx(own.std())
    assert row["top_share"] == pytest.approx(size[-1] / size.sum())
    gini = np.abs(size[:, None] - size[None]).sum() / (2 * len(size) ** 2 * size.mean())
    assert row["gini"] == pytest.approx(gini)
    significant = table[(table["group"] == "tailor") & (table["q_bh"] < 0.05)]
    assert row["n_sig_heads"] == len(
        set(zip(significant["layer"], significant["head"], strict=True))
    )
    assert row["n_items"] == 9


def test_vectors_keep_layers_and_heads_in_order():
    _, combined = made_up_heads()
    keys, values, columns = head_vectors(combined.sample(frac=1, random_state=0))
    assert columns == [(layer, head) for layer in range(2) for head in range(5)]
    expected = combined[combined["group"] == "engineer"].sort_values(["layer", "head"])
    at = list(keys["target"]).index("engineer")
    np.testing.assert_array_equal(values[at], expected["combined_relative"])


# -- words -----------------------------------------------------------------------------------------


def test_words_stand_for_targets_by_strictness():
    found = match_words(["nurse", "software developer", "plumber", "prisoner"], OCCUPATIONS)
    assert found["nurse"] == ("exact", ["nurse"])
    assert found["software developer"] == ("near", ["developer", "programmer"])
    assert found["plumber"] == ("weak", ["technician", "electrician"])
    assert "prisoner" not in found


OCCUPATIONS = ["nurse", "developer", "programmer", "technician", "electrician", "baker"]


def test_a_table_made_for_the_targets_is_their_own():
    found = match_words(["nurse", "Norweigan", "prisoner"], ["nurse", "Norwegian"])
    assert found == {"nurse": ("own", ["nurse"]), "Norweigan": ("own", ["Norwegian"])}
    assert normalised_target("Eriteria") == "Eritrea"


def test_near_matches_average_their_words():
    heads = pd.DataFrame(
        {"category": "profession", "target": ["nurse", "software developer", "butcher", "plumber"]}
    )
    behaviour = pd.DataFrame({"x": OCCUPATIONS, "r": [0.1, 0.2, 0.4, 0.5, 0.7, 0.9]})
    with pytest.raises(InputError, match="the runs have 1 common targets, 4 are needed; use a loo"):
        joined(heads, behaviour)
    found = joined(heads, behaviour, match="weak").set_index("target")
    assert found["r"].to_dict() == pytest.approx(
        {"nurse": 0.1, "software developer": 0.3, "plumber": 0.6, "butcher": 0.9}
    )
    assert found["match_type"].to_dict()["plumber"] == "weak"
    with pytest.raises(InputError, match="`match` must be one of exact, near, weak; got 'any'"):
        joined(heads, behaviour, match="any")


def test_runs_of_other_weights_are_not_joined():
    one, two, old = (
        RunRecord(command="heads", model=ModelRecord(name=name, weights=weights))
        for name, weights in (("m", "a"), ("n", "b"), ("n", None))
    )
    same_model(one, one)
    with pytest.raises(InputError, match=r"different weights \(m and n\)"):
        same_model(one, two)
    with pytest.raises(InputError, match="another version of tdabias"):
        same_model(one, old)


def test_every_person_of_a_target_can_be_asked_about():
    """The two lists stand in two packages that do not know each other."""
    import yaml

    from pvf.words import load_words

    text = files("tda_bias.data").joinpath("targets.yaml").read_text(encoding="utf-8")
    person = yaml.safe_load(text)["person"]
    assert list(load_words("people").words) == list(person.values())
    found = match_words([*person, "Bible"], load_words("people").words)
    assert found == {target: ("own", [phrase]) for target, phrase in person.items()}


@pytest.mark.real
def test_all_targets_of_race_and_religion_but_the_bible_are_persons(stereoset):
    from tda_bias.crossref.targets import match_words
    from tda_bias.triples import load_triples

    targets = {
        t.group for c in ("race", "religion") for t in load_triples(str(stereoset), category=c)
    }
    from pvf.words import load_words

    assert targets - set(match_words(sorted(targets), load_words("people").words)) == {"Bible"}


# -- what the model says ---------------------------------------------------------------------------


def said(folder, command="pvf", table=True, **columns):
    record = RunRecord(command=command, model=ModelRecord(name="m", weights="w"))
    by_x = pd.DataFrame({"x": ["nurse", "None"], "r": [0.1, np.nan], "r_p": 0.1, "r_v": 0.0})
    with writing_run(folder, record) as run:
        if table:
            run.table("by_x.csv", by_x.assign(s_male=0.2).drop(columns=columns.get("without", [])))
    return folder


@pytest.mark.parametrize("command", ["pvf", "pvf risk", "unqover"])
def test_runs_that_say_something_of_words_are_read(tmp_path, command):
    found = WordScores.load(said(tmp_path, command))
    assert found.by_x["x"].tolist() == ["nurse", "None"]
    assert found.record.command == command


def test_runs_without_the_table_say_how_to_make_it(tmp_path):
    folder = said(tmp_path / "a", table=False)
    with pytest.raises(InputError, match=f"no by_x.csv; `tdabias pvf risk {folder}` makes it"):
        WordScores.load(folder)
    with pytest.raises(InputError, match="no by_x.csv; run `tdabias unqover` again"):
        WordScores.load(said(tmp_path / "b", "unqover", table=False))
    with pytest.raises(InputError, match="is a run of `tdabias heads`, not of `tdabias pvf` or"):
        WordScores.load(said(tmp_path / "c", "heads"))
    with pytest.raises(InputError, match="holds no finished run of `tdabias pvf` or"):
        WordScores.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="lacks the column 'r'"):
        WordScores.load(said(tmp_path / "d", without=["r"]))
