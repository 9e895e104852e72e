"""Forward passes to attention patterns: the only file of the package that runs a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.patterns.example import ExamplePattern
from tda_bias.patterns.passes import ForwardPass, TokenizedTriple, forward_passes, tokenize
from tda_bias.types import Attention, InputError, Triple

if TYPE_CHECKING:
    from tda_bias.models.load import LoadedModel

# Patterns of running a shared prefix once must equal the plain run's to this.
SHARING_TOLERANCE = 1e-5
# Layers of one forward pass are handed on together up to this many pattern elements.
_STASH_ELEMENTS = 16_000_000


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
    """

    def __init__(self, model: LoadedModel, *, batch_size: int) -> None:
        self._model = model
        self._batch_size = batch_size
        self._direction_checked = False
        self._rows = self._fresh_check()

    def _fresh_check(self) -> RowCheck:
        half = self._model.dtype.itemsize < 4
        return RowCheck(tolerance=2e-2 if half else 1e-4)

    def read(
        self,
        triples: Sequence[TokenizedTriple],
        consume: Callable[[PatternBatch], None],
        *,
        shared: bool,
        after_pass: Callable[[int], None] | None = None,
    ) -> RowCheck:
        """Every text's patterns, once.

        Args:
            triples: The texts.
            consume: Called inside the forward pass; what it does not keep is gone afterwards.
            shared: Run common prefixes once; only where ``sharing_difference`` is small.
            after_pass: Called with the number of texts done.

        Returns:
            The check of the row sums of everything read.

        Raises:
            InputError: on NaN or infinite patterns, or if the model shows attention to later
                tokens though it should not.
        """
        self._rows = self._fresh_check()
        passes = forward_passes(
            triples, batch_size=self._batch_size, shared=shared, mask_dtype=self._model.dtype
        )
        for one in passes:
            self._run(one, consume)
            if after_pass is not None:
                after_pass(len(one.text))
        return self._rows

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
        names = list(hooks)
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
            done = hook.name == names[-1]
            if done or len(stash) * found.numel() >= _STASH_ELEMENTS:
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
        self._rows.checked += int(inside.sum()) * patterns.shape[1]
        self._rows.worst = max(self._rows.worst, worst)
        if worst > self._rows.tolerance:
            failed = int(((off > self._rows.tolerance) & inside[:, None, :]).sum())
            self._rows.failed[layer] = self._rows.failed.get(layer, 0) + failed


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


def example_pattern(model: LoadedModel, triple: Triple) -> ExamplePattern:
    """The patterns of a triple's stereotype text.

    Raises:
        InputError: if the text is too long for the model.
    """
    tokenized = tokenize(model.tokenizer, [triple], max_tokens=model.max_tokens)
    layers: list[torch.Tensor] = []

    def keep(batch: PatternBatch) -> None:
        row = batch.text.tolist().index(0)
        n = int(batch.length[row])
        layers.append(batch.patterns[row, :, :, :n, :n].float().cpu().clone())

    PatternReader(model, batch_size=3).read(tokenized, keep, shared=False)
    ids = tokenized[0].ids[0]
    return ExamplePattern(
        model=model.name,
        group=triple.group,
        text=triple.texts()[0],
        tokens=tuple(model.tokenizer.decode([token]).strip() for token in ids),
        attention=model.attention,
        patterns=torch.cat(layers).numpy(),
    )
