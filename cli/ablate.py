"""``tdabias ablate``: does removing the heads that stand out change what the model says?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, number_text, p_text
from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_RESAMPLES, MAX_SEED

from .loading import (
    category_of,
    interruptible,
    language_model,
    model_of,
    out_of_memory_in_one_line,
    progress_bar,
    refuse_other_weights,
    triples_of_run,
    twins_of,
)
from .options import Positional, command
from .output import Finding, Output, rounded_lines
from .processes import team_of
from .run_folder import parts_in, run_folder
from .settings import Device, FilePath, Name, PrecisionOption, SharedRunSettings, TwinsOption

if TYPE_CHECKING:
    from tda_bias.ablation.study import AblationStudy
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import LanguageModel
    from tda_bias.runs.cache import PartStore
    from tda_bias.runs.work import Team
    from tda_bias.twins import Twins
    from tda_bias.types import Triple


class AblateSettings(TwinsOption, PrecisionOption, SharedRunSettings):
    """Settings of ``tdabias ablate``."""

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    model: Name | None = Field(
        None, description="where the run's model is now (default: where it was)"
    )
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
    limit: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="per group; that of the run unless given"
    )
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:N, mps")
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts")
    n_resamples: int = Field(9999, ge=99, le=MAX_RESAMPLES, description="permutations of heads")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse batches an earlier run finished")
    out: FilePath | None = Field(None, description="folder for the files (default: RUN/ablate)")

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        kept = {"run", "category", "top", "ablation", "n_random", "pvf", "data", "limit"}
        kept |= {"precision", "twins", "n_resamples", "seed"}
        return self.model_dump(mode="json", include=kept)


@command(AblateSettings)
def ablate(settings: AblateSettings) -> None:
    """Remove heads of a run and measure what changes; compare with random heads."""
    from tda_bias.heads.result import HeadBias

    team = team_of(settings)
    heads = HeadBias.load(settings.run)
    category = category_of(heads, settings.category)
    folder = settings.out or settings.run / "ablate"
    console = Console(stderr=True, quiet=settings.quiet)
    triples, source = triples_of_run(
        heads.record, category, data=settings.data, limit=settings.limit
    )
    twins = twins_of(triples, source, settings.twins, errors=console)
    with (
        interruptible("batches", folder / "batches"),
        run_folder(folder, "ablate", settings, team=team),
    ):
        store = _batches(settings, heads, category, folder, team)
        study = _study(settings, heads, category, triples, twins, store, console)
        study = study.with_record(run=str(settings.run), settings=settings.model_dump(mode="json"))
        _save(folder, study)
    output(study, folder).print(settings)


def _study(
    settings: AblateSettings,
    heads: HeadBias,
    category: str,
    triples: list[Triple],
    twins: Twins | None,
    store: PartStore,
    console: Console,
) -> AblationStudy:
    about = heads.record.model
    # Without hooks on every part it is faster, and heads are removed at the projections anyway.
    model = language_model(
        model_of(heads.record, settings.model),
        device=settings.device,
        dtype=about.dtype,
        console=console,
    )
    refuse_other_weights(model, heads.record)

    from tda_bias.ablation.ablator import Ablator
    from tda_bias.ablation.study import ablation_study

    ablator = Ablator(
        model,
        triples,
        twins=() if twins is None else [twins.of(triple) for triple in triples],
        ablation=settings.ablation,
        batch_size=settings.batch_size,
        precision=settings.precision,
    )
    behaviour = _behaviour() if settings.pvf else None
    with (
        out_of_memory_in_one_line(model.device, settings.batch_size),
        progress_bar(console, f"{about.name} · {category}", "tokens") as bar,
    ):
        study = ablation_study(
            ablator,
            heads,
            category=category,
            top=settings.top,
            n_random=settings.n_random,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
            behaviour=behaviour,
            store=store,
            progress=bar,
        )
    return study.with_record(twins=None if twins is None else twins.record())


def _batches(
    settings: AblateSettings, heads: HeadBias, category: str, folder: Path, team: Team
) -> PartStore:
    """Store of finished batches for a run that is started again."""
    numbers = {"top", "ablation", "n_random", "seed", "batch_size", "precision"}
    identity = {
        "weights": heads.record.model.weights,
        "category": category,
        "rank_by": heads.rank_by,
        **settings.model_dump(include=numbers),
    }
    return parts_in(folder / "batches", settings, team)(identity)


def _behaviour() -> Callable[[LanguageModel], dict[str, float]]:
    """R, R_p and R_v of the pronouns over the published occupations and templates."""
    from pvf.risk import decompose
    from pvf.score import score_preferences
    from pvf.templates import load_templates
    from pvf.words import load_classes, load_words

    words, templates = load_words("occupations"), load_templates("gender")
    classes = load_classes("pronouns")

    def measure(model: LanguageModel) -> dict[str, float]:
        read = score_preferences(model, words, templates, classes)
        risk = decompose(read.by_class().p, context_weights=read.counts)
        return {"R": risk.R, "R_p": risk.R_p, "R_v": risk.R_v}

    return measure


def _save(folder: Path, study: AblationStudy) -> None:
    from tda_bias.plots.behaviour import ablation_figure

    study.save(folder, figures={"effects": ablation_figure(study)})


# -- what is printed -------------------------------------------------------------------------------

_OUTCOMES = {
    "log_odds": "mean log-odds, nats",
    "beta": "mean beta, nats",
    "ss": "stereotype score",
    "lms": "language-model score",
    "log_ppl_unrelated": "log-perplexity, unrelated",
    "log_ppl_context": "log-perplexity, contexts",
}


def saved(folder: Path) -> Output:
    """The output of a finished run.

    Raises:
        InputError: as ``AblationStudy.load``.
    """
    from tda_bias.ablation.study import AblationStudy

    return output(AblationStudy.load(folder), folder)


def output(study: AblationStudy, folder: Path) -> Output:
    """Output of a study: effects beside random heads, and what predicts them."""
    files = f"Files: {folder}/ (effects.csv, heads.csv, agreement.csv, effects.png, ...)"
    found = finding(study, folder)
    return Output(
        shown=[
            found,
            set_table(study),
            *(agreement_table(study, end) for end in _ends(study)),
            *rounded_lines(study.record.precision),
            files,
        ],
        values={
            "folder": str(folder),
            "finding": found.as_values(),
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
        f"{counted(about.triples, 'item')}"
    )
    shown = Table(title=title, title_justify="left")
    shown.add_column("outcome")
    for heading in ("unchanged", "change", "random sets: mean (SD)", "percentile", "p"):
        shown.add_column(heading, justify="right")
    for row in study.set_tests.to_dict("records"):
        name = row["outcome"]
        shown.add_row(
            _OUTCOMES.get(name, name),
            number_text(study.base.get(name), 3),
            f"{row['effect']:+.3f}",
            f"{row['random_mean']:+.3f} ({row['random_sd']:.3f})",
            f"{row['percentile']:.0f}",
            p_text(row["p"]),
        )
    return shown


# Endings of the columns of effects, and what the effects are on.
_EFFECTS = {"": "log-odds", "_beta": "beta"}


def _ends(study: AblationStudy) -> list[str]:
    return list(_EFFECTS) if study.has_beta else [""]


def agreement_table(study: AblationStudy, end: str = "") -> Table:
    """Which ranking of heads goes with the size of their effects.

    Args:
        study: The study.
        end: Of the columns: empty for effects on the log-odds, ``_beta`` for those on beta.
    """
    title = f"Does a ranking predict the size of the effect on {_EFFECTS[end]}?"
    table = Table(title=title, title_justify="left")
    table.add_column("ranking of heads")
    for heading in ("rho, first order", "p", "rho, exact", "p", "heads"):
        table.add_column(heading, justify="right")
    for row in study.agreement.to_dict("records"):
        cells = []
        for size in (f"effect{end}", f"exact{end}"):
            asked = row[f"n_{size}"] > 0
            cells += [number_text(row[f"rho_{size}"]) if asked else ""]
            cells += [p_text(row[f"p_{size}"]) if asked else ""]
        counts = ", ".join(str(row[f"n_{size}{end}"]) for size in ("effect", "exact"))
        table.add_row(_RANKINGS.get(row["ranking"], row["ranking"]), *cells, counts)
    return table


_RANKINGS = {
    "importance": "gradient importance",
    "abs_direct": "direct effect",
    "abs_effect": "first order, log-odds",
    "abs_effect_beta": "first order, beta",
}


def finding(study: AblationStudy, folder: Path) -> Finding:
    """Effects of removing the top heads, compared with random heads of the same layers."""
    rows = {row["ranking"]: row for row in study.agreement.to_dict("records")}
    record = study.record
    tests = {row["outcome"]: row for row in study.set_tests.to_dict("records")}
    primary = "beta" if study.has_beta else "log_odds"
    test = tests[primary]
    name = "target effect (beta)" if study.has_beta else "mean log-odds"
    result = [
        f"Removing the {counted(record.top, 'top head')} together changes the {name} from "
        f"{number_text(study.base.get(primary), 3)} by {test['effect']:+.3f} nats; random heads of "
        f"the same layers change it by {test['random_mean']:+.3f} (SD {test['random_sd']:.3f}; p "
        f"{p_text(test['p'])}).",
        *(_verdict(study, rows, end) for end in _ends(study)),
    ]
    control = [
        f"{counted(record.n_random, 'random set')} of as many heads of the same layers; "
        f"{counted(record.triples, 'item')}."
    ]
    if not record.survivors:
        control.append(
            "No head of this run survives correction: its top heads are heads with noisy values, "
            "and this tests what removing such heads does."
        )
    few = ""
    if record.n_possible is not None and record.n_possible <= record.n_random:
        few = " (there are no more)"
    details = []
    if study.has_beta:
        without = record.triples - record.twinned
        details.append(
            "Beta is the log-odds of a triple minus those of its twins: what removing heads does "
            "to it, it does to the bias; most of what it does to the log-odds, it does to wording."
            + (f" {without} of {record.triples} triples have no twin." if without else "")
        )
    run = record.run or str(folder.parent)
    return Finding(
        result=result,
        control=control,
        power=[
            f"With {counted(record.n_random, 'random set')}{few} no p can be below "
            f"{1 / (1 + record.n_random):.3f}."
        ],
        next=[f"tdabias prune-curve {quote(run)}", f"tdabias report {quote(run)}"],
        details=details,
    )


def _verdict(study: AblationStudy, rows: Mapping[str, Mapping[Any, Any]], end: str) -> str:
    """Tell whether the run's ranking predicts the size of the effect on an outcome."""
    name = _EFFECTS[end]
    rho = {ranking: number_text(row[f"rho_effect{end}"]) for ranking, row in rows.items()}
    text = f"Effects on {name}, over all heads: "
    ranking = f"z_{study.record.rank_by}"
    if ranking in rows:
        p = rows[ranking][f"p_effect{end}"]
        verdict = "the ranking by topology does not predict their size"
        if p < 0.05:
            more = "larger" if rows[ranking][f"rho_effect{end}"] > 0 else "smaller"
            verdict = f"heads that stand high in the topological ranking have {more} ones"
        text += f"{verdict} (Spearman {rho[ranking]}, p {p_text(p)}); "
    exact = number_text(rows.get(f"abs_effect{end}", {}).get(f"rho_exact{end}"))
    gradient, direct = (rho.get(name, number_text(None)) for name in ("importance", "abs_direct"))
    return (
        f"{text}gradient importance {gradient}, direct effect {direct}. "
        f"First-order and exact ones where both exist: {exact}."
    )
