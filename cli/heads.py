"""``tdabias heads``: the bias of every attention head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from rich.table import Table

from tda_bias.config import HeadBiasConfig
from tda_bias.pairs import SETS, pair_triples
from tda_bias.show.text import Finding, counted, p_text
from tda_bias.store.cache import launched
from tda_bias.store.identity import Changes, names_of
from tda_bias.store.record import DataRecord
from tda_bias.twins import PLACEBOS, Twins, comparable_placebos
from tda_bias.types import CATEGORIES, MAX_COUNT, InputError, ShareDone, Triple

from .loading import data_option, hooked_model, pairs_of, triples_asked
from .options import command, part_of
from .output import Columns, Output, groups_table, head_name, report_of, rows_table, table_of
from .settings import Out, SharedRunSettings, TriplesSettings, TwinsOption, folder_name
from .work import Work, stage, working

if TYPE_CHECKING:
    from tda_bias.heads.finding import PlaceboContrast
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import LoadedModel

# Folders inside a run: of the same with random weights, and of placebo twins.
UNTRAINED = "untrained"
PLACEBO = "placebo-{}"


class HeadsSettings(TriplesSettings, TwinsOption, SharedRunSettings, HeadBiasConfig):
    """Every setting of ``tdabias heads``."""

    category: str | None = Field(  # type: ignore[assignment]
        None,
        description="gender, profession, race or religion, one of your own file's, or all; "
        "required without --pairs",
    )
    pairs: str | None = Field(
        None,
        description="pairs instead of triples: crows, winobias, winogender, blimp, or a file of "
        "yours (JSON Lines or CSV: id, group, more, less); --data says where a named set is read",
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
    def named(self) -> str:
        """The category, or the set of pairs."""
        return self.category or f"pairs-{folder_name(str(self.pairs))}"

    @property
    def folder(self) -> Path:
        """The folder for the files."""
        return self.out or Path("runs") / folder_name(self.model) / self.named


@command(HeadsSettings)
def heads(settings: HeadsSettings) -> None:
    """Rank heads by how differently they attend to stereotype and anti-stereotype texts."""
    if settings.dry_run:
        if launched()[0] == 0:
            dry_run(settings).print(settings)
        return
    output(compute(settings), settings.folder, settings.top).print(settings)


def compute(settings: HeadsSettings, *, shared: bool = True) -> HeadBias:
    """Load the texts and the model, run, and save; processes of a launcher may share the groups.

    Raises:
        InputError: on anything that cannot be used, before the model is run where possible.
        ShareDone: where another process gathers.
    """
    triples, twins, data = texts_of(settings)
    placebo = None
    if settings.placebo != "none":
        if twins is None:
            raise InputError("`placebo` is compared with twins, and this run has none")
        with_twins = [triple for triple in triples if twins.of(triple)]
        placebo = comparable_placebos(with_twins, settings.placebo)

    from tda_bias.heads.result import HeadBias
    from tda_bias.models.hooked import initialised

    folder, done = settings.folder, list[ShareDone]()
    with working(settings, "heads", folder, data=data, kept="groups", shared=shared) as work:
        model = work.hooked_model(settings.model)

        def runs() -> Iterator[tuple[Path, LoadedModel, list[Triple], Twins | None]]:
            yield folder, model, triples, twins
            if placebo is not None:
                yield folder / PLACEBO.format(settings.placebo), model, *placebo
            if settings.untrained:
                yield folder / UNTRAINED, initialised(model, seed=settings.seed), triples, twins

        for where, reader, texts, their_twins in runs():
            work.folder, work.kept = where, where / "groups"
            with stage(done):
                _computed(settings, work, reader, texts, their_twins, data)
    if done:
        raise done[-1]
    return HeadBias.load(folder)


def _computed(
    settings: HeadsSettings,
    work: Work,
    model: LoadedModel,
    triples: list[Triple],
    twins: Twins | None,
    data: DataRecord,
) -> HeadBias:
    """The result of a model, saved in the folder of the work."""
    from tda_bias.heads.head_bias import head_bias
    from tda_bias.heads.items import example_pattern, kept_patterns

    with work.progress(f"{model.name} · {settings.named}", "texts") as progress:
        result = head_bias(
            model,
            triples,
            twins=twins,
            config=part_of(settings, HeadBiasConfig),
            progress=progress,
            cache=work.cache,
        )
    wanted = result.texts_to_keep(settings.keep_patterns)
    kept = kept_patterns(model, wanted, edges=settings.edges, batch_size=settings.batch_size)
    result = result.with_patterns(example_pattern(model), kept)
    result = result.with_record(settings=settings.recorded(), data=data)
    result.save(work.folder)
    return result


def texts_of(settings: HeadsSettings) -> tuple[list[Triple], Twins | None, DataRecord]:
    """Texts to compare: triples and their twins, or pairs; and their source."""
    if settings.pairs is None:
        texts = triples_asked(settings)
        return texts.items, texts.twins, texts.record

    if settings.pairs not in SETS and not Path(settings.pairs).is_file():
        raise InputError(
            f"`pairs` must be one of {', '.join(SETS)}, or a readable file; got {settings.pairs!r}"
        )
    data = settings.data if "data" in settings.model_fields_set else None
    pairs = pairs_of(settings, settings.pairs, data)
    return pair_triples(pairs), None, DataRecord(source=pairs.source, revision=pairs.revision)


def dry_run(settings: HeadsSettings) -> Output:
    """Counts of triples, twins, texts and tokens per group, from the model's tokenizer."""
    from tda_bias.heads.texts import text_counts, tokenized_groups

    triples, twins, _ = texts_of(settings)
    model = hooked_model(settings.model, settings, settings.console)
    groups, left_out = tokenized_groups(model, triples, twins)
    rows = text_counts(groups)
    counts = rows[["triples", "twins", "texts", "tokens"]].sum().to_dict()
    counts |= {"longest": int(rows["longest"].max()), "left_out": len(left_out)}
    return Output(
        shown=[
            table_of(rows, f"{model.name} · {settings.named} · texts that a run would read"),
            f"In all {counted(counts['triples'], 'triple')}, {counted(counts['twins'], 'twin')}, "
            f"{counted(counts['texts'], 'text')} of {counted(counts['tokens'], 'token')}, the "
            f"longest of {counts['longest']}; {counted(len(left_out), 'triple')} left out. Nothing "
            "was computed or saved.",
        ],
        values={"in_all": counts, "groups": rows},
        rows=rows,
    )


# -- what is printed -------------------------------------------------------------------------------


def output(result: HeadBias, folder: Path, top: int) -> Output:
    """The ranked heads and the controls of every category."""
    import pandas as pd

    from tda_bias.heads.finding import run_remarks

    shown: list[Finding | Table | str] = []
    rows, values = [], {}
    for name in result.categories:
        ranked, found = result.top(top, category=name), finding(result, folder, name)
        shown += [found, ranked_table(result, name, top), *_own_groups(result, name)]
        rows.append(ranked.assign(category=name)[["category", *ranked.columns]])
        values[name] = {
            "finding": found,
            "controls": result.controls(name),
            "placebos": _placebos(result, folder, name),
            "heads": ranked,
            "survivors": result.survivors(category=name),
        }
    return Output(
        shown=[*shown, *run_remarks(result)],
        values={"model": result.record.model, "categories": values},
        rows=pd.concat(rows),
        folder=folder,
        files="heads.csv, groups.csv, heatmap.png, run.json, ...",
    )


def finding(result: HeadBias, folder: Path, category: str) -> Finding:
    """The finding of a category, with the commands that follow."""
    from tda_bias.heads.finding import heads_finding

    untrained = _inside(result, folder / UNTRAINED)
    found = heads_finding(
        result, category, untrained=untrained, placebos=_placebos(result, folder, category)
    )
    commands = []
    if not result.record.settings.get("pairs"):
        of = f"--model {quote(result.record.model.name)} --category {quote(category)}"
        commands.append(f"tdabias stereoset {of}{data_option(result.record)}")
    if len(result.survivors(category=category)):
        several = f" --category {quote(category)}" if len(result.categories) > 1 else ""
        commands.append(f"tdabias ablate {quote(str(folder))}{several}")
    return found.then(*commands, report_of(folder))


def _placebos(result: HeadBias, folder: Path, category: str) -> dict[str, PlaceboContrast]:
    """By placebo, the tests with twins beside those with placebo twins; only what was run."""
    from tda_bias.heads.finding import placebo_contrast

    runs = {name: _inside(result, folder / PLACEBO.format(name)) for name in PLACEBOS}
    contrasts = {name: placebo_contrast(result, run, category) for name, run in runs.items() if run}
    return {name: contrast for name, contrast in contrasts.items() if contrast is not None}


def _inside(result: HeadBias, at: Path) -> HeadBias | None:
    """The control of a run in a folder; None without one, or if it is of other settings or data.

    One of an earlier version that lies there must not end a new run after all its work.
    """
    from tda_bias.heads.result import HeadBias
    from tda_bias.store.record import EarlierRunError

    if not (at / "run.json").is_file():
        return None
    try:
        control = HeadBias.load(at)
    except EarlierRunError:
        return None
    of_run, of_control = (
        [
            record.data,
            *(getattr(record.model, name) for name in ("architecture", "parameters", "dtype")),
            *(
                record.settings.get(name)
                for name in sorted(names_of(HeadsSettings, Changes.TABLES))
            ),
        ]
        for record in (result.record, control.record)
    )
    return control if of_run == of_control else None


def _own_groups(result: HeadBias, category: str) -> list[Table | str]:
    """The groups of a category that is not StereoSet's."""
    if category in CATEGORIES:
        return []
    end = "_twin" if result.controls(category)["twins"] is not None else ""
    of_category = result.table[result.table["category"] == category]
    tested = of_category.groupby("group")[f"p_max_location{end}"].min()
    title = f"Groups of {category} · location test{', triple minus twin' if end else ''}"
    columns: Columns = [
        ("group", "{group}"),
        ("texts", "{n}"),
        ("reliability", "{reliability_location:n2}"),
        ("smallest p (family-wise)", lambda row: p_text(tested[row["group"]])),
    ]
    groups = result.groups[result.groups["category"] == category]
    return groups_table(title, groups, columns, "groups.csv")


def ranked_table(result: HeadBias, category: str, top: int) -> Table:
    """The ranked heads of one category."""
    from tda_bias.heads.finding import TESTS, ranking_name

    columns: Columns = [
        ("head", head_name),
        ("z" if result.rank_by in TESTS else "mean z", "{z:.2f}"),
        ("p", "{p:p}"),
        ("p (family-wise)", "{p_max:p}"),
        ("q (FDR)", "{q:p}"),
        ("unstable", lambda row: "yes" if row["unstable"] else ""),
    ]
    name = ranking_name(result, category)
    title = f"{result.record.model.name} · {category} · heads ranked by {name}"
    return rows_table(title, result.top(top, category=category), columns)
