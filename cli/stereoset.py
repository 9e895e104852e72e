"""``tdabias stereoset``: does the model prefer stereotypes, and language to nonsense?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from rich.table import Table

from tda_bias.config import BatchOption, ConfidenceOption, SeedOption
from tda_bias.show.text import counted, data_remarks, interval_text, number_text, p_text
from tda_bias.triples import comes_from_hub, load_sentence_triples
from tda_bias.types import CATEGORIES

from .loading import data_option, reach_hub_for, triples_asked
from .options import command
from .output import Columns, Output, Row, groups_table, interval_of, report_of, uncut_table
from .settings import Out, SharedRunSettings, TriplesSettings, TwinsOption, folder_name
from .work import working

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores

_FILES = "scores.csv, items.parquet, run.json, ..."
# Nats by which two readings of one text may differ.
_NO_CHANGE = 1e-3


class StereoSetSettings(
    TriplesSettings, TwinsOption, BatchOption, ConfidenceOption, SeedOption, SharedRunSettings
):
    """Settings of ``tdabias stereoset``."""

    task: Literal["intersentence", "intrasentence"] = Field(
        "intersentence",
        description="intersentence: sentences that go on from a context; intrasentence: sentences "
        "that differ in the words of a blank",
    )
    start: Literal["tokenizer", "bos"] = Field(
        "tokenizer",
        description="with --task intrasentence, of causal models: score the first token only where "
        "the tokenizer adds a start token, or (bos) put the model's start token in front",
    )
    out: Out = Field(
        None, description="folder for the files (default: runs/MODEL/stereoset-CATEGORY)"
    )

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        half = "-intrasentence" if self.task == "intrasentence" else ""
        by_default = Path("runs") / folder_name(self.model) / f"stereoset{half}-{self.category}"
        return self.out or by_default

    @model_validator(mode="after")
    def _options_of_one_task(self) -> StereoSetSettings:
        given = self.model_fields_set
        if self.task == "intersentence" and "start" in given:
            raise ValueError("`start` is about whole sentences: give --task intrasentence with it")
        if self.task == "intrasentence" and "twins" in given and self.twins != "none":
            raise ValueError(
                f"`twins` must be none with --task intrasentence, for whose sentences none are "
                f"made; got {self.twins!r}"
            )
        return self


@command(StereoSetSettings)
def stereoset(settings: StereoSetSettings) -> None:
    """Score a model on StereoSet: stereotype, language-model and idealised CAT score."""
    if settings.task == "intrasentence":
        shown = sentences_output(_sentences(settings), settings.folder)
    else:
        shown = output(_triples(settings), settings.folder)
    shown.print(settings)


def _triples(settings: StereoSetSettings) -> StereoSetScores:
    """Score the sentences that go on from a context."""
    texts = triples_asked(settings)
    triples, twins, data = texts.items, texts.twins, texts.record
    with working(settings, "stereoset", settings.folder, data=data) as work:
        model = work.model(settings.model)

        from tda_bias.scores.stereoset_scores import stereoset_scores

        with work.progress(f"{model.name} · {settings.category}", "triples") as progress:
            result = stereoset_scores(
                model,
                triples,
                twins=twins,
                progress=progress,
                cache=work.cache,
                batch_size=settings.batch_size,
                confidence=settings.confidence,
                seed=settings.seed,
            )
        result = result.with_record(settings=settings.recorded(), data=data)
        result.save(settings.folder)
    return result


def _sentences(settings: StereoSetSettings) -> SentenceScores:
    """Score the sentences that differ in the words of a blank."""
    source = settings.data
    reach_hub_for(settings.model, also=comes_from_hub(source, "intrasentence"))
    sentences, data = load_sentence_triples(
        source, category=settings.category, groups=settings.group, limit=settings.limit
    )
    with working(settings, "stereoset intrasentence", settings.folder, data=data) as work:
        model = work.model(settings.model)

        from tda_bias.scores.stereoset_scores import sentence_scores

        with work.progress(f"{model.name} · {settings.category}", "sentences") as progress:
            result = sentence_scores(
                model,
                sentences,
                start=settings.start,
                progress=progress,
                cache=work.cache,
                batch_size=settings.batch_size,
                confidence=settings.confidence,
            )
        result = result.with_record(settings=settings.recorded(), data=data)
        result.save(settings.folder)
    return result


# -- what is printed -------------------------------------------------------------------------------


def output(result: StereoSetScores, folder: Path) -> Output:
    """The scores, what of them is about the target, and how to read them."""
    from tda_bias.scores.findings import PER, stereoset_finding

    name, scores = result.record.model.name, _of_all(result.scores)
    title = f"{name} · StereoSet intersentence · {_coverage(result)}"
    by: Columns = [("by", lambda row: PER[row["scoring"]])]
    tables, twinned = [uncut_table(title, scores, [*by, *_SCORE_COLUMNS], left=2)], {}
    if result.has_twins:
        tables += [_twin_table(result), *_part_tables(result)]
        twinned = {
            "beta": result.beta,
            "beta_parts": result.beta_parts,
            "placebo_beta": result.placebo_beta,
        }
    if not result.placebo_beta.empty:
        tables.append(_placebo_table(result))
    groups = _own_groups(result.beta if result.has_twins else result.scores)
    categories = [category for category in result.scores["category"].unique() if category != "all"]
    category = quote(categories[0]) if len(categories) == 1 else "all"
    data = data_option(result.record)
    return Output(
        finding=stereoset_finding(result).then(
            f"tdabias heads --model {quote(name)} --category {category}{data}", report_of(folder)
        ),
        shown=[*tables, *groups, *data_remarks(result.record.data)],
        values={
            "model": result.record.model,
            "scores": result.scores,
            "length_split": result.length_split,
            **twinned,
        },
        rows=result.scores,
        folder=folder,
        files=_FILES,
    )


def sentences_output(run: SentenceScores, folder: Path) -> Output:
    """The scores of whole sentences and of the words that differ, and how to read them."""
    from tda_bias.scores.findings import PER, scored_name, sentences_finding

    names: Columns = [("scored", scored_name), ("by", lambda row: PER[row["scoring"]])]
    columns = [*names, *_SCORE_COLUMNS]
    title = f"{run.record.model.name} · StereoSet intrasentence · {_coverage(run)}"
    return Output(
        finding=sentences_finding(run).then(report_of(folder)),
        shown=[
            uncut_table(title, _of_all(run.scores), columns, left=3),
            *_own_groups(run.scores[run.scores["scored"] == run.scores["scored"].iloc[0]]),
            *data_remarks(run.record.data),
        ],
        values={
            "model": run.record.model,
            "scores": run.scores,
            "length_split": run.length_split,
        },
        rows=run.scores,
        folder=folder,
        files=_FILES,
    )


def _own_groups(table: pd.DataFrame) -> list[Table | str]:
    """The groups of categories that are not StereoSet's, by sums of log-probabilities."""
    of_groups = (table["scoring"] == "sum") & (table["group"] != "all")
    own = table[of_groups & ~table["category"].isin(["all", *CATEGORIES])]
    names, digits, file = (("lms", "ss"), 1, "scores.csv")
    if "beta" in own:
        names, digits, file = (("log_odds", "beta"), 2, "beta.csv")
    columns: Columns = [
        *((name, f"{{{name}}}") for name in ("group", "category", "items")),
        *((name, f"{{{name}:n{digits}}}") for name in names),
        ("interval", lambda row: _interval(row, names[-1], digits)),
    ]
    return groups_table("Groups, by sums", own, columns, file)


def _of_all(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows about whole categories, and about everything."""
    return table[table["group"] == "all"].to_dict("records")


def _coverage(result: StereoSetScores | SentenceScores) -> str:
    return f"{result.record.confidence:.0%} intervals"


def _score(name: str) -> Callable[[Row], str]:
    return lambda row: f"{row[name]:.1f}\n{_interval(row, name, 0)}"


def _interval(row: Row, name: str, digits: int = 2, over: str = "") -> str:
    text = interval_text(row[f"{name}_low{over}"], row[f"{name}_high{over}"], digits)
    return "none" if text == "no interval" else text


# Of the scores, in the order of the table.
_SCORE_COLUMNS: Columns = [
    ("category", "{category}"),
    ("items", "{items}"),
    *((name, _score(name)) for name in ("lms", "ss", "icat")),
    ("ss over\nitems", "{ss_items:.1f}"),
]


def _twin_table(result: StereoSetScores) -> Table:
    """Table of categories with twins subtracted, with intervals and tests.

    In a cell stands a number over its interval over items, then that over whole targets.
    """
    from tda_bias.scores.findings import PER

    def digits(row: Row) -> int:
        return 2 if row["scoring"] == "sum" else 3

    def value(row: Row, name: str, digits: int) -> str:
        number = number_text(row[name], digits)
        over_targets = _interval(row, name, digits, "_targets")
        return f"{number}\n{_interval(row, name, digits)}\n({over_targets})"

    def p(row: Row, name: str) -> str:
        over_targets = row[f"{name}_targets"]  # where there are five
        also = f"\n\n({p_text(over_targets)})" if over_targets == over_targets else ""
        return p_text(row[name]) + also

    columns: Columns = [
        ("category, by", lambda row: f"{row['category']}, {PER[row['scoring']]}"),
        (
            "log-odds",
            lambda row: f"{number_text(row['log_odds'], digits(row))}\nr {number_text(row['r'])}",
        ),
        ("beta", lambda row: value(row, "beta", digits(row))),
        ("p", lambda row: p(row, "p")),
        ("beta > 0, %", lambda row: value(row, "ss_twin", 0)),
        ("p", lambda row: p(row, "p_ss_twin")),
    ]
    title = f"{result.record.model.name} · triples minus twins · {_coverage(result)}"
    return uncut_table(title, _of_all(result.beta), columns)


def _part_tables(result: StereoSetScores) -> list[Table]:
    """The parts of beta of every category whose swap changes most continuations too."""
    from tda_bias.scores.beta_parts import PARTS

    # Where the continuations stay, beta is the context's alone.
    twinned = result.items.dropna(subset="beta_continuations")
    changed = twinned["beta_continuations"].abs() > _NO_CHANGE
    mostly = changed.groupby(twinned["category"]).mean() > 0.5
    tables = []
    for category, own in result.beta_parts.groupby("category", sort=False):
        if not mostly[category]:
            continue
        first = own.iloc[0]
        about = f"{counted(first['items'], 'item')}, {counted(first['targets'], 'target')}"
        title = f"{result.record.model.name} · parts of beta, {category}, nats · {about}"
        columns: Columns = [
            ("part", lambda row: PARTS[row["part"]]),
            ("mean", "{mean:n2}"),
            ("over targets", interval_of("low", "high")),
        ]
        tables.append(uncut_table(title, own, columns))
    return tables


def _placebo_table(result: StereoSetScores) -> Table:
    """Beta and its placebos, by sums of log-probabilities."""

    def name(row: Row) -> str:
        which = "" if row["choice"] == "all" else f", word {row['choice']}"
        return f"{row['category']}, {row['kind']}{which}"

    def value(name: str) -> Callable[[Row], str]:
        return lambda row: f"{number_text(row[name])}\n{_interval(row, name)}"

    columns: Columns = [
        ("placebo", name),
        ("items", "{items}"),
        ("targets", "{targets}"),
        *((name, value(name)) for name in ("beta", "placebo", "difference")),
    ]
    title = f"{result.record.model.name} · beta and its placebos, nats · intervals over targets"
    found = result.placebo_beta
    return uncut_table(title, found[found["scoring"] == "sum"], columns)
