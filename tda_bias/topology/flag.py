"""Flag complexes of attention patterns: their diagrams, landscapes and distances, by GUDHI and POT.

Tokens that attend to each other are near: the distance of two is 1 - w, w the weight of their edge.
Components and cycles are born and die as the distance grows; what never dies, dies at 1.

Source: GUDHI's RipsPersistence (Ripser) and representations.Landscape (Bubenik 2015, Statistical
topological data analysis using persistence landscapes); Wasserstein distances by GUDHI with POT.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tda_bias.topology.persistence import edge_weights
from tda_bias.types import Attention, InputError

# Distances are in [0, 1].
LARGEST = 1.0
# What a landscape is read at: its first functions, at equal steps of the distance.
N_LANDSCAPES, RESOLUTION = 5, 100
# Time grows with a power of the number of tokens above three.
MAX_TOKENS = 128
# Random diagrams, of as many points, from which the time of a distance is taken.
_TIMED = 5

Pairs = Float[np.ndarray, "pair 2"]


def flag_pairs(
    weights: Float[Tensor, "matrix token token"] | Float[np.ndarray, "matrix token token"],
) -> list[tuple[Pairs, Pairs]]:
    """Pairs (birth, death) of components and of cycles of every weight matrix, ascending.

    Args:
        weights: Symmetric weights of edges in [0, 1]; the diagonal is not read.

    Raises:
        InputError: if a weight is not in [0, 1].
    """
    from gudhi.sklearn import RipsPersistence

    distances = 1.0 - np.asarray(weights, dtype=np.float64)
    token = np.arange(distances.shape[-1])
    distances[:, token, token] = 0.0
    if distances.size and (distances.min() < 0 or distances.max() > LARGEST):
        raise InputError("`patterns` must hold weights from 0 to 1 where the complex is flag")
    # GUDHI's default threads give way to ours: a job for every processor that torch may use.
    reader = RipsPersistence([0, 1], input_type="full distance matrix", n_jobs=_jobs())
    found = reader.fit_transform(list(distances))
    return [(_ascending(components), _ascending(cycles)) for components, cycles in found]


def _jobs() -> int:
    return torch.get_num_threads()


def _ascending(pairs: np.ndarray) -> Pairs:
    pairs = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return np.asarray(pairs[np.lexsort(pairs.T[::-1])])


def ended(pairs: Pairs) -> Pairs:
    """The same pairs where what never dies dies at the largest distance."""
    return np.asarray(np.minimum(pairs, LARGEST))


def landscapes(diagrams: Sequence[Pairs]) -> Float[np.ndarray, "diagram value"]:
    """The first landscape functions of diagrams at equal steps of the distance, one after another.

    The mean product of two rows, times ``N_LANDSCAPES``, is the inner product of two landscapes.
    """
    from gudhi.representations import Landscape

    reader = Landscape(
        num_landscapes=N_LANDSCAPES, resolution=RESOLUTION, sample_range=(0.0, LARGEST)
    )
    return np.asarray(reader.fit_transform([ended(pairs) for pairs in diagrams]))


class FlagLandscapes:
    """Landscapes of components and of cycles as what is read from patterns."""

    dims = ("components", "cycles")
    scaled = False

    def __init__(self, attention: Attention) -> None:
        self._attention: Attention = attention

    def __call__(
        self, patterns: Float[Tensor, "text head query key"], texts: Sequence[int]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values ``(text, head, value)`` and summed lifetimes ``(text, head)``, by dimension."""
        shape = patterns.shape[:2]
        pairs = flag_pairs(edge_weights(patterns.flatten(0, 1), self._attention).cpu())
        return [
            (
                landscapes([of_matrix[dim] for of_matrix in pairs]).reshape(*shape, -1),
                np.array([lifetimes(of_matrix[dim]) for of_matrix in pairs]).reshape(shape),
            )
            for dim in range(len(self.dims))
        ]


def lifetimes(pairs: Pairs) -> float:
    """The summed lifetimes of a diagram, what never dies to the largest distance."""
    return float(np.diff(ended(pairs), axis=1).sum())


# -- distances -------------------------------------------------------------------------------------


def flag_distance(first: Pairs, second: Pairs, *, order: float = 2.0) -> float:
    """The Wasserstein distance of two diagrams, by GUDHI with POT.

    Points are matched with each other or the diagonal under the Euclidean norm; the ``order``-th
    root of the sum of powers is taken. What never dies dies at 1.
    """
    from gudhi.wasserstein import wasserstein_distance

    return float(wasserstein_distance(ended(first), ended(second), order=order, internal_p=2.0))


def squared_distances(diagrams: Sequence[Pairs]) -> Float[np.ndarray, "diagram diagram"]:
    """Squared 2-Wasserstein distances of all pairs of diagrams."""
    return of_all_pairs(diagrams, flag_distance) ** 2


def of_all_pairs(
    items: Sequence[np.ndarray], distance: Callable[[np.ndarray, np.ndarray], float]
) -> Float[np.ndarray, "item item"]:
    """Distances of all pairs, each measured once."""
    between = np.zeros((len(items), len(items)))
    for i, j in combinations(range(len(items)), 2):
        between[i, j] = between[j, i] = distance(items[j], items[i])
    return between


def seconds_of_a_distance(n_points: int) -> float:
    """What a distance of two diagrams of so many points takes on this machine, in seconds."""
    rng = np.random.default_rng(0)
    diagrams = [np.sort(rng.random((max(1, n_points), 2))) for _ in range(_TIMED)]
    flag_distance(*diagrams[:2])  # imports
    start = time.perf_counter()
    squared_distances(diagrams)
    return (time.perf_counter() - start) / (_TIMED * (_TIMED - 1) // 2)
