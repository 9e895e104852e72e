"""Placement of the parts of a model: on one device, on several, in main memory, on disk.

A device map is what accelerate takes: by the name of a part its device, ``cpu`` or ``disk``. Parts
that are not on a device where they can be run are brought there when they are, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from torch import Tensor

from tda_bias.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DeviceMap = str | dict[str, str | int]
# Names that transformers knows for: evenly over devices, what is left over memory and disk.
BY_NAME = ("auto", "balanced")
# What the bridge puts between the names of a part and of what it wraps.
WRAPPED = "_original_component"


def read_device_map(source: str) -> DeviceMap:
    """A device map by its name, or from a file.

    Args:
        source: ``auto``, ``balanced``, or a YAML or JSON file: names of parts to devices
            (``cuda:0`` or 0, ``cpu``, ``disk``).

    Raises:
        InputError: if it is neither, or the file holds something else.
    """
    if source in BY_NAME:
        return source
    try:
        content = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise InputError(
            f"`device_map` must be {', '.join(BY_NAME)} or a readable file; {source!r}: {reason}"
        ) from None
    if not isinstance(content, dict) or not content:
        raise InputError(f"`device_map` {source} holds no names of parts with their devices")
    for part, place in content.items():
        if not isinstance(place, int) and place != "disk":
            _check_device(source, part, place)
    return {str(part): place for part, place in content.items()}


def _check_device(source: str, part: Any, place: Any) -> None:
    try:
        kind = torch.device(place).type
    except (RuntimeError, TypeError, ValueError):
        kind = "meta"
    if kind == "meta":
        raise InputError(
            f"`device_map` {source}: {part!r} must be on cpu, disk or a device; got {place!r}"
        )


def is_spread(hf_model: PreTrainedModel) -> bool:
    """Tell whether parts of a model are on several devices, or are brought to one when run."""
    places = {str(place) for place in (getattr(hf_model, "hf_device_map", None) or {}).values()}
    return len(places) > 1 or "disk" in places


def device_of_inputs(hf_model: PreTrainedModel) -> torch.device:
    """Device of a model's inputs."""
    for parameter in hf_model.parameters():
        if parameter.device.type != "meta":
            place: torch.device = parameter.device
            return place
    # Everything is brought in when it is run: hooks put it where inputs are.
    return torch.device("cpu")


def weights(hf_model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer in the order of names, wherever it is; one at a time."""
    from accelerate.utils import align_module_device

    for name, value in sorted(hf_model.state_dict().items()):
        if value.device.type != "meta":
            yield name, value
            continue
        module, _, attribute = name.rpartition(".")
        part = hf_model.get_submodule(module)
        with align_module_device(part, "cpu"):
            yield name, getattr(part, attribute).detach()
