"""``tdabias heads --dry-run``."""

import json

import pytest

from tdabias_cli.dry_run import bytes_text, time_text
from tdabias_cli.main import run


def test_a_dry_run_says_what_a_run_takes_and_leaves_nothing(tiny_folder, tmp_path, capsys):
    arguments = [
        *("heads", "--model", str(tiny_folder), "--category", "gender", "--data", "starter"),
        *("--limit", "3", "--n-resamples", "99", "--device", "cpu", "--dry-run"),
        *("--out", str(tmp_path / "out")),
    ]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    for line in ("texts, twins included", "memory in all, at most", "time in all", "nothing was"):
        assert line in printed
    assert run([*arguments, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"] == 4
    assert found["seconds_in_all"] == pytest.approx(sum(found["seconds"].values()))
    assert not (tmp_path / "out").exists()


def test_sizes_and_times_are_in_units_that_people_name():
    assert [bytes_text(n) for n in (0, 999, 1000, 123_456_789, 2.5e9, 3e15)] == [
        "0 B", "999 B", "1.0 kB", "123 MB", "2.5 GB", "3000 TB",
    ]  # fmt: skip
    assert [time_text(s) for s in (3.14, 150, 9000, 400_000)] == [
        "3.1 s", "2.5 min", "2.5 h", "4.6 days",
    ]  # fmt: skip
