"""Patterns that a run keeps for its report."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias import HeadBias, HeadBiasConfig, head_bias
from tda_bias.heads.items import (
    MAX_TOKENS,
    WANTED_COLUMNS,
    KeptPatterns,
    example_pattern,
    kept_patterns,
)
from tda_bias.store.result import writing_run
from tda_bias.store.run import open_run
from tda_bias.triples import load_triples
from tda_bias.types import HeadId, InputError
from tests.support.runs import record_of


def wanted(text: str, *heads: HeadId) -> pd.DataFrame:
    rows = [("gender", head.layer, head.head, "id", "stereotype", text) for head in heads]
    return pd.DataFrame(rows, columns=list(WANTED_COLUMNS))


@pytest.fixture(scope="module")
def triple():
    return load_triples("starter", category="gender")[0]


def test_a_kept_pattern_is_that_of_the_text_read_alone_in_half_precision(tiny, triple):
    model = tiny("gpt2")
    heads = HeadId(0, 1), HeadId(1, 3)
    texts = pd.concat([wanted(triple.texts()[1], HeadId(1, 0)), wanted(triple.texts()[0], *heads)])
    kept = kept_patterns(model, texts)
    alone = example_pattern(model, triple)
    assert kept.table[list(WANTED_COLUMNS)].to_numpy().tolist() == texts.to_numpy().tolist()
    assert json.loads(kept.table["tokens"].iloc[1]) == list(alone.tokens)
    for pattern, head in zip(kept.patterns[1:], heads, strict=True):
        assert pattern.dtype == np.float16
        np.testing.assert_allclose(pattern, alone.patterns[head.layer, head.head], atol=1e-3)
    of_text = example_pattern(model, triple.texts()[0])
    assert (of_text.text, of_text.tokens) == (alone.text, alone.tokens)
    np.testing.assert_array_equal(of_text.patterns, alone.patterns)


def test_edges_by_what_is_written_are_kept_as_the_run_read_them(tiny, triple):
    texts = wanted(triple.texts()[0], HeadId(0, 1))
    plain, written = (
        kept_patterns(tiny("gpt2"), texts, edges=edges).patterns[0]
        for edges in ("attention", "output")
    )
    assert not np.allclose(plain, written, atol=1e-3)


def test_a_text_that_makes_no_readable_picture_is_left_out(tiny):
    texts = [wanted(text, HeadId(0, 0)) for text in ("he " * (MAX_TOKENS + 1), "he and she")]
    kept = kept_patterns(tiny("gpt2"), pd.concat(texts))
    assert list(kept.table["text"]) == ["he and she"]


@pytest.mark.parametrize("heads", [(), (HeadId(0, 1), HeadId(1, 2))])
def test_patterns_come_back_as_they_were_written(tiny, triple, tmp_path, heads):
    kept = kept_patterns(tiny("gpt2"), wanted(triple.texts()[0], *heads))
    with writing_run(tmp_path, record_of()) as run:
        kept.write(run)
    again = KeptPatterns.read(open_run(tmp_path))
    pd.testing.assert_frame_equal(again.table, kept.table)
    for one, two in zip(again.patterns, kept.patterns, strict=True):
        np.testing.assert_array_equal(one, two)


# -- drawn from a loaded run --


@pytest.fixture(scope="module")
def loaded(tiny, tmp_path_factory) -> HeadBias:
    folder = tmp_path_factory.mktemp("loaded")
    model, triples = tiny("gpt2"), load_triples("starter", category="gender", limit=6)
    result = head_bias(model, triples, config=HeadBiasConfig(n_permutations=99))
    kept = kept_patterns(model, result.texts_to_keep(2))
    result.with_patterns(example_pattern(model), kept).save(folder)
    return HeadBias.load(folder)


def test_a_loaded_run_carries_its_items_its_null_its_example_and_its_kept_patterns(loaded):
    assert len(loaded.items.items) == 24
    assert loaded.nulls
    assert loaded.kept.table["role"].isin(["stereotype", "anti-stereotype"]).any()
    # One sentence for every run, not the first one of whatever data it read.
    assert loaded.example.text == load_triples("starter")[0].texts()[0]


def test_a_file_is_missed_only_when_it_is_asked_for(loaded, tmp_path):
    shutil.copytree(loaded.run.folder, tmp_path / "run")
    for name in ("example.npz", "items.npz", "nulls.npz", "patterns.npz"):
        (tmp_path / "run" / name).unlink()
    run = HeadBias.load(tmp_path / "run")
    pd.testing.assert_frame_equal(run.top(3), loaded.top(3))
    for name in ("example", "items", "nulls", "kept"):
        with pytest.raises(InputError, match=r"\.npz cannot be read .*; run the same"):
            getattr(run, name)


def test_one_call_draws_a_heads_attention_with_the_tokens_on_both_axes(loaded):
    ax = loaded.plot_attention(HeadId(1, 2))
    for axis in (ax.xaxis, ax.yaxis):
        assert [text.get_text() for text in axis.get_ticklabels()] == list(loaded.example.tokens)
    np.testing.assert_array_equal(ax.images[0].get_array(), loaded.example.patterns[1, 2])


def test_what_is_not_there_cannot_be_drawn(loaded):
    with pytest.raises(InputError, match="L9H9 does not exist"):
        loaded.plot_attention(HeadId(9, 9))
    with pytest.raises(InputError, match=r"no example; add one by `with_patterns"):
        replace(loaded, run=None).plot_attention(HeadId(0, 0))


def test_the_example_is_a_text_that_fits_the_model(tiny, tokenizer):
    lengths = {
        triple.texts()[0]: len(tokenizer(triple.texts()[0])["input_ids"])
        for triple in load_triples("starter")
    }
    first = next(iter(lengths))
    small = tiny("gpt2", n_positions=lengths[first] - 1)
    example = example_pattern(small)
    assert lengths[first] > small.max_tokens >= len(example.tokens)
    assert example_pattern(tiny("gpt2")).text == first
