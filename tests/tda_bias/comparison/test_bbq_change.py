"""Two runs of ``bbq`` compared: the same items, paired, over templates."""

import json

import numpy as np
import pandas as pd
import pytest

from tda_bias.comparison.bbq_change import BBQChange, compare_bbq
from tda_bias.stats.clusters import cluster_mean
from tda_bias.types import InputError
from tdabias_cli.main import run
from tests.support.bbq import rows, write_rows
from unqover.bbq.answers import GivenAnswers
from unqover.bbq.readers import load_bbq
from unqover.bbq.result import answer_scores


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return load_bbq(write_rows(tmp_path_factory.mktemp("bbq"), templates=8))


def result(asked, places, name="a"):
    source = f"{name}.jsonl"
    given = GivenAnswers(np.asarray(places), unread=0, missing=0, source=source, revision=name)
    return answer_scores(asked, given)


def change(found: BBQChange, measure: str, condition="ambiguous") -> pd.Series:
    table = found.changes
    return table[(table["measure"] == measure) & (table["condition"] == condition)].iloc[0]


def test_changes_are_means_over_the_same_items_with_intervals_over_templates(asked):
    rng = np.random.default_rng(0)
    before, after = rng.integers(0, 3, (2, len(asked.items)))
    before[:5] = -1  # what one run lacks does not count
    found = compare_bbq(result(asked, before), result(asked, after, "b"))
    kept = [
        (one, x, y)
        for one, x, y in zip(asked.items, before, after, strict=True)
        if one.condition == "ambiguous" and x >= 0
    ]

    def vote(one, place):
        return {one.biased: 1, one.other: -1}.get(place, 0)

    changes = np.array([vote(one, y) - vote(one, x) for one, x, y in kept], float)
    mean = cluster_mean(changes, [one.cluster for one, *_ in kept])
    row = change(found, "s_AMB")
    assert row["change"] == pytest.approx(mean.mean)
    assert row["after"] - row["before"] == pytest.approx(row["change"])
    assert (row["low"], row["high"]) == pytest.approx(mean.limits())
    assert row["items"] == len(kept)
    assert (found.record.items, found.record.only_one) == (len(asked.items) - 5, 5)
    assert "s_DIS" not in set(found.changes["measure"])
    assert "bias" not in set(found.changes["measure"])  # answers have no probabilities


def test_a_planted_change_is_found_and_none_where_nothing_changed(asked):
    unknown, biased = (
        [getattr(one, name) for one in asked.items] for name in ("unknown", "biased")
    )
    found = compare_bbq(result(asked, unknown), result(asked, biased, "b"))
    row = change(found, "s_AMB")
    assert (row["change"], row["p"]) == (1.0, 2 / 2**8)
    same = compare_bbq(result(asked, biased), result(asked, biased, "b"))
    assert change(same, "s_AMB")["p"] == 1.0


def test_what_cannot_be_compared_is_refused(asked, tmp_path):
    places = [0] * len(asked.items)
    with pytest.raises(InputError, match="`category` must be one that both runs have .Hands.; got"):
        compare_bbq(result(asked, places), result(asked, places), category="Age")
    other = load_bbq(write_rows(tmp_path, category="Feet"))
    with pytest.raises(InputError, match="share no answered item"):
        compare_bbq(result(asked, places), result(other, [0] * len(other.items)))
    lines = [{**row, "question_index": "77"} for row in rows(6)]
    (tmp_path / "Moved.jsonl").write_text("\n".join(map(json.dumps, lines)))
    moved = load_bbq(tmp_path / "Moved.jsonl")
    with pytest.raises(InputError, match="have other items under the same ids"):
        compare_bbq(result(asked, places), result(moved, [0] * len(moved.items)))


def test_compare_takes_two_runs_of_answers_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    write_rows(tmp_path)
    data = ["--data", str(tmp_path / "Hands.jsonl")]
    for name, answer in (("one", 0), ("two", 2)):
        lines = [{"category": "Hands", "example_id": n, "answer": answer} for n in range(48)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        answers = ["--answers", str(tmp_path / f"{name}.jsonl"), "--quiet"]
        assert run(["bbq", *answers, *data, "--out", str(tmp_path / name)]) == 0
    out = tmp_path / "compared"
    compared = ["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(out)]
    assert run([*compared, "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert "s_AMB changes from one to two by" in " ".join(printed.split())
    table = printed.partition("NEXT")[2].partition("Files")[0].splitlines()[1:]
    assert max(map(len, table)) <= 80
    assert run(["show", str(out), "--verbose"]) == 0
    assert capsys.readouterr().out == printed
    refused = ["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--rank-by", "location"]
    assert run([*refused, "--out", str(tmp_path / "x")]) == 2
    assert "goes with two runs of `tdabias heads`" in capsys.readouterr().err
