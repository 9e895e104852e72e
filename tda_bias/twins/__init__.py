"""Twins: the same triple about the other gender, or about another target of the same kind.

What changes between a triple and its twin is about the target; wording and length are the same.
"""

from tda_bias.twins.files import load_twins, save_twins
from tda_bias.twins.kinds import Kinds, load_kinds, shipped_kinds
from tda_bias.twins.make import make_twins
from tda_bias.twins.twins import Excluded, Twins

__all__ = [
    "Excluded",
    "Kinds",
    "Twins",
    "load_kinds",
    "load_twins",
    "make_twins",
    "save_twins",
    "shipped_kinds",
]
