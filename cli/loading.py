"""Shared by commands that run a model: reaching the hub, stopping, running out of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from tda_bias.models.packaged import PACKAGED
from tda_bias.types import STARTER_CAUTION, InputError

from .progress import progress_bar as progress_bar

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias, HeadsRecord
    from tda_bias.models.load import Head, LanguageModel, LoadedModel
    from tda_bias.runs.record import DataRecord, RunRecord
    from tda_bias.twins import Twins
    from tda_bias.types import Triple

    from .heads_settings import HeadsSettings
    from .settings import TriplesSettings


TIMEOUT_SECONDS = 5.0


def use_cache_if_unreachable() -> None:
    """Tell the hub's clients to use their cache alone, unless the hub answers.

    They read the variable when they are imported, so this comes before any of them.
    """
    if "HF_HUB_OFFLINE" not in os.environ and not _answers():
        os.environ["HF_HUB_OFFLINE"] = "1"


def _answers() -> bool:
    import urllib.error
    import urllib.request

    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def reach_hub_for(model: str, *, also: bool = False) -> None:
    """Find out whether the hub answers, if the model (or something else) comes from there."""
    if also or not (model in PACKAGED or Path(model).exists()):
        use_cache_if_unreachable()


def language_model(
    name: str,
    *,
    device: str,
    dtype: str,
    console: Console,
    head: Head = "language",
    device_map: str | None = None,
) -> LanguageModel:
    """Load a model without hooks, saying so meanwhile.

    Raises:
        InputError: as ``tda_bias.models.load.load_language_model``.
    """
    reach_hub_for(name)
    with _loading(name, console):
        from tda_bias.models.load import load_language_model

        return load_language_model(
            name, device=device, dtype=dtype, head=head, device_map=device_map
        )


def hooked_model(
    name: str, *, device: str, dtype: str, console: Console, device_map: str | None = None
) -> LoadedModel:
    """Load a model whose attention is hooked; the hub has been tried before.

    Raises:
        InputError: as ``tda_bias.models.load.load_model``.
    """
    with _loading(name, console):
        from tda_bias.models.load import load_model

        return load_model(name, device=device, dtype=dtype, device_map=device_map)


@contextmanager
def _loading(name: str, console: Console) -> Iterator[None]:
    with console.status(f"loading {name}"):
        from transformers.utils import logging

        logging.disable_progress_bar()
        yield


def triples_with_twins(
    settings: TriplesSettings, twins: str, *, errors: Console
) -> tuple[list[Triple], Twins | None]:
    """The triples that are asked for and their twins; what has none is said.

    Raises:
        InputError: as ``load_triples`` and ``load_twins``.
    """
    from tda_bias.triples import load_triples

    triples = load_triples(
        settings.data, category=str(settings.category), groups=settings.group, limit=settings.limit
    )
    return triples, twins_of(triples, settings.data, twins, errors=errors)


def triples_record(source: str, category: str) -> DataRecord:
    """Source of triples, with remarks on it."""
    from tda_bias.runs.record import DataRecord
    from tda_bias.triples import source_revision, triple_remarks

    remarks = triple_remarks(source, category=category)
    return DataRecord(source=source, revision=source_revision(source), remarks=remarks)


def remark_lines(data: DataRecord | None) -> list[str]:
    """Remarks on every number that comes from some texts."""
    if data is None:
        return []
    return [*data.remarks, *([STARTER_CAUTION] if data.source == "starter" else [])]


def twins_of(triples: list[Triple], data: str, twins: str, *, errors: Console) -> Twins | None:
    """The twins of some triples of a source; what has none is said.

    Twins are drawn over the whole source, so that a triple has the same ones in every selection.

    Args:
        triples: Some of it.
        data: The source.
        twins: ``auto``, ``none`` or a file.
        errors: Where it is said.

    Raises:
        InputError: as ``load_triples`` and ``load_twins``.
    """
    from tda_bias.triples import load_triples
    from tda_bias.twins import load_twins, make_twins

    if twins == "none":
        return None
    whole = load_triples(data)
    made = make_twins(whole) if twins == "auto" else load_twins(twins, whole)
    made = made.only(triples)
    if made.note:
        errors.print(f"Without twins: {made.note}", highlight=False, markup=False, soft_wrap=True)
        return None
    if made.excluded:
        reasons = ", ".join(f"{reason} ({n})" for reason, n in made.reasons().items())
        errors.print(
            f"{len(made.excluded)} of {len(triples)} triples have no twin: {reasons}.",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
    return made or None


def triples_of_run(
    record: HeadsRecord, category: str, *, data: str | None, limit: int | None
) -> tuple[list[Triple], str]:
    """The triples of a run of ``tdabias heads``, or others of the same category.

    Args:
        record: Of the run.
        category: Which of its categories.
        data: Another source; that of the run if None, with its groups and limit.
        limit: Triples of each group at most.

    Returns:
        The triples, and where they were read.

    Raises:
        InputError: if the run does not say what it read, or as ``load_triples``.
    """
    from tda_bias.triples import comes_from_hub, load_triples

    source = data or (record.data.source if record.data is not None else None)
    if data is None and record.settings.get("pairs"):
        raise InputError(
            "the run compared pairs, and what a model says is read from triples; give --data"
        )
    if source is None:
        raise InputError("the run does not say which texts it used; give --data")
    reach_hub_for(record.model.name, also=comes_from_hub(source))
    groups: tuple[str, ...] = ()
    if data is None:
        groups = record.told("group", ())
        limit = limit or record.told("limit", 0) or None
    return load_triples(source, category=category, groups=groups, limit=limit), source


def texts_of(
    settings: HeadsSettings, console: Console
) -> tuple[list[Triple], Twins | None, DataRecord]:
    """Texts to compare: triples and their twins, or pairs; and their source."""
    from tda_bias.runs.record import DataRecord
    from tda_bias.triples import comes_from_hub

    if settings.pairs is None:
        reach_hub_for(settings.model, also=comes_from_hub(settings.data))
        triples, twins = triples_with_twins(settings, settings.twins, errors=console)
        return triples, twins, triples_record(settings.data, str(settings.category))

    from tda_bias.pairs import SETS, load_pairs, pair_triples

    if settings.pairs not in SETS and not Path(settings.pairs).is_file():
        raise InputError(
            f"`pairs` must be one of {', '.join(SETS)}, or a readable file; got {settings.pairs!r}"
        )
    data = settings.data if "data" in settings.model_fields_set else None
    from_hub = data == "hub" or (settings.pairs == "crows" and data is None)
    reach_hub_for(settings.model, also=from_hub)
    pairs = load_pairs(settings.pairs, data=data, groups=settings.group, limit=settings.limit)
    return pair_triples(pairs), None, DataRecord(source=pairs.source, revision=pairs.revision)


def category_of(run: HeadBias, category: str | None) -> str:
    """The category that is asked for, or the only one of a run of heads.

    Raises:
        InputError: if the run does not have it, or has several and none is named.
    """
    if category is None and len(run.categories) == 1:
        return run.categories[0]
    if category not in run.categories:
        raise InputError(
            f"--category must be one of {', '.join(run.categories)}, which the run has; got "
            f"{category!r}"
        )
    return category


def data_option(record: RunRecord) -> str:
    """The ``--data`` of a run for a command that follows it; empty for StereoSet by name."""
    data = record.settings.get("data", "stereoset")
    return "" if data == "stereoset" else f" --data {quote(str(data))}"


def model_of(record: RunRecord, given: str | None = None) -> str:
    """Find the model of a run.

    Args:
        record: Of the run.
        given: Where it is now, if somebody says so.

    Raises:
        InputError: if the run names a folder that is not there, as seen from here.
    """
    name = given or record.told("model", record.model.name)
    is_a_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if is_a_path and not Path(name).expanduser().is_dir():
        raise InputError(
            f"the model {name} is not here (paths are as seen from {Path.cwd()}); say where it is "
            "with --model"
        )
    return name


def refuse_other_weights(model: LanguageModel, record: RunRecord) -> None:
    """Make sure that a model is the one of a run.

    Raises:
        InputError: if its weights are others.
    """
    if model.weight_hash() != record.model.weights:
        raise InputError(
            f"{model.name} has other weights than the model of the run; run `tdabias heads` again"
        )


@contextmanager
def interruptible(finished: str, folder: Path) -> Iterator[None]:
    """On Ctrl-C say where what is finished is kept, and end with exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        message = (
            f"Interrupted. Finished {finished} are kept in {folder}; the same command goes on."
        )
        typer.echo(message, err=True)
        raise typer.Exit(130) from None


@contextmanager
def out_of_memory_in_one_line(device: Any, batch_size: int) -> Iterator[None]:
    """Turn the accelerator's complaint into advice."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise InputError(
            f"out of memory on {device}; lower --batch-size (now {batch_size})"
        ) from None
