"""The folder of a run: held by one process, and never written over by a run of something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tda_bias.runs.work import ALONE, Shard, Team

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel
    from tda_bias.runs.cache import Store
    from tda_bias.runs.record import DataRecord

    from .settings import SharedRunSettings


class NumbersSettings(Protocol):
    """Settings of a command that leaves numbers in a folder."""

    @property
    def overwrite(self) -> bool:
        """Tell whether a finished run of something else may be lost."""

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""


@contextmanager
def run_folder(
    folder: Path,
    command: str,
    settings: NumbersSettings,
    *,
    data: DataRecord | None = None,
    team: Team = ALONE,
) -> Iterator[Callable[[LanguageModel], None]]:
    """Hold a folder while a run is computed and written, or a share of it while that is computed.

    Folders that are made for a run that then fails before it leaves anything are taken away again.

    Args:
        folder: Where the run goes.
        command: Its command.
        settings: Its settings.
        data: Its texts.
        team: The processes that share the work; the first of a launcher's holds the folder for all.

    Yields:
        What to call with the model once it is loaded: it refuses to write over a run of others.

    Raises:
        InputError: if the folder holds a finished run of something else, is held by another
            process, or cannot be written.
    """
    from tda_bias.runs.files import prepare_folder
    from tda_bias.runs.lock import locked, locked_share
    from tda_bias.runs.run import refuse_other_run

    depends_on = settings.numbers_depend_on()

    def refuse(weights: str | None = None) -> None:
        refuse_other_run(
            folder,
            command,
            settings=depends_on,
            data=data,
            weights=weights,
            overwrite=settings.overwrite,
        )

    if team.index and not isinstance(team, Shard):
        yield lambda model: None
        return
    refuse()
    if isinstance(team, Shard):
        with locked_share(folder, f"{team.index + 1}-of-{team.count}"):
            yield lambda model: refuse(model.weight_hash())
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    with locked(folder):
        try:
            refuse()
            prepare_folder(folder)
            yield lambda model: refuse(model.weight_hash())
        except BaseException:
            _take_away(missing)
            raise


def parts_in(folder: Path, settings: SharedRunSettings, team: Team) -> Store:
    """Function that opens the finished parts of a run, given what their numbers depend on.

    Args:
        folder: Where they are.
        settings: Whether earlier ones are reused (``resume``) or may be lost.
        team: The processes that share the work.
    """
    from tda_bias.runs.cache import open_parts

    resume = getattr(settings, "resume", True)
    return partial(open_parts, folder, resume=resume, overwrite=settings.overwrite, team=team)


def _take_away(folders: list[Path]) -> None:
    """Delete folders that hold nothing but the lock, innermost first."""
    inside = list(folders[0].iterdir()) if folders and folders[0].is_dir() else []
    if all(path.name.startswith(".tdabias.") for path in inside):
        for path in inside:
            path.unlink(missing_ok=True)
    for folder in folders:
        # Whoever put something there meanwhile needs it.
        with suppress(OSError):
            folder.rmdir()
