"""Where the texts of a group stand, and what of them is exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class GroupLayout:
    """Places of a group's texts among all of them, whatever they are rows of.

    In this order: the stereotype texts, the anti-stereotype texts, the unrelated texts (where there
    are any), the stereotype texts of the twins, the anti-stereotype texts of the twins; each in the
    order of contexts, or of twins.

    Attributes:
        n: Number of contexts.
        n_unrelated: Number of unrelated texts: ``n``, or 0 for pairs.
        twin_of: ``(twin,)`` the context of each twin; a context may have several, or none.
    """

    n: int
    n_unrelated: int
    twin_of: Int[np.ndarray, " twin"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def n_twins(self) -> int:
        """Number of twins of all contexts together."""
        return len(self.twin_of)

    @property
    def n_texts(self) -> int:
        """Number of texts."""
        return 2 * self.n + self.n_unrelated + 2 * self.n_twins

    @property
    def stereotype(self) -> slice:
        """Places of the stereotype texts."""
        return slice(0, self.n)

    @property
    def anti(self) -> slice:
        """Places of the anti-stereotype texts."""
        return slice(self.n, 2 * self.n)

    @property
    def unrelated(self) -> slice:
        """Places of the unrelated texts."""
        return slice(2 * self.n, 2 * self.n + self.n_unrelated)

    @property
    def twin_stereotype(self) -> slice:
        """Places of the twins' stereotype texts."""
        start = 2 * self.n + self.n_unrelated
        return slice(start, start + self.n_twins)

    @property
    def twin_anti(self) -> slice:
        """Places of the twins' anti-stereotype texts."""
        start = self.twin_stereotype.stop
        return slice(start, start + self.n_twins)

    @cached_property
    def versions(self) -> Versions:
        """The triples and their twins, as what a test exchanges."""
        return Versions(np.concatenate([np.arange(self.n), self.twin_of]), self.n)


@dataclass(frozen=True)
class Versions:
    """Every context's triple and its twins: under the null hypothesis any could be the triple.

    Attributes:
        context: ``(version,)`` the context of each version: first all triples, then all twins.
        n: Number of contexts.
    """

    context: Int[np.ndarray, " version"]
    n: int

    def __len__(self) -> int:
        return len(self.context)

    @cached_property
    def n_twins(self) -> Int[np.ndarray, " context"]:
        """Twins of each context."""
        return np.bincount(self.context[self.n :], minlength=self.n)

    @cached_property
    def twinned(self) -> Int[np.ndarray, " twinned"]:
        """The contexts that have a twin; the others take no part."""
        return np.flatnonzero(self.n_twins)

    @cached_property
    def members(self) -> Sequence[Int[np.ndarray, " version"]]:
        """For every twinned context the places of its versions, the triple first."""
        return [np.flatnonzero(self.context == context) for context in self.twinned]

    def contrasts(
        self, values: Float[np.ndarray, "version ..."]
    ) -> Float[np.ndarray, "version ..."]:
        """Every version minus the mean of the others of its context; 0 without a twin."""
        contrasts = np.zeros(values.shape)
        for members in self.members:
            others = len(members) - 1
            sums = values[members].sum(0)
            contrasts[members] = ((others + 1) * values[members] - sums) / others
        return contrasts

    def weights(self, chosen: Int[np.ndarray, "... twinned"]) -> Float[np.ndarray, "... version"]:
        """What a contrast of chosen versions with the means of the others takes of every version.

        Args:
            chosen: For every twinned context which of its versions stands for the triple; 0 is the
                triple itself.

        Returns:
            1 for the chosen version, -1 / (number of the others) for these, 0 without a twin: the
            sum over contexts of (chosen minus mean of the others) is a product with it.
        """
        weights = np.zeros((len(self), *chosen.shape[:-1]))  # written version by version
        for place, members in enumerate(self.members):
            for number, version in enumerate(members):
                weights[version] = np.where(
                    chosen[..., place] == number, 1.0, -1.0 / (len(members) - 1)
                )
        return np.moveaxis(weights, 0, -1)

    @cached_property
    def given(self) -> Float[np.ndarray, " version"]:
        """The weights of the arrangement the data came in."""
        return self.weights(np.zeros(len(self.twinned), dtype=np.int64))
