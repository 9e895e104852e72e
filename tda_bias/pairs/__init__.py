"""Minimal pairs of texts: StereoSet intrasentence, CrowS-Pairs, WinoBias, Winogender, BLiMP, yours.

What is read here is text and what is known of it; no model is run.
"""

from tda_bias.pairs.load import load_pairs
from tda_bias.pairs.pair import Pair, PairSet, pair_triples
from tda_bias.pairs.published import SETS
from tda_bias.pairs.stereoset import SentenceTriple, load_sentence_triples

__all__ = [
    "SETS",
    "Pair",
    "PairSet",
    "SentenceTriple",
    "load_pairs",
    "load_sentence_triples",
    "pair_triples",
]
