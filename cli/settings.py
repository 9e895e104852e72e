"""Settings that several commands share, and the types that they check paths and names with."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    model_validator,
)
from rich.console import Console

from tda_bias.config import ARunEach, Config
from tda_bias.store.hashes import text_hash
from tda_bias.store.identity import Changes, names_of
from tda_bias.store.shares import slurm_share
from tda_bias.types import MAX_COUNT, InputError

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")
_CLUSTER = re.compile(r"local:[1-9]\d{0,2}|[a-z]+://\S+:\d{1,5}")


def _known_device(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise ValueError(f"must be auto, cpu, cuda, cuda:N or mps; got {value!r}")
    return value


def _known_shard(value: str) -> str:
    if value == "auto":
        return slurm_share(os.environ)
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"must be auto, or i/n with i from 1 to n, as in 2/8; got {value!r}")
    return value


def _known_cluster(value: str) -> str:
    if not _CLUSTER.fullmatch(value):
        raise ValueError(
            "must be local:N for N processes of this machine, or the address of a Dask scheduler, "
            f"as in tcp://host:8786; got {value!r}"
        )
    return value


def _without_slash(value: str) -> str:
    # Completion by a shell adds one to a folder, which would be another model.
    return value.rstrip("/") or value


C = TypeVar("C", bound=BaseModel)
ModelName = Annotated[str, AfterValidator(_without_slash)]
Device = Annotated[str, AfterValidator(_known_device)]
Shard = Annotated[str, AfterValidator(_known_shard)]
ClusterPlace = Annotated[str, AfterValidator(_known_cluster)]
Dtype = Literal["float32", "float64", "float16", "bfloat16"]
Format = Literal["table", "json", "csv"]
# The folder or file that a command writes.
Out = Annotated[Path | None, Changes.NOTHING]
# A file may hold one of them without a list around it.
Several = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)


# -- options that several commands have, one class each --------------------------------------------


class ModelOption(Config):
    """The model that is measured."""

    model: Annotated[ModelName, Changes.NOTHING] = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )


class DeviceOption(Config):
    """Device of a model."""

    device: Annotated[Device, Changes.NOTHING] = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps"
    )


class DtypeOption(DeviceOption):
    """Device of a model, and the type of its weights."""

    dtype: Dtype = Field(
        "float32", description="type of the weights; half precision can make patterns useless"
    )


class PlacementSettings(DtypeOption):
    """Settings of a model's placement and of the type of its weights."""

    device_map: Annotated[str | None, Changes.NOTHING] = Field(
        None,
        description="for a model larger than a device: auto or balanced (evenly over GPUs, what "
        "is left over memory and disk), or a YAML or JSON file of names of parts with their "
        "devices, cpu or disk; tested on cpu and disk, not on several GPUs",
    )


class LimitOption(Config):
    """Number of texts read."""

    limit: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="at most so many triples or pairs of each target"
    )


class TriplesSettings(ModelOption, PlacementSettings, LimitOption):
    """Settings of every command that runs a model on triples."""

    category: Annotated[str, ARunEach] = Field(
        description="gender, profession, race or religion, one of your own file's, or all; several "
        "with commas, a run each"
    )
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this target; may be given several times"
    )
    data: Annotated[str, Changes.NOTHING] = Field(
        "stereoset",
        description="stereoset (the hub), starter (ships with tdabias, demonstrates only), or a "
        "file: dev.json, JSON Lines, CSV or TSV",
    )


class TwinsOption(Config):
    """Tell whether and how the texts are compared with the same texts about other targets."""

    twins: str = Field(
        "auto",
        description="the same texts about other targets, which take wording out: auto (made where "
        "they can be), none, or a file that `tdabias twins` wrote",
    )


class TextOption(Config):
    """Neutral text, on which perplexity is measured."""

    text: str = Field(
        "wikitext2", description="neutral text: wikitext2 (the hub), a text file or its folder"
    )


# -- how a command speaks, and what it leaves ------------------------------------------------------


class OutputSettings(Config):
    """Verbosity of a command."""

    format: Annotated[Format, Changes.NOTHING] = Field("table", description="what to print")
    quiet: Annotated[bool, Changes.NOTHING] = Field(
        False, description="no progress and no table: errors only"
    )
    verbose: Annotated[bool, Changes.NOTHING] = Field(
        False, description="also print what the finding rests on"
    )

    def failures(self, result: Any) -> Sequence[str]:
        """Reasons in a result to end with exit code 1; none, unless a command overrides this."""
        return ()

    @property
    def console(self) -> Console:
        """Standard error, for progress and remarks; of a quiet command nothing."""
        return Console(stderr=True, quiet=self.quiet)

    @property
    def unread(self) -> frozenset[str]:
        """Settings of another form of the command: they do nothing, and are not recorded."""
        return frozenset()

    @property
    def by_content(self) -> frozenset[str]:
        """Names of what is compared by its content, which the data of the record pin."""
        return frozenset()

    def recorded(self) -> dict[str, Any]:
        """The settings, as they stand in the record of a run."""
        return self.model_dump(mode="json", by_alias=True, exclude=set(self.unread))

    def compared(self, least: Changes = Changes.TABLES) -> dict[str, Any]:
        """The settings that a finished run in the folder must share; see ``identity``."""
        apart = {*self.unread, *self.by_content}
        names = names_of(type(self), least) - apart
        return self.model_dump(mode="json", by_alias=True, include=names)


class PageSettings(OutputSettings):
    """Settings of every command that writes the page."""

    name: str | None = Field(
        None, min_length=1, description="what the page calls the model (default: its name)"
    )
    tables: bool = Field(False, description="print tables and figures too, after the two pages")


class RunSettings(OutputSettings):
    """Settings of every command that leaves a run in a folder."""

    overwrite: Annotated[bool, Changes.NOTHING] = Field(
        False, description="write over a finished run of something else"
    )


class KeptRunSettings(RunSettings):
    """Settings of a command that keeps the parts it has finished."""

    resume: Annotated[bool, Changes.NOTHING] = Field(
        True, description="reuse what an earlier run finished"
    )


class SharedRunSettings(KeptRunSettings):
    """Settings of a command whose work several processes may share."""

    shard: Annotated[Shard | None, Changes.NOTHING] = Field(
        None,
        description="i/n: compute and save only the i-th of n shares of the work, as a job of an "
        "array; auto reads i and n of Slurm; the same command without it gathers",
    )
    cluster: Annotated[ClusterPlace | None, Changes.NOTHING] = Field(
        None,
        description="who computes: local:N, N processes of this machine, or a Dask scheduler "
        "(tcp://host:8786)",
    )

    @model_validator(mode="after")
    def _shards_keep_what_others_made(self) -> SharedRunSettings:
        if self.shard is not None and self.cluster is not None:
            raise ValueError("shard and cluster share the work in two ways; leave one out")
        if self.shard is not None and not self.resume:
            raise ValueError(
                "shard cannot go with --no-resume, which deletes what other shards have made"
            )
        return self


def by_category(settings: Any) -> dict[str, Any]:
    """Settings of the run of each category that is named, as if it were named alone.

    Its folder is inside ``out`` where that is given; else it has the category in its name. Settings
    without a category, or whose run reads several, stay as they are.
    """
    category = getattr(settings, "category", None)
    names = category.split(",") if isinstance(category, str) else []
    if len(names) < 2:
        return {"".join(names): settings}
    runs = {name: settings.model_copy(update={"category": name}) for name in names}
    if settings.out is not None:
        places = {name: settings.out / name for name in names}
    elif len({run.folder for run in runs.values()}) < len(names):
        places = {
            name: run.folder.with_name(f"{run.folder.name}-{name}") for name, run in runs.items()
        }
    else:
        return runs
    return {name: run.model_copy(update={"out": places[name]}) for name, run in runs.items()}


def refuse_options(settings: BaseModel, others: set[str], why: str) -> None:
    """Refuse options of another form of a command, which would do nothing."""
    if given := others & settings.model_fields_set:
        raise InputError(f"`{min(given)}` {why}; leave it out")


def folder_name(source: str) -> str:
    """A model, or another source that may be a file, as part of a folder's name.

    What lies on this machine carries a mark of its place: ``a/tiny`` and ``b/tiny`` are two.
    """
    path = Path(source)
    if not path.exists():
        return source.replace("/", "--").replace(":", "-")  # no file system takes both
    place = path.resolve()
    mark = text_hash(str(place), size=3)
    return f"{place.stem if place.is_file() else place.name}-{mark}"


def part_of(whole: BaseModel, settings: type[C]) -> C:
    """The settings of one of the library's functions, among those of a command."""
    return settings(**whole.model_dump(include=set(settings.model_fields)))
