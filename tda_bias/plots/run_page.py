"""A run's figures and tables, as the page of ``tdabias report`` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from tda_bias.heads.items import ITEMS_ARRAYS, ItemDifferences
from tda_bias.heads.result import HeadBias
from tda_bias.plots.explorer import explorer
from tda_bias.plots.response_texts import response_texts
from tda_bias.show.figures import Entry, print_style
from tda_bias.show.page import Picture
from tda_bias.store.result import save_figure
from tda_bias.store.run import Run, made_from

# Pixels of CSS to an inch of print, and of a picture to one of these: screens have two.
_INCH, _SHARP = 96, 2
# Columns of heads that only other programs read.
_LEFT_OUT = ("model", "n_", "z_null_", "sd_null_")


def page_parts(run: Run, runs: Sequence[Run], catalogue: Sequence[Entry]) -> dict[str, Any]:
    """Figures and tables of a run, of heads the map and its tables: fields of a ``Section``.

    ``runs`` are all of the page, which may have the texts of its items or be made from it.

    Raises:
        InputError: if a file of the run is damaged.
    """
    if run.command == "heads":
        result = run.load(HeadBias.load)
        others = [other for other in runs if other.command == "ablate" and made_from(other, run)]
        columns = [
            name
            for name in result.category.columns
            if not name.startswith(_LEFT_OUT) and "signed" not in name
        ]
        tables = {"heads": result.category[columns], "groups": result.groups.drop(columns="model")}
        return {"explorer": explorer(run, others), "tables": tables}
    return {
        "pictures": _pictures(run, catalogue),
        "texts": response_texts(run) if run.command == "respond" else "",
        "tables": _tables(run, _item_texts(runs)),
    }


@print_style()
def _pictures(run: Run, catalogue: Sequence[Entry]) -> list[Picture]:
    """The figures that one run of its command allows."""
    return [
        _picture(entry.title, entry.draw([run]))
        for entry in catalogue
        if entry.command == run.command and entry.fewest == 1 and entry.holds(run)
    ]


def _picture(title: str, figure: Figure) -> Picture:
    """A figure with its caption as text, which is read where the picture is too small for it."""
    caption = str(figure.get_label())
    figure.supxlabel("")
    whole, file = BytesIO(), BytesIO()
    save_figure(whole, figure, dpi=_SHARP * _INCH)
    # 256 colours are enough, and make a third of the size, if those of few pixels are among them: a
    # map has few coloured cells, which the usual choice of colours would make grey.
    drawn = Image.open(whole).convert("RGB")
    drawn.quantize(method=Image.Quantize.MAXCOVERAGE).save(file, "PNG", optimize=True)
    width, height = (round(_INCH * inches) for inches in figure.get_size_inches())
    return Picture(title, file.getvalue(), width, height, caption)


def _tables(run: Run, texts: dict[str, str]) -> dict[str, pd.DataFrame]:
    """Every table of a run, with the texts of its items where another run has them."""
    tables = {}
    for name in run.record.files:
        if name.endswith((".csv", "items.parquet")):
            table = run.table(name)
            if "id" in table and texts:
                table = table.assign(text=table["id"].map(lambda key: texts.get(str(key), "")))
            tables[name.rpartition(".")[0]] = table
    return tables


def _item_texts(runs: Sequence[Run]) -> dict[str, str]:
    """Texts of items by name, from runs of heads, which keep them."""
    texts: dict[str, str] = {}
    for run in runs:
        if run.command == "heads" and run.has(ITEMS_ARRAYS):
            table = ItemDifferences.read(run).items
            if "stereotype" in table:
                texts |= dict(zip(table["id"], table["stereotype"], strict=True))
    return texts
