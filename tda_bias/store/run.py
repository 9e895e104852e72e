"""Finished runs opened again: one place where a run's folder is read, and every file checked."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tda_bias.store.cache import differences
from tda_bias.store.files import RECORD, arrays_from
from tda_bias.store.hashes import bytes_hash, text_hash
from tda_bias.store.record import (
    DataRecord,
    R,
    RunRecord,
    parsed,
    validated_part,
)
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One finished run: its folder, its record, and its files, each checked when it is read."""

    folder: Path
    record: RunRecord
    _values: Mapping[str, Any] = field(repr=False, compare=False)
    _loaded: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def command(self) -> str:
        """Command that wrote it."""
        return self.record.command

    @property
    def model(self) -> str:
        """Name of its model."""
        return self.record.model.name

    @cached_property
    def id(self) -> str:
        """Twelve characters that name this run: a hash of its record."""
        text = json.dumps(self._values, sort_keys=True)
        return text_hash(text, size=6)

    def record_as(self, kind: type[R]) -> R:
        """The whole record of its command.

        Raises:
            InputError: naming the first entry that is missing or does not fit.
        """
        return validated_part(kind, self._values, str(self.folder / RECORD))

    def load(self, loader: Callable[[Path], T]) -> T:
        """Result of a loader on the folder, read once."""
        if loader not in self._loaded:
            self._loaded[loader] = loader(self.folder)
        loaded: T = self._loaded[loader]
        return loaded

    # -- files --

    def has(self, name: str) -> bool:
        """Tell whether a file is the run's; one that merely lies in its folder is not."""
        return name in self.record.files

    def read(self, name: str) -> bytes:
        """The bytes of one of its files.

        Raises:
            InputError: if the run has no such file, or it is not as the run wrote it.
        """
        path = self.folder / name
        if not self.has(name):
            raise InputError(f"the run in {self.folder} has no {name}; {self.again}")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); {self.again}") from None
        if bytes_hash([content]) != self.record.files[name].hash:
            raise InputError(
                f"{path} is not as the run wrote it: it was changed, cut or damaged; {self.again}"
            )
        return content

    def table(self, name: str, columns: Columns | None = None) -> pd.DataFrame:
        """One of its tables, which must have these columns and may have others.

        Raises:
            InputError: as ``read``, or if it is no table, lacks a column, or has another type.
        """
        return self._parsed(name, lambda content: parsed_table(content, name, columns or {}))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of one of its ``.npz`` files; raises as ``read``, or if it holds none."""
        return self._parsed(name, arrays_from)

    def json(self, name: str) -> Any:
        """The content of one of its JSON files; raises as ``read``, or if it is no JSON."""
        return self._parsed(name, json.loads)

    def _parsed(self, name: str, parse: Callable[[bytes], T]) -> T:
        content = self.read(name)
        try:
            return parse(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.folder / name}: {error}; {self.again}") from None

    @property
    def again(self) -> str:
        """The way out where a file is damaged, for messages."""
        return f"run the same `tdabias {self.command.split()[0]}` command again"


def open_run(folder: str | Path, *commands: str) -> Run:
    """The finished run in a folder, which must be of one of these commands if any are named.

    Raises:
        InputError: if the folder holds no finished run, or one of another command.
    """
    folder = Path(folder)
    wanted = " or ".join(f"`tdabias {name}`" for name in commands)
    try:
        text = (folder / RECORD).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{folder / RECORD} is no record of a run: not UTF-8") from None
    except (OSError, ValueError):
        rest = f" of {wanted}" if commands else "; `tdabias ls runs` lists those there are"
        raise InputError(f"{folder} holds no finished run{rest}") from None
    values = parsed(text, folder / RECORD)
    if commands and values["command"] not in commands:
        raise InputError(f"{folder} is a run of `tdabias {values['command']}`, not of {wanted}")
    record = validated_part(RunRecord, values, str(folder / RECORD))
    return Run(folder, record, values)


def content_hash(record: RunRecord) -> str | None:
    """Hash of the tables of a run, without those that were added later.

    None if the record lists no files: it is of a result that was not read from a folder.
    """
    if not record.files:
        return None
    tables = {
        name: entry.hash
        for name, entry in record.files.items()
        if name.endswith((".csv", ".parquet")) and not entry.added
    }
    return bytes_hash([json.dumps(tables, sort_keys=True).encode()])


def content_hashes(records: Mapping[str, RunRecord]) -> dict[str, str]:
    """Hashes of the runs that a result is made from, by name; of those read from a folder."""
    hashes = {name: content_hash(record) for name, record in records.items()}
    return {name: value for name, value in hashes.items() if value is not None}


# Files that runs leave, and people do not, in a folder.
_OF_RUNS = (".npz", ".parquet")


# -- runs inside runs ------------------------------------------------------------------------------


def runs_inside(folder: Path) -> list[Path]:
    """Folders of runs in a folder of several, at any depth, without those inside a run's own."""
    found: list[Path] = []
    for path in sorted((record.parent for record in folder.rglob(RECORD)), key=lambda p: p.parts):
        if not (found and path.is_relative_to(found[-1])):
            found.append(path)
    return found


def with_parts(
    folders: Sequence[Path], *, left_out: Callable[[str], None] | None = None
) -> list[Run]:
    """The runs, and those inside their folders that were made from them.

    A folder that is no run stands for the runs inside it. An inner run that was made from another
    run than the one that is there now is left out. ``left_out`` is called with a line about each
    folder that is there and cannot be read, unless none can.

    Raises:
        InputError: if a folder is missing, or no run can be read; without ``left_out``, if one
            cannot.
    """
    runs = list(_opened(folders, left_out).values())
    for run in list(runs):
        for inner in sorted(path.parent for path in run.folder.glob(f"*/{RECORD}")):
            given = any(one.folder == inner for one in runs)
            if not given and made_from(part := open_run(inner), run):
                runs.append(part)
    return runs


def _opened(folders: Sequence[Path], left_out: Callable[[str], None] | None) -> dict[Path, Run]:
    """The runs in folders and in folders of folders, each once."""
    runs: dict[Path, Run] = {}
    failures: list[InputError] = []
    for folder in folders:
        inside = [] if _is_of_a_run(folder) else runs_inside(folder)
        for path in inside or [folder]:
            try:
                runs.setdefault(path, open_run(path))
            except InputError as error:
                if left_out is None or not folder.exists():
                    raise
                failures.append(error)
    if failures and not runs:
        raise failures[0]
    for failure in failures:
        assert left_out is not None
        left_out(str(failure))
    return runs


def _is_of_a_run(folder: Path) -> bool:
    """Tell whether a folder is a run's own: one whose record is gone has its arrays still."""
    return any(path.name == RECORD or path.suffix in _OF_RUNS for path in folder.glob("*"))


def made_from(part: Run, run: Run) -> bool:
    """Tell whether a run's results are the ones that another was made from."""
    content = content_hash(run.record)
    return content is not None and part.record.made_from.get(run.command) == content


# -- tables as files -------------------------------------------------------------------------------

# The columns a table must have, and the type of each: a name, or a regular expression that at least
# one column matches. It may have more. That the values are as they were written is what the file's
# hash in ``run.json`` says.
Columns = Mapping[str, type]

_KINDS = {
    float: ("fiu", "numbers"),
    int: ("iu", "whole numbers"),
    bool: ("b", "true or false"),
    str: ("OSU", "texts"),
}


def parsed_table(content: bytes, name: str, columns: Columns) -> pd.DataFrame:
    """A table from the bytes of a CSV or Parquet file, which the ending of its name tells apart.

    Of CSV, columns of texts stay texts (``007``).

    Raises:
        ValueError: saying in one line what does not fit.
    """
    import pandas as pd

    try:
        if name.endswith(".csv"):
            texts = {column: kind for column, kind in columns.items() if kind is str}
            # A target may be called "None" or "NA": only an empty field is an undefined one.
            table = pd.read_csv(
                io.BytesIO(content), dtype=texts, keep_default_na=False, na_values=[""]
            )
        else:
            table = pd.read_parquet(io.BytesIO(content))
    except Exception as error:
        # Damaged Parquet makes Arrow raise errors of a dozen classes, without a common one.
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise ValueError(f"no table ({reason})") from error
    for column, kind in columns.items():
        matching = [c for c in table if re.fullmatch(column, str(c))]
        if not matching:
            raise ValueError(f"lacks the column {column!r}")
        kinds, said = _KINDS[kind]
        for found in matching:
            if table[found].dtype.kind not in kinds:
                raise ValueError(f"the column {found!r} must hold {said}")
            if kind is float:
                table[found] = table[found].astype(float)
    return table


# -- before a run is written over ------------------------------------------------------------------


def refuse_other_run(
    folder: Path,
    command: str,
    *,
    settings: Mapping[str, Any],
    data: DataRecord | None = None,
    weights: str | None = None,
    overwrite: bool = False,
) -> None:
    """Make sure that a new run does not write over a finished one of something else.

    To be called before the model is loaded, and again when the hash of its weights is known.
    ``settings`` are those that its numbers depend on, as they will stand in its record.

    Raises:
        InputError: naming what differs.
    """
    if overwrite or not (folder / RECORD).exists():
        return
    way_out = "choose another --out, or write over it with --overwrite"
    try:
        record = open_run(folder).record
    except InputError as error:
        raise InputError(f"{error}; to write there, {way_out}") from None
    if record.command != command:
        raise InputError(f"{folder} holds a finished run of `tdabias {record.command}`; {way_out}")
    was = {name: record.settings.get(name) for name in settings}
    now = json.loads(json.dumps(dict(settings), default=str))
    changed = differences(was, now)
    listed = [f"{name} was {old!r}, now {new!r}" for name, (old, new) in changed.items()]
    texts = record.data.model_dump() if record.data else None
    if data is not None and data.model_dump() != texts:
        listed.append("other data")
    if weights is not None and weights != record.model.weights:
        listed.append("other weights")
    if listed:
        raise InputError(
            f"{folder} holds a finished run of `tdabias {command}` with other settings "
            f"({', '.join(listed)}); {way_out}"
        )


def refuse_run_of_another_command(folder: Path, command: str) -> None:
    """Make sure that a command writes over results of its own alone.

    Raises:
        InputError: if a finished run of another command is there, or one that cannot be read.
    """
    if not (folder / RECORD).exists():
        return
    try:
        there = open_run(folder).command
    except InputError as error:
        reason = str(error).split(";")[0]  # what follows is advice for the command that wrote it
        raise InputError(f"{reason}; choose another --out") from None
    if there != command:
        raise InputError(
            f"{folder} holds a finished run of `tdabias {there}`; choose another --out"
        )


def refuse_file_of_a_run(path: Path, *, setting: str) -> None:
    """Make sure that a file, given as ``setting``, may be written without harm to a finished run.

    Raises:
        InputError: if the path is a folder, or a file of a run or of its finished parts.
    """
    if str(path) in ("", ".") or path.is_dir():
        raise InputError(f"`{setting}` must name a file; got {str(path)!r}")
    folder = path.parent
    of_a_run = path.suffix == ".npz" and (folder.parent / RECORD).is_file()  # a finished part
    if (folder / RECORD).is_file():
        try:
            of_a_run = of_a_run or path.name == RECORD or open_run(folder).has(path.name)
        except InputError:  # it may belong to the run that cannot be read
            of_a_run = True
    if path.exists() and of_a_run:
        raise InputError(f"`{setting}` {path} is a file of the run there; choose another name")
