"""``tdabias ablate``: does removing the heads that stand out change what the model says?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from tda_bias.records.text import number_text, p_text
from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_RESAMPLES, MAX_SEED, InputError

from .loading import (
    hooked_model,
    interruptible,
    model_of,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
    refuse_other_weights,
)
from .options import Positional, command
from .settings import Device, FilePath, Name
from .text import print_lines, print_table

if TYPE_CHECKING:
    from tda_bias.behaviour.ablation_study import AblationStudy
    from tda_bias.models.load import LoadedModel
    from tda_bias.results.head_bias import HeadBias


class AblateSettings(BaseModel):
    """Everything ``tdabias ablate`` can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    category: str | None = Field(None, description="of a run with several")
    top: int = Field(10, ge=1, le=MAX_COUNT, description="heads from each end of the ranking")
    ablation: Literal["mean", "zero"] = Field(
        "mean", description="a removed head gives its mean, or nothing"
    )
    n_random: int = Field(
        20, ge=20, le=1000, description="random sets of as many heads of the same layers"
    )
    pvf: bool = Field(False, description="also R, R_p, R_v of he and she for every set")
    data: Name | None = Field(None, description="texts (default: the run's)")
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="per group")
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:N, mps")
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts")
    n_resamples: int = Field(9999, ge=99, le=MAX_RESAMPLES, description="permutations of heads")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse batches an earlier run finished")
    out: FilePath | None = Field(None, description="folder for the files (default: RUN/ablate)")


@command(AblateSettings)
def ablate(settings: AblateSettings) -> None:
    """Remove heads of a run and measure what changes; compare with random heads."""
    from tda_bias.records.files import prepare_folder
    from tda_bias.records.parts import PartStore
    from tda_bias.results.head_bias import HeadBias

    heads = HeadBias.load(settings.run)
    name = _category(heads, settings.category)
    folder = settings.out or settings.run / "ablate"
    triples = _triples(heads, name, settings.data, settings.limit)
    prepare_folder(folder)
    console = Console(stderr=True)
    model = hooked_model(
        model_of(heads.record),
        device=settings.device,
        dtype=heads.record["model"]["dtype"],
        console=console,
    )
    refuse_other_weights(model, heads.record)

    from tda_bias.behaviour.ablation import Ablator
    from tda_bias.behaviour.ablation_study import ablation_study

    identity = {
        "weights": heads.record["model"]["weights"],
        "category": name,
        "rank_by": heads.rank_by,
        **settings.model_dump(include={"top", "ablation", "n_random", "seed", "batch_size"}),
    }
    store = PartStore(folder / "batches", identity)
    if not settings.resume:
        store.clear()
    title = f"{heads.record['model']['name']} · {name}"
    with (
        interruptible("batches", folder / "batches"),
        progress_bar(console, title, "batches") as bar,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        ablator = Ablator(
            model, triples, ablation=settings.ablation, batch_size=settings.batch_size
        )
        study = ablation_study(
            ablator,
            heads,
            category=name,
            top=settings.top,
            n_random=settings.n_random,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
            behaviour=_behaviour(model) if settings.pvf else None,
            store=store,
            progress=bar,
        )
    study = study.with_record(run=str(settings.run), settings=settings.model_dump(mode="json"))
    _save(folder, study)
    _print(study, heads.record["model"]["name"])
    typer.echo(f"Files: {folder}/ (effects.csv, heads.csv, agreement.csv, effects.png, ...)")


def _category(heads: HeadBias, category: str | None) -> str:
    if category is None and len(heads.categories) == 1:
        return heads.categories[0]
    if category not in heads.categories:
        raise InputError(
            f"--category must be one of {', '.join(heads.categories)}, which the run has; got "
            f"{category!r}"
        )
    return category


def _triples(heads: HeadBias, category: str, data: str | None, limit: int | None) -> list[Any]:
    from tda_bias.triples import load_triples

    settings = heads.record.get("settings", {})
    source = data or heads.record.get("data", {}).get("source")
    if source is None:
        raise InputError("the run does not say which texts it used; give --data")
    reach_hub_for(heads.record["model"]["name"], also=source == "stereoset")
    limit = limit or settings.get("limit")
    groups = settings.get("group") or ()
    return load_triples(source, category=category, groups=groups, limit=limit)


def _behaviour(model: LoadedModel) -> Callable[[], dict[str, float]]:
    """R, R_p and R_v of the pronouns over the published occupations and templates."""
    from pvf.risk import decompose
    from pvf.score import score_preferences
    from pvf.templates import load_templates
    from pvf.words import load_classes, load_words

    words, templates = load_words("occupations"), load_templates("gender")
    classes = load_classes("pronouns")

    def measure() -> dict[str, float]:
        read = score_preferences(model, words, templates, classes)
        risk = decompose(read.by_class().p, context_weights=read.counts)
        return {"R": risk.R, "R_p": risk.R_p, "R_v": risk.R_v}

    return measure


def _save(folder: Path, study: AblationStudy) -> None:
    from matplotlib.figure import Figure

    from tda_bias.plots.behaviour import plot_ablation

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_ablation(study, ax=left)
    plot_ablation(study, by="importance", ax=right)
    study.save(folder, figures={"effects": figure})


# -- what is printed -------------------------------------------------------------------------------

_OUTCOMES = {
    "log_odds": "mean log-odds, nats",
    "ss": "stereotype score",
    "lms": "language-model score",
    "log_ppl_unrelated": "log-perplexity, unrelated",
    "log_ppl_context": "log-perplexity, contexts",
}


def _print(study: AblationStudy, model: str) -> None:
    n = study.record
    title = (
        f"{model} · {n['category']} · {n['top']} top heads removed together, {n['triples']} items"
    )
    shown = Table(title=title, title_justify="left")
    shown.add_column("outcome")
    for heading in ("unchanged", "change", "random sets: mean (SD)", "percentile", "p"):
        shown.add_column(heading, justify="right")
    for row in study.set_tests.to_dict("records"):
        name = row["outcome"]
        shown.add_row(
            _OUTCOMES.get(name, name),
            f"{study.base[name]:.3f}",
            f"{row['effect']:+.3f}",
            f"{row['random_mean']:+.3f} ({row['random_sd']:.3f})",
            f"{row['percentile']:.0f}",
            p_text(row["p"]),
        )
    print_table(shown)
    table = Table(title="Does a ranking predict the size of the effect?", title_justify="left")
    table.add_column("ranking of heads")
    for heading in ("rho, first order", "p", "rho, exact", "p", "heads"):
        table.add_column(heading, justify="right")
    for row in study.agreement.to_dict("records"):
        cells = []
        for size in ("effect", "exact"):
            asked = row[f"n_{size}"] > 0
            cells += [number_text(row[f"rho_{size}"]) if asked else ""]
            cells += [p_text(row[f"p_{size}"]) if asked else ""]
        table.add_row(row["ranking"], *cells, f"{row['n_effect']}, {row['n_exact']}")
    print_table(table)
    print_lines(*_lines(study))


def _lines(study: AblationStudy) -> list[str]:
    rows = {row["ranking"]: row for row in study.agreement.to_dict("records")}
    own = rows[f"z_{study.record['rank_by']}"]
    verdict = "the ranking by topology does not predict the size of the effect"
    if own["p_effect"] < 0.05:
        more = "larger" if own["rho_effect"] > 0 else "smaller"
        verdict = f"heads that stand high in the topological ranking have {more} effects"
    lines = [
        f"Over all heads: {verdict} (Spearman {own['rho_effect']:.2f}, "
        f"p {p_text(own['p_effect'])}); gradient importance: "
        f"{rows['importance']['rho_effect']:.2f}, direct effect: "
        f"{rows['abs_direct']['rho_effect']:.2f}. First-order and exact effects where both "
        f"exist: {rows['abs_effect']['rho_exact']:.2f}.",
        f"With {study.record['n_random']} random sets no p can be below "
        f"{1 / (1 + study.record['n_random']):.3f}.",
    ]
    if not study.record["survivors"]:
        lines.append(
            "No hot spot of this run survives correction: its top heads are heads with noisy "
            "values, and this table tests what removing such heads does."
        )
    return lines
