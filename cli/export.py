"""``tdabias export``: heads of a run as JSON, with the slices of the parameters they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rich.console import Console

from tda_bias.runs.text import counted
from tda_bias.types import MAX_COUNT, MAX_SEED, HeadId, InputError, RankBy

from .loading import language_model, model_of, refuse_other_weights
from .options import Positional, command
from .output import Output
from .settings import FilePath, Name, OutputSettings

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.heads.result import HeadBias


class ExportSettings(OutputSettings):
    """Settings of ``tdabias export``."""

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    to: FilePath = Field(description="JSON file to write")
    model: Name | None = Field(
        None, description="where the run's model is now (default: where it was)"
    )
    top: int = Field(10, ge=1, le=MAX_COUNT, description="heads from the top of the ranking")
    survivors: bool = Field(False, description="only heads that survive correction")
    random_seed: int | None = Field(
        None,
        ge=0,
        le=MAX_SEED,
        description="instead of the chosen heads as many random ones of their layers: a control",
    )
    category: str | None = Field(None, description="of a run with several")
    by: RankBy | None = Field(None, description="the map that ranks (default: the run's)")


@command(ExportSettings)
def export(settings: ExportSettings) -> None:
    """Write chosen heads for other programs: rule, p and q, parameter names and slices."""
    from tda_bias.heads.result import HeadBias
    from tda_bias.runs.files import to_json, write_text
    from tda_bias.runs.run import refuse_file_of_a_run

    refuse_file_of_a_run(settings.to, setting="to")

    heads = HeadBias.load(settings.run)
    by, category = settings.by or heads.rank_by, settings.category
    if settings.survivors:
        chosen = heads.survivors(category=category, by=by)
        if chosen.empty:
            raise InputError(
                f"no head of {settings.run} survives correction; without --survivors the top of "
                "the ranking is exported, which is then a ranking of noise"
            )
    else:
        chosen = heads.top(settings.top, category=category, by=by)
    if settings.random_seed is not None:
        chosen = _random_instead(heads, chosen, settings.random_seed, category, by)
    about = heads.record.model
    console = Console(stderr=True, quiet=settings.quiet)
    name = model_of(heads.record, settings.model)
    model = language_model(name, device="cpu", dtype=about.dtype, console=console)
    refuse_other_weights(model, heads.record)

    from tda_bias.ablation.head_weights import export_record

    rule = {
        "map": by,
        "category": category or heads.categories[0],
        "top": None if settings.survivors else settings.top,
        "survivors_only": settings.survivors,
        "random_seed": settings.random_seed,
        "surviving_heads": len(heads.survivors(category=category, by=by)),
        "run": str(settings.run),
    }
    rows = chosen.to_dict("records")
    known = about.model_dump()
    record = export_record(model.hf_model, rows, model=known, rule=rule)  # type: ignore[arg-type]
    write_text(settings.to, to_json(record))
    warning = ""
    if settings.random_seed is not None:
        warning = " Drawn at random from the layers of the chosen ones: a control."
    elif not rule["surviving_heads"]:
        warning = " None of them survives correction: a ranking of noise."
    Output(
        shown=[f"{counted(len(rows), 'head')} of {about.name} in {settings.to}.{warning}"],
        values=record,
        rows=chosen,
    ).print(settings)


def _random_instead(
    heads: HeadBias, chosen: pd.DataFrame, seed: int, category: str | None, by: RankBy
) -> pd.DataFrame:
    """As many other heads of the same layers, with what the run knows of them."""
    import numpy as np

    from tda_bias.ablation.random_sets import random_sets

    places = chosen[["layer", "head"]].to_numpy(int).tolist()
    wanted = [HeadId(layer, head) for layer, head in places]
    n_heads = heads.category_map(category).shape[1]
    (drawn,) = random_sets(wanted, n_heads, 1, rng=np.random.default_rng(seed))
    every = heads.top(10**9, category=category, by=by).set_index(["layer", "head"])
    return every.loc[[(head.layer, head.head) for head in drawn]].reset_index()
