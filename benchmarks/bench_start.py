"""The fixed cost of a command beside ``import torch, transformers``.

A job of two seconds, ``heads`` on three starter triples of each group, in a process of its own:
when its first and its last line are there, and the prompt. Before each run the imports that any
program with a model needs are timed, and ratios are to these.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 3
COMMAND = "heads --model smollm2-135m --category gender --data starter --limit 3 --top 1 --out"


def seconds_of_imports() -> dict[str, float]:
    """Wall and processor time of the imports."""
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch, transformers"], check=True)
    return {"imports": time.perf_counter() - start, "imports, processor": processor_since(before)}


def seconds_of_command(folder: str) -> dict[str, float]:
    """Seconds from the start to the first line, the last one and the prompt; processor time."""
    before, start = os.times(), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "tda_bias", *COMMAND.split(), folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = [time.perf_counter() - start for _ in process.stdout or ()]
    if process.wait():
        sys.exit("the command failed")
    end = time.perf_counter() - start
    processor = processor_since(before)
    return {
        "first line": lines[0],
        "last line": lines[-1],
        "prompt": end,
        "last line to prompt": end - lines[-1],
        "processor": processor,
    }


def processor_since(before: os.times_result) -> float:
    """Processor time of processes that have ended since."""
    now = os.times()
    return now.children_user + now.children_system - before[2] - before[3]


def main() -> None:
    """Print the table."""
    runs = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(seconds_of_imports() | seconds_of_command(f"{folder}/run"))
    print(f"`tdabias {COMMAND} ...`, median of {RUNS} runs\n")
    print("| until | seconds | ratio to the imports |")
    print("|---|---|---|")
    for name in runs[0]:
        by = "imports, processor" if "processor" in name else "imports"
        ratio = statistics.median(run[name] / run[by] for run in runs)
        print(f"| {name} | {statistics.median(run[name] for run in runs):.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
