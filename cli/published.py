"""``tdabias crossref --published``: a run's map beside rankings that others published."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.table import Table

from tda_bias.runs.text import number_text, p_text
from tda_bias.types import InputError

from .crossref_settings import CrossrefSettings
from .output import Finding, Output
from .run_folder import run_folder
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.paper.published_run import PublishedAgreement


def by_published(settings: CrossrefSettings, model: str) -> Output:
    """Over heads: the run's map against rankings that others published.

    Raises:
        InputError: if the run cannot be read, there are no rankings of the model, or an option is
            for other comparisons.
    """
    others = {"behaviour", "stereoset", "match", "items", "scoring"} & settings.model_fields_set
    if others:
        raise InputError(f"`{min(others)}` is not read with --published; leave one of them out")

    from tda_bias.heads.result import HeadBias
    from tda_bias.paper.published_run import COMMAND, published_agreement

    with run_folder(settings.folder, COMMAND, settings):
        result = published_agreement(
            HeadBias.load(settings.run),
            model,
            by=settings.by,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
        )
        result = result.with_record(
            heads=str(settings.run), settings=settings.model_dump(mode="json")
        )
        result.save(settings.folder)
    return published_output(result, settings.folder)


# -- what is printed -------------------------------------------------------------------------------


def published_output(result: PublishedAgreement, folder: Path) -> Output:
    """How far the run's maps agree with published rankings, beside chance."""
    found = published_finding(result, folder)
    return Output(
        shown=[found, published_table(result), f"Files: {folder}/ (published.csv)"],
        values={
            "folder": str(folder),
            "finding": found.as_values(),
            "model": result.record.model.model_dump(),
            "published": result.record.published,
            "agreement": result.agreement.to_dict("records"),
        },
        rows=result.agreement,
    )


def published_table(result: PublishedAgreement) -> Table:
    """Spearman over heads and the heads that two tops share, ranking by ranking."""
    rows = [
        [
            row["category"],
            row["second"],
            number_text(row["spearman"]),
            *(p_text(row[name]) for name in ("p", "p_within_layers")),
            f"{row['overlap']} ({row['chance']:.1f})",
            p_text(row["p_overlap"]),
        ]
        for row in result.agreement.to_dict("records")
    ]
    record = result.record
    title = f"{record.model.name} · {record.by} beside published rankings of {record.published}"
    headings = ["category", "published", "Spearman", "p", "p within layers"]
    headings += [f"of top {record.top} (chance)", "p"]
    return uncut_table(title, headings, rows)


def published_finding(result: PublishedAgreement, folder: Path) -> Finding:
    """How many published rankings a run agrees with."""
    table, record = result.agreement, result.record
    small = int((table["p_within_layers"] < 0.05).sum())
    control = [
        "p exchanges all heads; p within layers those of the same layer only: rankings that agree "
        "about layers and not about heads get no small one.",
        "How far published rankings agree with each other and with themselves: "
        "docs/results/rankings.md.",
    ]
    if result.is_of_other_name:
        control.append(
            f"The run's model is called {record.model.name}: scores of {record.published}'s heads "
            "say nothing of another model's."
        )
    return Finding(
        result=[
            f"{small} of {len(table)} correlations with published rankings of {record.published} "
            f"have p < .05 within layers ({0.05 * len(table):.1f} expected by chance); mean "
            f"Spearman {number_text(table['spearman'].mean())}."
        ],
        control=control,
        next=[f"tdabias report {quote(str(folder))}"],
    )
