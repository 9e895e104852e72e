"""CrowS-Pairs (Nangia et al. 2020): stereotypical sentences and the same about another group.

The texts are CC BY-SA 4.0 and do not ship. Their data statement says that they must not be used to
train models. Pairs of one writer resemble each other: the writer is what resamples draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tda_bias.pairs.pair import Pair, checked
from tda_bias.pairs.sources import needed, rows_of

FILE = "crows_pairs_anonymized.csv"
# The repository itself holds a script, which `datasets` no longer runs; the hub's own conversion
# is a branch of it.
HUB_NAME, HUB_SPLIT, HUB_REVISION = "nyu-mll/crows_pairs", "test", "refs/convert/parquet"
LICENCE = "CC BY-SA 4.0, evaluation only"
_COLUMNS = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")


def from_csv(text: str, where: str) -> list[Pair]:
    """Pairs of the official file; their names are the row numbers of its first column.

    Raises:
        InputError: if a column is missing or a pair cannot be compared.
    """
    rows = rows_of(text, where, columns=_COLUMNS)
    return from_rows(
        (
            (f"{where} row {row.get('') or number}", {"id": row.get("") or str(number), **row})
            for number, row in enumerate(rows)
        )
    )


def from_rows(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Pair]:
    """Pairs of rows, each with where it stands and a field ``id``."""
    pairs = []
    for where, row in rows:
        more, less, direction, bias = needed(row, _COLUMNS, where)
        writer = row.get("anon_writer")
        pair = Pair(
            id=str(row["id"]),
            set="crows",
            group=bias,
            more=more,
            less=less,
            type=direction,
            scored="shared",
            cluster=None if writer is None else str(writer),
            source=where,
        )
        pairs.append(checked(pair))
    return pairs
