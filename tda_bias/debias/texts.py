"""Triples and their twins as a training loop reads them: gaps with gradients, and outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.debias.loss import LossName, gaps
from tda_bias.debias.stream import LowerLayers
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import logits_at, refuse_undefined, token_log_probs
from tda_bias.models.requests import as_trees
from tda_bias.models.scoring import Scorer, TreePass
from tda_bias.models.token_trees import (
    Grid,
    TokenTree,
    below_each_other,
    beside_each_other,
    separate_paths,
    whole_trees,
)
from tda_bias.scores.likelihood import SplitTriple, split_triples
from tda_bias.types import InputError, Triple


@dataclass(frozen=True)
class Outcomes:
    """Answers of a model to items, nats.

    Attributes:
        gap: Beta per token; without twins the log-odds per token.
        total: The same of sums over tokens.
        language: Share of the two comparisons with the unrelated text that are won, by sums.
    """

    gap: Float[np.ndarray, " item"]
    total: Float[np.ndarray, " item"]
    language: Float[np.ndarray, " item"]


@dataclass(frozen=True)
class _Text:
    """A triple or a twin as a tree of tokens, and which continuation each reading belongs to."""

    tree: TokenTree
    part: Int[np.ndarray, " reading"]


def _texts(model: LanguageModel, split: Sequence[SplitTriple]) -> list[_Text]:
    trees, _ = as_trees(model, [triple.request() for triple in split])
    return [_Text(tree, own.parts(tree)) for own, tree in zip(split, trees, strict=True)]


class TwinTexts:
    """Items with their twins, for a causal model.

    Args:
        model: A causal language model.
        triples: The items.
        twins: Per item its twins; at least one each, unless there are none at all.
        batch_size: Texts per forward pass, where no gradient is needed.

    Raises:
        InputError: if the model is no causal language model, some items have twins and others have
            none, or a text does not fit.
    """

    def __init__(
        self,
        model: LanguageModel,
        triples: Sequence[Triple],
        twins: Sequence[Sequence[Triple]],
        *,
        batch_size: int = 32,
    ) -> None:
        model.require_language_head()
        if model.kind != "causal":
            raise InputError(
                f"`model` {model.name} is a {model.kind} language model; only causal ones are "
                "trained"
            )
        with_twins = [bool(its_twins) for its_twins in twins]
        if not triples or (any(with_twins) and not all(with_twins)):
            raise InputError(
                "every item that is trained on or tested needs a twin, or none has one"
            )
        self.model = model
        self.triples = tuple(triples)
        self.twins = tuple(tuple(its_twins) for its_twins in twins)
        self.has_twins = any(with_twins)
        others = [twin for its_twins in twins for twin in its_twins]
        self._twin_of = np.repeat(np.arange(len(twins)), [len(its_twins) for its_twins in twins])
        split = split_triples(model, [*triples, *others])
        self._whole = _texts(model, split)
        self._pairs = _texts(model, [triple.first(2) for triple in split])
        self._batch_size = batch_size
        self._scorer = Scorer(model, batch_size=batch_size, texts_per_tree=3)
        self._scorer.check_sharing([text.tree for text in self._whole])

    def __len__(self) -> int:
        return len(self.triples)

    def gaps(
        self,
        items: Sequence[int],
        *,
        loss: LossName = "twins",
        exchanged: bool = False,
        below: LowerLayers | None = None,
    ) -> Float[Tensor, " item"]:
        """The gaps of some items, with what a backward pass needs.

        Args:
            items: Their numbers.
            loss: ``twins``, or ``equalise``: the plain difference of the two continuations.
            exchanged: Exchange the two continuations of the twins: what is left is wording, and
                what is about the target cancels.
            below: What is remembered of the layers that do not change.
        """
        texts, twin_of = self._texts_of(items, twins=loss == "twins" and self.has_twins)
        means, _ = self._means([self._pairs[i] for i in texts], texts, "pair", below, 2)
        originals, twins = means[: len(items)], means[len(items) :]
        if not len(twins):
            return originals[:, 0] - originals[:, 1]
        twins = twins.flip(1) if exchanged else twins
        return gaps(originals, twins, torch.from_numpy(twin_of).to(originals.device))

    def outcomes(self, items: Sequence[int], *, below: LowerLayers | None = None) -> Outcomes:
        """Answers of the model to some items, as it is now.

        Raises:
            InputError: if a log-probability is NaN.
        """
        batches = [
            self._outcomes(items[start : start + self._items_per_pass], below)
            for start in range(0, len(items), self._items_per_pass)
        ]
        refuse_undefined(self.model, [batch.gap for batch in batches])
        names = ("gap", "total", "language")
        return Outcomes(
            *(np.concatenate([getattr(batch, name) for batch in batches]) for name in names)
        )

    @property
    def _items_per_pass(self) -> int:
        return max(1, self._batch_size // 6)

    def _outcomes(self, items: Sequence[int], below: LowerLayers | None) -> Outcomes:
        texts, twin_of = self._texts_of(items, twins=self.has_twins)
        used = [self._whole[i] if n < len(items) else self._pairs[i] for n, i in enumerate(texts)]
        with torch.no_grad():
            mean, count = self._means(used, texts, "whole", below, 3)
        means, counts = mean.double().cpu().numpy(), count.cpu().numpy()
        sums = np.where(counts > 0, means * counts, 0.0)
        n = len(items)
        s, a, u = sums[:n].T
        return Outcomes(
            gap=_contrast(means, twin_of, n),
            total=_contrast(sums, twin_of, n),
            language=(np.sign(s - u) + np.sign(a - u) + 2) / 4,
        )

    def _texts_of(
        self, items: Sequence[int], *, twins: bool
    ) -> tuple[list[int], Int[np.ndarray, " twin"]]:
        """Numbers of items' texts and behind them of their twins', and whose twins those are."""
        numbers, twin_of = list(items), []
        for place, item in enumerate(items if twins else ()):
            its_twins = np.flatnonzero(self._twin_of == item)
            numbers += [len(self.triples) + int(i) for i in its_twins]
            twin_of += [place] * len(its_twins)
        return numbers, np.array(twin_of, dtype=np.int64)

    def _pass(self, trees: Sequence[TokenTree]) -> tuple[TreePass, Grid, list[int]]:
        """The pass, where its parts stand, and their lengths."""
        if self._scorer.packed:
            rows = whole_trees(trees)
            grid = beside_each_other(rows.rows)
        else:
            rows = separate_paths(trees)
            grid = below_each_other(rows.rows)
        return self._scorer.pass_of(rows, grid), grid, list(map(len, rows.rows))

    def _means(
        self,
        used: Sequence[_Text],
        texts: Sequence[int],
        kind: str,
        below: LowerLayers | None,
        n_parts: int,
    ) -> tuple[Float[Tensor, "text part"], Int[Tensor, "text part"]]:
        """Mean log-probability of every continuation of every text, and its tokens."""
        tree_pass, grid, lengths = self._pass([text.tree for text in used])
        with _skipping(below, tree_pass, grid, lengths, texts, kind):
            values = self._log_probs(tree_pass)
        device = values.device
        slots = [
            n_parts * tree + used[tree].part[reading]
            for tree, reading in zip(tree_pass.tree, tree_pass.readings, strict=True)
        ]
        slot = torch.from_numpy(np.concatenate(slots)).to(device)
        count = torch.bincount(slot, minlength=n_parts * len(used))
        total = values.new_zeros(n_parts * len(used)).index_add(0, slot, values)
        mean = total / count.clamp_min(1)
        return mean.view(-1, n_parts), count.view(-1, n_parts)

    def _log_probs(self, tree_pass: TreePass) -> Float[Tensor, " reading"]:
        """The readings of a pass, with gradients where these are wanted."""
        reading = tree_pass.inputs, tree_pass.places
        if not torch.is_grad_enabled():  # the logits of the whole vocabulary are never together
            read = token_log_probs(self.model.hf_model, *reading, tree_pass.place, tree_pass.token)
            return torch.from_numpy(read).to(self.model.device)
        logits = logits_at(self.model.hf_model, *reading, gradients=True)
        device = logits.device
        return torch.log_softmax(logits, -1)[
            torch.from_numpy(tree_pass.place).to(device),
            torch.from_numpy(tree_pass.token).to(device),
        ]


def _contrast(
    values: Float[np.ndarray, "text part"], twin_of: Int[np.ndarray, " twin"], n: int
) -> Float[np.ndarray, " item"]:
    difference = values[:, 0] - values[:, 1]
    if not len(twin_of):
        return np.asarray(difference[:n])
    mean = np.bincount(twin_of, difference[n:], n) / np.bincount(twin_of, minlength=n)
    return np.asarray(difference[:n] - mean)


def _skipping(
    below: LowerLayers | None,
    tree_pass: TreePass,
    grid: Grid,
    lengths: Sequence[int],
    texts: Sequence[int],
    kind: str,
) -> AbstractContextManager[None]:
    """The pass without the layers that do not change, each tree or path by its name."""
    if below is None:
        return nullcontext()
    seen: Counter[int] = Counter()
    names = []
    for tree, length in zip(tree_pass.tree, lengths, strict=True):
        names.append((kind, texts[tree], seen[tree], length))
        seen[tree] += 1
    return below.skipped(names, lengths, grid, tree_pass.inputs)
