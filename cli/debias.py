"""``tdabias debias``: train chosen heads for less bias, beside other choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model
from rich.console import Console

from tda_bias.config import ARunEach, Config, WithCommas
from tda_bias.debias.protocol import PRESETS, Protocol, protocol_of
from tda_bias.pairs import PairSet
from tda_bias.show.alike import refuse_all_alike
from tda_bias.show.terminal import say
from tda_bias.sources import text_comes_from_hub
from tda_bias.store.identity import Changes
from tda_bias.store.record import DataRecord
from tda_bias.triples import Source, comes_from_hub
from tda_bias.twins import Twins
from tda_bias.twins.told_apart import told_apart
from tda_bias.types import MAX_BATCH, HeadId, InputError, Triple

from .loading import hooked_model, reach_hub_for
from .run import Work
from .settings import DeviceOption, LimitOption, ModelOption, SharedRunSettings, TwinsOption

if TYPE_CHECKING:
    from tda_bias.debias.run_debias import DebiasRun
    from tda_bias.models.load import LanguageModel, LoadedModel

# Of the protocol: what is no option, what a preset or the model decides unless it is asked for,
# and what has a shorter name on the command line.
_FIXED = {"n_folds", "checks_per_epoch", "watched", "typical_weight"}
_OF_PRESET = {"top"}.union(*PRESETS.values())
_SHORTER = {"by": "rank_by", "folds_run": "folds", "n_rates": "rates"}


def _protocol_options() -> Any:
    """A class of the protocol's settings, in which what a preset decides is None."""
    fields: dict[str, Any] = {}
    for name, declared in Protocol.model_fields.items():
        if name in _FIXED:
            continue
        field = copy(declared)
        kind: Any = declared.annotation
        if name in _OF_PRESET:
            field.default, kind = None, kind | None
        if name in _SHORTER:
            field.alias = field.validation_alias = field.serialization_alias = _SHORTER[name]
        fields[name] = (kind, field)
    return create_model("ProtocolOptions", __base__=Config, **fields)


_ProtocolOptions: Any = _protocol_options()


class DebiasSettings(
    ModelOption,
    TwinsOption,
    LimitOption,
    DeviceOption,
    _ProtocolOptions,  # type: ignore[misc]
    SharedRunSettings,
):
    """Options of ``tdabias debias``."""

    category: Annotated[str, ARunEach] = Field(
        description="gender, profession, race, religion, or one of your own file's; several with "
        "commas, a run each"
    )
    data: str = Field("stereoset", description="stereoset (the hub), starter, or a file of triples")
    preset: Literal["smoke", "full"] = Field(
        "smoke",
        description="smoke (one fold, minutes) or full (everything); the rest overrides it",
    )
    heads: Path | None = Field(None, description="JSON file of heads, for the ranking file")
    pairs: str | None = Field(
        None,
        description="pairs of which --allowed points may be lost, with commas: crows, winobias, "
        "winogender, blimp, files or folders of yours; or none",
    )
    save: Annotated[tuple[str, ...], WithCommas, Changes.NOTHING] = Field(
        (),
        description="conditions whose models are saved, with commas: of the first in model/, of "
        "others in model-NAME/ (default: what does best on the validation targets)",
    )
    text: str = Field(
        "self",
        description="neutral text: self (the model's own), wikitext2 (the hub), or a text file",
    )
    batch_size: Annotated[int, Changes.NOTHING] = Field(
        36, ge=1, le=MAX_BATCH, description="texts per forward pass where nothing is learned"
    )
    out: Annotated[Path, Changes.NOTHING] = Field(
        description="folder for the tables, the model and its card"
    )

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self.out


@dataclass(frozen=True)
class Asked:
    """The training and evaluation texts, read before the model is loaded."""

    source: Source[Triple]
    record: DataRecord
    triples: list[Triple]
    twins: Twins | None
    pairs: Mapping[str, PairSet]
    from_file: tuple[list[HeadId], str | None] | None

    @property
    def twins_of_each(self) -> list[Sequence[Triple]]:
        """The twins of every triple; none without twins."""
        twins = self.twins
        return [twins.of(triple) if twins is not None else () for triple in self.triples]

    def told_apart(self, model: LanguageModel, console: Console) -> Asked:
        """The same without triples and twins that the model's tokenizer writes alike."""
        told = told_apart(model.token_ids, self.triples, self.twins)
        for remark in told.remarks + model.special_remarks(told.texts):
            say(console, remark)
        twins = told.twins
        if self.twins is None:
            return replace(self, triples=told.triples)
        kept = [t for t in told.triples if twins is not None and twins.of(t)]
        refuse_all_alike(len(self.triples) - len(kept), len(self.triples), "triple")
        return replace(self, triples=kept, twins=twins)


def asked(settings: DebiasSettings) -> Asked:
    """Read what is given, and make sure that what it needs is installed."""
    of_preset: tuple[str, ...] = PRESETS[settings.preset].get("controls", ())
    controls = of_preset if settings.controls is None else settings.controls
    from_hub = comes_from_hub(settings.data) or text_comes_from_hub(settings.text)
    reach_hub_for(settings.model, also=from_hub)

    from tda_bias.ablation.head_weights import refuse_untrainable
    from tda_bias.debias.learners import require_peft
    from tda_bias.debias.passages import retention_text
    from tda_bias.debias.peers import require_leace
    from tda_bias.debias.training_data import pair_sets, training_source, training_texts

    from_file = _heads_of_file(settings)
    source = training_source(settings.data)
    triples, twins, left_out = training_texts(
        source, settings.category, limit=settings.limit, twins=settings.twins, controls=controls
    )
    if left_out:
        said = f"{left_out} of {left_out + len(triples)} triples have no twin and are left out."
        say(settings.console, said)
    pairs = pair_sets(settings.pairs, settings.preset)
    if settings.text != "self" and not text_comes_from_hub(settings.text):
        retention_text(settings.text)
    if settings.how == "lora":
        require_peft()
    if "leace" in controls:
        require_leace()
    refuse_untrainable(settings.model)
    return Asked(source, source.record(settings.category), triples, twins, pairs, from_file)


def compute(settings: DebiasSettings, asked: Asked, work: Work) -> DebiasRun:
    """Train, and save the tables and the models."""
    model = work.model(settings.model)
    asked = asked.told_apart(model, settings.console)

    from tda_bias.debias.corpus import Corpus
    from tda_bias.debias.domain import domain_texts, other_categories
    from tda_bias.debias.experiment import fixed_experiment
    from tda_bias.debias.passages import neutral_text
    from tda_bias.debias.run_debias import run_debias
    from tda_bias.debias.texts import TwinTexts
    from tda_bias.plots.behaviour import plot_conditions
    from tda_bias.show.figures import print_style

    protocol = _protocol(settings, model, asked.triples, asked.from_file)
    size, seed = settings.batch_size, settings.seed
    others = other_categories(asked.source, settings.category, limit=settings.limit)
    experiment = fixed_experiment(
        Corpus(
            TwinTexts(model, asked.triples, asked.twins_of_each, batch_size=size),
            neutral_text(model, settings.text, seed=seed),
            domain_texts(model, others, n_watch=protocol.watched, batch_size=size, seed=seed),
            asked.pairs,
        ),
        protocol,
        work.folder,
        load_hooked=partial(_hooked, settings),
        from_file=asked.from_file,
        about_twins=None if asked.twins is None else asked.twins.record(),
        save=settings.save,
        resume=settings.resume,
        overwrite=settings.overwrite,
        shard=work.shard,
        cluster=work.cluster,
    )
    say(settings.console, experiment.in_words(settings.cluster or settings.shard))
    title = f"{model.name} · {settings.category}"
    with work.progress(title, "steps") as progress, print_style():
        return run_debias(
            experiment,
            work.folder,
            category=settings.category,
            data=asked.record,
            settings=settings.recorded(),
            progress=progress,
            draw=plot_conditions,
        )


def _hooked(settings: DebiasSettings) -> LoadedModel:
    """The model with hooks, for rankings by topology."""
    return hooked_model(settings.model, settings, Console(quiet=True))


def _heads_of_file(settings: DebiasSettings) -> tuple[list[HeadId], str | None] | None:
    """The heads of ``--heads``, and the weights of the model they were found in."""
    from tda_bias.ablation.head_weights import heads_of_file

    asked = "file" in (settings.by or ())
    if asked != (settings.heads is not None):
        raise InputError("`rank_by` file and --heads FILE go together; give both, or neither")
    if settings.heads is None:
        return None
    heads, about = heads_of_file(settings.heads)
    return heads, about.get("weights")


def _protocol(
    settings: DebiasSettings,
    model: LanguageModel,
    triples: list[Triple],
    from_file: tuple[list[HeadId], str | None] | None,
) -> Protocol:
    from tda_bias.models.attention import attention_layers, typical_weight

    layers = attention_layers(model)
    asked = settings.model_dump(include=set(Protocol.model_fields))
    if from_file is not None and settings.top is None:
        asked["top"] = len(set(from_file[0]))
    return protocol_of(
        settings.preset,
        asked,
        n_heads=sum(layer.n_heads for layer in layers),
        typical_weight=typical_weight(layers),
        n_targets=len({triple.group for triple in triples}),
        save=settings.save,
    )
