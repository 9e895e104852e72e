"""The cost of ``head_bias`` against the forward pass that nobody can avoid.

Three processes, each with the same model and texts, run in turn: (a) the bare Hugging Face eager
forward over the texts in batches of 32 sorted by length; (b) ``head_bias`` end to end; (c) as (b)
without running shared prefixes once. Each is run several times; medians count. Then all of it again
beside a program that multiplies matrices on all cores.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.load import MACHINES

RUNS = 3
BATCH = 32


def bare_forward(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """What any method that needs attention must at least do."""
    import torch

    ids = sorted((tokenizer(text)["input_ids"] for text in texts), key=len)
    with torch.inference_mode():
        for start in range(0, len(ids), BATCH):
            chosen = ids[start : start + BATCH]
            padded = torch.zeros(len(chosen), max(map(len, chosen)), dtype=torch.long)
            mask = torch.zeros_like(padded)
            for row, one in enumerate(chosen):
                padded[row, : len(one)] = torch.tensor(one)
                mask[row, : len(one)] = 1
            model(input_ids=padded, attention_mask=mask, use_cache=False)


def child(which: str) -> dict[str, Any]:
    """One measurement in a process of its own: seconds per run, stages, peak memory."""
    from tda_bias import HeadBiasConfig, head_bias, load_triples
    from tda_bias.models.load import bridge_model, load_language_model

    triples = load_triples(os.environ["TDABIAS_STEREOSET"], category="gender")
    loaded = load_language_model("smollm2-135m", device="cpu", attention="eager")
    hf_model, tokenizer = loaded.hf_model, loaded.tokenizer
    runs, stages = [], []
    if which == "forward":
        texts = [text for triple in triples for text in triple.texts()]
        for _ in range(RUNS):
            start = time.perf_counter()
            bare_forward(hf_model, tokenizer, texts)
            runs.append(time.perf_counter() - start)
    else:
        model = bridge_model(hf_model, tokenizer, name="smollm2-135m")
        config = HeadBiasConfig(share_prefix="auto" if which == "shared" else "never")
        for _ in range(RUNS):
            start = time.perf_counter()
            result = head_bias(model, triples, config=config)
            runs.append(time.perf_counter() - start)
            stages.append(result.record["seconds"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"runs": runs, "stages": stages, "peak_mb": peak, "triples": len(triples)}


def measure(which: str) -> dict[str, Any]:
    """Run ``child`` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.bench_heads", which]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(machine: str) -> None:
    """Print the measurements on an idle or a busy machine."""
    found = {which: measure(which) for which in ("forward", "shared", "plain")}
    bare = statistics.median(found["forward"]["runs"])
    triples = found["forward"]["triples"]
    print(f"SmolLM2-135M, {triples} triples, median of {RUNS} runs, {machine}\n")
    print("| what | seconds (min to max) | ratio to (a) | peak memory, MB |")
    print("|---|---|---|---|")
    names = {
        "forward": "(a) bare eager forward, batch 32, sorted by length",
        "shared": "(b) `head_bias` end to end",
        "plain": "(c) the same with `share_prefix: never`",
    }
    for which, name in names.items():
        runs = found[which]["runs"]
        median = statistics.median(runs)
        print(
            f"| {name} | {median:.1f} ({min(runs):.1f} to {max(runs):.1f}) | {median / bare:.2f} "
            f"| {found[which]['peak_mb']:.0f} |"
        )
    for stage in ("forward", "topology", "statistic", "inference"):
        median = statistics.median(run[stage] for run in found["shared"]["stages"])
        print(f"| of (b): {stage} | {median:.2f} | {median / bare:.3f} | |")
    print()


def main() -> None:
    """Print the table, and again beside another program."""
    if not os.environ.get("TDABIAS_STEREOSET"):
        print("skipped: set TDABIAS_STEREOSET to StereoSet's intersentence half as JSON Lines")
        return
    for machine, state in MACHINES.items():
        with state():
            table(machine)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(child(sys.argv[1])))
    else:
        main()
