"""The same as ``tda_bias.topology.persistence``, under the name of version 0.1."""

from tda_bias.topology.persistence import BirthsDeaths, births_deaths, n_births, n_deaths

__all__ = ["BirthsDeaths", "births_deaths", "n_births", "n_deaths"]
