"""Attention patterns to births and deaths, and these to step functions and their distances."""

from tda_bias.topology.diagrams import Diagram, persistence_diagrams, wasserstein_distances
from tda_bias.topology.persistence import births_deaths

__all__ = ["Diagram", "births_deaths", "persistence_diagrams", "wasserstein_distances"]
