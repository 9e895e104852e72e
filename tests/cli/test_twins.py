"""``tdabias twins`` as a person runs it: what it prints, writes, and refuses."""

import json
from pathlib import Path

import pytest

from tda_bias import load_triples
from tda_bias.twins import load_twins
from tda_bias.twins.shown import marked
from tdabias_cli.main import run


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "twins.jsonl"


def twins(out: Path, *more: str, data: str = "starter") -> list[str]:
    return ["twins", "--data", data, "--out", str(out), *more]


def unknown_targets(folder: Path) -> str:
    texts = {"stereotype": "It sang.", "anti-stereotype": "It boxed.", "unrelated": "Iron."}
    line = {"target": "elf", "bias_type": "race", "context": "The elf slept.", **texts}
    (folder / "elves.jsonl").write_text(json.dumps(line), encoding="utf-8")
    return str(folder / "elves.jsonl")


# -- refused --


def test_data_without_known_targets_ends_with_the_reason_and_no_file(out, tmp_path, capsys):
    assert run(twins(out, data=unknown_targets(tmp_path))) == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: no twins: the target is not known (1): elf;")
    assert not out.exists()


# -- a run --


def test_placebo_twins_are_written_as_twins_are(out, capsys):
    assert run(twins(out, "--placebo", "role", "--category", "gender")) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Placebo twins (role)" in printed
    assert "My [grandmother -> aunt] visited us on Sunday." in printed
    assert "not about gender" in printed
    made = load_twins(out, load_triples("starter"))
    assert {len(others) for _, others in made} == {2}


def test_a_run_writes_the_file_and_shows_counts_and_examples(out, capsys):
    assert run(twins(out)) == 0
    printed = capsys.readouterr().out
    for category, triples, made in (("gender", 48, 48), ("race", 36, 108), ("religion", 36, 108)):
        row = next(line for line in printed.splitlines() if f" {category} " in line)
        assert [int(n) for n in row.replace("│", " ").split()[1:]] == [triples, triples, made, 0]
    assert printed.count("    stereotype: ") == 3
    assert " -> " in printed
    assert "Other targets for each triple: 3, drawn with seed 0." in printed
    assert f"File: {out} (for --twins)" in printed
    triples = load_triples("starter")
    assert len(load_twins(out, triples)) == len(triples)


def test_k_and_seed_are_passed_on(out):
    assert run(twins(out, "--category", "race", "-k", "2", "--seed", "7")) == 0
    first = out.read_text(encoding="utf-8")
    assert len(first.splitlines()) == 72
    assert run(twins(out, "--category", "race", "-k", "2", "--seed", "8")) == 0
    assert out.read_text(encoding="utf-8") != first


def test_what_is_left_out_is_shown_by_reason_and_listed_in_json(out, tmp_path, capsys):
    path = Path(unknown_targets(tmp_path))
    line = json.loads(path.read_text(encoding="utf-8"))
    known = {**line, "target": "Iraq", "context": "Iraq is warm."}
    elves = [{**line, "context": f"The elf slept {n} hours."} for n in range(5)]
    path.write_text("\n".join(map(json.dumps, [known, *elves])), encoding="utf-8")
    assert run(twins(out, data=str(path))) == 0
    printed = capsys.readouterr().out
    assert "Left out (5): the target is not known." in printed
    assert "  elf: The elf slept 0 hours." in printed
    assert "  ... and 2 more; --format json lists all" in printed
    assert run(twins(out, "--format", "json", data=str(path))) == 0
    found = json.loads(capsys.readouterr().out)
    counts = {"triples": 6, "with twins": 1, "twins": 3, "left out": 5}
    assert found["categories"] == [{"category": "race", **counts}]
    reason = "the target is not known"
    assert [(e["target"], e["reason"]) for e in found["excluded"]] == [("elf", reason)] * 5
    assert found["record"]["twins"] == 3
    assert found["file"] == str(out)


@pytest.mark.parametrize(
    ("original", "twin", "expected"),
    [
        ("She is here.", "He is here.", "[She -> He] is here."),
        ("An actor ran.", "A man ran.", "[An -> A] [actor -> man] ran."),
        ("the ladies' hat", "the gentlemen's hat", "the [ladies -> gentlemen]'[ -> s] hat"),
        ("The same.", "The same.", "The same."),
    ],
)
def test_changes_are_marked_in_the_original(original, twin, expected):
    assert marked(original, twin) == expected
