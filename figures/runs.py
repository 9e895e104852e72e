"""Folders of finished runs, opened by the command that wrote them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pvf.results import RiskReport
    from tda_bias.ablation_study import AblationStudy
    from tda_bias.example import ExamplePattern
    from tda_bias.results import HeadBias
    from unqover.report import Report

COMMANDS = ("heads", "pvf", "unqover", "ablate", "crossref")


@dataclass(frozen=True)
class Run:
    """One finished run.

    Attributes:
        folder: Where it is.
        command: What wrote it.
        record: Its ``run.json``.
    """

    folder: Path
    command: str
    record: dict[str, Any]

    @cached_property
    def id(self) -> str:
        """Twelve characters that name this run: a hash of its record."""
        text = json.dumps(self.record, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    @property
    def model(self) -> str:
        """Name of its model."""
        named = self.record.get("model", "")
        return str(named["name"] if isinstance(named, dict) else named)

    @cached_property
    def heads(self) -> HeadBias:
        """A run of ``tdabias heads``."""
        from tda_bias.results import HeadBias

        return HeadBias.load(self.folder)

    @cached_property
    def example(self) -> ExamplePattern:
        """The attention it kept of one text."""
        from tda_bias.example import ExamplePattern

        return ExamplePattern.load(self.folder)

    @cached_property
    def risk(self) -> RiskReport:
        """A run of ``tdabias pvf``."""
        from pvf.results import load_report

        return load_report(self.folder)

    @cached_property
    def questions(self) -> Report:
        """A run of ``tdabias unqover``."""
        from unqover.answers import Answers
        from unqover.report import bias_report

        return bias_report(Answers.load(self.folder))

    @cached_property
    def question_figures(self) -> dict[str, Figure]:
        """Its figures, drawn once."""
        from unqover.plots import report_figures

        return report_figures(self.questions)

    @cached_property
    def ablation(self) -> AblationStudy:
        """A run of ``tdabias ablate``."""
        from tda_bias.ablation_study import AblationStudy

        return AblationStudy.load(self.folder)

    @cached_property
    def targets(self) -> pd.DataFrame:
        """The joined table of ``tdabias crossref``."""
        try:
            return pd.read_csv(self.folder / "targets.csv")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.folder} has no targets.csv; `tdabias crossref` makes it ({error})"
            ) from error


def open_run(folder: Path) -> Run:
    """A finished run of any command.

    Raises:
        InputError: if the folder holds none.
    """
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        command = record.get("command", "heads")
    except (OSError, ValueError, AttributeError):
        known = ", ".join(f"`tdabias {name}`" for name in COMMANDS)
        raise InputError(f"{folder} holds no finished run; {known} make one") from None
    if command not in COMMANDS:
        raise InputError(
            f"{folder} is a run of `tdabias {command}`, which has no figures; give runs of "
            f"{', '.join(COMMANDS)}"
        )
    return Run(folder, command, record)


def with_parts(folders: list[Path]) -> list[Run]:
    """The runs, and the ablations and cross-references inside their folders.

    Raises:
        InputError: as ``open_run``.
    """
    found = [open_run(folder) for folder in folders]
    for run in list(found):
        for name in ("ablate", "crossref"):
            inside = run.folder / name
            if (inside / "run.json").is_file() and inside not in folders:
                found.append(open_run(inside))
    return found
