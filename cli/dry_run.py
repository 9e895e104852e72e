"""``tdabias heads --dry-run``: what the run will take, without running it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from tda_bias.runs.text import counted

from .loading import hooked_model, texts_of
from .output import Output
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.cost import Cost

    from .heads_settings import HeadsSettings

_STAGES = {
    "forward": "forward passes",
    "births and deaths": "births and deaths",
    "comparison": "comparison of texts",
    "inference": "tests",
}


def dry_run(settings: HeadsSettings) -> Output:
    """Load texts and model, compute for a few seconds, and say what all of it would take.

    Raises:
        InputError: as the run itself would.
    """
    import torch

    from tda_bias.cost import estimated_cost

    console = Console(stderr=True, quiet=settings.quiet)
    triples, twins, _ = texts_of(settings, console)
    model = hooked_model(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        device_map=settings.device_map,
        console=console,
    )
    with console.status("computing for a few seconds"):
        cost = estimated_cost(model, triples, twins=twins, config=settings.analysis())
    where = (
        counted(torch.get_num_threads(), "thread") if model.device.type == "cpu" else "one process"
    )
    return output(cost, f"{model.name} · {settings.named}", f"{model.device}, {where}")


def output(cost: Cost, title: str, where: str) -> Output:
    """The table, and what it stands on."""
    import pandas as pd

    total = sum(cost.seconds.values())
    memory = cost.model_bytes + cost.pass_bytes + cost.group_bytes + cost.result_bytes
    rows = [
        ("groups", f"{cost.groups:,}"),
        ("texts, twins included", f"{cost.texts:,}"),
        ("tokens; of the longest text", f"{cost.tokens:,}; {cost.longest:,}"),
        ("tokens run (shared beginnings once)", f"{cost.tokens_run:,}"),
        ("operations of the forward passes", f"{cost.flops:.2e}"),
        ("memory: weights", bytes_text(cost.model_bytes)),
        ("memory: a forward pass, at most", bytes_text(cost.pass_bytes)),
        ("memory: a group, at most", bytes_text(cost.group_bytes)),
        ("memory: results; as much is saved", bytes_text(cost.result_bytes)),
        ("memory in all, at most", bytes_text(memory)),
        ("temporary files", bytes_text(cost.temporary_bytes)),
        *((f"time: {_STAGES[name]}", time_text(value)) for name, value in cost.seconds.items()),
        ("time in all", time_text(total)),
    ]
    return Output(
        shown=[
            uncut_table(
                f"{title} · what a run takes", ("", "expected"), [list(r) for r in rows], left=1
            ),
            f"Time is that of {cost.trial_contexts} triples of a middling group "
            f"({cost.trial_seconds:.1f} s on {where}), scaled; nothing was saved. Several "
            "processes (torchrun, --shard) share all but the tests.",
        ],
        values={**asdict(cost), "memory_bytes": memory, "seconds_in_all": total},
        rows=pd.DataFrame(rows, columns=["what", "expected"]),
    )


def bytes_text(size: float) -> str:
    """Bytes in the unit that leaves one to three digits in front of the point."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def time_text(seconds: float) -> str:
    """Seconds in the unit a person would name."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (48 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"
