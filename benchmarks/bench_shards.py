"""The memory of a shard beside that of a process that does everything.

``tdabias heads`` on StereoSet's triples of all categories and a model of many small heads with
random weights, so that what is kept of the data outweighs the model: the highest resident memory of
a whole run, of one of four shards, and of the largest group alone, which stands for the program,
the model and what works on a group. What the others have above it is the data's share. Each in a
process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

LAYERS, HEADS, WIDTH = 24, 16, 64
# Triples of each target, so that the whole takes a minute.
LIMIT = 10
SHARDS = 4


def save_model(folder: Path) -> None:
    """Llama with random weights, with SmolLM2's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tda_bias.models.load import load_language_model

    tokenizer = load_language_model("smollm2-135m", device="cpu").tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def child(arguments: list[str]) -> dict[str, float]:
    """Run a command line here: seconds and the highest resident memory, MB."""
    from tdabias_cli.main import run

    start = time.perf_counter()
    status = run(arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"status": status, "seconds": time.perf_counter() - start, "peak": peak}


def measured(*arguments: str) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.bench_shards", "heads", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or json.loads(done.stdout.splitlines()[-1])["status"]:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def largest_group(data: str) -> str:
    """The target with the most tokens, roughly: those of its first triples' texts."""
    from tda_bias import load_triples

    size: dict[str, int] = {}
    for triple in load_triples(data, category="all", limit=LIMIT):
        size[triple.group] = size.get(triple.group, 0) + sum(map(len, triple.texts()))
    return max(size, key=lambda name: size[name])


def main() -> None:
    """Print the table."""
    data = os.environ.get("TDABIAS_STEREOSET")
    if not data:
        print("skipped: set TDABIAS_STEREOSET to StereoSet's intersentence half as JSON Lines")
        return
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_model(folder / "model")
        common = ["--model", str(folder / "model"), "--category", "all", "--data", data]
        common += ["--limit", str(LIMIT), "--device", "cpu", "--quiet"]
        alone = measured(*common, "--group", largest_group(data), "--out", str(folder / "one"))
        rows = {
            "the largest group alone": alone,
            f"shard 1/{SHARDS}": measured(
                *common, "--shard", f"1/{SHARDS}", "--out", str(folder / "parts")
            ),
            "the whole": measured(*common, "--out", str(folder / "whole")),
        }
        kept = sum(path.stat().st_size for path in (folder / "whole" / "groups").iterdir())
    above = {name: row["peak"] - alone["peak"] for name, row in rows.items()}
    print(
        f"{LAYERS * HEADS} heads, {LIMIT} triples of each target; saved parts {kept / 1e6:.0f} MB\n"
    )
    print("| process | seconds | highest memory, MB | the data's share, MB | of the whole's |")
    print("|---|---|---|---|---|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['seconds']:.0f} | {row['peak']:.0f} | {above[name]:.0f} "
            f"| {above[name] / above['the whole']:.2f} |"
        )
    print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(child(sys.argv[1:])))
    else:
        main()
