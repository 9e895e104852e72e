"""What the numbers of a run depend on, from marks on the fields of its settings.

A setting is declared once, in a pydantic class; beside its type stands what a change of it changes:

    batch_size: Annotated[int, Changes.NOTHING] = 32
    n_permutations: Annotated[int, Changes.TABLES] = 9999
    edges: Edges = "attention"  # not marked: Changes.PARTS

A finished run is not written over by one whose numbers would be other ones, and parts are not
reused where a setting differs that changes them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


class Changes(IntEnum):
    """What a change of a setting changes; each includes what stands above it.

    ``NOTHING``: speed, place, print; and sources that are compared by what they hold: weights,
    texts. ``TABLES``: what is made of saved parts without the model: tests, intervals, rankings.
    ``PARTS``, where nothing is marked: what the model is asked, and so everything.
    """

    NOTHING = 0
    TABLES = 1
    PARTS = 2


def changes(field: FieldInfo) -> Changes:
    """What a field changes: its last mark, or ``PARTS``."""
    marks = [mark for mark in field.metadata if isinstance(mark, Changes)]
    return marks[-1] if marks else Changes.PARTS


def names_of(config: type[BaseModel], least: Changes = Changes.PARTS) -> set[str]:
    """Names of the fields whose change changes at least so much."""
    return {name for name, field in config.model_fields.items() if changes(field) >= least}


def identity(config: BaseModel, least: Changes = Changes.PARTS) -> dict[str, Any]:
    """The settings that saved parts depend on, as plain values by the names of a record.

    With ``Changes.TABLES`` those that any number of a finished run depends on.

    Examples:
        >>> from tda_bias.config import SentenceConfig
        >>> config = SentenceConfig(batch_size=8, start="bos")
        >>> identity(config)
        {'start': 'bos'}
        >>> sorted(identity(config, Changes.TABLES))
        ['confidence', 'start']
    """
    return config.model_dump(mode="json", by_alias=True, include=names_of(type(config), least))
