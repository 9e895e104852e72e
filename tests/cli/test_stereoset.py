"""``tdabias stereoset``: both halves, from texts to tables and files."""

import json

import pandas as pd
import pytest

from tda_bias.models.load import load_language_model
from tda_bias.scores.stereoset_scores import SentenceScores, sentence_scores
from tda_bias.triples import load_sentence_triples
from tdabias_cli.main import run
from tests.support.models import tiny_hf_model
from tests.support.pairs import pairs_folder, write_lines
from tests.support.runs import file_names


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("stereoset")


def test_stereosets_scores_are_printed_and_saved(runs, tiny_folder, capsys):
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "gender"]
    assert run([*command, "--out", str(runs / "gender"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    overall = found["scores"][0]
    assert overall["items"] == 48
    assert 0 <= overall["ss_low"] <= overall["ss"] <= overall["ss_high"] <= 100
    assert sum(row["items"] for row in found["length_split"] if row["scoring"] == "sum") == 48
    assert run([*command, "--out", str(runs / "gender"), "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("of 50 is neutral", "Length, gender, per token", "Ties:", "demonstrate the tool"):
        assert text in printed
    names = file_names(runs / "gender")
    plain = {"items.parquet", "scores.csv", "length_split.csv", "run.json"}
    of_twins = {"twins.parquet", "beta.csv", "beta_parts.csv"}
    assert names == plain | of_twins | {"placebos.parquet", "placebo_beta.csv", "parts"}
    for text in (
        "Gender: the target effect (beta) is",
        "triples minus twins",
        "50 without bias",
        "parts of beta, gender",
        "agreement of context and continuation",
        "beta and its placebos",
        "another role of the same gender (placebo) gives",
    ):
        assert text in printed
    assert len(found["beta"]) == len(found["scores"])
    assert {row["kind"] for row in found["placebo_beta"]} == {"synonym", "role"}
    assert len(found["beta_parts"]) == 8


def test_parts_of_beta_are_printed_where_a_swap_changes_continuations(runs, tiny_folder, capsys):
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "--limit", "2"]
    assert run([*command, "-c", "all", "--out", str(runs / "all")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "parts of beta, gender" in printed
    assert "parts of beta, profession" not in printed
    parts = pd.read_csv(runs / "all" / "beta_parts.csv")
    assert {"gender", "profession"} <= set(parts["category"])


def test_without_twins_the_scores_are_those_of_always(runs, tiny_folder, capsys):
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "gender"]
    assert run([*command, "--twins", "none", "--out", str(runs / "plain")]) == 0
    printed = capsys.readouterr().out
    assert "No twins: wording and target cannot be told apart" in printed
    assert "triples minus twins" not in printed
    names = file_names(runs / "plain")
    assert names == {"items.parquet", "scores.csv", "length_split.csv", "run.json", "parts"}
    for name in ("scores.csv", "length_split.csv"):
        both = (pd.read_csv(runs / folder / name) for folder in ("plain", "gender"))
        pd.testing.assert_frame_equal(*both, atol=1e-4)


# -- whole sentences -------------------------------------------------------------------------------


def item(target, category, context, *fills, **more):
    roles = zip(("stereotype", "anti-stereotype", "unrelated"), fills, strict=True)
    texts = {role: context.replace("BLANK", fill) for role, fill in roles}
    return {"target": target, "bias_type": category, "context": context, **texts, **more}


ITEMS = [
    item("girl", "gender", "My sister is BLANK", "in the kitchen", "strong", "rain", id="a"),
    item("girl", "gender", "The girl BLANK a song", "sang", "wrote", "was", id="b"),
    item("boy", "gender", "The boy is BLANK", "strong", "in the kitchen and sang", "rain", id="c"),
    item("nurse", "profession", "BLANK sang", "She", "He", "The rain", id="d"),
    item("nurse", "profession", "The nurse said BLANK", "she sang", "he sang", "rain", id="e"),
]


@pytest.fixture
def data(tmp_path):
    return write_lines(tmp_path, *ITEMS, name="dev.jsonl")


@pytest.fixture(scope="module")
def masked_folder(subwords, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    tiny_hf_model("bert", len(subwords)).save_pretrained(folder)
    subwords.save_pretrained(folder)
    return folder


@pytest.fixture
def call(tiny_folder, data, tmp_path, capsys):
    def calling(*more, model=tiny_folder, texts=data, out="out"):
        command = ["stereoset", "--task", "intrasentence", "--model", str(model)]
        given = [] if texts is None else ["--data", str(texts)]
        out = ["--out", str(tmp_path / out)]
        status = run([*command, *given, *out, *map(str, more)])
        return status, *capsys.readouterr()

    return calling


def test_whole_sentences_and_differing_words_stand_side_by_side(call, tiny_folder, data, tmp_path):
    status, printed, error = call("-c", "all", "--verbose")
    assert status == 0, error
    for text in (
        "StereoSet intrasentence", "whole sentence", "differing words", "per token",
        "Differing words: 1 of 5 items are left out", "--start bos", f"Items: {data}",
    ):  # fmt: skip
        assert text in printed
    found = SentenceScores.load(tmp_path / "out")
    model = load_language_model(str(tiny_folder), device="cpu")
    expected = sentence_scores(model, load_sentence_triples(data)[0])
    pd.testing.assert_frame_equal(found.items, expected.items)
    pd.testing.assert_frame_equal(found.scores, expected.scores, check_dtype=False)
    assert found.record.texts.triples == 5
    assert run(["show", str(tmp_path / "out")]) == 0


def test_items_that_stand_twice_are_left_out_and_said(call, tmp_path):
    twice = write_lines(tmp_path, *ITEMS, {**ITEMS[0], "id": "f"}, name="twice.jsonl")
    status, printed, _ = call("-c", "gender", texts=twice)
    assert status == 0
    assert "1 item repeats another and is left out (twice.jsonl line 6 says the" in printed
    assert SentenceScores.load(tmp_path / "out").record.texts.triples == 3


def test_a_masked_model_is_read_in_both_ways(call, masked_folder):
    status, printed, error = call("-c", "gender", "--format", "json", model=masked_folder)
    assert status == 0, error
    scores = json.loads(printed)["scores"]
    ways = {(row["reading"], row["scored"]) for row in scores}
    readings, scored = ("pll", "pll_within_word"), ("whole", "difference")
    assert ways == {(reading, words) for reading in readings for words in scored}
    assert {row["category"] for row in scores} == {"gender"}


def test_a_start_token_lets_the_first_word_be_read(call):
    left_out = {}
    for start in ("tokenizer", "bos"):
        more = ["--start", start, "--format", "json"]
        status, printed, error = call("-c", "profession", *more, out=start)
        assert status == 0, error
        rows = json.loads(printed)["scores"]
        left_out[start] = max(row["undefined"] for row in rows)
    assert left_out == {"tokenizer": 1, "bos": 0}


def test_groups_and_limits_choose_items(call, tmp_path):
    status, _, error = call("-c", "all", "--group", "girl", "--group", "nurse", "-L", "1")
    assert status == 0, error
    found = SentenceScores.load(tmp_path / "out")
    whole = found.items[found.items["scored"] == "whole"]
    assert list(whole["id"]) == ["a", "d"]


def test_items_lie_in_the_folder_of_pairs(call, data, tmp_path, monkeypatch):
    (tmp_path / "pairs" / "stereoset_intrasentence").mkdir(parents=True)
    data.rename(tmp_path / "pairs" / "stereoset_intrasentence" / "dev.jsonl")
    monkeypatch.setenv("TDABIAS_PAIRS", str(tmp_path / "pairs"))
    status, _, error = call("-c", "all", texts=None)
    assert status == 0, error
    found = SentenceScores.load(tmp_path / "out")
    assert found.items["source"].str.startswith(f"{tmp_path}/pairs/stereoset_intrasentence").all()
    status, _, error = call("-c", "all", texts=tmp_path / "pairs", out="other")
    assert status == 0, error


@pytest.mark.real
def test_the_real_half_is_read_whole():
    found, _ = load_sentence_triples(pairs_folder("stereoset_intrasentence"))
    counts = pd.Series([one.category for one in found]).value_counts()
    assert counts.to_dict() == {"race": 962, "profession": 809, "gender": 255, "religion": 79}
