"""Twins of triples by rule: the other gender, or another target of the same kind; and placebos.

A swap of the gender changes more than the gender: the words, and who somebody is. A placebo keeps
the gender: a synonym (mother to mom) changes the words alone, a role (mother to aunt) everything
but the gender. What a placebo changes in a number is no evidence about gender.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args
from zlib import crc32

import yaml

from tda_bias.stats.seeds import generator
from tda_bias.twins.targets import (
    Form,
    Kinds,
    Target,
    drawn,
    fitting,
    pool,
    shipped_kinds,
    with_target,
)
from tda_bias.twins.twins import Twins, content, load_twins, text_fields
from tda_bias.twins.words import APOSTROPHE, gender_twin, gender_words
from tda_bias.types import InputError, Triple

# Other targets that a triple gets, unless it is given.
USUAL_NUMBER = 3

Kind = Literal["auto", "gender", "target"]
# The twins of a triple, or why it has none.
Outcome = tuple[Triple, ...] | str

UNCHANGED = "the context has no gendered word"
NOT_UNDONE = "swapping twice does not give the original back"
UNKNOWN = "the target is not known"
NOT_NAMED = "the context does not name the target"
ELSEWHERE = "the target's word means something else here, or is part of a name"
TOO_FEW = "fewer than k other targets fit"

Placebo = Literal["synonym", "role"]
PLACEBOS: tuple[Placebo, ...] = get_args(Placebo)

NO_WORD = "no placebo is known for the target"
UNFIT = "the placebo's word does not fit here"
PRESENT = "the texts have the placebo's word already, or need a form it lacks"
# Other first names of the same gender.
_NAMES = 2


def make_twins(
    triples: Sequence[Triple],
    *,
    kind: Kind = "auto",
    k: int | None = None,
    seed: int = 0,
    kinds: Kinds | None = None,
) -> Twins:
    """The same triples about the other gender, or about other targets of their kind.

    Args:
        triples: Of any categories. Targets are drawn so that all serve about equally often, over
            these triples: to have the same twins in every selection, make those of the whole data,
            and take ``Twins.only`` of what is selected.
        kind: ``gender`` swaps the gendered words of all triples, ``target`` replaces the target of
            all, ``auto`` swaps in the category gender and replaces in the others.
        k: Other targets for each triple; if None 3, or as many as the smallest kind has. A gender
            swap gives one twin whatever it is.
        seed: Fixes which targets.
        kinds: Targets by kind; those of StereoSet and of the starter triples if None.

    Returns:
        The twins. If ``auto`` can make none, their ``note`` says why.

    Raises:
        InputError: if ``k`` is below 1 or larger than a kind's other targets, ``seed`` is below 0,
            a kind has a single target, or nothing can be made of what was asked for by name.
    """
    if k is not None and k < 1:
        raise InputError(f"`k` must be at least 1; got {k}")
    if seed < 0:
        raise InputError(f"`seed` must not be negative; got {seed}")
    unique = list({content(triple): triple for triple in triples}.values())
    swap = [kind == "gender" or (kind == "auto" and t.category == "gender") for t in unique]
    made: dict[str, object] = {"source": "made", "kind": kind}
    outcomes = {t: _of_other_gender(t) for t, swapped in zip(unique, swap, strict=True) if swapped}
    if to_replace := [triple for triple in unique if triple not in outcomes]:
        known = kinds or shipped_kinds()
        number = _usual_number(to_replace, known) if k is None else k
        made |= {"k": number, "seed": seed}
        replaced = _of_other_targets(to_replace, known, number, seed)
        outcomes |= zip(to_replace, replaced, strict=True)
    twins = _collected({triple: outcomes[triple] for triple in unique}, made)
    if twins or not unique:
        return twins
    if kind != "auto":
        raise InputError(f"`kind` {kind}: no twin can be made; {_why(twins)}")
    return replace(
        twins,
        note=f"no twins: {_why(twins)}; write them by hand, or name the targets in a file for "
        "`tdabias twins --kinds`, and give the twins as a file",
    )


def twins_in(whole: Sequence[Triple], selected: Sequence[Triple], given: str) -> Twins | None:
    """The twins of triples selected from a source, as they are asked for.

    They are those of the whole source, so that a triple has the same ones in every selection.

    Args:
        whole: Every triple of the source; a file of twins is about all of them.
        selected: Some of these.
        given: ``auto``, ``none``, or a file that ``tdabias twins`` wrote.

    Returns:
        Twins of the selected triples, perhaps of none of them; None if none are asked for.

    Raises:
        InputError: as ``load_twins``.
    """
    if given == "none":
        return None
    made = make_twins(whole) if given == "auto" else load_twins(given, whole)
    return made.only(selected)


def _collected(outcomes: Mapping[Triple, Outcome], made: Mapping[str, object]) -> Twins:
    return Twins(
        pairs=tuple((t, found) for t, found in outcomes.items() if not isinstance(found, str)),
        excluded={t: why for t, why in outcomes.items() if isinstance(why, str)},
        made=made,
    )


def _why(twins: Twins) -> str:
    """The reasons, and the first targets that are not known."""
    unknown = sorted({t.group for t, reason in twins.excluded.items() if reason == UNKNOWN})
    names = f": {', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}" if unknown else ""
    return twins.why() + names


# -- gender ----------------------------------------------------------------------------------------


def _of_other_gender(triple: Triple) -> Outcome:
    twin = gender_twin(triple)
    if twin.context == triple.context:
        return UNCHANGED
    return (twin,) if _normal(gender_twin(twin)) == _normal(triple) else NOT_UNDONE


def _normal(triple: Triple) -> list[str]:
    """The texts without what a swap may mend: capitals, "a actress", and the s of "Charles's"."""
    texts = (re.sub(rf"(?<=s{APOSTROPHE})s\b", "", text.lower()) for text in text_fields(triple))
    return [re.sub(r"\ban\b", "a", text) for text in texts]


# -- other targets ---------------------------------------------------------------------------------


def _usual_number(triples: Sequence[Triple], kinds: Kinds) -> int:
    """3 other targets, or fewer where a kind that the triples are about has fewer."""
    sizes = Counter(target.kind for target in kinds.values())
    targets = [kinds.get(triple.group.casefold()) for triple in triples]
    others = [sizes[target.kind] - 1 for target in targets if target is not None]
    return max(1, min([USUAL_NUMBER, *others]))


def _of_other_targets(triples: Sequence[Triple], kinds: Kinds, k: int, seed: int) -> list[Outcome]:
    targets = [kinds.get(triple.group.casefold()) for triple in triples]
    present = {target.name for target in targets if target is not None}
    outcomes: dict[int, Outcome] = {}
    by_kind: dict[str, dict[int, tuple[Triple, Target]]] = {}
    for index, (triple, target) in enumerate(zip(triples, targets, strict=True)):
        if target is None:
            outcomes[index] = UNKNOWN
        elif not target.pattern.search(triple.context):
            outcomes[index] = NOT_NAMED
        elif any(map(target.means_something_else_in, text_fields(triple))):
            outcomes[index] = ELSEWHERE
        else:
            by_kind.setdefault(target.kind, {})[index] = (triple, target)
    for kind, items in by_kind.items():
        rng = generator(seed, crc32(kind.encode()))
        chosen = drawn(list(items.values()), pool(kinds, kind, present, k), k=k, rng=rng)
        for (index, (triple, target)), others in zip(items.items(), chosen, strict=True):
            twins = tuple(with_target(triple, target, other) for other in others)
            outcomes[index] = twins if len(twins) == k else TOO_FEW
    return [outcomes[index] for index in range(len(triples))]


# -- placebos --------------------------------------------------------------------------------------


def make_placebos(triples: Sequence[Triple], placebo: Placebo) -> Twins:
    """The same triples with another word in the target's place, which keeps its gender.

    ``synonym`` is the same person in another word, ``role`` another person of the same gender;
    races and religions have neither. The words are data: ``twins_placebo.yaml``, which says how
    they were chosen.
    """
    unique = {content(triple): triple for triple in triples}.values()
    outcomes = {triple: _placebo(triple, placebo) for triple in unique}
    twins = _collected(outcomes, {"source": "made", "placebo": placebo})
    return twins if twins else replace(twins, note=f"no placebo twins: {_why(twins)}")


def comparable_placebos(triples: Sequence[Triple], placebo: Placebo) -> tuple[list[Triple], Twins]:
    """The triples in groups with two or more placebo twins, and these: a variance needs two.

    Raises:
        InputError: if no group has two.
    """
    made = make_placebos(triples, placebo)
    size = Counter((triple.category, triple.group) for triple, _ in made)
    usable = [triple for triple, _ in made if size[triple.category, triple.group] > 1]
    if not usable:
        raise InputError(f"`placebo` {placebo}: no target has two; {made.why()}")
    return usable, made


def _placebo(triple: Triple, placebo: Placebo) -> Outcome:
    data = _placebo_words()
    listed = data[placebo].get(triple.category, {}).get(triple.group.casefold())
    if listed is not None:
        words = [_word(*forms) for forms in listed]
    elif placebo == "role" and triple.category == "gender":
        words = [_word(name) for name in _names_like(triple.group)]
    else:
        words = []
    if not words:
        return NO_WORD
    own, *others = words
    if not own.pattern.search(triple.context):
        return NOT_NAMED
    unfit = "|".join(rf"\b{re.escape(part)}\b" for part in data["elsewhere"][placebo])
    if re.search(unfit, triple.context, re.IGNORECASE):
        return UNFIT
    if len(fitting(triple, own, others)) < len(others):
        return PRESENT
    return tuple(with_target(triple, own, other) for other in others)


@cache
def _placebo_words() -> dict[str, Any]:
    text = files("tda_bias.data").joinpath("twins_placebo.yaml").read_text(encoding="utf-8")
    words: dict[str, Any] = yaml.safe_load(text)
    return words


def _word(one: str, several: str | None = None) -> Target:
    written: dict[Form, str] = {"noun": one}
    if several is not None:
        written["nouns"] = several
    read = {spelling.lower(): frozenset({form}) for form, spelling in written.items()}
    return Target(one, "placebo", written, read)


def _names_like(name: str) -> list[str]:
    """A first name and the next ones of the same gender; empty if it is no first name."""
    words = gender_words()
    if name not in words.names:
        return []
    feminine = name in words.feminine
    same = [other for other in words.names if (other in words.feminine) == feminine]
    place = same.index(name)
    return [same[(place + step) % len(same)] for step in range(_NAMES + 1)]
