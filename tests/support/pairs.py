"""Pair sets that do not ship, and small ones of a test's own."""

import json
import os
from pathlib import Path

import pytest

from tda_bias.pairs import Pair

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
