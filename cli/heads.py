"""``tdabias heads``: the bias of every attention head."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from tda_bias.config import ARunEach, HeadBiasConfig
from tda_bias.pairs import SETS, pair_triples
from tda_bias.show.output import Output
from tda_bias.show.table import TableSpec
from tda_bias.show.text import counted
from tda_bias.store.identity import Changes
from tda_bias.twins import Twins, comparable_placebos
from tda_bias.twins.told_apart import told_apart
from tda_bias.types import MAX_COUNT, InputError, ShareDone, Triple

from .loading import Texts, hooked_model, pairs_of, triples_asked
from .run import Work, stage
from .settings import Out, SharedRunSettings, TriplesSettings, TwinsOption, folder_name, part_of

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import LoadedModel


class HeadsSettings(TriplesSettings, TwinsOption, SharedRunSettings, HeadBiasConfig):
    """Every setting of ``tdabias heads``."""

    category: Annotated[str | None, ARunEach] = Field(  # type: ignore[assignment]
        None,
        description="gender, profession, race or religion, one of your own file's, or all; several "
        "with commas, a run each; required without --pairs",
    )
    pairs: str | None = Field(
        None,
        description="pairs instead of triples: crows, winobias, winogender, blimp, or a file of "
        "yours (JSON Lines, CSV or TSV: id, group, more, less); --data says where a named set is "
        "read",
    )
    top: Annotated[int, Changes.NOTHING] = Field(
        10, ge=1, le=MAX_COUNT, description="heads to print"
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/CATEGORY)")
    untrained: Annotated[bool, Changes.NOTHING] = Field(
        False,
        description="also run the same architecture with random weights: what tokens and their "
        "places alone show",
    )
    placebo: Annotated[Literal["none", "synonym", "role"], Changes.NOTHING] = Field(
        "none",
        description="also run placebo twins in the place of twins, on the triples that have some: "
        "synonym (mother to mom) or role (mother to aunt); a second pass over these",
    )
    keep_patterns: Annotated[int, Changes.NOTHING] = Field(
        8,
        ge=0,
        le=MAX_COUNT,
        description="heads of each category whose patterns on the texts that carry them most are "
        "kept for `tdabias report`; 0 for none",
    )
    dry_run: Annotated[bool, Changes.NOTHING] = Field(
        False, description="only count triples, twins, texts and tokens per group; saves nothing"
    )

    @model_validator(mode="after")
    def _texts_of_one_kind(self) -> HeadsSettings:
        if self.pairs is None and self.category is None:
            raise ValueError("`category` is missing; give --category, or --pairs")
        if self.pairs is not None and self.category is not None:
            raise ValueError("`category` is about triples; leave --category out, or --pairs")
        if self.pairs is not None and "twins" in self.model_fields_set and self.twins != "none":
            raise ValueError("`twins` are made of triples; leave --twins out, or --pairs")
        return self

    @property
    def subject(self) -> str:
        """The category, or the set of pairs."""
        return self.category or f"pairs-{folder_name(str(self.pairs))}"

    @property
    def folder(self) -> Path:
        """The folder for the files."""
        return self.out or Path("runs") / folder_name(self.model) / self.subject


def texts(settings: HeadsSettings) -> Texts:
    """Texts to compare: triples and their twins, or pairs; and their source."""
    if ":" in settings.summary:
        from tda_bias.heads.summaries import own_function

        own_function(settings.summary)  # before the model is loaded
    if settings.pairs is None:
        return triples_asked(settings)
    if settings.pairs not in SETS and not Path(settings.pairs).is_file():
        raise InputError(
            f"`pairs` must be one of {', '.join(SETS)}, or a readable file; got {settings.pairs!r}"
        )
    data = settings.data if "data" in settings.model_fields_set else None
    pairs = pairs_of(settings, settings.pairs, data)
    return Texts(pair_triples(pairs), pairs.record)


def compute(settings: HeadsSettings, texts: Texts, work: Work) -> HeadBias:
    """The run, and in folders inside it the controls that are asked for."""
    placebo = None
    if settings.placebo != "none":
        if texts.twins is None:
            raise InputError("`placebo` is compared with twins, and this run has none")
        with_twins = [triple for triple in texts.items if texts.twins.of(triple)]
        placebo = comparable_placebos(with_twins, settings.placebo)
    model, folder = work.hooked_model(settings.model), work.folder

    from tda_bias.heads.controls import PLACEBO, UNTRAINED
    from tda_bias.models.hooked import initialised

    def runs() -> Iterator[tuple[Path, LoadedModel, list[Triple], Twins | None]]:
        yield folder, model, texts.items, texts.twins
        if placebo is not None:
            yield folder / PLACEBO.format(settings.placebo), model, *placebo
        if settings.untrained:
            again = partial(initialised, model, seed=settings.seed)
            untrained = work.held(again(), again)
            yield folder / UNTRAINED, untrained, texts.items, texts.twins

    results: list[HeadBias] = []
    done: list[ShareDone] = []
    for where, reader, triples, twins in runs():
        inside = work.inside(where, kept="groups")
        with stage(done):
            some = texts.some("triple") if where == folder else ""
            results.append(_computed(settings, inside, reader, triples, twins, some))
    if done:
        raise done[-1]
    return results[0]


def _computed(
    settings: HeadsSettings,
    work: Work,
    model: LoadedModel,
    triples: list[Triple],
    twins: Twins | None,
    some: str,
) -> HeadBias:
    """The result of a model, saved with the patterns that `tdabias report` shows."""
    from tda_bias.heads.head_bias import head_bias
    from tda_bias.heads.items import example_pattern, kept_patterns

    title = f"{model.name} · {settings.subject}"
    with work.progress(title + some, "texts") as progress:
        result = head_bias(
            model,
            triples,
            twins=twins,
            config=part_of(settings, HeadBiasConfig),
            progress=progress,
            cache=work.cache,
        )
    wanted = result.texts_to_keep(settings.keep_patterns)
    with work.progress(f"{title} · patterns that are kept", "texts") as progress:
        kept = kept_patterns(
            model,
            wanted,
            edges=settings.edges,
            batch_size=settings.batch_size,
            progress=progress,
        )
    return work.saved(result.with_patterns(example_pattern(model), kept))


def dry_run(settings: HeadsSettings) -> Output:
    """Counts of triples, twins, texts and tokens per group, from the model's tokenizer."""
    from tda_bias.heads.texts import text_counts, tokenized_groups

    read = texts(settings)
    model = hooked_model(settings.model, settings, settings.console)
    twins = told_apart(model.token_ids, read.items, read.twins, roles=2).twins
    groups, left_out = tokenized_groups(model, read.items, twins)
    rows = text_counts(groups)
    counts = rows[["triples", "twins", "texts", "tokens"]].sum().to_dict()
    counts |= {"longest": int(rows["longest"].max()), "left_out": len(left_out)}
    return Output(
        shown=[
            TableSpec.of(rows, f"{model.name} · {settings.subject} · texts that a run would read"),
            f"In all {counted(counts['triples'], 'triple')}, {counted(counts['twins'], 'twin')}, "
            f"{counted(counts['texts'], 'text')} of {counted(counts['tokens'], 'token')}, the "
            f"longest of {counts['longest']}; {counted(len(left_out), 'triple')} left out. Nothing "
            "was computed or saved.",
        ],
        values={"in_all": counts, "groups": rows},
        rows=rows,
    )
