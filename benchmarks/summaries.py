"""Does any head follow the target by any summary of its attention? One table from finished runs.

    python -m benchmarks.summaries RUN ...

The runs are of ``tdabias heads`` with twins, each with another ``--summary``. A head's p is
corrected over the heads of its run; over all tests printed (a summary, model and category each has
two) the smallest p of each is corrected by Holm.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tda_bias.heads.result import HeadBias
from tda_bias.show.table import Column, TableSpec
from tda_bias.show.tables import markdown
from tda_bias.stats.resampling import holm

TESTS = {"location": "location_twin", "dispersion": "relative_twin"}


def rows(folders: list[Path]) -> Iterator[dict[str, Any]]:
    """One row per run, category and test."""
    for folder in folders:
        run = HeadBias.load(folder)
        for category in run.categories:
            maps = run.category[run.category["category"] == category]
            controls = run.controls(category)
            for test, name in TESTS.items():
                p = maps[f"p_max_{name}"]
                yield {
                    "model": run.record.model.name,
                    "category": category,
                    "triples": controls["triples"],
                    "heads": int(p.notna().sum()),
                    "summary": run.record.config.summary,
                    "test": test,
                    "low": int((maps[f"p_{name}"] < 0.05).sum()),
                    "chance": 0.05 * int(p.notna().sum()),
                    "survive": int((p < 0.05).sum()),
                    "smallest": p.min(),
                    "power": controls["twins"]["smallest_share"]
                    if test == "location"
                    else float("nan"),
                }


def found(row: Mapping[Any, Any]) -> str:
    """The effect that would have been found, of the location test alone."""
    return "unknown" if pd.isna(row["power"]) else f"{row['power']:.0%}"


COLUMNS = [
    Column("model", "{model}", left=True),
    Column("category", "{category}", left=True),
    Column("triples", "{triples}"),
    Column("heads", "{heads}"),
    Column("summary", "`{summary}`", left=True),
    Column("test", "{test}", left=True),
    Column("p < .05 (by chance)", "{low} ({chance:.1f})"),
    Column("survive", "{survive}"),
    Column("smallest p (family-wise)", "{smallest:p}"),
    Column("corrected over all tests", "{corrected:p}"),
    Column("would have found", found),
]


def main() -> None:
    """Print the table as Markdown."""
    table = pd.DataFrame(rows([Path(name) for name in sys.argv[1:]]))
    table["corrected"] = holm(table["smallest"].to_numpy(float))
    print(markdown(TableSpec("summaries", table, COLUMNS)))


if __name__ == "__main__":
    main()
