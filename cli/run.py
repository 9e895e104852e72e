"""The one way of a command: read what is given, hold the folder, compute, save, show."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from tda_bias.show.output import Output
from tda_bias.show.terminal import say
from tda_bias.show.text import counted
from tda_bias.store.cache import Cache, OpenCache
from tda_bias.store.files import locked, prepare_folder
from tda_bias.store.identity import Changes
from tda_bias.store.record import DataRecord
from tda_bias.store.result import Result
from tda_bias.store.run import Run, refuse_other_run, refuse_run_of_another_command
from tda_bias.store.shares import Shard
from tda_bias.types import InputError, ShareDone

from .commands import FORMS
from .loading import Models, Texts, loaded, placement
from .settings import (
    KeptRunSettings,
    OutputSettings,
    RunSettings,
    SharedRunSettings,
    by_category,
    part_of,
)
from .spec import Form, Spec, imported

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tda_bias.models.load import LanguageModel, LoadedModel
    from tda_bias.show.verdict import Outcome
    from tda_bias.store.cluster import Cluster

M = TypeVar("M", bound="LanguageModel")
R = TypeVar("R", bound=Result)
# Takes what is done, and all there is where that is known.
Moved = Callable[[int, int | None], None]


def perform(
    spec: Spec, settings: Any, *, models: Models | None = None
) -> Iterator[tuple[str, Output]]:
    """Run a command once for each category that is named: the category, and what is printed.

    What is given for every run is read before the first one begins; ``models`` has those that are
    loaded already.

    Raises:
        InputError: on anything that cannot be used, before a model is loaded where possible.
        ShareDone: in a process that only shares the work, once its shares of all runs are done.
    """
    _refuse_launcher(settings)
    instead = [place for switch, place in spec.instead.items() if getattr(settings, switch)]
    runs = by_category(settings)
    function = (*instead, spec.run)[0]
    asked = {} if function else {name: _asked(_form(spec, run), run) for name, run in runs.items()}
    if len(runs) > 1:
        for run in asked.values():
            run.refuse_other()
    models = models or Models()
    done: list[ShareDone] = []
    for category, run in runs.items():
        output: Output | None = None
        with stage(done), naming(category if len(runs) > 1 else ""):
            output = imported(function)(run) if function else _output(asked[category], models)
        if output is not None:
            yield category, output
    if done:
        raise done[-1]


def completed(
    name: str, settings: Any, *, shared: bool = True, models: Models | None = None
) -> Any:
    """The result of a run of some form, saved in the folder of the settings.

    ``shared`` says whether others share the work, where the settings ask for that; ``models`` has
    those that other runs of the command have loaded.

    Raises:
        InputError, ShareDone: as ``perform``.
    """
    return _result(_asked(name, settings), models or Models(), shared=shared)


@dataclass(frozen=True)
class _Asked:
    """A run that is to be made, and what it reads."""

    name: str  # of its form
    settings: Any
    texts: Any

    @property
    def data(self) -> DataRecord | None:
        """Where its texts come from, if it has such."""
        record = getattr(self.texts, "record", None)
        return record if isinstance(record, DataRecord) else None

    def refuse_other(self) -> None:
        """Make sure that no finished run of something else is in the folder."""
        _refuse_other(self.settings.folder, self.name, self.settings, self.data)


def _form(spec: Spec, settings: Any) -> str:
    return str(settings.form) if len(spec.forms) > 1 else spec.name


def _asked(name: str, settings: Any) -> _Asked:
    form = FORMS[name]
    return _Asked(name, settings, imported(form.texts)(settings) if form.texts else None)


def _output(run: _Asked, models: Models) -> Output:
    settings, result = run.settings, _result(run, models)
    output = shown(FORMS[run.name], result, settings.folder, getattr(settings, "top", 10))
    return replace(output, failures=settings.failures(result))


def _result(run: _Asked, models: Models, *, shared: bool = True) -> Any:
    form, settings, folder = FORMS[run.name], run.settings, run.settings.folder
    how: dict[str, Any] = {"data": run.data, "kept": form.kept, "shared": shared}
    with working(settings, run.name, folder, models=models, **how) as work:
        if form.function:
            return _measured(form, settings, run.texts, work)
        return imported(form.compute)(settings, run.texts, work)


@contextmanager
def naming(category: str) -> Iterator[None]:
    """Say in messages about input which of several runs they are about."""
    try:
        yield
    except InputError as error:
        if not category:
            raise
        raise type(error)(f"category {category}: {error}") from error


def _measured(form: Form, settings: Any, texts: Texts, work: Work) -> Any:
    """What a function of the library says of a model and texts, saved."""
    model, config = work.model(settings.model), part_of(settings, imported(form.config))
    function = imported(form.function)
    some = texts.some(form.unit.removesuffix("s"))
    with work.progress(f"{model.name} · {settings.subject}{some}", form.unit) as progress:
        how = {"config": config, "progress": progress, "cache": work.cache}
        result = function(model, texts.items, **texts.options, **how)
    return work.saved(result)


def shown(form: Form, result: Any, folder: Path, top: int) -> Output:
    """What is printed of a result that is saved in a folder; as JSON with what it comes to."""
    output: Output = imported(form.shown)(result, folder, top=top)
    if not form.outcomes:
        return output

    def verdicts() -> list[dict[str, Any]]:
        return [one.as_values() for one in outcomes_of(form, result)]

    return replace(output, verdicts=verdicts)


def printed(run: Run, *, top: int = 10) -> Output:
    """Output of a finished run; of a ranking the first ``top`` rows."""
    form = FORMS[run.command]
    return shown(form, run.load(imported(form.load)), run.folder, top)


def outcomes_of(form: Form, result: Any) -> list[Outcome]:
    """What a result comes to; nothing where its form has no verdict."""
    found: list[Outcome] = imported(form.outcomes)(result) if form.outcomes else []
    return found


@dataclass
class Work:
    """A run in the making."""

    settings: Any
    folder: Path
    kept: Path  # the folder inside it of finished parts
    data: DataRecord | None
    shard: Shard | None  # the share of this process; None for all
    cluster: Cluster | None  # computes the parts; None where this process does
    refuse_other_weights: Callable[[LanguageModel], None]
    models: Models  # that runs of the command have loaded

    def model(self, name: str, **options: Any) -> LanguageModel:
        """Load the model; ``options`` are those of ``load_language_model``."""
        model = self.models.language_model(name, self.settings, self.settings.console, **options)
        self.refuse_other_weights(model)

        from tda_bias.models.load import load_language_model

        how = {**placement(self.settings), **options}
        return self.held(model, partial(loaded, load_language_model, name, **how))

    def hooked_model(self, name: str) -> LoadedModel:
        """Load the model with hooks on its attention."""
        model = self.models.hooked_model(name, self.settings, self.settings.console)
        self.refuse_other_weights(model)

        from tda_bias.models.load import load_model

        return self.held(model, partial(loaded, load_model, name, **placement(self.settings)))

    def held(self, model: M, make: Callable[[], M]) -> M:
        """A model, which workers of a cluster make for themselves instead of being sent it."""
        if self.cluster is not None:
            from tda_bias.models.language_model import named_parts

            self.cluster.hold(model, make, names=named_parts, mark=type(model).weight_hash)
        return model

    def progress(self, title: str, what: str) -> AbstractContextManager[Moved]:
        """Show how far the work is."""
        return progress_bar(self.settings, title, what)

    def saved(self, result: R, *, figures: Mapping[str, Figure] | None = None, **record: Any) -> R:
        """Save a result in the folder, with the settings, the data and more in its record."""
        about = {} if self.data is None else {"data": self.data}
        made = result.with_record(settings=self.settings.recorded(), **about, **record)
        made.save(self.folder, figures=figures)
        return made

    def inside(self, folder: Path, *, kept: str) -> Work:
        """The same work in another folder, as of a control inside the run's."""
        return replace(self, folder=folder, kept=folder / kept)

    @property
    def cache(self) -> OpenCache:
        """Opens the cache of finished parts, given what their numbers depend on."""
        how = {"resume": self.settings.resume, "overwrite": self.settings.overwrite}
        return partial(Cache, self.kept, shard=self.shard, cluster=self.cluster, **how)


@contextmanager
def working(
    settings: OutputSettings,
    command: str,
    folder: Path,
    *,
    data: DataRecord | None = None,
    kept: str = "parts",
    shared: bool = True,
    models: Models | None = None,
    least: Changes = Changes.TABLES,
) -> Iterator[Work]:
    """Hold a folder while a run, or a share of it, is computed and written.

    A resumed run says what it takes over; an interrupted one what is kept. Folders that are made
    for a run that then fails before it leaves anything are taken away again.

    ``kept`` names the folder of finished parts inside; ``shared`` says whether others share the
    work; ``least`` which settings a finished run there must share.

    Raises:
        InputError: if the folder holds a finished run of something else, is held by another
            process, or cannot be written.
    """
    sharing = settings if shared and isinstance(settings, SharedRunSettings) else None
    shard = Shard.named(sharing.shard) if sharing is not None and sharing.shard else None
    parts = folder / kept

    def finished() -> int:
        return sum(1 for _ in parts.rglob("*.npz"))

    with (
        interruptible(finished, parts),
        held(folder, command, settings, data, shard, least) as refuse,
        _cluster_of(sharing) as cluster,
    ):
        if isinstance(settings, KeptRunSettings) and settings.resume and (number := finished()):
            found = counted(number, "finished part")
            say(settings.console, f"Going on with {found} in {parts}; --no-resume starts over.")
        yield Work(settings, folder, parts, data, shard, cluster, refuse, models or Models())


def progress_bar(settings: OutputSettings, title: str, unit: str) -> AbstractContextManager[Moved]:
    """Show how far something is: at once in a terminal, every ten seconds in a log."""
    from tda_bias.show.progress import progress_bar

    log = not settings.console.is_terminal
    return progress_bar(title, unit, log=log, quiet=settings.quiet)


@contextmanager
def interruptible(
    finished: Callable[[], int], where: Path, what: str = "finished part"
) -> Iterator[None]:
    """On Ctrl-C say where what is finished is kept, if anything is, and end with exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        number = finished()
        said = f"{counted(number, what)} {'is' if number == 1 else 'are'} kept in {where}"
        typer.echo(
            f"Interrupted. {said}; the same command goes on."
            if number
            else f"Interrupted before a {what} was there: nothing is kept.",
            err=True,
        )
        raise typer.Exit(130) from None


@contextmanager
def held(
    folder: Path,
    command: str,
    settings: OutputSettings,
    data: DataRecord | None = None,
    shard: Shard | None = None,
    least: Changes = Changes.TABLES,
) -> Iterator[Callable[[LanguageModel], None]]:
    """Hold the folder of a run, or a share of it.

    Yields:
        What to call with the model once it is loaded: it refuses to write over a run of others.
    """

    def refuse(weights: str | None = None) -> None:
        _refuse_other(folder, command, settings, data, least, weights)

    refuse()
    if shard is not None:
        with locked(folder, f"{shard.index + 1}-of-{shard.count}"):
            yield lambda model: refuse(weights=model.weight_hash())
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    with locked(folder):
        try:
            refuse()
            prepare_folder(folder)
            yield lambda model: refuse(weights=model.weight_hash())
        except BaseException:
            _take_away(missing)
            raise


def _refuse_other(
    folder: Path,
    command: str,
    settings: OutputSettings,
    data: DataRecord | None = None,
    least: Changes = Changes.TABLES,
    weights: str | None = None,
) -> None:
    """Make sure that no finished run of something else would be written over."""
    if isinstance(settings, RunSettings):
        numbers, overwrite = settings.compared(least), settings.overwrite
        about: dict[str, Any] = {"settings": numbers, "data": data, "weights": weights}
        refuse_other_run(folder, command, **about, overwrite=overwrite)
    else:  # its own earlier results are written over
        refuse_run_of_another_command(folder, command)


def _take_away(folders: list[Path]) -> None:
    """Delete folders that hold nothing but the lock, innermost first."""
    inside = list(folders[0].iterdir()) if folders and folders[0].is_dir() else []
    if all(path.name.startswith(".tdabias.") for path in inside):
        for path in inside:
            path.unlink(missing_ok=True)
    for folder in folders:
        # Another program may have put something there meanwhile.
        with suppress(OSError):
            folder.rmdir()


# -- who shares the work --------------------------------------------------------------------------


@contextmanager
def _cluster_of(settings: SharedRunSettings | None) -> Iterator[Cluster | None]:
    """The cluster that settings ask for; None where they do not.

    Raises:
        InputError: if what it needs is not installed, or no scheduler answers.
    """
    if settings is None or settings.cluster is None:
        yield None
        return
    try:
        from tda_bias.store.cluster import connected
    except ImportError:
        raise InputError(
            "`cluster` needs the package distributed: pip install 'tdabias[cluster]'; --shard does "
            "not"
        ) from None
    from tda_bias.models.load import visible_gpus

    place = settings.cluster
    gpus = visible_gpus() if getattr(settings, "device", "") == "auto" else []
    # What an interruption leaves unanswered on the way is no news.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    say(settings.console, f"cluster {place}")
    with connected(place, gpus=gpus) as cluster:
        if not cluster.n_workers:
            say(settings.console, f"{place} has no workers yet: waiting for the first")
        yield cluster


def _refuse_launcher(settings: Any) -> None:
    """Refuse several processes of a launcher, which know nothing of each other.

    Raises:
        InputError: unless every process is told its share.
    """
    count = os.environ.get("WORLD_SIZE", "")
    told = getattr(settings, "shard", None) is not None
    if isinstance(settings, RunSettings) and not told and count.isdigit() and int(count) > 1:
        raise InputError(
            f"a launcher started {count} processes (WORLD_SIZE), each of which would do the whole; "
            f"start one with --cluster local:{count}, or let srun start them with --shard auto"
        )


@contextmanager
def stage(done: list[ShareDone]) -> Iterator[None]:
    """A part of a command after which others follow: a process that only shares goes on to them.

    What ends the command once all parts are done is put into ``done``.
    """
    try:
        yield
    except ShareDone as share:
        done.append(share)
