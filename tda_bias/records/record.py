"""Run records: what a command writes about its run, and finished runs opened again."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from tda_bias.types import InputError

T = TypeVar("T")
# Commands whose runs have figures.
COMMANDS = ("heads", "pvf", "unqover", "ablate", "crossref")
_PACKAGES = (
    "datasets gudhi numpy pandas pyarrow scipy tokenizers torch transformer-lens transformers"
)


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages whose numbers these are."""
    found = {name: version(name) for name in _PACKAGES.split()}
    return {**found, "python": platform.python_version()}


@contextmanager
def reading_run(folder: Path, command: str) -> Iterator[None]:
    """Turn whatever reading a run's files raises into one line.

    Raises:
        InputError: if the folder holds no finished run of the command.
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} holds no finished run of `tdabias {command}` ({error})"
        ) from error


@dataclass(frozen=True)
class Run:
    """One finished run. It knows where it is and what it says of itself; loaders are handed to it.

    Attributes:
        folder: Where it is.
        command: What wrote it.
        record: Its ``run.json``.
    """

    folder: Path
    command: str
    record: dict[str, Any]
    _loaded: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def id(self) -> str:
        """Twelve characters that name this run: a hash of its record."""
        text = json.dumps(self.record, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    @property
    def model(self) -> str:
        """Name of its model."""
        named = self.record.get("model", "")
        return str(named["name"] if isinstance(named, dict) else named)

    def load(self, loader: Callable[[Path], T]) -> T:
        """What a loader makes of the folder, read once."""
        if loader not in self._loaded:
            self._loaded[loader] = loader(self.folder)
        loaded: T = self._loaded[loader]
        return loaded


def open_run(folder: Path) -> Run:
    """A finished run of any command.

    Raises:
        InputError: if the folder holds none.
    """
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        command = record.get("command", "heads")
    except (OSError, ValueError, AttributeError):
        known = ", ".join(f"`tdabias {name}`" for name in COMMANDS)
        raise InputError(f"{folder} holds no finished run; {known} make one") from None
    if command not in COMMANDS:
        raise InputError(
            f"{folder} is a run of `tdabias {command}`, which has no figures; give runs of "
            f"{', '.join(COMMANDS)}"
        )
    return Run(folder, command, record)


def with_parts(folders: Sequence[Path]) -> list[Run]:
    """The runs, and the ablations and cross-references inside their folders.

    Raises:
        InputError: as ``open_run``.
    """
    found = [open_run(folder) for folder in folders]
    for run in list(found):
        for name in ("ablate", "crossref"):
            inside = run.folder / name
            if (inside / "run.json").is_file() and inside not in folders:
                found.append(open_run(inside))
    return found
