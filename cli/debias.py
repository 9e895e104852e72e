"""``tdabias debias``: train chosen heads for less bias, beside other choices."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator
from rich.console import Console

from tda_bias.runs.text import counted
from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_SEED, Category, HeadId, InputError

from .loading import (
    hooked_model,
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
    remark_lines,
    triples_record,
)
from .options import command
from .output import Finding, Output
from .processes import team_of
from .run_folder import run_folder
from .settings import Device, FilePath, Name, Precision, SharedRunSettings
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.debias.protocol import Protocol
    from tda_bias.debias.result import DebiasRun
    from tda_bias.models.load import LanguageModel, LoadedModel
    from tda_bias.runs.work import Team
    from tda_bias.types import Triple

RANKINGS = (
    "evidence", "published", "importance", "effect", "mediation", "gates", "bottom", "file",
)  # fmt: skip
How = Literal["gates", "tune", "lora"]


class DebiasSettings(SharedRunSettings):
    """Options of ``tdabias debias``."""

    model: Name = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )
    category: Category = Field(description="gender, profession, race or religion")
    data: Name = Field(
        "stereoset", description="stereoset (the hub), starter, or a file of triples"
    )
    twins: Name = Field("auto", description="auto, none, or a file that `tdabias twins` wrote")
    preset: Literal["smoke", "paper"] = Field(
        "smoke",
        description="smoke (one fold, minutes) or paper (everything); the rest overrides it",
    )
    how: How = Field(
        "gates",
        description="what learns: gates (one number per head, folded into the weights), tune (the "
        "heads' weights), lora (an adapter on them)",
    )
    by: str | None = Field(
        None,
        description="rankings that choose heads, with commas: evidence, published, importance, "
        "effect, mediation, gates, bottom, file; random heads are drawn like the first",
    )
    heads: FilePath | None = Field(None, description="JSON file of heads, for the ranking file")
    top: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="heads that are chosen (default: a tenth)"
    )
    n_random: int | None = Field(None, ge=1, le=1000, description="random sets of heads")
    controls: bool | None = Field(
        None, description="also train the whole model, a placebo, and on neutral text alone"
    )
    folds: int | None = Field(None, ge=1, le=5, description="folds of targets that are run, of 5")
    epochs: int | None = Field(None, ge=1, le=100, description="passes over the training items")
    rates: int | None = Field(None, ge=1, le=3, description="learning rates that are tried")
    train_items: int | None = Field(
        None, ge=4, le=MAX_COUNT, description="items of a fold that train, at most"
    )
    check_items: int | None = Field(
        None,
        ge=4,
        le=MAX_COUNT,
        description="validation items of a fold, and test items, at most",
    )
    loss: Literal["twins", "equalise"] = Field(
        "twins", description="twins (what changes with the target) or equalise (all differences)"
    )
    kl: float = Field(1.0, ge=0, le=1000, description="weight of the divergence from the original")
    save: str | None = Field(
        None,
        description="condition whose model is saved: a ranking of --by, or all (default: what does "
        "best on the validation targets)",
    )
    text: Name = Field(
        "self",
        description="neutral text: self (the model's own), wikitext2 (the hub), or a text file",
    )
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="triples of each target")
    precision: Precision = Field(
        "float32",
        description="of matrix products while training and checking: float32, or bfloat16, about "
        "twice as fast on many processors; what is learned and saved is float32",
    )
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:N, mps")
    batch_size: int = Field(
        36, ge=1, le=MAX_BATCH, description="texts per forward pass where nothing is learned"
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    out: FilePath = Field(description="folder for the tables, the model and its card")
    resume: bool = Field(True, description="reuse trainings that are finished")

    @field_validator("by")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        names = [name.strip() for name in (value or "").split(",") if name.strip()]
        unknown = [name for name in names if name not in RANKINGS]
        if value is not None and (unknown or not names or len(set(names)) < len(names)):
            raise ValueError(f"must name rankings among {', '.join(RANKINGS)}; got {value!r}")
        return value and ",".join(names)

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        how = {"device", "batch_size", "resume", "shard"}
        left_out = {*how, "out", "overwrite", "format", "quiet"}
        return self.model_dump(mode="json", exclude=left_out)


@command(DebiasSettings)
def debias(settings: DebiasSettings) -> None:
    """Train chosen heads for less bias, and compare with random and all heads."""
    team = team_of(settings)
    from_file = _heads_of_file(settings)
    triples, twins, about_twins = _texts(settings)
    console = Console(stderr=True, quiet=settings.quiet)
    with (
        interruptible("trainings", settings.out),
        run_folder(settings.out, "debias", settings, team=team) as refuse,
    ):
        reach_hub_for(settings.model, also=settings.text == "wikitext2")
        model = _trainable_model(settings, console)
        refuse(model)
        with out_of_memory_in_one_line(model.device, settings.batch_size):
            protocol = _protocol(settings, model, triples)
            run = _run(settings, model, triples, twins, about_twins, from_file, protocol, team)
    output(run, settings.out).print(settings)


def _trainable_model(settings: DebiasSettings, console: Console) -> LanguageModel:
    from tda_bias.debias.learners import refuse_untrainable
    from tda_bias.debias.lora import require_peft

    if settings.how == "lora":
        require_peft()
    refuse_untrainable(settings.model)
    return language_model(settings.model, device=settings.device, dtype="float32", console=console)


def _protocol(settings: DebiasSettings, model: LanguageModel, triples: list[Triple]) -> Protocol:
    from tda_bias.debias.protocol import protocol_of
    from tda_bias.models.attention import attention_layers

    same = (
        "n_random", "controls", "epochs", "train_items", "check_items", "top", "how", "loss", "kl",
        "precision", "seed",
    )  # fmt: skip
    asked = {
        **{name: getattr(settings, name) for name in same},
        "by": settings.by and tuple(settings.by.split(",")),
        "folds_run": settings.folds,
        "n_rates": settings.rates,
    }
    return protocol_of(
        settings.preset,
        asked,
        n_heads=sum(layer.n_heads for layer in attention_layers(model)),
        n_targets=len({triple.group for triple in triples}),
        save=settings.save,
    )


def _run(
    settings: DebiasSettings,
    model: LanguageModel,
    triples: list[Triple],
    twins: list[tuple[Triple, ...]],
    about_twins: dict[str, Any] | None,
    from_file: tuple[list[HeadId], str | None] | None,
    protocol: Protocol,
    team: Team,
) -> DebiasRun:
    from tda_bias.debias.experiment import fixed_experiment
    from tda_bias.debias.result import run_debias
    from tda_bias.debias.timing import cost_in_words
    from tda_bias.plots.debias import plot_frontier
    from tda_bias.runs.figures import print_style

    def load_hooked() -> LoadedModel:
        quiet = Console(stderr=True, quiet=True)
        return hooked_model(settings.model, device=settings.device, dtype="float32", console=quiet)

    console = Console(stderr=True, quiet=settings.quiet)
    experiment = fixed_experiment(
        model, triples, twins, protocol, settings.out, load_hooked=load_hooked,
        from_file=from_file, about_twins=about_twins, text=settings.text,
        batch_size=settings.batch_size, resume=settings.resume, overwrite=settings.overwrite,
        team=team,
    )  # fmt: skip
    if not settings.quiet:
        console.print(cost_in_words(experiment, team), highlight=False, soft_wrap=True)
    title = f"{model.name} · {settings.category}"
    with progress_bar(console, title, "steps") as bar, print_style():
        return run_debias(
            experiment,
            settings.out,
            category=settings.category,
            data=triples_record(settings.data, settings.category),
            settings=settings.model_dump(mode="json"),
            save=settings.save,
            progress=bar,
            draw=plot_frontier,
        )


# -- what is read ----------------------------------------------------------------------------------


def _texts(
    settings: DebiasSettings,
) -> tuple[list[Triple], list[tuple[Triple, ...]], dict[str, Any] | None]:
    """The triples that can be trained on, the twins of each, and how those came about."""
    from tda_bias.debias.protocol import refuse_evaluation_only
    from tda_bias.triples import comes_from_hub, load_triples
    from tda_bias.twins import load_twins, make_twins

    refuse_evaluation_only(settings.data)
    reach_hub_for(settings.model, also=comes_from_hub(settings.data))
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


def _heads_of_file(settings: DebiasSettings) -> tuple[list[HeadId], str | None] | None:
    from tda_bias.ablation.head_weights import read_export

    asked = "file" in (settings.by or "").split(",")
    if asked != (settings.heads is not None):
        raise InputError("`by` file and --heads FILE go together; give both, or neither")
    if settings.heads is None:
        return None
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
    known = not math.isnan(row["low"])  # of fewer than six targets
    interval = f"\n{row['low']:.3f} to {row['high']:.3f}" if known else ""
    return [
        str(row["condition"]),
        "all" if row["how"] == "full" else str(row["heads"]),
        f"{row['beta']:.3f}{interval}",
        f"{row['rms']:.3f}",
        f"{row['perplexity']:+.1f}",
        f"{row['lms']:.1f}",
        str(row["guard"]).removesuffix(" pass").replace(" of ", "/"),
        "" if math.isnan(row["p"]) else f"{row['p']:.2f}",
    ]


def saved(folder: Path) -> Output:
    """The output of a finished run."""
    from tda_bias.debias.result import DebiasRun

    return output(DebiasRun.load(folder), folder)


def output(run: DebiasRun, folder: Path) -> Output:
    """The table of conditions, and its meaning in words."""
    record, protocol = run.record, run.record.protocol
    title = f"{record.model.name} · {record.category} · {protocol.how} · beta on unseen targets"
    headings = ("condition", "heads", "beta (95 %)", "rms", "ppl %", "lms", "guard", "p")
    table = run.conditions.to_dict("records")
    rows = [_cells(row) for row in table]
    shown = uncut_table(title, headings, rows, left=1)
    found = Finding(
        result=[record.verdict],
        control=[
            f"Random heads: {counted(protocol.n_random, 'set')} {record.matching}. Guard: "
            "perplexity of neutral text at most +2 %, language-model score at most a point lower; "
            "of random sets, how many pass.",
        ],
        power=[
            f"With {counted(protocol.n_random, 'random set')} no p can be below "
            f"{1 / (1 + protocol.n_random):.2f}."
        ],
        next=[
            f"tdabias compare {quote(record.model.name)} {quote(str(folder / 'model'))}",
            f"tdabias report {quote(str(folder))}",
        ],
        details=[
            *record.broken,
            f"Beta: nats per token, items of targets that a training never saw; "
            f"{protocol.folds_run} of {protocol.n_folds} folds. p: (1 + random sets that leave as "
            "little at 1 % perplexity) / (1 + random sets).",
        ],
    )
    lines = [
        *remark_lines(record.data),
        f"Files: {folder}/ (conditions.csv, heads.json, frontier.png, model/ with its card, ...)",
    ]
    values = {
        "finding": found.as_values(),
        "record": record.model_dump(mode="json"),
        "conditions": table,
    }
    return Output([found, shown, *lines], values, run.conditions)
