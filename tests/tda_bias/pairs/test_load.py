"""Pair sets: what is read of each, and that everything else is refused in one line."""

import json
import re
from collections import Counter
from dataclasses import replace

import datasets
import pytest

from tda_bias.pairs import load_pairs
from tda_bias.pairs.published import gender_of_more, paradigms, set_comes_from_hub
from tda_bias.sources import packaged
from tda_bias.types import InputError
from tests.support.pairs import USER_PAIR, pairs_folder, write_lines

CROWS = ",sent_more,sent_less,stereo_antistereo,bias_type,anon_writer\n"


# -- a user's file --


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"less": USER_PAIR["more"]}, "line 2: `more` and `less` are the same text"),
        ({"more": "  "}, "line 2: `more` must be a text that is not empty"),
        ({"less": "\u200b\u2060"}, "line 2: `less` must be a text that is not empty"),
        ({"stereo": "x"}, "line 2: unknown key `stereo`;.* allowed are id, group, more, less, set"),
        ({"group": 3}, "line 2: `group` must be .* string; got 3"),
        ({"id": "1"}, "line 2: the id '1' stands in .* line 1 too"),
        ({"context": "So"}, "line 2: `context` stands in some lines only"),
        ({"more": "\ud800"}, "line 2: `more` holds bytes that are no UTF-8 text"),
    ],
)
def test_a_wrong_line_of_a_users_file_is_named(tmp_path, change, message):
    path = write_lines(tmp_path, USER_PAIR, {**USER_PAIR, "id": "2", **change})
    with pytest.raises(InputError, match=message):
        load_pairs(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "line 1: expected a JSON object, got list"),
        ("nonsense", "line 1: not a JSON object"),
        ('{"id": "1", "group": "g", "more": "a b"}', "line 1: `less` is missing"),
        ('{"stereotype": "a", "anti-stereotype": "b"}', "line 1: this is a triple of StereoSet"),
        (" ", "is empty"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused(tmp_path, line, message):
    with pytest.raises(InputError, match=message):
        load_pairs(write_lines(tmp_path, line))


def test_a_users_file_is_read(tmp_path):
    lines = [
        {**USER_PAIR, "id": n, "context": start, "set": "jobs"}
        for n, start in ((7, "So:"), (8, "Then:"))
    ]
    read = load_pairs(write_lines(tmp_path, *lines))
    assert read.name == "jobs"
    assert [pair.id for pair in read.pairs] == ["7", "8"]
    assert read.pairs[0].texts()[0] == "So: The cook said he"
    assert read.revision.startswith("blake2b-")


def test_pairs_are_read_from_a_table_with_tabs_as_from_json_lines(tmp_path):
    (expected,) = load_pairs(write_lines(tmp_path, USER_PAIR)).pairs
    table = ["\t".join(map(str, row)) for row in (USER_PAIR, USER_PAIR.values())]
    (read,) = load_pairs(write_lines(tmp_path, *table, name="pairs.tsv")).pairs
    assert replace(read, source="") == replace(expected, source="")


def test_pairs_of_ones_own_with_the_name_of_a_published_set_are_refused(tmp_path):
    """They would get its score, and stand in for the guard."""
    named = write_lines(tmp_path, USER_PAIR, name="blimp.jsonl")
    said = write_lines(tmp_path, {**USER_PAIR, "set": "crows"})
    for path, name in ((named, "blimp"), (said, "crows")):
        with pytest.raises(InputError, match=f"'{name}' is the name of a published set; give"):
            load_pairs(path)
    other = write_lines(tmp_path, {**USER_PAIR, "set": "jobs"}, name="winobias.jsonl")
    assert load_pairs(other).name == "jobs"


def test_a_pair_that_stands_twice_is_refused(tmp_path):
    again = write_lines(tmp_path, USER_PAIR, {**USER_PAIR, "id": "other"})
    with pytest.raises(InputError, match="line 2: says the same as .* line 1; a pair that stands"):
        load_pairs(again)


def test_unknown_sets_groups_and_limits_are_refused(tmp_path):
    with pytest.raises(InputError, match="`pairs` must be one of crows, winobias, .* got 'wino'"):
        load_pairs("wino")
    with pytest.raises(InputError, match="where `data` is given"):
        load_pairs(write_lines(tmp_path, USER_PAIR), data=tmp_path)
    with pytest.raises(InputError, match="`group` 'nurze' .* did you mean nurse"):
        load_pairs("winobias", groups=["nurze"])
    with pytest.raises(InputError, match="`limit` must be at least 1"):
        load_pairs("winobias", limit=0)
    with pytest.raises(InputError, match="'packaged' is no folder with a file crows"):
        load_pairs("crows", data="packaged")
    with pytest.raises(InputError, match="has no file all_sentences.tsv"):
        load_pairs("winogender", data=tmp_path)


def test_the_limit_is_per_group_and_type():
    read = load_pairs("winobias", groups=["nurse", "guard"], limit=2)
    assert Counter((p.group, p.type) for p in read.pairs) == {
        (group, kind): 2 for group in ("nurse", "guard") for kind in ("type1", "type2")
    }


# -- CrowS-Pairs --


def test_crows_rows_become_pairs(tmp_path):
    path = tmp_path / "crows_pairs_anonymized.csv"
    path.write_text(
        CROWS + '0,"He, ran","She, ran",stereo,gender,a0\n4,Old,Young,antistereo,age,a1\n'
    )
    for data in (path, tmp_path):
        read = load_pairs("crows", data=data)
        first, second = read.pairs
        assert (first.id, first.group, first.type, first.unit) == ("0", "gender", "stereo", "a0")
        assert (first.more, first.less, first.scored) == ("He, ran", "She, ran", "shared")
        assert (second.id, second.type) == ("4", "antistereo")
    with pytest.raises(InputError, match="has no column `id`; it needs id, group, more, less"):
        load_pairs(path)


def test_a_crows_file_of_another_form_is_refused(tmp_path):
    path = tmp_path / "crows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="has no column `sent_more`; it needs sent_more"):
        load_pairs("crows", data=path)
    path.write_text(CROWS + "0,a,b,stereo\n")
    with pytest.raises(InputError, match="line 2: 4 fields, where the heading has 6"):
        load_pairs("crows", data=path)
    path.write_text(CROWS + "0,a,a,stereo,age,w\n")
    with pytest.raises(InputError, match="row 0: `more` and `less` are the same"):  # nothing else
        load_pairs("crows", data=path)


def test_the_hubs_crows_have_their_class_names(monkeypatch):
    features = datasets.Features(
        {
            "sent_more": datasets.Value("string"),
            "sent_less": datasets.Value("string"),
            "stereo_antistereo": datasets.ClassLabel(names=["stereo", "antistereo"]),
            "bias_type": datasets.ClassLabel(names=["race-color", "age"]),
        }
    )
    rows = {"sent_more": ["a"], "sent_less": ["b"], "stereo_antistereo": [1], "bias_type": [1]}
    split = datasets.Dataset.from_dict(rows, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: split)
    (pair,) = load_pairs("crows").pairs
    assert (pair.id, pair.type, pair.group, pair.unit) == ("0", "antistereo", "age", "age")


def test_crows_are_read_in_the_folder_that_the_environment_names(tmp_path, monkeypatch):
    (tmp_path / "crows_pairs").mkdir()
    path = tmp_path / "crows_pairs" / "crows_pairs_anonymized.csv"
    path.write_text(CROWS + "0,a,b,stereo,age,w\n")
    assert set_comes_from_hub("crows", None)
    monkeypatch.setenv("TDABIAS_PAIRS", str(tmp_path))
    assert load_pairs("crows") == load_pairs("crows", data=path)
    assert not set_comes_from_hub("crows", None)
    assert set_comes_from_hub("crows", "hub")


def test_an_unreachable_hub_is_one_line(monkeypatch):
    def fails(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    for name, data in (("crows", None), ("blimp", "hub")):
        with pytest.raises(InputError, match=r"neither in the cache nor .* give --data PATH"):
            load_pairs(name, data=data)


@pytest.mark.real
def test_the_real_crows_pairs_are_all_read():
    read = load_pairs("crows", data=pairs_folder())
    assert len(read.pairs) == 1508
    assert Counter(pair.type for pair in read.pairs) == {"stereo": 1290, "antistereo": 218}
    assert len({pair.group for pair in read.pairs}) == 9


# -- WinoBias --


def test_winobias_pairs_differ_in_pronouns_but_for_nine():
    read = load_pairs("winobias")
    assert Counter(pair.type for pair in read.pairs) == {"type1": 396, "type2": 396}
    assert len({pair.group for pair in read.pairs}) == 40
    assert {"type1-92", "type2-90"} < read.uneven
    assert len(read.uneven) == 9
    assert Counter((p.type, gender_of_more(p)) for p in read.pairs) == {
        (kind, gender): 198 for kind in ("type1", "type2") for gender in ("male", "female")
    }
    first = read.pairs[0]
    assert (first.id, first.group) == ("type1-1", "developer")
    assert first.more.startswith("The developer argued with the designer because he did")
    assert not any("[" in text for pair in read.pairs for text in pair.texts())


def test_winobias_files_of_another_form_are_refused(tmp_path):
    def write(pro, anti):
        for number in (1, 2):
            (tmp_path / f"pro_stereotyped_type{number}.txt.test").write_text(pro)
            (tmp_path / f"anti_stereotyped_type{number}.txt.test").write_text(anti)

    good = "1 [The cook] ate because [he] could.\n"
    write(good, good.replace("he]", "she]"))
    assert load_pairs("winobias", data=tmp_path).pairs[0].less == "The cook ate because she could."
    write(good, good + good)
    with pytest.raises(InputError, match="1 pro-stereotypical lines and 2 anti"):
        load_pairs("winobias", data=tmp_path)
    write("The cook ate\n", good)
    with pytest.raises(InputError, match="expected a number and a sentence"):
        load_pairs("winobias", data=tmp_path)
    write("1 The cook ate because [he] could.\n", good)
    with pytest.raises(InputError, match="no occupation stands in brackets"):
        load_pairs("winobias", data=tmp_path)


def test_winobias_parts_are_not_mixed_and_of_two_whole_ones_the_first_is_read(tmp_path):
    """The numbers of dev and test are the same, and so is the number of lines."""
    part = {"dev": ("The cook", "ate"), "test": ("The guard", "left")}

    def write(side, part_name):
        who, did = part[part_name]
        he = "he" if side == "pro" else "she"
        for number in (1, 2):
            path = tmp_path / f"{side}_stereotyped_type{number}.txt.{part_name}"
            path.write_text(f"1 [{who}] {did} because [{he}] could.\n")

    write("pro", "test")
    for alone in (tmp_path, tmp_path / "pro_stereotyped_type1.txt.test"):
        with pytest.raises(InputError, match=r"file (anti|pro)_stereotyped_type1.txt.\*"):
            load_pairs("winobias", data=alone)
    write("anti", "dev")
    with pytest.raises(InputError, match="has no file anti_stereotyped_type1.txt.test; of each"):
        load_pairs("winobias", data=tmp_path)
    write("anti", "test")
    assert {pair.group for pair in load_pairs("winobias", data=tmp_path).pairs} == {"guard"}
    write("pro", "dev")
    assert {pair.group for pair in load_pairs("winobias", data=tmp_path).pairs} == {"cook"}
    for path in tmp_path.glob("anti*.dev"):  # another part under the name of this one
        path.write_text(path.with_suffix(".test").read_text())
    with pytest.raises(InputError, match="2 of 2 pairs differ in more than their pronouns"):
        load_pairs("winobias", data=tmp_path)
    for path in tmp_path.glob("anti*.dev"):
        path.write_text("2 [The cook] ate because [she] could.\n")
    with pytest.raises(InputError, match="sentence 1 of the pro-.* stands beside sentence 2"):
        load_pairs("winobias", data=tmp_path)


def test_files_of_one_set_are_read_in_one_folder(tmp_path):
    for name, folder in (("all_sentences.tsv", "a"), ("occupations-stats.tsv", "b")):
        (tmp_path / folder).mkdir()
        shipped = packaged("winogender", name)
        (tmp_path / folder / name).write_text(shipped)
    with pytest.raises(InputError, match="has no file occupations-stats.tsv"):
        load_pairs("winogender", data=tmp_path)
    (tmp_path / "b" / "occupations-stats.tsv").rename(tmp_path / "a" / "occupations-stats.tsv")
    assert len(load_pairs("winogender", data=tmp_path).pairs) == 240


@pytest.mark.real
def test_what_ships_is_what_the_folders_hold():
    folder = pairs_folder()
    for name, below in (("winobias", ()), ("winogender", ()), ("blimp", ("blimp_subset",))):
        own, theirs = load_pairs(name), load_pairs(name, data=folder.joinpath(*below))
        texts = [(p.id, p.group, p.type, p.texts()) for p in own.pairs]
        assert texts == [(p.id, p.group, p.type, p.texts()) for p in theirs.pairs]


# -- Winogender --


def test_winogender_puts_the_majoritys_pronoun_first():
    read = load_pairs("winogender")
    assert Counter(pair.type for pair in read.pairs) == {"occupation": 120, "participant": 120}
    by_name = {pair.id: pair for pair in read.pairs}
    assert len({pair.group for pair in read.pairs}) == 60
    nurse, plumber = by_name["nurse.patient.0"], by_name["plumber.homeowner.0"]
    assert gender_of_more(nurse) == "female"
    assert gender_of_more(plumber) == "male"
    assert nurse.type == "occupation"
    assert by_name["nurse.patient.1"].type == "participant"


# -- BLiMP --


def test_the_sample_of_blimp_has_twenty_of_each_paradigm(tmp_path):
    read = load_pairs("blimp")
    assert set(Counter(pair.group for pair in read.pairs).values()) == {20}
    assert {pair.group for pair in read.pairs} == set(paradigms())
    assert len(paradigms()) == 67
    assert len({pair.type for pair in read.pairs}) == 12  # the paper's phenomena
    line = {"UID": "wh_island", "pairID": "3", "sentence_good": "a b", "sentence_bad": "b a"}
    write_lines(tmp_path, line, name="wh_island.jsonl")
    write_lines(tmp_path, {"UID": "x", "gpt2": 0.5}, name="summary.jsonl")
    (pair,) = load_pairs("blimp", data=tmp_path).pairs
    assert (pair.id, pair.type, pair.more) == ("wh_island-3", "island_effects", "a b")
    equal = [{**line, "pairID": str(n), "sentence_bad": "a  b"} for n in range(4, 11)]
    write_lines(tmp_path, line, *equal, name="wh_island.jsonl")
    read = load_pairs("blimp", data=tmp_path)
    assert [pair.id for pair in read.pairs] == ["wh_island-3"]
    [remark] = read.record.remarks
    assert remark.startswith("7 pairs have two equal texts and are left out (")
    assert remark.count("wh_island.jsonl line") == 3
    assert load_pairs("blimp").record.remarks == ()
    (tmp_path / "wh_island.jsonl").write_text(json.dumps({"UID": "x"}))
    with pytest.raises(InputError, match="holds no JSON Lines of BLiMP"):
        load_pairs("blimp", data=tmp_path)


# -- CrowS-Pairs in other languages --

LANGUAGES = "id,sent_more,sent_less,stereo_antistereo,bias_type\n"


def test_crows_of_a_language_leaves_pairs_out_by_name_that_cannot_be_compared(tmp_path):
    lines = ["7,Il dort.,Elle dort.,stereo,gender", "8,Il dort.,,stereo,age",
             "9,Il  dort.,Il dort.,antistereo,age"]  # fmt: skip
    (tmp_path / "crows_french.csv").write_text(LANGUAGES + "\n".join(lines))
    read = load_pairs("crows-fr", data=tmp_path)
    assert [(one.id, one.set, one.group, one.type, one.unit) for one in read.pairs] == [
        ("7", "crows-fr", "gender", "stereo", "pair 7")
    ]
    equal, lacking = read.record.remarks
    assert "pair 9" in equal
    assert "1 pair has no text on one side and is left out" in lacking
    assert "pair 8" in lacking


def test_the_dutch_file_is_read_in_its_own_encoding(tmp_path):
    path = tmp_path / "crows_dutch.csv"
    own, stray = "0,Zoë at één,".encode("mac_roman"), "Bo at één,stereo,gender\n".encode()
    path.write_bytes(LANGUAGES.encode() + own + stray)
    (one,) = load_pairs("crows-nl", data=path).pairs
    assert (one.more, one.less) == ("Zoë at één", "Bo at één")
    other = tmp_path / "crows_french.csv"
    other.write_bytes(LANGUAGES.encode() + own + stray)
    with pytest.raises(InputError, match="is not a UTF-8 text file"):
        load_pairs("crows-fr", data=other)


def test_a_language_is_read_from_the_environment_and_never_from_the_hub(tmp_path, monkeypatch):
    for data in (None, "hub"):
        with pytest.raises(InputError, match="`pairs` crows-en-revised is .* with crows_eng.csv"):
            load_pairs("crows-en-revised", data=data)
    assert not set_comes_from_hub("crows-fr", None)
    (tmp_path / "crows_eng.csv").write_text(LANGUAGES + "3,He ran.,She ran.,stereo,gender\n")
    monkeypatch.setenv("TDABIAS_PAIRS", str(tmp_path))
    assert load_pairs("crows-en-revised").pairs[0].id == "3"


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "number", "left_out"),
    [
        ("crows-en-revised", 1463, []),
        ("crows-fr", 1461, [["379"], ["129"]]),
        ("crows-nl", 1463, []),
    ],
)
def test_the_published_files_of_languages_are_read_whole(name, number, left_out):
    read = load_pairs(name, data=pairs_folder())
    assert len(read.pairs) == number
    assert [re.findall(r"pair (\d+)", remark) for remark in read.remarks] == left_out
    assert not any("\ufffd" in one.more or "√" in one.more for one in read.pairs)
