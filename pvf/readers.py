"""Probabilities of words at the slot of a template, for every kind of language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from pvf.config import ScoreConfig
from pvf.templates import Y_SLOT, Template
from pvf.word_forms import WordForms, WordTree, word_tree
from tda_bias.models.batching import special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import (
    decoder_start,
    gap_sources,
    gap_token,
    mask_token,
    masked_row,
    require_kind,
)
from tda_bias.models.scoring import Scorer
from tda_bias.models.token_trees import TokenTree, merge
from tda_bias.progress import Progress
from tda_bias.types import InputError

# A row of a forward pass holds prompts of one word and what may follow them, up to so many tokens:
# they share its beginning, and longer rows cost more attention than that saves.
_ROW = 64


@dataclass(frozen=True)
class Reading:
    """Probabilities of token sequences behind prompts.

    Attributes:
        log_prob: ``(x, context, form)`` log-probability of each token sequence.
        continued: ``(x, context, form)`` probability that a longer listed word continues it.
        token_ids: Token ids of the prompts, in order.
        notes: How they were run, for the record.
    """

    log_prob: Float[np.ndarray, "x context form"]
    continued: Float[np.ndarray, "x context form"]
    token_ids: list[list[int]]
    notes: dict[str, Any]


def check_readable(model: LanguageModel) -> None:
    """Refuse a model whose probabilities of words cannot be read.

    Raises:
        InputError: if it has no language-model head or, as a masked model, no mask.
    """
    require_kind(model, ("causal", "masked", "permutation", "seq2seq"), "words are read with")
    if model.kind == "masked":
        mask_token(model)


def read_words(
    model: LanguageModel,
    config: ScoreConfig,
    words: Sequence[str],
    templates: Sequence[Template],
    forms: WordForms,
    progress: Progress | None = None,
) -> Reading:
    """Log-probabilities of all sequences in every template filled with every word.

    Masked models are asked for masks in the slot's place, all others for what follows the prompt.

    Args:
        model: The model.
        config: Settings.
        words: The words x.
        templates: The contexts.
        forms: The token sequences of the words of y.
        progress: Called with what is finished and all of it.

    Raises:
        InputError: if the tokenizer makes no token of a prompt, a prompt does not fit into the
            model, or a log-probability is NaN.
    """
    read = _at_masks if model.kind == "masked" else _after_prompts
    return read(model, config, words, templates, forms, progress)


def prompt_ids(
    model: LanguageModel, words: Sequence[str], templates: Sequence[Template]
) -> list[list[int]]:
    """Token ids of every prompt, word by word, without special tokens.

    Raises:
        InputError: if there are none.
    """
    texts = [template.prompt(word) for word in words for template in templates]
    ids: list[list[int]] = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    for text, prompt in zip(texts, ids, strict=True):
        if not prompt:
            raise InputError(f"the tokenizer makes no token of the prompt {text!r}")
    return ids


# -- models that continue a prompt -----------------------------------------------------------------


def _after_prompts(
    model: LanguageModel,
    config: ScoreConfig,
    words: Sequence[str],
    templates: Sequence[Template],
    forms: WordForms,
    progress: Progress | None,
) -> Reading:
    """Chain rule over a word's tokens behind the text before the slot."""
    tree = word_tree(forms.sequences)
    prompts = prompt_ids(model, words, templates)
    sources: list[list[int]] = []
    together = 1
    if model.kind == "seq2seq":
        sources = gap_sources(model, [t.prompt(word) for word in words for t in templates])
        prompts = [decoder_start(model, prompt) for prompt in prompts]
    else:
        leading = _leading(model, config)
        prompts = [leading + prompt for prompt in prompts]
    if model.kind == "causal":
        # Prompts of one word share its beginning; a large tree of words would make such rows long.
        together = max(1, min(len(templates), _ROW // (len(tree.tokens) + 4)))
    groups = [prompts[i : i + together] for i in range(0, len(prompts), together)]
    scorer = Scorer(
        model,
        batch_size=config.batch_size,
        texts_per_tree=together,
        share_prefix=config.share_prefix,
    )
    trees = [_with_words(group, tree) for group in groups]
    edges = scorer.log_probs(trees, sources, progress=progress)
    notes: dict[str, Any] = {}
    if model.kind == "causal":
        notes = {"share_prefix": scorer.packed, "share_prefix_check": scorer.why}
    elif model.kind == "seq2seq":
        notes = {"gap": gap_token(model)}
    # Readings go prompt by prompt, edge by edge.
    flat = np.concatenate(edges).reshape(len(prompts), len(tree.edge_token))
    log_prob, continued = tree.log_probs(flat)
    shape = (len(words), len(templates), len(forms.sequences))
    return Reading(log_prob.reshape(shape), continued.reshape(shape), sources or prompts, notes)


def _leading(model: LanguageModel, config: ScoreConfig) -> list[int]:
    """Special tokens in front of a prompt."""
    tokenizer = model.tokenizer
    if config.bos == "never":
        return []
    if config.bos == "always":
        if tokenizer.bos_token_id is None:
            raise InputError(
                f"`bos` always: the tokenizer of `model` {model.name} has no such token"
            )
        return [tokenizer.bos_token_id]
    return special_tokens_around(tokenizer)[0]


def _with_words(prompts: Sequence[Sequence[int]], words: WordTree) -> TokenTree:
    """The tree of prompts, with the tree of words at the end of each."""
    tokens, parent, ends = merge(prompts)
    n_inner = len(words.tokens)
    first = len(tokens) + n_inner * np.arange(len(prompts))
    parents = np.where(words.parent < 0, ends[:, None], words.parent + first[:, None])
    read = np.where(words.edge_node < 0, ends[:, None], words.edge_node + first[:, None])
    return TokenTree(
        tokens=np.concatenate([tokens, np.tile(words.tokens, len(prompts))]),
        parent=np.concatenate([parent, parents.reshape(-1)]),
        read_node=read.reshape(-1),
        read_token=np.tile(words.edge_token, len(prompts)),
    )


# -- models that fill a mask -----------------------------------------------------------------------


def _at_masks(
    model: LanguageModel,
    config: ScoreConfig,
    words: Sequence[str],
    templates: Sequence[Template],
    forms: WordForms,
    progress: Progress | None,
) -> Reading:
    """A word of k tokens is read at k masks in the slot's place, from left to right."""
    prompts = _masked_prompts(model, config, words, templates)
    mask = mask_token(model)
    scorer = Scorer(model, batch_size=config.batch_size)
    log_prob = np.zeros((len(prompts), len(forms.sequences)))
    filled = sorted({(len(s), s[:i]) for s in forms.sequences for i in range(len(s))})
    for number, (masks, prefix) in enumerate(filled):
        indices = [
            f
            for f, s in enumerate(forms.sequences)
            if len(s) == masks and s[: len(prefix)] == prefix
        ]
        tokens = [forms.sequences[f][len(prefix)] for f in indices]
        slot = [*prefix, *[mask] * (masks - len(prefix))]
        rows = []
        for prompt in prompts:
            place = prompt.index(mask)
            row = [*prompt[:place], *slot, *prompt[place + 1 :]]
            rows.append(masked_row(row, place + len(prefix), tokens))
        log_prob[:, indices] += np.stack(scorer.log_probs(rows))
        if progress is not None:
            progress((number + 1) * len(prompts) // len(filled), len(prompts))
    shape = (len(words), len(templates), len(forms.sequences))
    # The number of masks fixes the number of tokens: no word continues another.
    return Reading(log_prob.reshape(shape), np.zeros(shape), prompts, {})


def _masked_prompts(
    model: LanguageModel, config: ScoreConfig, words: Sequence[str], templates: Sequence[Template]
) -> list[list[int]]:
    texts = []
    for word in words:
        for template in templates:
            ends = "." if config.mask_end == "period" and not template.after else ""
            texts.append(template.filled(word).replace(Y_SLOT, model.tokenizer.mask_token + ends))
    ids: list[list[int]] = model.tokenizer(texts)["input_ids"]
    for text, prompt in zip(texts, ids, strict=True):
        if prompt.count(model.tokenizer.mask_token_id) != 1:
            raise InputError(f"the tokenizer does not find the mask in {text!r}")
    return ids
