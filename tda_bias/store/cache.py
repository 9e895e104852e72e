"""The finished parts of a run, reused when the same command is started again.

Jobs of an array may share them, or the workers of a cluster. What a part holds does not depend on
who computes it, so results do not depend on how many do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tda_bias.store.files import arrays_from, atomic
from tda_bias.store.hashes import bytes_hash, text_hash
from tda_bias.store.shares import Shard
from tda_bias.types import InputError, Progress

if TYPE_CHECKING:
    from tda_bias.store.cluster import Cluster

_START_OVER = "start over with --no-resume"
# What parts depend on, in words, where the name in their files is none.
_WORDS = {"twin_of": "twins", "places": "places of words"}


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
        shard: The share of this process, where others have others; None for all.
        cluster: Computes the parts, which are saved here; None for this process alone.

    A copy of it, as it reaches a worker inside a part, takes what is saved and saves nothing.
    """

    def __init__(
        self,
        folder: Path | None = None,
        identity: Mapping[str, Any] | None = None,
        *,
        resume: bool = True,
        overwrite: bool = False,
        shard: Shard | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        if folder is None and (shard, cluster) != (None, None):
            raise ValueError("processes share the parts of a folder; there is none")
        self._folder = folder
        self._identity = dict(identity or {})
        self._overwrite = overwrite
        self._shard, self._cluster = shard, cluster
        self._saves = folder is not None
        if folder is not None and not resume:
            for path in folder.glob("*.npz"):
                path.unlink(missing_ok=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_shard": None, "_cluster": None, "_saves": False}

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
        self._save(part, arrays)
        return arrays

    def each(
        self, parts: Sequence[Part], *, progress: Progress | None = None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The arrays of several parts in order.

        A shard computes its own, and ends. ``progress`` is called with the cost of parts done and
        of all; of a shard, of its own.

        Raises:
            ShareDone: in a shard, when its own are saved.
            InputError: as ``get``, or if workers of the cluster or their scheduler are lost.
        """
        if self._shard is not None:
            for _ in self._in_order(self._own(parts, self._shard), progress):
                pass
            self._shard.done()
        yield from self._in_order(parts, progress)

    def prepare(self, parts: Sequence[Part]) -> None:
        """See to it that parts are there of which the others are made.

        A cluster computes all, a shard its own, and takes what it lacks from ``get``. One process
        alone does nothing yet.

        Raises:
            InputError: as ``each``.
        """
        if self._shard is not None or self._cluster is not None:
            own = parts if self._shard is None else self._own(parts, self._shard)
            for _ in self._in_order(own, None):
                pass

    def _own(self, parts: Sequence[Part], shard: Shard) -> list[Part]:
        """A shard's part of all: each process sees other missing parts."""
        return [parts[number] for number in shard.of([part.cost for part in parts])]

    def _in_order(
        self, parts: Sequence[Part], progress: Progress | None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        done, cost = 0.0, sum(part.cost for part in parts)
        for part, arrays in zip(parts, self._arrays(parts), strict=True):
            done += part.cost
            if progress is not None:
                progress(round(done), round(cost))
            yield arrays

    def _arrays(self, parts: Sequence[Part]) -> Iterator[Mapping[str, np.ndarray]]:
        """The arrays of parts in order, each as soon as those before it are there."""
        if self._cluster is None:
            yield from map(self.get, parts)
            return
        missing = {part.name: part for part in parts if self._saved(part) is None}
        arrived: dict[str, Mapping[str, np.ndarray]] = {}
        asked = {name: part.compute for name, part in missing.items()}
        with closing(self._cluster.computed(asked)) as finished:
            for part in parts:
                while part.name in missing and part.name not in arrived:
                    name, arrays = next(finished)
                    self._save(missing[name], arrays)
                    arrived[name] = arrays
                yield arrived.pop(part.name) if part.name in arrived else self.get(part)

    def _header(self, part: Part) -> dict[str, Any]:
        """The description of a part, as JSON gives it back."""
        depends_on = dict(part.depends_on())
        header = {"part": part.name, "identity": self._identity, "depends_on": depends_on}
        return dict(json.loads(json.dumps(header)))

    def _save(self, part: Part, arrays: Mapping[str, np.ndarray]) -> None:
        if self._folder is None or not self._saves:
            return
        header = self._header(part)
        sealed = json.dumps({**header, "hash": _hash(header, arrays)})
        path = _path(self._folder, part)
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, header=np.array(sealed), **arrays)

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
        others = differences(header["depends_on"], now["depends_on"])
        listed += [f"other {_WORDS.get(key, key)}" for key in others]
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

    def __getstate__(self) -> dict[str, Any]:
        # What shows progress stays where it is; a part that is computed elsewhere counts alone.
        return {**vars(self), "progress": None}

    def add(self, n: int) -> None:
        """Tell of so many more."""
        self.reach(self.done + n)

    def reach(self, n: int) -> None:
        """Tell that so many are done, unless more are."""
        if n > self.done:
            self.done = n
            if self.progress is not None:
                self.progress(n, self.total)
