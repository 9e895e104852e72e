"""Twins: the same triple about the other gender, or about another target of the same kind.

What changes between a triple and its twin is about the target; wording and length are the same.
"""

from tda_bias.twins.make import (
    PLACEBOS,
    Placebo,
    comparable_placebos,
    make_placebos,
    make_twins,
    twins_in,
)
from tda_bias.twins.targets import Kinds, load_kinds, shipped_kinds
from tda_bias.twins.twins import Twins, load_twins, save_lm_eval, save_twins

__all__ = [
    "PLACEBOS",
    "Kinds",
    "Placebo",
    "Twins",
    "comparable_placebos",
    "load_kinds",
    "load_twins",
    "make_placebos",
    "make_twins",
    "save_lm_eval",
    "save_twins",
    "shipped_kinds",
    "twins_in",
]
