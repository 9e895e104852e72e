"""``tdabias twins``: make the twins of triples, and write them for a person to read and correct."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tda_bias.config import InOneRun, SeedOption
from tda_bias.show.output import Output
from tda_bias.store.run import refuse_file_of_a_run
from tda_bias.triples import comes_from_hub, read_triples
from tda_bias.twins import load_kinds, make_placebos, make_twins, save_lm_eval, save_twins
from tda_bias.twins.shown import shown
from tda_bias.types import InputError

from .loading import use_cache_if_unreachable
from .settings import OutputSettings, refuse_options


class TwinsSettings(SeedOption, OutputSettings):
    """Settings of ``tdabias twins``."""

    data: str = Field(
        "stereoset",
        description="stereoset (the hub), starter (ships with tdabias, demonstrates only), or a "
        "file: dev.json, JSON Lines, CSV or TSV",
    )
    category: Annotated[tuple[str, ...], InOneRun] = Field(
        ("all",),
        description="gender, profession, race or religion, one of your own file's, or all; several "
        "with commas, in one file",
    )
    kind: Literal["auto", "gender", "target"] = Field(
        "auto",
        description="gender (swap gendered words), target (put another target of its kind in its "
        "place), auto (gender for the category gender, else target)",
    )
    placebo: Literal["none", "synonym", "role"] = Field(
        "none",
        description="placebo twins in the place of twins: synonym (mother to mom), role (another "
        "relative or role of the same gender, mother to aunt)",
    )
    k: int | None = Field(
        None,
        ge=1,
        le=100,
        description="other targets for each triple (3, or all where a kind has fewer others); a "
        "gender swap gives one",
    )
    kinds: Path | None = Field(
        None, description="YAML file of targets by kind, for other targets than StereoSet's"
    )
    as_: Literal["twins", "lm-eval"] = Field(
        "twins",
        alias="as",
        description="twins (for --twins FILE), or lm-eval (triples and twins, for the task "
        "stereoset_intersentence of lm-evaluation-harness)",
    )
    out: Path = Field(Path("twins.jsonl"), description="file to write")


def twins(settings: TwinsSettings) -> Output:
    """Make the twins, and write them."""
    if comes_from_hub(settings.data):
        use_cache_if_unreachable()

    refuse_file_of_a_run(settings.out, setting="out")
    source = read_triples(settings.data)
    of_each = (source.chosen(category=category) for category in settings.category)
    triples = list(dict.fromkeys(triple for several in of_each for triple in several))
    if settings.placebo == "none":
        made = make_twins(
            triples,
            kind=settings.kind,
            k=settings.k,
            seed=settings.seed,
            kinds=None if settings.kinds is None else load_kinds(settings.kinds),
        )
    else:
        others = {"kind", "k", "kinds", "seed"}
        why = "is about twins, and placebo twins are made of a list of words"
        refuse_options(settings, others, why)
        made = make_placebos(triples, settings.placebo)
    if not made:
        raise InputError(made.note)
    if settings.as_ == "lm-eval":
        save_lm_eval(settings.out, triples, made)
        metadata = json.dumps({"data": str(settings.out)})
        use = f"for lm_eval --tasks stereoset_intersentence --metadata '{metadata}'"
    else:
        save_twins(settings.out, made)
        use = "for --twins"
    return shown(made, settings.out, use)
