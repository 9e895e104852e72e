"""The finished parts of a run, reused when the same command is started again."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tda_bias.records.files import atomic
from tda_bias.types import InputError

if TYPE_CHECKING:
    pass


class PartStore:
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
