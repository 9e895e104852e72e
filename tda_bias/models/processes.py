"""Processes that a launcher starts, as ``torchrun`` and ``accelerate launch`` do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from tda_bias.store.cache import launched
from tda_bias.types import InputError, ShareDone

# Others may compute for days before they meet this process; one that has died is noticed at once.
_PATIENCE = timedelta(days=30)


@dataclass(frozen=True)
class Processes:
    """Processes of a launcher, which meet when their shares are done; this one has an ``index``."""

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
def joined() -> Processes:
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
        reason = str(error).partition("\n")[0][:120]
        raise InputError(
            f"another of the {launched()[1]} processes has ended or cannot be reached ({reason}); "
            "finished parts are kept, the same command goes on"
        ) from None
