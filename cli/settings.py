"""Settings of a command: defaults, then the YAML file, then flags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from tda_bias.config import HeadBiasConfig, Settings, parse_yaml, unknown_setting, validated
from tda_bias.types import InputError


class HeadsSettings(HeadBiasConfig):
    """Everything ``tdabias heads`` can be told."""

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
    top: int = Field(10, ge=1, description="heads to print")
    limit: int | None = Field(None, ge=1, description="at most so many triples of each group")
    out: Path | None = Field(None, description="folder for the files [runs/MODEL/CATEGORY]")
    resume: bool = Field(True, description="reuse groups that an earlier run finished")
    format: Literal["table", "json"] = Field("table", description="what to print")

    @field_validator("group", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def folder(self) -> Path:
        """Where the files go."""
        if self.out is not None:
            return self.out
        local = Path(self.model)
        name = local.resolve().name if local.is_dir() else self.model.replace("/", "--")
        return Path("runs") / name / self.category

    def analysis(self) -> HeadBiasConfig:
        """The part that the library needs."""
        names = set(HeadBiasConfig.model_fields)
        return HeadBiasConfig(**self.model_dump(include=names))


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
    unknown = sorted(map(str, set(values) - set(settings.model_fields)))
    if unknown:
        raise InputError(f"{config}: {unknown_setting(unknown[0], settings)}")
    return validated(settings, {**values, **given})


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
