"""``tdabias export``: heads of a run as JSON, with the slices of the parameters they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tda_bias.types import HeadId, InputError, RankBy

from .loading import language_model, model_of, refuse_other_weights

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.results.head_bias import HeadBias


def export(
    run: Annotated[Path, typer.Argument(help="Folder that `tdabias heads` wrote.")],
    to: Annotated[Path, typer.Option("--to", help="JSON file to write")],
    top: Annotated[int, typer.Option(min=1, help="heads from the top of the ranking")] = 10,
    survivors: Annotated[
        bool, typer.Option("--survivors", help="only heads that survive correction")
    ] = False,
    random_seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="instead of the chosen heads as many random ones of their layers: a control"
        ),
    ] = None,
    category: Annotated[
        str | None, typer.Option("--category", "-c", help="of a run with several")
    ] = None,
    by: Annotated[
        RankBy | None, typer.Option(help="the map that ranks (default: the run's)")
    ] = None,
) -> None:
    """Write chosen heads for other programs: rule, p and q, parameter names and slices."""
    from tda_bias.records.files import to_json, write_text
    from tda_bias.results.head_bias import HeadBias

    heads = HeadBias.load(run)
    by = by or heads.rank_by
    if survivors:
        chosen = heads.survivors(category=category, by=by)
        if chosen.empty:
            raise InputError(
                f"no head of {run} survives correction; without --survivors the top of the ranking "
                "is exported, which is then a ranking of noise"
            )
    else:
        chosen = heads.top(top, category=category, by=by)
    if random_seed is not None:
        chosen = _random_instead(heads, chosen, random_seed, category, by)
    about = heads.record["model"]
    console = Console(stderr=True)
    model = language_model(
        model_of(heads.record), device="cpu", dtype=about["dtype"], console=console
    )
    refuse_other_weights(model, heads.record)

    from tda_bias.behaviour.head_weights import export_record

    rule = {
        "map": by,
        "category": category or heads.categories[0],
        "top": None if survivors else top,
        "survivors_only": survivors,
        "random_seed": random_seed,
        "surviving_heads": len(heads.survivors(category=category, by=by)),
        "run": str(run),
    }
    rows = chosen.to_dict("records")
    record = export_record(model.hf_model, rows, model=about, rule=rule)  # type: ignore[arg-type]
    write_text(to, to_json(record))
    warning = ""
    if random_seed is not None:
        warning = " Drawn at random from the layers of the chosen ones: a control."
    elif not rule["surviving_heads"]:
        warning = " None of them survives correction: a ranking of noise."
    typer.echo(f"{len(rows)} heads of {about['name']} in {to}.{warning}")


def _random_instead(
    heads: HeadBias, chosen: pd.DataFrame, seed: int, category: str | None, by: RankBy
) -> pd.DataFrame:
    """As many other heads of the same layers, with what the run knows of them."""
    import numpy as np

    from tda_bias.behaviour.ablation import random_sets

    places = chosen[["layer", "head"]].to_numpy(int).tolist()
    wanted = [HeadId(layer, head) for layer, head in places]
    n_heads = heads.category_map(category).shape[1]
    (drawn,) = random_sets(wanted, n_heads, 1, rng=np.random.default_rng(seed))
    every = heads.top(10**9, category=category, by=by).set_index(["layer", "head"])
    return every.loc[[(head.layer, head.head) for head in drawn]].reset_index()
