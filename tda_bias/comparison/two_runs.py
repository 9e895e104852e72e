"""Two finished runs that are compared: what the record says of them, and their category."""

from __future__ import annotations

from collections.abc import Sequence

from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.types import InputError


class TwoRunsRecord(RunRecord):
    """Everything needed to repeat a comparison of two runs; ``model`` is the one before."""

    after: ModelRecord
    runs: tuple[str, str] = ("", "")
    category: str
    n_resamples: int
    seed: int


def shared_category(before: Sequence[str], after: Sequence[str], category: str | None) -> str:
    """The category asked for, or the only one that two runs share; else an ``InputError``."""
    shared = [name for name in before if name in after]
    if category in shared:
        return category
    if category is None and len(shared) == 1:
        return shared[0]
    if category is None and shared:
        raise InputError(
            f"both runs have several categories; give --category {' or '.join(shared)}"
        )
    raise InputError(
        f"`category` must be one that both runs have ({', '.join(shared) or 'there is none'}); "
        f"got {category!r}"
    )
