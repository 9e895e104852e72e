"""Words that the other group makes likelier or rarer.

At every place of every response the model has a distribution of the next token about each of the
prompt's four people. Summed over places, that is how often a word is expected about each, given the
same beginnings. Nothing is counted in responses, so no word needs to occur in one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.responses.effects import difference_pvalues
from tda_bias.stats.resampling import benjamini_hochberg

WORD_COLUMNS = {
    **dict.fromkeys(("word", "likelier"), str),
    "echo": bool,
    "prompts": int,
    **dict.fromkeys(("first", "second", "log_ratio", "p", "q"), float),
}
# A word is tested where it is expected this often in a response, in so many prompts.
_EXPECTED, _PROMPTS = 0.005, 5


def word_table(
    expected: Float[np.ndarray, "prompt person word"],
    words: Sequence[str],
    echo: Sequence[bool],
    groups: Sequence[str],
    *,
    n_permutations: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Words whose expected number depends on the group, those that do most first.

    Args:
        expected: How often each word is expected in a response, about each person.
        words: The words.
        echo: Whether a word repeats whom the prompt names: a pronoun, or a name.
        groups: The first group, and the second.
        n_permutations: Draws of the test, in which each prompt's people change sides.
        rng: Of the draws.

    Returns:
        One row per word that enough prompts expect: ``word``; the group with which it is
        ``likelier``; ``echo``; the number of ``prompts``; how often it is expected in a response
        about the ``first`` and the ``second`` group, and the logarithm of their ratio
        ``log_ratio``; ``p`` and ``q``, the false discovery rate among all words of the table that
        are no echo.
    """
    common = (expected.mean(1) >= _EXPECTED).sum(0)
    kept = np.flatnonzero(common >= _PROMPTS)
    if not len(kept):
        return pd.DataFrame(columns=[*WORD_COLUMNS])
    values = expected[:, :, kept]
    first, second = values[:, :2].mean((0, 1)), values[:, 2:].mean((0, 1))
    p = difference_pvalues(values, n_permutations, rng)
    repeats = np.array(echo, bool)[kept]
    q = benjamini_hochberg(np.where(repeats, np.nan, p))
    table = pd.DataFrame(
        {
            "word": np.array(words, object)[kept],
            "likelier": np.where(first >= second, groups[0], groups[1]),
            "echo": repeats,
            "prompts": common[kept],
            "first": first,
            "second": second,
            "log_ratio": np.log(first / second),
            "p": p,
            "q": q,
        }
    )
    order = np.lexsort([-np.abs(table["log_ratio"]), table["p"], table["echo"]])
    return table.iloc[order].reset_index(drop=True)
