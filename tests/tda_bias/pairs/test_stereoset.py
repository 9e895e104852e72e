"""StereoSet's intrasentence half: what is read, and what is refused."""

import json
from collections import Counter

import datasets
import pytest

from tda_bias.pairs.stereoset import UNNAMED, load_sentence_triples
from tda_bias.types import ROLES, InputError
from tests.support.pairs import pairs_folder, write_lines

ITEM = {
    "id": "i1",
    "target": "cook",
    "bias_type": "profession",
    "context": "The cook is BLANK.",
    "stereotype": "The cook is fat.",
    "anti-stereotype": "The cook is thin.",
    "unrelated": "The cook is rain.",
}


def as_entry(item):
    sentences = [{"sentence": item[role], "gold_label": role} for role in reversed(ROLES)]
    return {key: item[key] for key in ("id", "target", "bias_type", "context")} | {
        "sentences": sentences
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": "The cook."}, "context has no BLANK, so it is no intrasentence item"),
        ({"stereotype": ""}, "`stereotype` must be a text that is not empty"),
        ({"bias_type": ""}, "`bias_type` must be a text that is not empty"),
        ({"type": "intersentence"}, "only intrasentence items can be read"),
    ],
)
def test_items_of_another_form_are_refused(tmp_path, change, message):
    path = write_lines(tmp_path, {**ITEM, **change})
    with pytest.raises(InputError, match=f"line 1.*{message}"):
        load_sentence_triples(path)


def test_missing_roles_categories_and_lists_are_refused(tmp_path):
    lacking = {key: value for key, value in ITEM.items() if key != "unrelated"}
    with pytest.raises(InputError, match="the role unrelated is missing"):
        load_sentence_triples(write_lines(tmp_path, lacking))
    with pytest.raises(InputError, match="`category` must be one of"):
        load_sentence_triples(write_lines(tmp_path, ITEM), category="age")
    with pytest.raises(
        InputError, match="`category` must be one of profession, all, which .* has; got 'race'"
    ):
        load_sentence_triples(write_lines(tmp_path, ITEM), category="race")
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": {"intersentence": []}}))
    with pytest.raises(InputError, match="no list data.intrasentence"):
        load_sentence_triples(path)
    doubled = as_entry(ITEM)
    doubled["sentences"].append(doubled["sentences"][0])
    path.write_text(json.dumps({"data": {"intrasentence": [doubled]}}))
    with pytest.raises(InputError, match="the role unrelated stands twice"):
        load_sentence_triples(path)
    path.write_text(json.dumps({"data": {"intrasentence": ["x"]}}))
    with pytest.raises(InputError, match="item 0: expected an object with a list of sentences"):
        load_sentence_triples(path)


def test_all_forms_give_the_same_items(tmp_path, monkeypatch):
    (lines,), revision = load_sentence_triples(write_lines(tmp_path, ITEM))
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": {"intrasentence": [as_entry(ITEM)]}}))
    (official,), _ = load_sentence_triples(path)
    label = datasets.ClassLabel(names=list(ROLES))
    sentence = {"sentence": datasets.Value("string"), "gold_label": label}
    fields = dict.fromkeys(("id", "target", "bias_type", "context"), datasets.Value("string"))
    split = datasets.Dataset.from_list(
        [as_entry(ITEM)], features=datasets.Features({**fields, "sentences": [sentence]})
    )
    monkeypatch.setattr("tda_bias.pairs.stereoset.hub_split", lambda *_: split)
    (hub,), _ = load_sentence_triples("stereoset")
    for item in (official, hub):
        assert item.texts() == lines.texts()
        assert (item.id, item.group, item.category) == ("i1", "cook", "profession")
    assert revision.startswith("blake2b-")


def test_items_without_a_target_count_as_one_term_and_the_limit_is_per_target(tmp_path):
    lines = [{**ITEM, "id": str(n), "target": t} for n, t in enumerate(["", "", "", "cook"])]
    items, _ = load_sentence_triples(write_lines(tmp_path, *lines), limit=2)
    assert Counter(item.group for item in items) == {UNNAMED: 2, "cook": 1}


@pytest.mark.real
def test_the_real_half_is_all_read():
    items, _ = load_sentence_triples(pairs_folder("stereoset_intrasentence", "dev.jsonl"))
    assert Counter(item.category for item in items) == {
        "gender": 255, "race": 962, "religion": 79, "profession": 809,
    }  # fmt: skip
