"""A domain of the user's own, end to end: texts in CSV, targets in YAML, through the commands."""

import json
import shutil
from pathlib import Path

import pytest

from tda_bias import load_triples
from tda_bias.pairs import load_pairs
from tdabias_cli.main import run
from tests.support.measures import edited
from tests.support.pages import replay, shown_steps, write_files

PAGE = Path(__file__).parents[2] / "docs" / "own-domain.md"

TARGETS = ("pensioner", "teenager", "toddler")
KINDS = """
kinds:
  age:
    forms: [noun, nouns]
    targets:
      pensioner: [pensioner, pensioners]
      teenager: [teenager, teenagers]
      toddler: [toddler, toddlers]
"""


@pytest.fixture
def triples(tmp_path):
    """Four triples of each of three targets, as a spreadsheet writes them."""
    lines = ["target,bias_type,context,stereotype,anti-stereotype,unrelated"]
    for target in TARGETS:
        for place in ("park", "shop", "train", "hall"):
            context = f"The {target} waited in the {place}."
            lines.append(
                f'{target},age,"{context}","It was slow, and loud.",It was quick.,Iron is a metal.'
            )
    path = tmp_path / "age.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def kinds(tmp_path):
    path = tmp_path / "kinds.yaml"
    path.write_text(KINDS, encoding="utf-8")
    return path


@pytest.fixture
def pairs(tmp_path):
    lines = ["id,group,more,less"]
    for number, target in enumerate(TARGETS * 3):
        lines.append(f"{number},{target},The {target} is slow {number}.,The {target} is fast.")
    path = tmp_path / "slow.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def as_json(capsys, *arguments):
    assert run([*map(str, arguments), "--format", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_twins_heads_scores_and_correlations_take_a_category_of_any_name(
    triples, kinds, words_folder, tmp_path, capsys
):
    model = ("--model", words_folder, "--category", "age", "--data", triples)
    made = tmp_path / "twins.jsonl"
    counts = as_json(capsys, "twins", "--data", triples, "--kinds", kinds, "--out", made)
    assert counts["record"]["twins"] == 24
    few = ("--twins", made)
    heads = as_json(
        capsys, "heads", *model, *few, "--n-permutations", 100, "--out", tmp_path / "heads"
    )
    finding = heads["categories"]["age"]["finding"]
    assert "age differently" in str(finding["result"])
    assert "nan" not in str(finding)
    assert f"--data {triples} --twins {made}" in finding["next"][0]
    scores = as_json(capsys, "stereoset", *model, *few, "--out", tmp_path / "scores")
    assert {row["category"] for row in scores["beta"]} == {"age"}
    assert f"--data {triples} --twins {made}" in scores["finding"]["next"][0]
    assert {row["group"] for row in scores["scores"]} == {"all", *TARGETS}
    items = (tmp_path / "heads", tmp_path / "scores", "--items", "--n-permutations", 99)
    as_json(capsys, "crossref", *items)


def printed_groups(capsys, *arguments):
    """What a command prints of groups in 80 columns: the first two cells of every row."""
    assert run([*map(str, arguments), "--verbose"]) == 0
    printed = capsys.readouterr().out
    _, heading, table = printed.partition("Groups")
    assert heading
    table, _, _ = table.partition("Files:")
    assert max(map(len, table.splitlines())) <= 80
    rows = [line.strip("│ ").split("│") for line in table.splitlines() if line.startswith("│")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}, table


def test_groups_of_own_categories_and_pairs_are_printed(
    triples, kinds, pairs, words_folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    made = tmp_path / "twins.jsonl"
    as_json(capsys, "twins", "--data", triples, "--kinds", kinds, "--out", made)
    model = ("--model", words_folder, "--category", "age", "--data", triples, "--twins")
    few = ("--n-permutations", 100)
    for command, more in (
        ("heads", (*model, made, *few)),
        ("stereoset", (*model, made)),
        ("stereoset", (*model, "none")),
        ("pairs", ("--model", words_folder, "--pairs", pairs)),
    ):
        out = tmp_path / f"{command}-{len(more)}-{more[-1] == 'none'}"
        groups, _ = printed_groups(capsys, command, *more, "--out", out)
        assert set(groups) == set(TARGETS)
        assert {cells[0] for cells in groups.values()} <= {"3", "4", "age"}


def test_blanks_of_an_own_category_in_csv_are_scored_and_their_groups_printed(
    words_folder, tmp_path, capsys
):
    path = tmp_path / "blanks.csv"
    lines = ["target,bias_type,context,stereotype,anti-stereotype,unrelated"]
    for number in range(14):
        ends = (f"The elder {number} is {word}." for word in ("BLANK", "slow", "quick", "iron"))
        lines.append(f"elder {number},age,{','.join(ends)}")
    path.write_text("\n".join(lines), encoding="utf-8")
    given = ("--task", "intrasentence", "--model", words_folder, "-c", "age", "--data", path)
    groups, table = printed_groups(capsys, "stereoset", *given, "--out", tmp_path / "out")
    assert len(groups) == 12
    assert "2 further groups in scores.csv." in table


def test_without_known_targets_the_way_to_twins_is_named(triples, words_folder, tmp_path, capsys):
    command = ["stereoset", "--model", words_folder, "--category", "age", "--data", triples]
    assert run([*map(str, command), "--out", str(tmp_path / "o")]) == 0
    error = " ".join(capsys.readouterr().err.split())
    assert "the target is not known (12): pensioner, teenager, toddler" in error
    assert "`tdabias twins --kinds`" in error


def test_a_category_that_the_file_lacks_is_named_with_those_it_has(
    triples, words_folder, tmp_path, capsys
):
    command = ["heads", "--model", words_folder, "--category", "agee", "--data", triples]
    assert run([*map(str, command), "--out", str(tmp_path / "o")]) == 2
    assert f"must be one of age, all, which `data` {triples} has; got 'agee'" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "o").exists()


def test_csv_is_read_as_json_lines_are(triples, pairs, tmp_path):
    read = load_triples(triples, category="age")
    assert len(read) == 12
    assert read[0].stereotype == "It was slow, and loud."
    assert read[1].source == f"{triples} line 3"
    rows = [dict(zip(("id", "group", "more", "less"), line.split(","), strict=True))
            for line in pairs.read_text().splitlines()[1:]]  # fmt: skip
    lines = tmp_path / "slow.jsonl"
    lines.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    texts = [[(p.id, p.group, p.more, p.less) for p in load_pairs(f).pairs] for f in (pairs, lines)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("bias_type", "kind"), "has no column `bias_type`; it needs"),
        (
            lambda text: text.replace(",", ";"),
            "it needs target, bias_type, context, stereotype, "
            "anti-stereotype, unrelated, separated by ',', not by ';'",
        ),
        (lambda text: text + "\nelf,age,The elf", "line 14: 3 fields, where the heading has 6"),
        (lambda text: text.replace(",age,", ",../age,", 1), "line 2: `bias_type` must be the name"),
        (lambda text: text.replace(",age,", ",all,", 1), "line 2: `bias_type` must be the name"),
        (lambda text: text.splitlines()[0], "has no triple"),
    ],
)
def test_a_broken_spreadsheet_is_one_line(triples, words_folder, tmp_path, capsys, change, message):
    triples.write_text(change(triples.read_text()))
    command = ["heads", "--model", words_folder, "--category", "age", "--data", triples]
    assert run([*map(str, command), "--out", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_two_models_are_compared_on_own_pairs_and_own_triples(
    triples, kinds, pairs, words_folder, tmp_path, capsys
):
    made = tmp_path / "twins.jsonl"
    as_json(capsys, "twins", "--data", triples, "--kinds", kinds, "--out", made)
    after = edited(words_folder, tmp_path / "after")
    texts = ("--data", triples, "--category", "age", "--twins", made, "--pairs", pairs)
    few = ("--only", "stereoset", "--only", "pairs", "--n-flips", 99)
    found = as_json(
        capsys, "compare", words_folder, after, *texts, *few, "--out", tmp_path / "compared"
    )
    primary = [row["outcome"] for row in found["outcomes"] if row["primary"]]
    assert primary == ["beta_sum_age", "pairs_slow"]


def test_the_commands_of_the_page_go_from_a_spreadsheet_to_a_report(words_folder, tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    write_files(text, tmp_path)
    shutil.copytree(words_folder, tmp_path / "tiny")
    commands = [step.command for step in shown_steps(text)]
    assert len(commands) == 7
    for command in commands:
        # The folder of a model's runs has a mark where the model is a folder.
        own = next((path.name for path in tmp_path.glob("runs/*")), "")
        command = command.replace("runs/smollm2-135m", f"runs/{own}")
        replay(command.replace("smollm2-135m", "tiny"), tmp_path)
    assert (tmp_path / "age.html").is_file()
