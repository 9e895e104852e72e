"""Loading of models and texts by the names that commands are given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.markup import escape

from tda_bias.models.packaged import PACKAGED
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.pairs.published import set_comes_from_hub
from tda_bias.show.terminal import say
from tda_bias.show.text import counted, is_path
from tda_bias.store.record import DataRecord, RunRecord
from tda_bias.triples import Source, comes_from_hub, read_triples
from tda_bias.twins import Twins, twins_in
from tda_bias.types import InputError, Triple

from .settings import DeviceOption

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias, HeadsRecord
    from tda_bias.models.load import LanguageModel, LoadedModel

M = TypeVar("M")
TIMEOUT_SECONDS = 5.0


def use_cache_if_unreachable() -> None:
    """Tell the hub's clients to use their cache alone, unless the hub answers.

    They read the variable when they are imported, so this comes before any of them.
    """
    if "HF_HUB_OFFLINE" in os.environ:
        return

    import urllib.error
    import urllib.request

    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:
        pass  # an answer too
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"


def reach_hub_for(model: str, *, also: bool = False) -> None:
    """Find out whether the hub answers, if the model (or something else) comes from there."""
    if also or not (model in PACKAGED or Path(model).exists()):
        use_cache_if_unreachable()


def language_model(
    name: str, settings: DeviceOption, console: Console, **options: Any
) -> LanguageModel:
    """Load a model without hooks, where and how the settings say, unless ``options`` do."""
    with _loading(name, console):
        from tda_bias.models.hooks import slowdown_of_half
        from tda_bias.models.load import load_language_model

        model = loaded(load_language_model, name, **{**placement(settings), **options})
    half = settings.model_dump(include={"precision"}).get("precision") == "bfloat16"
    if half and (times := slowdown_of_half(model.device)) > 2:
        say(
            console,
            f"bfloat16 takes {times:.0f} times as long as float32 on this processor, which has no "
            "instructions for it; leave --precision out",
        )
    return model


def hooked_model(name: str, settings: DeviceOption, console: Console) -> LoadedModel:
    """Load a model whose attention is hooked."""
    with _loading(name, console):
        from tda_bias.models.load import load_model

        return loaded(load_model, name, **placement(settings))


def placement(settings: DeviceOption) -> dict[str, Any]:
    """Device, device map and type of weights, as keyword arguments of the loaders."""
    return settings.model_dump(include={"device", "dtype", "device_map"})


def loaded(load: Callable[..., M], name: str, **how: Any) -> M:
    """Load a model by name, here or on a worker of a cluster."""
    reach_hub_for(name)

    from transformers.utils import logging

    logging.disable_progress_bar()
    return load(name, **how)


@dataclass(frozen=True)
class Models:
    """Models that runs of one command share: each is loaded once."""

    _loaded: dict[Any, Any] = field(default_factory=dict)

    def language_model(
        self, name: str, settings: DeviceOption, console: Console, **options: Any
    ) -> LanguageModel:
        """``language_model``, unless it is loaded already."""
        load = partial(language_model, name, settings, console, **options)
        return self._once((name, *sorted(options.items())), load)

    def hooked_model(self, name: str, settings: DeviceOption, console: Console) -> LoadedModel:
        """``hooked_model``, unless it is loaded already."""
        return self._once((name, "hooked"), partial(hooked_model, name, settings, console))

    def _once(self, key: Any, load: Callable[[], M]) -> M:
        if key not in self._loaded:
            self._loaded[key] = load()
        model: M = self._loaded[key]
        return model


@contextmanager
def _loading(name: str, console: Console) -> Iterator[None]:
    """Say that a model is loaded."""
    reach_hub_for(name)
    if not console.is_terminal:
        say(console, f"loading {name}")
    with console.status(escape(f"loading {name}")):
        yield


@dataclass(frozen=True)
class Texts:
    """The texts for a model, the record of their source, and their twins."""

    items: Any
    record: DataRecord
    options: Mapping[str, Any] = field(default_factory=dict)  # what goes with the items: twins
    whole: int | None = None  # items of the category in the source, where only some are read

    @property
    def twins(self) -> Twins | None:
        """Twins of the items."""
        twins: Twins | None = self.options.get("twins")
        return twins

    def some(self, noun: str) -> str:
        """How many of all are read, after a title: `` · 240 of 1061 triples``; empty for all."""
        if self.whole is None or len(self.items) == self.whole:
            return ""
        return f" · {len(self.items)} of {counted(self.whole, noun)}"


def triples_asked(settings: Any) -> Texts:
    """The triples that are asked for and their twins; what has none is said."""
    reach_hub_for(settings.model, also=comes_from_hub(settings.data))
    source, category = read_triples(settings.data), str(settings.category)
    triples = source.chosen(category=category, groups=settings.group, limit=settings.limit)
    twins = _twins(source, triples, settings)
    whole = len(source.chosen(category=category))
    return Texts(triples, source.record(category), {"twins": twins}, whole=whole)


def pairs_of(settings: Any, source: str, data: str | None) -> PairSet:
    """The pairs of a named set, which is read from ``data``, or of a file."""
    reach_hub_for(settings.model, also=set_comes_from_hub(source, data))
    return load_pairs(source, data=data, groups=settings.group, limit=settings.limit)


def _twins(source: Source[Triple], triples: list[Triple], settings: Any) -> Twins | None:
    """The twins of some triples of a source; what has none is said."""
    made = twins_in(source.items, triples, settings.twins)
    if made is None:
        return None
    if made.note:
        say(settings.console, f"Without twins: {made.note}")
        return None
    if made.excluded:
        left_out = f"{len(made.excluded)} of {len(triples)} triples have no twin"
        say(settings.console, f"{left_out}: {made.why()}.")
    return made or None


def triples_of_run(record: HeadsRecord, category: str, settings: Any) -> Texts:
    """The triples of a run of ``tdabias heads``, or of other ``data``, and their twins."""
    data, limit = settings.data, settings.limit
    given = data or (record.data.source if record.data is not None else None)
    if data is None and record.settings.get("pairs"):
        raise InputError(
            "the run compared pairs, and what a model says is read from triples; give --data"
        )
    if given is None:
        raise InputError("the run does not say which texts it used; give --data")
    reach_hub_for(record.model.name, also=comes_from_hub(given))
    groups: tuple[str, ...] = ()
    if data is None:
        groups = record.setting("group", ())
        limit = limit or record.setting("limit", 0) or None
    source = read_triples(given)
    triples = source.chosen(category=category, groups=groups, limit=limit)
    twins = _twins(source, triples, settings)
    return Texts(triples, source.record(category), {"twins": twins})


def category_of(run: HeadBias, category: str | None) -> str:
    """The category that is asked for, or the only one of a run of heads."""
    if category is None and len(run.categories) == 1:
        return run.categories[0]
    if category not in run.categories:
        raise InputError(
            f"--category must be one of {', '.join(run.categories)}, which the run has; got "
            f"{category!r}"
        )
    return category


def model_of(record: RunRecord, given: str | None = None) -> str:
    """Find the model of a run, where it was or where it is ``given`` to be now."""
    name = given or record.setting("model", record.model.name)
    if is_path(name) and not Path(name).expanduser().exists():
        raise InputError(
            f"the model {name} is not here (paths are as seen from {Path.cwd()}); say where it is "
            "with --model"
        )
    return name


def refuse_other_weights(model: LanguageModel, record: RunRecord) -> None:
    """Make sure that a model is the one of a run."""
    if model.weight_hash() != record.model.weights:
        raise InputError(
            f"{model.name} has other weights than the model of the run; run `tdabias heads` again"
        )
