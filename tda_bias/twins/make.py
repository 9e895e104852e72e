"""Twins of triples by rule: the other gender, or another target of the same kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal
from zlib import crc32

import numpy as np

from tda_bias.twins.gender import gender_twins
from tda_bias.twins.kinds import Kinds, Target, shipped_kinds
from tda_bias.twins.pronouns import PronounReader, Tagger, pronoun_reader
from tda_bias.twins.targets import drawn, pool, with_target
from tda_bias.twins.twins import Excluded, Twins, content, text_fields
from tda_bias.twins.words import APOSTROPHE
from tda_bias.types import InputError, Triple

Kind = Literal["auto", "gender", "target"]
# The twins of a triple, or why it has none.
Outcome = tuple[Triple, ...] | str

UNCHANGED = "the context has no gendered word"
NOT_UNDONE = "swapping twice does not give the original back"
UNKNOWN = "the target is not known"
NOT_NAMED = "the context does not name the target"
ELSEWHERE = "the target's word means something else here, or is part of a name"
TOO_FEW = "fewer than k other targets fit"


def make_twins(
    triples: Sequence[Triple],
    *,
    kind: Kind = "auto",
    k: int = 3,
    seed: int = 0,
    tagger: Tagger = "auto",
    kinds: Kinds | None = None,
) -> Twins:
    """The same triples about the other gender, or about other targets of their kind.

    Args:
        triples: Of any categories. Targets are drawn so that all serve about equally often, over
            these triples: to have the same twins in every selection, make those of the whole data,
            and take ``Twins.only`` of what is selected.
        kind: ``gender`` swaps the gendered words of all triples, ``target`` replaces the target of
            all, ``auto`` swaps in the category gender and replaces in the others.
        k: Other targets for each triple. A gender swap gives one twin whatever it is.
        seed: Fixes which targets.
        tagger: What reads "her" and "his": ``spacy``, ``rule``, or ``auto``, which is spaCy where
            an English pipeline is installed.
        kinds: Targets by kind; those of StereoSet and of the starter triples if None.

    Returns:
        The twins, and the triples without one with the reason. If ``auto`` can make none, its
        ``note`` says why.

    Raises:
        InputError: if ``k`` is below 1 or larger than a kind's other targets, ``seed`` is below 0,
            a kind has a single target, the tagger asked for is not installed, or nothing can be
            made of what was asked for by name.
    """
    if k < 1:
        raise InputError(f"`k` must be at least 1; got {k}")
    if seed < 0:
        raise InputError(f"`seed` must not be negative; got {seed}")
    unique = list({content(triple): triple for triple in triples}.values())
    swap = [kind == "gender" or (kind == "auto" and t.category == "gender") for t in unique]
    made: dict[str, object] = {"source": "made", "kind": kind}
    outcomes: dict[Triple, Outcome] = {}
    if to_swap := [t for t, swapped in zip(unique, swap, strict=True) if swapped]:
        reader = pronoun_reader(tagger)
        made["pronouns"] = reader.name
        outcomes |= zip(to_swap, _of_other_gender(to_swap, reader), strict=True)
    if to_replace := [t for t, swapped in zip(unique, swap, strict=True) if not swapped]:
        made |= {"k": k, "seed": seed}
        replaced = _of_other_targets(to_replace, kinds or shipped_kinds(), k, seed)
        outcomes |= zip(to_replace, replaced, strict=True)
    pairs, excluded = [], []
    for triple in unique:
        outcome = outcomes[triple]
        if isinstance(outcome, str):
            excluded.append(Excluded(triple, outcome))
        else:
            pairs.append((triple, outcome))
    twins = Twins(tuple(pairs), tuple(excluded), made)
    if pairs or not unique:
        return twins
    if kind != "auto":
        raise InputError(f"`kind` {kind}: no twin can be made; {_why(twins)}")
    return replace(twins, note=f"no twins: {_why(twins)}; a file of twins can be given instead")


def _why(twins: Twins) -> str:
    reasons = ", ".join(f"{reason} ({n})" for reason, n in twins.reasons().items())
    unknown = sorted({e.triple.group for e in twins.excluded if e.reason == UNKNOWN})
    names = f": {', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}" if unknown else ""
    return reasons + names


# -- gender ----------------------------------------------------------------------------------------


def _of_other_gender(triples: Sequence[Triple], reader: PronounReader) -> list[Outcome]:
    twins = gender_twins(triples, reader)
    again = gender_twins(twins, reader)
    return [_swapped(*three) for three in zip(triples, twins, again, strict=True)]


def _swapped(triple: Triple, twin: Triple, again: Triple) -> Outcome:
    if twin.context == triple.context:
        return UNCHANGED
    if _normal(again) != _normal(triple):
        return NOT_UNDONE
    return (twin,)


def _normal(triple: Triple) -> list[str]:
    """The texts without what a swap may mend: capitals, "a actress", and the s of "Charles's"."""
    texts = (re.sub(rf"(?<=s{APOSTROPHE})s\b", "", text.lower()) for text in text_fields(triple))
    return [re.sub(r"\ban\b", "a", text) for text in texts]


# -- other targets ---------------------------------------------------------------------------------


def _of_other_targets(triples: Sequence[Triple], kinds: Kinds, k: int, seed: int) -> list[Outcome]:
    targets = [kinds.target(triple.group) for triple in triples]
    present = {target.name for target in targets if target is not None}
    outcomes: dict[int, Outcome] = {}
    by_kind: dict[str, dict[int, tuple[Triple, Target]]] = {}
    for index, (triple, target) in enumerate(zip(triples, targets, strict=True)):
        if target is None:
            outcomes[index] = UNKNOWN
        elif reason := _unfit(triple, target):
            outcomes[index] = reason
        else:
            by_kind.setdefault(target.kind, {})[index] = (triple, target)
    for kind, items in by_kind.items():
        rng = np.random.default_rng([seed, crc32(kind.encode())])
        chosen = drawn(list(items.values()), pool(kinds, kind, present, k), k=k, rng=rng)
        for (index, (triple, target)), others in zip(items.items(), chosen, strict=True):
            twins = tuple(with_target(triple, target, other) for other in others)
            outcomes[index] = twins if len(twins) == k else TOO_FEW
    return [outcomes[index] for index in range(len(triples))]


def _unfit(triple: Triple, target: Target) -> str:
    """Why a triple's target cannot be replaced; empty if it can."""
    if not target.pattern.search(triple.context):
        return NOT_NAMED
    return ELSEWHERE if any(map(target.means_something_else_in, text_fields(triple))) else ""
