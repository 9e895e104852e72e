"""The finished parts of a run, reused when the same command is started again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tda_bias.progress import Progress
from tda_bias.runs.files import arrays_from, atomic
from tda_bias.runs.work import Part, Team, shares
from tda_bias.types import InputError

_START_OVER = "start over with --no-resume"


class Cache:
    """The finished parts of a run, one file each, reused when the run is started again.

    A saved part names what it is, everything its numbers depend on, and a hash of all that and of
    the numbers. One that belongs to something else is refused, never mixed in; so is a damaged one.

    Args:
        folder: Where the files are; None keeps nothing.
        identity: What the numbers of every part depend on: model, weights, settings.
        resume: Whether parts of earlier runs are reused; else they are deleted.
        overwrite: Whether parts of something else count as not there, and are written over.
        team: The processes that share the work; None for this one alone.
    """

    def __init__(
        self,
        folder: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        *,
        resume: bool = True,
        overwrite: bool = False,
        team: Team | None = None,
    ) -> None:
        if folder is None and team is not None:
            raise ValueError("processes share the parts of a folder; there is none")
        self._folder = folder
        self._identity = _as_read_back(identity or {})
        self._overwrite = overwrite
        self._team = team
        if folder is not None and not resume and (team is None or team.index == 0):
            for path in folder.glob("*.npz"):
                path.unlink(missing_ok=True)

    def get(self, part: Part) -> Mapping[str, np.ndarray]:
        """The arrays of a part: as they are saved, else computed and saved.

        Raises:
            InputError: if the part was saved under another identity, depends on something else, is
                another part's file, is damaged, or cannot be written.
        """
        if self._folder is None:
            return part.compute()
        saved = self._load(self._folder, part)
        if saved is not None:
            return saved
        arrays = part.compute()
        self._save(self._folder, part, arrays)
        return arrays

    def each(
        self, parts: Sequence[Part], *, progress: Progress | None = None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The arrays of several parts in order.

        Of several processes each computes its share, and one goes on from there.

        Args:
            parts: The parts.
            progress: Called with the cost of parts done and of all; of several processes, of this
                one's share.

        Raises:
            ShareDone: in the others, when their share is saved.
            InputError: as ``get``, or if another process ended before its share was done.
        """
        if self._team is not None:
            self._compute_share(self._team, parts, progress)
            self._team.done()
            progress = None
        yield from self._in_order(parts, progress)

    def prepare(self, parts: Sequence[Part]) -> None:
        """See to it that parts are there of which the others are made.

        Of several processes each computes its share, and all go on when all are done; a shard waits
        for nobody, and takes what it lacks from ``get``. One process alone does nothing yet.

        Raises:
            InputError: as ``each``.
        """
        if self._team is not None:
            self._compute_share(self._team, parts, None)
            self._team.meet()

    def _compute_share(self, team: Team, parts: Sequence[Part], progress: Progress | None) -> None:
        """Compute this process's part of what is not saved yet."""
        folder = self._folder
        assert folder is not None  # as the constructor saw to
        missing = team.agreed(
            lambda: [part.name for part in parts if self._load(folder, part) is None]
        )
        if missing is not None:
            parts = [part for part in parts if part.name in set(missing)]
        numbers = shares([part.cost for part in parts], team.count)[team.index]
        for _ in self._in_order([parts[number] for number in numbers], progress):
            pass

    def _in_order(
        self, parts: Sequence[Part], progress: Progress | None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        done, cost = 0.0, sum(part.cost for part in parts)
        for part in parts:
            arrays = self.get(part)
            done += part.cost
            if progress is not None:
                progress(round(done), round(cost))
            yield arrays

    # -- files --

    def _load(self, folder: Path, part: Part) -> dict[str, np.ndarray] | None:
        path = _file_of(folder, part.name)
        try:
            arrays = arrays_from(path.read_bytes())
            header = json.loads(str(arrays.pop("header")))
            saved = header.pop("hash")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} cannot be read ({error}); delete it or {_START_OVER}"
            ) from error
        if saved != _hash(header, arrays):
            raise InputError(
                f"{path} is not as it was saved: it is damaged; delete it or {_START_OVER}"
            )
        try:
            self._check(path, header, part)
        except InputError:
            if self._overwrite:
                return None
            raise
        return arrays

    def _save(self, folder: Path, part: Part, arrays: Mapping[str, np.ndarray]) -> None:
        about = {"identity": self._identity, "depends_on": _as_read_back(part.depends_on())}
        header = {"part": part.name, **about}
        sealed = json.dumps({**header, "hash": _hash(header, arrays)})
        with atomic(_file_of(folder, part.name)) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, header=np.array(sealed), **arrays)

    def _check(self, path: Path, header: Mapping[str, Any], part: Part) -> None:
        if header["part"] != part.name:
            raise InputError(
                f"{path} holds {header['part']!r}, not {part.name!r}; delete it or {_START_OVER}"
            )
        changed = differences(header["identity"], self._identity)
        other = differences(header["depends_on"], _as_read_back(part.depends_on()))
        if changed or other:
            listed = [f"{key} was {old!r}, now {new!r}" for key, (old, new) in changed.items()]
            listed += [f"other {key}" for key in other]
            raise InputError(
                f"{path.parent.parent} holds parts saved with other settings "
                f"({', '.join(listed)}); choose another --out, or {_START_OVER}"
            )


# Given what the numbers of a run depend on, its cache: ``partial(Cache, folder)``.
OpenCache = Callable[[Mapping[str, Any]], Cache]


def no_cache(identity: Mapping[str, Any]) -> Cache:
    """A cache that keeps nothing."""
    return Cache(None, identity)


def _file_of(folder: Path, name: str) -> Path:
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:50]
    mark = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return folder / f"{readable}-{mark}.npz"


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Names whose values differ, with both; a missing one is None."""
    names = sorted(set(saved) | set(now))
    return {n: (saved.get(n), now.get(n)) for n in names if saved.get(n) != now.get(n)}


def texts_hash(token_ids: Sequence[tuple[Sequence[int], ...]]) -> str:
    """Hash of the token ids of texts, in order."""
    return hashlib.blake2b(json.dumps(token_ids).encode(), digest_size=16).hexdigest()


def _as_read_back(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same after a journey through JSON, as a saved part has it."""
    back: dict[str, Any] = json.loads(json.dumps(values, sort_keys=True))
    return back


def _hash(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of a part's header and of its arrays, names and shapes included."""
    content = xxhash.xxh3_128(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        content.update(f"{name} {array.dtype.str} {array.shape}".encode())
        content.update(array.tobytes())
    return str(content.hexdigest())
