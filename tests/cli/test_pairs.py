"""``tdabias pairs`` from the command line to its files."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from tda_bias.models.load import load_language_model
from tda_bias.scores.pair_scores import PairSetScores
from tdabias_cli.main import run
from tests.support.pairs import write_lines

LINES = [
    {"id": "a", "group": "nurse", "more": "The nurse said she", "less": "The nurse said he"},
    {"id": "b", "group": "cook", "more": "The cook wrote it", "less": "The man wrote it"},
]


@pytest.fixture
def call(tiny_folder, tmp_path, capsys):
    def calling(*arguments):
        status = run(["pairs", "--model", str(tiny_folder), *map(str, arguments)])
        return status, *capsys.readouterr()

    return calling


def test_a_users_file_gives_items_and_scores(call, tmp_path, tiny_folder):
    path = write_lines(tmp_path, *LINES)
    status, printed, _ = call("--pairs", path, "--out", tmp_path / "out", "--verbose")
    assert status == 0
    items = pd.read_parquet(tmp_path / "out" / "items.parquet")
    assert items["id"].tolist() == ["a", "b"]
    model = load_language_model(str(tiny_folder), device="cpu")
    for row, line in zip(items.to_dict("records"), LINES, strict=True):
        for side in ("more", "less"):
            ids = torch.tensor([model.tokenizer(line[side])["input_ids"]])
            with torch.no_grad():
                logits = model.hf_model(ids).logits[0, :-1].double()
            expected = -torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
            assert row[f"tokens_{side}"] == ids.shape[1] - 1
            assert row[f"log_prob_{side}"] == pytest.approx(float(expected), abs=1e-4)
    scores = pd.read_csv(tmp_path / "out" / "scores.csv").set_index(["scoring", "name"])
    expected = 100 * np.mean(items["log_prob_more"] > items["log_prob_less"])
    assert scores.loc[("sum", "all"), "preferred"] == expected
    assert "0 ties, 0 without a scored token" in printed


@pytest.mark.parametrize("name", ["winobias", "winogender", "blimp"])
def test_the_sets_that_ship_print_their_own_score(call, tmp_path, name):
    status, printed, _ = call("--pairs", name, "--limit", 1, "--out", tmp_path, "--verbose")
    assert status == 0
    said = {
        "winobias": "WinoBias log-odds, pro minus anti: log odds type1",
        "winogender": "Winogender per occupation: log-odds of she over he",
        "blimp": "BLiMP accuracy: accuracy",
    }
    assert said[name] in " ".join(printed.split())
    assert "Length, per token" in printed
    found = PairSetScores.load(tmp_path)
    assert found.record.set == name
    assert found.record.settings["limit"] == 1


def test_crows_pairs_are_marked_and_json_holds_everything(call, tmp_path):
    path = tmp_path / "crows.csv"
    path.write_text(
        ",sent_more,sent_less,stereo_antistereo,bias_type,anon_writer\n"
        "0,The cook said he knew,The cook said she knew,stereo,gender,a0\n"
        "1,They said so,They said so,stereo,gender,a0\n"
    )
    options = ("--pairs", "crows", "--data", path, "--out", tmp_path / "out")
    status, printed, _ = call(*options)
    assert status == 0
    assert "authors ask not to train on it" in printed
    assert "1 pair has two equal texts and is left out" in " ".join(printed.split())
    status, printed, _ = call(*options, "--format", "json")
    found = json.loads(printed)
    assert found["official"]["name"] == "CrowS-Pairs metric"
    assert found["official"]["table"][0]["bias_type"] == "all"


def test_crows_in_french_has_the_score_and_the_caution_of_crows_pairs(call, tmp_path):
    (tmp_path / "crows_french.csv").write_text(
        "id,sent_more,sent_less,stereo_antistereo,bias_type\n"
        "0,The cook said he knew,The cook said she knew,stereo,gender\n"
        "1,The cook said he knew,,stereo,gender\n"
    )
    given = ("--pairs", "crows-fr", "--data", tmp_path, "--out", tmp_path / "out")
    status, printed, _ = call(*given)
    assert status == 0
    shown = " ".join(printed.split())
    for said in (
        "CrowS-Pairs metric",
        "authors ask not to train on it",
        "1 pair has no text on one side and is left out",
    ):
        assert said in shown, said
    assert call(*given)[0] == 0
