"""``tdabias compare``: two models on one battery, or two rankings of heads side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, number_text, p_text

from .compare_settings import CompareSettings
from .loading import (
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
)
from .options import command
from .output import Output
from .run_folder import run_folder
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.comparison.models import Loader
    from tda_bias.comparison.record import ComparisonRecord, ModelComparison
    from tda_bias.models.load import LanguageModel

    from .battery import Battery

_SPLITS = ("_longer", "_equal", "_shorter")
_HEADINGS = ("outcome", "before", "after", "change", "interval", "p")


@command(CompareSettings)
def compare(settings: CompareSettings) -> None:
    """Measure two models alike, item by item: what changed, how sure, and at what cost."""
    if settings.of_runs:
        from .compare_runs import compare_runs

        compare_runs(settings).print(settings.format, quiet=settings.quiet)
        return
    comparison = _compared(settings)
    output(comparison, settings.folder).print(settings.format, quiet=settings.quiet)


def _compared(settings: CompareSettings) -> ModelComparison:
    console = Console(stderr=True, quiet=settings.quiet)
    _reach_hub(settings)
    with (
        interruptible("measures", settings.folder / "parts"),
        run_folder(settings.folder, "compare", settings) as refuse_other_weights,
    ):
        load = partial(
            language_model, device=settings.device, dtype=settings.dtype, console=console
        )
        before, after = load(settings.before), load(settings.after)
        refuse_other_weights(before)

        from tda_bias.comparison.models import refuse_incomparable

        refuse_incomparable(before, after)
        replicates = [partial(load, name) for name in settings.replicate]
        chosen = _battery(settings, before)
        comparison = _measured(settings, before, after, replicates, chosen, console)
        comparison = comparison.with_record(
            settings=settings.model_dump(mode="json"), preset=settings.preset
        )

        from tda_bias.plots.comparison import plot_comparison
        from tda_bias.runs.figures import print_style

        with print_style():
            comparison.save(settings.folder, figures={"compare": plot_comparison(comparison)})
    return comparison


def _reach_hub(settings: CompareSettings) -> None:
    from_hub = (
        settings.data == "stereoset"
        or settings.sentences == "stereoset"
        or "hub" in (settings.crows, settings.blimp)
        or settings.text == "wikitext2"
    )
    for name in (settings.before, settings.after, *settings.replicate):
        reach_hub_for(name, also=from_hub)


def _battery(settings: CompareSettings, model: LanguageModel) -> Battery:
    from .battery import PRESETS, Sources, battery

    sources = Sources(
        data=settings.data,
        sentences=settings.sentences,
        crows=settings.crows,
        blimp=settings.blimp,
        text=settings.text,
        twins=settings.twins,
        groups=settings.group,
        limit=settings.limit,
        seed=settings.seed,
    )
    amount = PRESETS["full" if settings.preset == "full" else "smoke"]
    return battery(amount, sources, kind=model.kind, only=settings.only)


def _measured(
    settings: CompareSettings,
    before: LanguageModel,
    after: LanguageModel,
    replicates: Sequence[Loader],
    chosen: Battery,
    console: Console,
) -> ModelComparison:
    from tda_bias.comparison.models import Draws, compare_models

    @contextmanager
    def watch(measure: str, model: str) -> Iterator[Any]:
        with progress_bar(console, f"{measure} · {model}", "texts") as moved:
            yield moved

    with out_of_memory_in_one_line(before.device, settings.batch_size):
        return compare_models(
            before,
            after,
            chosen.measures,
            distances=chosen.distances,
            replicates=replicates,
            not_measured=chosen.not_measured,
            draws=Draws(settings.n_resamples, settings.n_flips, settings.confidence, settings.seed),
            batch_size=settings.batch_size,
            parts=settings.folder / "parts",
            resume=settings.resume,
            overwrite=settings.overwrite,
            unanswered="refuse" if settings.only else "leave_out",
            watch=watch,
        )


# -- what is printed -------------------------------------------------------------------------------


def saved(folder: Path) -> Output:
    """What a finished comparison has to say.

    Raises:
        InputError: if the folder holds none, or a file is not as it was written.
    """
    from tda_bias.comparison.record import ModelComparison

    return output(ModelComparison.load(folder), folder)


def output(comparison: ModelComparison, folder: Path) -> Output:
    """The table of changes, the guard in words, and what was not measured."""
    return Output(
        shown=[
            *_tables(comparison),
            *_guard_lines(comparison),
            *_closing_lines(comparison, folder),
        ],
        values={
            "folder": str(folder),
            "before": comparison.record.model.model_dump(),
            "after": comparison.record.after.model_dump(),
            "replicates": [replicate.model_dump() for replicate in comparison.record.replicates],
            "outcomes": comparison.table.to_dict("records"),
            "not_measured": [lacking.model_dump() for lacking in comparison.record.not_measured],
        },
        rows=comparison.table,
    )


def _tables(comparison: ModelComparison) -> Iterator[Table]:
    """Bias, then quality and knowledge; the length splits stand in the file."""
    record = comparison.record
    names = f"{record.model.name} → {_after(record)}"
    kinds = {"bias": ("bias",), "quality and knowledge": ("quality", "knowledge")}
    for title, kept in kinds.items():
        table = comparison.table[comparison.table["kind"].isin(kept)]
        rows = [
            _cells(row)
            for row in table.to_dict("records")
            if not str(row["outcome"]).endswith(_SPLITS)
        ]
        if rows:
            headings = (*_HEADINGS, "Holm" if title == "bias" else "guard")
            yield uncut_table(f"{names} · {title}", headings, rows, left=1)


def _after(record: ComparisonRecord) -> str:
    """The model after, and how often it was trained."""
    more = len(record.replicates)
    return f"{record.after.name} (mean of {more + 1} trainings)" if more else record.after.name


def _cells(row: dict[Any, Any]) -> list[str]:
    digits = 1 if row["unit"] == "points" else 3
    before, after, low, high = (
        number_text(row[name], digits) for name in ("before", "after", "low", "high")
    )
    change = "undefined" if row["change"] != row["change"] else f"{row['change']:+.{digits}f}"
    p = "" if row["p"] != row["p"] else p_text(row["p"])
    last = row["guard"]
    if row["kind"] == "bias":
        last = p_text(row["p_holm"]) if row["primary"] else ""
    return [str(row["outcome"]), before, after, change, f"{low} to {high}", p, str(last)]


def _guard_lines(comparison: ModelComparison) -> Iterator[str]:
    for row in comparison.table[comparison.table["guard"] != ""].to_dict("records"):
        worst = _in_words(row)
        verdict = "pass" if row["guard"] == "pass" else _failed(row)
        yield f"Guard {row['outcome']}: {verdict}. {worst}; allowed is a loss of {row['allowed']}."
    guarded = set(comparison.table.loc[comparison.table["guard"] != "", "outcome"])
    missing = [n for n in ("log_perplexity", "lms_mean", "blimp") if n not in guarded]
    if missing:
        yield f"Guard not measured: {', '.join(missing)}. Without it nothing says what this cost."


def _failed(row: dict[Any, Any]) -> str:
    """Whether a loss was measured, or cannot be ruled out with so few items."""
    lost = row["change"] * (1 if row["margin"] > 0 else -1) >= abs(row["margin"])
    return "fail" if lost or row["change"] != row["change"] else "fail (not ruled out)"


def _in_words(row: dict[Any, Any]) -> str:
    import math

    if row["worst"] != row["worst"]:
        return "It has no bound"
    if row["outcome"] == "log_perplexity":
        now, most = (100 * math.expm1(row[name]) for name in ("change", "worst"))
        return f"Perplexity {now:+.2f} %, with 95 % confidence at most {most:+.2f} %"
    return f"{row['change']:+.2f} points, with 95 % confidence no less than {row['worst']:+.2f}"


def _closing_lines(comparison: ModelComparison, folder: Path) -> Iterator[str]:
    table, record = comparison.table, comparison.record
    primary = table[table["primary"]]
    for row in primary.to_dict("records"):
        yield _primary_line(row)
    few = table[(table["over"] == "items") & (table["clusters"] < table["items"])]
    if len(few):
        yield (
            f"Too few clusters to draw from in {', '.join(few['outcome'].head(3))}"
            f"{', ...' if len(few) > 3 else ''}: intervals there are over items, and hold for "
            "these targets only."
        )
    unpaired = table[table["unpaired"] > 0]
    if len(unpaired):
        yield (
            f"Items that only one model read, and that are left out: {unpaired['unpaired'].sum()} "
            f"in {counted(len(unpaired), 'outcome')} (compare.csv)."
        )
    if record.replicates:
        yield (
            f"Intervals also draw the {len(record.replicates) + 1} trainings; p speaks of these. "
            "The standard deviation of a change over trainings is the column spread of compare.csv."
        )
    for lacking in record.not_measured:
        yield f"Not measured: {lacking.name}: {lacking.reason}"
    yield (
        f"Intervals: {record.confidence:.0%}, BCa over clusters (targets, occupations, writers, "
        "windows); p exchanges before and after of whole clusters; Holm over the primary outcomes."
    )
    yield f"Files: {folder}/ (compare.csv, items.parquet, compare.png, run.json)"


def _primary_line(row: dict[Any, Any]) -> str:
    if row["change"] != row["change"]:
        return f"{row['outcome']}: undefined ({row['reason']})."
    sizes = [abs(row[name] - row["neutral"]) for name in ("before", "after")]
    way = "smaller" if sizes[1] < sizes[0] else "not smaller"
    sure = "this is more than chance" if row["p_holm"] < 0.05 else "chance could explain it"
    per = f"{counted(row['items'], 'item')} of {counted(row['clusters'], row['cluster'])}"
    return (
        f"{row['outcome']} ({row['unit']}, {per}): {row['before']:.3f} to {row['after']:.3f}, "
        f"{way} in size; {sure} (Holm p {p_text(row['p_holm'])})."
    )
