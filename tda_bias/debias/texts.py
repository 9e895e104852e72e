"""Triples and their twins as a training loop reads them, and the terms of its loss.

The gap of an item is

    [m(s) - m(a)] - mean over twins of [m(s') - m(a')]

with m the mean log-probability of a continuation's tokens: beta per token. Its Huber loss is even:
which of the two continuations is the stereotype makes no difference to it. What holds the model
where it is: the true Kullback-Leibler divergence from the model as it was, over the real tokens of
other texts; and the squared change of each item's relatedness,

    [m(s) + m(a)] / 2 - m(u)

with u the unrelated continuation: what the language-model score counts.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence, Set
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.language_model import special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import (
    in_tiles,
    log_probs_with_gradients,
    refuse_undefined,
    token_log_probs,
)
from tda_bias.models.requests import as_trees
from tda_bias.models.scoring import Scorer, TreePass
from tda_bias.models.token_trees import (
    TokenTree,
    packed_rows,
    separate_paths,
    whole_trees,
)
from tda_bias.scores.stereoset import language_wins
from tda_bias.scores.texts import SplitTexts, split_triples
from tda_bias.types import InputError, Triple

# Where the Huber loss becomes linear, and what gaps are multiplied with before: typical ones are a
# tenth of a nat per token.
_DELTA, _SCALE = 0.5, 4.0


def gaps(
    means: Float[Tensor, "item 2"],
    twin_means: Float[Tensor, "twin 2"],
    twin_of: Int[Tensor, " twin"],
) -> Float[Tensor, " item"]:
    """The gap of every item, nats per token.

    Means are of the stereotype and the anti-stereotype continuation; every item has a twin or more.
    """
    gap = means[:, 0] - means[:, 1]
    twins = twin_means[:, 0] - twin_means[:, 1]
    number = torch.bincount(twin_of, minlength=len(gap)).to(gap)
    total = torch.zeros_like(gap).index_add(0, twin_of, twins)
    return gap - total / number


def relatedness(means: Float[Tensor, "item 3"]) -> Float[Tensor, " item"]:
    """Log-odds of an item's two related continuations against its unrelated one, nats per token."""
    return means[:, :2].mean(-1) - means[:, 2]


def anchor(now: Float[Tensor, " item"], before: Float[Tensor, " item"]) -> Float[Tensor, ""]:
    """Mean squared change of the items' relatedness, nats per token squared."""
    return ((now - before) ** 2).mean()


def huber(gap: Float[Tensor, " item"]) -> Float[Tensor, " item"]:
    """Quadratic in small gaps (nats per token), linear in large ones, item by item."""
    scaled = _SCALE * gap
    return torch.nn.functional.huber_loss(
        scaled, torch.zeros_like(scaled), reduction="none", delta=_DELTA
    )


def divergence(
    before: Float[Tensor, "token vocabulary"], after: Float[Tensor, "token vocabulary"]
) -> Float[Tensor, ""]:
    """KL(before || after) of logits, mean over tokens, nats."""
    of_tiles = []
    for tile in zip(in_tiles(before), in_tiles(after), strict=True):
        log_p, log_q = (torch.log_softmax(logits, -1) for logits in tile)
        of_tiles.append((log_p.exp() * (log_p - log_q)).sum(-1))
    return torch.cat(of_tiles).mean()


# -- items with twins ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """Answers of a model to items, nats.

    Attributes:
        gap: Beta per token; without twins the log-odds per token.
        total: The same of sums over tokens.
        odds: Log-odds per token.
        language: Share of the two comparisons with the unrelated text that are won, by sums.
        language_per_token: The same by means over tokens.
        relatedness: Per token.
    """

    gap: Float[np.ndarray, " item"]
    total: Float[np.ndarray, " item"]
    odds: Float[np.ndarray, " item"]
    language: Float[np.ndarray, " item"]
    language_per_token: Float[np.ndarray, " item"]
    relatedness: Float[np.ndarray, " item"]

    @classmethod
    def together(cls, parts: Sequence[Answers]) -> Answers:
        """Items of several parts, one after the other; of no part none."""
        listed = ([getattr(part, own.name) for part in parts] for own in fields(cls))
        return cls(*(np.concatenate([np.zeros(0), *arrays]) for arrays in listed))


@dataclass(frozen=True)
class Means:
    """Mean log-probabilities of continuations, with what a backward pass needs.

    Attributes:
        originals: Of the items, nats per token; without the unrelated continuation two columns.
        twins: The same of all twins.
        twin_of: The place of the item that each twin belongs to.
    """

    originals: Float[Tensor, "item part"]
    twins: Float[Tensor, "twin part"]
    twin_of: Int[Tensor, " twin"]

    def gaps(self, *, exchanged: bool = False) -> Float[Tensor, " item"]:
        """The gap of every item; without twins the plain difference of the two continuations.

        With the two continuations of the twins ``exchanged`` what is left is wording, and what is
        about the target cancels.
        """
        if not len(self.twins):
            return self.originals[:, 0] - self.originals[:, 1]
        twins = self.twins[:, :2]
        return gaps(self.originals, twins.flip(1) if exchanged else twins, self.twin_of)


# A triple or a twin: its tokens, and which continuation each of their readings belongs to.
_Text = tuple[TokenTree, Int[np.ndarray, " reading"]]


def _texts(model: LanguageModel, split: Sequence[SplitTexts]) -> list[_Text]:
    trees, _ = as_trees(model, [triple.request() for triple in split])
    return [(tree, own.parts(tree)) for own, tree in zip(split, trees, strict=True)]


class TwinTexts:
    """Items with their twins, at least one each unless there are none at all.

    Where no gradient is needed, ``batch_size`` texts are read in a forward pass.

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
        self._split = split_triples(model, [*triples, *others])
        self._whole = _texts(model, self._split)
        self._pairs = _texts(model, [triple.first(2) for triple in self._split])
        self._batch_size = batch_size
        self._scorer = Scorer(model, batch_size=batch_size, texts_per_tree=3)
        self._scorer.check_sharing([tree for tree, _ in self._whole])

    def __len__(self) -> int:
        return len(self.triples)

    def without(self, targets: Set[str]) -> TwinTexts:
        """The same items without the twins that are about some targets."""
        kept = copy.copy(self)
        about = [twin.group in targets for its_twins in self.twins for twin in its_twins]
        kept.twins = tuple(
            tuple(twin for twin in its_twins if twin.group not in targets)
            for its_twins in self.twins
        )
        kept._twin_of = np.where(about, -1, self._twin_of)
        return kept

    def means(self, items: Sequence[int], *, unrelated: bool = False) -> Means:
        """Mean log-probabilities of continuations of items (by number), with gradients."""
        texts, twin_of = self._texts_of(items, twins=self.has_twins)
        n = len(items)
        means, _ = self._means(texts, n if unrelated else 0)
        return Means(
            means[:n, : 3 if unrelated else 2],
            means[n:],
            torch.from_numpy(twin_of).to(means.device),
        )

    def sequences(self, item: int) -> list[tuple[list[int], list[int]]]:
        """Token ids of an item's related texts, each beside those of the same text of a twin."""
        own, leading = self._split[item], special_tokens_around(self.model.tokenizer)[0]
        twins = [self._split[i] for i in self._texts_of([item], twins=True)[0][1:]]
        return [
            ([*leading, *own.ids[role]], [*leading, *twin.ids[role]])
            for twin in twins
            for role in (0, 1)
        ]

    def answers(self, items: Sequence[int]) -> Answers:
        """Answers of the model to some items, as it is now.

        Raises:
            InputError: if a log-probability is NaN.
        """
        n = max(1, self._batch_size // 6)  # of the item's and a twin's three texts
        batches = [self._answers(items[start : start + n]) for start in range(0, len(items), n)]
        refuse_undefined(self.model, [batch.gap for batch in batches])
        return Answers.together(batches)

    def _answers(self, items: Sequence[int]) -> Answers:
        texts, twin_of = self._texts_of(items, twins=self.has_twins)
        n = len(items)
        with torch.no_grad():
            mean, count = (values.cpu() for values in self._means(texts, n))
        of = torch.from_numpy(twin_of)
        per_token = Means(mean[:n].double(), mean[n:].double(), of)
        sums = Means(per_token.originals * count[:n], per_token.twins * count[n:], of)
        return Answers(
            gap=per_token.gaps().numpy(),
            total=sums.gaps().numpy(),
            odds=(per_token.originals[:, 0] - per_token.originals[:, 1]).numpy(),
            language=language_wins(*sums.originals.numpy().T),
            language_per_token=language_wins(*per_token.originals.numpy().T),
            relatedness=relatedness(per_token.originals).numpy(),
        )

    def _texts_of(
        self, items: Sequence[int], *, twins: bool
    ) -> tuple[list[int], Int[np.ndarray, " twin"]]:
        """Numbers of items' texts and after them of their twins', and whose twins those are."""
        numbers, twin_of = list(items), []
        for place, item in enumerate(items if twins else ()):
            its_twins = np.flatnonzero(self._twin_of == item)
            numbers += [len(self.triples) + int(i) for i in its_twins]
            twin_of += [place] * len(its_twins)
        return numbers, np.array(twin_of, dtype=np.int64)

    def _means(
        self, texts: Sequence[int], n_whole: int
    ) -> tuple[Float[Tensor, "text 3"], Int[Tensor, "text 3"]]:
        """Mean log-probability of every continuation of every text, and its tokens; 0 of none.

        The first texts are read with their unrelated continuation, the others without.
        """
        used = [self._whole[i] if n < n_whole else self._pairs[i] for n, i in enumerate(texts)]
        trees, parts = [tree for tree, _ in used], [part for _, part in used]
        packed = self._scorer.packed
        rows = whole_trees(trees) if packed else separate_paths(trees)
        tree_pass = self._scorer.pass_of(rows, packed_rows(rows.rows) if packed else None)
        values = self._log_probs(tree_pass)
        slots = [
            3 * tree + parts[tree][reading]
            for tree, reading in zip(tree_pass.tree, tree_pass.readings, strict=True)
        ]
        slot = torch.from_numpy(np.concatenate(slots)).to(values.device)
        count = torch.bincount(slot, minlength=3 * len(used))
        total = values.new_zeros(3 * len(used)).index_add(0, slot, values)
        mean = total / count.clamp_min(1)
        return mean.view(-1, 3), count.view(-1, 3)

    def _log_probs(self, tree_pass: TreePass) -> Float[Tensor, " reading"]:
        """The readings of a pass, with gradients where these are wanted."""
        reading = tree_pass.inputs, tree_pass.places, tree_pass.place, tree_pass.token
        if torch.is_grad_enabled():
            return log_probs_with_gradients(self.model.hf_model, *reading)
        read = token_log_probs(self.model.hf_model, *reading)
        return torch.from_numpy(read).to(self.model.device)
