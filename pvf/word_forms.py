"""Words as a tokenizer writes them, and what of one word is the beginning of another.

A word's probability is the product over its tokens. Words share tokens ("baron" and "baroness"), so
the tokens form a tree: probabilities are read along its edges, each once per prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from pvf.config import Forms
from pvf.words import WordClasses
from tda_bias.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# A word before the words of interest: their tokens are what it does not account for.
_ANCHOR = "that"


@dataclass(frozen=True)
class WordForms:
    """The token sequences of the words of all classes.

    Attributes:
        words: The words that are read, class by class.
        class_of: Index of each word's class.
        sequences: Distinct token sequences.
        word_of: Index of each sequence's word.
        skipped: Words that are not read, with the reason.
    """

    words: tuple[str, ...]
    class_of: Int[np.ndarray, " word"]
    sequences: tuple[tuple[int, ...], ...]
    word_of: Int[np.ndarray, " form"]
    skipped: dict[str, str]


@dataclass(frozen=True)
class WordTree:
    """Token sequences as edges of a tree that hangs on a prompt.

    Attributes:
        tokens: Token of each inner node: a beginning that some longer sequence continues.
        parent: Inner node before it; -1 is the prompt.
        edge_node: Inner node after which each edge is read; -1 is the prompt.
        edge_token: Its token.
        on_path: Which edges make up each sequence.
        continues: Which edges continue each sequence to a longer one of another word.
    """

    tokens: Int[np.ndarray, " node"]
    parent: Int[np.ndarray, " node"]
    edge_node: Int[np.ndarray, " edge"]
    edge_token: Int[np.ndarray, " edge"]
    on_path: Bool[np.ndarray, "form edge"]
    continues: Bool[np.ndarray, "form edge"]

    def log_probs(
        self, edges: Float[np.ndarray, "... edge"]
    ) -> tuple[Float[np.ndarray, "... form"], Float[np.ndarray, "... form"]]:
        """Probabilities of the sequences from those of the edges.

        Returns:
            Log-probability of each sequence, and the probability that it is followed by what makes
            it a longer listed word.
        """
        return edges @ self.on_path.T.astype(float), np.exp(edges) @ self.continues.T.astype(float)


def word_tree(sequences: tuple[tuple[int, ...], ...]) -> WordTree:
    """The tree of distinct sequences."""
    inner: dict[tuple[int, ...], int] = {}
    edges: dict[tuple[int, ...], int] = {}
    for sequence in sequences:
        for length in range(1, len(sequence) + 1):
            edges.setdefault(sequence[:length], len(edges))
            if length < len(sequence):
                inner.setdefault(sequence[:length], len(inner))
    on_path = np.zeros((len(sequences), len(edges)), dtype=bool)
    continues = np.zeros_like(on_path)
    for number, sequence in enumerate(sequences):
        on_path[number, [edges[sequence[:n]] for n in range(1, len(sequence) + 1)]] = True
        after = [at for edge, at in edges.items() if edge[:-1] == sequence]
        continues[number, after] = True
    before = {(): -1, **inner}
    return WordTree(
        tokens=np.array([node[-1] for node in inner], dtype=np.int64),
        parent=np.array([before[node[:-1]] for node in inner], dtype=np.int64),
        edge_node=np.array([before[edge[:-1]] for edge in edges], dtype=np.int64),
        edge_token=np.array([edge[-1] for edge in edges], dtype=np.int64),
        on_path=on_path,
        continues=continues,
    )


def word_forms(
    tokenizer: PreTrainedTokenizerBase,
    classes: WordClasses,
    *,
    forms: Forms = "word",
    one_token: bool = False,
) -> WordForms:
    """Token sequences of all words, each counted once.

    Args:
        tokenizer: The model's.
        classes: The words.
        forms: ``word``: as at the start of a word; ``capitals``: the same and capitalised;
            ``bare``: the vocabulary's entry for the letters, which in most tokenizers continues a
            word. Words without one are left out.
        one_token: Leave out sequences of several tokens.

    Raises:
        InputError: if a word becomes the unknown token, or a class keeps no word.
    """
    vocabulary = tokenizer.get_vocab() if forms == "bare" else {}
    kept_forms: dict[str, list[tuple[int, ...]]] = {}
    skipped: dict[str, str] = {}
    for word in (word for words in classes.classes.values() for word in words):
        written = [word, word[:1].upper() + word[1:]] if forms == "capitals" else [word]
        sequences: list[tuple[int, ...]]
        if forms == "bare":
            sequences = [(vocabulary[word],)] if word in vocabulary else []
        else:
            sequences = [_word_start(tokenizer, form) for form in written]
        kept = [s for s in sequences if not one_token or len(s) == 1]
        if not kept:
            skipped[word] = "several tokens" if sequences else "not in the vocabulary"
        kept_forms[word] = list(dict.fromkeys(kept))
    _drop_ambiguous(kept_forms, classes, skipped)
    return _collected(kept_forms, classes, skipped)


def _word_start(tokenizer: Any, word: str) -> tuple[int, ...]:
    before = tokenizer(_ANCHOR, add_special_tokens=False)["input_ids"]
    ids = tokenizer(f"{_ANCHOR} {word}", add_special_tokens=False)["input_ids"]
    form_ids = ids[len(before) :]
    unknown = tokenizer.unk_token_id is not None and tokenizer.unk_token_id in form_ids
    if ids[: len(before)] != before or not form_ids or unknown:
        raise InputError(
            f"`classes`: the tokenizer cannot write {word!r}; leave the word out or use another "
            "model"
        )
    return tuple(form_ids)


def _drop_ambiguous(
    forms: dict[str, list[tuple[int, ...]]], classes: WordClasses, skipped: dict[str, str]
) -> None:
    """Sequences that words of two classes share, as after lower-casing, belong to neither."""
    class_of = {word: label for label, words in classes.classes.items() for word in words}
    owners: dict[tuple[int, ...], set[str]] = {}
    for word, sequences in forms.items():
        for sequence in sequences:
            owners.setdefault(sequence, set()).add(class_of[word])
    for word, sequences in forms.items():
        unshared = [sequence for sequence in sequences if len(owners[sequence]) == 1]
        if sequences and not unshared:
            skipped[word] = "same tokens as a word of another class"
        forms[word] = unshared


def _collected(
    forms: dict[str, list[tuple[int, ...]]], classes: WordClasses, skipped: dict[str, str]
) -> WordForms:
    words: list[str] = []
    class_of: list[int] = []
    sequences: dict[tuple[int, ...], int] = {}
    for number, (label, members) in enumerate(classes.classes.items()):
        for word in members:
            # Two words of a class with the same tokens count once.
            distinct = [sequence for sequence in forms[word] if sequence not in sequences]
            if forms[word] and not distinct:
                skipped[word] = "same tokens as another word of its class"
            if distinct:
                sequences |= dict.fromkeys(distinct, len(words))
                words.append(word)
                class_of.append(number)
        if number not in class_of:
            raise InputError(
                f"`classes` {classes.name}: no word of {label!r} can be read with this tokenizer "
                f"and these settings ({', '.join(members[:3])}: {skipped[members[0]]})"
            )
    return WordForms(
        words=tuple(words),
        class_of=np.array(class_of),
        sequences=tuple(sequences),
        word_of=np.array(list(sequences.values())),
        skipped=skipped,
    )
