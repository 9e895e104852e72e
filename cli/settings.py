"""Settings that several commands share, and the types that they check paths and names with."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from tda_bias.types import MAX_COUNT

# What file systems take: bytes of one name and of a path. More folders than that in each other are
# beyond what Python's own functions walk through.
_NAME_BYTES, _PATH_BYTES, _FOLDERS = 255, 4095, 100
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


def _usable(value: Any) -> Any:
    """Refuse what no file system takes as a path; a model on the hub is one too in the cache."""
    path = Path(value)
    if any(len(part.encode()) > _NAME_BYTES for part in path.parts):
        raise ValueError(f"must not have more than {_NAME_BYTES} bytes in a name")
    if len(str(value).encode()) > _PATH_BYTES:
        raise ValueError(f"must not have more than {_PATH_BYTES} bytes")
    if len(path.parts) > _FOLDERS:
        raise ValueError(f"must not have more than {_FOLDERS} folders in each other")
    return value


def _known_device(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise ValueError(f"must be auto, cpu, cuda, cuda:N or mps; got {value!r}")
    return value


def _known_shard(value: str) -> str:
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"must be i/n with i from 1 to n, as in 2/8; got {value!r}")
    return value


Name = Annotated[str, AfterValidator(_usable)]
FilePath = Annotated[Path, AfterValidator(_usable)]
Device = Annotated[str, AfterValidator(_known_device)]
Dtype = Literal["float32", "float64", "float16", "bfloat16"]
Precision = Literal["float32", "bfloat16"]
Format = Literal["table", "json", "csv"]
# A file may hold one of them without a list around it.
Several = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)


class CommandSettings(BaseModel):
    """Something that a command can be told: checked once, and fixed from there on."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlacementSettings(CommandSettings):
    """Settings of a model's placement and of the type of its weights."""

    device: Device = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps"
    )
    device_map: Name | None = Field(
        None,
        description="for a model larger than a device: auto or balanced (evenly over GPUs, what "
        "is left over memory and disk), or a YAML or JSON file of names of parts with their "
        "devices, cpu or disk",
    )
    dtype: Dtype = Field(
        "float32", description="type of the weights; half precision can make patterns useless"
    )


class OutputSettings(CommandSettings):
    """How a command speaks."""

    format: Format = Field("table", description="what to print")
    quiet: bool = Field(False, description="no progress and no table: errors only")
    verbose: bool = Field(False, description="also print what the finding rests on")


class PrecisionOption(CommandSettings):
    """How a command computes that removes heads."""

    precision: Precision = Field(
        "float32",
        description="of matrix products while heads are removed: float32, or bfloat16, faster "
        "on processors with instructions for it, and rounded",
    )


class RunSettings(OutputSettings):
    """Settings of every command that leaves a run in a folder."""

    overwrite: bool = Field(False, description="write over a finished run of something else")


class SharedRunSettings(RunSettings):
    """Settings of a command whose work several processes may share."""

    shard: Annotated[str, AfterValidator(_known_shard)] | None = Field(
        None,
        description="i/n: compute and save only the i-th of n shares of the work, as a job of an "
        "array; the same command without it gathers",
    )

    @model_validator(mode="after")
    def _shards_keep_what_others_made(self) -> SharedRunSettings:
        if self.shard is not None and not getattr(self, "resume", True):
            raise ValueError(
                "shard cannot go with --no-resume, which deletes what other shards have made"
            )
        return self


class TriplesSettings(PlacementSettings):
    """Settings of every command that runs a model on triples."""

    model: Name = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )
    category: Literal["gender", "profession", "race", "religion", "all"] = Field(
        description="gender, profession, race, religion or all"
    )
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this target; may be given several times"
    )
    data: Name = Field(
        "stereoset",
        description="stereoset (the hub), starter (ships with tdabias, demonstrates only), or a "
        "file: dev.json or JSON Lines",
    )
    limit: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="at most so many triples of each group"
    )


class TwinsOption(CommandSettings):
    """Tell whether and how the texts are compared with the same texts about other targets."""

    twins: Name = Field(
        "auto",
        description="the same texts about other targets, which take wording out: auto (made where "
        "they can be), none, or a file that `tdabias twins` wrote",
    )


def folder_name(source: str) -> str:
    """A model, or another source that may be a file, as part of a folder's name.

    What lies on this machine carries a mark of its place: ``a/tiny`` and ``b/tiny`` are two.
    """
    path = Path(source)
    if not path.exists():
        return source.replace("/", "--")
    place = path.resolve()
    mark = hashlib.blake2b(str(place).encode(), digest_size=3).hexdigest()
    return f"{place.stem if place.is_file() else place.name}-{mark}"


model_folder = folder_name
