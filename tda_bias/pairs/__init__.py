"""Minimal pairs of texts: CrowS-Pairs, WinoBias, Winogender, BLiMP, yours.

What is read here is text and what is known of it; no model is run.
"""

from tda_bias.pairs.load import load_pairs
from tda_bias.pairs.pair import Pair, PairSet, pair_triples
from tda_bias.pairs.published import SETS

__all__ = [
    "SETS",
    "Pair",
    "PairSet",
    "load_pairs",
    "pair_triples",
]
