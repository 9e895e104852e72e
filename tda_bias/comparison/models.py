"""Two models on one battery: what changed, how sure that is, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from tda_bias.comparison.outcome import COLUMNS, Distance, Measure, Outcome
from tda_bias.comparison.paired import after_names, is_kept, paired_change
from tda_bias.comparison.record import ComparisonRecord, ModelComparison, NotMeasured
from tda_bias.models.record import model_record
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore, open_parts
from tda_bias.runs.record import ModelRecord
from tda_bias.stats.resampling import holm
from tda_bias.types import InputError

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel

# Called with the name of a measure and of a model; gives what is told how far it is.
Watch = Callable[[str, str], AbstractContextManager[Progress | None]]
# Loads a model when it is its turn; it is let go when it has answered.
Loader = Callable[[], "LanguageModel"]
_KEYS = ["outcome", "item", "cluster"]
_PAIRED = [*_KEYS, "weight", "before"]


@dataclass(frozen=True)
class Draws:
    """How the tests of a comparison draw.

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
    first, second = _Side.of("before", before), _Side.of("after", after)
    _refuse_sides(first, second)
    if not measures:
        raise InputError("there is nothing to measure")
    draws = draws or Draws()
    store = open_parts(parts, {"format": 1}, resume=resume, overwrite=overwrite)
    runner = _Runner(store, batch_size, watch or (lambda *_: nullcontext()))
    lacking = list(not_measured)
    if before.tokenizer.get_vocab() != after.tokenizer.get_vocab():
        reason = "the models have other vocabularies"
        lacking += [NotMeasured(name=distance.name, reason=reason) for distance in distances]
        distances = ()
    table, used, unable = runner.answered([*measures, *distances], first, second, unanswered)
    lacking += unable
    if not used:
        raise InputError(f"nothing could be measured; {lacking[-1].name}: {lacking[-1].reason}")
    outcomes = [outcome for measure in used for outcome in measure.outcomes]
    distant = {outcome.name for distance in distances for outcome in distance.outcomes}
    records = [second.record]
    for number, load in enumerate(replicates, start=2):
        # Nothing here holds the model when the next one is loaded.
        table, record = runner.joined(
            table, used, first, _Side.of(f"after {number}", load()), records
        )
        records.append(record)
    columns = [*_PAIRED, *after_names(table)]
    return ModelComparison(
        table=change_table(table, outcomes, draws, untested=distant),
        items=table[columns].dropna().reset_index(drop=True),
        record=ComparisonRecord(
            model=first.record,
            after=records[0],
            replicates=tuple(records[1:]),
            measures={measure.name: _short(measure.about) for measure in used},
            not_measured=tuple(lacking),
            **vars(draws),
        ),
    )


@dataclass(frozen=True)
class _Side:
    """A model that is asked.

    Attributes:
        name: How its saved parts call it.
        model: The model.
        weights: Hash of its weights; it reads all of them, so it is taken once.
    """

    name: str
    model: LanguageModel
    weights: str

    @classmethod
    def of(cls, name: str, model: LanguageModel) -> _Side:
        return cls(name, model, model.weight_hash())

    @property
    def record(self) -> ModelRecord:
        """The model, as a run names it."""
        return model_record(self.model, weights=self.weights)


def refuse_incomparable(before: LanguageModel, after: LanguageModel) -> None:
    """Refuse a comparison of a model with itself, and of an adapter with what it does not adapt.

    Raises:
        InputError: saying which of the two.
    """
    _refuse_sides(_Side.of("before", before), _Side.of("after", after))


def _refuse_sides(before: _Side, after: _Side) -> None:
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


def _refuse_repeated(replicate: _Side, before: _Side, known: Sequence[ModelRecord]) -> None:
    """Refuse a replicate that is no other training of the same model."""
    _refuse_sides(before, replicate)
    for record in known:
        if record.weights == replicate.weights:
            raise InputError(
                f"{replicate.model.name} and {record.name} have the same weights: a replicate is "
                "the same training with another seed"
            )


# -- asking ----------------------------------------------------------------------------------------


class _UnansweredError(InputError):
    """A model cannot answer a measure; the message says why."""


@dataclass(frozen=True)
class _Runner:
    """Asks models, or finds what they said among the saved parts."""

    store: PartStore
    batch_size: int
    watch: Watch

    def answered(
        self,
        asked: Sequence[Measure | Distance],
        before: _Side,
        after: _Side,
        unanswered: Literal["refuse", "leave_out"],
    ) -> tuple[pd.DataFrame, list[Measure | Distance], list[NotMeasured]]:
        """Items of all measures that both models answer, which those are, and the others."""
        items: list[pd.DataFrame] = []
        used: list[Measure | Distance] = []
        lacking: list[NotMeasured] = []
        for measure in asked:
            try:
                items.append(self._items(measure, before, after))
                used.append(measure)
            except _UnansweredError as error:
                if unanswered == "refuse":
                    raise
                lacking.append(NotMeasured(name=measure.name, reason=str(error)))
        return pd.concat(items or [pd.DataFrame()], ignore_index=True), used, lacking

    def joined(
        self,
        table: pd.DataFrame,
        used: Sequence[Measure | Distance],
        before: _Side,
        replicate: _Side,
        known: Sequence[ModelRecord],
    ) -> tuple[pd.DataFrame, ModelRecord]:
        """The items with the values of a further training, and which model that is."""
        _refuse_repeated(replicate, before, known)
        answers, _, _ = self.answered(used, before, replicate, "refuse")
        return _with_replicate(table, answers, replicate.name.replace(" ", "_")), replicate.record

    def _items(self, measure: Measure | Distance, before: _Side, after: _Side) -> pd.DataFrame:
        """Items with their values before and after."""
        if isinstance(measure, Distance):
            return self._between(measure, before, after)
        return _paired(*(self._of_side(measure, side) for side in (before, after)))

    def _of_side(self, measure: Measure, side: _Side) -> pd.DataFrame:
        """The items of one model."""
        return self._part(
            f"{measure.name} {side.name}",
            {"weights": side.weights, "texts": dict(measure.about)},
            lambda progress: measure.items(
                side.model, batch_size=self.batch_size, progress=progress
            ),
            (measure.name, side.model.name),
        )

    def _between(self, distance: Distance, before: _Side, after: _Side) -> pd.DataFrame:
        """The items of both together: 0 before."""
        table = self._part(
            distance.name if after.name == "after" else f"{distance.name} {after.name}",
            {"weights": [before.weights, after.weights], "texts": dict(distance.about)},
            lambda progress: distance.between(
                before.model, after.model, batch_size=self.batch_size, progress=progress
            ),
            (distance.name, f"{before.model.name}, {after.model.name}"),
        )
        return table.rename(columns={"value": "after"}).assign(before=0.0, measured="both")

    def _part(
        self,
        name: str,
        depends_on: dict[str, Any],
        ask: Callable[[Progress | None], pd.DataFrame],
        shown: tuple[str, str],
    ) -> pd.DataFrame:
        saved = self.store.load(name, depends_on)
        if saved is not None:
            return pd.DataFrame({column: saved[column] for column in COLUMNS})
        try:
            with self.watch(*shown) as progress:
                table = ask(progress)
        except InputError as error:
            raise _UnansweredError(f"{error}") from error
        arrays = {n: np.array(table[n].tolist()) for n in COLUMNS}
        self.store.save(name, depends_on, arrays)
        return table


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


def _short(about: Any) -> dict[str, Any]:
    """What a measure depends on, without the names of all its items."""
    return {name: value for name, value in about.items() if name != "ids"}


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
