"""StereoSet's targets: how they are written, and which words of another run stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml

from tda_bias.runs.record import RunRecord
from tda_bias.runs.run import open_run
from tda_bias.types import InputError

Match = Literal["exact", "near", "weak", "own"]
# What --match allows, from strict to loose.
ACCEPTED: dict[str, tuple[Match, ...]] = {
    "exact": ("own", "exact"),
    "near": ("own", "exact", "near"),
    "weak": ("own", "exact", "near", "weak"),
}
FEWEST_TARGETS = 4
_BY_X = "by_x.csv"
BY_X_COLUMNS = {
    "x": str,
    **{name: float for name in ("r", "r_p", "r_v")},
    "s_.+": float,
}


@cache
def _targets() -> dict[str, Any]:
    text = files("tda_bias.data").joinpath("targets.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def normalised_target(target: str) -> str:
    """A target as it is written in prompts: StereoSet misspells some."""
    return str(_targets()["spelling"].get(target, target))


# -- the join --------------------------------------------------------------------------------------


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
        for kind in ("near", "weak"):
            related = [word for word in _targets()[kind].get(target.lower(), ()) if word in words]
            if target not in matches and related:
                matches[target] = ("near" if kind == "near" else "weak", related)
    return matches


def _names(target: str) -> list[str]:
    """How a target is written: as it is, spelled right, and as a person."""
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
    """How many targets were matched how, in words."""
    return ", ".join(f"{kind} {n}" for kind, n in table["match_type"].value_counts().items())


def same_model(heads: RunRecord, behaviour: RunRecord) -> None:
    """Refuse to join runs of different models.

    Args:
        heads: The record of a run of ``tdabias heads``.
        behaviour: That of the other command.

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


@dataclass(frozen=True)
class Said:
    """Scores of words by a model: the table that a run of ``tdabias pvf`` or ``unqover`` leaves.

    Attributes:
        by_x: One row per word: ``x r r_p r_v``, the signed means ``s_CLASS``, and more.
        record: Of the run.
    """

    by_x: pd.DataFrame
    record: RunRecord

    @classmethod
    def load(cls, folder: str | Path) -> Said:
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
        return cls(run.table(_BY_X, BY_X_COLUMNS), run.record)
