"""``tdabias confirm``: do heads that stand out on some targets stand out on others?"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, interval_text, number_text, p_text
from tda_bias.types import MAX_COUNT, MAX_SEED, HeadId, InputError

from .loading import category_of, language_model
from .options import Positional, command
from .output import Finding, Output
from .settings import FilePath, Name, OutputSettings

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.heads.confirmation import Confirmation
    from tda_bias.heads.group_result import GroupResult
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import LanguageModel


class ConfirmSettings(OutputSettings):
    """Settings of ``tdabias confirm``."""

    run: Annotated[FilePath, Positional()] = Field(
        description="Folder that `tdabias heads` wrote, or a model that `tdabias debias` saved."
    )
    category: str | None = Field(None, description="of a run with several")
    by: Literal["evidence", "location"] = Field(
        "evidence", description="the ranking: evidence (spread) or location (shift)"
    )
    top: int = Field(10, ge=1, le=MAX_COUNT, description="heads that are chosen")
    n_splits: int = Field(
        200, ge=1, le=10_000, description="splits of the targets; all where there are no more"
    )
    n_resamples: int = Field(999, ge=99, le=9999, description="exchanges, for chance")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    data: Name | None = Field(
        None, description="test on other data instead: a file without any target of the run"
    )
    pairs: Name | None = Field(
        None,
        description="of a model: a file of triples or pairs about other targets, looked at once",
    )
    out: FilePath | None = Field(None, description="folder for the files (default: RUN/confirm)")


@command(ConfirmSettings)
def confirm(settings: ConfirmSettings) -> None:
    """Choose heads on half of the targets and test them on the others, or on other data."""
    from tda_bias.runs.run import refuse_run_of_another_command

    refuse_run_of_another_command(_folder(settings), "confirm")
    if settings.pairs is not None:
        _model(settings, settings.pairs)
        return

    from tda_bias.heads.result import HeadBias

    run = HeadBias.load(settings.run)
    category = category_of(run, settings.category)
    if settings.data is not None:
        _on_other_data(settings, run, category)
        return

    from tda_bias.heads.confirmation import confirmation

    result = confirmation(
        _groups(settings.run, run, category),
        by=settings.by,
        top=settings.top,
        n_splits=settings.n_splits,
        n_resamples=settings.n_resamples,
        seed=settings.seed,
    )
    summary = _summary(result)
    _save(settings, run, result.heads, summary)
    found = _finding(result, settings.run)
    files = f"Files: {_folder(settings)}/ (confirm.csv, summary.json, run.json)"
    Output(
        shown=[found, _replicated(result, run.record.model.name, category), files],
        values={"finding": found.as_values(), **summary, "heads": result.heads.to_dict("records")},
        rows=result.heads,
    ).print(settings)


def _model(settings: ConfirmSettings, source: str) -> None:
    """One look at a trained model on targets that its training never saw."""
    from tda_bias.debias.confirmation import (
        look,
        note_look,
        read_about,
        read_items,
        refuse_second_look,
    )
    from tda_bias.runs.lock import locked
    from tda_bias.runs.record import ModelRecord, RunRecord
    from tda_bias.runs.writing import writing_run

    about = read_about(settings.run)
    refuse_second_look(settings.run, about)
    items = read_items(source, about)
    console = Console(stderr=True, quiet=settings.quiet)

    def original() -> LanguageModel:
        model = language_model(about["model"], device="auto", dtype="float32", console=console)
        if model.weight_hash() != about["original"]:
            raise InputError(f"{about['model']} has other weights than the model that was trained")
        return model

    def trained() -> LanguageModel:
        return language_model(str(settings.run), device="auto", dtype="float32", console=console)

    outcome = look(items, (original, trained), seed=settings.seed)
    note_look(settings.run, about, source)
    change = outcome.after - outcome.before
    low, high = outcome.limits
    unit = "nats per token" if outcome.quantity == "beta" else "nats"
    values: dict[str, Any] = {
        "quantity": outcome.quantity, "items": len(change), "targets": len(set(outcome.group)),
        "before": float(outcome.before.mean()), "after": float(outcome.after.mean()),
        "change": float(change.mean()), "low": low, "high": high, "p": outcome.p,
    }  # fmt: skip
    less = abs(values["after"]) < abs(values["before"]) and outcome.p < 0.05
    said = (
        f"Mean {outcome.quantity} of {len(change)} items of {counted(values['targets'], 'target')} "
        f"that no training saw: {values['before']:.3f} before, {values['after']:.3f} after ({unit}"
        f"; change {values['change']:+.3f}, 95 % {interval_text(low, high, 3, sign='+')}, p "
        f"{p_text(outcome.p)})."
    )
    verdict = (
        f"{settings.run} is less biased than the model it was trained from on other targets too."
        if less
        else f"On other targets {settings.run} is not measurably less biased than the model it was "
        "trained from."
    )
    found = Finding(result=[verdict, said], control=["This was the look: there is no second."])
    rows = outcome.table()
    record = RunRecord(
        command="confirm", model=ModelRecord(name=str(settings.run), weights=about["weights"]),
        settings=settings.model_dump(mode="json"),
    )  # fmt: skip
    folder = _folder(settings)
    with locked(folder), writing_run(folder, record) as written:
        written.table("confirm.csv", rows)
        written.json("summary.json", {**values, "protocol": about["protocol"]})
    files = f"Files: {_folder(settings)}/ (confirm.csv, summary.json, run.json)"
    Output(shown=[found, files], values={"finding": found.as_values(), **values}, rows=rows).print(
        settings
    )


def _groups(folder: Path, run: HeadBias, category: str) -> list[GroupResult]:
    """The saved groups of a category."""
    from tda_bias.heads.group_result import GroupResult, part_identity
    from tda_bias.runs.cache import PartStore

    model = run.record.model
    identity = part_identity(
        run.record.config, model=model.name, weights=str(model.weights), dtype=str(model.dtype)
    )
    store = PartStore(folder / "groups", identity)
    groups = []
    for group in run.record.groups:
        if group.category != category:
            continue
        arrays = store.load(f"{group.category}/{group.group}", group.depends_on)
        if arrays is None:
            raise InputError(
                f"{folder / 'groups'} lacks the group {group.group!r}; the same `tdabias heads` "
                "command makes it again"
            )
        groups.append(GroupResult.from_arrays(group.category, group.group, arrays))
    return groups


def _on_other_data(settings: ConfirmSettings, run: HeadBias, category: str) -> None:
    from tda_bias.heads.confirmation import confirmed_on
    from tda_bias.runs.settings import validated
    from tda_bias.triples import load_triples

    from . import heads
    from .heads_settings import HeadsSettings

    assert settings.data is not None
    targets = {str(group).casefold() for group in run.groups["group"]}
    shared = {t.group for t in load_triples(settings.data, category=category)}
    if shared := {group for group in shared if group.casefold() in targets}:
        raise InputError(
            f"`data` {settings.data} shares {counted(len(shared), 'target')} with the run "
            f"({', '.join(sorted(shared)[:3])}): heads chosen on a target cannot be confirmed on it"
        )
    of_run = {**run.record.settings, "data": settings.data, "category": category, "group": ()}
    of_run |= {"out": _folder(settings) / "heads", "limit": None}
    again = validated(HeadsSettings, of_run)
    other = heads.compute(again)
    other.save(again.folder)
    table = confirmed_on(run, other, category=category, by=settings.by, top=settings.top)
    summary = {
        "data": settings.data,
        "by": settings.by,
        "top": settings.top,
        "confirmed": int((table["p_holm"] < 0.05).sum()),
    }
    _save(settings, run, table, summary)
    shown = Table("head", title=f"{category} · chosen in the run, tested on {settings.data}")
    for heading in ("z", "z there", "p there", "p (Holm)"):
        shown.add_column(heading, justify="right")
    for row in table.to_dict("records"):
        name = str(HeadId(int(row["layer"]), int(row["head"])))
        cells = [f"{row['z']:.2f}", f"{row['z_other']:.2f}"]
        shown.add_row(name, *cells, p_text(row["p_other"]), p_text(row["p_holm"]))
    found = Finding(
        result=[
            f"{summary['confirmed']} of {counted(len(table), 'head')} chosen in the run are "
            f"confirmed on {settings.data} (Holm p < .05)."
        ],
        next=[f"tdabias report {quote(str(settings.run))}"],
    )
    files = f"Files: {_folder(settings)}/ (confirm.csv, heads/, run.json)"
    values = {"finding": found.as_values(), **summary, "heads": table.to_dict("records")}
    Output(shown=[found, shown, files], values=values, rows=table).print(settings)


def _summary(result: Confirmation) -> dict[str, Any]:
    names = (
        "replicated", "chance", "p", "correlation", "correlation_chance", "p_correlation",
    )  # fmt: skip
    return {**{name: getattr(result, name) for name in names}, **result.record}


def _folder(settings: ConfirmSettings) -> Path:
    return settings.out or settings.run / "confirm"


def _save(
    settings: ConfirmSettings, run: HeadBias, table: pd.DataFrame, summary: dict[str, Any]
) -> None:
    from tda_bias.runs.lock import locked
    from tda_bias.runs.record import RunRecord
    from tda_bias.runs.writing import writing_run

    record = RunRecord(
        command="confirm", model=run.record.model, settings=settings.model_dump(mode="json")
    )
    folder = _folder(settings)
    with locked(folder), writing_run(folder, record) as written:
        written.table("confirm.csv", table)
        written.json("summary.json", summary)


# -- what is printed -------------------------------------------------------------------------------


def _replicated(result: Confirmation, model: str, category: str) -> Table:
    title = (
        f"{model} · {category} · first {result.record['top']} heads of half of the targets, on the "
        "other half"
    )
    shown = Table("head", title=title, title_justify="left")
    shown.add_column("chosen in", justify="right")
    shown.add_column("then p <= .05 in", justify="right")
    for row in result.heads.head(result.record["top"]).to_dict("records"):
        name = str(HeadId(int(row["layer"]), int(row["head"])))
        shown.add_row(name, f"{row['chosen']:.0%}", f"{row['replicated']:.0%}")
    return shown


def _finding(result: Confirmation, run: Path) -> Finding:
    record = result.record
    which = "all" if record["all_splits"] else "random"
    return Finding(
        result=[
            "Heads that stand out on some targets stand out on others."
            if result.p < 0.05
            else "Heads that stand out on some targets do not stand out on others more than "
            "chance.",
            f"Of the chosen heads {result.replicated:.1%} have p <= .05 on the other half (p "
            f"{p_text(result.p)}).",
        ],
        control=[
            f"With exchanged labels {result.chance:.1%} of the chosen heads have p <= .05.",
            f"Spearman of the halves' maps: {number_text(result.correlation)}; with exchanged "
            f"labels {number_text(result.correlation_chance)} (p {p_text(result.p_correlation)}).",
        ],
        next=[f"tdabias ablate {quote(str(run))}", f"tdabias report {quote(str(run))}"],
        details=[
            f"{counted(len(record['targets']), 'target')}, {counted(record['splits'], 'split')} "
            f"({which}), ranked by {record['by']}{' with twins' if record['twins'] else ''}."
        ],
    )
