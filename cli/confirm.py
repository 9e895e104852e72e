"""``tdabias confirm``: do heads that stand out on some targets stand out on others?"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tda_bias.config import ARunEach, ConfirmConfig
from tda_bias.show.text import Finding, about_run, report_of
from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.store.settings import validated
from tda_bias.types import InputError

from .heads import HeadsSettings
from .loading import category_of, language_model
from .options import Positional
from .run import Work, completed
from .settings import DeviceOption, Out, OutputSettings, part_of, refuse_options

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.heads.confirmation import Confirmed
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import LanguageModel


class ConfirmSettings(ConfirmConfig, OutputSettings):
    """Settings of ``tdabias confirm``."""

    run: Annotated[Path, Positional()] = Field(
        description="Folder that `tdabias heads` wrote, or a model that `tdabias debias` saved."
    )
    category: Annotated[str | None, ARunEach] = Field(
        None, description="which category, of a run with several; several with commas, a run each"
    )
    data: str | None = Field(
        None, description="test on other data instead: a file without any target of the run"
    )
    twins: str | None = Field(
        None,
        description="with --data: auto, none, or a file that `tdabias twins` wrote for these data "
        "(default: as the run, if its twins were no file)",
    )
    pairs: str | None = Field(
        None,
        description="with a model that `tdabias debias` saved: a file of triples or pairs about "
        "other targets, on which it is tested once",
    )
    out: Out = Field(None, description="folder for the files (default: RUN/confirm)")

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self.out or self.run / "confirm"


def compute(settings: ConfirmSettings, _: None, work: Work) -> Confirmed:
    """Confirm a run of heads, or a trained model."""
    if settings.pairs is not None:
        return _model(settings, settings.pairs, work)

    from tda_bias.heads.result import HeadBias

    run = HeadBias.load(settings.run)
    category = category_of(run, settings.category)
    if settings.data is not None:
        return _on_other_data(settings, run, category, settings.data, work)
    return _on_other_half(settings, run, category, work)


def _on_other_half(
    settings: ConfirmSettings, run: HeadBias, category: str, work: Work
) -> Confirmed:
    """Many splits of the targets."""
    refuse_options(settings, {"twins"}, "is read with --data alone")

    from tda_bias.heads.confirmation import confirmation, saved_groups
    from tda_bias.heads.confirmation_finding import confirmation_brief, confirmation_finding
    from tda_bias.heads.finding import weights_said

    result = confirmation(
        saved_groups(settings.run, run, category),
        layers=run.record.model.layers,
        config=part_of(settings, ConfirmConfig),
    )
    edges = weights_said(run.record.config)
    title = (
        f"{run.record.model.name} · {category} · first {settings.top} heads of half of the "
        f"targets, on the other half{edges}"
    )
    apart = ("heads", "record")
    numbers = {name: value for name, value in vars(result).items() if name not in apart}
    summary = {**numbers, **result.record, "category": category, "title": title}
    several = f" --category {quote(category)}" if len(run.categories) > 1 else ""
    next_ = (f"tdabias ablate {quote(str(settings.run))}{several}", report_of(settings.run))
    brief = confirmation_brief(result, about_run(run.record, category))
    found = confirmation_finding(result).led_by(brief).then(*next_)
    return _saved(work, run.record.model, found, summary, result.heads)


def _on_other_data(
    settings: ConfirmSettings, run: HeadBias, category: str, data: str, work: Work
) -> Confirmed:
    """The heads of the run, on triples about other targets."""
    others = {"seed", "n_splits", "n_permutations"}
    refuse_options(settings, others, "is that of the run with --data")

    from tda_bias.heads.confirmation import confirmed_on, refuse_shared_targets
    from tda_bias.heads.confirmation_finding import other_data_brief, other_data_finding
    from tda_bias.stats.resampling import LEVEL

    if run.record.settings.get("pairs"):
        raise InputError(
            "`data` are triples, and the run compared pairs; leave --data out to test half of its "
            "groups on the others"
        )
    refuse_shared_targets(run, category, data)
    of_run = dict(run.record.settings)
    of_run |= settings.model_dump(include=set(OutputSettings.model_fields))
    # What an earlier confirmation left in the folder is written over, as its other files are.
    of_run |= {"out": settings.folder / "heads", "overwrite": True, "resume": True}
    of_run |= {"shard": None, "cluster": None}
    of_run |= {"data": data, "category": category, "group": (), "limit": None}
    of_run |= {"twins": _twins(settings, run), "untrained": False, "placebo": "none"}
    other = completed("heads", validated(HeadsSettings, of_run), shared=False, models=work.models)
    table = confirmed_on(run, other, category=category, by=settings.rank_by, top=settings.top)
    summary = {
        "data": data,
        "category": category,
        "targets": len(other.groups),
        "smallest_p": other.controls_record(category).smallest_p,
        "by": settings.rank_by,
        "top": settings.top,
        "confirmed": int((table["p_holm"] < LEVEL).sum()),
        "title": f"{category} · chosen in the run, tested on {data}",
    }
    brief = other_data_brief(table, about_run(other.record, category, "other data"))
    found = other_data_finding(table, data).led_by(brief).then(report_of(settings.run))
    return _saved(work, run.record.model, found, summary, table)


def _twins(settings: ConfirmSettings, run: HeadBias) -> str:
    """The twins of other data: those asked for, else as the run made its own."""
    twins = settings.twins or str(run.record.settings.get("twins", "auto"))
    if settings.twins is None and twins not in ("auto", "none"):
        raise InputError(
            f"the run read its twins from {twins}, which is not about `data`; give --twins with a "
            "file that `tdabias twins` wrote for these data, or with auto"
        )
    return twins


def _model(settings: ConfirmSettings, source: str, work: Work) -> Confirmed:
    """One look at a trained model on targets that its training never saw."""
    others = {"category", "rank_by", "top", "n_splits", "n_permutations", "data", "twins"}
    refuse_options(settings, others, "is about a run of heads, not --pairs")

    from tda_bias.debias.confirmation import look, note_look, read_items, refuse_second_look
    from tda_bias.debias.saved_model import read_about

    about = read_about(settings.run)
    refuse_second_look(settings.run, about["protocol"])
    items = read_items(source, about)
    console, name = settings.console, str(settings.run)

    def original() -> LanguageModel:
        model = language_model(about["model"], DeviceOption(), console)
        if model.weight_hash() != about["original"]:
            raise InputError(f"{about['model']} has other weights than the model that was trained")
        return model

    def trained() -> LanguageModel:
        return language_model(name, DeviceOption(), console)

    outcome = look(items, (original, trained), seed=settings.seed)
    note_look(settings.run, source, about["protocol"])
    record = ModelRecord(name=name, weights=about["weights"])
    summary = {**outcome.summary, "protocol": about["protocol"]}
    return _saved(work, record, outcome.finding(name), summary, outcome.table)


def _saved(
    work: Work, model: ModelRecord, found: Finding, summary: dict[str, Any], table: pd.DataFrame
) -> Confirmed:
    from tda_bias.heads.confirmation import Confirmed

    record = RunRecord(command=Confirmed.COMMAND, model=model)
    return work.saved(Confirmed(table, {**summary, "finding": found.as_values()}, record))
