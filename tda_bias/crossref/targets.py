"""StereoSet's targets: what their heads do, and which words of another run stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml
from jaxtyping import Float

from tda_bias.runs.record import RunRecord
from tda_bias.runs.run import content_hash, open_run
from tda_bias.types import InputError

Match = Literal["exact", "near", "weak", "own"]
# What --match allows, from strict to loose.
ACCEPTED: dict[str, tuple[Match, ...]] = {
    "exact": ("own", "exact"),
    "near": ("own", "exact", "near"),
    "weak": ("own", "exact", "near", "weak"),
}
_RELATED: tuple[Match, ...] = ("near", "weak")
FEWEST_TARGETS = 4
_BY_X = "by_x.csv"
_BY_X_COLUMNS = {"x": str, **dict.fromkeys(("r", "r_p", "r_v"), float), "s_.+": float}
# Share of heads whose part of the sum of |T| is one of the summaries.
_TOP_SHARE = 0.1


@cache
def _targets() -> dict[str, Any]:
    text = files("tda_bias.data").joinpath("targets.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def normalised_target(target: str) -> str:
    """A target as it is written in prompts: StereoSet misspells some."""
    return str(_targets()["spelling"].get(target, target))


# -- heads -----------------------------------------------------------------------------------------


def head_vectors(
    combined: pd.DataFrame, *, column: str = "combined_relative"
) -> tuple[pd.DataFrame, Float[np.ndarray, "target head"], list[tuple[int, int]]]:
    """The combined value of every head for every target.

    Args:
        combined: The table of a run of ``tdabias heads``.
        column: Which of its columns.

    Returns:
        The targets (``category target``), their values, and the (layer, head) of the columns.
        Undefined values are 0: such a head has nothing to compare.
    """
    wide = combined.pivot_table(
        index=["category", "group"],
        columns=["layer", "head"],
        values=column,
        dropna=False,
        observed=True,
    )
    wide = wide.dropna(how="all")
    keys = wide.index.to_frame(index=False).rename(columns={"group": "target"})
    columns = [(int(pair[0]), int(pair[1])) for pair in wide.columns.to_list()]
    return keys, np.nan_to_num(wide.to_numpy(dtype=float)), columns


def head_summaries(
    table: pd.DataFrame, combined: pd.DataFrame, *, column: str = "combined_relative"
) -> pd.DataFrame:
    """Summaries of a target's heads.

    Args:
        table: Rows per target, layer, head and dimension, with ``q_bh``.
        combined: Rows per target, layer and head.
        column: Which combined value is T.

    Returns:
        Columns ``category target n_items mean_T mean_abs_T max_abs_T sd_T n_sig_heads top_share
        gini``: heads with q < .05 in either dimension; the share of the sum of |T| in the top tenth
        of heads, and the Gini coefficient of |T|.
    """
    keys, values, _ = head_vectors(combined, column=column)
    place = ["category", "group"]
    size, index = np.abs(values), pd.MultiIndex.from_frame(keys)
    significant = table[table["q_bh"] < 0.05].drop_duplicates([*place, "layer", "head"])
    counts = significant.groupby(place).size().reindex(index, fill_value=0)
    n = size.shape[1]
    ordered, top = np.sort(size, axis=1), max(1, round(_TOP_SHARE * n))
    total = np.where(size.sum(1) > 0, size.sum(1), np.nan)
    return keys.assign(
        n_items=table.groupby(place)["n"].first().reindex(index).to_numpy(int),
        mean_T=values.mean(1),
        mean_abs_T=size.mean(1),
        max_abs_T=size.max(1),
        sd_T=values.std(1),
        n_sig_heads=counts.to_numpy(int),
        top_share=ordered[:, -top:].sum(1) / total,
        gini=(2 * np.arange(1, n + 1) - n - 1) @ ordered.T / (n * total),
    )


# -- words -----------------------------------------------------------------------------------------


def match_words(targets: Sequence[str], words: Sequence[str]) -> dict[str, tuple[Match, list[str]]]:
    """The words that stand for each target.

    Args:
        targets: StereoSet's.
        words: Those of the other table.

    Returns:
        Target to how it matches and to which words. ``own`` if all words are targets (the table was
        made for them), ``exact`` for the same word, ``near`` and ``weak`` by a fixed table of
        related occupations. Targets without a match are left out.
    """
    written = {word.lower(): word for word in words}
    known = {name.lower() for target in targets for name in _names(target)}
    label: Match = "own" if all(word in known for word in written) else "exact"
    matches: dict[str, tuple[Match, list[str]]] = {}
    for target in targets:
        for name in _names(target):
            if name.lower() in written:
                matches[target] = (label, [written[name.lower()]])
        for kind in _RELATED:
            related = [word for word in _targets()[kind].get(target.lower(), ()) if word in words]
            if target not in matches and related:
                matches[target] = (kind, related)
    return matches


def _names(target: str) -> list[str]:
    """Spellings of a target: as it is, spelled right, and as a person."""
    names = [target, normalised_target(target)]
    return [*names, _targets()["person"][target]] if target in _targets()["person"] else names


def joined(heads: pd.DataFrame, behaviour: pd.DataFrame, *, match: str = "exact") -> pd.DataFrame:
    """One row per target that both tables have.

    Args:
        heads: One row per target, with the columns ``category target``.
        behaviour: One row per word, with the column ``x`` and numbers.
        match: ``exact``, ``near`` or ``weak``: how loosely a word may stand for a target.

    Returns:
        The columns of ``heads``, then ``match_type matched`` and the means over the matched words
        of every number of ``behaviour``.

    Raises:
        InputError: on an unknown match, or fewer than 4 common targets.
    """
    if match not in ACCEPTED:
        raise InputError(f"`match` must be one of {', '.join(ACCEPTED)}; got {match!r}")
    numbers = behaviour.set_index("x").select_dtypes("number")
    matches = match_words(list(heads["target"]), list(behaviour["x"]))
    rows = []
    for row in heads.to_dict("records"):
        kind, words = matches.get(row["target"], (None, []))
        if kind in ACCEPTED[match]:
            means = numbers.loc[words].mean()
            rows.append({**row, "match_type": kind, "matched": "; ".join(words), **means})
    if len(rows) < FEWEST_TARGETS:
        other = "a looser --match, or " if match != "weak" else ""
        raise InputError(
            f"the runs have {len(rows)} common targets, {FEWEST_TARGETS} are needed; use {other}a "
            "run of `tdabias pvf` on the targets themselves (--words professions or people)"
        )
    return pd.DataFrame(rows)


def with_frequency(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the logarithmic frequency of its targets in English, where that is known.

    Column ``zipf``: log10 of occurrences in a billion words, from the package wordfreq (the extra
    ``frequency``); without the package the table is returned as it is.
    """
    try:
        from wordfreq import zipf_frequency
    except ImportError:
        return table
    spelled = map(normalised_target, table["target"])
    return table.assign(zipf=[float(zipf_frequency(name, "en")) for name in spelled])


def signed_quantity(columns: Iterable[str]) -> str:
    """The first signed mean among columns: positive where the first class is preferred."""
    return next(name for name in columns if name.startswith("s_"))


def match_counts(table: pd.DataFrame) -> str:
    """Number of targets by the way they were matched, in words."""
    return ", ".join(f"{kind} {n}" for kind, n in table["match_type"].value_counts().items())


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


def content_hashes(**records: RunRecord) -> dict[str, str]:
    """Hashes of the results that something is made from, of those that were read from a folder."""
    hashes = {name: content_hash(record) for name, record in records.items()}
    return {name: value for name, value in hashes.items() if value is not None}


@dataclass(frozen=True)
class WordScores:
    """Scores of words by a model: the table that a run of ``tdabias pvf`` or ``unqover`` leaves.

    Attributes:
        by_x: One row per word: ``x r r_p r_v``, the signed means ``s_CLASS``, and more.
        record: Of the run.
    """

    by_x: pd.DataFrame
    record: RunRecord

    @classmethod
    def load(cls, folder: str | Path) -> WordScores:
        """Read a finished run.

        Raises:
            InputError: if the folder holds none, or one without that table.
        """
        run = open_run(folder, "pvf", "pvf risk", "unqover")
        if not run.has(_BY_X):
            way_out = f"`tdabias pvf risk {folder}` makes it"
            if run.command == "unqover":
                way_out = "run `tdabias unqover` again"
            raise InputError(f"{folder} has no {_BY_X}; {way_out}")
        return cls(run.table(_BY_X, _BY_X_COLUMNS), run.record)
