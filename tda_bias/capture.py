"""Texts to attention patterns: the only file of the package that runs a model.

The three texts of a triple begin with the same tokens. Where a model allows it exactly, a triple is
run as one sequence: the common prefix once, then the three continuations, each with the positions
it would have had and blind to the other two. A text is then a list of places in that sequence, and
its pattern the matching rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.types import Attention, InputError, Triple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tda_bias.models import LoadedModel

# Patterns of running a shared prefix once must equal the plain run's to this.
SHARING_TOLERANCE = 1e-5
# A forward pass costs about as much on top as running so many more tokens.
_PASS_COST = 40
# Layers of one forward pass are handed on together up to this many pattern elements.
_STASH_ELEMENTS = 16_000_000


@dataclass(frozen=True)
class TokenizedTriple:
    """Token ids of a triple's texts, in the order of ``ROLES``.

    Attributes:
        ids: The three lists of token ids, special tokens included.
        prefix: Number of leading tokens that all three share.
    """

    ids: tuple[list[int], list[int], list[int]]
    prefix: int

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Tokens of each text."""
        return tuple(len(ids) for ids in self.ids)

    @property
    def n_packed(self) -> int:
        """Tokens when the prefix is run once."""
        return sum(self.n_tokens) - 2 * self.prefix


def tokenize(
    tokenizer: PreTrainedTokenizerBase, triples: Sequence[Triple], *, max_tokens: int | None
) -> list[TokenizedTriple]:
    """Token ids of all texts, with the tokenizer's own special tokens.

    Raises:
        InputError: if a text has no token, or more than ``max_tokens``; nothing is truncated.
    """
    texts = [text for triple in triples for text in triple.texts()]
    ids = tokenizer(texts, truncation=False, verbose=False)["input_ids"] if texts else []
    result = []
    for index, triple in enumerate(triples):
        first, second, third = ids[3 * index : 3 * index + 3]
        for one in (first, second, third):
            if not one:
                raise InputError(f"{triple.source}: the tokenizer makes no token of a text")
            if max_tokens is not None and len(one) > max_tokens:
                raise InputError(
                    f"{triple.source} (group {triple.group}): a text has {len(one)} tokens, the "
                    f"model takes {max_tokens}; nothing is truncated, leave the item out"
                )
        result.append(TokenizedTriple((first, second, third), _common_prefix(first, second, third)))
    return result


def _common_prefix(*sequences: list[int]) -> int:
    length = 0
    for tokens in zip(*sequences, strict=False):
        if len(set(tokens)) > 1:
            break
        length += 1
    return length


# -- forward passes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForwardPass:
    """One batch: what goes into the model, and where its texts stand in it.

    Attributes:
        ids: Token ids, padded on the right.
        attention_mask: 1 for tokens and 0 for padding ``(row, token)``, or an additive mask
            ``(row, 1, query, key)``.
        position_ids: Positions, or None for the model's own.
        text: Index of each text among all texts of the run (3 * triple + role), row by row, the
            same number in every row.
        length: ``(text,)`` numbers of tokens.
        place: ``(text, token)`` places of a text's tokens in its row; beyond its length, anything.
            None where each row is one text.
    """

    ids: Int[Tensor, "row token"]
    attention_mask: Tensor
    position_ids: Int[Tensor, "row token"] | None
    text: Int[Tensor, " text"]
    length: Int[Tensor, " text"]
    place: Int[Tensor, "text token"] | None


def forward_passes(
    triples: Sequence[TokenizedTriple],
    *,
    batch_size: int,
    shared: bool,
    mask_dtype: torch.dtype = torch.float32,
) -> Iterator[ForwardPass]:
    """Batches of similar length that together hold every text once.

    Args:
        triples: The texts.
        batch_size: Texts per pass, at least 1.
        shared: Run each triple's common prefix once; a row then holds three texts.
        mask_dtype: Type of the additive mask, the model's.
    """
    if shared:
        for chosen in _batches([t.n_packed for t in triples], max(1, batch_size // 3)):
            yield _packed_pass(triples, chosen, mask_dtype)
        return
    ids = [one for triple in triples for one in triple.ids]
    for chosen in _batches([len(one) for one in ids], batch_size):
        yield _plain_pass(ids, chosen)


def _batches(widths: list[int], most: int) -> list[list[int]]:
    """Rows of similar width together: the cheapest cut of their sorted list, padding included."""
    order = sorted(range(len(widths)), key=widths.__getitem__)
    cost, start = [0.0], [0]
    for end in range(1, len(order) + 1):
        widest = widths[order[end - 1]]
        options = [
            (cost[first] + widest * (end - first) + _PASS_COST, first)
            for first in range(max(0, end - most), end)
        ]
        best, first = min(options)
        cost.append(best)
        start.append(first)
    batches, end = [], len(order)
    while end:
        batches.append(order[start[end] : end])
        end = start[end]
    return batches[::-1]


def _plain_pass(ids: list[list[int]], chosen: list[int]) -> ForwardPass:
    length = torch.tensor([len(ids[i]) for i in chosen])
    padded = torch.zeros(len(chosen), int(length.max()), dtype=torch.long)
    for row, index in enumerate(chosen):
        padded[row, : len(ids[index])] = torch.tensor(ids[index])
    return ForwardPass(
        ids=padded,
        attention_mask=(torch.arange(padded.shape[1]) < length[:, None]).long(),
        position_ids=None,
        text=torch.tensor(chosen),
        length=length,
        place=None,
    )


def _packed_pass(
    triples: Sequence[TokenizedTriple], chosen: list[int], mask_dtype: torch.dtype
) -> ForwardPass:
    width = max(triples[i].n_packed for i in chosen)
    longest = max(max(triples[i].n_tokens) for i in chosen)
    ids = torch.zeros(len(chosen), width, dtype=torch.long)
    position = torch.zeros_like(ids)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(chosen), 1, 1)
    place = torch.zeros(3 * len(chosen), longest, dtype=torch.long)
    for row, index in enumerate(chosen):
        triple, end = triples[index], triples[index].prefix
        for role, one in enumerate(triple.ids):
            own = len(one) - triple.prefix
            where = torch.cat([torch.arange(triple.prefix), torch.arange(end, end + own)])
            ids[row, where] = torch.tensor(one)
            position[row, where] = torch.arange(len(one))
            causal = torch.ones(len(one), len(one), dtype=torch.bool).tril()
            visible[row, where[:, None], where] |= causal
            place[3 * row + role, : len(one)] = where
            end += own
    return ForwardPass(
        ids=ids,
        attention_mask=torch.zeros(visible.shape, dtype=mask_dtype)
        .masked_fill_(~visible, torch.finfo(mask_dtype).min)
        .unsqueeze(1),
        position_ids=position,
        text=torch.tensor([3 * index + role for index in chosen for role in range(3)]),
        length=torch.tensor([n for index in chosen for n in triples[index].n_tokens]),
        place=place,
    )


# -- patterns --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PatternBatch:
    """Patterns of several layers of one forward pass.

    Attributes:
        first_layer: Index, among the layers with attention, of the first one here.
        patterns: ``(text, layer, head, query, key)``; beyond a text's length, anything.
        text: As in ``ForwardPass``.
        length: As in ``ForwardPass``, on the CPU.
    """

    first_layer: int
    patterns: Float[Tensor, "text layer head query key"]
    text: Int[Tensor, " text"]
    length: Int[Tensor, " text"]


@dataclass
class RowCheck:
    """Counts of attention rows that do not sum to 1, which half precision and sinks produce.

    Attributes:
        tolerance: Largest allowed distance from 1.
        failed: Layer to number of (text, head, query) rows outside.
        checked: Rows looked at.
        worst: Largest distance seen.
    """

    tolerance: float
    failed: dict[int, int] = field(default_factory=dict)
    checked: int = 0
    worst: float = 0.0


class PatternReader:
    """Runs a model over tokenised triples and hands its patterns on, batch by batch.

    Args:
        model: The model.
        batch_size: Texts per forward pass.

    Attributes:
        rows: The check of row sums over everything read so far.
        n_heads: Heads per layer, known after the first batch.
    """

    def __init__(self, model: LoadedModel, *, batch_size: int) -> None:
        self._model = model
        self._batch_size = batch_size
        self._direction_checked = False
        half = model.dtype.itemsize < 4
        self.rows = RowCheck(tolerance=2e-2 if half else 1e-4)

    def read(
        self,
        triples: Sequence[TokenizedTriple],
        consume: Callable[[PatternBatch], None],
        *,
        shared: bool,
        after_pass: Callable[[int], None] | None = None,
    ) -> None:
        """Every text's patterns, once.

        Args:
            triples: The texts.
            consume: Called inside the forward pass; what it does not keep is gone afterwards.
            shared: Run common prefixes once; only where ``sharing_difference`` is small.
            after_pass: Called with the number of texts done.

        Raises:
            InputError: on NaN or infinite patterns, or if the model shows attention to later
                tokens though it should not.
        """
        passes = forward_passes(
            triples, batch_size=self._batch_size, shared=shared, mask_dtype=self._model.dtype
        )
        for one in passes:
            self._run(one, consume)
            if after_pass is not None:
                after_pass(len(one.text))

    def sharing_difference(self, triples: Sequence[TokenizedTriple]) -> float:
        """Largest difference of any pattern entry between a shared and a plain run.

        Measured on the triple that makes the longest sequence, where limited attention windows
        would show first.

        Returns:
            NaN if the model refuses such input.
        """
        probe = max(triples, key=lambda t: t.n_packed)
        found: list[dict[int, Tensor]] = []
        for shared in (True, False):
            patterns: dict[int, Tensor] = {}

            def keep(batch: PatternBatch, patterns: dict[int, Tensor] = patterns) -> None:
                for index, text in enumerate(batch.text.tolist()):
                    n = int(batch.length[index])
                    kept = batch.patterns[index, :, :, :n, :n].clone()
                    previous = patterns.get(text)
                    patterns[text] = kept if previous is None else torch.cat([previous, kept])

            try:
                self.read([probe], keep, shared=shared)
            except Exception:  # whatever a model raises at a mask it does not know
                if not shared:
                    raise
                return math.nan
            found.append(patterns)
        return max(float((found[0][t] - found[1][t]).abs().max()) for t in found[0])

    def _run(self, one: ForwardPass, consume: Callable[[PatternBatch], None]) -> None:
        from transformer_lens.model_bridge.exceptions import StopAtLayerException

        device = self._model.device
        hooks = self._model.pattern_hooks
        names, last = list(hooks), list(hooks)[-1]
        stash: list[Tensor] = []
        seen = 0

        def take(pattern: Tensor, hook: Any) -> None:
            nonlocal seen
            found = self._texts(pattern, one, hooks[hook.name])
            if stash and stash[-1].shape != found.shape:
                raise InputError(
                    f"`model` {self._model.name}: its layers differ in number of heads"
                )
            stash.append(found)
            seen += 1
            done = hook.name == last
            if done or sum(p.numel() for p in stash) >= _STASH_ELEMENTS:
                patterns = torch.stack(stash, dim=1)
                stash.clear()
                first = seen - patterns.shape[1]
                consume(PatternBatch(first, patterns, one.text, one.length))
            if done:  # nothing after the last pattern is needed, least of all the logits
                raise StopAtLayerException(pattern)

        inputs: dict[str, Any] = {"attention_mask": one.attention_mask.to(device)}
        if one.position_ids is not None:
            inputs["position_ids"] = one.position_ids.to(device)
        with torch.inference_mode():
            self._model.bridge.run_with_hooks(
                one.ids.to(device),
                fwd_hooks=[(name, take) for name in names],
                return_type=None,
                use_cache=False,
                **inputs,
            )
        if seen != len(names):
            raise InputError(
                f"`model` {self._model.name} gave patterns for {seen} of {len(names)} layers; "
                "its attention cannot be hooked"
            )

    def _texts(self, pattern: Tensor, one: ForwardPass, layer: int) -> Tensor:
        """The patterns of one layer, a text each, cropped and checked."""
        n = int(one.length.max())
        if one.place is None:
            cropped = pattern[:, :, :n, :n]
        else:
            rows, heads, _, width = pattern.shape
            place = one.place.to(pattern.device)
            entry = place[:, :, None] * width + place[:, None, :]
            entry = entry.reshape(rows, 1, -1).expand(-1, heads, -1)
            cropped = pattern.flatten(2).gather(2, entry).reshape(rows, heads, -1, n, n)
            cropped = cropped.transpose(1, 2).flatten(0, 1)
        self._check(cropped, one.length.to(pattern.device), layer)
        return cropped

    def _check(self, patterns: Tensor, length: Tensor, layer: int) -> None:
        inside = torch.arange(patterns.shape[-1], device=length.device) < length[:, None]
        if not self._direction_checked and self._model.attention == "causal":
            later = patterns.triu(1) * inside[:, None, :, None] * inside[:, None, None, :]
            if float(later.abs().max()) > 0:
                raise InputError(
                    f"`model` {self._model.name} attends to later tokens though it is causal"
                )
            self._direction_checked = True
        sums = (patterns @ inside[:, None, :, None].to(patterns.dtype)).squeeze(-1)
        off = torch.where(inside[:, None, :], (sums - 1.0).abs(), 0.0)
        worst = float(off.max())
        if not math.isfinite(worst):
            texts = int((~torch.isfinite(off).flatten(1).all(1)).sum())
            raise InputError(
                f"attention patterns of layer {layer} are NaN or infinite for {texts} of "
                f"{len(off)} texts of a batch; run with --dtype float32"
            )
        self.rows.checked += int(inside.sum()) * patterns.shape[1]
        self.rows.worst = max(self.rows.worst, worst)
        if worst > self.rows.tolerance:
            failed = int(((off > self.rows.tolerance) & inside[:, None, :]).sum())
            self.rows.failed[layer] = self.rows.failed.get(layer, 0) + failed


def prefix_sharing(
    reader: PatternReader, triples: Sequence[TokenizedTriple], attention: Attention
) -> tuple[bool, str]:
    """Whether common prefixes can be run once, and why or why not, for the run record."""
    if attention == "bidirectional":
        return False, "off: later tokens change the patterns of earlier ones"
    if max((t.prefix for t in triples), default=0) == 0:
        return False, "off: no triple's texts begin alike"
    difference = reader.sharing_difference(triples)
    if math.isnan(difference):
        return False, "off: the model does not take the attention mask it needs"
    if difference > SHARING_TOLERANCE:
        return False, f"off: patterns differ by {difference:.1e} from the plain run"
    return True, f"on: patterns equal the plain run's to {difference:.1e}"
