"""``tdabias edit``: heads switched off in a model that loads anywhere, or written as slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from tda_bias.config import ARunEach, BatchOption
from tda_bias.show.output import Output
from tda_bias.show.text import Finding, counted
from tda_bias.store.files import to_json, write_text
from tda_bias.store.run import refuse_file_of_a_run
from tda_bias.triples import comes_from_hub, load_triples
from tda_bias.types import MAX_COUNT, MAX_SEED, HeadId, InputError, RankBy

from .loading import (
    category_of,
    language_model,
    model_of,
    reach_hub_for,
    refuse_other_weights,
)
from .options import Positional, command_line
from .settings import DeviceOption, ModelName, OutputSettings, Several, refuse_options

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.ablation.edits import EditedModel, EditRule
    from tda_bias.heads.result import HeadBias, HeadsRecord

# So many texts show whether two models are the same, and as many are enough.
_PROBES = 3
# What chooses among the heads of a run.
_OF_RUN = ("category", "rank_by", "top", "survivors", "random_seed")


class EditSettings(BatchOption, DeviceOption, OutputSettings):
    """Settings of ``tdabias edit``."""

    run: Annotated[Path | None, Positional()] = Field(
        None, description="Folder that `tdabias heads` wrote: its top heads are edited."
    )
    as_: Literal["model", "slices"] = Field(
        "model",
        alias="as",
        description="model (a folder that loads with plain transformers) or slices (a JSON file "
        "for other programs: rule, p and q, and the slices of parameters that each head of a run "
        "is)",
    )
    how: str | None = Field(
        None,
        description="of a model, required: zero (heads write nothing), mean (they write their mean "
        "over texts), or scale=0.5 (half of it; any number)",
    )
    out: Path = Field(
        description="folder for the edited model, which must not exist; or the JSON file"
    )
    model: ModelName | None = Field(
        None,
        description="hub name, local folder, or smollm2-135m (default: that of the run or of the "
        "file of heads)",
    )
    head: Annotated[tuple[str, ...], Several] = Field(
        (), description="a head, as L5H3; may be given several times"
    )
    heads: Path | None = Field(None, description="JSON file that `tdabias edit --as slices` wrote")
    top: int = Field(10, ge=1, le=MAX_COUNT, description="heads from the top of the run's ranking")
    survivors: bool = Field(False, description="of a run: only heads that survive correction")
    random_seed: int | None = Field(
        None,
        ge=0,
        le=MAX_SEED,
        description="of a run: instead of the chosen heads as many random ones of their layers, a "
        "control",
    )
    category: Annotated[str | None, ARunEach] = Field(
        None, description="of a run with several; several with commas, an edit each"
    )
    rank_by: RankBy | None = Field(None, description="the map that ranks (default: the run's)")
    data: str | None = Field(
        None,
        description="triples whose unrelated texts the mean is over (default: the run's, else "
        "starter)",
    )

    @field_validator("head")
    @classmethod
    def _looks_like_a_head(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            HeadId.of(name)
        return value


def edit(settings: EditSettings) -> Output:
    """Edit the heads that are asked for."""
    return _slices(settings) if settings.as_ == "slices" else _model(settings)


def _model(settings: EditSettings) -> Output:
    """Edit the heads, and write the model."""
    from tda_bias.ablation.edits import (
        edit_rule,
        refuse_existing,
        stored_dtype,
        write_edited_model,
    )
    from tda_bias.models.load import DTYPES

    if settings.how is None:
        raise InputError("`how` is missing; give --how")
    rule = edit_rule(settings.how)
    if settings.data is not None and rule.how != "mean":
        raise InputError("`data` is what a mean is over; leave it out, or take --how mean")
    refuse_existing(settings.out)
    chosen = _chosen(settings)
    probes = [triple.texts()[0] for triple in load_triples("starter")[:_PROBES]]
    texts: list[str] = []
    source, category, groups = _mean_over(settings, chosen)
    if rule.how == "mean":
        reach_hub_for(chosen.model, also=comes_from_hub(source))
        triples = load_triples(source, category=category, groups=groups)
        texts = [triple.texts()[2] for triple in triples]
    data = chosen.record.data if chosen.record is not None else None
    loaded = partial(language_model, chosen.model, settings, settings.console)
    stored = stored_dtype(chosen.model)
    written = write_edited_model(
        partial(loaded, dtype=stored),
        partial(loaded, dtype="float32", attention="eager"),
        chosen.heads,
        rule,
        settings.out,
        mean_over=texts,
        batch_size=settings.batch_size,
        probes=probes,
        about={
            "model": chosen.model,
            "from": chosen.source,
            "mean_over": source,
            "repeat": _again(settings, chosen, rule, source),
            "chosen_on": data.model_dump() if data is not None else None,
        },
    )
    weights = written.weights[0]
    if chosen.weights is not None and chosen.dtype in {*DTYPES} - {stored}:
        weights = loaded(dtype=chosen.dtype).weight_hash()
    return output(written, chosen, str(rule), elsewhere=chosen.weights not in (None, weights))


def _slices(settings: EditSettings) -> Output:
    """Write chosen heads of a run for other programs."""
    from tda_bias.ablation.head_weights import export_record
    from tda_bias.heads.finding import NOISY

    refuse_options(settings, {"how", "head", "heads", "data"}, "goes with a model, not with slices")
    if settings.run is None:
        raise InputError("slices are of heads of a run; give the folder that `tdabias heads` wrote")
    refuse_file_of_a_run(settings.out, setting="out")
    run, category, by, rows = _heads_of_run(settings, settings.run)
    about, name = run.record.model, model_of(run.record, settings.model)
    model = language_model(name, settings, settings.console, device="cpu", dtype=about.dtype)
    refuse_other_weights(model, run.record)
    rule = {
        "map": by,
        "category": category,
        "top": None if settings.survivors else settings.top,
        "survivors_only": settings.survivors,
        "random_seed": settings.random_seed,
        "surviving_heads": len(run.survivors(category=category, by=by)),
        "run": str(settings.run),
    }
    record = export_record(
        model.hf_model,
        rows.to_dict("records"),  # type: ignore[arg-type]
        model=about.model_dump(),
        rule=rule,
    )
    write_text(settings.out, to_json(record))
    warning = ""
    if settings.random_seed is not None:
        warning = " Drawn at random from the layers of the chosen ones: a control."
    elif not rule["surviving_heads"]:
        warning = f" {NOISY}"
    written = f"{counted(len(rows), 'head')} of {about.name} in {settings.out}.{warning}"
    return Output(shown=[written], values=record, rows=rows)


@dataclass(frozen=True)
class Chosen:
    """The heads that are asked for, the model to edit, and where they come from."""

    heads: Sequence[HeadId]
    model: str
    source: str
    # Hash of the weights that they were found in, if known, and the type these were loaded in.
    weights: str | None = None
    dtype: str = ""
    # Of a run.
    category: str = "all"
    record: HeadsRecord | None = None
    warning: str = ""


def _chosen(settings: EditSettings) -> Chosen:
    ways = {"--head": settings.head, "--heads": settings.heads, "a run": settings.run}
    given = [name for name, value in ways.items() if value]
    if len(given) != 1:
        said = " and ".join(given) if given else "none"
        raise InputError(f"heads come from --head, from --heads FILE or from a run; got {said}")
    if settings.run is not None:
        return _of_run(settings, settings.run)
    if of_run := settings.model_fields_set & {*_OF_RUN}:
        raise InputError(f"`{min(of_run)}` chooses among the heads of a run; give its folder")
    if settings.heads is not None:
        from tda_bias.ablation.head_weights import heads_of_file

        heads, about = heads_of_file(settings.heads)
        model = settings.model or about.get("name")
        if not model:
            raise InputError(f"{settings.heads} names no model; give --model")
        found_in = about.get("weights"), str(about.get("dtype"))
        return Chosen(heads, str(model), str(settings.heads), *found_in)
    if settings.model is None:
        raise InputError("`model` is missing; give --model")
    return Chosen([HeadId.of(name) for name in settings.head], settings.model, "the command line")


def _of_run(settings: EditSettings, run: Path) -> Chosen:
    from tda_bias.heads.finding import NOISY

    heads, category, by, rows = _heads_of_run(settings, run)
    warning = "" if len(heads.survivors(category=category, by=by)) else NOISY
    if settings.random_seed is not None:
        warning = "Drawn at random from the layers of the chosen heads: a control."
    return Chosen(
        heads=[HeadId(int(row["layer"]), int(row["head"])) for row in rows.to_dict("records")],
        model=settings.model or model_of(heads.record),
        source=f"{run}, category {category}",
        weights=heads.record.model.weights,
        dtype=heads.record.model.dtype,
        category=category,
        record=heads.record,
        warning=warning,
    )


def _mean_over(settings: EditSettings, chosen: Chosen) -> tuple[str, str, Sequence[str]]:
    """Source, category and groups of the triples whose unrelated texts a mean is over."""
    record = chosen.record
    if record is None or record.settings.get("pairs"):  # pairs have no unrelated texts
        return settings.data or "starter", "all", ()
    if settings.data is not None:
        return settings.data, chosen.category, ()
    source = str(record.data.source) if record.data is not None else "starter"
    return source, chosen.category, record.setting("group", ())


def _again(settings: EditSettings, chosen: Chosen, rule: EditRule, mean_over: str) -> str:
    """The command that makes the model again.

    A mean over texts of a run is asked of the run, which knows them; else heads are named.
    """
    again: dict[str, Any] = {"model": chosen.model, "how": settings.how, "out": settings.out}
    if rule.how == "mean" and settings.run is not None:
        again |= settings.model_dump(include={"run", *_OF_RUN, "data"}, exclude_unset=True)
    else:
        again["head"] = [str(head) for head in dict.fromkeys(chosen.heads)]
        again |= {"data": mean_over} if rule.how == "mean" else {}
    return command_line(["edit"], EditSettings(**again))


def _heads_of_run(settings: EditSettings, run: Path) -> tuple[HeadBias, str, RankBy, pd.DataFrame]:
    """A run, the category and the map that are asked for, and the chosen rows of its ranking."""
    from tda_bias.ablation.head_weights import chosen_heads
    from tda_bias.heads.result import HeadBias

    heads = HeadBias.load(run)
    category, by = category_of(heads, settings.category), settings.rank_by or heads.rank_by
    choice = settings.model_dump(include={"top", "survivors", "random_seed"})
    return heads, category, by, chosen_heads(heads, category, by=by, **choice)


def output(written: EditedModel, chosen: Chosen, how: str, *, elsewhere: bool) -> Output:
    """The change, its check, and what measures its effect.

    ``elsewhere``: whether the heads were found in a model with other weights.
    """
    import pandas as pd

    from tda_bias.comparison.after_change import comparing

    heads = list(dict.fromkeys(chosen.heads))
    named = ", ".join(map(str, heads))
    control = [str(written.check)]
    if elsewhere:
        control.append(
            "The heads were found in a model with other weights: whether they do the same here is "
            "not known."
        )
    next_ = comparing(
        chosen.model,
        written.folder,
        category=chosen.category,
        record=chosen.record,
        architecture=written.architecture,
    )
    return Output(
        finding=Finding(
            result=[
                f"{how} of {named} ({chosen.source}) in {chosen.model}: "
                f"{counted(len(written.parameters), 'parameter')} changed, all others bit for bit "
                "as they were."
            ],
            control=[*control, *([chosen.warning] if chosen.warning else [])],
            next=next_,
        ),
        shown=[f"Model: {written.folder}/ (load it with transformers, tdabias is not needed)"],
        values={
            "model": chosen.model,
            "from": chosen.source,
            "how": how,
            "heads": [str(head) for head in heads],
            "parameters": list(written.parameters),
            "weights": list(written.weights),
            "check": asdict(written.check),
        },
        rows=pd.DataFrame([{"layer": head.layer, "head": head.head, "how": how} for head in heads]),
        folder=written.folder,
    )
