"""``tdabias debias``: train chosen heads until less bias is left, beside other choices."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator
from rich.console import Console

from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_SEED, Category, HeadId, InputError

from .loading import (
    hooked_model,
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
)
from .options import command
from .output import Output
from .run_folder import run_folder
from .settings import Device, FilePath, Name, RunSettings
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.debias.protocol import Fold, Protocol
    from tda_bias.debias.record import DebiasRun
    from tda_bias.debias.study import ArmResult, Study
    from tda_bias.debias.texts import TwinTexts
    from tda_bias.models.load import LanguageModel, LoadedModel
    from tda_bias.types import Triple

RANKINGS = (
    "evidence", "published", "importance", "effect", "mediation", "gates", "bottom", "file",
)  # fmt: skip
How = Literal["gates", "tune", "lora"]
_PROBES = 3


class DebiasSettings(RunSettings):
    """Everything ``tdabias debias`` can be told."""

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
    train_items: int | None = Field(None, ge=4, description="items of a fold that train, at most")
    loss: Literal["twins", "equalise"] = Field(
        "twins", description="twins (what changes with the target) or equalise (all differences)"
    )
    kl: float = Field(1.0, ge=0, description="weight of the divergence from the original")
    text: Name = Field(
        "self",
        description="neutral text: self (the model's own), wikitext2 (the hub), or a text file",
    )
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="triples of each target")
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
        left_out = {"device", "batch_size", "out", "overwrite", "format", "quiet", "resume"}
        return self.model_dump(mode="json", exclude=left_out)


@command(DebiasSettings)
def debias(settings: DebiasSettings) -> None:
    """Train chosen heads until less bias is left, and compare with random and all heads."""
    from_file = _heads_of_file(settings)
    triples, twins, about_twins = _texts(settings)
    about = settings.numbers_depend_on()
    console = Console(stderr=True, quiet=settings.quiet)
    with (
        interruptible("trainings", settings.out),
        run_folder(settings.out, "debias", settings=about, overwrite=settings.overwrite) as refuse,
    ):
        reach_hub_for(settings.model, also=settings.text == "wikitext2")
        model = language_model(
            settings.model, device=settings.device, dtype="float32", console=console
        )
        refuse(model)
        with out_of_memory_in_one_line(model.device, settings.batch_size):
            prepared = _prepare(settings, model, triples, twins, from_file, about_twins)
            print_cost(prepared, console)
            found = _computed(settings, prepared, console)
    output(found, settings.out).print(settings.format, quiet=settings.quiet)


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
    found = make_twins(whole) if settings.twins == "auto" else load_twins(settings.twins, whole)
    kept = [triple for triple in triples if found.of(triple)]
    if not kept:
        raise InputError(
            f"no triple of `data` {settings.data} has a twin: {found.note or 'see tdabias twins'}"
        )
    if len(kept) < len(triples) and not settings.quiet:
        Console(stderr=True).print(
            f"{len(triples) - len(kept)} of {len(triples)} triples have no twin and are left out.",
            highlight=False,
        )
    return kept, [found.of(triple) for triple in kept], found.only(kept).record()


def _heads_of_file(settings: DebiasSettings) -> tuple[list[HeadId], str | None]:
    from tda_bias.behaviour.head_weights import read_export

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


def protocol_of(settings: DebiasSettings, *, n_heads: int, n_targets: int) -> Protocol:
    """The preset, with what was asked for otherwise; as many folds as there are targets for."""
    from tda_bias.debias.protocol import N_FOLDS, PRESETS, Protocol

    asked: dict[str, Any] = {
        "n_folds": max(2, min(N_FOLDS, n_targets)),
        "by": settings.by and tuple(settings.by.split(",")),
        "n_random": settings.n_random,
        "controls": settings.controls,
        "folds_run": settings.folds,
        "epochs": settings.epochs,
        "n_rates": settings.rates,
        "train_items": settings.train_items,
        "top": settings.top or max(1, n_heads // 10),
        "how": settings.how,
        "loss": settings.loss,
        "kl": settings.kl,
        "seed": settings.seed,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return Protocol(**{**PRESETS[settings.preset], **given})


@dataclass(frozen=True)
class Prepared:
    """What is fixed before the first step.

    Attributes:
        study: The comparison.
        weights: Hash of the untouched model's weights.
        identity: Hash of the protocol and of what it is applied to.
        fixed: When it was written down.
        twins: How twins came about.
    """

    study: Study
    weights: str
    identity: str
    fixed: str
    twins: dict[str, Any] | None

    @property
    def texts(self) -> TwinTexts:
        """Items and model."""
        return self.study.texts

    @property
    def groups(self) -> list[str]:
        """Target of every item."""
        return [triple.group for triple in self.texts.triples]

    def targets(self, fold: Fold) -> dict[str, list[str]]:
        """Names of the targets of a fold's parts."""
        parts = {"train": fold.train, "stop": fold.stop, "test": fold.test}
        return {name: sorted({self.groups[i] for i in own}) for name, own in parts.items()}


def _prepare(
    settings: DebiasSettings,
    model: LanguageModel,
    triples: list[Triple],
    twins: list[tuple[Triple, ...]],
    from_file: tuple[list[HeadId], str | None],
    about_twins: dict[str, Any] | None,
) -> Prepared:
    from tda_bias.debias.lora import require_peft
    from tda_bias.debias.neutral import neutral_text
    from tda_bias.debias.protocol import folds, protocol_hash
    from tda_bias.debias.rankings import chosen_from_file
    from tda_bias.debias.study import Study, parts_folder
    from tda_bias.debias.texts import TwinTexts
    from tda_bias.models.attention import attention_layers
    from tda_bias.records.parts import open_parts
    from tda_bias.triples import triple_ids

    if settings.how == "lora":
        require_peft()
    weights = model.weight_hash()
    n_heads = sum(layer.n_heads for layer in attention_layers(model))
    n_targets = len({triple.group for triple in triples})
    protocol = protocol_of(settings, n_heads=n_heads, n_targets=n_targets)
    if protocol.top >= n_heads:
        raise InputError(f"`top` must be below the model's {n_heads} heads; got {protocol.top}")
    if settings.heads is not None:
        chosen_from_file(from_file[0], from_file[1], weights)
    dealt = folds(triples, protocol)
    texts = TwinTexts(model, triples, twins, batch_size=settings.batch_size)
    neutral = neutral_text(model, settings.text, seed=settings.seed)
    applied = {
        "weights": weights,
        "texts": triple_ids(triples),
        "twins": (about_twins or {}).get("hash"),
        "neutral": [neutral.source, neutral.revision],
        "heads": [str(head) for head in from_file[0]],
    }
    identity = protocol_hash(protocol, applied)
    store = open_parts(
        parts_folder(settings.out), {"protocol": identity}, resume=settings.resume,
        overwrite=settings.overwrite,
    )  # fmt: skip
    fixed = _fix(settings, protocol, identity)

    def load_hooked() -> LoadedModel:
        console = Console(stderr=True, quiet=True)
        return hooked_model(
            settings.model, device=settings.device, dtype="float32", console=console
        )

    study = Study(texts, neutral, protocol, dealt, store, load_hooked, tuple(from_file[0]))
    return Prepared(study, weights, identity, fixed, about_twins)


def _fix(settings: DebiasSettings, protocol: Protocol, identity: str) -> str:
    """Write the protocol down before the first step; when that was, also for a resumed run.

    Raises:
        InputError: if trainings of another protocol are there, and are not to be lost.
    """
    from tda_bias.debias.record import PROTOCOL
    from tda_bias.debias.study import parts_folder
    from tda_bias.records.files import to_json, write_text
    from tda_bias.records.record import now

    path = settings.out / PROTOCOL
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["hash"] == identity:
            return str(before["fixed"])
    except (OSError, ValueError, KeyError, TypeError):
        before = None  # there is none yet, or what is there says nothing
    if before and any(parts_folder(settings.out).glob("*.npz")) and not settings.overwrite:
        raise InputError(
            f"{settings.out} holds trainings of another protocol (fixed {before.get('fixed')}); "
            "choose another --out, or start over with --no-resume"
        )
    fixed = now()
    content = {"hash": identity, "fixed": fixed, "protocol": protocol.model_dump(mode="json")}
    write_text(path, to_json(content))
    return fixed


def print_cost(prepared: Prepared, console: Console) -> None:
    """Say what is going to be done and how long that takes, from one step and one check."""
    from tda_bias.debias.study import cost

    trainings, steps = cost(prepared.study.protocol, prepared.study.dealt)
    step, check = prepared.study.seconds()
    checks = trainings * (
        3 + prepared.study.protocol.epochs * prepared.study.protocol.checks_per_epoch
    )
    minutes = (steps * step + checks * check) / 60
    console.print(
        f"{trainings} trainings of {steps // trainings} steps on average: about {minutes:.0f} "
        f"minutes here at most ({step:.1f} s a step, {check:.1f} s a check). Protocol "
        f"{prepared.identity[:12]}, fixed {prepared.fixed}.",
        highlight=False,
        soft_wrap=True,
    )


# -- the comparison --------------------------------------------------------------------------------


def _computed(settings: DebiasSettings, prepared: Prepared, console: Console) -> DebiasRun:
    from dataclasses import replace

    from tda_bias.debias import summary
    from tda_bias.debias.record import DebiasRecord, DebiasRun
    from tda_bias.models.record import model_record
    from tda_bias.plots.debias import plot_frontier
    from tda_bias.records.figures import print_style
    from tda_bias.records.record import DataRecord
    from tda_bias.triples import source_revision, triple_ids

    start = time.monotonic()
    protocol, texts = prepared.study.protocol, prepared.texts
    about_model = model_record(texts.model, weights=prepared.weights)
    title = f"{texts.model.name} · {settings.category}"
    with progress_bar(console, title, "steps") as bar:
        study = replace(prepared.study, progress=bar)
        results: list[ArmResult] = study.run()
        arm = summary.recommended(results)
        fold, trajectory, heads = study.recommended(arm)
    table = summary.arms_table(results, prepared.groups, protocol)
    said = summary.verdict(table, arm, protocol)
    row = {str(name): value for name, value in table.set_index("arm").loc[arm].items()}
    exported = _save_model(
        settings, prepared, arm, heads, trajectory.values, said, row, prepared.targets(fold)
    )
    source = DataRecord(source=settings.data, revision=source_revision(settings.data))
    neutral = study.neutral
    record = DebiasRecord(
        model=about_model,
        settings=settings.model_dump(mode="json"),
        data=source,
        category=settings.category,
        protocol=protocol,
        protocol_hash=prepared.identity,
        fixed=prepared.fixed,
        folds=[{"number": own.number, **prepared.targets(own)} for own in study.dealt],
        neutral={
            "source": neutral.source, "revision": neutral.revision, "width": neutral.learn.width,
            "learn": len(neutral.learn.ids), "watch": len(neutral.watch.ids),
            "report": len(neutral.report.ids),
        },
        matching=study.matching(study.dealt[0]),
        recommended=arm,
        verdict=said,
        broken=tuple(summary.broken(results)),
        twins=prepared.twins,
        seconds=round(time.monotonic() - start, 1),
    )  # fmt: skip
    run = DebiasRun(table, summary.frontier_table(results), record)
    with print_style():
        figure = plot_frontier(run.frontier)
    run.save(
        settings.out,
        trainings=summary.trainings_table(results),
        items=summary.items_table(results, prepared.groups, triple_ids(texts.triples)),
        heads=exported,
        figure=figure,
    )
    return run


def _save_model(
    settings: DebiasSettings,
    prepared: Prepared,
    arm: str,
    heads: tuple[HeadId, ...],
    values: dict[str, Any],
    verdict: str,
    row: dict[Any, Any],
    targets: dict[str, list[str]],
) -> dict[str, Any]:
    """Write the recommended model; what ``heads.json`` holds."""
    from tda_bias.behaviour.head_weights import export_record
    from tda_bias.debias.saving import model_card, save_debiased
    from tda_bias.models.record import model_record

    model = prepared.texts.model
    about_model = model_record(model, weights=prepared.weights).model_dump()
    gates = values.get("gates")
    rows: list[dict[str, Any]] = [
        {"layer": head.layer, "head": head.head}
        | ({} if gates is None else {"gate": float(gates[place])})
        for place, head in enumerate(heads)
    ]
    rule = {"arm": arm, "how": settings.how, "protocol": prepared.identity}
    exported = export_record(model.hf_model, rows, model=about_model, rule=rule)
    about = {
        "format": "tdabias debias 1",
        "protocol": prepared.identity,
        "model": settings.model,
        "original": prepared.weights,
        "category": settings.category,
        "data": settings.data,
        "items": len(prepared.groups),
        "neutral": "written by the model itself" if settings.text == "self" else settings.text,
        "how": settings.how,
        "arm": arm,
        "heads": [str(head) for head in heads],
        "targets": targets,
        "verdict": verdict,
    }
    probes = [triple.texts()[0] for triple in prepared.texts.triples[:_PROBES]]
    save_debiased(
        model, settings.how, heads, values, settings.out / "model",
        card=model_card(about, row), about=about, probes=probes, seed=settings.seed,
    )  # fmt: skip
    return exported


# -- what is printed -------------------------------------------------------------------------------


def _cells(row: Mapping[Any, Any]) -> list[str]:
    return [
        str(row["arm"]),
        "all" if row["how"] == "full" else str(row["heads"]),
        f"{row['beta']:.3f}",
        f"{row['low']:.3f} to {row['high']:.3f}",
        f"{row['rms']:.3f}",
        f"{row['perplexity']:+.1f}",
        f"{row['lms']:.1f}",
        str(row["guard"]),
        "" if math.isnan(row["p"]) else f"{row['p']:.2f}",
    ]


def saved(folder: Path) -> Output:
    """The output of a finished run."""
    from tda_bias.debias.record import DebiasRun

    return output(DebiasRun.load(folder), folder)


def output(found: DebiasRun, folder: Path) -> Output:
    """The table of arms, and what it says in words."""
    record, protocol = found.record, found.record.protocol
    title = f"{record.model.name} · {record.category} · {protocol.how} · beta on unseen targets"
    headings = ("arm", "heads", "beta", "95 %", "rms", "ppl %", "lms", "guard", "p")
    rows = [_cells(own) for own in found.arms.to_dict("records")]
    shown = uncut_table(title, headings, rows, left=1)
    lines = [
        record.verdict,
        *record.broken,
        f"Beta: nats per token, items of targets that a training never saw; {protocol.folds_run} "
        f"of {protocol.n_folds} folds. p: share of {protocol.n_random} random sets "
        f"({record.matching}) that leave as little at 1 % perplexity; at least "
        f"{1 / (1 + protocol.n_random):.2f}. Guard: perplexity of neutral text at most +2 %, "
        "language-model score at most a point lower.",
        f"Files: {folder}/ (arms.csv, heads.json, frontier.png, model/ with its card, ...)",
    ]
    values = {"record": record.model_dump(mode="json"), "arms": found.arms.to_dict("records")}
    return Output([shown, *lines], values, found.arms)
