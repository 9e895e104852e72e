"""Sample files of lm-evaluation-harness: real ones of two models, and what is refused.

The files in tests/golden/samples are lm-eval 0.4.13's: SmolLM2-135M, and the same without three
heads, on 20 pairs of BLiMP (one of each paradigm) and the first 20 of WinoBias.
"""

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tda_bias.comparison.outcomes import samples_outcomes
from tda_bias.comparison.sample_files import read_samples
from tda_bias.comparison.samples import SampleComparison, compare_samples
from tda_bias.config import CompareConfig
from tda_bias.types import InputError
from tdabias_cli.main import run

REAL = Path(__file__).parents[2] / "golden" / "samples"


def lines_of(side: str, task: str) -> list[dict]:
    (path,) = (REAL / side).glob(f"samples_{task}_*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def line(number: int, score: float, **changes) -> dict:
    """A line as lm-eval writes it, with two answers."""
    answers = [[str(-1.0 - number - score), "False"], [str(-2.0 - score), "False"]]
    return {
        "doc_id": number,
        "doc": {"text": f"text {number}", "topic": "ab"[number % 2]},
        "filtered_resps": answers,
        "filter": "none",
        "metrics": ["acc"],
        "doc_hash": f"hash {number}",
        "prompt_hash": f"prompt {number}",
        "acc": score,
        **changes,
    }


def side(folder: Path, *lines: dict, task: str = "quiz", day: int = 1) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"samples_{task}_2026-01-0{day}T10-00-00.1.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


# -- what is refused --


def test_documents_that_differ_are_refused(tmp_path):
    one = side(tmp_path / "one", line(0, 1.0), line(1, 0.0))
    other = side(tmp_path / "other", line(0, 1.0), line(1, 1.0, doc_hash="of another text"))
    with pytest.raises(InputError, match=r"document 1 of quiz is another text .*\(1 doc_hash of"):
        compare_samples(read_samples(one), read_samples(other))
    # Without hashes, which early versions do not write, by the documents themselves.
    bare = [{k: v for k, v in line(n, float(n)).items() if k != "doc_hash"} for n in (0, 1)]
    one = side(tmp_path / "one", *bare)
    other = side(tmp_path / "other", bare[0], {**bare[1], "doc": {"text": "else"}, "acc": 0.5})
    with pytest.raises(InputError, match="document 1 of quiz is another text"):
        compare_samples(read_samples(one), read_samples(other))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line(0, 1.0), line(0, 0.0)], "line 2: the document 0 stands in .* line 1 too"),
        ([{"doc_id": 1}], "line 1: this is no line of a sample file"),
        ([{"acc": 1.0, "doc": {}}], "line 1: this is no line of a sample file"),
        ([line(0, 1.0, acc="good")], "holds no document with a score that is a number"),
        (
            [line(n, 0.5, filtered_resps=[["-inf", "False"], ["nan", "False"]]) for n in (0, 1)],
            "answers to 2 of 2 documents have no mass at all",
        ),
        (
            [line(n, 0.5, filtered_resps=[["-1.5", "False"], ["-1.5", "False"]]) for n in (0, 1)],
            "all answers have the log-probability -1.5: the backend does not work",
        ),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        read_samples(side(tmp_path / "one", *lines))


def test_equal_scores_are_a_result_only_if_the_answers_differ(tmp_path):
    one = side(tmp_path / "one", *(line(n, 1.0) for n in range(6)))
    same = side(tmp_path / "same", *(line(n, 1.0) for n in range(6)))
    with pytest.raises(InputError, match="all 6 scores .* are equal, and so are the answers"):
        compare_samples(read_samples(one), read_samples(same))
    close = [line(n, 1.0, filtered_resps=[["-3.25", "True"], ["-4", "False"]]) for n in range(6)]
    found = compare_samples(read_samples(one), read_samples(side(tmp_path / "close", *close)))
    (row,) = found.table.to_dict("records")
    assert (row["change"], row["error"], row["p"]) == (0, 0, 1)
    assert row["reason"] == "no item differs from another: there is no interval"


def test_sides_without_a_shared_task_or_a_field_are_refused(tmp_path):
    one = side(tmp_path / "one", line(0, 1.0))
    other = side(tmp_path / "other", line(0, 0.0), task="exam")
    with pytest.raises(InputError, match="the two sides share no task: quiz; and exam"):
        compare_samples(read_samples(one), read_samples(other))
    with pytest.raises(InputError, match=r"`cluster_by` 'year' is no .* it has text, topic"):
        read_samples(one, cluster_by="year")
    with pytest.raises(InputError, match=r"holds no samples_TASK_TIME.jsonl"):
        read_samples(tmp_path / "nothing")


def test_seeds_that_are_not_of_the_same_documents_are_refused(tmp_path):
    one = side(tmp_path / "one", line(0, 1.0), line(1, 1.0))
    side(one, line(0, 1.0), day=2)
    with pytest.raises(InputError, match="the 2 files of quiz are not about the same documents"):
        read_samples(one)


# -- the difference and its standard error --


def literal(before: list[float], after: list[float], clusters: list[str]) -> tuple[float, float]:
    """Mean difference, and its CR2 standard error for the mean of clustered items, in loops."""
    differences = [b - a for a, b in zip(before, after, strict=True)]
    n = len(differences)
    mean = sum(differences) / n
    variance = 0.0
    for name in sorted(set(clusters)):
        own = [d for d, c in zip(differences, clusters, strict=True) if c == name]
        # 1 - size / n is the leverage of a cluster in a mean.
        variance += sum(d - mean for d in own) ** 2 / (1 - len(own) / n)
    return mean, variance**0.5 / n


@pytest.mark.parametrize(
    ("task", "metric", "field"),
    [
        ("agree", "acc_norm", None),
        ("winobias", "log_odds", None),
        ("winobias", "log_odds", "target"),
    ],
)
def test_on_real_files_difference_and_error_are_the_literal_ones(task, metric, field):
    paths = [next((REAL / name).glob(f"samples_{task}_*")) for name in ("before", "after")]
    found = compare_samples(*(read_samples(path, cluster_by=field) for path in paths))
    row = found.table.set_index("outcome").loc[f"{task}:{metric}"]
    scores = []
    for name in ("before", "after"):
        lines = sorted(lines_of(name, task), key=lambda one: one["doc_id"])
        if metric == "log_odds":
            pairs = [[float(answer[0]) for answer in one["filtered_resps"]] for one in lines]
            scores.append([first - second for first, second in pairs])
        else:
            scores.append([one[metric] for one in lines])
    clusters = [str(one["doc"][field] if field else one["doc_id"]) for one in lines]
    change, error = literal(*scores, clusters)
    assert (row["items"], row["clusters"]) == (20, len(set(clusters)))
    np.testing.assert_allclose(row["before"], sum(scores[0]) / 20, rtol=1e-12)
    np.testing.assert_allclose(row["change"], change, rtol=1e-9)
    np.testing.assert_allclose(row["error"], error, rtol=1e-9)
    assert change != 0


def test_p_exchanges_the_sides_of_whole_clusters(tmp_path):
    changes = [0.4, 0.3, -0.1, 0.5, 0.2, 0.6]
    one = side(tmp_path / "one", *(line(n, 0.0) for n in range(6)))
    other = side(tmp_path / "other", *(line(n, change) for n, change in enumerate(changes)))
    found = compare_samples(read_samples(one), read_samples(other))
    sums = [
        sum(s * c for s, c in zip(signs, changes, strict=True))
        for signs in product((1, -1), repeat=6)
    ]
    expected = np.mean([abs(total) >= abs(sum(changes)) - 1e-9 for total in sums])
    assert found.table["p"].item() == expected


def test_seeds_are_averaged_item_by_item_first(tmp_path):
    one = side(tmp_path / "one", *(line(n, float(n % 2)) for n in range(6)))
    other = side(tmp_path / "other", *(line(n, 1.0) for n in range(6)))
    side(other, *(line(n, float(n == 0)) for n in range(6)), day=2)
    found = compare_samples(read_samples(one), read_samples(other))
    assert found.items.sort_values("item")["after"].tolist() == [1.0] + [0.5] * 5
    change, error = literal(
        [float(n % 2) for n in range(6)], [1.0] + [0.5] * 5, [str(n) for n in range(6)]
    )
    np.testing.assert_allclose(found.table[["change", "error"]].iloc[0], [change, error])
    assert found.record.runs == {"quiz": (1, 2)}


def test_filters_and_metrics_are_scores_of_their_own_and_holm_is_over_tasks(tmp_path):
    def both(folder, high):
        of = [
            line(n, high(n), filter=kept, metrics=["exact", "loose"], exact=high(n), loose=1.0 - n)
            for n in range(7)
            for kept in ("strict", "none")
        ]
        side(folder, *of)
        return side(folder, *(line(n, high(n) / 2) for n in range(7)), task="exam")

    one, other = both(tmp_path / "one", lambda n: 0.0), both(tmp_path / "other", lambda n: 1 + n)
    found = compare_samples(read_samples(one), read_samples(other))
    table = found.table.set_index("outcome")
    first = {"quiz:exact:strict", "quiz:exact", "exam:acc"}
    assert set(table.index) == first | {"quiz:loose:strict", "quiz:loose"}
    assert set(table.index[table["primary"]]) == first
    np.testing.assert_allclose(table.loc[sorted(first), "p_holm"], 3 * 2 / 2**7)


# -- the command --


def test_the_command_prints_what_it_saves(tmp_path, capsys):
    out = tmp_path / "out"
    call = ["compare", str(REAL / "before"), str(REAL / "after"), "--out", str(out)]
    assert run([*call, "--format", "json"]) == 0
    printed = {row["outcome"]: row for row in json.loads(capsys.readouterr().out)["outcomes"]}
    assert set(printed) == {"agree:acc", "agree:acc_norm", "winobias:log_odds"}
    found = SampleComparison.load(out)
    assert found.table["change"].tolist() == [row["change"] for row in printed.values()]
    assert run(["show", str(out)]) == 0
    assert "None of 2 tasks changed by more than chance" in " ".join(
        capsys.readouterr().out.split()
    )
    # Copies elsewhere are the same samples; others are not.
    copy = shutil.copytree(REAL / "before", tmp_path / "copy")
    assert run(["compare", str(copy), *call[2:]]) == 0
    assert run([*call, "--seed", "3"]) == 2
    assert "with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["smollm2-135m"], "holds samples of lm-eval and smollm2-135m does not; give two files or"),
        ([str(REAL / "after"), "--preset", "full"], "`preset` does not go with samples of lm-eval"),
        ([str(REAL / "before")], "are equal, and so are the answers"),
    ],
)
def test_what_does_not_go_with_samples_is_one_line(more, message, tmp_path, capsys):
    assert run(["compare", str(REAL / "before"), *more, "--out", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_a_field_goes_with_samples_alone(capsys):
    assert run(["compare", "a", "b", "--cluster-by", "topic"]) == 2
    assert "`cluster_by` goes with samples of lm-eval; leave it out" in capsys.readouterr().err


def test_other_prompts_and_documents_of_one_side_are_said(tmp_path, capsys):
    one = side(tmp_path / "one", *(line(n, 0.0) for n in range(7)))
    changed = [line(n, 1.0, prompt_hash="other") for n in range(6)]
    side(one, line(0, 1.0), task="exam")
    other = side(tmp_path / "other", *changed)
    found = compare_samples(
        read_samples(one), read_samples(other), config=CompareConfig(n_flips=99)
    )
    assert (found.record.other_prompts, found.record.left_out) == (6, ("exam",))
    assert found.table["unpaired"].item() == 1
    assert run(["compare", str(one), str(other), "--out", str(tmp_path / "out")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "6 scores had another prompt on the other side" in printed
    assert "Tasks of one side alone are left out: exam." in printed
    assert "1 score of documents of one side alone are left out." in printed


def test_every_tasks_first_metric_has_a_verdict_under_its_own_name():
    found = compare_samples(read_samples(REAL / "before"), read_samples(REAL / "after"))
    outcomes = samples_outcomes(found)
    primary = found.table[found.table["primary"]]
    assert [one.name for one in outcomes] == [f"Change: {name}" for name in primary["outcome"]]
    assert [one.p_corrected for one in outcomes] == primary["p_holm"].tolist()
    assert {one.cluster for one in outcomes} == {"document"}
    assert not any(one.is_bias for one in outcomes)
