"""The cost of ``head_bias`` against the forward pass that nobody can avoid.

Processes of their own, each with the same model and texts, run in turn: (a) the bare Hugging Face
eager forward over the texts in batches of 32 sorted by length; (b) ``head_bias`` end to end. Once
over the triples alone and once with the twins' stereotype and anti-stereotype texts beside them;
then with the other summaries of a pattern. Each is run several times; medians count.
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

RUNS = 3
BATCH = 32


def bare_forward(model: Any, tokenizer: Any, texts: list[str]) -> None:
    """The least that any method does that needs attention."""
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
    from tda_bias.twins import make_twins
    from tda_bias.types import ROLES

    which, _, with_twins = which.partition("+")
    which, _, summary = which.partition(":")
    triples = load_triples(os.environ["TDABIAS_STEREOSET"], category="gender")
    twins = make_twins(triples) if with_twins else None
    loaded = load_language_model("smollm2-135m", device="cpu", attention="eager")
    hf_model, tokenizer = loaded.hf_model, loaded.tokenizer
    runs, stages = [], []
    if which == "forward":
        texts = [text for triple in triples for text in triple.texts()]
        for twin in (twin for t in triples for twin in (twins.of(t) if twins else ())):
            texts += twin.texts()[: len(ROLES) - 1]
        for _ in range(RUNS):
            start = time.perf_counter()
            bare_forward(hf_model, tokenizer, texts)
            runs.append(time.perf_counter() - start)
    else:
        model = bridge_model(hf_model, tokenizer, name="smollm2-135m")
        for _ in range(RUNS):
            start = time.perf_counter()
            config = HeadBiasConfig(summary=summary or "graph")
            result = head_bias(model, triples, twins=twins, config=config)
            runs.append(time.perf_counter() - start)
            stages.append(result.record.seconds)
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


# The first is the usual one.
SUMMARIES = ("graph", "graph-exact", "attention", "flag")
NAMES = {
    "forward": "(a) bare eager forward, batch 32, sorted by length",
    "heads": "(b) `head_bias` end to end",
}


def table(*, twins: bool) -> None:
    """Print the measurements."""
    measured = {way: measure(f"{way}+twins" if twins else way) for way in NAMES}
    bare = statistics.median(measured["forward"]["runs"])
    texts = f"{measured['forward']['triples']} triples" + (" and their twins" if twins else "")
    print(f"SmolLM2-135M, {texts}, median of {RUNS} runs\n")
    print("| what | seconds (min to max) | ratio to (a) | peak memory, MB |")
    print("|---|---|---|---|")
    for way in NAMES:
        runs = measured[way]["runs"]
        median = statistics.median(runs)
        print(
            f"| {NAMES[way]} | {median:.1f} ({min(runs):.1f} to {max(runs):.1f}) "
            f"| {median / bare:.2f} | {measured[way]['peak_mb']:.0f} |"
        )
    for stage in ("forward", "topology", "statistic", "inference"):
        median = statistics.median(run[stage] for run in measured["heads"]["stages"])
        print(f"| of (b): {stage} | {median:.2f} | {median / bare:.3f} | |")
    print()


def table_of_summaries() -> None:
    """Print what other summaries take beside the usual one, with twins."""
    measured = {name: measure(f"heads:{name}+twins") for name in SUMMARIES}
    usual = statistics.median(measured[SUMMARIES[0]]["runs"])
    print("| summary | seconds (min to max) | ratio to `graph` | topology | peak memory, MB |")
    print("|---|---|---|---|---|")
    for name, of in measured.items():
        median = statistics.median(of["runs"])
        topology = statistics.median(run["topology"] for run in of["stages"])
        print(
            f"| `{name}` | {median:.1f} ({min(of['runs']):.1f} to {max(of['runs']):.1f}) "
            f"| {median / usual:.2f} | {topology:.1f} | {of['peak_mb']:.0f} |"
        )
    print()


def main() -> None:
    """Print the tables: without and with twins, and the summaries."""
    if not os.environ.get("TDABIAS_STEREOSET"):
        print("skipped: set TDABIAS_STEREOSET to StereoSet's intersentence half as JSON Lines")
        return
    table(twins=False)
    table(twins=True)
    table_of_summaries()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(child(sys.argv[1])))
    else:
        main()
