"""One command in several processes: the same to the last digit, and one line where one dies."""

import pytest

from tda_bias import HeadBias
from tda_bias.models.processes import Processes
from tda_bias.store.cache import Shard, launched
from tda_bias.types import ShareDone
from tdabias_cli.main import run
from tests.support.pairs import write_lines
from tests.support.processes import launch, results

pytestmark = pytest.mark.thorough

# A process that dies as soon as it has something to compute.
DYING = (
    "import os; from tda_bias.heads import head_bias as heads; "
    "heads.computed_group = lambda *_, **__: os.kill(os.getpid(), 9);"
)


@pytest.fixture
def arguments(tiny_folder) -> list[str]:
    return [
        *("heads", "--model", str(tiny_folder), "--category", "gender", "--data", "starter"),
        *("--limit", "3", "--n-permutations", "99", "--device", "cpu"),
    ]


# -- bad input --


def test_processes_of_a_launcher_take_no_shard(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run([*arguments, "--out", str(tmp_path), "--shard", "1/2"]) == 2
    assert capsys.readouterr().err.startswith("Process 1 of 2: Error: --shard is for commands")


# -- a launcher's processes --


def test_nobody_launched_is_one_process_and_so_is_what_makes_no_sense(monkeypatch):
    for rank, size, expected in (("1", "3", (1, 3)), ("3", "3", (0, 1)), ("x", "2", (0, 1))):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
        assert launched() == expected


def test_only_the_first_process_runs_what_is_not_shared(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(["ls", "models"]) == 0
    assert capsys.readouterr() == ("", "")


def test_when_a_process_dies_the_others_say_so_in_one_line_and_the_same_command_goes_on(
    arguments, tmp_path
):
    out = ["--out", str(tmp_path / "several"), "--quiet"]
    first, second, died = launch([[*arguments, *out]], 3, dying=(2, DYING))
    assert died.code == -9
    for number, process in enumerate((first, second), start=1):
        assert process.code == 2
        lines = process.error.strip().splitlines()
        assert len(lines) == 1, process.error
        assert lines[0].startswith(f"Process {number} of 3: Error: another of the 3 processes has")
        assert lines[0].endswith("finished parts are kept, the same command goes on")
        assert process.out == ""
    kept = len(list((tmp_path / "several" / "groups").glob("*.npz")))
    assert 0 < kept < 4
    assert run([*arguments, *out]) == 0
    assert run([*arguments, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    assert results(tmp_path / "several") == results(tmp_path / "one")


# -- shards --


def test_shards_of_heads_gather_to_the_same_also_with_random_weights(arguments, tmp_path, capsys):
    arguments = [*arguments, "--untrained"]
    assert run([*arguments, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    shared = [*arguments, "--out", str(tmp_path / "shared")]
    capsys.readouterr()
    for index in (2, 1):
        assert run([*shared, "--shard", f"{index}/2", "--quiet"]) == 0
        captured = capsys.readouterr()
        assert captured.err.startswith(f"Shard {index}/2 is done.")
        assert captured.out == ""
        assert not (tmp_path / "shared" / "run.json").exists()
    assert run([*shared, "--quiet"]) == 0
    for inside in (".", "untrained"):
        assert results(tmp_path / "shared" / inside) == results(tmp_path / "one" / inside)
    assert HeadBias.load(tmp_path / "shared").record.settings["shard"] is None


SHARED = {
    "heads": [
        *("--category", "gender", "--data", "starter", "--limit", "3"),
        *("--n-permutations", "99"),
    ],
    "ablate": [
        *("--top", "1", "--n-permutations", "99", "--limit", "3", "--batch-size", "8"),
    ],
    "ablate --curve": [
        *("--rank-by", "effect,evidence", "--windows", "2", "--width", "32"),
        *("--most", "2", "--limit", "3"),
    ],
    "pairs": ["--pairs", "winobias", "--limit", "6"],
    "stereoset": ["--category", "all", "--data", "starter"],
    "sentences": ["--task", "intrasentence", "--category", "all"],
    "pvf score": ["--attribute", "pronouns", "--untrained"],
    "unqover": ["--class", "gender", "--subjects", "4", "--attributes", "3"],
    "debias": [
        *("--category", "gender", "--data", "starter", "--limit", "3", "--top", "2"),
        *("--rank-by", "effect,gates", "--n-random", "2", "--folds", "2"),
        *("--controls", "placebo,leace"),
        *("--epochs", "1", "--train-items", "8"),
    ],
}  # fmt: skip


# Of these also in processes that meet; the others save and share their parts in the same way.
TOGETHER = ["heads", "ablate", "debias"]


@pytest.fixture(scope="module")
def commands(tiny_lm, tmp_path_factory):
    """The arguments of every command that is shared, without --out."""
    folder = tmp_path_factory.mktemp("shared")
    model = tiny_lm("gpt2")
    model.hf_model.save_pretrained(folder / "model")
    model.tokenizer.save_pretrained(folder / "model")
    sentences = [
        {
            "id": str(number), "target": ("girl", "boy")[number % 2], "bias_type": "gender",
            "context": f"Number {number} is BLANK", "stereotype": f"Number {number} is kind",
            "anti-stereotype": f"Number {number} is strong",
            "unrelated": f"Number {number} is rain",
        }
        for number in range(200)
    ]  # fmt: skip
    items = write_lines(folder, *sentences, name="items.jsonl")
    text = folder / "text.txt"
    text.write_text("\n\n".join(["The nurse said that he knew that she felt it."] * 900))
    of_model = ["--model", str(folder / "model"), "--device", "cpu", "--quiet"]
    made = {name: [*name.split(), *of_model, *own] for name, own in SHARED.items()}
    made["sentences"][:1] = ["stereoset", "--data", str(items)]
    made["debias"] += ["--text", str(text)]
    assert run([*made["heads"], "--out", str(folder / "run")]) == 0
    for name in ("ablate", "ablate --curve"):
        made[name] = [*name.split(), str(folder / "run"), "--quiet", *SHARED[name]]
    made["ablate --curve"] += ["--text", str(text)]
    return made


@pytest.fixture(scope="module")
def alone(commands, tmp_path_factory):
    """What every command leaves in one process."""
    folder = tmp_path_factory.mktemp("alone")
    for name, arguments in commands.items():
        assert run([*arguments, "--out", str(folder / name)]) == 0, name
    return folder


@pytest.fixture(scope="module")
def together(commands, tmp_path_factory):
    """What every command leaves in several processes of one launcher."""
    folder = tmp_path_factory.mktemp("together")
    lines = [[*commands[name], "--out", str(folder / name)] for name in TOGETHER]
    lines[0].remove("--quiet")
    ended = launch(lines, 3)
    assert [process.code for process in ended] == [0, 0, 0], ended
    assert "Top of the ranking, not findings" in " ".join(ended[0].out.split())
    assert [(p.out, p.error) for p in ended[1:]] == [("", ""), ("", "")]
    return folder


@pytest.mark.parametrize("name", TOGETHER)
def test_any_number_of_processes_gives_the_same_to_the_last_digit(name, alone, together):
    assert results(together / name) == results(alone / name)
    assert results(alone / name)


@pytest.mark.parametrize("name", list(SHARED)[1:])
def test_shards_in_any_order_gather_to_the_same(name, commands, alone, tmp_path, capsys):
    shared = [*commands[name], "--out", str(tmp_path)]
    for index in (2, 1):
        assert run([*shared, "--shard", f"{index}/2"]) == 0
        assert f"Shard {index}/2 is done. When all are, the same" in capsys.readouterr().err
    assert not (tmp_path / "run.json").exists()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert len(kept) >= 2
    assert run(shared) == 0
    assert results(tmp_path) == results(alone / name)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_process_that_only_shares_ends_when_the_others_are_done():
    with pytest.raises(ShareDone):
        Shard(1, 2).done()
    assert Processes(1, 2).count == 2
