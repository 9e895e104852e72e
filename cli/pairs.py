"""``tdabias pairs``: which text of a minimal pair does the model prefer?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from rich.table import Table

from tda_bias.config import BatchOption, ConfidenceOption
from tda_bias.pairs import SETS
from tda_bias.store.identity import Changes
from tda_bias.store.record import DataRecord
from tda_bias.types import InputError

from .loading import pairs_of
from .options import command
from .output import Columns, Output, groups_table, interval_of, report_of
from .settings import (
    DtypeOption,
    LimitOption,
    ModelOption,
    Out,
    Several,
    SharedRunSettings,
    folder_name,
)
from .work import working

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.scores.pair_scores import PairSetScores

# Rows that are printed of a set whose own table has more.
_SHOWN = 12
_HEADINGS = {
    "log_odds": "log-odds",
    "log_odds_female": "log-odds she over he",
    "pct_female_bls": "% women (BLS)",
    "pct_female_bergsma": "% women (Bergsma)",
}


class PairsSettings(
    ModelOption, DtypeOption, BatchOption, LimitOption, ConfidenceOption, SharedRunSettings
):
    """Settings of ``tdabias pairs``."""

    set_: Annotated[str, Changes.NOTHING] = Field(
        alias="set",
        description="crows, winobias, winogender, blimp, or a file of your pairs (JSON Lines or "
        "CSV: id, group, more, less)",
    )
    data: Annotated[str | None, Changes.NOTHING] = Field(
        None,
        description="where a named set is read: packaged, hub, or its own file or folder (default: "
        "what ships, else the folder that TDABIAS_PAIRS names, else the hub)",
    )
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this occupation, bias type or paradigm; may be given several times"
    )
    start: Literal["tokenizer", "bos"] = Field(
        "tokenizer",
        description="of causal models: score the first token only where the tokenizer adds a start "
        "token, or put one in front of every text",
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/pairs-SET)")

    @model_validator(mode="before")
    @classmethod
    def _own_pairs_are_a_set(cls, values: Any) -> Any:
        if values.get("set") is None and values.get("data") is not None:
            raise ValueError(
                "`data` says where a named set is read, and `set` is missing; give a file of your "
                f"own pairs to --set; got --data {values['data']}"
            )
        return values

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        by_default = Path("runs") / folder_name(self.model) / f"pairs-{Path(self.set_).stem}"
        return self.out or by_default


@command(PairsSettings)
def pairs(settings: PairsSettings) -> None:
    """Score a model on minimal pairs: CrowS-Pairs, WinoBias, Winogender, BLiMP, or your own."""
    if settings.set_ not in SETS and not Path(settings.set_).is_file():
        raise InputError(
            f"`set` must be one of {', '.join(SETS)}, or a readable file; got {settings.set_!r}"
        )
    read = pairs_of(settings, settings.set_, settings.data)
    data = DataRecord(source=read.source, revision=read.revision)
    with working(settings, "pairs", settings.folder, data=data) as work:
        model = work.model(settings.model)

        from tda_bias.scores.pair_scores import pair_set_scores

        with work.progress(f"{settings.model} · {read.name}", "pairs") as progress:
            result = pair_set_scores(
                model,
                read,
                start=settings.start,
                batch_size=settings.batch_size,
                confidence=settings.confidence,
                progress=progress,
                cache=work.cache,
            )
        result = result.with_record(settings=settings.recorded())
        result.save(settings.folder)
    output(result, settings.folder).print(settings)


# -- what is printed -------------------------------------------------------------------------------


def output(result: PairSetScores, folder: Path) -> Output:
    """The set's own score, and how sure it is."""
    from tda_bias.scores.findings import pairs_finding

    record = result.record
    return Output(
        finding=pairs_finding(result).then(report_of(folder)),
        shown=[official_table(result), *_own_groups(result)],
        values={
            "model": record.model,
            "set": record.set,
            "official": {**record.official.model_dump(), "table": result.official},
            "scores": result.scores,
            "length_split": result.length_split,
        },
        rows=result.scores,
        folder=folder,
        files="items.parquet, scores.csv, official.csv, ...",
    )


def _own_groups(result: PairSetScores) -> list[Table | str]:
    """The groups of a set of one's own, by sums of log-probabilities."""
    if result.record.set in SETS:
        return []
    scores = result.scores
    own = scores[
        (scores["part"] == "group")
        & (scores["scoring"] == "sum")
        & (scores["reading"] == scores["reading"].iloc[0])
    ]
    columns: Columns = [
        ("group", "{name}"),
        ("pairs", "{items}"),
        ("preferred", "{preferred:n1}"),
        ("log-odds", "{log_odds:n2}"),
        ("interval", interval_of("log_odds_low", "log_odds_high")),
    ]
    return groups_table("Groups, by sums", own, columns, "scores.csv")


def official_table(result: PairSetScores) -> Table:
    """The set's own score, its divisions in rows."""
    table = _official_rows(result)
    title = (
        f"{result.record.model.name} · {result.record.official.name} · "
        f"{result.record.confidence:.0%} intervals"
    )
    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    shown = Table(title=title, title_justify="left")
    for name in names:
        text = table[name].dtype.kind not in "fiu"
        shown.add_column(_HEADINGS.get(name, name), justify="left" if text else "right")
    for row in table.to_dict("records"):
        shown.add_row(*(_cell(row, name) for name in names))
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


def _official_rows(result: PairSetScores) -> pd.DataFrame:
    """The part of the official table that is printed."""
    import pandas as pd

    table = result.official.drop(columns=["interval", "undefined", "ties"], errors="ignore")
    match result.record.set:
        case "blimp":
            kept = ["accuracy", *(n for n in table.columns if n.startswith("published"))]
            means = table.groupby("term", sort=False)[kept].mean().reset_index()
            means.insert(1, "paradigms", table.groupby("term", sort=False).size().to_numpy())
            return means
        case "winogender":
            ordered = table.sort_values("log_odds_female", ignore_index=True)
            if len(ordered) > _SHOWN:
                return pd.concat([ordered.head(_SHOWN // 2), ordered.tail(_SHOWN // 2)])
            return ordered
        case _:
            return table
