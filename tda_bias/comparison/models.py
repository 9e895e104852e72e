"""Two models on one battery: what changed, how sure that is, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from tda_bias.comparison.outcome import COLUMNS, Distance, Measure, NotMeasured, Outcome
from tda_bias.comparison.paired import after_names, is_kept, paired_change
from tda_bias.models.record import model_record
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore, open_parts
from tda_bias.runs.record import ModelRecord, RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.run import Run
from tda_bias.runs.text import counted
from tda_bias.stats.resampling import holm
from tda_bias.types import InputError

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel

# Called with the name of a measure and of a model; gives what shows the progress.
Watch = Callable[[str, str], AbstractContextManager[Progress | None]]
# Loads a model when it is its turn; it is let go when it has answered.
Loader = Callable[[], "LanguageModel"]
_KEYS = ["outcome", "item", "cluster"]


@dataclass(frozen=True)
class Draws:
    """Resamples and flips of a comparison.

    Attributes:
        n_resamples: Bootstrap resamples of clusters.
        n_flips: Sign flips of clusters.
        confidence: Coverage of the two-sided intervals.
        seed: Of all draws.
    """

    n_resamples: int = 2000
    n_flips: int = 9999
    confidence: float = 0.95
    seed: int = 0


class ComparisonRecord(RunRecord):
    """Everything needed to repeat a comparison of two models; ``model`` is the one before.

    Attributes:
        compares: What was compared.
        after: The other model.
        replicates: The other model as the same training with other seeds left it.
        preset: How much was measured.
        measures: By name, texts and settings of everything that was measured.
        not_measured: What was left out, and why.
        n_resamples: Bootstrap resamples.
        n_flips: Sign flips.
        confidence: Coverage of the intervals.
        seed: Of all draws.
    """

    command: str = "compare"
    compares: Literal["models"] = "models"
    after: ModelRecord
    replicates: tuple[ModelRecord, ...] = ()
    preset: str | None = None
    measures: dict[str, dict[str, Any]]
    not_measured: tuple[NotMeasured, ...] = ()
    n_resamples: int
    n_flips: int
    confidence: float
    seed: int


_TABLE = {
    **{name: str for name in ("outcome", "kind", "unit", "about", "over")},
    **{name: str for name in ("guard", "allowed", "reason")},
    **{name: float for name in ("before", "after", "change", "low", "high")},
    **{name: float for name in ("worst", "margin", "neutral")},
    **{name: float for name in ("p", "p_holm")},
    **{name: int for name in ("items", "clusters", "unpaired")},
    "primary": bool,
}
_ITEMS = {
    **{name: str for name in _KEYS},
    **{name: float for name in ("weight", "before", "after")},
}


@dataclass(frozen=True)
class ModelComparison(SavedResult):
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

    def __repr__(self) -> str:
        names = f"{self.record.model.name}, {self.record.after.name}"
        return f"ModelComparison({names}: {counted(len(self.table), 'outcome')})"

    @classmethod
    def _read(cls, run: Run) -> dict[str, pd.DataFrame]:
        tables = super()._read(run)
        words = ["guard", "allowed", "reason"]
        tables["table"][words] = tables["table"][words].fillna("")
        return tables


def compare_models(
    before: LanguageModel,
    after: LanguageModel,
    measures: Sequence[Measure],
    *,
    distances: Sequence[Distance] = (),
    replicates: Sequence[Loader] = (),
    not_measured: Sequence[NotMeasured] = (),
    draws: Draws | None = None,
    batch_size: int = 32,
    parts: Path | None = None,
    resume: bool = True,
    overwrite: bool = False,
    unanswered: Literal["refuse", "leave_out"] = "refuse",
    watch: Watch | None = None,
) -> ModelComparison:
    """Measure two models alike and test what changed, item by item.

    Args:
        before: The model that changes are counted from.
        after: The other one.
        measures: What is asked of each.
        distances: What needs both at once.
        replicates: Load the other model as it came out of the same training with other seeds, one
            after the other. Means are then over the trainings, and intervals also draw these.
        not_measured: What was left out and why, for the record.
        draws: How the tests draw.
        batch_size: Texts per forward pass.
        parts: Folder for finished measures, which a later call reuses; None keeps none.
        resume: Whether it may; else they are deleted first.
        overwrite: Whether parts of other models or texts are written over.
        unanswered: What becomes of a measure that a model cannot answer (its tokenizer lacks the
            words, it has no such head): an error, or an entry among what was not measured.
        watch: Shows progress.

    Raises:
        InputError: if two have the same weights, an adapter belongs to another base, nothing is
            measured, or a model cannot be asked.
    """
    first, second = _side("before", before), _side("after", after)
    _refuse_pair(first, second)
    if not measures:
        raise InputError("there is nothing to measure")
    draws = draws or Draws()
    asking = _Asking(
        open_parts(parts, {"format": 1}, resume=resume, overwrite=overwrite),
        batch_size,
        watch or (lambda *_: nullcontext()),
    )
    lacking = list(not_measured)
    if before.tokenizer.get_vocab() != after.tokenizer.get_vocab():
        reason = "the models have other vocabularies"
        lacking += [NotMeasured(name=distance.name, reason=reason) for distance in distances]
        distances = ()
    found: list[pd.DataFrame] = []
    used: list[Measure | Distance] = []
    asked: list[Measure | Distance] = [*measures, *distances]
    for measure in asked:
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
    distant = {outcome.name for distance in distances for outcome in distance.outcomes}
    outcomes = [outcome for measure in used for outcome in measure.outcomes]
    kept = [*_KEYS, "weight", "before", *after_names(table)]
    return ModelComparison(
        table=change_table(table, outcomes, draws, untested=distant),
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
            **vars(draws),
        ),
    )


@dataclass(frozen=True)
class _Side:
    """A model that is asked.

    Attributes:
        name: Its name among saved parts.
        model: The model.
        weights: Hash of its weights; it reads all of them, so it is taken once.
    """

    name: str
    model: LanguageModel
    weights: str


def _side(name: str, model: LanguageModel) -> _Side:
    return _Side(name, model, model.weight_hash())


def refuse_incomparable(before: LanguageModel, after: LanguageModel) -> None:
    """Refuse a comparison of a model with itself, and of an adapter with what it does not adapt.

    Raises:
        InputError: saying which of the two.
    """
    _refuse_pair(_side("before", before), _side("after", after))


def _refuse_pair(before: _Side, after: _Side) -> None:
    first, second = before.model, after.model
    if before.weights == after.weights:
        raise InputError(
            f"{first.name} and {second.name} have the same weights: was the checkpoint loaded?"
        )
    if second.adapted not in (None, first.adapted, before.weights):
        raise InputError(
            f"{second.name} adapts a model with other weights than {first.name}; compare it with "
            "the one that its adapter_config.json names"
        )


# -- asking ----------------------------------------------------------------------------------------


class _UnansweredError(InputError):
    """A model cannot answer a measure; the message says why."""


@dataclass(frozen=True)
class _Asking:
    """Saved answers of models, and how those that lack are got."""

    store: PartStore
    batch_size: int
    watch: Watch

    def items(self, measure: Measure | Distance, before: _Side, after: _Side) -> pd.DataFrame:
        """Items of a measure with their values before and after; of a distance 0 before."""
        if not isinstance(measure, Distance):
            return _paired(self._of_model(measure, before), self._of_model(measure, after))
        name = measure.name if after.name == "after" else f"{measure.name} {after.name}"
        depends_on = {"weights": [before.weights, after.weights], "texts": dict(measure.about)}
        saved = self._saved(name, depends_on)
        if saved is None:
            shown = f"{before.model.name}, {after.model.name}"
            with _unanswered(), self.watch(measure.name, shown) as progress:
                saved = measure.between(
                    before.model, after.model, batch_size=self.batch_size, progress=progress
                )
            self._save(name, depends_on, saved)
        return saved.rename(columns={"value": "after"}).assign(before=0.0, measured="both")

    def _of_model(self, measure: Measure, side: _Side) -> pd.DataFrame:
        """Items of a measure with their values in one model."""
        name = f"{measure.name} {side.name}"
        depends_on = {"weights": side.weights, "texts": dict(measure.about)}
        saved = self._saved(name, depends_on)
        if saved is None:
            with _unanswered(), self.watch(measure.name, side.model.name) as progress:
                saved = measure.items(side.model, batch_size=self.batch_size, progress=progress)
            self._save(name, depends_on, saved)
        return saved

    def _saved(self, name: str, depends_on: dict[str, Any]) -> pd.DataFrame | None:
        arrays = self.store.load(name, depends_on)
        if arrays is None:
            return None
        return pd.DataFrame({column: arrays[column] for column in COLUMNS})

    def _save(self, name: str, depends_on: dict[str, Any], table: pd.DataFrame) -> None:
        self.store.save(name, depends_on, {n: np.array(table[n].tolist()) for n in COLUMNS})


@contextmanager
def _unanswered() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise _UnansweredError(str(error)) from error


def _replicate(
    asking: _Asking,
    used: Sequence[Measure | Distance],
    before: _Side,
    load: Loader,
    number: int,
    trainings: Sequence[ModelRecord],
) -> tuple[pd.DataFrame, ModelRecord]:
    """The items of a further training, and which model that is.

    Raises:
        InputError: if it is no other training of the same model, or cannot be asked.
    """
    side = _side(f"after {number}", load())
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


# -- testing ---------------------------------------------------------------------------------------


def change_table(
    items: pd.DataFrame,
    outcomes: Sequence[Outcome],
    draws: Draws,
    *,
    untested: set[str] | frozenset[str] = frozenset(),
) -> pd.DataFrame:
    """One row per outcome: before, after, what changed and how sure that is.

    Args:
        items: Columns ``outcome item cluster weight before after measured``, and ``after_2``, ...
            of further trainings.
        outcomes: In the order of the rows; those that no item belongs to are left out, unless items
            of one model alone do.
        draws: How the tests draw.
        untested: Outcomes that are distances: without a p-value.

    Returns:
        Columns ``outcome before after change low high p guard`` (``pass``, ``fail`` or empty), then
        ``p_holm`` over the primary outcomes, ``worst`` (the one-sided 95 % bound that the guard is
        about), ``margin`` (the change up to which it is kept), ``allowed`` (the same in words),
        ``kind unit primary neutral about items clusters``, ``cluster`` (what those are), ``over``,
        ``unpaired``, ``spread`` (standard deviation of the change over trainings) and ``reason``.
    """
    by_name = dict(tuple(items.groupby("outcome", sort=False)))
    rows = [
        _row(outcome, by_name[outcome.name], draws, tested=outcome.name not in untested)
        for outcome in outcomes
        if outcome.name in by_name
    ]
    if not rows:
        raise InputError("no outcome has an item")
    table = pd.DataFrame(rows)
    adjusted = np.full(len(table), np.nan)
    primary = table["primary"].to_numpy(bool)
    adjusted[primary] = holm(table.loc[primary, "p"].to_numpy(float))
    table.insert(list(table.columns).index("guard") + 1, "p_holm", adjusted)
    return table


def _row(outcome: Outcome, items: pd.DataFrame, draws: Draws, *, tested: bool) -> dict[str, Any]:
    guard = outcome.guard
    paired = paired_change(items, guard=guard, tested=tested, **vars(draws))
    reason, unpaired = paired.reason, int((items["measured"] != "both").sum())
    if paired.items == 0 and unpaired == len(items):
        reason = "the models read no item alike: other tokenizers"
    kept = "" if guard is None else "pass" if is_kept(guard, paired.worst) else "fail"
    return {
        "outcome": outcome.name,
        **{name: getattr(paired, name) for name in ("before", "after", "change", "low", "high")},
        "p": paired.p,
        "guard": kept,
        "worst": paired.worst,
        "margin": np.nan if guard is None else guard.worse * guard.margin,
        "allowed": "" if guard is None else guard.allowed,
        "kind": outcome.kind,
        "unit": outcome.unit,
        "primary": outcome.primary,
        "neutral": np.nan if outcome.neutral is None else outcome.neutral,
        "about": outcome.about,
        "items": paired.items,
        "clusters": paired.clusters,
        "cluster": outcome.cluster,
        "over": paired.over,
        "unpaired": unpaired,
        "spread": paired.spread,
        "reason": reason,
    }
