"""The processes that work on one run: those of a launcher, a shard of a job array, or this alone.

Launchers (``torchrun``, ``accelerate launch``) tell each process its number in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from tda_bias.runs.work import ALONE, Shard, ShareDone, Team
from tda_bias.types import InputError

if TYPE_CHECKING:
    from .settings import SharedRunSettings

# Others may compute for days before they meet this process; one that has died is noticed at once.
_PATIENCE = timedelta(days=30)


def launched() -> tuple[int, int]:
    """Number of this process, from 0, and of all that a launcher has started."""
    try:
        index, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError:
        return 0, 1
    return (index, count) if 0 <= index < count else (0, 1)


def is_main() -> bool:
    """Tell whether this process gathers, writes and speaks."""
    return launched()[0] == 0


def team_of(settings: SharedRunSettings) -> Team:
    """Who shares the work of a command.

    Raises:
        InputError: if the processes of a launcher do not find each other, or are given a shard.
    """
    _, count = launched()
    if settings.shard is not None:
        if count > 1:
            raise InputError(
                f"--shard is for commands that are started one by one; these are {count} processes "
                "of a launcher, which share the work themselves"
            )
        index, count = map(int, settings.shard.split("/"))
        return Shard(index - 1, count)
    return _joined() if count > 1 else ALONE


@contextmanager
def stage(done: list[ShareDone]) -> Iterator[None]:
    """A part of a command behind which others follow: whoever only shares goes on to them.

    Args:
        done: What ends the command once all parts are done is put here.
    """
    try:
        yield
    except ShareDone as share:
        done.append(share)


@dataclass(frozen=True)
class Processes:
    """Processes of a launcher, which meet when their shares are done.

    Attributes:
        index: Number of this one, from 0.
        count: How many there are.
    """

    index: int
    count: int

    def agreed(self, missing: Callable[[], list[str]]) -> list[str]:
        """Parts that the first process misses: it alone may delete what was there."""
        import torch.distributed as dist

        said: list[Any] = [missing() if self.index == 0 else None]
        with _one_line():
            dist.broadcast_object_list(said, src=0)
        return list(said[0])

    def meet(self) -> None:
        """Wait for all."""
        import torch.distributed as dist

        with _one_line():
            dist.barrier()

    def done(self) -> None:
        """Wait for all; the first goes on."""
        self.meet()
        if self.index:
            raise ShareDone


@cache
def _joined() -> Processes:
    """This process, once it has found the others."""
    import torch.distributed as dist

    index, count = launched()
    with _one_line():
        dist.init_process_group("gloo", timeout=_PATIENCE)
    return Processes(index, count)


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn what a lost process makes of a meeting into one line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"another of the {launched()[1]} processes has ended or cannot be reached "
            f"({_first_line(error)}); finished parts are kept, the same command goes on"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
