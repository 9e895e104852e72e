"""Pair sets that do not ship, and small ones of a test's own."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tda_bias.models.load import LanguageModel
from tda_bias.pairs import Pair, PairSet
from tda_bias.scores.pair_scores import PairSetScores, length_split, pair_set_scores, scores

PAIRS = os.environ.get("TDABIAS_PAIRS", "")
USER_PAIR = {"id": "1", "group": "cook", "more": "The cook said he", "less": "The cook said she"}


def pairs_folder(*below: str) -> Path:
    """A place in the folder of pair sets; skips where it is not known."""
    if not PAIRS:
        pytest.skip("set TDABIAS_PAIRS to a folder with crows_pairs, wikitext2, ...")
    return Path(PAIRS, *below)


def write_lines(folder: Path, *lines: dict | str, name: str = "pairs.jsonl") -> Path:
    path = folder / name
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def pair(more: str, less: str, **fields) -> Pair:
    return Pair(**{"id": more, "set": "own", "group": "g", "more": more, "less": less, **fields})


def scored_pairs(
    model: LanguageModel, odds: Sequence[float], longer: Sequence[int]
) -> PairSetScores:
    """Scores in which each pair is a cluster, with these log-odds and differences of length."""
    pairs = [
        pair("The cook said he", "The cook said she", id=str(i), group=str(i))
        for i in range(len(odds))
    ]
    result = pair_set_scores(model, PairSet("crows", tuple(pairs), "f", None))
    items = result.items.assign(log_prob_more=odds, log_prob_less=0.0, tokens_less=5)
    items = items.assign(tokens_more=5 + np.asarray(longer))
    return replace(result, items=items, scores=scores(items), length_split=length_split(items))
