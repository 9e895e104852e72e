"""The text of a minimal pair that a model prefers, and by how much.

Scores here are the same for every set; what a set's own paper reports is in ``pair_set``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tda_bias.models.load import LanguageModel
from tda_bias.pairs.pair import Pair, PairSet, Scored
from tda_bias.progress import Progress
from tda_bias.runs.cache import OpenCache
from tda_bias.scores.likelihood import READINGS, Reading, Start, TextReader
from tda_bias.scores.stereoset import SCORINGS, Scoring
from tda_bias.scores.texts import Contrast
from tda_bias.stats.clusters import FEWEST_CLUSTERS, cluster_mean
from tda_bias.types import InputError

_SIDES = ("more", "less")
_SUFFIX: dict[Reading, str] = {"log_prob": "", "pll": "", "pll_within_word": "_within_word"}


def pair_items(
    model: LanguageModel,
    pairs: PairSet | Sequence[Pair],
    *,
    scored: Scored | None = None,
    batch_size: int = 32,
    start: Start = "tokenizer",
    share_prefix: str = "auto",
    progress: Progress | None = None,
    cache: OpenCache | None = None,
) -> pd.DataFrame:
    """One row per pair: log-probability and number of scored tokens of its two texts.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        pairs: The pairs.
        scored: Which words are scored; what each pair says if None. ``shared`` is ``whole`` for
            models that are not masked.
        batch_size: Texts per forward pass.
        start: As in ``TextReader``.
        share_prefix: As in ``TextReader``.
        progress: Called with finished pairs and all.
        cache: As in ``TextReader.read_saved``.

    Returns:
        Columns ``id group log_prob_more log_prob_less tokens_more tokens_less``, for masked models
        ``log_prob_more_within_word log_prob_less_within_word``, then ``type set cluster reading
        undefined``. Natural logarithms, summed over the scored tokens; NaN, with the reason in
        ``undefined``, where a text has none.

    Raises:
        InputError: if there is no pair, or as ``TextReader.read_saved``.
        ShareDone: as ``TextReader.read_saved``.
    """
    rows = tuple(pairs.pairs if isinstance(pairs, PairSet) else pairs)
    if not rows:
        raise InputError("there is no pair to score")
    contrasts = []
    for pair in rows:
        which = scored or pair.scored
        if which == "shared" and model.kind != "masked":
            which = "whole"
        contrasts.append(Contrast(pair.texts(), pair.context, which, pair.source))
    reader = TextReader(model, batch_size, start, share_prefix)
    read = reader.read_saved({"pairs": contrasts}, cache, progress=progress)["pairs"]
    main = next(iter(read))
    table = pd.DataFrame({"id": [pair.id for pair in rows], "group": [pair.group for pair in rows]})
    for reading, suffix in _SUFFIX.items():
        for side, name in enumerate(_SIDES if reading in read else ()):
            table[f"log_prob_{name}{suffix}"] = [
                values[side].sum() if len(values[side]) else np.nan for values in read[reading]
            ]
    for side, name in enumerate(_SIDES):
        table[f"tokens_{name}"] = [len(values[side]) for values in read[main]]
    for name in ("type", "set"):
        table[name] = [getattr(pair, name) for pair in rows]
    table["cluster"] = [pair.unit for pair in rows]
    table["reading"] = main
    table["undefined"] = ""
    for name in reversed(_SIDES):
        table.loc[table[f"tokens_{name}"] == 0, "undefined"] = f"no token of `{name}` is scored"
    first = ["id", "group", "log_prob_more", "log_prob_less", "tokens_more", "tokens_less"]
    return table[[*first, *(name for name in table.columns if name not in first)]]


def readings(items: pd.DataFrame) -> list[Reading]:
    """The ways in which the texts of an item table were read."""
    main = str(items["reading"].iloc[0])
    named = [reading for reading in READINGS if reading == main]
    return [*named, "pll_within_word"] if "log_prob_more_within_word" in items else named


def compared(
    items: pd.DataFrame, *, reading: Reading | None = None, scoring: Scoring = "sum"
) -> pd.DataFrame:
    """The comparison of each pair.

    Args:
        items: From ``pair_items``, or a file of the same form.
        reading: One of ``readings``; the first if None.
        scoring: ``sum`` of log-probabilities, or their ``mean`` over the scored tokens.

    Returns:
        Columns ``id type group cluster``; ``log_odds``, more minus less, nats; ``preferred``: 1, 0,
        or 0.5 for a tie; ``longer``: the sign of the difference in scored tokens. NaN where
        undefined.
    """
    suffix = _SUFFIX[reading or readings(items)[0]]
    size = [1 if scoring == "sum" else items[f"tokens_{side}"] for side in _SIDES]
    more, less = (
        items[f"log_prob_{side}{suffix}"] / tokens
        for side, tokens in zip(_SIDES, size, strict=True)
    )
    odds = more - less
    return pd.DataFrame(
        {
            "id": items["id"],
            "type": items.get("type"),
            "group": items["group"],
            "cluster": items.get("cluster", items["group"]),
            "log_odds": odds,
            "preferred": (np.sign(odds) + 1) / 2,
            "longer": np.sign(items["tokens_more"] - items["tokens_less"]),
        }
    )


def scores(items: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Share and log-odds by which the one text is preferred: of all, per type, per group.

    Args:
        items: From ``pair_items``.
        confidence: Coverage of the intervals.

    Returns:
        One row per reading, scoring and part (``all``, a type, a group): ``items undefined ties``;
        ``preferred``, per cent of pairs whose ``more`` is preferred, ties one half; ``log_odds``,
        the mean of log P(more) - log P(less) in nats; both with ``_low`` and ``_high``;
        ``interval``: over clusters from six on, else over pairs, and then for these clusters only.

    Raises:
        InputError: if there is no pair.
    """
    if items.empty:
        raise InputError("there is no pair to score")
    rows: list[dict[str, Any]] = []
    for reading in readings(items):
        for scoring in SCORINGS:
            table = compared(items, reading=reading, scoring=scoring)
            for kind, name, part in _parts(table):
                row = summary(part, confidence)
                rows.append(
                    {"reading": reading, "scoring": scoring, "part": kind, "name": name, **row}
                )
    return pd.DataFrame(rows)


def _parts(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    yield "all", "all", table
    for kind in ("type", "group"):
        if table[kind].notna().any() and table[kind].nunique() > 1:
            for name, part in table.groupby(kind, sort=False):
                yield kind, str(name), part


def summary(table: pd.DataFrame, confidence: float) -> dict[str, Any]:
    """Share preferred and mean log-odds of a part of ``compared``, with intervals."""
    defined = table[table["log_odds"].notna()]
    units = defined["cluster"].nunique()
    clustered = units >= FEWEST_CLUSTERS
    cluster = defined["cluster"].to_numpy() if clustered else None
    preferred, odds = (
        cluster_mean(defined[name].to_numpy(float), cluster) for name in ("preferred", "log_odds")
    )
    low, high = preferred.share_limits(confidence)
    odds_low, odds_high = odds.limits(confidence)
    return {
        "items": len(table),
        "undefined": len(table) - len(defined),
        "ties": int((defined["log_odds"] == 0).sum()),
        "preferred": 100 * preferred.mean,
        "preferred_low": 100 * low,
        "preferred_high": 100 * high,
        "log_odds": odds.mean,
        "log_odds_low": odds_low,
        "log_odds_high": odds_high,
        "interval": f"over {units} clusters" if clustered else "over pairs",
    }


def length_split(items: pd.DataFrame) -> pd.DataFrame:
    """Shares of ``more`` preferred where it is the longer, the shorter or an equally long text.

    Returns:
        One row per reading, scoring, type and ``longer`` (1, 0, -1): ``items preferred``; type
        ``all`` is everything.
    """
    tables = []
    for reading in readings(items):
        for scoring in SCORINGS:
            table = compared(items, reading=reading, scoring=scoring).dropna(subset=["log_odds"])
            several = table["type"].nunique() > 1
            parts = [table.assign(type="all"), *([table] if several else [])]
            for part in parts:
                shares = part.groupby(["type", "longer"])["preferred"].agg(["size", "mean"])
                shares = shares.reset_index().rename(columns={"size": "items", "mean": "preferred"})
                shares["preferred"] *= 100
                tables.append(shares.assign(reading=reading, scoring=scoring))
    return pd.concat(tables, ignore_index=True)
