"""Which parts of a model have to be run again to remove many sets of heads.

Removing heads of a layer leaves everything below it as it is. Sets that agree in their lower layers
are the same network up to the first layer in which they differ. So the sets form a tree: a node is
a network without some heads up to a layer, and runs from there to where the last set has left it.
Pure data; ``removal`` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tda_bias.types import HeadId


@dataclass
class Removal:
    """The network without some heads, all of them in one layer or below.

    Attributes:
        parent: Index of the network that it is up to that layer; -1 for the whole network.
        layer: The highest layer that lacks heads; 0 for the whole network.
        heads: Those that it lacks in that layer.
        branches: The layers from which on other networks differ from it.
        sets: Which of the sets it is without.
    """

    parent: int
    layer: int
    heads: tuple[int, ...]
    branches: set[int] = field(default_factory=set)
    sets: list[int] = field(default_factory=list)

    @property
    def is_read(self) -> bool:
        """Whether its outputs are wanted; otherwise others only begin with it."""
        return bool(self.sets)

    def n_layers(self, total: int) -> int:
        """How many layers of it are run, of ``total`` layers."""
        last = total if self.is_read else max(self.branches, default=self.layer)
        return last - self.layer


def removal_plan(sets: Sequence[Sequence[HeadId]]) -> list[Removal]:
    """The networks that sets of heads leave, those that begin lower first.

    Args:
        sets: Heads to remove together; the empty set is the whole network.
    """
    nodes = [Removal(-1, 0, ())]
    index: dict[tuple[int, int, tuple[int, ...]], int] = {}
    for number, heads in enumerate(sets):
        at = 0
        for layer in sorted({head.layer for head in heads}):
            of_layer = tuple(sorted({head.head for head in heads if head.layer == layer}))
            nodes[at].branches.add(layer)
            key = (at, layer, of_layer)
            if key not in index:
                index[key] = len(nodes)
                nodes.append(Removal(at, layer, of_layer))
            at = index[key]
        nodes[at].sets.append(number)
    order = sorted(range(len(nodes)), key=lambda i: (i != 0, nodes[i].layer))
    place = {old: new for new, old in enumerate(order)}
    for node in nodes[1:]:
        node.parent = place[node.parent]
    return [nodes[old] for old in order]


def layers_run(plan: Sequence[Removal], total: int) -> int:
    """How many layers a plan runs, of a network with ``total`` layers."""
    return sum(node.n_layers(total) for node in plan)
