"""What ``tdabias debias`` computes: a protocol, a comparison, and the model that comes out."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tda_bias.runs.text import counted
from tda_bias.runs.work import Shard, Team
from tda_bias.types import HeadId, InputError

from .loading import hooked_model, progress_bar, triples_record

if TYPE_CHECKING:
    from tda_bias.debias.protocol import Fold, Protocol
    from tda_bias.debias.record import DebiasRun
    from tda_bias.debias.study import ArmResult, Study
    from tda_bias.debias.texts import TwinTexts
    from tda_bias.models.load import LanguageModel, LoadedModel
    from tda_bias.types import Triple

    from .debias_settings import DebiasSettings

# So many texts show whether two models are the same, and as many are enough.
_PROBES = 3


def protocol_of(settings: DebiasSettings, *, n_heads: int, n_targets: int) -> Protocol:
    """The preset, with what was asked for otherwise; as many folds as there are targets for.

    Raises:
        InputError: if the model of an arm is to be saved that is not trained.
    """
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
        "check_items": settings.check_items,
        "top": settings.top or max(1, n_heads // 10),
        "how": settings.how,
        "loss": settings.loss,
        "kl": settings.kl,
        "precision": settings.precision,
        "seed": settings.seed,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    protocol = Protocol(**{**PRESETS[settings.preset], **given})
    if settings.save not in (None, "all", *protocol.by):
        raise InputError(
            f"`save` must be {', '.join(protocol.by)} or all, which this run trains; got "
            f"{settings.save!r}"
        )
    return protocol


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
        return {name: sorted({self.groups[i] for i in items}) for name, items in parts.items()}


def prepare(
    settings: DebiasSettings,
    model: LanguageModel,
    triples: list[Triple],
    twins: list[tuple[Triple, ...]],
    from_file: tuple[list[HeadId], str | None],
    about_twins: dict[str, Any] | None,
    team: Team,
) -> Prepared:
    """Fix everything that decides the numbers, and write the protocol down.

    Raises:
        InputError: if targets, heads or texts cannot be used, or the folder holds trainings of
            another protocol.
    """
    from tda_bias.debias.lora import require_peft
    from tda_bias.debias.neutral import neutral_text
    from tda_bias.debias.protocol import folds, protocol_hash
    from tda_bias.debias.rankings import chosen_from_file
    from tda_bias.debias.study import Study, parts_folder
    from tda_bias.debias.texts import TwinTexts
    from tda_bias.models.attention import attention_layers
    from tda_bias.runs.cache import open_parts, texts_hash
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
    # Processes on other hardware may write other neutral text: their trainings do not mix.
    neutral_ids = [*neutral.learn.ids, *neutral.watch.ids, *neutral.report.ids]
    kept = {"protocol": identity, "neutral": texts_hash([(ids,) for ids in neutral_ids])}
    store = open_parts(
        parts_folder(settings.out), kept, resume=settings.resume,
        overwrite=settings.overwrite, team=team,
    )  # fmt: skip
    gathers = team.index == 0 or isinstance(team, Shard)
    fixed = _fix(settings, protocol, identity) if gathers else ""

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
    from tda_bias.runs.files import to_json, write_text
    from tda_bias.runs.record import now

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


def print_cost(prepared: Prepared, console: Console, team: Team) -> None:
    """Say what is going to be done and how long that takes, from a step and a check."""
    from tda_bias.debias.study import cost

    if console.quiet:
        return
    plan = prepared.study.protocol, prepared.study.dealt
    trainings, steps = cost(*plan)
    pace = prepared.study.pace()
    minutes = pace.of(*plan) / 60
    console.print(
        f"{counted(trainings, 'training')} of {counted(steps // trainings, 'step')} on average: "
        f"about {counted(max(1, round(minutes)), 'minute')} here at most "
        f"({pace.step:.1f} s a step, {pace.check:.1f} s a check)"
        f"{f', shared by {team.count} processes' if team.count > 1 else ''}. Protocol "
        f"{prepared.identity[:12]}, fixed {prepared.fixed}.",
        highlight=False,
        soft_wrap=True,
    )


# -- the comparison --------------------------------------------------------------------------------


def computed(settings: DebiasSettings, prepared: Prepared, console: Console) -> DebiasRun:
    """Train every arm, save the model of the best or the one that was asked for, and the run."""
    from tda_bias.debias import summary
    from tda_bias.debias.record import DebiasRecord, DebiasRun
    from tda_bias.models.record import model_record
    from tda_bias.plots.debias import plot_frontier
    from tda_bias.runs.figures import print_style
    from tda_bias.triples import triple_ids

    start = time.monotonic()
    protocol, texts = prepared.study.protocol, prepared.texts
    about_model = model_record(texts.model, weights=prepared.weights)
    title = f"{texts.model.name} · {settings.category}"
    with progress_bar(console, title, "steps") as bar:
        study = replace(prepared.study, progress=bar)
        results: list[ArmResult] = study.run()
        arm = settings.save or summary.recommended(results)
        fold, trajectory, heads = study.recommended(arm)
    table = summary.arms_table(results, prepared.groups, protocol)
    said = summary.verdict(table, arm, protocol)
    row = {str(name): value for name, value in table.set_index("arm").loc[arm].items()}
    exported = _save_model(settings, prepared, arm, heads, trajectory.values, said, row, fold)
    source = triples_record(settings.data, settings.category)
    neutral = study.neutral
    record = DebiasRecord(
        model=about_model,
        settings=settings.model_dump(mode="json"),
        data=source,
        category=settings.category,
        protocol=protocol,
        protocol_hash=prepared.identity,
        fixed=prepared.fixed,
        folds=[{"number": fold.number, **prepared.targets(fold)} for fold in study.dealt],
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
    fold: Fold,
) -> dict[str, Any]:
    """Write the recommended model; what ``heads.json`` holds."""
    from tda_bias.ablation.head_weights import export_record
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
        "items": len(fold.train),
        "neutral": "written by the model itself" if settings.text == "self" else settings.text,
        "how": settings.how,
        "arm": arm,
        "heads": [str(head) for head in heads],
        "targets": prepared.targets(fold),
        "verdict": verdict,
    }
    probes = [triple.texts()[0] for triple in prepared.texts.triples[:_PROBES]]
    save_debiased(
        model, settings.how, heads, values, settings.out / "model",
        card=model_card(about, row), about=about, probes=probes, seed=settings.seed,
    )  # fmt: skip
    return exported
