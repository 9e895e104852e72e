"""Seeds: every draw of the package comes from a generator that is named here."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A separate generator for everything that has a name: the order of calls does not matter.

    Args:
        seed: Of a whole run.
        names: What the draws are for. Words are hashed together into one number; numbers follow the
            seed as they are.

    Returns:
        The same generator for the same seed and names, and an independent one for others.

    Examples:
        >>> generator(0, "heads", "gender").integers(100, size=3).tolist()
        [97, 10, 88]
    """
    numbers = [name for name in names if isinstance(name, int)]
    if words := [name for name in names if isinstance(name, str)]:
        digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
        numbers.append(int.from_bytes(digest, "little"))
    return np.random.default_rng([seed, *numbers])
