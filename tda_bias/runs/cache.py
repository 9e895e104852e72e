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
from tda_bias.runs.work import ALONE, Alone, Job, Team, shares
from tda_bias.types import InputError

_START_OVER = "start over with --no-resume"


class PartStore:
    """The finished parts of a run, one file each, reused when the run is started again.

    A part names what it is, everything its numbers depend on, and a hash of all that and of the
    numbers. One that belongs to something else is refused, never mixed in; so is a damaged one.

    Args:
        folder: Where the files are; None keeps nothing.
        identity: What the numbers of every part depend on: model, weights, settings.
        overwrite: Whether parts of something else count as not there, and are written over.
        team: The processes that share the work.
    """

    def __init__(
        self,
        folder: Path | None,
        identity: Mapping[str, Any],
        *,
        overwrite: bool = False,
        team: Team = ALONE,
    ) -> None:
        if folder is None and not isinstance(team, Alone):
            raise ValueError("processes share the parts of a folder; there is none")
        self._folder = folder
        self._identity = _as_read_back(identity)
        self._overwrite = overwrite
        self._team = team

    def each(
        self,
        jobs: Sequence[Job],
        *,
        progress: Progress | None = None,
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The arrays of every part in order: saved ones as they are, the others computed and saved.

        Of several processes each computes its share, and one goes on from there.

        Args:
            jobs: The parts.
            progress: Called with the cost of parts done and of all; of several processes, of this
                one's share.

        Raises:
            ShareDone: in the others, when their share is saved.
            InputError: as ``load`` and ``save``, or if another process ended before its share was
                done.
        """
        alone = isinstance(self._team, Alone)
        if not alone:
            self._compute_share(jobs, progress)
            self._team.done()
        done, cost = 0.0, sum(job.cost for job in jobs)
        for job, arrays in zip(jobs, map(self.part, jobs), strict=True):
            done += job.cost
            if alone and progress is not None:
                progress(round(done), round(cost))
            yield arrays

    def prepare(self, jobs: Sequence[Job]) -> None:
        """See to it that parts are there of which the others are made.

        Of several processes each computes its share, and all go on when all are done; a shard waits
        for nobody, and takes what it lacks from ``part``. One process alone does nothing yet.

        Raises:
            InputError: as ``each``.
        """
        if not isinstance(self._team, Alone):
            self._compute_share(jobs, None)
            self._team.meet()

    def part(self, job: Job) -> Mapping[str, np.ndarray]:
        """The arrays of one part: as they are saved, else computed and saved by this process.

        Raises:
            InputError: as ``load`` and ``save``.
        """
        if self._folder is None:
            return job.compute()
        depends_on = job.depends_on()
        saved = self.load(job.name, depends_on)
        if saved is not None:
            return saved
        arrays = job.compute()
        self.save(job.name, depends_on, arrays)
        return arrays

    def _compute_share(
        self,
        jobs: Sequence[Job],
        progress: Progress | None,
    ) -> None:
        """This process's part of what is not saved yet."""

        def missing() -> list[str]:
            return [job.name for job in jobs if self.load(job.name, job.depends_on()) is None]

        agreed = self._team.agreed(missing)
        if agreed is not None:
            jobs = [job for job in jobs if job.name in set(agreed)]
        numbers = shares([job.cost for job in jobs], self._team.count)[self._team.index]
        share = [jobs[number] for number in numbers]
        done, cost = 0.0, sum(job.cost for job in share)
        for job, _ in zip(share, map(self.part, share), strict=True):
            done += job.cost
            if progress is not None:
                progress(round(done), round(cost))

    def load(self, name: str, depends_on: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """The arrays of a finished part, or None.

        Args:
            name: The part, as it was saved.
            depends_on: What this part depends on beside the identity: a hash of its texts, the
                heads that were removed.

        Raises:
            InputError: if the part was saved under another identity, depends on something else, is
                another part's file, or is damaged.
        """
        if self._folder is None:
            return None
        path = self._path(self._folder, name)
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
            self._check(path, header, name, depends_on)
        except InputError:
            if self._overwrite:
                return None
            raise
        return arrays

    def save(
        self, name: str, depends_on: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Save a finished part.

        Raises:
            InputError: if the file cannot be written.
        """
        if self._folder is None:
            return
        header = {"part": name, "identity": self._identity, "depends_on": _as_read_back(depends_on)}
        sealed = json.dumps({**header, "hash": _hash(header, arrays)})
        path = self._path(self._folder, name)
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, header=np.array(sealed), **arrays)

    def clear(self) -> None:
        """Forget all finished parts."""
        if self._folder is None:
            return
        for path in self._folder.glob("*.npz"):
            path.unlink(missing_ok=True)

    def _check(
        self,
        path: Path,
        header: Mapping[str, Any],
        name: str,
        depends_on: Mapping[str, Any],
    ) -> None:
        if header["part"] != name:
            raise InputError(
                f"{path} holds {header['part']!r}, not {name!r}; delete it or {_START_OVER}"
            )
        changed = differences(header["identity"], self._identity)
        other = differences(header["depends_on"], _as_read_back(depends_on))
        if changed or other:
            listed = [f"{key} was {old!r}, now {new!r}" for key, (old, new) in changed.items()]
            listed += [f"other {key}" for key in other]
            raise InputError(
                f"{path.parent.parent} holds parts saved with other settings "
                f"({', '.join(listed)}); choose another --out, or {_START_OVER}"
            )

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        readable = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:50]
        mark = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        return folder / f"{readable}-{mark}.npz"


# Given what the numbers of a run depend on, the store of its parts.
Store = Callable[[Mapping[str, Any]], PartStore]


def open_parts(
    folder: Path | None,
    identity: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool = False,
    team: Team = ALONE,
) -> PartStore:
    """The parts of a run; without ``resume`` those of earlier runs are deleted first."""
    store = PartStore(folder, identity, overwrite=overwrite, team=team)
    if not resume and team.index == 0:
        store.clear()
    return store


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
    """Of what a part says of itself and of its arrays, names and shapes included."""
    content = xxhash.xxh3_128(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        content.update(f"{name} {array.dtype.str} {array.shape}".encode())
        content.update(array.tobytes())
    return str(content.hexdigest())
