"""The parts of beta, and its placebos.

A part says which words carry beta, and whether context or continuation does.

With c and x the context and continuations of a triple, c' and x' those of its twin, and
L(c, x) = log P(stereotype | c) - log P(anti-stereotype | c) of the continuations x, beta is
L(c, x) - L(c', x'). Two mixed texts, the context of the one with the continuations of the other,
take it apart:

    context        L(c, x) - L(c', x), and L(c, x') - L(c', x') with the twin's continuations
    continuations  the mean over both contexts of L(., x) - L(., x')
    interaction    L(c, x) - L(c', x) - L(c, x') + L(c', x'): context and continuation agree

so that beta = mean of both context parts + continuations. Every log-probability is a sum over
tokens, so beta is also a sum over words that the swap leaves alone and over words that it changes.
Words are what stands between spaces, and what changed is found by a diff of both texts' words; a
token with a character of a changed word, its full stop for example, belongs to that word.

A placebo twin (``tda_bias.twins.make``) differs from its triple as a twin does, but not in
gender: another wording, or another role of the same gender. What it changes,

    placebo = [l(s) - l(a)] - [l(s_p) - l(a_p)],

is therefore not about gender; the difference beta - placebo, item by item, is what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from transformers import PreTrainedTokenizerBase

from tda_bias.scores.beta import TwinSets, twin_table
from tda_bias.scores.likelihood import TripleLikelihood
from tda_bias.scores.stereoset import SCORINGS
from tda_bias.script import Span
from tda_bias.stats.clusters import cluster_mean
from tda_bias.types import Triple, in_order

# Columns of an item, and what they are; all in nats by sums.
PARTS = {
    "beta_sum": "beta",
    "beta_unchanged": "words that the swap leaves alone",
    "beta_swapped": "swapped words",
    "beta_context": "context alone, continuations of the original",
    "beta_context_twin": "context alone, continuations of the twin",
    "beta_continuations": "continuations alone, mean over both contexts",
    "beta_interaction": "agreement of context and continuation",
    "context_difference": "log-probability of the context, original minus twin",
}
QUANTITIES = ("beta", "placebo", "difference")
Likelihoods = Callable[[Triple], TripleLikelihood]


def mixed(context: Triple, continuations: Triple) -> Triple:
    """The context of one triple with the two continuations of another."""
    return replace(continuations, context=context.context, unrelated="")


def part_columns(
    tokenizer: PreTrainedTokenizerBase,
    triples: Sequence[Triple],
    twins_of: Sequence[Sequence[Triple]],
    likelihood: Likelihoods,
) -> pd.DataFrame:
    """The parts of every item's beta, each the mean over its twins.

    ``likelihood`` gives what was read of a triple, of its twins and of both ``mixed`` texts.

    Returns:
        One row per item with the columns of ``PARTS`` but for ``beta_sum``, in nats; NaN without
        twins, the words' parts also where the tokenizer does not tell the places of its tokens, and
        ``context_difference`` where the model is not causal.
    """
    names = [name for name in PARTS if name != "beta_sum"]
    rows = [
        pd.DataFrame([_parts(tokenizer, triple, twin, likelihood) for twin in twins]).mean()
        for triple, twins in zip(triples, twins_of, strict=True)
    ]
    return pd.DataFrame(rows).reindex(columns=names).astype(float)


def _parts(
    tokenizer: PreTrainedTokenizerBase, triple: Triple, twin: Triple, likelihood: Likelihoods
) -> dict[str, float]:
    own, other = likelihood(triple), likelihood(twin)
    odds = {
        (context, continuations): _log_odds(likelihood(mixed(c, x)))
        for context, c in enumerate((triple, twin))
        for continuations, x in enumerate((triple, twin))
    }
    unchanged = float("nan")
    if tokenizer.is_fast:
        stereotype, anti = (
            _unchanged(tokenizer, role, (triple, own), (twin, other)) for role in range(2)
        )
        unchanged = stereotype - anti
    return {
        "beta_unchanged": unchanged,
        "beta_swapped": odds[0, 0] - odds[1, 1] - unchanged,
        "beta_context": odds[0, 0] - odds[1, 0],
        "beta_context_twin": odds[0, 1] - odds[1, 1],
        "beta_continuations": (odds[0, 0] - odds[0, 1] + odds[1, 0] - odds[1, 1]) / 2,
        "beta_interaction": odds[0, 0] - odds[1, 0] - odds[0, 1] + odds[1, 1],
        "context_difference": own.context - other.context,
    }


def _log_odds(likelihood: TripleLikelihood) -> float:
    return float(likelihood.tokens[0].sum() - likelihood.tokens[1].sum())


# -- words and tokens ------------------------------------------------------------------------------


def _unchanged(
    tokenizer: PreTrainedTokenizerBase, role: int, *read: tuple[Triple, TripleLikelihood]
) -> float:
    """Log-probability of words that the swap leaves alone, a triple's minus its twin's.

    ``read`` are the two; the words are those of their continuations of a role.
    """
    continuations = [(text.stereotype, text.anti_stereotype)[role].strip() for text, _ in read]
    sums = []
    for (text, likelihood), continuation, changed in zip(
        read, continuations, changed_spans(*continuations), strict=True
    ):
        whole, values = text.texts()[role], likelihood.tokens[role]
        before = len(whole) - len(continuation)
        encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        kept = [
            not any(a < before + stop and b > before + start for start, stop in changed)
            for a, b in encoded["offset_mapping"][-len(values) :]
        ]
        sums.append(float(values[np.array(kept)].sum()))
    return sums[0] - sums[1]


def changed_spans(text: str, other: str) -> tuple[list[Span], list[Span]]:
    """Words of each of two texts that the other lacks, as ranges of characters."""
    spans = [[match.span() for match in re.finditer(r"\S+", one)] for one in (text, other)]
    changed: tuple[list[Span], list[Span]] = ([], [])
    matcher = SequenceMatcher(a=text.split(), b=other.split(), autojunk=False)
    for what, i, j, k, m in matcher.get_opcodes():
        if what != "equal":
            changed[0].extend(spans[0][i:j])
            changed[1].extend(spans[1][k:m])
    return changed


# -- one row per category and part -----------------------------------------------------------------


def part_table(items: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Means of the parts (columns ``PARTS``) over the items of each category that have twins.

    Returns:
        One row per category and part: ``category part items targets mean low high``, nats, with
        intervals over targets.
    """
    rows: list[dict[str, Any]] = []
    for category in in_order(items["category"]):
        own = items[(items["category"] == category) & items["beta_sum"].notna()]
        for part in PARTS if len(own) else ():
            found = _mean_over_targets(
                own[part].to_numpy(float), own["group"].to_numpy(str), confidence
            )
            rows.append({"category": category, "part": part, **found})
    return pd.DataFrame(rows)


def _mean_over_targets(
    values: Float[np.ndarray, " item"], target: np.ndarray, confidence: float
) -> dict[str, Any]:
    """``items``, ``targets``, ``mean`` of some items' values, ``low`` and ``high`` over targets."""
    found = cluster_mean(values, target)
    low, high = found.limits(confidence)
    return {
        "items": found.items, "targets": found.clusters, "mean": found.mean,
        "low": low, "high": high,
    }  # fmt: skip


# -- placebos --------------------------------------------------------------------------------------


def placebo_twins(likelihoods: Mapping[str, Sequence[Sequence[TripleLikelihood]]]) -> pd.DataFrame:
    """As ``beta.twin_table``, with ``placebo`` and ``choice``: which of several words, from 1."""
    tables = [twin_table(of_items).assign(placebo=name) for name, of_items in likelihoods.items()]
    table = pd.concat([twin_table([]).assign(placebo=""), *tables], ignore_index=True)
    return table.assign(choice=1 + table.groupby(["placebo", "item"]).cumcount())


def placebo_table(
    items: pd.DataFrame,
    twins: pd.DataFrame,
    placebos: pd.DataFrame,
    *,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Beta, its placebo and their paired difference, over items that have both.

    Returns:
        One row per scoring, category, kind of placebo and choice of words (``all`` is their mean):
        ``items targets``, and of ``beta``, ``placebo`` and ``difference`` the mean with ``_low``
        and ``_high``, over targets.
    """
    rows: list[dict[str, Any]] = []
    for scoring in SCORINGS:
        beta = TwinSets.of(items, twins, scoring).contrasts[:, 0]
        for name, choice, chosen in _choices(placebos):
            placebo = TwinSets.of(items, chosen, scoring).contrasts[:, 0]
            values = dict(zip(QUANTITIES, (beta, placebo, beta - placebo), strict=True))
            known = np.isfinite(values["difference"])
            for category in in_order(items["category"]):
                own = known & (items["category"] == category).to_numpy()
                if not own.any():
                    continue
                target = items.loc[own, "group"].to_numpy(str)
                row: dict[str, Any] = {"scoring": scoring, "category": category}
                row |= {"kind": name, "choice": choice}
                for quantity, of_items in values.items():
                    found = _mean_over_targets(of_items[own], target, confidence)
                    row |= {"items": found["items"], "targets": found["targets"]}
                    row[quantity] = found["mean"]
                    row |= {f"{quantity}_{end}": found[end] for end in ("low", "high")}
                rows.append(row)
    return pd.DataFrame(rows)


def _choices(placebos: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """The twins of every placebo together and, where there are several words, of each."""
    for name, own in placebos.groupby("placebo", sort=False):
        yield str(name), "all", own
        if own["choice"].nunique() > 1:
            for choice, part in own.groupby("choice"):
                yield str(name), str(choice), part
