"""The finished parts of a run, reused when the same command is started again.

Several processes may share them. What a part holds does not depend on who computes it, so results
do not depend on the number of processes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tda_bias.store.files import arrays_from, atomic
from tda_bias.store.hashes import bytes_hash, text_hash
from tda_bias.types import InputError, Progress, ShareDone

_START_OVER = "start over with --no-resume"


@dataclass(frozen=True)
class Part:
    """A part of a run that is computed, unless it is saved."""

    name: str
    cost: float  # work beside the other parts, in any unit
    depends_on: Callable[[], Mapping[str, Any]]  # beside the cache's identity
    compute: Callable[[], Mapping[str, Any]]


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
        self._identity = dict(identity or {})
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
        saved = self._saved(part)
        if saved is not None:
            return saved
        arrays = part.compute()
        if self._folder is not None:
            header = self._header(part)
            sealed = json.dumps({**header, "hash": _hash(header, arrays)})
            path = _path(self._folder, part)
            with atomic(path) as temporary, temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, header=np.array(sealed), **arrays)
        return arrays

    def each(
        self, parts: Sequence[Part], *, progress: Progress | None = None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The arrays of several parts in order.

        Of several processes each computes its share, and one goes on from there. ``progress`` is
        called with the cost of parts done and of all; of several processes, of this one's share.

        Raises:
            ShareDone: in the others, when their share is saved.
            InputError: as ``get``, or if another process ended before its share was done.
        """
        if self._team is not None:
            for _ in self._in_order(self._share(parts, self._team), progress):
                pass
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
            for part in self._share(parts, self._team):
                self.get(part)
            self._team.meet()

    def _share(self, parts: Sequence[Part], team: Team) -> list[Part]:
        """This process's part of what is not saved yet."""
        missing = team.agreed(lambda: [part.name for part in parts if self._saved(part) is None])
        if missing is not None:
            parts = [part for part in parts if part.name in set(missing)]
        spread = shares([part.cost for part in parts], team.count)
        return [parts[number] for number in spread[team.index]]

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

    def _header(self, part: Part) -> dict[str, Any]:
        """The description of a part, as JSON gives it back."""
        depends_on = dict(part.depends_on())
        header = {"part": part.name, "identity": self._identity, "depends_on": depends_on}
        return dict(json.loads(json.dumps(header)))

    def _saved(self, part: Part) -> dict[str, np.ndarray] | None:
        """The arrays of a part as they are saved; None if they are not."""
        if self._folder is None:
            return None
        path = _path(self._folder, part)
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
        now = self._header(part)
        if header != now and self._overwrite:
            return None
        if header["part"] != part.name:
            raise InputError(
                f"{path} holds {header['part']!r}, not {part.name!r}; delete it or {_START_OVER}"
            )
        changed = differences(header["identity"], now["identity"])
        listed = [f"{key} was {old!r}, now {new!r}" for key, (old, new) in changed.items()]
        listed += [f"other {key}" for key in differences(header["depends_on"], now["depends_on"])]
        if listed:
            raise InputError(
                f"{self._folder.parent} holds parts saved with other settings "
                f"({', '.join(listed)}); choose another --out, or {_START_OVER}"
            )
        return arrays


# Given what the numbers of a run depend on, its cache: ``partial(Cache, folder)``.
OpenCache = Callable[[Mapping[str, Any]], Cache]

no_cache: OpenCache = partial(Cache, None)


def _path(folder: Path, part: Part) -> Path:
    readable = re.sub(r"[^A-Za-z0-9]+", "-", part.name).strip("-")[:50]
    mark = text_hash(part.name, size=4)
    return folder / f"{readable}-{mark}.npz"


def _hash(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of a part's header and of its arrays, names and shapes included."""
    pieces: list[bytes | memoryview] = [json.dumps(header, sort_keys=True).encode()]
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        pieces += [f"{name} {array.dtype.str} {array.shape}".encode(), array.tobytes()]
    return bytes_hash(pieces)


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Names whose values differ, with both; a missing one is None."""
    names = sorted(set(saved) | set(now))
    return {n: (saved.get(n), now.get(n)) for n in names if saved.get(n) != now.get(n)}


def texts_hash(token_ids: Sequence[tuple[Sequence[int], ...]]) -> str:
    """Hash of the token ids of texts, in order."""
    return text_hash(json.dumps(token_ids))


@dataclass
class Counter:
    """Progress inside parts that are long themselves."""

    total: int
    progress: Progress | None
    done: int = 0

    def add(self, n: int) -> None:
        """Tell of so many more."""
        self.reach(self.done + n)

    def reach(self, n: int) -> None:
        """Tell that so many are done, unless more are."""
        if n > self.done:
            self.done = n
            if self.progress is not None:
                self.progress(n, self.total)


# -- several processes -----------------------------------------------------------------------------


def launched() -> tuple[int, int]:
    """Number of this process, from 0, and of all that ``torchrun`` or ``accelerate`` started."""
    try:
        index, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError:
        return 0, 1
    return (index, count) if 0 <= index < count else (0, 1)


class Team(Protocol):
    """The processes that work on one run; ``index``, from 0, is the number of this one."""

    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def count(self) -> int: ...  # noqa: D102

    def agreed(self, missing: Callable[[], list[str]]) -> list[str] | None:
        """Names of the parts that are missing, the same for all; None to spread all parts."""

    def meet(self) -> None:
        """Wait until everybody's parts are saved, where they can be waited for.

        Raises:
            InputError: if another process ended before its share was done.
        """

    def done(self) -> None:
        """As ``meet``, and go on only in the process that gathers.

        Raises:
            ShareDone: in every other one.
            InputError: as ``meet``.
        """


@dataclass(frozen=True)
class Shard:
    """One of several processes that know nothing of each other, as in a job array."""

    index: int
    count: int

    def agreed(self, missing: Callable[[], list[str]]) -> list[str] | None:
        """Nothing: each process sees other missing parts, so shares are of all parts."""
        return None

    def meet(self) -> None:
        """Wait for no other: a shard computes what it lacks."""

    def done(self) -> None:
        """Wait for no other; a command that is no shard gathers."""
        raise ShareDone(
            f"Shard {self.index + 1}/{self.count} is done. When all are, the same command without "
            "--shard gathers."
        )


def shares(costs: Sequence[float], count: int) -> list[list[int]]:
    """Pieces of work for each process: the largest first, each to the one with the least so far."""
    loads = [0.0] * count
    spread: list[list[int]] = [[] for _ in range(count)]
    for piece in sorted(range(len(costs)), key=lambda piece: (-costs[piece], piece)):
        worker = loads.index(min(loads))
        spread[worker].append(piece)
        loads[worker] += costs[piece]
    return [sorted(pieces) for pieces in spread]
