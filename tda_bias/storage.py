"""Files that are whole or not there: atomic writing, and the finished groups of a run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_TEMPORARY = ".unfinished-"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that becomes ``path`` when the block ends well.

    Raises:
        InputError: if the folder cannot be written or the disk is full; ``path`` is as it was.
    """
    # The suffix stays, because some writers choose the format by it.
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}~{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another --out"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def prepare_folder(folder: Path) -> None:
    """Make sure, before hours of work, that results can be written to a folder.

    Raises:
        InputError: if it cannot be made or written.
    """
    with atomic(folder / "writable") as path:
        path.write_text("", encoding="utf-8")
    (folder / "writable").unlink()
    remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of a process that was killed while it wrote."""
    for path in folder.rglob(f"{_TEMPORARY}*~*"):
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table, whole or not at all."""
    with atomic(path) as temporary:
        table.to_csv(temporary, index=False)


def write_figure(folder: Path, name: str, figure: Figure) -> list[Path]:
    """Write a figure as ``name.png`` and ``name.svg``, each whole or not at all."""
    written = [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in written:
        with atomic(path) as temporary:
            figure.savefig(temporary, dpi=200)
    return written


def read_text(source: str | Path, *, setting: str, named: Sequence[str]) -> str:
    """The text of a user's file.

    Args:
        source: Its path.
        setting: What it was given as, for the message.
        named: What could have been given instead of a file.

    Raises:
        InputError: if it cannot be read or is not UTF-8.
    """
    try:
        return Path(source).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"`{setting}` {source} is not a UTF-8 text file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(
            f"`{setting}` must be {', '.join(named)} or a readable file; {str(source)!r}: {reason}"
        ) from None


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


class GroupStore:
    """The finished groups of a run, one file each, reused when the run is started again.

    Args:
        folder: Where the files are.
        settings: Everything the saved numbers depend on. A file saved under other settings is
            refused, never mixed in.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._settings = json.loads(json.dumps(settings, sort_keys=True))

    def load(self, category: str, group: str, texts: str) -> dict[str, np.ndarray] | None:
        """The arrays of a finished group, or None.

        Args:
            category: The group's category.
            group: The group.
            texts: Hash of the group's texts: with the settings, what the arrays depend on.

        Raises:
            InputError: if the group was saved under other settings or from other texts.
        """
        path = self._path(category, group)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                arrays = {name: saved[name] for name in saved.files}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
            raise InputError(
                f"{path} cannot be read ({error}); delete it or start over with --no-resume"
            ) from error
        header = json.loads(str(arrays.pop("header")))
        changed = _differences(header, {**self._settings, "texts": texts})
        if changed:
            raise InputError(
                f"{self._folder.parent} holds groups saved with other settings ({changed}); choose "
                "another --out, or start over with --no-resume"
            )
        return arrays

    def save(self, category: str, group: str, texts: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Save a finished group."""
        header = json.dumps({**self._settings, "texts": texts})
        with atomic(self._path(category, group)) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, header=np.array(header), **arrays)

    def clear(self) -> None:
        """Forget all finished groups."""
        for path in self._folder.glob("*.npz"):
            path.unlink()

    def _path(self, category: str, group: str) -> Path:
        readable = re.sub(r"[^A-Za-z0-9]+", "-", group).strip("-")[:40]
        mark = hashlib.blake2b(group.encode(), digest_size=4).hexdigest()
        return self._folder / f"{category}-{readable}-{mark}.npz"


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    names = sorted(set(saved) | set(now))
    changed = [name for name in names if saved.get(name) != now.get(name)]
    return ", ".join(
        "other texts" if n == "texts" else f"{n} was {saved.get(n)!r}, now {now.get(n)!r}"
        for n in changed
    )


def texts_hash(token_ids: list[tuple[list[int], ...]]) -> str:
    """Hash of the token ids of texts, in order."""
    return hashlib.blake2b(json.dumps(token_ids).encode(), digest_size=16).hexdigest()


def to_json(record: Mapping[str, Any]) -> str:
    """Readable JSON; NaN, which JSON does not know, becomes null."""
    return json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """The same without NumPy's types, and with None for NaN and infinities."""
    match value:
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case np.generic():
            return plain(value.item())
        case float():
            return value if np.isfinite(value) else None
        case _:
            return value
