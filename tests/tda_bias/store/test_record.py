"""One typed record: written with a checksum, read with its types."""

import math
from pathlib import Path

import numpy as np
import pytest

from tda_bias.store.record import (
    ModelRecord,
    Number,
    RecordPart,
    RunRecord,
    parsed,
    sealed,
    updated,
    validated_part,
)
from tda_bias.types import InputError
from tests.support.runs import record_of

WHERE = Path("folder/run.json")


# -- what is no record --


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ('{"version": 3', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"version": ' + "1" * 5000 + "}", "is not JSON"),
        ("[]", "is no record of a run"),
        ("{}", "names no version"),
        ('{"command": "heads"}', "names no version.*run it again"),
        ('{"version": 4}', "newer tdabias .*of version 4, this one reads 3.*update tdabias"),
        ('{"version": 2}', "by an earlier tdabias; run the command again with --overwrite"),
        ('{"version": 3, "command": "heads"}', "was changed or damaged; .*--overwrite"),
        ('{"version": "2"}', "was changed or damaged"),
    ],
)
def test_what_is_no_record_is_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parsed(text, WHERE)
    assert "\n" not in str(caught.value)
    assert "folder/run.json" in str(caught.value)


def test_a_record_changed_by_hand_is_noticed():
    text = sealed(record_of(settings={"seed": 0}))
    assert parsed(text, WHERE)["settings"] == {"seed": 0}
    with pytest.raises(InputError, match="was changed or damaged"):
        parsed(text.replace('"seed": 0', '"seed": 1'), WHERE)


@pytest.mark.parametrize("name", ["../a.csv", "a/b.csv", "..", "", "run.json", "C:\\a", "a\0"])
def test_a_record_names_files_of_its_own_folder_only(name):
    values = {**record_of().model_dump(), "files": {name: {"hash": "x"}}}
    with pytest.raises(InputError, match="`files`: names .* which is no file of a run"):
        validated_part(RunRecord, values, "run.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "`model`: "),
        ({"model": {"weights": "w"}}, "`model.name`: field required"),
        ({"model": {"name": 3}}, "`model.name`: input should be a valid string"),
        ({"settings": []}, "`settings`: "),
        ({"files": ["a"]}, "`files`: "),
        ({"files": {"a.csv": {"added": True}}}, "`files.a.csv.hash`: field required"),
        ({"made_from": {"heads": 1}}, "`made_from.heads`: "),
    ],
)
def test_an_entry_of_another_type_is_named(changes, message):
    with pytest.raises(InputError, match=f"run.json: {message}"):
        validated_part(RunRecord, {**record_of().model_dump(), **changes}, "run.json")


# -- entries --


def test_new_entries_win_and_unknown_ones_are_refused():
    record = record_of(settings={"seed": 0})
    assert updated(record, {"settings": {"seed": 1}}).settings == {"seed": 1}
    assert record.settings == {"seed": 0}
    with pytest.raises(TypeError, match="RunRecord has no setings"):
        updated(record, {"setings": {}})


class Measured(RecordPart):
    value: Number


def test_an_undefined_number_is_null_in_the_file_and_nan_in_memory():
    assert math.isnan(validated_part(Measured, {"value": None}, "x").value)
    record = record_of(settings={"rho": np.float64("nan"), "n": np.int64(3), "at": Path("a")})
    back = parsed(sealed(record), WHERE)
    assert back["settings"] == {"rho": None, "n": 3, "at": "a"}


def test_it_fills_in_when_and_with_what_it_was_made():
    record = RunRecord(command="heads", model=ModelRecord(name="m"))
    assert {"torch", "transformers", "python"} <= set(record.packages)
    assert record.version == 3
    assert record.created is not None


@pytest.mark.parametrize(
    ("value", "default"),
    [("ten", 10), (True, 10), (1.5, 10), ([1], 10), (3, "name"), ("girl", ()), ([1], ()), ({}, ())],
)
def test_a_setting_of_another_type_is_refused_by_name(value, default):
    record = record_of(settings={"top": value})
    with pytest.raises(InputError, match=r"`settings.top` is .*; run it again"):
        record.setting("top", default)


def test_what_the_command_was_told_is_given_back():
    record = record_of(settings={"top": 3, "group": ["girl", "boy"], "limit": None})
    assert record.setting("top", 10) == 3
    assert record.setting("group", ()) == ("girl", "boy")
    assert record.setting("limit", 0) == 0
    assert record.setting("model", "tiny") == "tiny"
