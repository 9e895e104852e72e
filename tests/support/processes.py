"""Workers that several tests share, what ends one of them, and what commands leave."""

import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import dask
import numpy as np
from distributed import LocalCluster
from distributed.utils import get_mp_context

from tda_bias.heads.token_places import TokenPlaces

# What workers are forked with: one process waits for these imports instead of each.
_IMPORTED = ("transformer_lens.model_bridge", "tda_bias.heads.head_bias", "tests.support.processes")
# Where those that were killed are noted; only workers have the variable.
_ENDED = "TESTS_ENDED_WORKERS"


class Workers:
    """Two worker processes of one thread each, and their scheduler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Not `silence_logs`, which reaches the handlers by which pytest captures what others log.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        # Also whoever takes the place of one that was killed.
        self._forked = dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
        get_mp_context().set_forkserver_preload(list(_IMPORTED))
        self.cluster = LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=0,
            env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", _ENDED: str(folder)},
        )
        self.scheduler_address: str = self.cluster.scheduler_address

    def close(self) -> None:
        """End them; what is started later is no fork of theirs."""
        self.cluster.close()
        with self._forked:
            pass

    def n_ended(self, why: str) -> int:
        """How many workers were killed for one reason."""
        return len(list(self.folder.glob(f"{why}-*")))


def end_this_worker(why: str) -> None:
    """Kill the process, if it is a worker and no other was killed for that reason before."""
    if _ENDED not in os.environ:
        return
    folder = Path(os.environ[_ENDED])
    if not list(folder.glob(f"{why}-*")):
        (folder / f"{why}-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def to_the_first(patterns: np.ndarray, places: Sequence[TokenPlaces]) -> np.ndarray:
    """The attention that every head pays to the first token, from all and from the last one."""
    end_this_worker("to_the_first")
    return np.stack([patterns[..., 0].sum(2), patterns[:, :, -1, 0]], axis=-1)


def results(folder: Path) -> dict[str, bytes]:
    """Tables and weights of a run and of runs inside it, without saved parts."""
    endings = (".csv", ".parquet", ".safetensors")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in endings
    }
