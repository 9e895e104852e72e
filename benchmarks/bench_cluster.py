"""Two workers of one thread beside one process of two threads, in turn.

``heads`` on gender triples, from the shell's command to its prompt: starting the workers, of which
each loads the model, and the tests at the end, which are not shared, count too.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 3
LIMIT = 24
DATA = os.environ.get("TDABIAS_STEREOSET", "starter")
COMMAND = f"heads --model smollm2-135m --category gender --data {DATA} --limit {LIMIT} --quiet"
WAYS = {
    "one process of two threads": ("2", []),
    "two workers of one thread": ("1", ["--cluster", "local:2"]),
}


def seconds(threads: str, options: list[str]) -> float:
    """Seconds of a command in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*COMMAND.split(), "--out", f"{folder}/run", *options]
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "tda_bias", *words],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": threads},
        )
        return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    runs = [{way: seconds(*how) for way, how in WAYS.items()} for _ in range(RUNS)]
    first = next(iter(WAYS))
    print(f"`tdabias {COMMAND} ...`, {RUNS} runs in turn\n")
    print("| way | seconds (min to max) | ratio, median |")
    print("|---|---|---|")
    for way in WAYS:
        own = [run[way] for run in runs]
        ratio = statistics.median(run[way] / run[first] for run in runs)
        middle, least, most = statistics.median(own), min(own), max(own)
        print(f"| {way} | {middle:.1f} ({least:.1f} to {most:.1f}) | {ratio:.2f} |")


if __name__ == "__main__":
    main()
