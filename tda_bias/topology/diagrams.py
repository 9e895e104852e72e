"""Persistence diagrams of attention patterns by GUDHI, and their Wasserstein distances by POT.

Of a pattern two complexes are known. ``graph``: the graph filtration of the head paper, in which
edges go as a threshold rises above their weights; components are born where an edge of the maximum
spanning tree goes, and never end, cycles are there from the beginning and end at the deaths.
``flag``: the flag (Vietoris-Rips) complex of the distances 1 - w, whose components and cycles have
a birth and a death each.

Source: Varadarajan & Songdechakraiwut, section 2.1 (graph); GUDHI's RipsComplex (flag).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float

from tda_bias.topology.flag import ended, flag_distance, flag_pairs, of_all_pairs
from tda_bias.topology.persistence import births_deaths, edge_weights
from tda_bias.types import Attention, InputError

Complex = Literal["graph", "flag"]
Backend = Literal["pot", "gudhi"]


class Diagram(NamedTuple):
    """The pairs (birth, death) of a pattern, ascending by birth: components, and cycles.

    What never ends has the death inf; what is there from the beginning the birth -inf.
    """

    components: Float[np.ndarray, "pair 2"]
    cycles: Float[np.ndarray, "pair 2"]
    complex: Complex


def persistence_diagrams(
    patterns: Float[np.ndarray | torch.Tensor, "... query key"],
    complex: Complex = "graph",
    *,
    attention: Attention = "causal",
) -> list[Diagram]:
    """Persistence diagrams of attention patterns, one for each, in the order of the leading axes.

    Args:
        patterns: Attention weights, whose rows need not sum to 1.
        complex: ``graph`` gives attention weights, ``flag`` distances 1 - w between tokens, in
            which tokens that attend to each other are near.
        attention: ``causal`` reads the weight of tokens i < j from ``pattern[j, i]``,
            ``bidirectional`` takes the larger of both directions.

    Raises:
        InputError: if a pattern is not square, is empty, or holds NaN or infinities; if a weight of
            ``flag`` is not in [0, 1]; or if ``complex`` is neither of the two.

    Examples:
        >>> pattern = np.array([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.1, 0.3, 0.6]])
        >>> [graph] = persistence_diagrams(pattern[None])
        >>> graph.components[:, 0], graph.cycles[:, 1]
        (array([0.3, 0.4]), array([0.1]))
        >>> [flag] = persistence_diagrams(pattern[None], "flag")
        >>> flag.components.tolist()
        [[0.0, 0.6], [0.0, 0.7], [0.0, inf]]
    """
    flat = _flat(patterns)
    if complex == "graph":
        sets = births_deaths(flat, attention=attention)
        return [
            Diagram(
                np.column_stack([births, np.full(len(births), np.inf)]),
                np.column_stack([np.full(len(deaths), -np.inf), deaths]),
                complex,
            )
            for births, deaths in zip(sets.births.numpy(), sets.deaths.numpy(), strict=True)
        ]
    if complex == "flag":
        weights = edge_weights(flat, attention)
        return [Diagram(components, cycles, complex) for components, cycles in flag_pairs(weights)]
    raise InputError(f"`complex` must be one of {', '.join(get_args(Complex))}; got {complex!r}")


def _flat(patterns: Any) -> torch.Tensor:
    tensor = torch.as_tensor(
        np.ascontiguousarray(patterns) if isinstance(patterns, np.ndarray) else patterns
    )
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2] or not tensor.shape[-1]:
        raise InputError(
            "`patterns` must end in two equal axes, query and key, with a token at least; got "
            f"the shape {tuple(tensor.shape)}"
        )
    if not torch.isfinite(tensor).all():
        raise InputError("`patterns` hold NaN or infinite values")
    return tensor.detach().cpu().reshape(-1, *tensor.shape[-2:])


def wasserstein_distances(
    diagrams: Sequence[Diagram], *, order: float = 2, backend: Backend = "pot"
) -> tuple[Float[np.ndarray, "diagram diagram"], Float[np.ndarray, "diagram diagram"]]:
    """Wasserstein distances of all pairs of diagrams: of their components, and of their cycles.

    Diagrams of the graph filtration are sets of numbers, births and deaths; the values of a set
    weigh alike and sum to 1, as in the head paper, and distances are exact. Those of flag complexes
    are matched point by point or with the diagonal, under the Euclidean norm; what never ends ends
    at 1.

    Args:
        diagrams: From ``persistence_diagrams``, all of one complex.
        order: p >= 1: the p-th root of the sum of p-th powers is taken.
        backend: ``pot``; or of flag complexes ``gudhi``, its matching by Hera, to one part in 1e9.

    Raises:
        InputError: if ``order`` is below 1, complexes are mixed, a set is empty, or the backend
            does not fit.

    Examples:
        >>> patterns = np.tril(np.random.default_rng(0).random((2, 4, 4)))
        >>> births, deaths = wasserstein_distances(persistence_diagrams(patterns))
        >>> births.shape, bool(births[0, 1] == births[1, 0] > 0)
        ((2, 2), True)
    """
    if not order >= 1:
        raise InputError(f"`order` must be at least 1; got {order}")
    if backend not in get_args(Backend):
        raise InputError(
            f"`backend` must be one of {', '.join(get_args(Backend))}; got {backend!r}"
        )
    complexes = {diagram.complex for diagram in diagrams}
    if len(complexes) > 1:
        raise InputError("`diagrams` are of graphs and of flag complexes; compare those of one")
    if complexes == {"graph"}:
        if backend != "pot":
            raise InputError("sets of births and deaths are compared by POT; take backend pot")
        sets = [(d.components[:, 0], d.cycles[:, 1]) for d in diagrams]
        return _between_sets([s[0] for s in sets], order), _between_sets(
            [s[1] for s in sets], order
        )
    first = [diagram.components for diagram in diagrams]
    second = [diagram.cycles for diagram in diagrams]
    return _between_pairs(first, order, backend), _between_pairs(second, order, backend)


def _between_sets(sets: Sequence[np.ndarray], order: float) -> np.ndarray:
    import ot

    if any(not len(values) for values in sets):
        raise InputError("a pattern of so few tokens has no births or no deaths to compare")
    return of_all_pairs(sets, lambda a, b: float(ot.wasserstein_1d(a, b, p=order)) ** (1 / order))


def _between_pairs(pairs: Sequence[np.ndarray], order: float, backend: Backend) -> np.ndarray:
    if backend == "pot":
        return of_all_pairs(pairs, lambda a, b: flag_distance(a, b, order=order))
    from gudhi.hera import wasserstein_distance

    closed = [ended(of_diagram) for of_diagram in pairs]
    return of_all_pairs(
        closed,
        lambda a, b: float(wasserstein_distance(a, b, order=order, internal_p=2.0, delta=1e-9)),
    )
