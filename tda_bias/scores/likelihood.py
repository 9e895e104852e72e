"""Log-probabilities of texts that stand against each other, for every kind of language model.

Causal models read from left to right, what the texts share once. Masked models get each token
masked in turn (pseudo-log-likelihood, Salazar et al. 2020), and beside it the variant that also
masks the later pieces of the same word: otherwise a word of several pieces gives itself away (Kauf
& Ivanova 2023). Encoder-decoders fill a gap after the context.

A triple is a contrast of its continuations after a context. Readings of many texts are saved block
by block, so that a stopped run goes on and several processes share the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from tda_bias.models.language_model import special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import MaskedRows, mask_token, require_kind
from tda_bias.models.scored import (
    Block,
    Readings,
    as_arrays,
    cut,
    from_arrays,
    read_blocks,
)
from tda_bias.models.scoring import Scorer, TokenScores
from tda_bias.scores.texts import Contrast, SplitTexts, tokenize
from tda_bias.store.cache import OpenCache, texts_hash
from tda_bias.types import InputError, Progress, Triple

Start = Literal["tokenizer", "bos"]

# Contrasts whose readings are kept in one file: a stopped run loses at most so many.
_BLOCK = 128


# -- log-probabilities -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TextReader:
    """A way to read contrasts with a causal, masked or sequence-to-sequence language model.

    Attributes:
        model: The model.
        batch_size: Texts per forward pass.
        start: Of causal models: ``tokenizer``: the first token of a text is scored only where the
            tokenizer puts a start token in front of it; ``bos``: the model's start token stands in
            front of every text, as in StereoSet's own script.
        triples: Contrasts are triples: causal models read their contexts too, masked ones make no
            ``pll_within_word``.
    """

    model: LanguageModel
    batch_size: int = 32
    start: Start = "tokenizer"
    triples: bool = False

    def read(self, contrasts: Sequence[Contrast], *, progress: Progress | None = None) -> Readings:
        """Log-probabilities of the scored tokens of every text.

        Returns:
            By how they were read, contrast by contrast: ``log_prob``; or ``pll`` and, where the
            tokenizer tells words apart, ``pll_within_word``; and ``context``, that of a triple as
            one text. A text none of whose words is scored gets an empty array, as does every text
            of a contrast two of whose texts the tokenizer writes alike.

        Raises:
            InputError: if the model has no language-model head or is of another kind, a text is too
                long for it, or a log-probability is NaN.
        """
        model = self.model
        require_kind(model, ("causal", "masked", "seq2seq"), "texts are scored with")
        split = [own.told_apart() for own in tokenize(model, contrasts)]
        if model.kind == "masked" and not self.triples:
            return _masked(model, split, self.batch_size, progress)
        leading = self._leading() if model.kind == "causal" else None
        if leading == []:  # nothing predicts a first token
            split = [replace(s, scored=tuple(p[p > 0] for p in s.scored)) for s in split]
        context_from = first_predicted(model) if self.triples else None
        requests = [
            own.request((contrast.context or "").strip(), context_from=context_from)
            for own, contrast in zip(split, contrasts, strict=True)
        ]
        most = max((len(own.ids) for own in split), default=1) if model.kind == "causal" else 2
        scorer = Scorer(
            model, batch_size=self.batch_size, texts_per_tree=3 if self.triples else most
        )
        read = scorer.read(requests, leading=leading, progress=progress)
        if context_from is None:
            return {"pll" if model.kind == "masked" else "log_prob": read}
        return {
            "log_prob": [tuple(texts) for _, *texts in read],
            "context": [(context,) for context, *_ in read],
        }

    def read_saved(
        self,
        named: Mapping[str, Sequence[Contrast]],
        cache: OpenCache,
        *,
        progress: Progress | None = None,
    ) -> dict[str, Readings]:
        """As ``read``, in blocks that are kept and looked up.

        The result does not depend on which process reads a block. Names of contrasts are those of
        saved parts: ``pairs``, ``whole sentences``.

        Raises:
            InputError: as ``read``, or if the cache holds readings of something else.
            ShareDone: if the parts are shared by several processes and another one gathers.
        """
        blocks = {
            name: [self._block(title, own) for title, own in cut(name, contrasts, _BLOCK)]
            for name, contrasts in named.items()
        }
        model = self.model
        identity = {
            "format": 3, "tokenizer": model.tokenizer_hash(), "kind": model.kind,
            "start": self.start,
        }  # fmt: skip
        every = [block for of_name in blocks.values() for block in of_name]
        read = iter(read_blocks(model, every, identity=identity, cache=cache, progress=progress))
        return {
            name: from_arrays([next(read) for _ in of_name]) for name, of_name in blocks.items()
        }

    def _block(self, name: str, contrasts: Sequence[Contrast]) -> Block:
        return Block(
            name,
            len(contrasts),
            partial(self._depends_on, contrasts),
            lambda progress: as_arrays(self.read(contrasts, progress=progress)),
            cost=float(sum(len(text) for contrast in contrasts for text in contrast.texts)),
        )

    def _depends_on(self, contrasts: Sequence[Contrast]) -> dict[str, str]:
        texts = [
            (
                [own.start] * len(own.ids),
                *own.ids,
                *(p.tolist() for p in own.scored),
                *(own.word or ()),
            )
            for own in tokenize(self.model, contrasts)
        ]
        return {"texts": texts_hash(texts)}

    def _leading(self) -> list[int]:
        """Special tokens in front of a causal model's texts."""
        leading = special_tokens_around(self.model.tokenizer)[0]
        if leading or self.start == "tokenizer":
            return leading
        token = self.model.tokenizer.bos_token_id
        if token is None:
            raise InputError(f"`model` {self.model.name} has no start token; leave out --start bos")
        return [token]


def _masked(
    model: LanguageModel,
    split: Sequence[SplitTexts],
    batch_size: int,
    progress: Progress | None,
) -> Readings:
    """Both readings of a masked model; rows that are the same in both run once."""
    mask, (leading, trailing) = mask_token(model), special_tokens_around(model.tokenizer)
    rows = MaskedRows()

    def ask(ids: Sequence[int], place: int, word: Sequence[int]) -> tuple[int, int]:
        """Mask a token and what follows of its word."""
        later = (mask if word[p] == word[place] else ids[p] for p in range(place, len(ids)))
        row = [*leading, *ids[:place], *later, *trailing]
        return rows.add(row, place + len(leading), ids[place])

    # For the plain reading every token is a word.
    words: dict[str, list[tuple[Sequence[int], ...]]]
    words = {"pll": [tuple(range(len(ids)) for ids in own.ids) for own in split]}
    if all(own.word is not None for own in split):
        words["pll_within_word"] = [own.word or () for own in split]
    asked = {
        reading: [
            [
                [ask(ids, int(place), word) for place in scored]
                for ids, scored, word in zip(own.ids, own.scored, of_texts, strict=True)
            ]
            for own, of_texts in zip(split, by_word, strict=True)
        ]
        for reading, by_word in words.items()
    }
    n = len(split)
    tell = None if progress is None else lambda done, of: progress(done * n // of, n)
    values = Scorer(model, batch_size=batch_size).log_probs(rows.trees(), progress=tell)
    return {
        reading: [
            tuple(np.array([values[row][slot] for row, slot in text]) for text in texts)
            for texts in contrasts
        ]
        for reading, contrasts in asked.items()
    }


# -- triples ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TripleLikelihood:
    """Log-probabilities of the tokens of a triple's continuations, in the order of ``ROLES``.

    Attributes:
        tokens: One array per continuation.
        context: Log-probability of the context, without its first token where nothing predicts it;
            NaN for models that are not causal.
    """

    tokens: TokenScores
    context: float = float("nan")

    @property
    def total(self) -> Float[np.ndarray, " role"]:
        """Log-probability of each continuation."""
        return np.array([values.sum() for values in self.tokens])


def triple_likelihoods(
    model: LanguageModel,
    triples: Sequence[Triple],
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> list[TripleLikelihood]:
    """Log-probabilities of continuations and contexts; errors are those of ``TextReader.read``."""
    reader = TextReader(model, batch_size, triples=True)
    return likelihoods_of(reader.read([Contrast.of(t) for t in triples], progress=progress))


def likelihoods_of(readings: Readings) -> list[TripleLikelihood]:
    """Readings of a ``TextReader`` of triples, triple by triple."""
    texts = readings.get("log_prob") or readings.get("pll") or []
    contexts = readings.get("context") or [(np.array([np.nan]),)] * len(texts)
    return [
        TripleLikelihood(tokens, float(context.sum()))
        for tokens, (context,) in zip(texts, contexts, strict=True)
    ]


def first_predicted(model: LanguageModel) -> int | None:
    """The first token of a context that a causal model predicts; None for other models."""
    if model.kind != "causal":
        return None
    return 0 if special_tokens_around(model.tokenizer)[0] else 1
