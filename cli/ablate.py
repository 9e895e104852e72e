"""``tdabias ablate``: does removing the heads that stand out change what the model says?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
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
from .output import Output
from .run_folder import run_folder
from .settings import Device, FilePath, Name, RunSettings

if TYPE_CHECKING:
    from tda_bias.behaviour.ablation_study import AblationStudy
    from tda_bias.models.load import LoadedModel
    from tda_bias.results.head_bias import HeadBias
    from tda_bias.types import Triple


class AblateSettings(RunSettings):
    """Everything ``tdabias ablate`` can be told."""

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

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        kept = {"run", "category", "top", "ablation", "n_random", "pvf", "data", "limit"}
        return self.model_dump(mode="json", include={*kept, "n_resamples", "seed"})


@command(AblateSettings)
def ablate(settings: AblateSettings) -> None:
    """Remove heads of a run and measure what changes; compare with random heads."""
    from tda_bias.results.head_bias import HeadBias

    heads = HeadBias.load(settings.run)
    category = _category(heads, settings.category)
    folder = settings.out or settings.run / "ablate"
    triples = _triples(heads, category, settings.data, settings.limit)
    with (
        interruptible("batches", folder / "batches"),
        run_folder(
            folder, "ablate", settings=settings.numbers_depend_on(), overwrite=settings.overwrite
        ),
    ):
        study = _study(settings, heads, category, triples, folder)
        study = study.with_record(run=str(settings.run), settings=settings.model_dump(mode="json"))
        _save(folder, study)
    output(study, folder).print(settings.format, quiet=settings.quiet)


def _study(
    settings: AblateSettings,
    heads: HeadBias,
    category: str,
    triples: list[Triple],
    folder: Path,
) -> AblationStudy:
    console = Console(stderr=True, quiet=settings.quiet)
    about = heads.record.model
    model = hooked_model(
        model_of(heads.record), device=settings.device, dtype=about.dtype, console=console
    )
    refuse_other_weights(model, heads.record)

    from tda_bias.behaviour.ablation import Ablator
    from tda_bias.behaviour.ablation_study import ablation_study
    from tda_bias.records.parts import open_parts

    identity = {
        "weights": about.weights,
        "category": category,
        "rank_by": heads.rank_by,
        **settings.model_dump(include={"top", "ablation", "n_random", "seed", "batch_size"}),
    }
    store = open_parts(
        folder / "batches", identity, resume=settings.resume, overwrite=settings.overwrite
    )
    with (
        progress_bar(console, f"{about.name} · {category}", "batches") as bar,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        return ablation_study(
            Ablator(model, triples, ablation=settings.ablation, batch_size=settings.batch_size),
            heads,
            category=category,
            top=settings.top,
            n_random=settings.n_random,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
            behaviour=_behaviour(model) if settings.pvf else None,
            store=store,
            progress=bar,
        )


def _category(heads: HeadBias, category: str | None) -> str:
    if category is None and len(heads.categories) == 1:
        return heads.categories[0]
    if category not in heads.categories:
        raise InputError(
            f"--category must be one of {', '.join(heads.categories)}, which the run has; got "
            f"{category!r}"
        )
    return category


def _triples(heads: HeadBias, category: str, data: str | None, limit: int | None) -> list[Triple]:
    from tda_bias.triples import load_triples

    record = heads.record
    source = data or (record.data.source if record.data is not None else None)
    if source is None:
        raise InputError("the run does not say which texts it used; give --data")
    reach_hub_for(record.model.name, also=source == "stereoset")
    limit = limit or record.settings.get("limit")
    groups = record.settings.get("group") or ()
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


def saved(folder: Path) -> Output:
    """What a finished run has to say.

    Raises:
        InputError: as ``AblationStudy.load``.
    """
    from tda_bias.behaviour.ablation_study import AblationStudy

    return output(AblationStudy.load(folder), folder)


def output(study: AblationStudy, folder: Path) -> Output:
    """What the removal changed, beside random heads, and what predicts it."""
    files = f"Files: {folder}/ (effects.csv, heads.csv, agreement.csv, effects.png, ...)"
    return Output(
        shown=[set_table(study), agreement_table(study), *_lines(study), files],
        values={
            "folder": str(folder),
            "model": study.record.model.model_dump(),
            "unchanged": study.base,
            "set_tests": study.set_tests.to_dict("records"),
            "agreement": study.agreement.to_dict("records"),
        },
        rows=study.set_tests,
    )


def set_table(study: AblationStudy) -> Table:
    """Outcomes with the top heads removed, and with as many random ones."""
    about = study.record
    title = (
        f"{about.model.name} · {about.category} · {about.top} top heads removed together, "
        f"{about.triples} items"
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
    return shown


def agreement_table(study: AblationStudy) -> Table:
    """Which ranking of heads goes with the size of their effects."""
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
    return table


def _lines(study: AblationStudy) -> list[str]:
    rows = {row["ranking"]: row for row in study.agreement.to_dict("records")}
    rho = {name: number_text(row["rho_effect"]) for name, row in rows.items()}
    ranking = f"z_{study.record.rank_by}"
    lines = []
    if ranking in rows:
        p, higher = rows[ranking]["p_effect"], rows[ranking]["rho_effect"] > 0
        verdict = "the ranking by topology does not predict the size of the effect"
        if p < 0.05:
            more = "larger" if higher else "smaller"
            verdict = f"heads that stand high in the topological ranking have {more} effects"
        lines.append(f"Over all heads: {verdict} (Spearman {rho[ranking]}, p {p_text(p)}).")
    lines += [
        f"Other rankings: gradient importance {rho['importance']}, direct effect "
        f"{rho['abs_direct']}. First-order and exact effects where both exist: "
        f"{number_text(rows['abs_effect']['rho_exact'])}.",
        f"With {study.record.n_random} random sets no p can be below "
        f"{1 / (1 + study.record.n_random):.3f}.",
    ]
    if not study.record.survivors:
        lines.append(
            "No hot spot of this run survives correction: its top heads are heads with noisy "
            "values, and this table tests what removing such heads does."
        )
    return lines
