"""Another program on the machine.

Machines are shared, and code that waits for all its threads at every step suffers most.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

_MULTIPLY = """
import os, torch
torch.set_num_threads(os.cpu_count())
matrix = torch.rand(2000, 2000)
print("ready", flush=True)
while True:
    matrix @ matrix
"""


@contextmanager
def another_program() -> Iterator[None]:
    """A process that multiplies matrices on all cores for as long as the block runs."""
    process = subprocess.Popen([sys.executable, "-c", _MULTIPLY], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


# What a table says of the machine, and what makes it so.
MACHINES = {"idle": nullcontext, "beside another program": another_program}
