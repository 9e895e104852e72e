"""Files are whole or not there; groups saved under other settings are refused."""

import errno
from pathlib import Path

import numpy as np
import pytest

from tda_bias.records.files import atomic, prepare_folder, remove_leftovers, write_text
from tda_bias.records.parts import PartStore, texts_hash
from tda_bias.types import InputError

ARRAYS = {"q": np.arange(3.0)}


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    with atomic(tmp_path / "a.txt") as temporary:
        temporary.write_text("half")
        assert not (tmp_path / "a.txt").exists()
    assert listing(tmp_path) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(KeyError), atomic(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
        raise KeyError
    assert (tmp_path / "a.txt").read_text() == "old"
    assert listing(tmp_path) == ["a.txt"]


def test_a_full_disk_is_one_line(tmp_path):
    with (
        pytest.raises(InputError, match="No space left on device; free space or choose another"),
        atomic(tmp_path / "a.txt"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert listing(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write .*Not a directory|File exists"):
        prepare_folder(tmp_path / "file" / "out")


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    killed = atomic(tmp_path / "groups" / "a.npz")
    killed.__enter__().write_text("half")
    write_text(tmp_path / "kept.txt", "whole")
    assert len(listing(tmp_path)) == 2
    remove_leftovers(tmp_path)
    assert listing(tmp_path) == ["kept.txt"]


def test_a_group_is_found_again(tmp_path):
    store = PartStore(tmp_path, {"model": "m"})
    assert store.load("gender", "a/b c", "hash") is None
    store.save("gender", "a/b c", "hash", ARRAYS)
    found = PartStore(tmp_path, {"model": "m"}).load("gender", "a/b c", "hash")
    np.testing.assert_array_equal(found["q"], ARRAYS["q"])
    assert set(found) == {"q"}


def test_groups_with_similar_names_do_not_share_a_file(tmp_path):
    store = PartStore(tmp_path, {})
    store.save("race", "Cape Verde", "x", ARRAYS)
    assert store.load("race", "Cape-Verde", "x") is None


@pytest.mark.parametrize(
    ("settings", "texts", "message"),
    [
        ({"model": "n", "seed": 0}, "hash", "model was 'm', now 'n'"),
        ({"model": "m", "seed": 1}, "hash", "seed was 0, now 1"),
        ({"model": "m"}, "hash", "seed was 0, now None"),
        ({"model": "m", "seed": 0}, "other", "other texts"),
    ],
)
def test_a_changed_setting_is_refused_by_name(tmp_path, settings, texts, message):
    PartStore(tmp_path, {"model": "m", "seed": 0}).save("gender", "g", "hash", ARRAYS)
    with pytest.raises(InputError, match=message):
        PartStore(tmp_path, settings).load("gender", "g", texts)


def test_a_damaged_group_is_refused_and_can_be_cleared(tmp_path):
    store = PartStore(tmp_path, {})
    store.save("gender", "g", "hash", ARRAYS)
    path = next(tmp_path.glob("*.npz"))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="cannot be read .*--no-resume"):
        store.load("gender", "g", "hash")
    store.clear()
    assert store.load("gender", "g", "hash") is None


def test_the_hash_of_texts_depends_on_tokens_and_their_order():
    first = [([1, 2], [3], [4])]
    assert texts_hash(first) == texts_hash([([1, 2], [3], [4])])
    assert len({texts_hash(t) for t in (first, [([1], [2, 3], [4])], [([3], [1, 2], [4])])}) == 3
