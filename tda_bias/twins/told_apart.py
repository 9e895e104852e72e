"""Triples and twins that a tokenizer does not write alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tda_bias.show.alike import TWIN_ALIKE, alike_remark, are_alike, refuse_all_alike
from tda_bias.twins.twins import Twins
from tda_bias.types import ROLES, Triple

# From texts to the token ids of each, without special tokens.
Tokenize = Callable[[Sequence[str]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class ToldApart:
    """Triples and twins whose texts a tokenizer writes differently.

    Attributes:
        triples: These triples.
        twins: Their twins that differ from them; None without twins.
        remarks: How many are left out, a sentence each.
    """

    triples: list[Triple]
    twins: Twins | None
    remarks: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """The texts of the triples."""
        return [text for triple in self.triples for text in triple.texts()]


def told_apart(
    tokenize: Tokenize,
    triples: Sequence[Triple],
    twins: Twins | None = None,
    *,
    roles: int = len(ROLES),
) -> ToldApart:
    """The triples no two of whose texts are the same tokens, and twins that differ from theirs.

    Args:
        tokenize: How the model's tokenizer writes texts.
        triples: Of any categories, or pairs.
        twins: Of these; a twin also has two texts to be told apart.
        roles: How many texts of a triple are compared, in the order of ``ROLES``.

    Raises:
        InputError: if no triple is left.
    """
    every = [*triples, *(twin for _, own in twins or () for twin in own)]
    ids = dict(zip(map(_said, every), _tokens(tokenize, every), strict=True))
    alike = {said for said, own in ids.items() if are_alike(own[:roles])}
    kept = [triple for triple in triples if _said(triple) not in alike]
    refuse_all_alike(len(triples) - len(kept), len(triples), "triple")
    remarks = alike_remark(len(triples) - len(kept), len(triples), "triple")
    if twins is None:
        return ToldApart(kept, None, remarks)
    pairs = {
        triple: tuple(
            twin
            for twin in own
            if _said(twin) not in alike and ids[_said(twin)][:2] != ids.get(_said(triple), ())[:2]
        )
        for triple, own in twins.only(kept)
    }
    n = sum(map(len, pairs.values()))
    of = sum(len(own) for _, own in twins.only(kept))
    lost = {triple: TWIN_ALIKE for triple, own in pairs.items() if not own}
    if n < of:
        twins = replace(
            twins,
            pairs=tuple((triple, own) for triple, own in pairs.items() if own),
            excluded={**twins.excluded, **lost},
        )
        remarks += alike_remark(of - n, of, "twin")
    return ToldApart(kept, twins or None, remarks)


def _said(triple: Triple) -> tuple[str, ...]:
    return triple.texts()[: 2 if triple.is_pair else 3]


def _tokens(tokenize: Tokenize, triples: Sequence[Triple]) -> list[tuple[tuple[int, ...], ...]]:
    texts = list(dict.fromkeys(text for triple in triples for text in _said(triple)))
    ids = dict(zip(texts, map(tuple, tokenize(texts) if texts else ()), strict=True))
    return [tuple(ids[text] for text in _said(triple)) for triple in triples]
