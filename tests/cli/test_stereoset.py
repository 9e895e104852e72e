"""``tdabias stereoset``: both halves, from texts to tables and files."""

import pandas as pd
import pytest

from tda_bias.models.load import load_language_model
from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores, sentence_scores
from tda_bias.triples import load_sentence_triples
from tdabias_cli.main import run
from tests.support.pairs import write_lines
from tests.support.runs import file_names

PLAIN = {"items.parquet", "scores.csv", "length_split.csv", "run.json", "parts"}
TWINNED = {"twins.parquet", "beta.csv", "beta_parts.csv", "placebos.parquet", "placebo_beta.csv"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("stereoset")


@pytest.fixture
def score(runs, tiny_folder, capsys):
    """Scores of a few starter triples of all categories, in a folder; what was printed."""

    def scoring(name, *more):
        command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "all"]
        assert run([*command, "--limit", "3", "--out", str(runs / name), *more]) == 0
        return " ".join(capsys.readouterr().out.split())

    return scoring


def test_scores_beta_parts_and_placebos_are_printed_and_saved(score, runs):
    printed = score("twinned", "--verbose")
    for text in (
        "of 50 is neutral",
        "Length, gender, per token",
        "Ties:",
        "demonstrate the tool",
        "Gender: the target effect (beta) is",
        "triples minus twins",
        "50 without bias",
        "parts of beta, gender",
        "agreement of context and continuation",
        "beta and its placebos",
        "another role of the same gender (placebo) gives",
    ):
        assert text in " ".join(printed.split())
    # Where a swap leaves the continuations alone, beta is the context's.
    assert "parts of beta, profession" not in printed
    assert file_names(runs / "twinned") == PLAIN | TWINNED
    found = StereoSetScores.load(runs / "twinned")
    overall = found.scores.iloc[0]
    assert overall["items"] == 3 * 14
    assert 0 <= overall["ss_low"] <= overall["ss"] <= overall["ss_high"] <= 100
    assert found.length_split.groupby("scoring")["items"].sum().to_dict() == {"sum": 42, "mean": 42}
    assert len(found.beta) == len(found.scores)
    assert {"gender", "profession"} <= set(found.beta_parts["category"])
    assert set(found.placebo_beta["kind"]) == {"synonym", "role"}


def test_without_twins_the_scores_are_those_of_always(score, runs):
    printed = score("plain", "--twins", "none")
    assert "No twins: wording and target cannot be told apart" in printed
    assert "triples minus twins" not in printed
    assert file_names(runs / "plain") == PLAIN
    for name in ("scores.csv", "length_split.csv"):
        both = (pd.read_csv(runs / folder / name) for folder in ("plain", "twinned"))
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
def call(tiny_folder, tmp_path, capsys):
    def calling(texts, *more):
        command = ["stereoset", "--task", "intrasentence", "--model", str(tiny_folder), "-c", "all"]
        status = run([*command, "--data", str(texts), "--out", str(tmp_path / "out"), *more])
        printed, error = capsys.readouterr()
        assert status == 0, error
        return printed, SentenceScores.load(tmp_path / "out")

    return calling


def test_whole_sentences_and_differing_words_stand_side_by_side(call, tiny_folder, tmp_path):
    data = write_lines(tmp_path, *ITEMS, name="dev.jsonl")
    printed, found = call(data, "--verbose")
    for text in (
        "StereoSet intrasentence", "whole sentence", "differing words", "per token",
        "Differing words: 1 of 5 items are left out", "--start bos",
    ):  # fmt: skip
        assert text in " ".join(printed.split())
    model = load_language_model(str(tiny_folder), device="cpu")
    expected = sentence_scores(model, load_sentence_triples(data)[0])
    pd.testing.assert_frame_equal(found.items, expected.items)
    pd.testing.assert_frame_equal(found.scores, expected.scores, check_dtype=False)
    assert found.record.texts.triples == 5
    assert run(["show", str(tmp_path / "out")]) == 0


def test_groups_and_limits_choose_items_repeats_are_said_and_a_start_token_is_put(call, tmp_path):
    data = write_lines(tmp_path, *ITEMS, {**ITEMS[0], "id": "f"}, name="twice.jsonl")
    printed, found = call(data, "--group", "girl", "--group", "nurse", "-L", "1", "--start", "bos")
    assert "1 item repeats another and is left out (twice.jsonl line 6 says the" in " ".join(
        printed.split()
    )
    assert list(found.items.loc[found.items["scored"] == "whole", "id"]) == ["a", "d"]
    assert set(found.scores["undefined"]) == {0}  # "She sang" differs in its first word


def test_what_whole_sentences_do_not_read_is_no_other_setting(call, tmp_path):
    data = write_lines(tmp_path, *ITEMS, name="dev.jsonl")
    call(data)
    call(data, "--twins", "none")  # refused before, for twins that are not read
