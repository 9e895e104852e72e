"""Pairs by the name of their set, or from a user's file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tda_bias.pairs import blimp, crows, user, winobias, winogender
from tda_bias.pairs.pair import PairSet, chosen, is_evaluation_only
from tda_bias.pairs.sources import (
    HUB,
    PACKAGED,
    commit_of,
    hash_of,
    hub_split,
    located,
    packaged,
    text_of,
    with_label_names,
)
from tda_bias.types import InputError


def load_pairs(
    source: str | Path,
    *,
    data: str | Path | None = None,
    groups: Sequence[str] | None = None,
    limit: int | None = None,
) -> PairSet:
    """The pairs of a set, in its order.

    Args:
        source: ``crows``, ``winobias``, ``winogender``, ``blimp``, or a user's JSON Lines.
        data: Where a named set is read: ``packaged`` (WinoBias dev, Winogender, a sample of BLiMP),
            ``hub`` (CrowS-Pairs, all of BLiMP), or a file or folder in the set's own form. What
            ships if left out, else the hub.
        groups: Only these groups.
        limit: At most so many pairs of each group and type, the first ones.

    Raises:
        InputError: if the source cannot be read or is of another form, a pair cannot be compared,
            or a group does not occur.
    """
    if limit is not None and limit < 1:
        raise InputError(f"`limit` must be at least 1; got {limit}")
    if str(source) in SETS:
        read = SETS[str(source)](data)
    elif data is not None:
        raise InputError(
            f"`set` must be one of {', '.join(SETS)} where `data` is given; got {source}"
        )
    else:
        read = _user(Path(source))
    pairs = tuple(chosen(read.pairs, groups, limit))
    kept = frozenset(pair.id for pair in pairs)
    return PairSet(
        read.name, pairs, read.source, read.revision, read.licence, read.trainable,
        read.uneven & kept,
    )  # fmt: skip


def _crows(data: str | Path | None) -> PairSet:
    _no(data, PACKAGED, "crows")
    if data is None or data == HUB:
        split = hub_split(crows.HUB_NAME, None, crows.HUB_SPLIT, revision=crows.HUB_REVISION)
        rows = enumerate(with_label_names(split))
        pairs = crows.from_rows(
            (f"{crows.HUB_NAME} row {number}", {"id": str(number), **row}) for number, row in rows
        )
        return PairSet("crows", tuple(pairs), HUB, commit_of(split), crows.LICENCE, False)
    (path,) = located(data, crows.FILE)
    text = text_of(path)
    pairs = crows.from_csv(text, str(path))
    return PairSet("crows", tuple(pairs), str(path), hash_of(text), crows.LICENCE, False)


def _winobias(data: str | Path | None) -> PairSet:
    _no(data, HUB, "winobias")
    texts: dict[str, tuple[str, str]] = {}
    for number, kind in enumerate(winobias.TYPES, start=1):
        names = [f"{side}_stereotyped_type{number}.txt" for side in ("pro", "anti")]
        if data is None or data == PACKAGED:
            pro, anti = (packaged("winobias", f"{name}.dev") for name in names)
        else:
            pro, anti = (text_of(path) for path in located(data, *(f"{n}.*" for n in names)))
        texts[kind] = (pro, anti)
    where = "WinoBias" if data is None else str(data)
    pairs = [
        pair
        for kind, (pro, anti) in texts.items()
        for pair in winobias.from_lines(pro, anti, type=kind, where=where)
    ]
    revision = hash_of(*(text for both in texts.values() for text in both))
    uneven = frozenset(pair.id for pair in pairs if winobias.is_uneven(pair))
    source = PACKAGED if data is None else str(data)
    return PairSet("winobias", tuple(pairs), source, revision, winobias.LICENCE, True, uneven)


def _winogender(data: str | Path | None) -> PairSet:
    _no(data, HUB, "winogender")
    if data is None or data == PACKAGED:
        sentences, shares = (packaged("winogender", name) for name in winogender.FILES)
    else:
        sentences, shares = (text_of(path) for path in located(data, *winogender.FILES))
    where = "Winogender" if data is None else str(data)
    pairs = winogender.from_tables(sentences, winogender.female_shares(shares, where), where)
    source = PACKAGED if data is None else str(data)
    revision = hash_of(sentences, shares)
    return PairSet("winogender", tuple(pairs), source, revision, winogender.LICENCE)


def _blimp(data: str | Path | None) -> PairSet:
    if data == HUB:
        pairs, split = blimp.from_hub()
        return PairSet("blimp", tuple(pairs), HUB, commit_of(split), blimp.LICENCE)
    if data is None or data == PACKAGED:
        text = packaged(blimp.FOLDER, blimp.SAMPLE)
        pairs = blimp.from_sample(text)
        return PairSet("blimp", tuple(pairs), PACKAGED, hash_of(text), blimp.LICENCE)
    path = Path(data)
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    texts = {str(path): text_of(path) for path in paths}
    pairs = blimp.from_json_lines(texts)
    if not pairs:
        raise InputError(f"`data` {str(data)!r} holds no JSON Lines of BLiMP")
    return PairSet("blimp", tuple(pairs), str(data), hash_of(*texts.values()), blimp.LICENCE)


def _user(path: Path) -> PairSet:
    if not path.is_file():
        raise InputError(
            f"`set` must be one of {', '.join(SETS)}, or a readable file; got {str(path)!r}"
        )
    text = text_of(path)
    pairs = user.from_json_lines(text, str(path), name=path.stem)
    names = sorted({pair.set for pair in pairs})
    trainable = not any(is_evaluation_only(name) for name in names)
    name = names[0] if len(names) == 1 else path.stem
    return PairSet(name, tuple(pairs), str(path), hash_of(text), None, trainable)


def _no(data: str | Path | None, refused: str, name: str) -> None:
    if data == refused:
        other = "does not ship" if refused == PACKAGED else "is not read from the hub"
        raise InputError(
            f"`data` {refused}: {name} {other}; give a file or folder, or leave it out"
        )


SETS: dict[str, Callable[[str | Path | None], PairSet]] = {
    "crows": _crows,
    "winobias": _winobias,
    "winogender": _winogender,
    "blimp": _blimp,
}
