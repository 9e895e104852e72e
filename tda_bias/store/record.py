"""The record of a run: ``run.json``, typed and versioned; each command's is a subclass of it."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from tda_bias.store.files import RECORD, now, to_json
from tda_bias.store.hashes import bytes_hash
from tda_bias.store.settings import Settings, validated
from tda_bias.types import Attention, InputError

Version = Literal[3]
(VERSION,) = get_args(Version)
# Whether a chat model is asked to think before it answers.
Thinking = Literal["off", "on"]
# The source of texts that ship.
PACKAGED = "packaged"
V = TypeVar("V")
_PACKAGES = "datasets numpy pandas pyarrow scipy tokenizers torch transformer-lens transformers"


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages whose numbers these are."""
    return {
        **{name: installed(name) for name in _PACKAGES.split()},
        "python": platform.python_version(),
    }


# A number that may be undefined: NaN here, null in JSON.
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


class EarlierRunError(InputError):
    """A run whose record is of an earlier version of tdabias."""


class RecordPart(BaseModel):
    """A part of a record. It keeps entries it does not know: a subclass may."""

    model_config = ConfigDict(
        frozen=True, extra="allow", protected_namespaces=(), populate_by_name=True
    )


class ModelRecord(RecordPart):
    """A model as it was run: its name as it was asked for, and the hash of its weights."""

    name: str
    architecture: str | None = None
    revision: str | None = None
    weights: str | None = None
    dtype: str | None = None
    device: str | None = None
    parameters: int | None = None
    tokenizer: str | None = None
    vocabulary: int | None = None


class HookedModelRecord(ModelRecord):
    """A model whose attention was read: its direction, the layers, and who showed the patterns."""

    weights: str
    dtype: str
    attention: Attention
    layers: tuple[int, ...] = Field(min_length=1)
    patterns: Literal["transformer-lens", "eager"] = "transformer-lens"


class ChatRecord(RecordPart):
    """What a chat template put around every message: a system prompt or a date is seen there."""

    before: str
    after: str
    between: str
    thinking: Thinking | None = None  # None: the template knows no thinking


class DataRecord(RecordPart):
    """Source of texts: what was given, which state of it, and remarks, a sentence each."""

    source: str
    revision: str | None = None
    remarks: tuple[str, ...] = ()


class SourceOfRun(RecordPart):
    """Something that a run read: what it is called, where it was read, which state of it."""

    source: str
    name: str = ""
    revision: str | None = None


class FileRecord(RecordPart):
    """A file of a run: the hash of its bytes (XXH3, 128 bits), and whether it was added later."""

    hash: str
    added: bool = False


class RunRecord(RecordPart):
    """Entries of a run that every command writes."""

    version: Version = VERSION
    command: str
    tdabias: str | None = Field(default_factory=lambda: installed("tdabias"))
    created: str | None = Field(default_factory=now)  # in UTC
    model: ModelRecord
    settings: dict[str, Any] = Field(default_factory=dict)
    data: DataRecord | None = None
    # On how the model's tokenizer read the texts, a sentence each.
    remarks: tuple[str, ...] = ()
    # Hashes of the results it was made from, by command; see ``content_hash``.
    made_from: dict[str, str] = Field(default_factory=dict)
    # What ``reads`` says, written down when the run is saved: each command has a record of its own.
    sources: tuple[SourceOfRun, ...] = ()
    packages: dict[str, str] = Field(default_factory=package_versions)
    files: dict[str, FileRecord] = Field(default_factory=dict)

    def setting(self, name: str, default: V) -> V:
        """Value of one of the command's settings; ``default`` if the run names none.

        The default says which type is meant; a tuple stands for several texts.

        Raises:
            InputError: if the record holds something else.
        """
        value: Any = self.settings.get(name)
        if value is None:
            return default
        fits = type(value) is type(default)
        if isinstance(default, tuple) and isinstance(value, list | tuple):
            value = tuple(value)
            fits = all(isinstance(item, str) for item in value)
        if not fits:
            raise InputError(
                f"the record of the run is not as `tdabias {self.command}` writes it: "
                f"`settings.{name}` is {value!r}; run it again"
            )
        found: V = value
        return found

    def settings_as(self, kind: type[Settings], names: Iterable[str] | None = None) -> Settings:
        """The command's settings as a configuration; those it does not name are the usual ones.

        Args:
            kind: The configuration.
            names: Which of its fields are taken; all if None.

        Raises:
            InputError: if a setting is not one that ``kind`` allows.
        """
        given = {name: self.settings.get(name) for name in names or kind.model_fields}
        return validated(kind, {name: one for name, one in given.items() if one is not None})

    def reads(self) -> list[SourceOfRun]:
        """What the run read: the texts, and sets and files that its settings name."""
        read = []
        if self.data is not None:
            read.append(SourceOfRun(source=self.data.source, revision=self.data.revision))
        given = [self.settings.get(name) for name in ("set", "pairs", "text")]
        named = [str(one) for one in given if one not in (None, "none", "self")]
        return [*read, *(SourceOfRun(source=one) for one in named)]

    @field_validator("files")
    @classmethod
    def _inside_the_folder(cls, files: dict[str, FileRecord]) -> Any:
        for name in files:
            if name in ("", ".", "..", RECORD) or set(name) & set("/\\\0"):
                raise ValueError(f"names {name!r}, which is no file of a run")
        return files


R = TypeVar("R", bound=RunRecord)
P = TypeVar("P", bound=RecordPart)


def updated(record: R, entries: Mapping[str, Any]) -> R:
    """The same record with further entries; new ones win."""
    unknown = sorted(set(entries) - set(type(record).model_fields))
    if unknown:
        raise TypeError(f"{type(record).__name__} has no {unknown[0]}")
    return validated_part(type(record), {**dict(record), **entries}, "the record")


def validated_part(kind: type[P], values: Any, where: str) -> P:
    """A record, or a part of one, from plain values.

    Raises:
        InputError: naming the first value that does not fit; ``where`` begins the message.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        said = f"{reason[0].lower()}{reason[1:]}"
        raise InputError(f"{where}: `{name}`: {said}" if name else f"{where}: {said}") from None


# -- JSON ------------------------------------------------------------------------------------------


def sealed(record: RunRecord) -> str:
    """The text of ``run.json``: the record, and a hash that shows later changes to it."""
    values: dict[str, Any] = json.loads(to_json(record.model_dump(by_alias=True)))
    values |= {name: values.pop(name) for name in ("packages", "files")}  # the long ones last
    return to_json({**values, "checksum": checksum(values)})


def parsed(text: str, where: Path) -> dict[str, Any]:
    """The plain values of a ``run.json``.

    Raises:
        InputError: if it is no record, was changed, or is of another version.
    """
    try:
        values: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({error})") from None
    if not isinstance(values, dict) or "version" not in values:
        raise InputError(f"{where} is no record of a run: it names no version; run it again")
    version = values["version"]
    if isinstance(version, int) and version > VERSION:
        raise InputError(
            f"{where} was written by a newer tdabias (its records are of version {version}, this "
            f"one reads {VERSION}); update tdabias"
        )
    if isinstance(version, int) and version < VERSION:
        raise EarlierRunError(
            f"{where} was written by an earlier tdabias; run the command again with --overwrite"
        )
    if values.pop("checksum", None) != checksum(values) or "command" not in values:
        raise InputError(
            f"{where} is not as it was written: it was changed or damaged; run the command again "
            "with --overwrite (finished parts are reused)"
        )
    return values


def checksum(values: Mapping[str, Any]) -> str:
    """Hash of a record's plain values, without the checksum itself."""
    return bytes_hash([json.dumps(values, sort_keys=True).encode()])
