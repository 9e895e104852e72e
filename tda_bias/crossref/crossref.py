"""Do targets whose heads treat stereotypes differently also show risk in what the model says?

Per StereoSet target, what the heads of a run do is joined with what the model says of it
(prejudice, volatility, signed mean stereotype), and the two are correlated over targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import yaml
from pydantic import Field

from pvf.preferences import PreferencesRecord
from pvf.words import load_words, word_frequencies
from tda_bias.config import CrossrefConfig
from tda_bias.crossref.rank_tests import (
    correlations,
    head_map,
)
from tda_bias.heads.tables import map_columns
from tda_bias.scores.stereoset import log_odds
from tda_bias.stats.resampling import LEVEL
from tda_bias.stats.seeds import generator
from tda_bias.store.record import Number, RunRecord
from tda_bias.store.result import Result
from tda_bias.store.run import content_hashes, open_run
from tda_bias.types import CATEGORIES, InputError, RankBy

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias
    from tda_bias.scores.stereoset_scores import StereoSetScores

Match = Literal["exact", "own"]
_FEWEST_TARGETS = 4
_RISKS = ("r", "r_p", "r_v")
_BY_X = "by_x.csv"
# Share of heads whose part of the sum of |T| is one of the summaries.
_TOP_SHARE = 0.1
_KEY = ["category", "target"]


class CrossrefRecord(RunRecord):
    """Everything needed to repeat a cross-reference, and how many heads have p < .05 by chance.

    ``statistic`` is the column of ``combined.parquet`` that T is, which goes with the ranking
    ``by``; ``without_word`` are targets of the heads that the other run has no word for.
    ``shuffled_heads`` is by quantity the second result of ``head_map``.
    """

    command: str = "crossref"
    heads: str | None = None
    behaviour: str | None = None
    stereoset: str | None = None
    by: RankBy
    statistic: str
    without_word: tuple[str, ...] = ()
    n_resamples: int
    seed: int
    shuffled_heads: dict[str, dict[str, Number]] = Field(default_factory=dict)


_TARGETS = {
    **dict.fromkeys((*_KEY, "match_type", "matched"), str),
    "n_items": int,
    "r": float,
    "s_.+": float,
}
_CORRELATIONS = {
    **dict.fromkeys(("quantity", "summary"), str),
    "n": int,
    **dict.fromkeys(("spearman", "low", "high", "partial"), float),
    **dict.fromkeys(("p", "p_partial", "q"), float),
}
_HEADS = {
    **dict.fromkeys(("layer", "head"), int),
    **dict.fromkeys(("rho", "p", "p_max", "q"), float),
    "quantity": str,
}


@dataclass(frozen=True, repr=False)
class CrossReference(Result):
    """Result of ``cross_reference``.

    Attributes:
        targets: One row per target: summaries of its heads, and what the model says of it.
        correlations: Every quantity against every summary; see ``rank_tests.correlations``.
        heads: One row per quantity and head: does |T| of the head go with the quantity? See
            ``rank_tests.head_map``.
        record: Everything needed to repeat it.
    """

    COMMAND = "crossref"
    RECORD = CrossrefRecord
    TABLES = (
        ("targets", "targets.csv", _TARGETS),
        ("correlations", "correlations.csv", _CORRELATIONS),
        ("heads", "head_map.csv", _HEADS),
    )
    SHOWN = (("over targets", "correlations"),)

    targets: pd.DataFrame
    correlations: pd.DataFrame
    heads: pd.DataFrame
    record: CrossrefRecord


def cross_reference(
    heads: HeadBias,
    behaviour: WordScores,
    *,
    stereoset: StereoSetScores | None = None,
    config: CrossrefConfig | None = None,
) -> CrossReference:
    """Correlate, over StereoSet's targets, what heads do with what the model says.

    Args:
        heads: From ``head_bias``.
        behaviour: What the model says of words; see ``WordScores.load``.
        stereoset: The same model's scores; adds the mean log-odds of every target's items and, with
            twins, their mean beta.
        config: Which combined value of a head is T, permutations of targets within categories, and
            their seed.

    Raises:
        InputError: if the three are not of one model, share fewer than 4 targets, or a target lacks
            a value.
    """
    parts = {"heads": heads.record, behaviour.record.command: behaviour.record}
    if stereoset is not None:
        parts["stereoset"] = stereoset.record
    for record in parts.values():
        same_model(heads.record, record)
    config = config or CrossrefConfig()
    n_resamples, seed = config.n_permutations, config.seed
    by = config.rank_by or heads.rank_by
    statistic = map_columns(by, heads.category).combined
    vectors = head_vectors(heads.combined, statistic)
    said = behaviour.by_x
    quantities = [*_RISKS, signed_quantity(said.columns)]
    kept = ["x", *quantities, *(["tokens"] if "tokens" in said else [])]
    summaries = head_summaries(heads.table, vectors)
    table = with_frequency(joined(summaries, said[kept]))
    lacking = summaries[~summaries["target"].isin(table["target"])]["target"]
    preferences: list[str] = []
    if stereoset is not None:
        table = _with_preferences(table, preferences_of_targets(stereoset))
        preferences = [name for name in _PREFERENCES if name in table]

    def draws(number: int) -> dict[str, Any]:
        return {"n_resamples": n_resamples, "rng": generator(seed, number)}

    every = [*quantities, *preferences]
    tests = [correlations(table, every, **draws(0))]
    if preferences:
        tests.append(correlations(table, quantities, preferences, **draws(1)))
    vectors = vectors.loc[pd.MultiIndex.from_frame(table[_KEY])]
    maps = {
        name: head_map(vectors, table[name], **draws(n)) for n, name in enumerate(every, start=2)
    }
    return CrossReference(
        targets=table,
        correlations=pd.concat(tests, ignore_index=True),
        heads=pd.concat(
            [of_heads.assign(quantity=name) for name, (of_heads, _) in maps.items()],
            ignore_index=True,
        ),
        record=CrossrefRecord(
            model=heads.record.model,
            made_from=content_hashes(parts),
            by=by,
            statistic=statistic,
            without_word=tuple(lacking),
            n_resamples=n_resamples,
            seed=seed,
            shuffled_heads={name: shuffled for name, (_, shuffled) in maps.items()},
        ),
    )


# -- heads -----------------------------------------------------------------------------------------


def head_vectors(combined: pd.DataFrame, column: str) -> pd.DataFrame:
    """The combined value T of every (layer, head), the columns, for every (category, target).

    Undefined values are 0: such a head has nothing to compare.
    """
    wide = combined.pivot(index=["category", "group"], columns=["layer", "head"], values=column)
    wide = wide.sort_index().sort_index(axis=1)
    return wide.dropna(how="all").fillna(0.0).rename_axis(index=_KEY)


def head_summaries(table: pd.DataFrame, vectors: pd.DataFrame) -> pd.DataFrame:
    """Summaries of a target's heads, from ``HeadBias.table`` and ``head_vectors``.

    Returns:
        Columns ``category target n_items mean_T mean_abs_T max_abs_T sd_T n_sig_heads top_share
        gini``: heads with q < .05 in either dimension; the share of the sum of |T| in the top tenth
        of heads, and the Gini coefficient of |T|.
    """
    place, values = ["category", "group"], vectors.to_numpy()
    significant = table[table["q_bh"] < LEVEL].drop_duplicates([*place, "layer", "head"])
    counts = significant.groupby(place).size().reindex(vectors.index, fill_value=0)
    size, n = np.abs(values), values.shape[1]
    ordered, top = np.sort(size, axis=1), max(1, round(_TOP_SHARE * n))
    total = np.where(size.sum(1) > 0, size.sum(1), np.nan)
    return vectors.index.to_frame(index=False).assign(
        n_items=table.groupby(place)["n"].first().reindex(vectors.index).to_numpy(int),
        mean_T=values.mean(1),
        mean_abs_T=size.mean(1),
        max_abs_T=size.max(1),
        sd_T=values.std(1),
        n_sig_heads=counts.to_numpy(int),
        top_share=ordered[:, -top:].sum(1) / total,
        gini=(2 * np.arange(1, n + 1) - n - 1) @ ordered.T / (n * total),
    )


# -- words -----------------------------------------------------------------------------------------


@cache
def _targets() -> dict[str, Any]:
    text = files("tda_bias.data").joinpath("targets.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def normalised_target(target: str) -> str:
    """A target as it is written in prompts: StereoSet misspells some."""
    return str(_targets()["spelling"].get(target, target))


def match_words(targets: Sequence[str], words: Sequence[str]) -> dict[str, tuple[Match, str]]:
    """The word that stands for each of StereoSet's targets.

    Returns:
        Target to how it matches and to which word: ``own`` if all words are targets (the table was
        made for them), else ``exact``. Targets without a match are left out.
    """
    written = {word.lower(): word for word in words}
    known = {name.lower() for target in targets for name in _names(target)}
    label: Match = "own" if all(word in known for word in written) else "exact"
    return {
        target: (label, written[name.lower()])
        for target in targets
        for name in _names(target)
        if name.lower() in written
    }


def _names(target: str) -> list[str]:
    """Spellings of a target: as it is, spelled right, and as a person."""
    names = [target, normalised_target(target)]
    return [*names, _targets()["person"][target]] if target in _targets()["person"] else names


def joined(heads: pd.DataFrame, behaviour: pd.DataFrame) -> pd.DataFrame:
    """One row per target of ``heads`` that is a word ``x`` of ``behaviour``.

    Returns:
        The columns of ``heads``, then ``match_type matched`` and every number of ``behaviour``.

    Raises:
        InputError: on fewer than 4 common targets.
    """
    numbers = behaviour.set_index("x").select_dtypes("number")
    matches = match_words(list(heads["target"]), list(behaviour["x"]))
    rows = []
    for row in heads.to_dict("records"):
        if row["target"] in matches:
            kind, word = matches[row["target"]]
            rows.append({**row, "match_type": kind, "matched": word, **numbers.loc[word]})
    if len(rows) < _FEWEST_TARGETS:
        raise InputError(
            f"the runs have {len(rows)} common targets, {_FEWEST_TARGETS} are needed; "
            f"{_way_to_more_targets(heads)}"
        )
    return pd.DataFrame(rows)


def _way_to_more_targets(heads: pd.DataFrame) -> str:
    """What to run so that enough targets of a run of heads have a word; it works for them."""
    targets, categories = list(heads["target"]), set(heads["category"])
    words = f"targets:{next(iter(categories))}" if len(categories) == 1 else "targets:all"
    if categories <= {*CATEGORIES}:
        if len(match_words(targets, load_words(words).words)) >= _FEWEST_TARGETS:
            return f"run `tdabias pvf --words {words}`"
        if len(targets) >= _FEWEST_TARGETS:
            return "run `tdabias pvf --words FILE` with the targets, one per line"
        return "run `tdabias heads --category all` and `tdabias pvf --words targets:all`"
    if len(targets) >= _FEWEST_TARGETS:
        return "run `tdabias pvf --words FILE` with the targets of the heads, one per line"
    return f"the run of heads has {len(targets)}: run `tdabias heads` on more"


def with_frequency(table: pd.DataFrame) -> pd.DataFrame:
    """The table with ``zipf`` of its targets: log10 of occurrences in a billion English words.

    From the package wordfreq (the extra ``frequency``), without which nothing is added.
    """
    frequencies = word_frequencies(map(normalised_target, table["target"]))
    return table if frequencies is None else table.assign(zipf=frequencies)


def signed_quantity(columns: Iterable[str]) -> str:
    """The first signed mean among columns: positive where the first class is preferred."""
    return next(name for name in columns if name.startswith("s_"))


def match_counts(table: pd.DataFrame) -> str:
    """Number of targets by the way they were matched, in words."""
    return ", ".join(f"{kind} {n}" for kind, n in table["match_type"].value_counts().items())


# -- runs that are joined --------------------------------------------------------------------------


@dataclass(frozen=True)
class WordScores:
    """The table that a run of ``tdabias pvf`` or ``unqover`` leaves, a row for each word ``x``.

    Its columns are ``x r r_p r_v``, the signed means ``s_CLASS``, and more.
    """

    by_x: pd.DataFrame
    record: RunRecord

    @classmethod
    def load(cls, folder: str | Path) -> WordScores:
        """Read a finished run; an ``InputError`` if there is none, or one without that table."""
        run = open_run(folder, "pvf", "unqover")
        if not run.has(_BY_X):
            way_out = f"`tdabias pvf risk {folder}` makes it"
            if run.command == "unqover":
                way_out = "run `tdabias unqover` again"
            raise InputError(f"{folder} has no {_BY_X}; {way_out}")
        columns = {"x": str, **dict.fromkeys(_RISKS, float), "s_.+": float}
        by_x = run.table(_BY_X, columns)
        if run.has("words.parquet"):  # of pvf: classes of an offensive list have numbers
            by_x = by_x.rename(columns=run.record_as(PreferencesRecord).concealed())
        return cls(by_x, run.record)


_PREFERENCES = ("log_odds", "abs_log_odds", "beta", "abs_beta")


def preferences_of_targets(stereoset: StereoSetScores) -> pd.DataFrame:
    """One row per target: the mean preference of its items, and its size.

    Returns:
        Columns ``category target log_odds abs_log_odds``, in nats, and with twins ``beta
        abs_beta``: the part that is about the target.
    """
    items = stereoset.items.rename(columns={"group": "target"})
    items["log_odds"] = log_odds(items, "sum")
    names = {"log_odds": "log_odds"} | ({"beta_sum": "beta"} if stereoset.has_twins else {})
    means = items.groupby(_KEY)[list(names)].mean().rename(columns=names)
    both = means.join(means.abs().add_prefix("abs_")).reset_index()
    return both[[name for name in (*_KEY, *_PREFERENCES) if name in both]]


def _with_preferences(table: pd.DataFrame, preferences: pd.DataFrame) -> pd.DataFrame:
    both = table.merge(preferences, on=_KEY, how="left", validate="one_to_one")
    lacking = both.loc[both["log_odds"].isna(), "target"]
    if len(lacking):
        raise InputError(
            f"the run of `tdabias stereoset` has no items of {lacking.iloc[0]!r}; run it on the "
            "same category"
        )
    return both


def same_model(heads: RunRecord, behaviour: RunRecord) -> None:
    """Refuse to join runs of different models.

    Raises:
        InputError: if the weights differ, or a record does not say.
    """
    weights = [record.model.weights for record in (heads, behaviour)]
    if None in weights:
        raise InputError(
            "a run was written by another version of tdabias and does not name its weights; run it "
            "again"
        )
    if weights[0] != weights[1]:
        raise InputError(
            f"the runs are of models with different weights ({heads.model.name} and "
            f"{behaviour.model.name}); only runs of one model can be joined"
        )
