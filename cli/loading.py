"""Loading of models and texts by the names that commands are given."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tda_bias.models.packaged import PACKAGED
from tda_bias.types import InputError

from .progress import doing, say
from .settings import DeviceOption, DtypeOption, PlacementSettings

if TYPE_CHECKING:
    from tda_bias.heads.record import HeadsRecord
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import Head, LanguageModel, LoadedModel
    from tda_bias.runs.record import DataRecord, RunRecord
    from tda_bias.twins import Twins
    from tda_bias.types import Triple

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
    settings: DeviceOption,
    console: Console,
    *,
    dtype: str | None = None,
    head: Head = "language",
    attention: str | None = None,
) -> LanguageModel:
    """Load a model without hooks, where and how the settings say.

    Args:
        name: Its name or folder.
        settings: With its device, and with its type and placement if the command has those options.
        console: Where it is said.
        dtype: Type of the weights (default: that of the settings, else float32).
        head: What it is asked for.
        attention: Implementation of attention (default: the fastest).

    Raises:
        InputError: as ``tda_bias.models.load.load_language_model``.
    """
    reach_hub_for(name)
    with doing(console, f"loading {name}"):
        from tda_bias.models.load import load_language_model

        _no_bars()
        placement = _placement(settings, dtype)
        return load_language_model(name, head=head, attention=attention, **placement)


def hooked_model(
    name: str, settings: DeviceOption, console: Console, *, dtype: str | None = None
) -> LoadedModel:
    """Load a model whose attention is hooked.

    Raises:
        InputError: as ``tda_bias.models.load.load_model``.
    """
    reach_hub_for(name)
    with doing(console, f"loading {name}"):
        from tda_bias.models.load import load_model

        _no_bars()
        return load_model(name, **_placement(settings, dtype))


def _placement(settings: DeviceOption, dtype: str | None) -> dict[str, Any]:
    by_default = settings.dtype if isinstance(settings, DtypeOption) else "float32"
    return {
        "device": settings.device,
        "dtype": dtype or by_default,
        "device_map": settings.device_map if isinstance(settings, PlacementSettings) else None,
    }


def _no_bars() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()


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
        say(errors, f"Without twins: {made.note}")
        return None
    if made.excluded:
        reasons = ", ".join(f"{reason} ({n})" for reason, n in made.reasons().items())
        say(errors, f"{len(made.excluded)} of {len(triples)} triples have no twin: {reasons}.")
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
        groups = record.setting("group", ())
        limit = limit or record.setting("limit", 0) or None
    return load_triples(source, category=category, groups=groups, limit=limit), source


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
        InputError: if the run names a folder or file that is not there, as seen from here.
    """
    name = given or record.setting("model", record.model.name)
    is_a_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if is_a_path and not Path(name).expanduser().exists():
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
