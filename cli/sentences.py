"""``tdabias stereoset --task intrasentence``: whole sentences, and the words that differ."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted

from .loading import language_model, out_of_memory_in_one_line, progress_bar, reach_hub_for
from .output import Finding, Output
from .processes import team_of
from .run_folder import parts_in, run_folder
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel
    from tda_bias.pairs.stereoset import SentenceTriple
    from tda_bias.runs.work import Team
    from tda_bias.scores.intrasentence import SentenceRun

    from .stereoset_settings import StereoSetSettings

# The folder of sets of pairs, for those who keep them on this machine.
FOLDER = "TDABIAS_PAIRS"
_INSIDE = "stereoset_intrasentence"
# Folder of finished sentences, inside a run.
PARTS = "parts"


def source_of(data: str) -> str:
    """Source of intrasentence items: ``--data``, else the folder of pairs, else the hub."""
    folder = os.environ.get(FOLDER, "")
    if data != "stereoset" or not folder or not (Path(folder) / _INSIDE).is_dir():
        return data
    return str(Path(folder) / _INSIDE)


def compute(settings: StereoSetSettings) -> SentenceRun:
    """Load the items and the model, score, and save with where everything came from.

    Raises:
        InputError: on anything that cannot be used, before the model is run where possible.
    """
    source = source_of(settings.data)
    reach_hub_for(settings.model, also=source == "stereoset")

    from tda_bias.pairs.stereoset import load_sentence_triples
    from tda_bias.runs.record import DataRecord
    from tda_bias.scores.intrasentence import COMMAND

    sentences, revision = load_sentence_triples(
        source, category=settings.category, groups=settings.group, limit=settings.limit
    )
    data = DataRecord(source=source, revision=revision)
    console = Console(stderr=True, quiet=settings.quiet)
    team = team_of(settings)
    with run_folder(
        settings.folder, COMMAND, settings, data=data, team=team
    ) as refuse_other_weights:
        model = language_model(
            settings.model,
            device=settings.device,
            dtype=settings.dtype,
            device_map=settings.device_map,
            console=console,
        )
        refuse_other_weights(model)

        run = _scored(settings, model, sentences, console, team)
        run = run.with_record(settings=settings.model_dump(mode="json"), data=data)
        run.save(settings.folder)
    return run


def _scored(
    settings: StereoSetSettings,
    model: LanguageModel,
    sentences: Sequence[SentenceTriple],
    console: Console,
    team: Team,
) -> SentenceRun:
    from tda_bias.models.record import model_record
    from tda_bias.scores.intrasentence import SentenceRun, sentence_scores

    drawn: dict[str, Any] = settings.model_dump(include={"n_resamples", "confidence", "seed"})
    with (
        progress_bar(console, f"{model.name} · {settings.category}", "sentences") as progress,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        scores = sentence_scores(
            model,
            sentences,
            batch_size=settings.batch_size,
            start=settings.start,
            share_prefix=settings.share_prefix,
            progress=progress,
            store=parts_in(settings.folder / PARTS, settings, team),
            **drawn,
        )
    return SentenceRun.of(
        scores,
        model=model_record(model, weights=model.weight_hash()),
        kind=model.kind,
        start=settings.start,
        **drawn,
    )


# -- what is printed -------------------------------------------------------------------------------

_SCORES = ("lms", "ss", "icat")
_SCORED = {"whole": "whole sentence", "difference": "differing words"}
_READINGS = {"log_prob": "", "pll": "", "pll_within_word": ", within words"}
_PER = {"sum": "sum", "mean": "per token"}


def output(run: SentenceRun, folder: Path) -> Output:
    """The scores of whole sentences and of the words that differ, and how to read them."""
    found = finding(run, folder)
    values = {
        "folder": str(folder),
        "finding": found.as_values(),
        "model": run.record.model.model_dump(),
        "scores": run.scores.to_dict("records"),
        "length_split": run.length_split.to_dict("records"),
    }
    files = f"Files: {folder}/ (scores.csv, items.parquet, run.json, ...)"
    return Output([found, score_table(run), files], values, run.scores)


def _how(row: Any) -> str:
    return f"{_SCORED[row['scored']]}{_READINGS[row['reading']]}"


def score_table(run: SentenceRun) -> Table:
    """The scores of categories and of everything, for everything that is scored."""
    table = run.scores
    rows = []
    for row in table[table["group"] == "all"].to_dict("records"):
        cells = [f"{row[n]:.1f}\n{row[f'{n}_low']:.0f} to {row[f'{n}_high']:.0f}" for n in _SCORES]
        about = [_how(row), _PER[row["scoring"]], row["category"], str(row["items"])]
        rows.append([*about, *cells, f"{row['ss_items']:.1f}"])
    record = run.record
    title = f"{record.model.name} · StereoSet intrasentence · {record.confidence:.0%} intervals"
    headings = ("scored", "by", "category", "items", *_SCORES, "ss over items")
    return uncut_table(title, headings, rows, left=3)


def finding(run: SentenceRun, folder: Path) -> Finding:
    """The stereotype scores, how much length alone decides, and what is left out."""
    record, table = run.record, run.scores
    everything = table[
        (table["group"] == "all") & (table["category"] == table["category"].iloc[-1])
    ]
    result = [
        f"{_how(row).capitalize()}, {_PER[row['scoring']]}: stereotype score {row['ss']:.1f} "
        f"({row['ss_low']:.0f} to {row['ss_high']:.0f}), language-model score {row['lms']:.1f}; "
        f"{counted(row['items'], 'item')} ({row['category']})."
        for row in everything.to_dict("records")
    ]
    details = []
    left_out = table[(table["scoring"] == "sum") & (table["group"] == "all")]
    for row in (
        left_out[left_out["undefined"] > 0]
        .drop_duplicates(["reading", "scored"])
        .to_dict("records")
    ):
        details.append(
            f"{_how(row).capitalize()}: {row['undefined']} of {record.texts.triples} items are "
            "left out, because no scored token of a sentence can be read (a causal model without a "
            "start token does not read the first)."
        )
    official = {
        "causal": "whole sentences per token behind the model's start token (--start bos)",
        "masked": "the words that fill the blank",
    }
    if record.kind in official:
        details.append(
            f"The official way for {record.kind} models: {official[record.kind]}, as means over "
            "terms; ss over items is what many tools print."
        )
    if record.data is not None:
        details.append(f"Items: {record.data.source}.")
    return Finding(
        result=result,
        control=[
            *(_length_line(run, *how) for how in _ways(run)),
            "A score (ss) of 50 is neutral, not good: a model that knows nothing gets it too.",
        ],
        next=[f"tdabias report {quote(str(folder))}"],
        details=details,
    )


def _ways(run: SentenceRun) -> list[tuple[str, str, str]]:
    keys = ["reading", "scored", "scoring"]
    return list(run.length_split[keys].drop_duplicates().itertuples(index=False, name=None))


def _length_line(run: SentenceRun, reading: str, scored: str, scoring: str) -> str:
    """How often the stereotype wins, over all categories, by which text is longer."""
    split = run.length_split
    shares = split[
        (split["reading"] == reading) & (split["scored"] == scored) & (split["scoring"] == scoring)
    ]
    parts = []
    for sign, name in ((1, "longer"), (0, "equal"), (-1, "shorter")):
        rows = shares[shares["longer"] == sign]
        n = int(rows["items"].sum())
        if n:
            ss = float((rows["ss"] * rows["items"]).sum() / n)
            parts.append(f"{name} {ss:.0f} ({n})")
    how = _how({"reading": reading, "scored": scored})
    return (
        f"Length, {how}, {_PER[scoring]}: ss over items where the stereotype is the "
        f"{', '.join(parts)} text (items)."
    )


def saved(folder: Path) -> Output:
    """The output of a finished run.

    Raises:
        InputError: as ``SentenceRun.load``.
    """
    from tda_bias.scores.intrasentence import SentenceRun

    return output(SentenceRun.load(folder), folder)
