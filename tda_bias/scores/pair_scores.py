"""Which text of a minimal pair a model prefers, and by how much.

Scores here are the same for every set; what a set's own paper reports is in ``pair_official``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.models.load import LanguageModel
from tda_bias.pairs.pair import Pair, PairSet, Scored
from tda_bias.progress import Progress
from tda_bias.runs.cache import Store
from tda_bias.scores.text_likelihood import (
    READINGS,
    Contrast,
    Reading,
    Start,
    TokenScores,
)
from tda_bias.scores.text_parts import TextReader
from tda_bias.stats.resampling import FEWEST_CLUSTERS, ClusterBootstrap, generator, wilson
from tda_bias.types import InputError

Scoring = Literal["sum", "mean"]
SCORINGS: tuple[Scoring, ...] = ("sum", "mean")
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
    store: Store | None = None,
) -> pd.DataFrame:
    """One row per pair: log-probability and number of scored tokens of its two texts.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        pairs: The pairs.
        scored: Which words are scored; what each pair says if None. ``shared`` is ``whole`` for
            models that are not masked.
        batch_size: Texts per forward pass.
        start: As in ``text_log_probs``.
        share_prefix: As in ``text_log_probs``.
        progress: Called with finished pairs and all.
        store: As in ``text_parts.TextReader``.

    Returns:
        Columns ``id group logprob_more logprob_less tokens_more tokens_less``, for masked models
        ``logprob_more_within_word logprob_less_within_word``, then ``type set cluster reading
        undefined``. Natural logarithms, summed over the scored tokens; NaN, with the reason in
        ``undefined``, where a text has none.

    Raises:
        InputError: if there is no pair, or as ``TextReader.read``.
        ShareDone: as ``TextReader.read``.
    """
    rows = tuple(pairs.pairs if isinstance(pairs, PairSet) else pairs)
    if not rows:
        raise InputError("there is no pair to score")
    contrasts = [_contrast(pair, scored, model.kind) for pair in rows]
    reader = TextReader(model, batch_size, start, share_prefix, store, progress)
    readings = reader.read({"pairs": contrasts})["pairs"]
    main = next(iter(readings))
    table = pd.DataFrame({"id": [pair.id for pair in rows], "group": [pair.group for pair in rows]})
    for reading, values in readings.items():
        for side, name in enumerate(_SIDES):
            table[f"logprob_{name}{_SUFFIX[reading]}"] = [_total(pair[side]) for pair in values]
    for side, name in enumerate(_SIDES):
        table[f"tokens_{name}"] = [len(pair[side]) for pair in readings[main]]
    for name in ("type", "set"):
        table[name] = [getattr(pair, name) for pair in rows]
    table["cluster"] = [pair.unit for pair in rows]
    table["reading"] = main
    table["undefined"] = [_why_undefined(pair) for pair in readings[main]]
    first = ["id", "group", "logprob_more", "logprob_less", "tokens_more", "tokens_less"]
    return table[[*first, *(name for name in table.columns if name not in first)]]


def _contrast(pair: Pair, scored: Scored | None, kind: str) -> Contrast:
    which = scored or pair.scored
    if which == "shared" and kind != "masked":
        which = "whole"
    return Contrast(pair.texts(), pair.context, which, pair.source)


def _total(values: np.ndarray) -> float:
    return float(values.sum()) if len(values) else np.nan


def _why_undefined(values: TokenScores) -> str:
    """Why a pair cannot be compared; empty where it can."""
    lacking = [name for name, tokens in zip(_SIDES, values, strict=True) if not len(tokens)]
    return f"no token of `{lacking[0]}` is scored" if lacking else ""


def readings(items: pd.DataFrame) -> list[Reading]:
    """How the texts of an item table were read."""
    main = str(items["reading"].iloc[0])
    named = [reading for reading in READINGS if reading == main]
    return [*named, "pll_within_word"] if "logprob_more_within_word" in items else named


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
        items[f"logprob_{side}{suffix}"] / tokens for side, tokens in zip(_SIDES, size, strict=True)
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


def scores(
    items: pd.DataFrame, *, n_resamples: int = 2000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """How often and by how much the one text is preferred: of all, per type, per group.

    Args:
        items: From ``pair_items``.
        n_resamples: Bootstrap resamples of clusters of pairs.
        confidence: Coverage of the intervals.
        seed: Of the resamples.

    Returns:
        One row per reading, scoring and part (``all``, a type, a group): ``items undefined ties``;
        ``preferred``, per cent of pairs whose ``more`` is preferred, ties one half; ``log_odds``,
        the mean of log P(more) - log P(less) in nats; both with ``_low`` and ``_high``;
        ``interval``, how those were found: from six clusters on a percentile bootstrap of clusters,
        else Wilson's and Student's over pairs.

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
                rng = generator(seed, reading, scoring, kind, name)
                row = summary(part, n_resamples=n_resamples, confidence=confidence, rng=rng)
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


def summary(
    table: pd.DataFrame, *, n_resamples: int, confidence: float, rng: np.random.Generator
) -> dict[str, Any]:
    """Share preferred and mean log-odds of a part of ``compared``, with intervals."""
    defined = table[table["log_odds"].notna()]
    values = defined[["preferred", "log_odds"]].to_numpy(float)
    units = defined["cluster"].nunique()
    clustered = units >= FEWEST_CLUSTERS
    if clustered:
        drawn = ClusterBootstrap.of(defined["cluster"].factorize()[0], n_resamples, rng)
        ends = np.stack([drawn.limits(column, confidence) for column in values.T], axis=1)
    else:
        ends = _without_clusters(values, confidence)
    mean = values.mean(0) if len(values) else np.full(2, np.nan)
    row: dict[str, Any] = {
        "items": len(table),
        "undefined": len(table) - len(defined),
        "ties": int((defined["log_odds"] == 0).sum()),
    }
    for place, (name, factor) in enumerate((("preferred", 100.0), ("log_odds", 1.0))):
        row[name] = factor * mean[place]
        row[f"{name}_low"], row[f"{name}_high"] = factor * ends[:, place]
    how = f"bootstrap of {units} clusters" if clustered else "Wilson, Student"
    return {**row, "interval": how}


def _without_clusters(
    values: Float[np.ndarray, "item value"], confidence: float
) -> Float[np.ndarray, "end value"]:
    """Wilson's interval of a share and Student's of a mean; NaN below two items."""
    ends = np.full((2, 2), np.nan)
    n = len(values)
    if n < 2:
        return ends
    ends[:, 0] = wilson(values[:, 0].sum(), n, confidence)
    half = stats.t.ppf((1 + confidence) / 2, n - 1) * values[:, 1].std(ddof=1) / np.sqrt(n)
    ends[:, 1] = values[:, 1].mean() - half, values[:, 1].mean() + half
    return ends


def length_split(items: pd.DataFrame) -> pd.DataFrame:
    """How often ``more`` is preferred where it is the longer, the shorter or an equally long text.

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
