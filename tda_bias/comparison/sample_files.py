"""Scores of single items that lm-evaluation-harness logs: its sample files, one side at a time.

``lm_eval run --log_samples`` writes a JSON object for each document and filter of a task, with the
metrics of that document, its hash, and what the model answered.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tda_bias.sources import hash_of
from tda_bias.store.files import json_objects, read_content
from tda_bias.store.hashes import text_hash
from tda_bias.types import InputError

_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d.:+-]+$")
# Entries that are no metrics; files of earlier versions do not list theirs.
_NO_METRIC = {"doc_id", "version", "fewshot_as_multiturn"}
_KEYS = ["task", "filter", "metric", "doc_id"]


@dataclass(frozen=True)
class Samples:
    """The scores of one side.

    Attributes:
        name: The file or folder.
        table: One row for each task, filter, metric and document: its ``score`` (the mean over
            files of the same task), ``doc`` (hash of the document), ``prompt`` (of the prompt),
            ``cluster``.
        answers: What the model answered, by task and file; equal answers are equal texts.
        revision: Pins the content of the files.
        files: How many there are of each task.
    """

    name: str
    table: pd.DataFrame
    answers: Mapping[str, tuple[str, ...]]
    revision: str
    files: Mapping[str, int]


def sample_files(source: str | Path) -> list[Path]:
    """The sample files of a side: the file itself, or those in a folder and below it."""
    path = Path(source)
    return [path] if path.is_file() else sorted(path.rglob("samples_*.jsonl"))


def read_samples(source: str | Path, *, cluster_by: str | None = None) -> Samples:
    """Read the scores of one side.

    Several files of one task are trainings with several seeds, or runs: they are averaged item by
    item.

    Args:
        source: A file that ``--log_samples`` wrote, or a folder with such files.
        cluster_by: A field of the documents; documents with the same value are no independent
            draws. Each document is a cluster of its own if None.

    Raises:
        InputError: naming the line, if a file cannot be read, holds a document twice or none with a
            score, lacks the field, the files of a task are not about the same documents, or all
            answers of a task have one log-probability, or none.
    """
    paths = sample_files(source)
    if not paths:
        raise InputError(
            f"{source} holds no samples_TASK_TIME.jsonl, which `lm_eval run --log_samples` writes"
        )
    rows: list[dict[str, Any]] = []
    answers: dict[str, list[str]] = {}
    contents: list[bytes] = []
    counts: dict[str, int] = {}
    for path in paths:
        text, content = read_content(path, setting="before", named=())
        task = match["task"] if (match := _NAME.match(path.stem)) else path.stem
        counts[task] = counts.get(task, 0) + 1
        lines = list(json_objects(text, str(path)))
        rows += _rows(lines, task, str(path), cluster_by)
        answers.setdefault(task, []).append(_answers(lines, str(path)))
        contents.append(content)
    if not rows:
        raise InputError(f"{source} holds no document with a score that is a number")
    return Samples(
        name=str(source),
        table=_averaged(pd.DataFrame(rows), counts),
        answers={task: tuple(texts) for task, texts in answers.items()},
        revision=hash_of(*contents),
        files=counts,
    )


def _rows(
    lines: list[tuple[str, dict[str, Any]]], task: str, file: str, cluster_by: str | None
) -> Iterator[dict[str, Any]]:
    """A row for each score of each line."""
    seen: dict[tuple[str, str], str] = {}
    for where, line in lines:
        document, kept = line.get("doc"), str(line.get("filter", "none"))
        if "doc_id" not in line or not isinstance(document, dict):
            raise InputError(f"{where}: this is no line of a sample file: no `doc_id` or no `doc`")
        key = (str(line["doc_id"]), kept)
        if key in seen:
            raise InputError(f"{where}: the document {key[0]} stands in {seen[key]} too")
        seen[key] = where
        about = {
            "task": task,
            "filter": kept,
            "doc_id": key[0],
            "file": file,
            "where": where,
            "doc": line.get("doc_hash") or text_hash(json.dumps(document, sort_keys=True)),
            "prompt": line.get("prompt_hash") or "",
            "cluster": key[0] if cluster_by is None else _field(document, cluster_by, where),
        }
        for metric, score in _scores(line).items():
            yield {**about, "metric": metric, "score": score}


def _field(document: Mapping[str, Any], name: str, where: str) -> str:
    if name not in document:
        raise InputError(
            f"`cluster_by` {name!r} is no field of the document in {where}; it has "
            f"{', '.join(map(str, document))}"
        )
    return str(document[name])


def _scores(line: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a line that are numbers; of the tasks of this project the log-odds."""
    names = line.get("metrics")
    if not isinstance(names, list):
        names = [name for name in line if name not in _NO_METRIC]
    found: dict[str, float] = {}
    for name in map(str, names):
        value = line.get(name)
        if isinstance(value, bool | int | float) and math.isfinite(value):
            found[name] = float(value)
        elif isinstance(value, Mapping) and "log_prob" in value:
            first, second = value["log_prob"][:2]
            found["log_odds"] = float(first) - float(second)
    return found


def _answers(lines: list[tuple[str, dict[str, Any]]], file: str) -> str:
    """The answers of a file as one text.

    Raises:
        InputError: if they are those of a backend that does not work.
    """
    given = [line.get("filtered_resps", line.get("resps")) for _, line in lines]
    read = [log_probs for one in given if (log_probs := _log_probs(one))]
    empty = sum(not any(math.isfinite(value) for value in one) for one in read)
    if empty:
        raise InputError(
            f"{file}: the answers to {empty} of {len(read)} documents have no mass at all (each "
            "log-probability is -inf or NaN): the backend does not work, and this is no result"
        )
    values = {value for one in read for value in one}
    if len(read) > 1 and len(values) == 1:
        raise InputError(
            f"{file}: all answers have the log-probability {values.pop():g}: the backend does not "
            "work, and this is no result"
        )
    return json.dumps(given, sort_keys=True)


def _log_probs(answers: Any) -> list[float]:
    """Log-probabilities of a document's answers; empty where they are of another kind."""
    if not isinstance(answers, list):
        return []
    found = []
    for one in answers:
        # [log-probability, whether it is what the model would write], both as texts
        if not isinstance(one, list) or len(one) != 2 or str(one[1]) not in ("True", "False"):
            return []
        try:
            found.append(float(one[0]))
        except (TypeError, ValueError):
            return []
    return found


def _averaged(rows: pd.DataFrame, counts: Mapping[str, int]) -> pd.DataFrame:
    """Scores of every item, averaged over the files of its task."""
    for keys, group in rows.groupby(_KEYS, sort=False):
        task, _, metric, document = map(str, keys)
        if group["doc"].nunique() > 1 or len(group) != counts[task]:
            raise InputError(
                f"the {counts[task]} files of {task} are not about the same documents with the "
                f"same scores: document {document}, {metric} ({group['where'].iloc[0]}); give "
                "files of one task with one --limit"
            )
    about = ["doc", "prompt", "cluster"]
    by_item = rows.groupby(_KEYS, sort=False)
    return by_item.agg({"score": "mean", **dict.fromkeys(about, "first")}).reset_index()
