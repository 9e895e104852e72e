"""Two models on one battery: what changed, how sure that is, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from tda_bias.comparison.outcome import COLUMNS, Measure, after_names, change_table
from tda_bias.config import CompareConfig
from tda_bias.models.language_model import model_record
from tda_bias.show.names import named
from tda_bias.show.text import by_reason
from tda_bias.store.cache import Cache, OpenCache, Part, no_cache
from tda_bias.store.record import ModelRecord, RecordPart, RunRecord, SourceOfRun
from tda_bias.store.result import Result
from tda_bias.store.run import Run
from tda_bias.types import InputError, Progress

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel

# Called with the name of a measure and of a model; gives what shows the progress.
Watch = Callable[[str, str], AbstractContextManager[Progress | None]]
# Loads a model when it is its turn; it is let go when it has answered.
Loader = Callable[[], "LanguageModel"]
_KEYS = ["outcome", "item", "cluster"]


def not_measured_lines(lacking: Sequence[NotMeasured]) -> list[str]:
    """What is said of measures that were left out: those with one reason together."""
    reasons = by_reason((one.name, one.reason) for one in lacking)
    return [
        f"Not measured: {'; '.join(map(named, names))}: {why}" for why, names in reasons.items()
    ]


class NotMeasured(RecordPart):
    """A measure that was left out, and why."""

    name: str
    reason: str


class ComparisonRecord(RunRecord):
    """Everything needed to repeat a comparison of two models; ``model`` is the one before."""

    command: str = "compare"
    after: ModelRecord
    # The same training with other seeds.
    replicates: tuple[ModelRecord, ...] = ()
    # By name, texts and settings of everything that was measured.
    measures: dict[str, dict[str, Any]]
    not_measured: tuple[NotMeasured, ...] = ()
    n_flips: int
    confidence: float
    seed: int

    def reads(self) -> list[SourceOfRun]:
        """The texts of every measure."""
        return [
            SourceOfRun(
                name=name, source=str(about.get("source", name)), revision=about.get("revision")
            )
            for name, about in self.measures.items()
        ]


_WORDS = ("guard", "allowed", "reason")
_TABLE = {
    **dict.fromkeys(("outcome", "kind", "unit", "about", "over", *_WORDS), str),
    **dict.fromkeys(("before", "after", "change", "low", "high"), float),
    **dict.fromkeys(("worst", "margin", "neutral", "p", "p_holm"), float),
    **dict.fromkeys(("items", "clusters", "unpaired"), int),
    "primary": bool,
}
_ITEMS = {**dict.fromkeys(_KEYS, str), **dict.fromkeys(("weight", "before", "after"), float)}


@dataclass(frozen=True, repr=False)
class ModelComparison(Result):
    """Changes between two models.

    Attributes:
        table: One row per outcome; see ``change_table``.
        items: One row per outcome and item that both models have: ``outcome item cluster weight
            before after``, and ``after_2``, ``after_3``, ... of replicates.
        record: Everything needed to repeat it.
    """

    COMMAND = "compare"
    RECORD = ComparisonRecord
    TABLES = (("table", "compare.csv", _TABLE), ("items", "items.parquet", _ITEMS))
    SHOWN = (("before and after", "table"),)

    table: pd.DataFrame
    items: pd.DataFrame
    record: ComparisonRecord

    @classmethod
    def _read(cls, run: Run, record: Any) -> dict[str, Any]:
        tables = super()._read(run, record)
        return tables | {"table": tables["table"].fillna(dict.fromkeys(_WORDS, ""))}


def compare_models(
    before: LanguageModel,
    after: LanguageModel,
    measures: Sequence[Measure],
    *,
    replicates: Sequence[Loader] = (),
    not_measured: Sequence[NotMeasured] = (),
    config: CompareConfig | None = None,
    cache: OpenCache = no_cache,
    unanswered: Literal["refuse", "leave_out"] = "refuse",
    watch: Watch | None = None,
) -> ModelComparison:
    """Measure two models alike and test what changed, item by item.

    ``replicates`` load the model after as the same training with other seeds left it, one after the
    other: means are then over the trainings, and intervals also hold their variation. A measure
    that a model cannot answer (its tokenizer lacks the words, it has no such head) is an error, or,
    if ``unanswered`` is ``leave_out``, an entry beside those of ``not_measured`` in the record.
    ``cache`` opens the cache of finished measures, ``watch``
    shows progress.

    Raises:
        InputError: if two have the same weights or are of different kinds, an adapter belongs to
            another base, nothing is measured, or a model cannot be asked.
    """
    first, second = _Side.of("before", before), _Side.of("after", after)
    _refuse_pair(first, second)
    if not measures:
        raise InputError("there is nothing to measure")
    config = config or CompareConfig()
    asking = _Asking(cache({"format": 1}), config.batch_size, watch or (lambda *_: nullcontext()))
    one_vocabulary = before.tokenizer.get_vocab() == after.tokenizer.get_vocab()
    found: list[pd.DataFrame] = []
    used: list[Measure] = []
    lacking = list(not_measured)
    for measure in measures:
        if measure.of_both and not one_vocabulary:
            reason = "the models have other vocabularies"
            lacking.append(NotMeasured(name=measure.name, reason=reason))
            continue
        try:
            found.append(asking.items(measure, first, second))
        except _UnansweredError as error:
            if unanswered == "refuse":
                raise
            lacking.append(NotMeasured(name=measure.name, reason=str(error)))
        else:
            used.append(measure)
    if not used:
        raise InputError(f"nothing could be measured; {lacking[-1].name}: {lacking[-1].reason}")
    table = pd.concat(found, ignore_index=True)
    trainings = [model_record(after, weights=second.weights)]
    for number, load in enumerate(replicates, start=2):
        # Nothing here holds the model when the next one is loaded.
        values, record = _replicate(asking, used, first, load, number, trainings)
        table = _with_replicate(table, values, f"after_{number}")
        trainings.append(record)
    draws = config.model_dump(include={"n_flips", "confidence", "seed"})
    kept = [*_KEYS, "weight", "before", *after_names(table)]
    outcomes = [outcome for measure in used for outcome in measure.outcomes]
    return ModelComparison(
        table=change_table(table, outcomes, **draws),
        items=table[kept].dropna().reset_index(drop=True),
        record=ComparisonRecord(
            model=model_record(before, weights=first.weights),
            after=trainings[0],
            replicates=tuple(trainings[1:]),
            measures={
                # The names of all items would fill the record.
                measure.name: {n: v for n, v in measure.about.items() if n != "ids"}
                for measure in used
            },
            not_measured=tuple(lacking),
            remarks=_special(first, second, used),
            **draws,
        ),
    )


# -- asking ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """A model that is asked: its name among saved parts, hashes of its weights and tokenizer."""

    name: str
    model: LanguageModel
    weights: str
    tokenizer: str

    @classmethod
    def of(cls, name: str, model: LanguageModel) -> _Side:
        return cls(name, model, model.weight_hash(), model.tokenizer_hash())


def _special(first: _Side, second: _Side, used: Sequence[Measure]) -> tuple[str, ...]:
    """Remarks on special tokens in the texts; both models' where their tokenizers differ."""
    texts = [text for measure in used for text in measure.texts]
    remarks = first.model.special_remarks(texts) + second.model.special_remarks(texts)
    return tuple(dict.fromkeys(remarks))


def _refuse_pair(before: _Side, after: _Side) -> None:
    first, second = before.model, after.model
    if before.weights == after.weights:
        raise InputError(
            f"{first.name} and {second.name} have the same weights: was the checkpoint loaded?"
        )
    if first.kind != second.kind:
        raise InputError(
            f"{first.name} is a {first.kind} language model and {second.name} a {second.kind} one, "
            "whose log-probabilities are of other kinds; compare two models of one kind"
        )
    if second.adapted not in (None, first.adapted, before.weights):
        raise InputError(
            f"{second.name} adapts a model with other weights than {first.name}; compare it with "
            "the one that its adapter_config.json names"
        )


class _UnansweredError(InputError):
    """A model cannot answer a measure; the message says why."""


@dataclass(frozen=True)
class _Asking:
    """Saved answers of models, and how those that lack are got."""

    cache: Cache
    batch_size: int
    watch: Watch

    def items(self, measure: Measure, before: _Side, after: _Side) -> pd.DataFrame:
        """Items of a measure with their values before and after; of a distance 0 before."""
        if not measure.of_both:
            return _paired(self._answers(measure, before), self._answers(measure, after))
        values = self._answers(measure, before, after)
        return values.rename(columns={"value": "after"}).assign(before=0.0, measured="both")

    def _answers(self, measure: Measure, *sides: _Side) -> pd.DataFrame:
        """Answers of one model, or of both at once, to a measure: saved, or read now."""
        last = sides[-1].name
        name = measure.name if measure.of_both and last == "after" else f"{measure.name} {last}"
        weights = [side.weights for side in sides]
        depends_on = {
            "weights": weights if measure.of_both else weights[0],
            "tokenizer": [side.tokenizer for side in sides],
            "texts": dict(measure.about),
        }

        def answered() -> dict[str, np.ndarray]:
            models = [side.model for side in sides]
            try:
                with self.watch(measure.name, ", ".join(m.name for m in models)) as progress:
                    table = measure.items(*models, batch_size=self.batch_size, progress=progress)
            except InputError as error:
                raise _UnansweredError(str(error)) from error
            return {column: np.array(table[column].tolist()) for column in COLUMNS}

        arrays = self.cache.get(Part(name, 1.0, lambda: depends_on, answered))
        return pd.DataFrame({column: arrays[column] for column in COLUMNS})


def _replicate(
    asking: _Asking,
    used: Sequence[Measure],
    before: _Side,
    load: Loader,
    number: int,
    trainings: Sequence[ModelRecord],
) -> tuple[pd.DataFrame, ModelRecord]:
    """The items of a further training, and which model that is.

    Raises:
        InputError: if it is no other training of the same model, or cannot be asked.
    """
    side = _Side.of(f"after {number}", load())
    _refuse_pair(before, side)
    for record in trainings:
        if record.weights == side.weights:
            raise InputError(
                f"{side.model.name} and {record.name} have the same weights: a replicate is "
                "the same training with another seed"
            )
    table = pd.concat([asking.items(one, before, side) for one in used], ignore_index=True)
    return table, model_record(side.model, weights=side.weights)


def _paired(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Items of both models side by side; what only one has keeps a NaN."""
    both = before.merge(
        after[[*_KEYS, "value"]],
        on=_KEYS,
        how="outer",
        suffixes=("_before", "_after"),
        indicator="measured",
        validate="one_to_one",
    )
    both["weight"] = both["weight"].fillna(0.0)
    return both.rename(columns={"value_before": "before", "value_after": "after"})


def _with_replicate(table: pd.DataFrame, replicate: pd.DataFrame, name: str) -> pd.DataFrame:
    """Items of all models so far with the values of a further one; what it lacks is NaN."""
    joined = table.merge(
        replicate[[*_KEYS, "after", "measured"]],
        on=_KEYS,
        how="left",
        suffixes=("", "_there"),
        validate="one_to_one",
    )
    both = joined["measured"].eq("both") & joined["measured_there"].eq("both")
    joined["measured"] = np.where(both, "both", "some")
    return joined.rename(columns={"after_there": name}).drop(columns="measured_there")
