"""``tdabias unqover``: whom does a model pick where the text does not say?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tda_bias.store.identity import Changes
from tda_bias.types import MAX_COUNT
from unqover.classes import load_class
from unqover.config import AskConfig, DesignConfig, InferenceConfig
from unqover.questions import Design, sampled_design

from .run import Work
from .settings import ModelOption, Out, PlacementSettings, SharedRunSettings, folder_name, part_of

if TYPE_CHECKING:
    from unqover.report import Report


class UnqoverSettings(
    ModelOption,
    PlacementSettings,
    SharedRunSettings,
    DesignConfig,
    AskConfig,
    InferenceConfig,
):
    """Settings of ``tdabias unqover``."""

    class_: str = Field(
        alias="class",
        min_length=1,
        description="gender, nationality, ethnicity, religion, education, age, gender_race, "
        "gender_race_names, or a YAML file of subjects, attributes and frames",
    )
    top: Annotated[int, Changes.NOTHING] = Field(
        5, ge=1, le=MAX_COUNT, description="attributes (or groups) to print"
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/unqover-CLASS)")

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        name = f"unqover-{folder_name(self.class_)}"
        if self.attribute_set is not None:
            name += f"-{self.attribute_set}"
        return self.out or Path("runs") / folder_name(self.model) / name


def design(settings: UnqoverSettings) -> Design:
    """The questions that are asked."""
    chosen = load_class(settings.class_, attribute_set=settings.attribute_set)
    return sampled_design(chosen, part_of(settings, DesignConfig))


def compute(settings: UnqoverSettings, design: Design, work: Work) -> Report:
    """Ask, save the answers, and add what follows from them."""
    model = work.model(settings.model, head="as_trained")

    from unqover.asking import ask_questions
    from unqover.plots import report_figures
    from unqover.report import bias_report

    with work.progress(f"{settings.model} · {design.record.name}", "questions") as progress:
        answers = ask_questions(
            model,
            design,
            config=part_of(settings, AskConfig),
            progress=progress,
            cache=work.cache,
        )
    work.saved(answers)
    report = bias_report(answers, config=part_of(settings, InferenceConfig))
    report.save(work.folder, figures=report_figures(report))
    return report
