"""``tdabias compare``: two models on one battery, or two rankings of heads side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, interval_text, number_text, p_text
from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_RESAMPLES, MAX_SEED, InputError, RankBy

from .loading import (
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
)
from .options import Positional, command
from .output import Finding, Output
from .run_folder import run_folder
from .settings import Device, Dtype, FilePath, Name, RunSettings, Several, folder_name
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.comparison.head_maps import HeadsComparison
    from tda_bias.comparison.models import ComparisonRecord, ModelComparison

_SPLITS = ("_longer", "_equal", "_shorter")
_HEADINGS = ("outcome", "before", "after", "change", "interval", "p")
_SHOWN = 10


class CompareSettings(RunSettings):
    """Options of ``tdabias compare``."""

    before: Annotated[Name, Positional()] = Field(
        description="Hub name, local folder, PEFT adapter or smollm2-135m; or a run of `tdabias "
        "heads`."
    )
    after: Annotated[Name, Positional()] = Field(description="The other one of the same kind.")
    replicate: Annotated[tuple[str, ...], Several] = Field(
        (),
        description="AFTER once more, from the same training with another seed; several times: "
        "intervals then also draw trainings",
    )
    preset: Literal["smoke", "full"] = Field(
        "smoke",
        description="smoke (gender and samples, minutes) or full (everything)",
    )
    only: Annotated[tuple[str, ...], Several] = Field(
        (),
        description="only this: stereoset, intrasentence, crows, winobias, winogender, pvf, "
        "unqover, perplexity, blimp, divergence; may be given several times",
    )
    data: Name = Field("stereoset", description="triples: stereoset (the hub), starter, or a file")
    sentences: Name = Field(
        "stereoset", description="StereoSet's intrasentence half: stereoset (the hub) or a file"
    )
    crows: Name = Field("hub", description="CrowS-Pairs: hub, or its file or folder")
    blimp: Name | None = Field(
        None, description="BLiMP: hub, or its files (default: what ships, 20 pairs a paradigm)"
    )
    text: Name = Field(
        "wikitext2", description="neutral text: wikitext2 (the hub), a text file or its folder"
    )
    twins: Name = Field("auto", description="auto, none, or a file that `tdabias twins` wrote")
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this target of the triples (held-out ones); several times"
    )
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="triples of each target")
    category: str | None = Field(None, description="of runs with several")
    by: RankBy = Field("evidence", description="of runs: the map that is compared")
    device: Device = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps"
    )
    dtype: Dtype = Field("float32", description="type of the weights")
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    n_resamples: int = Field(
        2000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples of clusters"
    )
    n_flips: int = Field(
        9999, ge=99, le=MAX_RESAMPLES, description="exchanges of before and after, by clusters"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse measures that an earlier run finished")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/AFTER/compare-BEFORE)"
    )

    @property
    def folder(self) -> Path:
        """Folder for the files."""
        name = f"compare-{folder_name(self.before)}"
        inside = Path(self.after) if self.of_runs else Path("runs") / folder_name(self.after)
        return self.out or inside / name

    @property
    def of_runs(self) -> bool:
        """Finished runs are compared, not models.

        Raises:
            InputError: if one is a run and the other is not, or runs have replicates.
        """
        runs = [(Path(name) / "run.json").is_file() for name in (self.before, self.after)]
        if any(runs) and not all(runs):
            run, model = (self.before, self.after)[:: 1 if runs[0] else -1]
            raise InputError(
                f"{run} is a run and {model} is not; give two models, or two runs of `tdabias "
                "heads`"
            )
        if all(runs) and self.replicate:
            raise InputError("`replicate` goes with models; of runs, two are compared")
        return all(runs)

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        if self.of_runs:
            return self.model_dump(mode="json", include={"category", "by", "n_flips", "seed"})
        left_out = {"device", "batch_size", "out", "overwrite", "format", "quiet", "verbose"}
        left_out |= {"resume"}
        return self.model_dump(mode="json", exclude=left_out)


@command(CompareSettings)
def compare(settings: CompareSettings) -> None:
    """Measure two models alike, item by item: what changed, how sure, and at what cost."""
    if settings.of_runs:
        result = heads_output(_compared_runs(settings), settings.folder)
    else:
        result = output(_compared_models(settings), settings.folder)
    result.print(settings)


def _compared_models(settings: CompareSettings) -> ModelComparison:
    console = Console(stderr=True, quiet=settings.quiet)
    from_hub = (
        "stereoset" in (settings.data, settings.sentences)
        or "hub" in (settings.crows, settings.blimp)
        or settings.text == "wikitext2"
    )
    for name in (settings.before, settings.after, *settings.replicate):
        reach_hub_for(name, also=from_hub)

    @contextmanager
    def watch(measure: str, model: str) -> Iterator[Any]:
        with progress_bar(console, f"{measure} · {model}", "texts") as moved:
            yield moved

    with (
        interruptible("measures", settings.folder / "parts"),
        run_folder(settings.folder, "compare", settings) as refuse_other_weights,
    ):
        load = partial(
            language_model, device=settings.device, dtype=settings.dtype, console=console
        )
        before, after = load(settings.before), load(settings.after)
        refuse_other_weights(before)

        from tda_bias.comparison.battery import PRESETS, Sources, battery
        from tda_bias.comparison.models import Draws, compare_models, refuse_incomparable
        from tda_bias.plots.comparison import plot_comparison
        from tda_bias.runs.figures import print_style

        refuse_incomparable(before, after)
        names = ("data", "sentences", "crows", "blimp", "text", "twins", "limit", "seed")
        sources = Sources(**{n: getattr(settings, n) for n in names}, groups=settings.group)
        measured = battery(PRESETS[settings.preset], sources, kind=before.kind, only=settings.only)
        with out_of_memory_in_one_line(before.device, settings.batch_size):
            comparison = compare_models(
                before,
                after,
                measured.measures,
                distances=measured.distances,
                replicates=[partial(load, name) for name in settings.replicate],
                not_measured=measured.not_measured,
                draws=Draws(
                    settings.n_resamples, settings.n_flips, settings.confidence, settings.seed
                ),
                batch_size=settings.batch_size,
                parts=settings.folder / "parts",
                resume=settings.resume,
                overwrite=settings.overwrite,
                unanswered="refuse" if settings.only else "leave_out",
                watch=watch,
            ).with_record(settings=settings.model_dump(mode="json"), preset=settings.preset)
        with print_style():
            comparison.save(settings.folder, figures={"compare": plot_comparison(comparison)})
    return comparison


def _compared_runs(settings: CompareSettings) -> HeadsComparison:
    """Compare two rankings of heads, and save what is found.

    Raises:
        InputError: if the runs cannot be compared, or the folder cannot be written.
    """
    from tda_bias.comparison.head_maps import compare_heads
    from tda_bias.heads.result import HeadBias
    from tda_bias.runs.record import DataRecord
    from tda_bias.runs.run import content_hash

    before, after = (HeadBias.load(name) for name in (settings.before, settings.after))
    hashes = [str(content_hash(run.record)) for run in (before, after)]
    data = DataRecord(source="runs", revision=" ".join(hashes))
    with run_folder(settings.folder, "compare", settings, data=data):
        comparison = compare_heads(
            before,
            after,
            category=settings.category,
            by=settings.by,
            n_resamples=settings.n_flips,
            seed=settings.seed,
        ).with_record(
            settings=settings.model_dump(mode="json"),
            data=data,
            runs=(settings.before, settings.after),
        )

        from tda_bias.plots.comparison import plot_head_comparison
        from tda_bias.runs.figures import print_style

        with print_style():
            comparison.save(settings.folder, figures={"compare": plot_head_comparison(comparison)})
    return comparison


# -- what is printed -------------------------------------------------------------------------------


def saved(folder: Path) -> Output:
    """The output of a finished comparison.

    Raises:
        InputError: if the folder holds none, or a file is not as it was written.
    """
    from tda_bias.comparison.models import ModelComparison

    return output(ModelComparison.load(folder), folder)


def output(comparison: ModelComparison, folder: Path) -> Output:
    """The table of changes, the guard in words, and what was not measured."""
    found = finding(comparison, folder)
    files = f"Files: {folder}/ (compare.csv, items.parquet, compare.png, run.json)"
    return Output(
        shown=[found, *_tables(comparison), files],
        values={
            "folder": str(folder),
            "finding": found.as_values(),
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
    before, after = (number_text(row[name], digits) for name in ("before", "after"))
    change = "undefined" if row["change"] != row["change"] else f"{row['change']:+.{digits}f}"
    p = "" if row["p"] != row["p"] else p_text(row["p"])
    last = row["guard"]
    if row["kind"] == "bias":
        last = p_text(row["p_holm"]) if row["primary"] else ""
    return [
        str(row["outcome"]),
        before,
        after,
        change,
        interval_text(row["low"], row["high"], digits),
        p,
        str(last),
    ]


def finding(comparison: ModelComparison, folder: Path) -> Finding:
    """Tell whether the model after is less biased than the one before, and what that costs."""
    table, record = comparison.table, comparison.record
    before, after = record.model.name, _after(record)
    primary = table[table["primary"] & table["change"].notna()].to_dict("records")
    less = [row for row in primary if row["p_holm"] < 0.05 and _is_smaller(row)]
    more = [row for row in primary if row["p_holm"] < 0.05 and not _is_smaller(row)]
    verdicts = []
    if less:
        verdicts.append(f"{after} is less biased than {before} in {_outcomes(less)}")
    if more:
        verdicts.append(f"{after} is more biased than {before} in {_outcomes(more)}")
    if not verdicts and primary:
        verdicts.append(f"{after} is not measurably less biased than {before}")
    cost, not_kept = _cost(comparison)
    return Finding(
        result=[
            f"{'; '.join([*verdicts, cost])}.",
            *(_primary_line(row) for row in table[table["primary"]].to_dict("records")),
        ],
        control=[
            *not_kept,
            *_missing_guards(comparison),
            *(f"Not measured: {n.name}: {n.reason}" for n in record.not_measured),
        ],
        power=[
            f"{row['outcome']}: a change outside {interval_text(row['low'], row['high'], 3)} is "
            f"ruled out ({record.confidence:.0%}, over {row['over']})."
            for row in primary
        ],
        next=[f"tdabias report {quote(str(folder))}"],
        details=[
            *(_guard_line(row) for row in table[table["guard"] == "pass"].to_dict("records")),
            *_detail_lines(comparison),
        ],
    )


def _is_smaller(row: dict[Any, Any]) -> bool:
    return bool(abs(row["after"] - row["neutral"]) < abs(row["before"] - row["neutral"]))


def _outcomes(rows: list[dict[Any, Any]]) -> str:
    return ", ".join(
        f"{row['outcome']} ({row['before']:.3f} to {row['after']:.3f}, Holm p "
        f"{p_text(row['p_holm'])})"
        for row in rows
    )


def _cost(comparison: ModelComparison) -> tuple[str, list[str]]:
    """Cost of the change in a clause, and a line on each margin that is not kept."""
    guarded = comparison.table[comparison.table["guard"] != ""].to_dict("records")
    open_ones = [row for row in guarded if row["guard"] != "pass"]
    lost = [row for row in open_ones if _failed(row) == "fail"]
    if not guarded:
        return "what it costs was not measured", []
    if lost:
        clause = f"quality is lost ({', '.join(str(row['outcome']) for row in lost)})"
    elif open_ones:
        clause = "a loss of quality is not ruled out"
    else:
        clause = "no quality is lost beyond the non-inferiority margins (guards)"
    return clause, [_guard_line(row) for row in open_ones]


def _missing_guards(comparison: ModelComparison) -> Iterator[str]:
    guarded = set(comparison.table.loc[comparison.table["guard"] != "", "outcome"])
    missing = [n for n in ("log_perplexity", "lms_mean", "blimp") if n not in guarded]
    if missing:
        yield f"Guard not measured: {', '.join(missing)}. Without it nothing says what this cost."


def _guard_line(row: dict[Any, Any]) -> str:
    verdict = "pass" if row["guard"] == "pass" else _failed(row)
    return (
        f"Guard {row['outcome']}: {verdict}. {_in_words(row)}; allowed is a loss of "
        f"{row['allowed']}."
    )


def _failed(row: dict[Any, Any]) -> str:
    """Tell a measured loss from one that cannot be ruled out with so few items."""
    lost = row["change"] * (1 if row["margin"] > 0 else -1) >= abs(row["margin"])
    return "fail" if lost or row["change"] != row["change"] else "inconclusive"


def _in_words(row: dict[Any, Any]) -> str:
    import math

    if row["worst"] != row["worst"]:
        return "It has no bound"
    if row["outcome"] == "log_perplexity":
        now, most = (100 * math.expm1(row[name]) for name in ("change", "worst"))
        return f"Perplexity {now:+.2f} %, with 95 % confidence at most {most:+.2f} %"
    return f"{row['change']:+.2f} points, with 95 % confidence no less than {row['worst']:+.2f}"


def _detail_lines(comparison: ModelComparison) -> Iterator[str]:
    table, record = comparison.table, comparison.record
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
    yield (
        f"Intervals: {record.confidence:.0%}, BCa over clusters (targets, occupations, writers, "
        "windows); p exchanges before and after of whole clusters; Holm over the primary outcomes."
    )


def _primary_line(row: dict[Any, Any]) -> str:
    if row["change"] != row["change"]:
        return f"{row['outcome']}: undefined ({row['reason']})."
    way = "smaller" if _is_smaller(row) else "not smaller"
    sure = "this is more than chance" if row["p_holm"] < 0.05 else "chance could explain it"
    per = f"{counted(row['items'], 'item')} of {counted(row['clusters'], row['cluster'])}"
    return (
        f"{row['outcome']} ({row['unit']}, {per}): {row['before']:.3f} to {row['after']:.3f}, "
        f"{way} in size; {sure} (Holm p {p_text(row['p_holm'])})."
    )


# -- what is printed of heads ---------------------------------------------------------------------


def heads_output(comparison: HeadsComparison, folder: Path) -> Output:
    """The agreement, the heads that moved, and how to read both."""
    found = heads_finding(comparison, folder)
    shown: list[Finding | Table | str] = [found, _agreement_table(comparison)]
    if comparison.record.matched:
        shown.append(_moved_table(comparison))
    files = f"Files: {folder}/ (agreement.csv, layers.csv, heads.csv, compare.png, run.json)"
    return Output(
        shown=[*shown, files],
        values={
            "folder": str(folder),
            "finding": found.as_values(),
            "record": comparison.record.model_dump(),
            "agreement": comparison.agreement.to_dict("records"),
            "layers": comparison.layers.to_dict("records"),
            "heads": comparison.heads.to_dict("records"),
        },
        rows=comparison.heads if comparison.record.matched else comparison.agreement,
    )


def _agreement_table(comparison: HeadsComparison) -> Table:
    rows = [
        [
            row["over"],
            str(row["n"]),
            number_text(row["rho"]),
            interval_text(row["chance_low"], row["chance_high"]),
            p_text(row["p"]),
        ]
        for row in comparison.agreement.to_dict("records")
    ]
    record = comparison.record
    title = (
        f"{record.model.name} and {record.after.name} · {record.category} · agreement of "
        f"{record.by}"
    )
    return uncut_table(title, ("over", "n", "Spearman", "by chance (95 %)", "p"), rows, left=1)


def _moved_table(comparison: HeadsComparison) -> Table:
    ordered = comparison.heads.reindex(
        comparison.heads["z"].abs().sort_values(ascending=False).index
    )
    rows = [
        [
            f"L{row['layer']}H{row['head']}",
            *(number_text(row[name]) for name in ("before", "after", "change", "z")),
            p_text(row["p"]),
            p_text(row["p_holm"]),
        ]
        for row in ordered.head(_SHOWN).to_dict("records")
    ]
    headings = ("head", "before", "after", "change", "in noises", "p", "Holm")
    return uncut_table("Heads that moved most", headings, rows, left=1)


def heads_finding(comparison: HeadsComparison, folder: Path) -> Finding:
    """Agreement of two rankings of heads, and the heads that moved beyond their noise."""
    record, heads = comparison.record, comparison.heads
    agreement = comparison.agreement.iloc[0]
    result = [
        f"The rankings of {record.model.name} and {record.after.name} for {record.category} agree "
        f"with Spearman {number_text(agreement['rho'])} over {agreement['over']} (p "
        f"{p_text(agreement['p'])})."
    ]
    if record.matched:
        known = heads["p"].notna().sum()
        result.append(
            f"{counted(int((heads['p_holm'] < 0.05).sum()), 'head')} moved by more than the noise "
            f"of both maps (Holm p < .05); {(heads['p'] < 0.05).sum()} of {known} with p < .05, "
            f"{0.05 * known:.1f} by chance at most."
        )
    else:
        result.append(
            f"The models have other shapes ({_shape(comparison, 'before')}, "
            f"{_shape(comparison, 'after')}): heads are not matched, layers are compared at the "
            "same relative depths."
        )
    control = [
        f"By chance: {interval_text(agreement['chance_low'], agreement['chance_high'])} (heads or "
        "layers exchanged at random; layers next to each other resemble each other, so that chance "
        "over layers is wider than that)."
    ]
    reliable = [value for value in record.reliability if value is not None]
    power = []
    if len(reliable) == 2:
        ceiling = max(0.0, reliable[0] * reliable[1]) ** 0.5
        power.append(
            f"Reliability of the maps between halves of the contexts: {reliable[0]:.2f} and "
            f"{reliable[1]:.2f}; two runs of the same truth would agree to about {ceiling:.2f}."
        )
    if not record.same_texts:
        control.append("The runs read other tokens: a difference may be the texts' or tokenizers'.")
    if record.same_weights:
        control.append("Both runs are of the same weights: what differs is texts or settings.")
    return Finding(
        result=result,
        control=control,
        power=power,
        next=[f"tdabias report {quote(str(folder))}"],
        details=[
            "Noise: both maps' standard deviations when labels are exchanged, added as if "
            "independent. p of the agreement is one-sided."
        ],
    )


def _shape(comparison: HeadsComparison, model: str) -> str:
    return counted((comparison.layers["model"] == model).sum(), "layer")
