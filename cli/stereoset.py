"""``tdabias stereoset``: does the model prefer stereotypes, and language to nonsense?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.types import MAX_BATCH, MAX_RESAMPLES, MAX_SEED

from .loading import language_model, out_of_memory_in_one_line, progress_bar, reach_hub_for
from .options import command
from .settings import FilePath, Format, TriplesSettings, model_folder
from .text import print_lines, print_table

if TYPE_CHECKING:
    import pandas as pd

_PER = {"sum": "sum", "mean": "per token"}


class StereoSetSettings(TriplesSettings):
    """Everything ``tdabias stereoset`` can be told."""

    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    share_prefix: Literal["auto", "never"] = Field(
        "auto", description="run the context of a triple once, where that is exact"
    )
    n_resamples: int = Field(
        2000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples of items"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/MODEL/stereoset-CATEGORY)"
    )
    format: Format = Field("table", description="what to print")

    @property
    def folder(self) -> Path:
        """Where the files go."""
        by_default = Path("runs") / model_folder(self.model) / f"stereoset-{self.category}"
        return self.out or by_default


@command(StereoSetSettings)
def stereoset(settings: StereoSetSettings) -> None:
    """Score a model on StereoSet: stereotype, language-model and idealised CAT score."""
    items, record = _items(settings)

    from tda_bias.behaviour.stereoset import length_split, scores

    table = scores(
        items,
        n_resamples=settings.n_resamples,
        confidence=settings.confidence,
        seed=settings.seed,
    )
    split = length_split(items)
    _save(settings.folder, items, table, split, record)
    if settings.format == "json":
        from tda_bias.records.files import plain

        found = {"folder": str(settings.folder), "scores": table.to_dict("records")}
        found |= {"length_split": split.to_dict("records"), "model": record["model"]}
        typer.echo(json.dumps(plain(found), indent=2, allow_nan=False))
        return
    print_table(score_table(table, settings))
    print_lines(*length_lines(split), *_closing_lines(items, table, settings))


def _items(settings: StereoSetSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
    reach_hub_for(settings.model, also=settings.data == "stereoset")

    from tda_bias.records.files import prepare_folder
    from tda_bias.triples import load_triples, source_revision

    triples = load_triples(
        settings.data, category=settings.category, groups=settings.group, limit=settings.limit
    )
    prepare_folder(settings.folder)
    console = Console(stderr=True)
    model = language_model(
        settings.model, device=settings.device, dtype=settings.dtype, console=console
    )

    from tda_bias.behaviour.likelihood import split_triples, triple_likelihoods
    from tda_bias.behaviour.stereoset import item_table
    from tda_bias.models.record import model_record
    from tda_bias.records.parts import texts_hash
    from tda_bias.records.record import package_versions

    title = f"{settings.model} · {settings.category}"
    with (
        progress_bar(console, title, "triples") as progress,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        found = triple_likelihoods(
            model,
            triples,
            batch_size=settings.batch_size,
            share_prefix=settings.share_prefix,
            progress=progress,
        )
    record = {
        "command": "stereoset",
        "settings": settings.model_dump(mode="json"),
        "model": model_record(model, weights=model.weight_hash()),
        "kind": model.kind,
        "data": {"source": settings.data, "revision": source_revision(settings.data)},
        "texts": {
            "triples": len(triples),
            "hash": texts_hash([one.ids for one in split_triples(model, triples)]),
        },
        "packages": package_versions(),
    }
    return item_table(triples, found), record


def _save(
    folder: Path,
    items: pd.DataFrame,
    table: pd.DataFrame,
    split: pd.DataFrame,
    record: dict[str, Any],
) -> None:
    from tda_bias.records.files import atomic, to_json, write_csv, write_text

    with atomic(folder / "items.parquet") as path:
        items.to_parquet(path, index=False)
    for name, content in (("scores", table), ("length_split", split)):
        write_csv(folder / f"{name}.csv", content)
    write_text(folder / "run.json", to_json(record))


def score_table(table: pd.DataFrame, settings: StereoSetSettings) -> Table:
    """The scores of categories and of everything, for both scorings."""
    title = f"{settings.model} · StereoSet intersentence · {settings.confidence:.0%} intervals"
    shown = Table("scored by", "category", title=title, title_justify="left")
    for heading in ("items", "lms", "ss", "icat", "ss over items"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in table[table["group"] == "all"].to_dict("records"):
        cells = [f"{row[n]:.1f}\n{row[f'{n}_low']:.0f} to {row[f'{n}_high']:.0f}" for n in _SCORES]
        per = _PER[row["scoring"]]
        shown.add_row(per, row["category"], str(row["items"]), *cells, f"{row['ss_items']:.1f}")
    return shown


_SCORES = ("lms", "ss", "icat")


def length_lines(split: pd.DataFrame) -> list[str]:
    """What text length alone decides."""
    lines = []
    for (category, scoring), rows in split.groupby(["category", "scoring"], sort=False):
        by = {row["longer"]: row for row in rows.to_dict("records")}
        parts = [
            f"{name} {by[sign]['ss']:.0f} ({by[sign]['items']})"
            for sign, name in ((1, "longer"), (0, "equal"), (-1, "shorter"))
            if sign in by
        ]
        lines.append(
            f"Length, {category}, {_PER[str(scoring)]}: ss where the stereotype is the "
            f"{', '.join(parts)} text (items)."
        )
    return lines


def _closing_lines(
    items: pd.DataFrame, table: pd.DataFrame, settings: StereoSetSettings
) -> list[str]:
    own = table[(table["group"] == "all") & (table["scoring"] == "sum")]
    ties = int(own["ties"].iloc[0])
    tokens = [items[f"tokens_{name}"].mean() for name in ("s", "a", "u")]
    lines = [
        f"Mean tokens of the stereotype, anti-stereotype and unrelated continuation: "
        f"{tokens[0]:.1f}, {tokens[1]:.1f}, {tokens[2]:.1f}. Sums favour short texts, so lms by "
        "sums is low where the unrelated ones are short.",
        "Scores are means over terms (the official rule); ss over items is what many tools print. "
        "50 is neutral, not good: a model that knows nothing gets it too.",
        f"Ties: {ties}, counted as one half.",
    ]
    if settings.data == "starter":
        lines.append("The starter triples demonstrate the tool; they do not measure a model.")
    lines.append(f"Files: {settings.folder}/ (scores.csv, items.parquet, run.json, ...)")
    return lines
