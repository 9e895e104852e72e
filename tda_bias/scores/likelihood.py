"""Log-probabilities of continuations given their context, for every kind of language model.

Causal models: the continuation's tokens, one after the other, the context run once for the three
texts of a triple. Masked models: the pseudo-log-likelihood, each token of the continuation masked
in turn (Salazar et al. 2020). Encoder-decoders: the decoder fills a gap behind the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.batching import batches_of_similar_width, common_prefix, special_tokens_around
from tda_bias.models.causal import reader_of
from tda_bias.models.load import LanguageModel
from tda_bias.models.masked import masked_log_probs
from tda_bias.models.seq2seq import begun, decoded_log_probs, gap_token
from tda_bias.models.token_trees import TokenTree, merge, path_to
from tda_bias.progress import Progress
from tda_bias.types import InputError, Triple

# What a reading belongs to, behind the continuations 0, 1 and 2 in the order of ``ROLES``.
CONTEXT = 3


@dataclass(frozen=True)
class TripleLikelihood:
    """Log-probabilities of the tokens of a triple's continuations, in the order of ``ROLES``.

    Attributes:
        tokens: One array per continuation.
    """

    tokens: tuple[Float[np.ndarray, " token"], ...]

    @property
    def total(self) -> Float[np.ndarray, " role"]:
        """Log-probability of each continuation."""
        return np.array([values.sum() for values in self.tokens])

    @property
    def mean(self) -> Float[np.ndarray, " role"]:
        """The same per token."""
        return np.array([values.mean() for values in self.tokens])

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Tokens of each continuation."""
        return tuple(len(values) for values in self.tokens)


@dataclass(frozen=True)
class SplitTriple:
    """Token ids of a triple's texts without special tokens, and where continuations begin.

    Attributes:
        ids: In the order of ``ROLES``.
        start: Index of each continuation's first token.
    """

    ids: tuple[list[int], ...]
    start: tuple[int, ...]


def split_triples(model: LanguageModel, triples: Sequence[Triple]) -> list[SplitTriple]:
    """Tokenise contexts and whole texts; a token that covers both belongs to the continuation.

    Raises:
        InputError: if a context or a continuation has no token of its own.
    """
    tokenizer = model.tokenizer
    contexts = [triple.context.strip() for triple in triples]
    texts = [text for triple in triples for text in triple.texts()]
    context_ids = tokenizer(contexts, add_special_tokens=False)["input_ids"] if triples else []
    text_ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if triples else []
    split = []
    for number, (triple, context) in enumerate(zip(triples, context_ids, strict=True)):
        of_triple = tuple(text_ids[3 * number : 3 * number + 3])
        start = tuple(common_prefix(context, ids) for ids in of_triple)
        if min(start) == 0 or any(s == len(ids) for s, ids in zip(start, of_triple, strict=True)):
            raise InputError(
                f"{triple.source}: the tokenizer makes no token of the context or a continuation"
            )
        split.append(SplitTriple(of_triple, start))
    return split


def triple_likelihoods(
    model: LanguageModel,
    triples: Sequence[Triple],
    *,
    batch_size: int = 32,
    share_prefix: str = "auto",
    progress: Progress | None = None,
) -> list[TripleLikelihood]:
    """Log-probabilities of every continuation of every triple.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        triples: The texts.
        batch_size: Texts per forward pass.
        share_prefix: ``auto`` or ``never``: run a causal model's context once per triple.
        progress: Called with finished triples and all.

    Raises:
        InputError: if the model has no language-model head or is of another kind, or a text is too
            long for it, or a log-probability is NaN.
    """
    model.require_language_head()
    split = split_triples(model, triples)
    match model.kind:
        case "causal":
            return _causal(model, split, batch_size, share_prefix, progress)
        case "masked":
            return _masked(model, split, batch_size, progress)
        case "seq2seq":
            return _seq2seq(model, triples, split, batch_size, progress)
        case kind:
            raise InputError(
                f"`model` {model.name} is a {kind} language model; continuations are scored with "
                "causal, masked and sequence-to-sequence ones"
            )


def continuation_tree(
    split: SplitTriple, leading: Sequence[int], *, contexts: bool = False
) -> tuple[TokenTree, Int[np.ndarray, " reading"]]:
    """A triple's texts as one tree that reads every token of the continuations, text by text.

    Args:
        split: The texts; fewer than three are the first of ``ROLES``.
        leading: Special tokens in front of them.
        contexts: Read the context's tokens after its first too, before the others. Where a token
            covers the end of the context and the beginning of a continuation, what all three texts
            share is the context.

    Returns:
        The tree, and for each reading 0, 1 or 2 for a continuation in the order of ``ROLES``,
        ``CONTEXT`` for the context.
    """
    # Nothing is read after a text's last token, so it is not run.
    tokens, parent, ends = merge([[*leading, *ids][:-1] for ids in split.ids])
    nodes: list[int] = []
    read: list[int] = []
    part: list[int] = []
    for role, (end, ids, start) in enumerate(zip(ends, split.ids, split.start, strict=True)):
        path, text = path_to(int(end), parent), [*leading, *ids]
        spans = [(role, len(leading) + start, len(text))]
        if contexts and role == 0:
            spans.insert(0, (CONTEXT, max(len(leading), 1), len(leading) + min(split.start)))
        for label, first, stop in spans:
            nodes += path[first - 1 : stop - 1]
            read += text[first:stop]
            part += [label] * (stop - first)
    return TokenTree(tokens, parent, np.array(nodes), np.array(read)), np.array(part)


def as_likelihood(split: SplitTriple, values: np.ndarray) -> TripleLikelihood:
    """Readings of a ``continuation_tree``, continuation by continuation."""
    sizes = [len(ids) - start for ids, start in zip(split.ids, split.start, strict=True)]
    return TripleLikelihood(tuple(np.split(values, np.cumsum(sizes)[:-1])))


def _causal(
    model: LanguageModel,
    split: list[SplitTriple],
    batch_size: int,
    share_prefix: str,
    progress: Progress | None,
) -> list[TripleLikelihood]:
    leading = special_tokens_around(model.tokenizer)[0]
    trees = [continuation_tree(triple, leading)[0] for triple in split]
    if not trees:
        return []
    reader = reader_of(
        model, trees, batch_size=batch_size, texts_per_tree=3, share_prefix=share_prefix
    )
    read = reader.read(trees, progress=progress)
    return [as_likelihood(triple, values) for triple, values in zip(split, read, strict=True)]


@dataclass(frozen=True)
class MaskedRows:
    """The continuations' tokens, each masked in turn: triple by triple, text by text.

    Attributes:
        rows: Token ids with one mask each.
        places: Where it stands.
        tokens: What stands there otherwise.
        triple: The triple of each row.
        part: Its text, in the order of ``ROLES``.
    """

    rows: list[list[int]]
    places: list[int]
    tokens: list[int]
    triple: list[int]
    part: list[int]


def masked_rows(model: LanguageModel, split: Sequence[SplitTriple]) -> MaskedRows:
    """What a masked model reads of triples.

    Raises:
        InputError: if its tokenizer has no mask.
    """
    tokenizer = model.tokenizer
    if tokenizer.mask_token_id is None:
        raise InputError(f"`model` {model.name}: its tokenizer has no mask token")
    leading, trailing = special_tokens_around(tokenizer)
    made = MaskedRows([], [], [], [], [])
    for number, triple in enumerate(split):
        for part, (ids, start) in enumerate(zip(triple.ids, triple.start, strict=True)):
            whole = [*leading, *ids, *trailing]
            for place in range(start + len(leading), len(ids) + len(leading)):
                made.rows.append([*whole[:place], tokenizer.mask_token_id, *whole[place + 1 :]])
                made.places.append(place)
                made.tokens.append(whole[place])
                made.triple.append(number)
                made.part.append(part)
    return made


def _masked(
    model: LanguageModel, split: list[SplitTriple], batch_size: int, progress: Progress | None
) -> list[TripleLikelihood]:
    made = masked_rows(model, split)
    values = np.empty(len(made.rows))
    done = 0
    for batch in batches_of_similar_width([len(row) for row in made.rows], batch_size):
        read = masked_log_probs(
            model,
            [made.rows[i] for i in batch],
            [made.places[i] for i in batch],
            [np.array([made.tokens[i]]) for i in batch],
        )
        values[batch] = np.concatenate(read)
        done += len(batch)
        if progress is not None:
            progress(done * len(split) // len(made.rows), len(split))
    sizes = [sum(len(i) - s for i, s in zip(o.ids, o.start, strict=True)) for o in split]
    parts = np.split(values, np.cumsum(sizes)[:-1])
    return [as_likelihood(triple, part) for triple, part in zip(split, parts, strict=True)]


@dataclass(frozen=True)
class GapTexts:
    """What an encoder-decoder reads of triples: a gap behind the context, and what fills it.

    Attributes:
        sources: Token ids of context and gap, for the encoder.
        trees: Per triple what the decoder writes.
        part: Per triple, for each reading the text it belongs to, in the order of ``ROLES``.
    """

    sources: list[list[int]]
    trees: list[TokenTree]
    part: list[Int[np.ndarray, " reading"]]


def gap_texts(
    model: LanguageModel, triples: Sequence[Triple], split: Sequence[SplitTriple]
) -> GapTexts:
    """What an encoder-decoder reads of triples.

    Raises:
        InputError: if the model knows no gap.
    """
    gap = gap_token(model)
    texts = [f"{triple.context.strip()} {gap}" for triple in triples]
    made = GapTexts(model.tokenizer(texts)["input_ids"], [], [])
    for triple in split:
        # The decoder's tokens before the gap take the place of the context.
        start = min(triple.start)
        before = begun(model, triple.ids[0][:start])
        shortened = SplitTriple(
            tuple([*before, *ids[start:]] for ids in triple.ids),
            tuple(s - start + len(before) for s in triple.start),
        )
        tree, part = continuation_tree(shortened, [])
        made.trees.append(tree)
        made.part.append(part)
    return made


def _seq2seq(
    model: LanguageModel,
    triples: Sequence[Triple],
    split: list[SplitTriple],
    batch_size: int,
    progress: Progress | None,
) -> list[TripleLikelihood]:
    made = gap_texts(model, triples, split)
    readings: list[TripleLikelihood | None] = [None] * len(split)
    done = 0
    rows = max(1, batch_size // 3)
    for batch in batches_of_similar_width([len(source) for source in made.sources], rows):
        values = decoded_log_probs(
            model,
            [made.sources[i] for i in batch],
            [made.trees[i] for i in batch],
            batch_size=batch_size,
        )
        for i, value in zip(batch, values, strict=True):
            readings[i] = as_likelihood(split[i], value)
        done += len(batch)
        if progress is not None:
            progress(done, len(split))
    return [reading for reading in readings if reading is not None]
