"""Triple sources: what is read, and that everything else is refused in one line."""

import csv
import json
import os
import random
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.sources import commit_of, hash_of
from tda_bias.triples import (
    UNNAMED,
    comes_from_hub,
    load_sentence_triples,
    load_triples,
    read_triples,
    triple_ids,
)
from tda_bias.types import ROLES, InputError, Triple
from tests.support.pairs import pairs_folder, write_lines

ITEM = {
    "target": "sister",
    "bias_type": "gender",
    "context": "My sister came in.",
    "stereotype": "She sang.",
    "anti-stereotype": "She boxed.",
    "unrelated": "Iron rusts.",
}


def dev_json(folder: Path, *items: dict, shuffle: int = 0) -> Path:
    """StereoSet's own form, with the sentences in any order."""
    entries = []
    for number, item in enumerate(items):
        sentences = [{"sentence": item[role], "gold_label": role, "labels": []} for role in ROLES]
        random.Random(shuffle + number).shuffle(sentences)
        fields = {key: item[key] for key in ("target", "bias_type", "context")}
        entries.append({"id": f"id{number}", **fields, "sentences": sentences})
    path = folder / "dev.json"
    content = {"version": "1", "data": {"intersentence": entries, "intrasentence": [{}]}}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def without_source(triples: list[Triple]) -> list[tuple]:
    return [(t.group, t.category, t.context, t.texts()) for t in triples]


# -- names -----------------------------------------------------------------------------------------


def test_a_triple_is_named_by_what_it_says_and_a_repeat_by_its_number():
    one = Triple("he", "gender", "c", "s", "a", "u", source="here")
    other = Triple("he", "gender", "c", "s", "a", "v")
    ids = triple_ids([one, other, replace(one, source="there"), one])
    assert ids[2:] == [f"{ids[0]}-2", f"{ids[0]}-3"]
    assert ids[1] != ids[0]
    assert triple_ids([other, one])[::-1] == ids[:2]
    assert len({*triple_ids([one, replace(one, group="h", category="race")])}) == 2


# -- the bundled set --


def test_the_starter_set_has_the_promised_groups():
    counts = Counter((t.category, t.group) for t in load_triples("starter"))
    assert set(counts.values()) == {12}
    groups = Counter(category for category, _ in counts)
    assert groups == {"gender": 4, "profession": 4, "race": 3, "religion": 3}


# -- forms --


def test_json_lines_are_read_and_texts_joined_with_one_space(tmp_path):
    found = load_triples(write_lines(tmp_path, ITEM, "", {**ITEM, "context": " Another sat. "}))
    assert len(found) == 2
    assert found[0].anti_stereotype == "She boxed."
    assert found[1].source.endswith("line 3")
    assert found[1].texts()[0] == "Another sat. She sang."


def test_a_triple_that_stands_several_times_is_used_once_and_counted(tmp_path):
    other = {**ITEM, "context": "Another one sat."}
    path = write_lines(tmp_path, ITEM, other, ITEM, ITEM)
    assert without_source(load_triples(path)) == without_source(
        load_triples(write_lines(tmp_path, ITEM, other, name="each.jsonl"))
    )
    [remark] = read_triples(path).remarks()
    assert remark.startswith("2 triples repeat others and are left out (")
    assert "line 3 says the same as" in remark
    assert read_triples(path).remarks("race") == ()
    assert read_triples("starter").remarks() == ()


def test_published_triples_whose_texts_are_one_are_left_out_and_counted(tmp_path):
    equal = {**ITEM, "anti-stereotype": ITEM["stereotype"]}
    source = read_triples(dev_json(tmp_path, equal, ITEM))
    assert len(source.items) == 1
    assert source.remarks() == (
        "1 triple has a stereotype and an anti-stereotype that are one and is left out "
        f"({tmp_path / 'dev.json'} item id0).",
    )
    with pytest.raises(InputError, match="line 1: the stereotype and the anti-stereotype are the"):
        read_triples(write_lines(tmp_path, equal, ITEM))
    with pytest.raises(InputError, match="has no triple"):
        read_triples(dev_json(tmp_path, equal))


def test_triples_of_one_name_that_repeat_each_other_are_counted_too(tmp_path):
    path = dev_json(tmp_path, ITEM, {**ITEM, "target": "mother"}, ITEM)
    path.write_text(path.read_text(encoding="utf-8").replace('"id2"', '"id0"'), encoding="utf-8")
    [remark] = read_triples(path).remarks()
    assert remark == "1 triple repeats another and is left out (dev.json item id0 stands again)."
    assert [triple.group for triple in load_triples(path)] == ["sister", "mother"]


def test_names_that_differ_in_case_or_unicode_form_alone_are_named(tmp_path):
    names = ("caf\u00e9", "cafe\u0301", "Caf\u00e9", "bar")
    path = write_lines(tmp_path, *({**ITEM, "target": name} for name in names))
    [remark] = read_triples(path).remarks()
    assert all(repr(name) in remark for name in names[:3])
    assert remark.endswith("differ in case, spaces or Unicode form alone and count as 3 groups.")
    assert len({triple.group for triple in load_triples(path)}) == 4


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ITEM).encode() + b"\r\n")
    assert len(load_triples(path)) == 1


@pytest.mark.parametrize("shuffle", range(2))
def test_roles_come_from_labels_whatever_the_order_of_sentences(tmp_path, shuffle):
    path = dev_json(tmp_path, ITEM, {**ITEM, "target": "mother"}, shuffle=shuffle)
    lines = write_lines(tmp_path, ITEM, {**ITEM, "target": "mother"})
    assert without_source(load_triples(path)) == without_source(load_triples(lines))


@pytest.mark.parametrize("nested", [True, False])
def test_the_hubs_form_is_read_by_the_names_of_its_labels(nested, monkeypatch):
    """Label numbers are only places in the list of names, which is the hub's to choose."""
    names = ["anti-stereotype", "stereotype", "unrelated"]
    label = datasets.ClassLabel(names=names)
    record = {"sentence": datasets.Value("string"), "gold_label": label}
    form = datasets.Sequence(record) if nested else datasets.List(record)
    strings = {key: datasets.Value("string") for key in ("id", "target", "bias_type", "context")}
    features = datasets.Features({**strings, "sentences": form})
    order = ["unrelated", "stereotype", "anti-stereotype"]
    sentences = [{"sentence": ITEM[r], "gold_label": names.index(r)} for r in order]
    as_columns = {k: [s[k] for s in sentences] for k in ("sentence", "gold_label")}
    row = {"id": "x", **{k: ITEM[k] for k in ("target", "bias_type", "context")}}
    row["sentences"] = as_columns if nested else sentences
    split = datasets.Dataset.from_list([row], features=features)
    monkeypatch.setattr("tda_bias.triples._hub_split", lambda: split)
    assert without_source(load_triples("stereoset"))[0][3] == (
        "My sister came in. She sang.",
        "My sister came in. She boxed.",
        "My sister came in. Iron rusts.",
    )


def test_the_environment_names_the_file_that_stands_for_stereoset(tmp_path, monkeypatch):
    line = {
        "target": "girl", "bias_type": "gender", "context": "A girl came.",
        "stereotype": "She sang.", "anti-stereotype": "She fought.", "unrelated": "It rained.",
    }  # fmt: skip
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(line))
    monkeypatch.setenv("TDABIAS_STEREOSET", str(path))
    assert load_triples("stereoset") == load_triples(path)
    assert not comes_from_hub("stereoset")
    assert read_triples("stereoset").revision == read_triples(path).revision
    monkeypatch.delenv("TDABIAS_STEREOSET")
    assert comes_from_hub("stereoset")


def test_without_the_hub_one_line_names_the_alternatives(monkeypatch):
    def offline(*args, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(InputError, match="--data starter, or --data PATH") as caught:
        load_triples("stereoset")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "commit"),
    [
        (f"hf://datasets/McGill-NLP/stereoset@{'0a' * 20}/intersentence/x.parquet", "0a" * 20),
        ("https://elsewhere", None),
    ],
)
def test_the_hubs_revision_is_the_commit_in_its_addresses(address, commit):
    split = SimpleNamespace(info=SimpleNamespace(download_checksums={address: 0}))
    assert commit_of(split) == commit


def test_a_source_has_a_revision(tmp_path):
    path = write_lines(tmp_path, ITEM)
    before = read_triples(path).revision
    path.write_text(json.dumps({**ITEM, "context": "Other."}))
    assert before.startswith("blake2b-")
    assert read_triples(path).revision != before
    assert read_triples("starter").revision == read_triples("starter").revision


def test_the_real_set_has_the_known_counts(stereoset):
    triples = load_triples(stereoset)
    assert len(triples) == 2123
    counts = Counter(t.category for t in triples)
    assert counts == {"gender": 242, "profession": 827, "race": 976, "religion": 78}
    groups = Counter(category for category, _ in {(t.category, t.group) for t in triples})
    assert groups == {"gender": 10, "profession": 30, "race": 36, "religion": 3}


# -- choosing --


def test_category_groups_and_limit_choose():
    assert {t.category for t in load_triples("starter", category="race")} == {"race"}
    found = load_triples("starter", category="gender", groups=["boy", "girl"], limit=3)
    assert Counter(t.group for t in found) == {"boy": 3, "girl": 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"category": "sex"}, "`category` must be one of gender, .*, all, which .* got 'sex'"),
        ({"groups": ["boyy"]}, "`group` 'boyy' does not occur .* did you mean boy"),
        ({"groups": ["zzzz"]}, "there are Buddhist, "),
        ({"limit": 0}, "`limit` must be at least 1; got 0"),
    ],
)
def test_an_unknown_choice_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        load_triples("starter", **options)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("target", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),  # a joiner of no width
        ("target", "\U0001f468\u200d\U0001f469"),
        ("bias_type", "\u0927\u0930\u094d\u092e"),  # a vowel sign, which is no letter to `re`
    ],
)
def test_names_of_other_scripts_are_names(tmp_path, key, name):
    (read,) = load_triples(write_lines(tmp_path, changed(**{key: name})))
    assert name in (read.group, read.category)


def test_a_category_that_a_file_lacks_is_refused(tmp_path):
    with pytest.raises(
        InputError, match="`category` must be one of gender, all, which .* has; got 'race'"
    ):
        load_triples(write_lines(tmp_path, ITEM), category="race")


# -- broken files --


def changed(**values) -> dict:
    return {key: value for key, value in {**ITEM, **values}.items() if value is not ...}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (changed(unrelated=...), "line 1: the role unrelated is missing"),
        (changed(stereotype="  "), "`stereotype` must be a text that is not empty"),
        (changed(context=""), "`context` must be a text"),
        (changed(context=3), "`context` must be a text"),
        (changed(target=...), "`target` must be a text"),
        (changed(bias_type="a/b"), "`bias_type` must be the name of a category .*; got 'a/b'"),
        (changed(bias_type=["gender"]), "`bias_type` must be a text that is not empty"),
        (changed(type="intrasentence"), "only intersentence items"),
        ("{not json", "line 1: not a JSON object"),
        ("[1, 2]", "expected a JSON object, got list"),
        ("17", "expected a JSON object, got int"),
        ("[" * 100_000, "not a JSON object"),
        (changed(context="half \ud83d pair"), "surrogate pair"),
        (changed(unrelated="\u200b \u2060"), "`unrelated` must be a text that is not empty"),
        (changed(context="\x07\x1b"), "`context` must be a text that is not empty"),
        (changed(stereotype="She boxed. "), "the stereotype and the anti-stereotype are the same"),
        (changed(target="gi\nrl"), "`target` must be a name of one line, at most 200 characters"),
        (changed(target="x" * 5000), r"got 'x{40}'\.\.\.$"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, message):
    with pytest.raises(InputError, match=message) as caught:
        load_triples(write_lines(tmp_path, line))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop(), "item id0: the role .* is missing"),
        (lambda s: s.append(dict(s[0])), "the role .* stands twice"),
        (lambda s: s[0].update(gold_label="related"), "the label must be one of .* got 'related'"),
        (lambda s: s[0].update(gold_label=None), "the label must be one of .* got None"),
        (lambda s: s[0].update(gold_label=[]), "the label must be one of"),
        (lambda s: s[0].update(sentence=""), "must be a text that is not empty"),
        (lambda s: s.__setitem__(0, "text"), "expected an object with a list of sentences"),
    ],
)
def test_a_broken_item_of_dev_json_is_named(tmp_path, change, message):
    path = dev_json(tmp_path, ITEM)
    content = json.loads(path.read_text())
    change(content["data"]["intersentence"][0]["sentences"])
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_triples(path)


@pytest.mark.parametrize("data", [[], {}, {"intersentence": 3}, {"intersentence": [4]}])
def test_dev_json_of_another_form_is_refused(tmp_path, data):
    path = write_lines(tmp_path, {"version": "1", "data": data})
    with pytest.raises(InputError, match="data.intersentence|expected an object"):
        load_triples(path)


def test_a_missing_an_empty_and_a_binary_file_are_refused(tmp_path):
    with pytest.raises(InputError, match="stereoset, starter or a readable file; .*No such file"):
        load_triples(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="Is a directory"):
        load_triples(tmp_path)
    with pytest.raises(InputError, match="is empty"):
        load_triples(write_lines(tmp_path, "", " "))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not a UTF-8 text file"):
        load_triples(tmp_path / "binary")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.sampled_from(ROLES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
almost_items = st.fixed_dictionaries(
    {}, optional={key: json_values | st.just(value) for key, value in ITEM.items()}
)
almost_dev = st.fixed_dictionaries(
    {"data": json_values | st.fixed_dictionaries({"intersentence": st.lists(json_values)})}
)


@given(
    content=st.binary(max_size=200)
    | st.lists(almost_items, max_size=3).map(lambda v: "\n".join(map(json.dumps, v)).encode())
    | (almost_dev | json_values).map(lambda v: json.dumps(v).encode())
)
def test_any_broken_file_is_one_line_or_whole_triples(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("broken") / "file"
    path.write_bytes(content)
    try:
        triples = load_triples(path)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is fine
    else:
        assert triples
        assert all(text.strip() for triple in triples for text in triple.texts())


# -- the intrasentence half ------------------------------------------------------------------------

BLANK_ITEM = {
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
        ({"unrelated": None}, "`unrelated` must be a text"),
    ],
)
def test_items_of_another_form_are_refused(tmp_path, change, message):
    path = write_lines(tmp_path, {**BLANK_ITEM, **change})
    with pytest.raises(InputError, match=f"line 1.*{message}"):
        load_sentence_triples(path)


def test_unknown_categories_and_files_of_another_form_are_refused(tmp_path):
    with pytest.raises(
        InputError, match="`category` must be one of profession, all, which .* has; got 'race'"
    ):
        load_sentence_triples(write_lines(tmp_path, BLANK_ITEM), category="race")
    path = tmp_path / "dev.json"
    doubled = as_entry(BLANK_ITEM)
    doubled["sentences"].append(doubled["sentences"][0])
    for data, message in (
        ({"intersentence": []}, "no list data.intrasentence"),
        ({"intrasentence": [doubled]}, "the role unrelated stands twice"),
        ({"intrasentence": ["x"]}, "item 0: expected an object with a list of sentences"),
    ):
        path.write_text(json.dumps({"data": data}))
        with pytest.raises(InputError, match=message):
            load_sentence_triples(path)


def test_all_forms_give_the_same_items(tmp_path, monkeypatch):
    (lines,), data = load_sentence_triples(write_lines(tmp_path, BLANK_ITEM))
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": {"intrasentence": [as_entry(BLANK_ITEM)]}}))
    (official,), _ = load_sentence_triples(path)
    label = datasets.ClassLabel(names=list(ROLES))
    sentence = {"sentence": datasets.Value("string"), "gold_label": label}
    fields = dict.fromkeys(("id", "target", "bias_type", "context"), datasets.Value("string"))
    split = datasets.Dataset.from_list(
        [as_entry(BLANK_ITEM)], features=datasets.Features({**fields, "sentences": [sentence]})
    )
    monkeypatch.setattr("tda_bias.triples.hub_split", lambda *_: split)
    (hub,), _ = load_sentence_triples("stereoset")
    for item in (official, hub):
        assert item.texts() == lines.texts()
        assert (item.id, item.group, item.category) == ("i1", "cook", "profession")
    assert data.revision.startswith("blake2b-")


def test_the_environment_names_the_file_of_blanks_too(tmp_path, monkeypatch):
    both = tmp_path / "dev.json"
    both.write_text(json.dumps({"data": {"intrasentence": [as_entry(BLANK_ITEM)]}}))
    monkeypatch.setenv("TDABIAS_STEREOSET", str(both))
    assert load_sentence_triples("stereoset")[0] == load_sentence_triples(both)[0]
    assert not comes_from_hub("stereoset", "intrasentence")
    folder = tmp_path / "stereoset_intrasentence"
    folder.mkdir()
    both.rename(folder / "dev.json")
    monkeypatch.delenv("TDABIAS_STEREOSET")
    monkeypatch.setenv("TDABIAS_PAIRS", str(tmp_path))
    assert load_sentence_triples("stereoset")[0] == load_sentence_triples(folder)[0]
    assert load_sentence_triples(tmp_path)[0] == load_sentence_triples(folder)[0]
    monkeypatch.delenv("TDABIAS_PAIRS")
    # A file of the other half says nothing about these.
    monkeypatch.setenv("TDABIAS_STEREOSET", str(tmp_path / "intersentence.jsonl"))
    assert comes_from_hub("stereoset", "intrasentence")


@pytest.mark.parametrize(("name", "delimiter"), [("own.csv", ","), ("own.tsv", "\t")])
def test_blanks_are_read_from_a_table_as_from_json_lines(name, delimiter, tmp_path):
    (lines,), _ = load_sentence_triples(write_lines(tmp_path, BLANK_ITEM))
    path = tmp_path / name
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, BLANK_ITEM, delimiter=delimiter)
        table.writeheader()
        table.writerow(BLANK_ITEM)
        table.writerow({**BLANK_ITEM, "id": "", "target": "baker"})
    (first, second), _ = load_sentence_triples(path)
    assert replace(first, source=lines.source) == lines
    assert second.id == second.source == f"{path} line 3"


def test_triples_of_csv_with_an_open_quotation_mark_are_refused(tmp_path):
    path = tmp_path / "own.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, ITEM)
        table.writeheader()
        table.writerows([ITEM, {**ITEM, "target": "aunt", "unrelated": "Snow fell."}])
    path.write_text(path.read_text().replace("Iron rusts.", '"Iron rusts.'))
    with pytest.raises(InputError, match="own.csv line 2: .* nothing closes it"):
        read_triples(path)


def test_a_dev_json_with_a_key_twice_is_refused(tmp_path):
    path = dev_json(tmp_path, ITEM)
    path.write_text(path.read_text().replace('"context":', '"context": "x", "context":'))
    with pytest.raises(InputError, match="dev.json: the key 'context' stands twice in an object"):
        read_triples(path)


def test_blanks_that_stand_twice_count_once_and_their_names_are_their_own(tmp_path):
    path = write_lines(tmp_path, BLANK_ITEM, {**BLANK_ITEM, "id": "i2"}, BLANK_ITEM)
    (item,), data = load_sentence_triples(path)
    assert item.id == "i1"
    [remark] = data.remarks
    assert remark.startswith("2 items repeat others and are left out (pairs.jsonl line 2 says the")
    path = write_lines(tmp_path, BLANK_ITEM, {**BLANK_ITEM, "stereotype": "The cook is red."})
    with pytest.raises(InputError, match="line 2: the id 'i1' stands in .* line 1 too; every item"):
        load_sentence_triples(path)


def test_items_without_a_target_count_as_one_term_and_the_limit_is_per_target(tmp_path):
    lines = [
        {**BLANK_ITEM, "id": str(n), "target": t, "unrelated": f"The cook is {n}."}
        for n, t in enumerate(["", "", "", "cook"])
    ]
    items, _ = load_sentence_triples(write_lines(tmp_path, *lines), limit=2)
    assert Counter(item.group for item in items) == {UNNAMED: 2, "cook": 1}


@pytest.mark.real
def test_the_real_half_is_all_read():
    items, _ = load_sentence_triples(pairs_folder("stereoset_intrasentence", "dev.jsonl"))
    assert Counter(item.category for item in items) == {
        "gender": 255, "race": 962, "religion": 79, "profession": 809,
    }  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name here")
def test_a_pipe_is_read_once_and_its_content_is_pinned(tmp_path):
    pipe, line = tmp_path / "pipe", json.dumps(ITEM).encode()
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(line,))
    writer.start()
    source = read_triples(pipe)
    writer.join()
    assert source.revision == hash_of(line)
    assert len(source.items) == 1
