"""Probabilities of words at the slot of a template: the only file of the package that runs a model.

One reader per kind of language model, all with the same method. None reads a padded position, and
none computes logits it does not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pvf.config import ScoreConfig
from pvf.templates import Y_SLOT, Template
from pvf.word_forms import WordForms, WordTree, word_tree
from tda_bias.models.batching import batches_of_similar_width, padded, special_tokens_around
from tda_bias.models.causal import reader_of
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import log_probs, refuse_undefined
from tda_bias.models.masked import masked_log_probs
from tda_bias.models.seq2seq import begun, decoded_log_probs, gap_token
from tda_bias.models.token_trees import TokenTree, merge
from tda_bias.progress import Progress
from tda_bias.types import InputError

# A row of a forward pass holds prompts of one word and what may follow them, up to so many tokens:
# they share its beginning, and longer rows cost more attention than that saves.
_ROW = 64


@dataclass(frozen=True)
class Reading:
    """What a reader found.

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


class Reader(Protocol):
    """One kind of language model."""

    kind: str

    def read(
        self,
        words: Sequence[str],
        templates: Sequence[Template],
        forms: WordForms,
        progress: Progress | None,
    ) -> Reading:
        """Log-probabilities of all sequences in every template filled with every word."""
        ...


def reader(model: LanguageModel, config: ScoreConfig) -> Reader:
    """The reader for a model.

    Raises:
        InputError: if the model has no language-model head.
    """
    model.require_language_head()
    kinds: dict[str, type[Any]] = {
        "causal": CausalReader,
        "masked": MaskedReader,
        "permutation": PermutationReader,
        "seq2seq": Seq2SeqReader,
    }
    chosen: Reader = kinds[model.kind](model, config)
    return chosen


class _PromptReader:
    """What models that continue a prompt have in common."""

    def __init__(self, model: LanguageModel, config: ScoreConfig) -> None:
        self.model = model
        self.config = config

    def _prompts(self, words: Sequence[str], templates: Sequence[Template]) -> list[list[int]]:
        """Token ids of every prompt, word by word, without special tokens."""
        texts = [template.prompt(word) for word in words for template in templates]
        ids: list[list[int]] = self.model.tokenizer(texts, add_special_tokens=False)["input_ids"]
        for text, prompt in zip(texts, ids, strict=True):
            if not prompt:
                raise InputError(f"the tokenizer makes no token of the prompt {text!r}")
        return ids

    def _leading(self) -> list[int]:
        """Special tokens in front of a prompt."""
        tokenizer = self.model.tokenizer
        if self.config.bos == "never":
            return []
        if self.config.bos == "always":
            if tokenizer.bos_token_id is None:
                raise InputError(
                    f"`bos` always: the tokenizer of `model` {self.model.name} has no such token"
                )
            return [tokenizer.bos_token_id]
        return special_tokens_around(tokenizer)[0]


def _shaped(
    edges: Float[np.ndarray, "prompt edge"],
    tree: WordTree,
    prompts: list[list[int]],
    n_words: int,
    notes: dict[str, Any],
) -> Reading:
    log_prob, continued = tree.log_probs(edges)
    shape = (n_words, len(prompts) // n_words, tree.on_path.shape[0])
    return Reading(log_prob.reshape(shape), continued.reshape(shape), prompts, notes)


def _hung_on(prompts: Sequence[Sequence[int]], words: WordTree) -> TokenTree:
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


class CausalReader(_PromptReader):
    """Next-token probabilities after the text before the slot; chain rule over a word's tokens."""

    kind = "causal"

    def read(
        self,
        words: Sequence[str],
        templates: Sequence[Template],
        forms: WordForms,
        progress: Progress | None,
    ) -> Reading:
        """As in ``Reader``."""
        tree = word_tree(forms.sequences)
        leading = self._leading()
        prompts = [leading + prompt for prompt in self._prompts(words, templates)]
        # Prompts of one word share its beginning; a large tree of words would make such rows long.
        together = max(1, min(len(templates), _ROW // (len(tree.tokens) + 4)))
        groups = [prompts[i : i + together] for i in range(0, len(prompts), together)]
        trees = [_hung_on(group, tree) for group in groups]
        trees_reader = reader_of(
            self.model,
            trees,
            batch_size=self.config.batch_size,
            texts_per_tree=together,
            share_prefix=self.config.share_prefix,
        )
        edges = trees_reader.read(trees, progress=progress)
        notes = {"share_prefix": trees_reader.packed, "share_prefix_check": trees_reader.why}
        # Readings go prompt by prompt, edge by edge.
        flat = np.concatenate(edges).reshape(len(prompts), len(tree.edge_token))
        return _shaped(flat, tree, prompts, len(words), notes)


class PermutationReader(_PromptReader):
    """XLNet: the next token is a hidden place at the end, asked for through the target mapping."""

    kind = "permutation"

    def read(
        self,
        words: Sequence[str],
        templates: Sequence[Template],
        forms: WordForms,
        progress: Progress | None,
    ) -> Reading:
        """As in ``Reader``."""
        tree = word_tree(forms.sequences)
        leading = self._leading()
        prompts = [leading + prompt for prompt in self._prompts(words, templates)]
        # A row for the prompt itself and one for every beginning of a longer word.
        paths = [[], *_paths(tree)]
        rows = [prompt + path + [0] for prompt in prompts for path in paths]
        after = np.array(tree.edge_node) + 1
        log_probs = np.empty((len(rows), len(tree.edge_token)))
        done = 0
        for batch in batches_of_similar_width([len(row) for row in rows], self.config.batch_size):
            log_probs[batch] = self._log_probs([rows[i] for i in batch], tree.edge_token)
            done += len(batch)
            if progress is not None:
                progress(done * len(prompts) // len(rows), len(prompts))
        refuse_undefined(self.model, [log_probs])
        by_path = log_probs.reshape(len(prompts), len(paths), len(tree.edge_token))
        edges = by_path[:, after, np.arange(len(after))]
        return _shaped(edges, tree, prompts, len(words), {})

    def _log_probs(self, rows: list[list[int]], tokens: np.ndarray) -> np.ndarray:
        self.model.check_length(max(map(len, rows)))
        ids, mask = padded(rows)
        last = mask.sum(1) - 1
        hidden = torch.zeros(len(rows), ids.shape[1], ids.shape[1])
        hidden[torch.arange(len(rows)), :, last] = 1.0
        target = torch.zeros(len(rows), 1, ids.shape[1])
        target[torch.arange(len(rows)), 0, last] = 1.0
        dtype, device = self.model.dtype, self.model.device
        with torch.inference_mode():
            logits = self.model.hf_model(
                input_ids=ids.to(device),
                attention_mask=mask.to(device, dtype),
                perm_mask=hidden.to(device, dtype),
                target_mapping=target.to(device, dtype),
            ).logits[:, 0]
        return _at(logits.float() if dtype.itemsize < 4 else logits, tokens)


class MaskedReader:
    """Probabilities at a mask in the slot's place."""

    kind = "masked"

    def __init__(self, model: LanguageModel, config: ScoreConfig) -> None:
        if model.tokenizer.mask_token_id is None:
            raise InputError(f"`model` {model.name}: its tokenizer has no mask token")
        self.model = model
        self.config = config

    def read(
        self,
        words: Sequence[str],
        templates: Sequence[Template],
        forms: WordForms,
        progress: Progress | None,
    ) -> Reading:
        """As in ``Reader``; a word of k tokens is read with k masks, from left to right."""
        prompts = self._prompts(words, templates)
        mask_id = self.model.tokenizer.mask_token_id
        log_prob = np.zeros((len(prompts), len(forms.sequences)))
        filled = sorted({(len(s), s[:i]) for s in forms.sequences for i in range(len(s))})
        for number, (masks, prefix) in enumerate(filled):
            indices = [
                f
                for f, s in enumerate(forms.sequences)
                if len(s) == masks and s[: len(prefix)] == prefix
            ]
            tokens = np.array([forms.sequences[f][len(prefix)] for f in indices])
            slot = [*prefix, *[mask_id] * (masks - len(prefix))]
            rows = [_filled(prompt, mask_id, slot) for prompt in prompts]
            for batch in batches_of_similar_width(
                [len(r[0]) for r in rows], self.config.batch_size
            ):
                places = [rows[i][1] + len(prefix) for i in batch]
                chosen = [rows[i][0] for i in batch]
                log_probs = masked_log_probs(self.model, chosen, places, [tokens] * len(batch))
                log_prob[np.ix_(batch, indices)] += np.stack(log_probs)
            if progress is not None:
                progress((number + 1) * len(prompts) // len(filled), len(prompts))
        shape = (len(words), len(templates), len(forms.sequences))
        # The number of masks fixes the number of tokens: no word continues another.
        return Reading(log_prob.reshape(shape), np.zeros(shape), prompts, {})

    def _prompts(self, words: Sequence[str], templates: Sequence[Template]) -> list[list[int]]:
        mask = self.model.tokenizer.mask_token
        texts = []
        for word in words:
            for template in templates:
                ends = "." if self.config.mask_end == "period" and not template.after else ""
                texts.append(template.filled(word).replace(Y_SLOT, mask + ends))
        ids: list[list[int]] = self.model.tokenizer(texts)["input_ids"]
        for text, prompt in zip(texts, ids, strict=True):
            if prompt.count(self.model.tokenizer.mask_token_id) != 1:
                raise InputError(f"the tokenizer does not find the mask in {text!r}")
        return ids


class Seq2SeqReader(_PromptReader):
    """The decoder fills a gap that the encoder sees.

    Models with sentinels (T5) predict what stands for the first one; models trained to restore the
    whole text (BART) repeat the prompt before they do.
    """

    kind = "seq2seq"

    def read(
        self,
        words: Sequence[str],
        templates: Sequence[Template],
        forms: WordForms,
        progress: Progress | None,
    ) -> Reading:
        """As in ``Reader``."""
        tree = word_tree(forms.sequences)
        prompts = self._prompts(words, templates)
        sources = self._sources(words, templates)
        edges = np.empty((len(prompts), len(tree.edge_token)))
        done = 0
        for batch in batches_of_similar_width([len(s) for s in sources], self.config.batch_size):
            trees = [_hung_on([begun(self.model, prompts[i])], tree) for i in batch]
            log_probs = decoded_log_probs(
                self.model,
                [sources[i] for i in batch],
                trees,
                batch_size=self.config.batch_size,
            )
            edges[batch] = np.stack(log_probs)
            done += len(batch)
            if progress is not None:
                progress(done, len(prompts))
        return _shaped(edges, tree, sources, len(words), {"gap": gap_token(self.model)})

    def _sources(self, words: Sequence[str], templates: Sequence[Template]) -> list[list[int]]:
        texts = [f"{t.prompt(word)} {gap_token(self.model)}" for word in words for t in templates]
        ids: list[list[int]] = self.model.tokenizer(texts)["input_ids"]
        return ids


def _paths(tree: WordTree) -> list[list[int]]:
    """The tokens from the prompt to each inner node, itself included."""
    paths: list[list[int]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parent.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    return paths


def _filled(ids: list[int], mask_id: int, slot: list[int]) -> tuple[list[int], int]:
    """The prompt with other tokens in its mask's place, and where that is."""
    place = ids.index(mask_id)
    return [*ids[:place], *slot, *ids[place + 1 :]], place


def _at(logits: Tensor, tokens: np.ndarray) -> np.ndarray:
    """Log-probabilities of some tokens in every row."""
    row, token = np.indices((len(logits), len(tokens)))
    return log_probs(logits, row.reshape(-1), tokens[token.reshape(-1)]).reshape(row.shape)
