"""What may be trained on, and pairs by their names."""

import json

import pytest

from tda_bias.debias.training_data import pair_sets, refuse_evaluation_only
from tda_bias.types import InputError


def test_crows_pairs_is_known_by_its_name_and_by_what_it_says(tmp_path):
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
    path = tmp_path / "crows" / "crowsnest.jsonl"
    path.parent.mkdir()
    path.write_text('{"target": "scarecrow", "context": "the crows flew"}', encoding="utf-8")
    for source in ("stereoset", "starter", path):
        refuse_evaluation_only(source)


@pytest.mark.parametrize("names", ["", "{0},{0}", "{0}, {1}", "blimp,"])
def test_sets_of_pairs_that_would_take_each_others_place_are_refused(names, tmp_path):
    files = [tmp_path / folder / "pairs.jsonl" for folder in "ab"]
    for file in files:
        file.parent.mkdir()
        row = {"id": "1", "group": "g", "more": "She ran.", "less": "He ran."}
        file.write_text(json.dumps(row), encoding="utf-8")
    assert list(pair_sets(f"{files[0]}", "smoke")) == ["pairs"]
    with pytest.raises(InputError, match="no two with one name"):
        pair_sets(names.format(*files), "smoke")
