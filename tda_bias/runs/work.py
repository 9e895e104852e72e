"""Work spread over processes: which parts are whose, and who goes on when all are done.

Every part is computed by one process and saved; one process gathers them. What a part holds does
not depend on who computes it, so results do not depend on the number of processes.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class ShareDone(Exception):  # noqa: N818  (nothing went wrong)
    """This process has done its share of the work; another one gathers."""


def launched() -> tuple[int, int]:
    """Number of this process, from 0, and of all that a launcher has started.

    Launchers (``torchrun``, ``accelerate launch``) say so in the environment.
    """
    try:
        index, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError:
        return 0, 1
    return (index, count) if 0 <= index < count else (0, 1)


@dataclass(frozen=True)
class Part:
    """A part of a run that is computed, unless it is saved.

    Attributes:
        name: As it is saved.
        cost: How much work it is beside the others, in any unit.
        depends_on: Gives what its numbers depend on beside the cache's identity.
        compute: Gives its arrays.
    """

    name: str
    cost: float
    depends_on: Callable[[], Mapping[str, Any]]
    compute: Callable[[], Mapping[str, Any]]


class Team(Protocol):
    """The processes that work on one run."""

    @property
    def index(self) -> int:
        """Number of this one, from 0."""

    @property
    def count(self) -> int:
        """Number of processes."""

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
    """One of several processes that know nothing of each other, as in a job array.

    Attributes:
        index: Which, from 0.
        count: Of how many.
    """

    index: int
    count: int

    def agreed(self, missing: Callable[[], list[str]]) -> list[str] | None:
        """Nothing: each process sees other missing parts, so shares are of all parts."""
        return None

    def meet(self) -> None:
        """Nobody is waited for: what a shard lacks, it computes."""

    def done(self) -> None:
        """Nobody is waited for; a command that is no shard gathers."""
        raise ShareDone(
            f"Shard {self} is done. When all are, the same command without --shard gathers."
        )

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"


def shares(costs: Sequence[float], count: int) -> list[list[int]]:
    """Spread work evenly: the largest first, each to the process with the least so far.

    Args:
        costs: Of each piece of work.
        count: How many share it.

    Returns:
        For each of them its pieces, in their order; the same for the same arguments.
    """
    loads = [(0.0, worker) for worker in range(count)]
    spread: list[list[int]] = [[] for _ in range(count)]
    for piece in sorted(range(len(costs)), key=lambda piece: (-costs[piece], piece)):
        load, worker = heapq.heappop(loads)
        spread[worker].append(piece)
        heapq.heappush(loads, (load + costs[piece], worker))
    return [sorted(pieces) for pieces in spread]
