"""Sources of pairs: files that ship, a user's files and folders, the hub."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tda_bias.runs.files import read_text
from tda_bias.types import InputError

PACKAGED = "packaged"
HUB = "hub"


def packaged(folder: str, name: str) -> str:
    """The text of a file that ships with the package."""
    return (files("tda_bias.data") / "pairs" / folder / name).read_text(encoding="utf-8")


def hash_of(*texts: str) -> str:
    """Pin the content of files by a hash of their bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode())
    return f"blake2b-{digest.hexdigest()}"


def located(data: str | Path, *patterns: str) -> list[Path]:
    """The files of a set, one per pattern: ``data`` itself, or inside it, or one folder below.

    Raises:
        InputError: if there is no such path, or a file is missing.
    """
    path = Path(data)
    if path.is_file() and len(patterns) == 1:
        return [path]
    paths_inside = []
    for pattern in patterns:
        inside = sorted([*path.glob(pattern), *path.glob(f"*/{pattern}")])
        if not inside:
            what = "has no" if path.is_dir() else "is no folder with a"
            raise InputError(f"`data` {str(data)!r} {what} file {pattern}")
        paths_inside.append(inside[0])
    return paths_inside


def text_of(path: Path) -> str:
    """The text of a file.

    Raises:
        InputError: if it cannot be read, is not UTF-8, or is empty.
    """
    text = read_text(path, setting="data", named=(PACKAGED, HUB))
    if not text.strip():
        raise InputError(f"`data` {path} is empty")
    return text


def hub_split(name: str, config: str | None, split: str, *, revision: str | None = None) -> Any:
    """One split of a data set on the hub.

    Raises:
        InputError: if it is neither in the cache nor can be fetched.
    """
    import datasets

    try:
        return datasets.load_dataset(name, config, split=split, revision=revision)
    except Exception as error:  # the hub's clients raise many kinds; all mean the same to the user
        raise InputError(
            f"`data` {HUB}: {name} is neither in the cache nor could it be fetched "
            f"({type(error).__name__}); give --data PATH with the set's own files"
        ) from error


def commit_of(split: Any) -> str | None:
    """The commit a hub split was read at, if its addresses tell."""
    for address in split.info.download_checksums or {}:
        if match := re.search(r"@([0-9a-f]{40})/", address):
            return match.group(1)
    return None


def with_label_names(split: Any) -> Iterator[dict[str, Any]]:
    """Rows of a hub split whose class numbers are replaced by the classes' names."""
    names: dict[str, Sequence[str]] = {
        column: feature.names
        for column, feature in split.features.items()
        if hasattr(feature, "names")
    }
    for row in split:
        yield {
            column: names[column][value] if column in names and isinstance(value, int) else value
            for column, value in row.items()
        }


def needed(row: Mapping[str, Any], columns: Iterable[str], where: str) -> list[str]:
    """Text fields of a row.

    Raises:
        InputError: if one is missing or no text.
    """
    values = []
    for name in columns:
        value = row.get(name)
        if not isinstance(value, str):
            raise InputError(f"{where}: `{name}` must be a text; got {value!r}")
        values.append(value)
    return values
