"""``tdabias debias``: train chosen heads until less bias is left, beside other choices."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tda_bias.runs.text import counted
from tda_bias.types import HeadId, InputError

from .debias_settings import DebiasSettings
from .loading import (
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    reach_hub_for,
    remark_lines,
)
from .options import command
from .output import Output
from .processes import team_of
from .run_folder import run_folder
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.debias.record import DebiasRun
    from tda_bias.types import Triple

_PROBES = 3


@command(DebiasSettings)
def debias(settings: DebiasSettings) -> None:
    """Train chosen heads until less bias is left, and compare with random and all heads."""
    from .debias_run import computed, prepare, print_cost

    team = team_of(settings)
    from_file = _heads_of_file(settings)
    triples, twins, about_twins = _texts(settings)
    console = Console(stderr=True, quiet=settings.quiet)
    with (
        interruptible("trainings", settings.out),
        run_folder(settings.out, "debias", settings, team=team) as refuse,
    ):
        reach_hub_for(settings.model, also=settings.text == "wikitext2")
        model = language_model(
            settings.model, device=settings.device, dtype="float32", console=console
        )
        refuse(model)
        with out_of_memory_in_one_line(model.device, settings.batch_size):
            prepared = prepare(settings, model, triples, twins, from_file, about_twins, team)
            print_cost(prepared, console, team)
            run = computed(settings, prepared, console)
    output(run, settings.out).print(settings.format, quiet=settings.quiet)


# -- what is read ----------------------------------------------------------------------------------


def _texts(
    settings: DebiasSettings,
) -> tuple[list[Triple], list[tuple[Triple, ...]], dict[str, Any] | None]:
    """The triples that can be trained on, the twins of each, and how those came about."""
    from tda_bias.debias.sources import refuse_evaluation_only
    from tda_bias.triples import load_triples
    from tda_bias.twins import load_twins, make_twins

    refuse_evaluation_only(settings.data)
    reach_hub_for(settings.model, also=settings.data == "stereoset")
    triples = load_triples(settings.data, category=settings.category, limit=settings.limit)
    if settings.twins == "none":
        if settings.loss == "twins":
            raise InputError("`loss` twins needs twins; give --loss equalise with --twins none")
        return triples, [()] * len(triples), None
    whole = load_triples(settings.data, category=settings.category)
    made = make_twins(whole) if settings.twins == "auto" else load_twins(settings.twins, whole)
    kept = [triple for triple in triples if made.of(triple)]
    if not kept:
        raise InputError(
            f"no triple of `data` {settings.data} has a twin: {made.note or 'see tdabias twins'}"
        )
    if len(kept) < len(triples) and not settings.quiet:
        Console(stderr=True).print(
            f"{len(triples) - len(kept)} of {len(triples)} triples have no twin and are left out.",
            highlight=False,
        )
    return kept, [made.of(triple) for triple in kept], made.only(kept).record()


def _heads_of_file(settings: DebiasSettings) -> tuple[list[HeadId], str | None]:
    from tda_bias.ablation.head_weights import read_export

    asked = "file" in (settings.by or "").split(",")
    if asked != (settings.heads is not None):
        raise InputError("`by` file and --heads FILE go together; give both, or neither")
    if settings.heads is None:
        return [], None
    try:
        record = json.loads(settings.heads.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"`heads` {settings.heads}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"`heads` {settings.heads} is not JSON") from None
    heads = read_export(record)
    about = record.get("model")
    return heads, about.get("weights") if isinstance(about, dict) else None


# -- what is printed -------------------------------------------------------------------------------


def _cells(row: Mapping[Any, Any]) -> list[str]:
    return [
        str(row["arm"]),
        "all" if row["how"] == "full" else str(row["heads"]),
        f"{row['beta']:.3f}\n{row['low']:.3f} to {row['high']:.3f}",
        f"{row['rms']:.3f}",
        f"{row['perplexity']:+.1f}",
        f"{row['lms']:.1f}",
        str(row["guard"]).removesuffix(" pass").replace(" of ", "/"),
        "" if math.isnan(row["p"]) else f"{row['p']:.2f}",
    ]


def saved(folder: Path) -> Output:
    """The output of a finished run."""
    from tda_bias.debias.record import DebiasRun

    return output(DebiasRun.load(folder), folder)


def output(run: DebiasRun, folder: Path) -> Output:
    """The table of arms, and what it says in words."""
    record, protocol = run.record, run.record.protocol
    title = f"{record.model.name} · {record.category} · {protocol.how} · beta on unseen targets"
    headings = ("arm", "heads", "beta (95 %)", "rms", "ppl %", "lms", "guard", "p")
    rows = [_cells(row) for row in run.arms.to_dict("records")]
    shown = uncut_table(title, headings, rows, left=1)
    lines = [
        record.verdict,
        *record.broken,
        f"Beta: nats per token, items of targets that a training never saw; {protocol.folds_run} "
        f"of {protocol.n_folds} folds. p: share of {counted(protocol.n_random, 'random set')} "
        f"({record.matching}) that leave as little at 1 % perplexity; at least "
        f"{1 / (1 + protocol.n_random):.2f}. Guard: perplexity of neutral text at most +2 %, "
        "language-model score at most a point lower; of random sets, how many pass.",
        *remark_lines(record.data),
        f"Files: {folder}/ (arms.csv, heads.json, frontier.png, model/ with its card, ...)",
    ]
    values = {"record": record.model_dump(mode="json"), "arms": run.arms.to_dict("records")}
    return Output([shown, *lines], values, run.arms)
