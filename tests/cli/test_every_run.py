"""What is true of every command that leaves a run: printed again, resumed, never written over."""

import io
import json
import re
import shlex
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import pytest

from tdabias_cli.main import run
from tests.support.answers import FEW
from tests.support.bbq import rows as bbq_rows

_TEXTS = "-m MODEL -c gender --data starter -L 4 --device cpu"
# Command lines; a setting that changes numbers, and what is said of it; a column of CSV.
COMMANDS = {
    "heads": (
        f"heads {_TEXTS} --n-permutations 99 --top 3",
        "--edges output", "edges was 'attention', now 'output'", "p_max",
    ),
    "scores": (
        f"stereoset {_TEXTS}", "--seed 3", "seed was 0, now 3", "icat",
    ),
    "sentences": (
        "stereoset -m MODEL --task intrasentence -c all --data SENTENCES",
        "--start bos", "start was 'tokenizer', now 'bos'", "scored",
    ),
    "pairs": (
        "pairs -m MODEL --pairs winobias -L 1 --group nurse",
        "--group cook", "group was ['nurse'], now ['nurse', 'cook']", "preferred",
    ),
    "pvf": (
        "pvf -m WORDS -a CLASSES --words X --templates TEMPLATES",
        "--confidence 0.9", "holds risks with other settings", "R_p",
    ),
    "unqover": (
        "unqover -m WORDS --class FEW --n-bootstrap 100 --n-flips 19",
        "--ask question", "ask was 'auto', now 'question'", "compared",
    ),
    "bbq": (
        "bbq -m WORDS --data HANDS", "--ask letter", "ask was 'text', now 'letter'", "measure",
    ),
    "respond": (
        "respond -m WORDS --prompts PROMPTS --samples 1 --tokens 3 --n-permutations 99",
        "--seed 3", "seed was 0, now 3", "measure",
    ),
    "ablation": (
        "ablate heads --top 1 --n-permutations 99", "--seed 3", "seed was 0, now 3", "percentile",
    ),
    "curve": (
        "ablate heads --curve --rank-by evidence --most 1 --n-random 19 --text TEXT --width 32 "
        "--windows 2",
        "--seed 3", "seed was 0, now 3", "p_random",
    ),
    "items": (
        "crossref heads scores --items --n-permutations 99", "--seed 3", "seed was 0, now 3",
        "largest",
    ),
}  # fmt: skip
# Of these nothing is kept but the run itself.
_WITHOUT_PARTS = {"items"}


@pytest.fixture(scope="module")
def runs(tiny_folder, words_folder, tmp_path_factory):
    """A folder with a run of each command; the words of each, and what it printed."""
    base = tmp_path_factory.mktemp("every")
    fills = {"stereotype": "rain", "anti-stereotype": "strong", "unrelated": "in"}
    sentences = [
        {"id": who, "target": "girl", "bias_type": "gender", "context": f"My {who} is BLANK"}
        | {role: f"My {who} is {fill}" for role, fill in fills.items()}
        for who in ("sister", "teacher", "friend")
    ]
    files = {
        "SENTENCES": "\n".join(map(json.dumps, sentences)),
        "FEW": FEW,
        "X": "girl\nboy\nteacher\nfriend\n",
        "CLASSES": "male: [he, his]\nfemale: [she, her]\n",
        "TEMPLATES": "template,count\nThe [X] said that [Y],5\nThe [X] had a [Y],2\n",
        "HANDS": "\n".join(map(json.dumps, bbq_rows())),
        "PROMPTS": "id,template\na,[PERSON] came in\nb,My friend [PERSON]\n",
        "TEXT": "My sister came in and sang a song. " * 40,
    }
    for name, text in files.items():
        (base / name).write_text(text)
    places = {"MODEL": str(tiny_folder), "WORDS": str(words_folder)}
    places |= {name: str(base / name) for name in (*files, "heads", "scores")}
    found = {}
    for name, (command, *_) in COMMANDS.items():
        first, *rest = shlex.split(command)
        words = [first, *(places.get(word, word) for word in rest)]
        with redirect_stdout(io.StringIO()) as out:
            assert run([*words, "--out", str(base / name)]) == 0, name
        found[name] = (base / name, words, out.getvalue())
    return found


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.csv")}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_is_printed_again_as_it_was_and_without_the_model(runs, name, capsys, monkeypatch):
    import tda_bias.models.load

    monkeypatch.setattr(tda_bias.models.load, "load_language_model", None)
    folder, _, before = runs[name]
    assert run(["show", str(folder)]) == 0
    assert capsys.readouterr().out == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_sentence_a_few_numbers_and_what_is_next_are_printed_and_the_parts_when_asked(
    runs, name, capsys
):
    folder, _, printed = runs[name]
    title, blank, said, *_ = printed.splitlines()
    assert "tiny" in title
    assert blank == ""
    assert re.match(r"[^.]+", said)
    numbers = printed.split("\n\n")[2].splitlines()
    assert 1 <= sum(re.match(r"  \S", line) is not None for line in numbers) <= 9
    assert re.search(r"^  Files +\S", printed, re.MULTILINE)
    assert re.search(r"^  Next +tdabias ", printed, re.MULTILINE)
    assert not re.search("RESULT|CONTROL|dispersion test, triple minus twin", printed)
    assert run(["show", str(folder), "--verbose"]) == 0
    verbose = capsys.readouterr().out
    assert verbose.startswith(printed.partition("\n\n")[0])
    parts = ("RESULT", "CONTROL", "POWER", "NEXT", "Files: ")
    labels = [verbose.index(label) for label in parts]
    assert labels == sorted(labels)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_printed_fits_a_terminal_of_80_columns(runs, name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder, *_ = runs[name]
    assert run(["show", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Paths, and commands, are as long as the names of their folders.
    long = [line for line in lines if len(line) > 80 and str(folder) not in line]
    assert [line for line in long if " tdabias " not in line] == []
    assert run(["show", str(folder), "--verbose"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "┏┃│└"]
    assert max(map(len, rows), default=0) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_other_programs_get_the_finding_and_the_main_table(runs, name, capsys):
    folder, _, printed = runs[name]
    assert run(["show", str(folder), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    of_whole = found if name not in ("heads", "pvf") else next(
        iter(next(found[key] for key in ("categories", "models") if key in found).values())
    )  # fmt: skip
    finding = of_whole["finding"]
    parts = {"result", "control", "power", "next", "details"}
    assert set(finding) == parts | {"about", "said", "numbers", "remarks"}
    assert finding["said"] in " ".join(printed.split())
    assert (found if "folder" in found else of_whole)["folder"] == str(folder)
    assert run(["show", str(folder), "--format", "csv"]) == 0
    table = capsys.readouterr().out
    assert COMMANDS[name][3] in pd.read_csv(io.StringIO(table))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_command_goes_on_and_says_with_what(runs, name, capsys):
    folder, words, printed = runs[name]
    before = content(folder)
    assert run([*words, "--out", str(folder)]) == 0
    captured = capsys.readouterr()
    assert captured.out == printed
    assert content(folder) == before
    assert ("Going on with " in captured.err) == (name not in _WITHOUT_PARTS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_changed_setting_is_refused_until_told_to_write_over_and_quiet_says_nothing(
    runs, name, tmp_path, capsys
):
    folder, words, _ = runs[name]
    out = shutil.copytree(folder, tmp_path / "run")
    _, change, message, _ = COMMANDS[name]
    changed = [*words, *change.split(), "--out", str(out), "--quiet"]
    assert run(changed) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--overwrite" in error
    assert (out / "run.json").read_bytes() == (folder / "run.json").read_bytes()
    if name not in _WITHOUT_PARTS:
        assert run([*changed, "--no-resume"]) == 2  # what is finished is not lost by accident
        assert content(out) == content(folder)
    capsys.readouterr()
    status = run([*changed, "--overwrite"])
    assert (status, *capsys.readouterr()) == (0, "", "")
    assert (out / "run.json").read_bytes() != (folder / "run.json").read_bytes()
