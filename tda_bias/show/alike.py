"""Texts that a tokenizer writes alike: what a model cannot see is not compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tda_bias.show.text import counted
from tda_bias.types import InputError

ALIKE = "the tokenizer writes the two texts alike that are to be compared"
TWIN_ALIKE = "the tokenizer writes the twin like the original"
_WHY = "letters, capitals or accents that it does not know"


def are_alike(texts: Iterable[Sequence[int]]) -> bool:
    """Tell whether two texts are the same token ids.

    Examples:
        >>> are_alike([[1, 2], [1, 3]]), are_alike([[1, 2], [1, 3], [1, 2]])
        (False, True)
    """
    ids = [tuple(own) for own in texts]
    return len(set(ids)) < len(ids)


def alike_remark(n: int, of: int, noun: str) -> tuple[str, ...]:
    """Sentence on items that are left out because two of their texts are alike; none for none."""
    if not n:
        return ()
    are = "is" if n == 1 else "are"
    return (
        f"{n} of {counted(of, noun)} {are} left out: the tokenizer writes texts alike that are to "
        f"be compared ({_WHY}).",
    )


def refuse_all_alike(n: int, of: int, noun: str) -> None:
    """Refuse items none of which can be told apart.

    Raises:
        InputError: if all are alike.
    """
    if of and n == of:
        raise InputError(
            f"the model's tokenizer writes texts alike that are to be compared, in each of "
            f"{counted(of, noun)} ({_WHY}); take a model whose tokenizer knows them"
        )
