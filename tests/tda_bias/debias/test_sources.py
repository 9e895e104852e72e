"""CrowS-Pairs is no training data, whatever its file is called."""

import json

import pytest

from tda_bias.debias.protocol import refuse_evaluation_only
from tda_bias.types import InputError


def test_it_is_known_by_its_name_and_by_what_it_says(tmp_path):
    table, lines = tmp_path / "mine.csv", tmp_path / "mine.jsonl"
    table.write_text(",sent_more,sent_less,stereo_antistereo\n", encoding="utf-8")
    row = {"id": "1", "set": "crows", "group": "g", "more": "a", "less": "b"}
    lines.write_text(json.dumps(row), encoding="utf-8")
    packed = tmp_path / "packed.jsonl"
    packed.write_text(json.dumps(row, separators=(",", ":")), encoding="utf-8")
    for source in ("crows_pairs_anonymized.csv", "nyu-mll/crows_pairs", table, lines, packed):
        with pytest.raises(InputError, match="is CrowS-Pairs, which must not be trained on"):
            refuse_evaluation_only(source)


def test_other_sources_may_be_trained_on(tmp_path):
    path = tmp_path / "triples.jsonl"
    path.write_text('{"target": "scarecrow", "context": "the crows flew"}', encoding="utf-8")
    for source in ("stereoset", "starter", path):
        refuse_evaluation_only(source)
