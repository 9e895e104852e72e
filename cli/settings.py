"""Settings of a command: defaults, then the YAML file, then flags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pvf.config import RiskConfig, ScoreConfig
from tda_bias.config import HeadBiasConfig
from tda_bias.records.settings import (
    Settings,
    parse_yaml,
    setting_names,
    unknown_setting,
    validated,
)
from tda_bias.types import InputError, PValue, RankBy
from unqover.config import AskConfig, DesignConfig, InferenceConfig


class TriplesSettings(BaseModel):
    """What every command that runs a model on triples can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )
    category: Literal["gender", "profession", "race", "religion", "all"] = Field(
        description="gender, profession, race, religion or all"
    )
    group: tuple[str, ...] = Field((), description="only this target; may be given several times")
    data: str = Field(
        "stereoset",
        description="stereoset (the hub), starter (ships with tdabias, demonstrates only), or a "
        "file: dev.json or JSON Lines",
    )
    device: str = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps"
    )
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = Field(
        "float32", description="type of the weights; half precision can make patterns useless"
    )
    limit: int | None = Field(None, ge=1, description="at most so many triples of each group")
    format: Literal["table", "json"] = Field("table", description="what to print")

    @field_validator("group", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class HeadsSettings(HeadBiasConfig, TriplesSettings):
    """Everything ``tdabias heads`` can be told."""

    top: int = Field(10, ge=1, description="heads to print")
    out: Path | None = Field(
        None, description="folder for the files (default: runs/MODEL/CATEGORY)"
    )
    resume: bool = Field(True, description="reuse groups that an earlier run finished")

    @property
    def folder(self) -> Path:
        """Where the files go."""
        if self.out is not None:
            return self.out
        return Path("runs") / model_folder(self.model) / self.category

    def analysis(self) -> HeadBiasConfig:
        """The part that the library needs."""
        return part_of(self, HeadBiasConfig)


class StereoSetSettings(TriplesSettings):
    """Everything ``tdabias stereoset`` can be told."""

    batch_size: int = Field(32, ge=1, description="texts per forward pass")
    share_prefix: Literal["auto", "never"] = Field(
        "auto", description="run the context of a triple once, where that is exact"
    )
    n_resamples: int = Field(2000, ge=100, description="bootstrap resamples of items")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, description="fixes every random draw")
    out: Path | None = Field(
        None, description="folder for the files (default: runs/MODEL/stereoset-CATEGORY)"
    )

    @property
    def folder(self) -> Path:
        """Where the files go."""
        by_default = Path("runs") / model_folder(self.model) / f"stereoset-{self.category}"
        return self.out or by_default


def option(settings: type[BaseModel], name: str, *flags: str, **more: Any) -> Any:
    """An option whose help and default are those of the setting."""
    field = settings.model_fields[name]
    text = field.description or ""
    if not field.is_required() and field.default not in (None, ()):
        # In round brackets: square ones are markup in help texts, and vanish.
        text += f" (default: {field.default})"
    return typer.Option(*(flags or (f"--{name.replace('_', '-')}",)), help=text, **more)


def model_folder(model: str) -> str:
    """A model's name as the name of a folder."""
    local = Path(model)
    return local.resolve().name if local.is_dir() else model.replace("/", "--")


def from_flags_and_file(
    settings: type[Settings], flags: Mapping[str, Any], config: Path | None
) -> Settings:
    """Merge what was given; a flag that was not given is None (or empty).

    Raises:
        InputError: on an unknown key, a value that does not fit, or an unreadable file.
    """
    given = {name: value for name, value in flags.items() if value is not None and value != []}
    if config is None:
        return validated(settings, given)
    values = read_yaml(config)
    unknown = sorted(map(str, set(values) - set(setting_names(settings))))
    if unknown:
        raise InputError(f"{config}: {unknown_setting(unknown[0], settings)}")
    return validated(settings, {**values, **given})


def part_of(whole: BaseModel, settings: type[Settings]) -> Settings:
    """The settings of one of the library's functions, among those of a command."""
    return settings(**whole.model_dump(include=set(settings.model_fields)))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file with one mapping.

    Raises:
        InputError: if it cannot be read or is something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"`config` {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"`config` {path} is not YAML") from None
    content = parse_yaml(text, f"`config` {path}")
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"`config` {path} must hold `setting: value` lines")
    return content


class PvfSettings(ScoreConfig, RiskConfig):
    """Everything ``tdabias pvf`` can be told."""

    model: tuple[str, ...] = Field(
        min_length=1,
        description="hub name, local folder, or smollm2-135m; several give one comparison",
    )
    attribute: str = Field(
        description="gender, pronouns, race, religion, disability, or a YAML file of word classes"
    )
    words: str = Field(
        "occupations",
        description="words x: occupations, StereoSet's targets (professions, people), or a file, "
        "one per line",
    )
    templates: str | None = Field(
        None,
        description="gender, race, or a CSV template,count (default: gender for gender and "
        "pronouns, else race)",
    )
    x_weights: Path | None = Field(None, description="CSV x,weight, e.g. numbers of employees")
    device: str = Field("auto", description="auto (a GPU where there is one), cpu, cuda, mps")
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = Field(
        "float32", description="type of the weights"
    )
    untrained: bool = Field(
        False, description="read the same architecture with random weights too, as a further row"
    )
    top: int = Field(5, ge=1, description="words x to print on each side")
    out: Path | None = Field(
        None, description="folder for the files (default: runs/MODEL/pvf-ATTRIBUTE)"
    )
    format: Literal["table", "json"] = Field("table", description="what to print")

    @field_validator("model", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _templates_for_own_classes(self) -> PvfSettings:
        known = ("gender", "pronouns", "race", "religion", "disability")
        if self.templates is None and self.attribute not in known:
            raise ValueError("templates is needed with a file of word classes: gender, race or CSV")
        if len(set(self.model)) < len(self.model):
            raise ValueError("model must not be given twice")
        return self

    @property
    def template_source(self) -> str:
        """Where the templates come from."""
        by_default = "gender" if self.attribute in ("gender", "pronouns") else "race"
        return self.templates or by_default

    def folder(self, model: str) -> Path:
        """Where a model's files go."""
        if self.out is not None:
            return self.out / model_folder(model) if len(self.model) > 1 else self.out
        name = "-".join(
            ["pvf", Path(self.attribute).stem]
            + [Path(self.words).stem] * (self.words != "occupations")
        )
        return Path("runs") / model_folder(model) / name

    def part(self, settings: type[Settings]) -> Settings:
        """The part that one of the library's functions needs."""
        return part_of(self, settings)


class UnqoverSettings(DesignConfig, AskConfig, InferenceConfig):
    """Everything ``tdabias unqover`` can be told."""

    model: str = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )
    class_: str = Field(
        alias="class",
        min_length=1,
        description="gender, nationality, ethnicity, religion, education, age, gender_race, "
        "gender_race_names, or a YAML file of subjects, attributes and frames",
    )
    device: str = Field("auto", description="auto (a GPU where there is one), cpu, cuda, mps")
    dtype: Literal["float32", "float64", "float16", "bfloat16"] = Field(
        "float32", description="type of the weights"
    )
    top: int = Field(5, ge=1, description="attributes (or groups) to print")
    out: Path | None = Field(
        None, description="folder for the files (default: runs/MODEL/unqover-CLASS)"
    )
    resume: bool = Field(True, description="reuse answers that an earlier run finished")
    format: Literal["table", "json"] = Field("table", description="what to print")

    @property
    def folder(self) -> Path:
        """Where the files go."""
        own = f"unqover-{Path(self.class_).stem}"
        if self.attribute_set is not None:
            own += f"-{self.attribute_set}"
        return self.out or Path("runs") / model_folder(self.model) / own

    def part(self, settings: type[Settings]) -> Settings:
        """The part that one of the library's functions needs."""
        return part_of(self, settings)


class ReproduceSettings(HeadsSettings):
    """Everything ``tdabias reproduce`` can be told; defaults are what the head paper did."""

    category: Literal["gender", "profession", "race", "religion", "all"] = Field(
        "all", description="which categories"
    )
    pvalue: PValue = Field("paper", description="which p-value the q columns use")
    rank_by: RankBy = Field("metric", description="the map that ranks heads")
    out: Path | None = Field(
        None, description="folder for the files (default: runs/MODEL/reproduce)"
    )

    @property
    def folder(self) -> Path:
        """Where the page goes; the run itself goes to ``heads`` inside it."""
        return self.out or Path("runs") / model_folder(self.model) / "reproduce"

    def heads(self) -> HeadsSettings:
        """The run of ``tdabias heads``."""
        return HeadsSettings(**{**self.model_dump(), "out": self.folder / "heads"})
