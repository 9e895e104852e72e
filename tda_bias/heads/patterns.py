"""Forward passes to attention patterns: texts in, patterns out, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, assert_never

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tda_bias.heads.texts import ContextTexts, ForwardPass, forward_passes
from tda_bias.models.hooked import run_bridge
from tda_bias.types import Edges, InputError

if TYPE_CHECKING:
    from tda_bias.models.load import LoadedModel

# Patterns of running a shared prefix once must equal the plain run's to this.
SHARING_TOLERANCE = 1e-5
# Pattern entries of all layers and heads that one forward pass makes, unless one text has more.
MOST_PASS_ELEMENTS = 32_000_000


@dataclass(frozen=True)
class PatternBatch:
    """Patterns of all layers of one forward pass; beyond a text's length, anything."""

    patterns: Float[Tensor, "text layer head query key"]
    text: Int[Tensor, " text"]
    length: Int[Tensor, " text"]


@dataclass
class RowCheck:
    """Attention rows that do not sum to 1, which half precision and sinks produce, by layer.

    ``worst`` is the largest distance from 1, ``tolerance`` the largest that is allowed.
    """

    tolerance: float
    failed: dict[int, int] = field(default_factory=dict)
    worst: float = 0.0


class PatternReader:
    """Runs a model over texts and gives their patterns, batch by batch.

    Args:
        model: The model.
        batch_size: Texts per forward pass.
        probes: Contexts to find out on, before the first text is read, whether the tokens that a
            context's texts share can be run once; without any, every text is run alone.
        edges: ``attention``, or ``output``: times the norm of what the head writes from each token.

    Attributes:
        rows: The check of the row sums of everything read; set it to a new one to count anew.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        batch_size: int,
        probes: Sequence[ContextTexts] = (),
        edges: Edges = "attention",
    ) -> None:
        self.model = model
        alone = model.eager is not None and not model.eager.takes_padding
        self._batch_size = 1 if alone else batch_size
        self._direction_checked = False
        match edges:
            case "attention":
                self._writers: HeadWriters | None = None
            case "output":
                self._writers = HeadWriters(model)
            case _:
                assert_never(edges)
        self._probes = probes
        self.rows = RowCheck(2e-2 if model.dtype.itemsize < 4 else 1e-4)

    @cached_property
    def sharing(self) -> str:
        """``on`` or ``off``, and why: found out when it is first asked for.

        Measured on the probe with the longest text and on the one with the longest sequence, where
        limited attention windows show first.
        """
        if not self._probes:
            return "off: not probed"
        if self.model.attention == "bidirectional":
            return "off: later tokens change the patterns of earlier ones"
        if max(context.prefix for context in self._probes) == 0:
            return "off: no triple's texts begin alike"
        longest = max(self._probes, key=lambda context: max(context.n_tokens))
        widest = max(self._probes, key=lambda context: context.n_packed)
        difference = 0.0
        for probe in [longest] if widest is longest else [longest, widest]:
            plain = self._patterns_of(probe, shared=False)
            try:
                shared = self._patterns_of(probe, shared=True)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                return f"off: {_why_refused(error)}"
            of_probe = max(float((shared[text] - plain[text]).abs().max()) for text in plain)
            if of_probe > SHARING_TOLERANCE:
                return f"off: patterns differ by {of_probe:.1e} from the plain run"
            difference = max(difference, of_probe)
        return f"on: patterns equal the plain run's to {difference:.1e}"

    def _patterns_of(
        self, context: ContextTexts, *, shared: bool
    ) -> dict[int, Float[Tensor, "layer head query key"]]:
        patterns = {}
        for batch in self.read([context], shared=shared):
            for index, (text, n) in enumerate(
                zip(batch.text.tolist(), batch.length.tolist(), strict=True)
            ):
                patterns[text] = batch.patterns[index, :, :, :n, :n].clone()
        return patterns

    def read(
        self, contexts: Sequence[ContextTexts], *, shared: bool | None = None
    ) -> Iterator[PatternBatch]:
        """Every text's patterns, once.

        Args:
            contexts: The texts, as many of each context.
            shared: Whether a context's common prefix is run once; None: as ``sharing`` says.

        Raises:
            InputError: on NaN or infinite patterns, or if the model shows attention to later
                tokens though it should not.
        """
        if shared is None:
            shared = self.sharing.startswith("on")
        hooks = self.model.pattern_hooks
        passes = forward_passes(
            contexts,
            batch_size=self._batch_size,
            shared=shared,
            mask_dtype=self.model.dtype,
            most_patterns=MOST_PASS_ELEMENTS / (len(hooks) * self.model.n_heads),
        )
        for forward_pass in passes:
            yield PatternBatch(self._run(forward_pass), forward_pass.text, forward_pass.length)

    def _run(self, forward_pass: ForwardPass) -> Float[Tensor, "text layer head query key"]:
        device, hooks = self.model.device, self.model.pattern_hooks
        # One array from the start: stacking layers would hold all of them twice.
        patterns = torch.empty(0)
        seen = 0
        faults: dict[int, Tensor] = {}
        causal = self.model.attention == "causal"
        inside = torch.arange(int(forward_pass.length.max())) < forward_pass.length[:, None]

        def take(pattern: Tensor, number: int) -> None:
            nonlocal patterns, seen, inside
            layer = _per_text(pattern, forward_pass)
            inside = inside.to(layer.device)
            direction = causal and not self._direction_checked
            faults[number] = _faults(layer, inside, self.rows.tolerance, direction=direction)
            if self._writers is not None:
                written = self._writers.norms(number)
                layer = layer * _per_text(written, forward_pass)[:, :, None]
            if not seen:
                patterns = layer.new_empty((len(layer), len(hooks), *layer.shape[1:]))
            elif layer.shape != patterns[:, 0].shape:
                raise InputError(f"`model` {self.model.name}: its layers differ in number of heads")
            patterns[:, seen] = layer
            seen += 1

        inputs: dict[str, Any] = {"attention_mask": forward_pass.attention_mask.to(device)}
        if forward_pass.position_ids is not None:
            inputs["position_ids"] = forward_pass.position_ids.to(device)
        ids = forward_pass.ids.to(device)
        with torch.inference_mode():
            if self.model.eager is not None:
                self.model.eager.run(ids, take, **inputs)
            else:
                also = self._writers.hooks if self._writers is not None else ()
                run_bridge(self.model.bridge, hooks, ids, take, also=also, **inputs)
            if seen != len(hooks):
                raise InputError(
                    f"`model` {self.model.name} gave patterns for {seen} of {len(hooks)} layers; "
                    "its attention cannot be hooked"
                )
            self._check(faults, forward_pass.length)
            return patterns

    def _check(self, faults: Mapping[int, Tensor], length: Int[Tensor, " text"]) -> None:
        """Check the rows of a pass, and note the worst; only here is the device waited for."""
        for layer, of_layer in faults.items():
            worst, failed, undefined, later = of_layer.tolist()
            if later > 0:
                raise InputError(
                    f"`model` {self.model.name} attends to later tokens though it is causal"
                )
            if undefined:
                raise InputError(
                    f"attention patterns of layer {layer} are NaN or infinite for {undefined:.0f} "
                    f"of {len(length)} texts of a batch; run with --dtype float32"
                )
            self.rows.worst = max(self.rows.worst, worst)
            if failed:
                self.rows.failed[layer] = self.rows.failed.get(layer, 0) + int(failed)
        self._direction_checked = True


def _faults(
    patterns: Float[Tensor, "text head query key"],
    inside: Bool[Tensor, "text token"],
    tolerance: float,
    *,
    direction: bool,
) -> Float[Tensor, "4"]:
    """Faults in the patterns of a layer, still on its device.

    Largest distance of a row's sum from 1, number of rows beyond the tolerance, number of texts
    with NaN or infinities, and, where the direction counts, largest attention to a later token.
    """
    sums = (patterns @ inside[:, None, :, None].to(patterns.dtype)).squeeze(-1)
    off = torch.where(inside[:, None, :], (sums - 1.0).abs(), 0.0)
    later = off.new_zeros(())
    if direction:
        both = inside[:, None, :, None] & inside[:, None, None, :]
        later = torch.where(both, patterns.triu(1), 0.0).abs().max()
    values = (
        off.max(),
        ((off > tolerance) & inside[:, None, :]).sum(),
        (~torch.isfinite(off).flatten(1).all(1)).sum(),
        later,
    )
    return torch.stack([value.float() for value in values])


def _per_text(values: Tensor, forward_pass: ForwardPass) -> Tensor:
    """Values of a row's tokens ``(row, head, token)``, or of pairs of them, text by text."""
    n, axes = int(forward_pass.length.max()), values.ndim - 2
    if forward_pass.place is None:
        return values[:, :, :n] if axes == 1 else values[:, :, :n, :n]
    place = forward_pass.place.to(values.device)
    if axes == 2:
        place = place[:, :, None] * values.shape[-1] + place[:, None, :]
    rows, heads = values.shape[:2]
    entry = place.reshape(rows, 1, -1).expand(-1, heads, -1)
    chosen = values.flatten(2).gather(2, entry).reshape(rows, heads, -1, *[n] * axes)
    return chosen.transpose(1, 2).flatten(0, 1)


def _why_refused(error: Exception) -> str:
    """Why a run with the mask that sharing needs failed where the plain run did not."""
    if isinstance(error, InputError):
        return f"with the mask it needs, {error}"
    first_line = str(error).strip().split("\n")[0][:100]
    if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in first_line:
        return "out of memory on the longest context"
    reason = f"{type(error).__name__}: {first_line}"
    return f"the model does not take the attention mask it needs ({reason})"


# -- edges weighted by what is written -------------------------------------------------------------


class HeadWriters:
    """The norms |v W_O| of every head, layer by layer; ``hooks`` take the values of a pass.

    Raises:
        InputError: if the values of a layer cannot be hooked, or its output matrix is not known.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._products: dict[int, Float[Tensor, "head value value"]] = {}
        self._values: dict[int, Float[Tensor, "row token head value"]] = {}
        self.hooks: list[tuple[str, Callable[..., None]]] = []
        if model.bridge is None:
            raise _unknown(model)
        for pattern, layer in model.pattern_hooks.items():
            stack, place, *_ = pattern.split(".")
            hook = pattern.replace("hook_pattern", "hook_v")
            try:
                matrix = getattr(model.bridge, stack)[int(place)].attn.W_O.detach()
                known = hook in model.bridge.hook_dict
            except (AttributeError, IndexError):
                known = False
            if not known:
                raise _unknown(model)
            self._products[layer] = matrix.float() @ matrix.float().mT
            self.hooks.append((hook, partial(self._keep, layer)))

    def _keep(self, layer: int, value: Tensor, hook: Any) -> None:
        self._values[layer] = value

    def norms(self, layer: int) -> Float[Tensor, "row head token"]:
        """Norms of what every head writes from every token, in the pass whose values are here."""
        # Heads may share values (grouped queries).
        products, value = self._products[layer], self._values.pop(layer)
        shared = len(products) // value.shape[2]
        value = value.to(products.dtype).repeat_interleave(shared, dim=2).transpose(1, 2)
        squares = ((value @ products.to(value.device)) * value).sum(-1)
        return torch.sqrt(squares.clamp_min(0.0))


def _unknown(model: LoadedModel) -> InputError:
    return InputError(
        f"`model` {model.name} ({model.architecture}) does not show what its heads write; use "
        "--edges attention"
    )
