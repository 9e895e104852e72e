"""Small runs written by hand, and finished runs made to look as version 0.1 wrote them."""

import json
from pathlib import Path

import pandas as pd

from tda_bias.runs.record import ModelRecord, RunRecord
from tda_bias.runs.tables import columns, counts, texts
from tda_bias.runs.writing import writing_run

COLUMNS = columns({"name": texts(), "n": counts()})
# What version 0.1 did not write.
_NEW = ("version", "files", "made_from", "checksum", "data", "settings", "tdabias", "created")


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


def as_version_0_1(folder: Path) -> None:
    """Rewrite the record of a run, and of those inside, as the first version had it."""
    for path in folder.rglob("run.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        for name in _NEW:
            values.pop(name, None)
        if values["command"] in ("ablate", "crossref"):
            model = values["model"]
            values |= {"model": model["name"], "restarted_from_layer": True}
            if values["command"] == "ablate":
                values["weights"] = model["weights"]
        if values["command"] == "heads":
            del values["command"]
            values.setdefault("config", {})
        path.write_text(json.dumps(values), encoding="utf-8")


def resealed(folder: Path, change) -> None:
    """Change the plain values of a record, with a checksum that fits: somebody's other version."""
    from tda_bias.runs.record import checksum

    path = folder / "run.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values.pop("checksum")
    values = change(values)
    sealed = {**values, "checksum": checksum(values)} if isinstance(values, dict) else values
    path.write_text(json.dumps(sealed), encoding="utf-8")


def file_names(folder: Path) -> set[str]:
    """The files of a run but for the lock."""
    return {path.name for path in folder.iterdir()} - {".tdabias.lock"}
