"""``tdabias pairs``: which text of a minimal pair does the model prefer?"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, interval_text
from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_RESAMPLES, MAX_SEED, InputError

from .loading import (
    interruptible,
    language_model,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
)
from .options import command
from .output import Finding, Output
from .processes import team_of
from .run_folder import parts_in, run_folder
from .settings import Device, Dtype, FilePath, Name, Several, SharedRunSettings, model_folder

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.models.load import LanguageModel
    from tda_bias.pairs import PairSet
    from tda_bias.runs.work import Team
    from tda_bias.scores.pair_set import PairSetScores

# Folder of finished pairs, inside a run.
PARTS = "parts"
# Rows that are printed of a set whose own table has more.
_SHOWN = 12


class PairsSettings(SharedRunSettings):
    """Settings of ``tdabias pairs``."""

    model: Name = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )
    set_: Name | None = Field(
        None,
        alias="set",
        description="crows, winobias, winogender, blimp, or a file of your pairs (JSON Lines: id, "
        "group, more, less)",
    )
    data: Name | None = Field(
        None,
        description="where a named set is read: packaged, hub, or its own file or folder (default: "
        "what ships, else the hub); without --set a file of your pairs",
    )
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this occupation, bias type or paradigm; may be given several times"
    )
    scored: Literal["auto", "whole", "difference", "shared"] = Field(
        "auto",
        description="words that are scored: whole texts, the words in which both differ, or what "
        "they share (masked models); auto: as the set's paper does",
    )
    start: Literal["tokenizer", "bos"] = Field(
        "tokenizer",
        description="of causal models: score the first token only where the tokenizer adds a start "
        "token, or put one in front of every text",
    )
    device: Device = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps"
    )
    dtype: Dtype = Field("float32", description="type of the weights")
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    share_prefix: Literal["auto", "never"] = Field(
        "auto", description="run what both texts share once, where that is exact"
    )
    n_resamples: int = Field(
        2000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples of clusters of pairs"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    limit: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="at most so many pairs of each group"
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse pairs that an earlier run finished")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/MODEL/pairs-SET)"
    )

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        named = Path(self.set_ or self.data or "").stem
        return self.out or Path("runs") / model_folder(self.model) / f"pairs-{named}"

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        kept = ("scored", "start", "n_resamples", "confidence", "seed", "limit", "group")
        return {name: getattr(self, name) for name in kept}


@command(PairsSettings)
def pairs(settings: PairsSettings) -> None:
    """Score a model on minimal pairs: CrowS-Pairs, WinoBias, Winogender, BLiMP, or your own."""
    with interruptible("pairs", settings.folder / PARTS):
        result = compute(settings)
    output(result, settings.folder).print(settings)


def compute(settings: PairsSettings) -> PairSetScores:
    """Read the pairs, load the model, score, and save.

    Raises:
        InputError: on anything that cannot be used, before the model is loaded where possible.
    """
    read = _read(settings)

    from tda_bias.runs.record import DataRecord

    console = Console(stderr=True, quiet=settings.quiet)
    team = team_of(settings)
    with run_folder(
        settings.folder,
        "pairs",
        settings,
        data=DataRecord(source=read.source, revision=read.revision),
        team=team,
    ) as refuse_other_weights:
        model = language_model(
            settings.model, device=settings.device, dtype=settings.dtype, console=console
        )
        refuse_other_weights(model)
        result = _scored(settings, model, read, console, team)
        result = result.with_record(settings=settings.model_dump(mode="json"))
        result.save(settings.folder)
    return result


def _scored(
    settings: PairsSettings, model: LanguageModel, read: PairSet, console: Console, team: Team
) -> PairSetScores:
    from tda_bias.scores.pair_set import pair_set_scores

    with (
        progress_bar(console, f"{settings.model} · {read.name}", "pairs") as progress,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        return pair_set_scores(
            model,
            read,
            scored=None if settings.scored == "auto" else settings.scored,
            start=settings.start,
            batch_size=settings.batch_size,
            share_prefix=settings.share_prefix,
            n_resamples=settings.n_resamples,
            confidence=settings.confidence,
            seed=settings.seed,
            progress=progress,
            store=parts_in(settings.folder / PARTS, settings, team),
        )


def _read(settings: PairsSettings) -> PairSet:
    from tda_bias.pairs import SETS, load_pairs

    if settings.set_ is None and settings.data is None:
        raise InputError(
            f"give --set with one of {', '.join(SETS)} or with a file, or --data with a file"
        )
    source, data = settings.set_ or settings.data, settings.data if settings.set_ else None
    from_hub = data == "hub" or (source == "crows" and data is None)
    reach_hub_for(settings.model, also=from_hub)
    return load_pairs(str(source), data=data, groups=settings.group, limit=settings.limit)


# -- what is printed -------------------------------------------------------------------------------


def official_table(result: PairSetScores) -> Table:
    """The set's own score, its divisions below each other."""
    table, named = _rows(result)
    title = (
        f"{result.record.model.name} · {result.record.official.name} · "
        f"{result.record.confidence:.0%} intervals"
    )
    shown = Table(title=title, title_justify="left")
    for name in table.columns:
        if not name.endswith(("_low", "_high")):
            text = table[name].dtype.kind not in "fiu"
            shown.add_column(named.get(name, name), justify="left" if text else "right")
    for row in table.to_dict("records"):
        cells = [_cell(row, str(name)) for name in row if not str(name).endswith(("_low", "_high"))]
        shown.add_row(*cells)
    return shown


def _cell(row: dict[Any, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, float):
        return str(value)
    digits = 2 if "log_odds" in name else 1
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    known = isinstance(low, float) and isinstance(high, float) and low == low
    interval = f" [{low:.{digits}f}, {high:.{digits}f}]" if known else ""
    return "" if value != value else f"{value:.{digits}f}{interval}"


def _rows(result: PairSetScores) -> tuple[pd.DataFrame, dict[str, str]]:
    """Printed part of the official table, and the headings of its columns."""
    table = result.official.drop(columns=["interval", "undefined", "ties"], errors="ignore")
    headings = {"log_odds": "log-odds", "log_odds_female": "log-odds she over he"}
    match result.record.set:
        case "blimp":
            kept = ["accuracy", *(n for n in table.columns if n.startswith("published"))]
            means = table.groupby("term", sort=False)[kept].mean().reset_index()
            means.insert(1, "paradigms", table.groupby("term", sort=False).size().to_numpy())
            return means, headings
        case "winogender":
            ordered = table.sort_values("log_odds_female", ignore_index=True)
            half = _SHOWN // 2
            if len(ordered) > _SHOWN:
                ordered = ordered.iloc[[*range(half), *range(len(ordered) - half, len(ordered))]]
            return ordered, headings
        case _:
            return table, headings


def saved(folder: Path) -> Output:
    """The output of a finished run.

    Raises:
        InputError: as ``PairSetScores.load``.
    """
    from tda_bias.scores.pair_set import PairSetScores

    return output(PairSetScores.load(folder), folder)


def output(result: PairSetScores, folder: Path) -> Output:
    """The set's own score, and how sure it is."""
    found = finding(result, folder)
    files = f"Files: {folder}/ (items.parquet, scores.csv, official.csv, ...)"
    return Output(
        shown=[found, official_table(result), files],
        values={"finding": found.as_values(), **as_values(result, folder)},
        rows=result.scores,
    )


def finding(result: PairSetScores, folder: Path) -> Finding:
    """Which text of a pair the model prefers, and what length alone decides."""
    from tda_bias.stats.resampling import smallest_effect

    record, whole = result.record, result.scores.iloc[0]
    headline = ", ".join(
        f"{name.replace('_', ' ')} {'undefined' if value is None else f'{value:.2f}'}"
        for name, value in record.official.headline.items()
    )
    preferred = interval_text(whole["preferred_low"], whole["preferred_high"], 1)
    lines = [
        f"{record.official.name}: {headline}.",
        f"{record.model.name} prefers the first text (`more`) in {whole['preferred']:.1f} % of "
        f"{counted(whole['items'], 'pair')} ({preferred}; 50 without a preference), by sums of "
        "log-probabilities.",
    ]
    clusters = int(result.items["cluster"].nunique())
    power = []
    if clusters > 1:
        share = min(100.0, 50 + 50 * smallest_effect(clusters))
        power = [
            f"With {counted(clusters, 'cluster')} of pairs a share of {share:.0f} % is found four "
            "times out of five (t-test over clusters)."
        ]
    details = [
        record.official.note,
        *length_lines(result.length_split, scoring="mean"),
        f"{counted(whole['ties'], 'tie')}, {whole['undefined']} without a scored token; intervals: "
        f"{whole['interval']}.",
    ]
    control = [*length_lines(result.length_split, scoring="sum")]
    if record.set == "crows":
        control.append("CrowS-Pairs is for evaluation: its authors ask not to train on it.")
    return Finding(
        result=lines,
        control=[*control, *within_word_lines(result.scores)],
        power=power,
        next=[f"tdabias report {quote(str(folder))}"],
        details=details,
    )


def length_lines(split: pd.DataFrame, *, scoring: str) -> list[str]:
    """Preference by which text is longer, over all pairs."""
    per = {"sum": "sum", "mean": "per token"}
    everything = split[(split["type"] == "all") & (split["scoring"] == scoring)]
    sentences = []
    for reading, rows in everything.groupby("reading", sort=False):
        by = {row["longer"]: row for row in rows.to_dict("records")}
        parts = [
            f"{name} {by[sign]['preferred']:.0f} ({by[sign]['items']})"
            for sign, name in ((1, "longer"), (0, "equal"), (-1, "shorter"))
            if sign in by
        ]
        how = "" if reading == "log_prob" else f", {str(reading).replace('_', ' ')}"
        sentences.append(
            f"Length, {per[scoring]}{how}: per cent preferred where `more` is the "
            f"{', '.join(parts)} text (pairs)."
        )
    return sentences


def within_word_lines(table: pd.DataFrame) -> list[str]:
    """Score of the whole set by the better reading of masked models."""
    scores = table[(table["reading"] == "pll_within_word") & (table["scoring"] == "sum")]
    if scores.empty:
        return []
    row = scores.iloc[0]
    return [
        "With later pieces of a word masked too (Kauf & Ivanova 2023), which does not favour words "
        f"of many pieces: {row['preferred']:.1f} per cent preferred, log-odds "
        f"{row['log_odds']:.2f} [{row['log_odds_low']:.2f}, {row['log_odds_high']:.2f}]."
    ]


def as_values(result: PairSetScores, folder: Path) -> dict[str, Any]:
    """Scores, length split and the set's own score, for other programs."""
    return {
        "folder": str(folder),
        "model": result.record.model.model_dump(),
        "set": result.record.set,
        "official": {
            **result.record.official.model_dump(),
            "table": result.official.to_dict("records"),
        },
        "scores": result.scores.to_dict("records"),
        "length_split": result.length_split.to_dict("records"),
    }
