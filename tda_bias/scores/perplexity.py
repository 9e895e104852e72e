"""Perplexity of neutral text, and the divergence of two models' predictions on it.

The text is cut into overlapping windows; each token is scored once, in the first window that it is
in, after at least ``width - stride`` tokens of context (but for the text's beginning). Without any
context (a stride as wide as the window, no start token) a window's first token is not scored, as in
the recipe of the transformers documentation. A shorter stride gives more context, a lower
perplexity, and costs more: numbers of different strides cannot be compared. Masked models are
scored by the pseudo-log-likelihood: every token of a window masked in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.language_model import special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import in_tiles, logits_at, refuse_undefined, token_log_probs
from tda_bias.models.requests import mask_token, masked_row, require_kind, text_tree
from tda_bias.models.scoring import LOGITS, Scorer, TreePass
from tda_bias.models.token_trees import Rows
from tda_bias.stats.seeds import generator
from tda_bias.types import InputError, Progress

WIDTH = 1024
_MASKED_WIDTH = 128


@dataclass(frozen=True)
class Windows:
    """Overlapping pieces of a text.

    Attributes:
        ids: Token ids of each, special tokens included.
        first: Place of each one's first scored token; those from there on are scored, but for
            special tokens at the end.
        trailing: How many special tokens stand at the end of each.
        width: Tokens of a window at most.
        stride: Tokens from one window's beginning to the next.
        of: How many windows the whole text has.
    """

    ids: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]
    trailing: int
    width: int
    stride: int
    of: int

    @property
    def scored(self) -> list[range]:
        """The scored places of each."""
        ends = (len(ids) - self.trailing for ids in self.ids)
        return [range(a, end) for a, end in zip(self.first, ends, strict=True)]

    @property
    def n_tokens(self) -> int:
        """Scored tokens."""
        return sum(map(len, self.scored))


@dataclass(frozen=True)
class PerToken:
    """A quantity of the scored tokens of windows: each one's sum, nats, and number of tokens."""

    total: Float[np.ndarray, " window"]
    n_tokens: Int[np.ndarray, " window"]

    @property
    def mean(self) -> float:
        """Over all tokens, nats."""
        return float(self.total.sum() / self.n_tokens.sum())


def text_windows(
    model: LanguageModel,
    text: str,
    *,
    width: int | None = None,
    stride: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Windows:
    """Cut a text into windows.

    Args:
        model: The model whose tokenizer and context count.
        text: The whole text.
        width: Tokens of a window; if None, 1,024 (masked models: 128) or what the model takes.
        stride: Tokens from one window to the next; half the width if None.
        sample: Only so many windows, drawn without replacement; all if None or if there are fewer.
        seed: Of the draw.

    Raises:
        InputError: if width, stride or sample cannot be used, or the text is too short.
    """
    leading, trailing = special_tokens_around(model.tokenizer)
    trailing = trailing if model.kind == "masked" else []
    default = _MASKED_WIDTH if model.kind == "masked" else WIDTH
    width = width or min(default, model.max_tokens or default)
    model.check_length(width)
    room = width - len(leading) - len(trailing)
    stride = stride or max(1, room // 2)
    if room < 2 or not 1 <= stride <= room:
        raise InputError(
            f"`stride` must lie between 1 and the {max(room, 1)} tokens of a window; got {stride}"
        )
    if sample is not None and sample < 1:
        raise InputError(f"`sample` must be at least 1; got {sample}")
    tokens = model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if len(tokens) < 2:
        raise InputError("the neutral text has fewer than two tokens")
    ends = [min(begin + room, len(tokens)) for begin in range(0, len(tokens), stride)]
    ends = ends[: ends.index(len(tokens)) + 1]
    chosen = np.arange(len(ends))
    if sample is not None and sample < len(ends):
        chosen = np.sort(generator(seed).choice(len(ends), sample, replace=False))
    ids, first = [], []
    for number in chosen:
        begin = int(number) * stride
        scored = ends[number - 1] - begin if number else 0
        ids.append((*leading, *tokens[begin : ends[number]], *trailing))
        # Nothing stands before a causal model's first token, so nothing predicts it.
        first.append(max(len(leading) + scored, 0 if model.kind == "masked" else 1))
    return Windows(tuple(ids), tuple(first), len(trailing), width, stride, len(ends))


def log_perplexity(
    model: LanguageModel,
    windows: Windows,
    *,
    batch_size: int = 4,
    progress: Progress | None = None,
) -> PerToken:
    """Negative log-probabilities of the scored tokens; their mean is the log-perplexity.

    A batch is of windows of the same tokenizer, for masked models of masked rows.

    Raises:
        InputError: if the model is of another kind or has no language-model head, or a
            log-probability is NaN.
    """

    def read(tree_pass: TreePass) -> Float[np.ndarray, " reading"]:
        return -token_log_probs(
            model.hf_model, tree_pass.inputs, tree_pass.places, tree_pass.place, tree_pass.token
        )

    return _per_token(model, windows, read, batch_size, progress)


def divergence(
    before: LanguageModel,
    after: LanguageModel,
    windows: Windows,
    *,
    batch_size: int = 4,
    progress: Progress | None = None,
) -> PerToken:
    """KL(before || after) of the predictions at every scored token, nats.

    Raises:
        InputError: as ``log_perplexity``, or if the models' vocabularies differ.
    """
    if before.tokenizer.get_vocab() != after.tokenizer.get_vocab():
        raise InputError(
            f"{before.name} and {after.name} have other vocabularies: their predictions cannot be "
            "compared token by token"
        )

    def read(tree_pass: TreePass) -> Float[np.ndarray, " reading"]:
        return _kl(
            *(
                logits_at(model.hf_model, tree_pass.inputs, tree_pass.places)
                for model in (before, after)
            )
        )

    return _per_token(before, windows, read, batch_size, progress)


def _kl(
    p: Float[Tensor, "place vocabulary"], q: Float[Tensor, "place vocabulary"]
) -> Float[np.ndarray, " place"]:
    """KL(p || q) of two distributions given as logits, row by row; never below 0 by rounding."""
    parts = []
    n = min(p.shape[1], q.shape[1])  # some checkpoints pad their vocabularies
    for tile in zip(in_tiles(p[:, :n]), in_tiles(q[:, :n]), strict=True):
        log_p, log_q = (torch.log_softmax(rows.double(), dim=-1) for rows in tile)
        parts.append((log_p.exp() * (log_p - log_q)).sum(-1).clamp_min(0))
    return np.asarray(torch.cat(parts).cpu().numpy())


# -- passes ----------------------------------------------------------------------------------------


def _per_token(
    model: LanguageModel,
    windows: Windows,
    read: Callable[[TreePass], Float[np.ndarray, " reading"]],
    batch_size: int,
    progress: Progress | None,
) -> PerToken:
    """Sums of what is read of the scored tokens of windows, pass by pass in their order."""
    require_kind(model, ("causal", "masked"), "perplexity is that of")
    model.check_length(max(map(len, windows.ids)))
    scorer = Scorer(model, batch_size=batch_size)
    total = np.zeros(len(windows.ids))
    for rows in _rows(model, windows, batch_size):
        values = read(scorer.pass_of(rows))
        refuse_undefined(model, [values])
        window = np.repeat(rows.tree, list(map(len, rows.readings)))
        total += np.bincount(window, weights=values, minlength=len(total))
        if progress is not None:
            progress(rows.tree[-1] + 1, len(total))
    return PerToken(total, np.array(list(map(len, windows.scored))))


def _rows(model: LanguageModel, windows: Windows, batch_size: int) -> Iterator[Rows]:
    """Contents of each pass: windows of causal models, masked tokens of a window of others."""
    if model.kind == "masked":
        mask = mask_token(model)
        for number, (ids, scored) in enumerate(zip(windows.ids, windows.scored, strict=True)):
            for start in range(0, len(scored), batch_size):
                rows = [
                    masked_row([*ids[:place], mask, *ids[place + 1 :]], place, [ids[place]])
                    for place in scored[start : start + batch_size]
                ]
                yield Rows(rows, [number] * len(rows), [np.arange(1)] * len(rows))
        return
    vocabulary = model.hf_model.config.get_text_config().vocab_size
    size = min(batch_size, max(1, LOGITS // (windows.stride * vocabulary)))
    for start in range(0, len(windows.ids), size):
        numbers = list(range(start, min(start + size, len(windows.ids))))
        trees = [text_tree([windows.ids[i]], [(0, windows.scored[i])]) for i in numbers]
        yield Rows(trees, numbers, [np.arange(len(tree.read_node)) for tree in trees])
