"""Groups to tables, and the tables of a run as one object."""

from tda_bias.results.head_bias import HeadBias

__all__ = ["HeadBias"]
