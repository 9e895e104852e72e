"""The same as ``tda_bias.topology.steps``, under the name of version 0.1."""

from tda_bias.topology.steps import (
    exact_step_function,
    squared_wasserstein,
    step_function,
    union_grid,
)

__all__ = ["exact_step_function", "squared_wasserstein", "step_function", "union_grid"]
