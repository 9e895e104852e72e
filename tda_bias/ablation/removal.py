"""A model without some of its heads.

A head is removed by replacing its output, before the output projection, by a mean or by nothing.
Many sets are removed in one go: what sets share is run once (``removal_plan``), and networks that
begin at the same layer stand side by side in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.models.attention import AttentionLayer
from tda_bias.models.hooks import Computing, heads_changed, require_heads, stopped_before
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import token_log_probs
from tda_bias.models.scoring import TreePass
from tda_bias.types import HeadId, InputError, Precision


@dataclass
class Removal:
    """The network without some heads, all of them in one layer or below."""

    parent: int  # index of the network that it is up to that layer; -1 for the whole network
    layer: int  # the highest one that lacks heads; 0 for the whole network
    heads: tuple[int, ...]  # those that it lacks in that layer
    # The layers from which on other networks differ from it.
    branches: set[int] = field(default_factory=set)
    # Which of the sets it is without; none where others only begin with it.
    sets: list[int] = field(default_factory=list)


def by_layer_of(heads: Sequence[HeadId]) -> dict[int, list[int]]:
    """Numbers of the heads of each layer, each once, layers in order."""
    by_layer: dict[int, list[int]] = {}
    for head in sorted(set(heads)):
        by_layer.setdefault(head.layer, []).append(head.head)
    return by_layer


def removal_plan(sets: Sequence[Sequence[HeadId]]) -> list[Removal]:
    """The networks that sets of heads leave, those that begin lower first."""
    nodes = [Removal(-1, 0, ())]
    index: dict[tuple[int, int, tuple[int, ...]], int] = {}
    for number, heads in enumerate(sets):
        at = 0
        for layer, of_layer in by_layer_of(heads).items():
            nodes[at].branches.add(layer)
            key = (at, layer, tuple(of_layer))
            if key not in index:
                index[key] = len(nodes)
                nodes.append(Removal(at, layer, tuple(of_layer)))
            at = index[key]
        nodes[at].sets.append(number)
    order = sorted(range(len(nodes)), key=lambda i: (i != 0, nodes[i].layer))
    place = {old: new for new, old in enumerate(order)}
    for node in nodes[1:]:
        node.parent = place[node.parent]
    return [nodes[old] for old in order]


# A replacement that moves a head's output by less than this changed nothing.
_NO_CHANGE = 1e-12
# Tokens that stand side by side in one batch, padding included.
_TOKENS = {"cpu": 1 << 11}
_TOKENS_ELSEWHERE = 1 << 15
# Of networks that others begin with, run up to the layer in which they part.
WAITING_BYTES = 1 << 29


class HeadRemover:
    """Runs a model without heads.

    Args:
        model: The model.
        layers: Its layers with attention.
        replacement: What replaces the output of a head; None for zeros.
        precision: Of matrix products while heads are removed.
    """

    def __init__(
        self,
        model: LanguageModel,
        layers: Sequence[AttentionLayer],
        replacement: Float[Tensor, "layer head d"] | None,
        *,
        precision: Precision = "float32",
    ) -> None:
        self.model = model
        self.layers = layers
        self.replacement = replacement
        self._position = {layer.number: i for i, layer in enumerate(layers)}
        self._computing = Computing(model, precision, frozen=True)

    @contextmanager
    def removed(self, heads: Sequence[HeadId]) -> Iterator[None]:
        """The model without some heads, for whatever runs inside.

        Raises:
            InputError: if a head does not exist, or the output of a removed head was what replaced
                it in every place.
        """
        require_heads(self.model, self.layers, heads)
        by_layer = by_layer_of(heads)
        changed = dict.fromkeys(by_layer, 0.0)

        def without(z: Tensor, layer: AttentionLayer) -> Tensor:
            new, sizes = self._without(z, self._position[layer.number], [by_layer[layer.number]])
            changed[layer.number] = max(changed[layer.number], *sizes)
            return new

        layers = [layer for layer in self.layers if layer.number in by_layer]
        with self._computing.running(), heads_changed(layers, without):
            yield
        self._refuse_idle([head for head in heads if changed[head.layer] <= _NO_CHANGE])

    def read(
        self, tree_pass: TreePass, sets: Sequence[Sequence[HeadId]]
    ) -> Float[np.ndarray, "set reading"]:
        """The readings of a pass without each set of heads; what sets share is run once.

        Raises:
            InputError: if removing heads changes nothing.
        """
        values = np.empty((len(sets), len(tree_pass.place)))
        positions = [[HeadId(self._position[h.layer], h.head) for h in heads] for heads in sets]
        for part in self._fitting(positions, tree_pass):
            values[part] = self._read_together(positions[part], tree_pass)
        return values

    # -- parts --

    def _fitting(self, sets: Sequence[Sequence[HeadId]], tree_pass: TreePass) -> Iterator[slice]:
        """Parts of the sets whose networks can wait in memory for those that begin with them."""
        width = self.model.hf_model.config.get_text_config().hidden_size
        size = tree_pass.inputs["input_ids"].numel() * width * self.model.dtype.itemsize
        most = max(1, WAITING_BYTES // size)
        start = waiting = 0
        for end, heads in enumerate(sets):
            # A network waits before every layer that lacks heads.
            new = len({head.layer for head in heads})
            if end > start and waiting + new > most:
                yield slice(start, end)
                start, waiting = end, 0
            waiting += new
        yield slice(start, len(sets))

    def _read_together(
        self, sets: Sequence[Sequence[HeadId]], tree_pass: TreePass
    ) -> Float[np.ndarray, "set reading"]:
        """The readings without each set of heads, what they share run once."""
        values = np.empty((len(sets), len(tree_pass.place)))
        plan = removal_plan(sets)
        kept: dict[tuple[int, int], Any] = {}
        with self._computing.running():
            for layer, nodes in groupby(range(len(plan)), key=lambda i: plan[i].layer if i else -1):
                for group in self._side_by_side(plan, list(nodes), tree_pass):
                    kept |= self._run(plan, group, tree_pass, kept, values)
                kept = {key: given for key, given in kept.items() if key[1] > layer}
        return values

    def _side_by_side(
        self, plan: Sequence[Removal], nodes: Sequence[int], tree_pass: TreePass
    ) -> Iterator[list[int]]:
        """Networks that fit into one batch: those that are read, and those that are not."""
        tokens = max(tree_pass.inputs["input_ids"].numel(), tree_pass.written.numel())
        most = max(1, _TOKENS.get(self.model.device.type, _TOKENS_ELSEWHERE) // tokens)
        for is_read in (False, True):
            alike = [i for i in nodes if bool(plan[i].sets) == is_read]
            for first in range(0, len(alike), most):
                yield alike[first : first + most]

    def _run(
        self,
        plan: Sequence[Removal],
        group: Sequence[int],
        tree_pass: TreePass,
        kept: Mapping[tuple[int, int], Any],
        values: Float[np.ndarray, "set reading"],
    ) -> dict[tuple[int, int], Any]:
        """Run networks that begin at one layer; what others begin with is handed back."""
        nodes = [plan[i] for i in group]
        rows, copies = tree_pass.inputs["input_ids"].shape[0], len(group)
        start = nodes[0].layer
        branches = set().union(*(node.branches for node in nodes))
        outputs: dict[int, Any] = {}
        with ExitStack() as stack, torch.inference_mode():
            if start > 0:
                before = _joined([kept[node.parent, start] for node in nodes], rows)
                stack.enter_context(self._from(start, before))
            if nodes[0].parent >= 0:
                stack.enter_context(self._replaced(start, [node.heads for node in nodes]))
            for position in branches - {0}:

                def keep(_: nn.Module, __: Any, output: Any, position: int = position) -> None:
                    outputs[position] = output

                block = self.layers[position - 1].block
                stack.enter_context(block.register_forward_hook(keep))
            inputs = {name: _repeated(value, copies) for name, value in tree_pass.inputs.items()}
            if nodes[0].sets:
                read = self._log_probs(tree_pass, inputs, copies)
                for node, readings in zip(nodes, read, strict=True):
                    values[node.sets] = readings
            else:
                with stopped_before(self.layers[max(branches)].block):
                    self.model.hf_model(**inputs)
        return {
            (index, layer): _part(output, number, copies, rows)
            for layer, output in outputs.items()
            for number, (index, node) in enumerate(zip(group, nodes, strict=True))
            if layer in node.branches
        }

    def _log_probs(
        self, tree_pass: TreePass, inputs: Mapping[str, Any], copies: int
    ) -> Float[np.ndarray, "copy reading"]:
        """The readings of a pass, for every copy of it that stands in a batch."""
        n_places, n_tokens = len(tree_pass.places), tree_pass.written.numel()
        offsets = torch.arange(copies, device=tree_pass.places.device)[:, None]
        log_probs = token_log_probs(
            self.model.hf_model,
            inputs,
            (tree_pass.places + offsets * n_tokens).reshape(-1),
            (tree_pass.place + np.arange(copies)[:, None] * n_places).reshape(-1),
            np.tile(tree_pass.token, copies),
        )
        return log_probs.reshape(copies, -1)

    def _without(
        self,
        z: Float[Tensor, "row token head d"],
        position: int,
        heads: Sequence[Sequence[int]],
    ) -> tuple[Float[Tensor, "row token head d"], list[float]]:
        """Output of heads without some of them, copy by copy, and how much each copy changed."""
        new = z.clone()
        sizes = []
        for part, its_heads in zip(new.view(len(heads), -1, *z.shape[1:]), heads, strict=True):
            chosen = list(its_heads)
            value = 0.0 if self.replacement is None else self.replacement[position][chosen].to(z)
            sizes.append(float((part[:, :, chosen] - value).abs().max()))
            part[:, :, chosen] = value
        return new, sizes

    @contextmanager
    def _replaced(self, position: int, heads: Sequence[Sequence[int]]) -> Iterator[None]:
        """Copies in a batch without heads of one layer, others in each."""

        def without(z: Tensor, layer: AttentionLayer) -> Tensor:
            new, sizes = self._without(z, position, heads)
            for its_heads, size in zip(heads, sizes, strict=True):
                if size <= _NO_CHANGE:
                    self._refuse_idle([HeadId(layer.number, head) for head in its_heads])
            return new

        with heads_changed([self.layers[position]], without):
            yield

    def _refuse_idle(self, heads: Sequence[HeadId]) -> None:
        if heads:
            raise InputError(
                f"removing {', '.join(map(str, heads))} changes nothing in `model` "
                f"{self.model.name}: what they give is already what would replace it"
            )

    @contextmanager
    def _from(self, position: int, output: Any) -> Iterator[None]:
        """Let a pass start at a layer: those before hand on what came before it."""
        skipped = [layer.block for layer in self.layers[:position]]
        for block in skipped:
            # Setting the attribute would reach through to the module that a bridge wraps.
            vars(block)["forward"] = lambda *_, **__: output
        try:
            yield
        finally:
            for block in skipped:
                del vars(block)["forward"]


def _repeated(value: Any, copies: int) -> Any:
    """An input for so many copies of a batch."""
    return value.repeat(copies, *[1] * (value.ndim - 1)) if isinstance(value, Tensor) else value


def _part(output: Any, number: int, copies: int, rows: int) -> Any:
    """Part of a layer's output for one copy; what has no row per text is the same for all."""
    if isinstance(output, tuple):
        return tuple(_part(part, number, copies, rows) for part in output)
    if isinstance(output, Tensor) and output.ndim and len(output) == copies * rows:
        part = output[number * rows : (number + 1) * rows]
        return part if copies == 1 else part.clone()  # a view would keep all of them
    return output


def _joined(outputs: Sequence[Any], rows: int) -> Any:
    """The reverse."""
    first = outputs[0]
    if isinstance(first, tuple):
        return tuple(_joined(parts, rows) for parts in zip(*outputs, strict=True))
    if isinstance(first, Tensor) and first.ndim and len(first) == rows:
        return torch.cat(list(outputs))
    return first
