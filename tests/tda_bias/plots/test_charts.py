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


def test_what_says_bad_things_of_people_is_shown_by_kind():
    table = pd.DataFrame(
        {
            "factor": "religion",
            "group": ["A", "A", "A", "B", "B", "B"],
            "attribute": ["hit them", "shot them", "stole it"] * 2,
            "kind": ["violence", "violence", "theft"] * 2,
            "sensitive": True,
            "gamma": [0.5, 0.1, -0.2, -0.6, -0.2, 0.1],
            "low": -1.0,
            "high": 1.0,
        }
    )
    (chart,) = charts.unqover(Mock(table=lambda _: table))
    means = dict(zip(chart.rows["name"], chart.rows["value"].round(9), strict=True))
    # Means by hand, the largest first.
    assert list(means.items()) == [
        ("A · violence", 0.3),
        ("B · theft", 0.1),
        ("A · theft", -0.2),
        ("B · violence", -0.4),
    ]
    assert chart.rows[["low", "high"]].isna().all(axis=None)
    (chart,) = charts.unqover(Mock(table=lambda _: table.assign(sensitive=False)))
    assert chart.rows["name"].iloc[0] == "A · hit them"
