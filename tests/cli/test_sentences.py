"""``tdabias stereoset --task intrasentence`` from a file or folder to tables and files."""

import json

import pandas as pd
import pytest

from tda_bias.models.load import load_language_model
from tda_bias.pairs.stereoset import load_sentence_triples
from tda_bias.scores.intrasentence import SentenceRun, sentence_scores
from tdabias_cli.main import run
from tests.support.models import tiny_hf_model
from tests.support.pairs import pairs_folder, write_lines


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
        out = ["--out", str(tmp_path / out), "--n-resamples", "100"]
        status = run([*command, *given, *out, *map(str, more)])
        return status, *capsys.readouterr()

    return calling


# -- bad input --


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-c", "race"], "has no item of the category 'race'"),
        (["-c", "all", "--group", "grils"], "`group` 'grils' does not occur in these items; did"),
        (["-c", "all", "--twins", "auto"], "`twins` must be none with --task intrasentence"),
        (["-c", "all", "--task", "both"], "`task` must be one of intersentence, intrasentence"),
        (["-c", "all", "--task", "intersentence", "--start", "bos"], "`start` is about whole"),
        (["-c", "all", "--data", "none.jsonl"], "`data` must be stereoset, a readable file, or a"),
    ],
)
def test_unusable_input_ends_with_one_line(call, options, message, tmp_path):
    status, printed, error = call(*options)
    assert (status, printed) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**ITEMS[0], "unrelated": " "}, "`unrelated` must be a text that is not empty"),
        ({**ITEMS[0], "context": "My sister is"}, "its context has no BLANK"),
        ({**ITEMS[0], "bias_type": "age"}, "`bias_type` must be one of gender, profession"),
    ],
)
def test_items_that_cannot_be_read_are_named(call, tmp_path, line, message):
    path = write_lines(tmp_path, ITEMS[1], line, name="bad.jsonl")
    status, _, error = call("-c", "all", texts=path)
    assert status == 2
    assert message in error
    assert "line 2" in error


def test_a_folder_without_items_is_refused(call, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, error = call("-c", "all", texts=tmp_path / "empty")
    assert status == 2
    assert "has no file dev.json*" in error


# -- what is printed and saved --


def test_whole_sentences_and_differing_words_stand_side_by_side(call, tiny_folder, data, tmp_path):
    status, printed, error = call("-c", "all", "--verbose")
    assert status == 0, error
    for text in (
        "StereoSet intrasentence", "whole sentence", "differing words", "per token",
        "Differing words: 1 of 5 items are left out", "--start bos", f"Items: {data}",
    ):  # fmt: skip
        assert text in printed
    found = SentenceRun.load(tmp_path / "out")
    model = load_language_model(str(tiny_folder), device="cpu")
    expected = sentence_scores(model, load_sentence_triples(data)[0], n_resamples=100)
    pd.testing.assert_frame_equal(found.items, expected.items)
    pd.testing.assert_frame_equal(found.scores, expected.scores, check_dtype=False)
    assert found.record.texts.triples == 5
    assert run(["show", str(tmp_path / "out")]) == 0


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
    found = SentenceRun.load(tmp_path / "out")
    whole = found.items[found.items["scored"] == "whole"]
    assert list(whole["id"]) == ["a", "d"]


def test_items_lie_in_the_folder_of_pairs(call, data, tmp_path, monkeypatch):
    (tmp_path / "pairs" / "stereoset_intrasentence").mkdir(parents=True)
    data.rename(tmp_path / "pairs" / "stereoset_intrasentence" / "dev.jsonl")
    monkeypatch.setenv("TDABIAS_PAIRS", str(tmp_path / "pairs"))
    status, printed, error = call("-c", "all", "--verbose", texts=None)
    assert status == 0, error
    assert f"Items: {tmp_path}/pairs/stereoset_intrasentence" in printed
    status, _, error = call("-c", "all", texts=tmp_path / "pairs", out="other")
    assert status == 0, error


@pytest.mark.real
def test_the_real_half_is_read_whole():
    found, _ = load_sentence_triples(pairs_folder("stereoset_intrasentence"))
    counts = pd.Series([one.category for one in found]).value_counts()
    assert counts.to_dict() == {"race": 962, "profession": 809, "gender": 255, "religion": 79}
