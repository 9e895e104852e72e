"""p-values of heads: within a group, and over the groups of a category."""

from tda_bias.inference.hot_spots import HotSpots, hot_spots
from tda_bias.inference.paper import PaperTest, paper_pvalue
from tda_bias.inference.resampled import ResampledTest, label_test, max_z, paired_test

__all__ = [
    "HotSpots",
    "PaperTest",
    "ResampledTest",
    "hot_spots",
    "label_test",
    "max_z",
    "paired_test",
    "paper_pvalue",
]
