"""Patterns that a run keeps for its report."""

import json

import numpy as np
import pandas as pd
import pytest

from tda_bias.heads.kept_patterns import (
    MAX_TOKENS,
    KeptPatterns,
    PatternText,
    example_pattern,
    kept_patterns,
)
from tda_bias.runs.run import open_run
from tda_bias.runs.writing import writing_run
from tda_bias.triples import load_triples
from tda_bias.types import HeadId, InputError
from tests.support.runs import record_of


def wanted(text: str, *heads: HeadId) -> list[PatternText]:
    return [PatternText("gender", head, "id", "stereotype", text) for head in heads]


@pytest.fixture(scope="module")
def triple():
    return load_triples("starter", category="gender")[0]


def test_a_kept_pattern_is_that_of_the_text_read_alone_in_half_precision(tiny, triple):
    model = tiny("gpt2")
    heads = HeadId(0, 1), HeadId(1, 3)
    texts = [*wanted(triple.texts()[1], HeadId(1, 0)), *wanted(triple.texts()[0], *heads)]
    kept = kept_patterns(model, texts)
    alone = example_pattern(model, triple)
    assert list(kept.table["text"]) == [text.text for text in texts]
    assert json.loads(kept.table["tokens"].iloc[1]) == list(alone.tokens)
    for pattern, head in zip(kept.patterns[1:], heads, strict=True):
        assert pattern.dtype == np.float16
        np.testing.assert_allclose(pattern, alone.patterns[head.layer, head.head], atol=1e-3)


def test_edges_by_what_is_written_are_kept_as_the_run_read_them(tiny, triple):
    texts = wanted(triple.texts()[0], HeadId(0, 1))
    plain, written = (
        kept_patterns(tiny("gpt2"), texts, edges=edges).patterns[0]
        for edges in ("attention", "output")
    )
    assert not np.allclose(plain, written, atol=1e-3)


def test_a_text_that_makes_no_readable_picture_is_left_out(tiny):
    texts = wanted("he " * (MAX_TOKENS + 1), HeadId(0, 0)) + wanted("he and she", HeadId(0, 0))
    kept = kept_patterns(tiny("gpt2"), texts)
    assert list(kept.table["text"]) == ["he and she"]


def test_nothing_wanted_is_nothing_kept_and_comes_back(tiny, tmp_path):
    kept = kept_patterns(tiny("gpt2"), [])
    with writing_run(tmp_path, record_of()) as run:
        kept.write(run)
    assert KeptPatterns.read(open_run(tmp_path)).patterns == []


def test_patterns_come_back_as_they_were_written(tiny, triple, tmp_path):
    kept = kept_patterns(tiny("gpt2"), wanted(triple.texts()[0], HeadId(0, 1), HeadId(1, 2)))
    with writing_run(tmp_path, record_of()) as run:
        kept.write(run)
    again = KeptPatterns.read(open_run(tmp_path))
    pd.testing.assert_frame_equal(again.table, kept.table)
    for one, two in zip(again.patterns, kept.patterns, strict=True):
        np.testing.assert_array_equal(one, two)


def test_patterns_of_another_table_are_refused(tmp_path):
    kept = KeptPatterns.of(wanted("a b", HeadId(0, 0)), [["a", "b"]], [np.eye(3)])
    with writing_run(tmp_path, record_of()) as run:
        kept.write(run)
    with pytest.raises(InputError, match="does not hold the patterns of patterns.parquet; run the"):
        KeptPatterns.read(open_run(tmp_path))
