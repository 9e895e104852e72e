"""Shares of a run for processes that know nothing of each other, as the jobs of an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tda_bias.types import ShareDone


@dataclass(frozen=True)
class Shard:
    """One of several such processes; ``index``, from 0, is its number."""

    index: int
    count: int

    @classmethod
    def named(cls, name: str) -> Shard:
        """The shard of a name ``i/n``, with i from 1."""
        index, count = map(int, name.split("/"))
        return cls(index - 1, count)

    def of(self, costs: Sequence[float]) -> list[int]:
        """The pieces of work, given the cost of each, that are this process's."""
        return shares(costs, self.count)[self.index]

    def done(self) -> None:
        """End this process's share; a command that is no shard gathers.

        Raises:
            ShareDone: always.
        """
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


def slurm_share(environment: Mapping[str, str]) -> str:
    """The share of a task of a Slurm array, of a task of ``srun``, or of one inside the other.

    Example:
        >>> array = {"MIN": "0", "MAX": "12", "STEP": "4", "COUNT": "4", "ID": "8"}
        >>> slurm_share({f"SLURM_ARRAY_TASK_{name}": value for name, value in array.items()})
        '3/4'

    Args:
        environment: Variables as Slurm sets them for the task.

    Returns:
        ``i/n`` with i from 1.

    Raises:
        ValueError: if there is neither, or the numbers of the array have gaps.
    """
    names = ("ID", "MIN", "MAX", "STEP", "COUNT")
    array = [environment.get(f"SLURM_ARRAY_TASK_{name}") for name in names]
    # SLURM_NTASKS is also there where sbatch starts a single process.
    step = [environment.get(f"SLURM_{name}") for name in ("PROCID", "STEP_NUM_TASKS")]
    if None in array and None in step:
        raise ValueError(
            "auto is for a task of a Slurm array (sbatch --array=1-16) or of srun, and this is "
            "neither; give the share as i/n, as in 2/8"
        )
    index, count = 0, 1
    if None not in array:
        task, first, last, stride, count = (int(value or 0) for value in array)
        index = (task - first) // max(stride, 1)
        if (last - first) // max(stride, 1) + 1 != count:
            raise ValueError(
                f"auto needs an array without gaps, as --array=1-16; this one has {count} tasks "
                f"from {first} to {last} by {stride}; give the share as i/n, as in 2/8"
            )
    if None not in step:
        process, processes = (int(value or 0) for value in step)
        index, count = index * processes + process, count * processes
    return f"{index + 1}/{count}"
