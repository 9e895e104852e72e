"""Commands in several processes, as a launcher starts them, and what they leave."""

import multiprocessing
import os
import socket
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

# Imported once, by the process that the others are forked from.
_IMPORTED = [
    "tests.support.processes",
    "transformer_lens",
    "torch.distributed",
    "tda_bias.heads.head_bias",
]


@dataclass(frozen=True)
class Ended:
    """A process that has ended: its exit code, and what it has printed."""

    code: int
    out: str
    error: str


def launch(
    commands: list[list[str]], count: int, *, dying: tuple[int, str] | None = None
) -> list[Ended]:
    """The same commands, one after the other, in several processes that meet once.

    Args:
        commands: Their arguments.
        count: How many processes.
        dying: The number of one of them, and the code that it runs before.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        place = {"WORLD_SIZE": count, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
        running = []
        for rank in range(count):
            told = {**place, "RANK": rank, "LOCAL_RANK": rank}
            before = dying[1] if dying is not None and dying[0] == rank else ""
            files = [Path(folder, f"{rank}.{name}") for name in ("out", "error")]
            process = context.Process(target=_run, args=(commands, told, before, *files))
            process.start()
            running.append((process, files))
        for process, _ in running:
            process.join(timeout=300)
        return [
            Ended(process.exitcode, *(path.read_text() for path in files))
            for process, files in running
        ]


def _run(
    commands: list[list[str]], place: dict[str, object], before: str, out: Path, error: Path
) -> None:
    """What each of the processes does."""
    sys.stdout, sys.stderr = out.open("w"), error.open("w")
    os.environ.update({name: str(value) for name, value in place.items()})
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from tdabias_cli.main import run

    exec(before)
    status = max(run(arguments) for arguments in commands)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def results(folder: Path) -> dict[str, bytes]:
    """Tables and weights of a run and of runs inside it, without saved parts."""
    endings = (".csv", ".parquet", ".safetensors")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in endings
    }
