"""Charts of the report's page: what their specifications say."""

from unittest.mock import Mock

import pandas as pd

from tda_bias.plots import charts


def test_the_axis_of_correlations_ends_at_1():
    table = pd.DataFrame(
        {"quantity": ["r"], "summary": ["S"], "spearman": [0.97], "low": [0.8], "high": [0.99]}
    )
    (chart,) = charts.crossref(Mock(table=lambda _: table))
    for layer in chart.spec["layer"]:
        assert layer["encoding"]["x"]["scale"] == {"domain": [-1, 1]}
