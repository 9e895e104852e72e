"""``tdabias debias``: train chosen heads for less bias, beside other choices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model
from rich.console import Console

from tda_bias.debias.protocol import PRESETS, Protocol
from tda_bias.runs.settings import given_as
from tda_bias.runs.text import data_remarks
from tda_bias.types import MAX_BATCH, HeadId, InputError

from .loading import data_option, hooked_model, reach_hub_for, triples_record
from .options import command
from .output import Output, report_of, uncut_table
from .progress import say
from .settings import (
    SPEAKING,
    CommandSettings,
    DeviceOption,
    LimitOption,
    ModelOption,
    SharedRunSettings,
    TwinsOption,
)
from .work import Work, working

if TYPE_CHECKING:
    from tda_bias.debias.corpus import Corpus
    from tda_bias.debias.result import DebiasRun
    from tda_bias.models.load import LanguageModel, LoadedModel
    from tda_bias.pairs import PairSet
    from tda_bias.types import Triple

_GENDER_AGREEMENT = "blimp_gender_agreement"
# Of the protocol: what nobody asks for, what a preset or the model decides unless it is asked for,
# and what has a shorter name on the command line.
_FIXED = {"n_folds", "checks_per_epoch", "batch", "passages", "l1", "patience"}
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
    return create_model("ProtocolOptions", __base__=CommandSettings, **fields)


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

    category: str = Field(
        description="gender, profession, race, religion, or one of your own file's"
    )
    data: str = Field("stereoset", description="stereoset (the hub), starter, or a file of triples")
    preset: Literal["smoke", "full"] = Field(
        "smoke",
        description="smoke (one fold, minutes) or full (everything); the rest overrides it",
    )
    heads: Path | None = Field(None, description="JSON file of heads, for the ranking file")
    pairs: str | None = Field(
        None,
        description="pairs of which a point may be lost, with commas: crows, winobias, winogender, "
        "blimp, files or folders of yours; or none",
    )
    allowed_perplexity: float = Field(
        1.0, ge=0, le=100, description="per cent that the perplexity of neutral text may gain"
    )
    save: str | None = Field(
        None,
        description="condition whose model is saved: a ranking of --rank-by, or all (default: what "
        "does best on the validation targets)",
    )
    text: str = Field(
        "self",
        description="neutral text: self (the model's own), wikitext2 (the hub), or a text file",
    )
    batch_size: int = Field(
        36, ge=1, le=MAX_BATCH, description="texts per forward pass where nothing is learned"
    )
    out: Path = Field(description="folder for the tables, the model and its card")

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        return self.model_dump(mode="json", exclude={*SPEAKING, "device", "batch_size"})


@command(DebiasSettings)
def debias(settings: DebiasSettings) -> None:
    """Train chosen heads for less bias, and compare with random and all heads."""
    from_file = _heads_of_file(settings)
    triples, twins, about_twins = _texts(settings)
    pairs = _pairs(settings)
    from tda_bias.ablation.head_weights import refuse_untrainable
    from tda_bias.debias.learners import require_peft
    from tda_bias.debias.peers import require_leace
    from tda_bias.sources import load_neutral_text, text_comes_from_hub

    reach_hub_for(settings.model, also=text_comes_from_hub(settings.text))
    controls = _controls(settings)
    if settings.how == "lora" or "cda-lora" in controls:
        require_peft()
    if "leace" in controls:
        require_leace()
    # What cannot be read is said before the model.
    if settings.text != "self" and not text_comes_from_hub(settings.text):
        with given_as("text"):
            load_neutral_text(settings.text)
    with working(settings, "debias", settings.out, kept="trainings") as work:
        refuse_untrainable(settings.model)
        model = work.model(settings.model)
        protocol = _protocol(settings, model, triples)
        corpus = _corpus(settings, model, triples, twins, pairs)
        run = _run(settings, work, corpus, about_twins, from_file, protocol)
    output(run, settings.out).print(settings)


def _protocol(settings: DebiasSettings, model: LanguageModel, triples: list[Triple]) -> Protocol:
    from tda_bias.debias.protocol import protocol_of
    from tda_bias.models.attention import attention_layers

    asked = settings.model_dump(include=set(Protocol.model_fields))
    asked["allowed_perplexity"] /= 100
    return protocol_of(
        settings.preset,
        asked,
        n_heads=sum(layer.n_heads for layer in attention_layers(model)),
        n_targets=len({triple.group for triple in triples}),
        save=settings.save,
    )


def _run(
    settings: DebiasSettings,
    work: Work,
    corpus: Corpus,
    about_twins: dict[str, Any] | None,
    from_file: tuple[list[HeadId], str | None] | None,
    protocol: Protocol,
) -> DebiasRun:
    from tda_bias.debias.experiment import fixed_experiment
    from tda_bias.debias.run_debias import run_debias
    from tda_bias.plots.behaviour import plot_conditions
    from tda_bias.runs.figures import print_style

    def load_hooked() -> LoadedModel:
        return hooked_model(settings.model, settings, Console(stderr=True, quiet=True))

    experiment = fixed_experiment(
        corpus, protocol, settings.out, load_hooked=load_hooked, from_file=from_file,
        about_twins=about_twins, resume=settings.resume, overwrite=settings.overwrite,
        team=work.team,
    )  # fmt: skip
    say(settings.console, experiment.in_words(work.team))
    title = f"{corpus.model.name} · {settings.category}"
    with work.progress(title, "steps") as bar, print_style():
        return run_debias(
            experiment,
            settings.out,
            category=settings.category,
            data=triples_record(settings.data, settings.category),
            settings=settings.recorded(),
            save=settings.save,
            progress=bar,
            draw=plot_conditions,
        )


# -- what is read ----------------------------------------------------------------------------------


def _texts(
    settings: DebiasSettings,
) -> tuple[list[Triple], list[tuple[Triple, ...]], dict[str, Any] | None]:
    """The triples that can be trained on, the twins of each, and how those came about."""
    from tda_bias.debias.protocol import refuse_evaluation_only
    from tda_bias.triples import comes_from_hub, load_triples
    from tda_bias.twins import load_twins, make_twins

    refuse_evaluation_only(settings.data)
    reach_hub_for(settings.model, also=comes_from_hub(settings.data))
    triples = load_triples(settings.data, category=settings.category, limit=settings.limit)
    if settings.twins == "none":
        needing = {"placebo", "leace", "steering"} & set(_controls(settings))
        if needing:
            raise InputError(
                f"`controls` {', '.join(sorted(needing))} need twins; give --twins, or --controls "
                "without them"
            )
        return triples, [()] * len(triples), None
    whole = load_triples(settings.data, category=settings.category)
    made = make_twins(whole) if settings.twins == "auto" else load_twins(settings.twins, whole)
    kept = [triple for triple in triples if made.of(triple)]
    if not kept:
        raise InputError(
            f"no triple of `data` {settings.data} has a twin: {made.note or 'see tdabias twins'}"
        )
    if len(kept) < len(triples):
        number = f"{len(triples) - len(kept)} of {len(triples)}"
        say(settings.console, f"{number} triples have no twin and are left out.")
    return kept, [made.of(triple) for triple in kept], made.only(kept).record()


def _corpus(
    settings: DebiasSettings,
    model: LanguageModel,
    triples: list[Triple],
    twins: list[tuple[Triple, ...]],
    pairs: dict[str, PairSet],
) -> Corpus:
    """The texts of the experiment, as the model reads them."""
    from tda_bias.debias.corpus import Corpus, domain_texts, neutral_text
    from tda_bias.debias.texts import TwinTexts

    size, seed = settings.batch_size, settings.seed
    return Corpus(
        TwinTexts(model, triples, twins, batch_size=size),
        neutral_text(model, settings.text, seed=seed),
        domain_texts(model, _other_categories(settings), batch_size=size, seed=seed),
        pairs,
    )


def _controls(settings: DebiasSettings) -> tuple[str, ...]:
    """The controls that are asked for, else those of the preset."""
    of_preset: tuple[str, ...] = PRESETS[settings.preset].get("controls", ())
    return of_preset if settings.controls is None else settings.controls


def _other_categories(settings: DebiasSettings) -> list[tuple[Triple, tuple[Triple, ...]]]:
    """Triples of the categories that nothing is trained on, with their twins, where there are."""
    from tda_bias.triples import load_triples
    from tda_bias.twins import make_twins

    every = load_triples(settings.data, category="all", limit=settings.limit)
    others = [triple for triple in every if triple.category != settings.category]
    made = make_twins(others)
    return [(triple, made.of(triple)) for triple in others]


def _pairs(settings: DebiasSettings) -> dict[str, PairSet]:
    """Sets of minimal pairs by name: those asked for, else of the preset full BLiMP's."""
    from tda_bias.pairs import load_pairs
    from tda_bias.sources import of_environment

    if settings.pairs is not None:
        sources = [] if settings.pairs == "none" else settings.pairs.split(",")
    elif settings.preset == "full":
        folder = of_environment(_GENDER_AGREEMENT)
        sources = ["blimp", *([str(folder)] if folder else [])]
    else:
        sources = []
    found = {}
    for source in sources:
        path = Path(source)
        whole = path.is_dir() or '"sentence_good"' in _first_line(path)
        with given_as("pairs"):
            found[path.stem] = load_pairs("blimp", data=path) if whole else load_pairs(source)
    return found


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline(10_000)


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


# -- what is printed -------------------------------------------------------------------------------


def _cells(row: Mapping[Any, Any]) -> list[str]:
    known = not math.isnan(row["low"])  # of fewer than five folds
    interval = f"\n{row['low']:.3f} to {row['high']:.3f}" if known else ""
    return [
        str(row["condition"]),
        "all" if row["how"] == "full" else str(row["heads"]),
        f"{row['beta']:.3f}{interval}",
        f"{row['rms']:.3f}",
        f"{row['perplexity']:+.1f}",
        f"{row['lms']:.1f}",
        str(row["guard"]).removesuffix(" pass").replace(" of ", "/"),
        "" if math.isnan(row["p"]) else f"{row['p']:.2f}",
    ]


def output(run: DebiasRun, folder: Path) -> Output:
    """The table of conditions, and its meaning in words."""
    record = run.record
    title = (
        f"{record.model.name} · {record.category} · {record.protocol.how} · beta on unseen targets"
    )
    headings = ("condition", "heads", "beta (95 %)", "rms", "ppl %", "lms", "guard", "p")
    rows = [_cells(row) for row in run.conditions.to_dict("records")]
    shown = uncut_table(title, headings, rows, left=1)
    # The original itself cannot be compared with the original.
    models = f"{quote(record.model.name)} {quote(str(folder / 'model'))}"
    texts = f" --category {quote(record.category)}{data_option(record)}"
    compare = [] if record.unchanged else [f"tdabias compare {models}{texts}"]
    return Output(
        finding=run.finding().then(*compare, report_of(folder)),
        shown=[shown, *data_remarks(record.data)],
        values={"record": record.model_dump(mode="json"), "conditions": run.conditions},
        rows=run.conditions,
        folder=folder,
        files="conditions.csv, heads.json, frontier.png, model/ with its card, ...",
    )
