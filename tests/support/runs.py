"""Small runs written by hand."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.store.result import writing_run

COLUMNS = {"name": str, "n": int}


def run_heads_and_words(model: Path, folder: Path, *, words: Sequence[str], limit: int) -> None:
    """Runs of heads and of pvf, by the commands, in ``folder``: of a model, and of some words x."""
    from tdabias_cli.main import run

    (folder / "x.txt").write_text("".join(f"{word}\n" for word in words))
    same = ["--model", str(model), "--device", "cpu", "--quiet"]
    few = ["--data", "starter", "--category", "gender", "-L", str(limit)]
    few += ["--n-permutations", "99", "--out", str(folder / "heads")]
    assert run(["heads", *same, *few]) == 0
    asked = ["--attribute", "pronouns", "--words", str(folder / "x.txt")]
    assert run(["pvf", *same, *asked, "--out", str(folder / "pvf")]) == 0


def table_of(*numbers: int) -> pd.DataFrame:
    return pd.DataFrame({"name": [f"row {n}" for n in numbers], "n": list(numbers)})


def record_of(command: str = "stereoset", **entries) -> RunRecord:
    model = ModelRecord(name="tiny", weights="w")
    return RunRecord(**{"command": command, "model": model, "packages": {}, **entries})


def write_run(folder: Path, *numbers: int, files=("a.csv", "b.parquet"), **entries) -> Path:
    """A run with one table in several files."""
    with writing_run(folder, record_of(**entries)) as run:
        for name in files:
            run.table(name, table_of(*(numbers or (1, 2, 3))))
    return folder


def resealed(folder: Path, change) -> None:
    """Change the plain values of a record, with a checksum that fits: somebody's other version."""
    from tda_bias.store.record import checksum

    path = folder / "run.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values.pop("checksum")
    values = change(values)
    sealed = {**values, "checksum": checksum(values)} if isinstance(values, dict) else values
    path.write_text(json.dumps(sealed), encoding="utf-8")


def file_names(folder: Path) -> set[str]:
    """The files of a run but for the lock."""
    return {path.name for path in folder.iterdir()} - {".tdabias.lock"}
