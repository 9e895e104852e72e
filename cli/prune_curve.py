"""``tdabias prune-curve``: what is left of the bias without more and more heads, at what cost."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Field, field_validator
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, interval_text, p_text
from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_RESAMPLES, MAX_SEED, HeadId, InputError, RankBy

from .loading import (
    interruptible,
    language_model,
    model_of,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
    refuse_other_weights,
    triples_of_run,
    twins_of,
)
from .options import Positional, command
from .output import Finding, Output, rounded_lines
from .processes import team_of
from .run_folder import parts_in, run_folder
from .settings import Device, FilePath, Name, PrecisionOption, SharedRunSettings

if TYPE_CHECKING:
    from tda_bias.ablation.ablator import Ablator
    from tda_bias.ablation.prune_curve import PruneCurve
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import LanguageModel
    from tda_bias.runs.cache import PartStore
    from tda_bias.runs.work import Team
    from tda_bias.types import Triple

MAPS: tuple[RankBy, ...] = get_args(RankBy)
FIRST_ORDER = ("importance", "effect")
# Folder of finished steps, inside the run's.
_STEPS = "steps"


class PruneCurveSettings(PrecisionOption, SharedRunSettings):
    """Settings of ``tdabias prune-curve``."""

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    by: str = Field(
        "evidence,importance,effect,random",
        description="rankings, with commas: maps of the run (evidence, location, relative, metric, "
        "statistic), importance, effect; random orders are always drawn",
    )
    model: Name | None = Field(
        None, description="where the run's model is now (default: where it was)"
    )
    category: str | None = Field(None, description="of a run with several")
    n_random: int = Field(20, ge=19, le=1000, description="random orders of all heads")
    most: int = Field(64, ge=1, le=4096, description="heads removed at most")
    text: Name = Field(
        "wikitext2", description="neutral text: wikitext2 (the hub), a text file or its folder"
    )
    windows: int = Field(8, ge=1, le=MAX_COUNT, description="windows of it, drawn")
    width: int = Field(256, ge=8, le=4096, description="tokens of a window; the stride is half")
    data: Name | None = Field(None, description="triples (default: the run's)")
    twins: Name = Field("auto", description="auto, none, or a file that `tdabias twins` wrote")
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="triples of each target")
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:N, mps")
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    n_resamples: int = Field(2000, ge=99, le=MAX_RESAMPLES, description="resamples of targets")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse steps an earlier run finished")
    out: FilePath | None = Field(
        None, description="folder for the files (default: RUN/prune-curve)"
    )

    @field_validator("by")
    @classmethod
    def _known(cls, value: str) -> str:
        allowed = (*MAPS, *FIRST_ORDER, "random")
        names = [name.strip() for name in value.split(",")]
        unknown = [name for name in names if name not in allowed]
        if unknown or set(names) <= {"random"}:
            raise ValueError(f"must name rankings among {', '.join(allowed)}; got {value!r}")
        return ",".join(names)

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self.out or self.run / "prune-curve"

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        how = {"device", "batch_size", "resume", "shard", "model"}
        left_out = {*how, "out", "overwrite", "format", "quiet"}
        return self.model_dump(mode="json", exclude=left_out)


@command(PruneCurveSettings)
def prune_curve(settings: PruneCurveSettings) -> None:
    """Remove more and more heads by rankings: what is left of the bias, at what cost."""
    from tda_bias.heads.result import HeadBias

    team = team_of(settings)
    heads = HeadBias.load(settings.run)
    with (
        interruptible("steps", settings.folder / _STEPS),
        run_folder(settings.folder, "prune-curve", settings, team=team),
    ):
        curve = _computed(settings, heads, team)
        curve = curve.with_record(settings=settings.model_dump(mode="json"))

        from tda_bias.plots.prune_curve import plot_prune_curve
        from tda_bias.runs.figures import print_style

        with print_style():
            curve.save(settings.folder, figures={"prune_curve": plot_prune_curve(curve.curve)})
    output(curve, settings.folder).print(settings)


def _computed(settings: PruneCurveSettings, heads: HeadBias, team: Team) -> PruneCurve:
    category = settings.category or heads.categories[0]
    if category not in heads.categories:
        raise InputError(
            f"`category` must be one of {', '.join(heads.categories)}; got {category!r}"
        )
    console = Console(stderr=True, quiet=settings.quiet)
    triples, source = triples_of_run(
        heads.record, category, data=settings.data, limit=settings.limit
    )
    made = twins_of(triples, source, settings.twins, errors=console)
    twins = [] if made is None else [made.of(triple) for triple in triples]
    reach_hub_for(heads.record.model.name, also=settings.text == "wikitext2")

    from tda_bias.ablation.prune_curve import prune_curve as curve_of
    from tda_bias.ablation.prune_curve import split_targets
    from tda_bias.pairs.neutral import load_neutral_text
    from tda_bias.scores.perplexity import text_windows

    text = load_neutral_text(settings.text)
    choosing, _ = split_targets(triples, seed=settings.seed)
    name = model_of(heads.record, settings.model)
    model = language_model(name, device=settings.device, dtype="float32", console=console)
    refuse_other_weights(model, heads.record)
    options: dict[str, Any] = {"sample": settings.windows, "seed": settings.seed}
    windows = text_windows(model, text.text, width=settings.width, **options)
    with (
        progress_bar(console, f"{model.name} · {category}", "tokens") as bar,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        curve = curve_of(
            _ablator(settings, model, triples, twins),
            triples,
            _rankings(settings, heads, category, model, triples, twins, choosing),
            windows,
            choosing=choosing,
            n_random=settings.n_random,
            most=settings.most,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
            store=_steps(settings, heads, category, team),
            progress=bar,
        )
    source_of_text = {"source": text.source, "revision": text.revision}
    return curve.with_record(
        run=str(settings.run),
        category=category,
        windows=curve.record.windows | source_of_text,
        twins=None if made is None else made.record(),
    )


def _ablator(
    settings: PruneCurveSettings,
    model: LanguageModel,
    triples: list[Triple],
    twins: list[tuple[Triple, ...]],
) -> Ablator:
    from tda_bias.ablation.ablator import Ablator

    how: dict[str, Any] = {"batch_size": settings.batch_size, "precision": settings.precision}
    return Ablator(model, triples, twins=twins, **how)


def _steps(settings: PruneCurveSettings, heads: HeadBias, category: str, team: Team) -> PartStore:
    """Store of finished steps for a run that is started again."""
    identity = {
        "weights": heads.record.model.weights,
        "category": category,
        "rank_by": heads.rank_by,
        **settings.numbers_depend_on(),
    }
    return parts_in(settings.folder / _STEPS, settings, team)(identity)


def _rankings(
    settings: PruneCurveSettings,
    heads: HeadBias,
    category: str,
    model: LanguageModel,
    triples: list[Triple],
    twins: list[tuple[Triple, ...]],
    choosing: Any,
) -> dict[str, list[HeadId]]:
    names = [name for name in settings.by.split(",") if name != "random"]
    orders: dict[str, list[HeadId]] = {}
    for by in MAPS:
        if by not in names:
            continue
        rows = heads.top(10**9, category=category, by=by).to_dict("records")
        orders[by] = [HeadId(int(row["layer"]), int(row["head"])) for row in rows]
    if set(names) & set(FIRST_ORDER):
        estimated = _first_order(settings, model, triples, twins, choosing)
        orders |= {name: order for name, order in estimated.items() if name in names}
    return {name: orders[name] for name in names}


def _first_order(
    settings: PruneCurveSettings,
    model: LanguageModel,
    triples: list[Triple],
    twins: list[tuple[Triple, ...]],
    choosing: Any,
) -> dict[str, list[HeadId]]:
    """Orders from the targets that choose; the others are not looked at."""
    from tda_bias.ablation.prune_curve import first_order_rankings

    kept = [i for i, chooses in enumerate(choosing) if chooses]
    of_kept = [triples[i] for i in kept], [twins[i] for i in kept] if twins else []
    ablator = _ablator(settings, model, *of_kept)
    (now,) = ablator.without([()])
    summary = now.summary()
    quantity = "beta" if "beta" in summary else "log_odds"
    return first_order_rankings(
        ablator.first_order(), "beta" if quantity == "beta" else "log_odds", summary[quantity]
    )


# -- what is printed -------------------------------------------------------------------------------


def saved(folder: Path) -> Output:
    """The output of a finished run.

    Raises:
        InputError: as ``PruneCurve.load``.
    """
    from tda_bias.ablation.prune_curve import PruneCurve

    return output(PruneCurve.load(folder), folder)


def output(curve: PruneCurve, folder: Path) -> Output:
    """Output of a curve: the remaining bias at the number of heads chosen, ranking by ranking."""
    record = curve.record
    title = f"{record.model.name} · {record.category} · {record.quantity} left (nats)"
    table = Table(title=title, title_justify="left")
    table.add_column("ranking")
    for heading in ("heads", "choosing targets", "other targets", "random", "p", "log-perplexity"):
        table.add_column(heading, justify="right")
    for row in curve.chosen.to_dict("records"):
        table.add_row(
            str(row["ranking"]),
            str(row["k"]),
            f"{row['before_choose']:.2f} to {row['choose']:.2f}",
            f"{row['before_test']:.2f} to {row['test']:.2f} "
            f"[{interval_text(row['test_low'], row['test_high'])}]",
            f"{row['random_test']:.2f}",
            f"{row['p_random']:.3f}",
            f"{row['d_log_ppl']:+.4f}",
        )
    found = finding(curve, folder)
    lines = [
        *rounded_lines(record.precision),
        f"Files: {folder}/ (curve.csv, chosen.csv, prune_curve.png, run.json, ...)",
    ]
    values = {
        "folder": str(folder),
        "finding": found.as_values(),
        "record": record.model_dump(),
        "chosen": curve.chosen.to_dict("records"),
    }
    return Output([found, table, *lines], values, curve.chosen)


def finding(curve: PruneCurve, folder: Path) -> Finding:
    """Remaining bias on unseen targets for each ranking, compared with random orders."""
    record, rows = curve.record, curve.chosen.to_dict("records")
    n_random = int((curve.curve.query("ranking == 'random' and k == 0")).shape[0])
    better = [str(row["ranking"]) for row in rows if row["p_random"] * len(rows) < 0.05]
    named = {"beta": "target effect (beta)", "log_odds": "mean log-odds"}[record.quantity]
    first = (
        f"Removing heads by {', '.join(better)} brings the {named} closer to 0 on unseen targets "
        "than random orders do."
        if better
        else f"No ranking brings the {named} closer to 0 on unseen targets than random orders do."
    )
    each = [
        f"{row['ranking']}: {counted(row['k'], 'head')}, {row['before_test']:.2f} to "
        f"{row['test']:.2f} nats ({interval_text(row['test_low'], row['test_high'])}), "
        f"log-perplexity {row['d_log_ppl']:+.3f}; p {p_text(row['p_random'])}."
        for row in rows
    ]
    return Finding(
        result=[first, *each],
        control=[
            f"Random orders, each with its own choice, leave {rows[0]['random_test']:.2f} on "
            f"average. p: of {counted(n_random, 'random order')}, how many leave as little; "
            f"compared with .05 after correction for {counted(len(rows), 'ranking')}."
        ],
        power=[
            f"With {counted(n_random, 'random order')} no p can be below {1 / (1 + n_random):.3f}."
        ],
        next=[f"tdabias report {quote(str(folder))}"],
        details=[
            f"Numbers of heads were chosen on {', '.join(record.choosing)}, at most 2 % perplexity "
            "lost; 0 heads: nothing better was found.",
            "Rankings of the run saw all of its targets; importance and effect only those that "
            "choose.",
            f"Perplexity: {record.windows['read']} of {record.windows['of']} windows of "
            f"{record.windows['width']} tokens, stride {record.windows['stride']}.",
        ],
    )
