"""Files are whole or not there; parts of something else, or damaged, are refused."""

import errno
from pathlib import Path

import numpy as np
import pytest

from tda_bias.runs.cache import PartStore, open_parts, texts_hash
from tda_bias.runs.files import atomic, prepare_folder, remove_leftovers, write_text
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


TEXTS = {"texts": "hash"}


def saved_part(folder: Path, name: str = "gender g", **identity) -> Path:
    PartStore(folder, identity).save(name, TEXTS, ARRAYS)
    (path,) = [p for p in folder.glob("*.npz") if name.split()[-1] in p.name]
    return path


def test_a_part_is_given_back_as_it_was_saved(tmp_path):
    store = PartStore(tmp_path, {"model": "m"})
    assert store.load("gender a/b c", TEXTS) is None
    store.save("gender a/b c", TEXTS, ARRAYS)
    again = PartStore(tmp_path, {"model": "m"}).load("gender a/b c", TEXTS)
    np.testing.assert_array_equal(again["q"], ARRAYS["q"])
    assert set(again) == {"q"}


def test_a_store_without_a_folder_keeps_nothing():
    store = open_parts(None, {"model": "m"}, resume=False)
    store.save("gender g", TEXTS, ARRAYS)
    assert store.load("gender g", TEXTS) is None


def test_parts_with_similar_names_do_not_share_a_file(tmp_path):
    store = PartStore(tmp_path, {})
    store.save("race Cape Verde", TEXTS, ARRAYS)
    assert store.load("race Cape-Verde", TEXTS) is None


@pytest.mark.parametrize(
    ("identity", "depends_on", "message"),
    [
        ({"model": "n", "seed": 0}, TEXTS, "model was 'm', now 'n'"),
        ({"model": "m", "seed": 1}, TEXTS, "seed was 0, now 1"),
        ({"model": "m"}, TEXTS, "seed was 0, now None"),
        ({"model": "m", "seed": 0}, {"texts": "x"}, "other texts"),
        ({"model": "m", "seed": 0}, {**TEXTS, "heads": [["L0H1"]]}, "other heads"),
        ({"model": "m", "seed": 0}, {}, "other texts"),
    ],
)
def test_a_changed_setting_is_refused_by_name(tmp_path, identity, depends_on, message):
    saved_part(tmp_path, model="m", seed=0)
    with pytest.raises(InputError, match=f"{message}.*choose another --out, or start over"):
        PartStore(tmp_path, identity).load("gender g", depends_on)


def test_parts_of_something_else_are_computed_again_where_that_was_asked_for(tmp_path):
    saved_part(tmp_path, model="m")
    store = open_parts(tmp_path, {"model": "n"}, resume=True, overwrite=True)
    assert store.load("gender g", TEXTS) is None
    same = open_parts(tmp_path, {"model": "m"}, resume=True, overwrite=True)
    assert same.load("gender g", TEXTS) is not None


def test_a_cut_part_is_refused_and_can_be_cleared(tmp_path):
    path = saved_part(tmp_path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=f"{path.name} cannot be read .*--no-resume"):
        PartStore(tmp_path, {}).load("gender g", TEXTS)
    store = open_parts(tmp_path, {}, resume=False)
    assert store.load("gender g", TEXTS) is None


def test_another_parts_file_under_this_name_is_refused(tmp_path):
    here, other = saved_part(tmp_path, "gender girl"), saved_part(tmp_path, "gender boy")
    here.write_bytes(other.read_bytes())
    with pytest.raises(InputError, match="girl.*holds 'gender boy', not 'gender girl'; delete it"):
        PartStore(tmp_path, {}).load("gender girl", TEXTS)


def test_numbers_changed_behind_the_archives_own_checksums_are_noticed(tmp_path):
    path = saved_part(tmp_path)
    with np.load(path) as saved:
        header = saved["header"]
    np.savez(path, header=header, q=ARRAYS["q"] + 1e-12)
    with pytest.raises(InputError, match=f"{path.name} is not as it was saved"):
        PartStore(tmp_path, {}).load("gender g", TEXTS)


def test_every_flipped_bit_is_noticed_or_without_effect(tmp_path):
    path = saved_part(tmp_path, model="m")
    store, whole = PartStore(tmp_path, {"model": "m"}), path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            again = store.load("gender g", TEXTS)
        except InputError as error:
            refused += path.name in str(error) and "--no-resume" in str(error)
        else:
            np.testing.assert_array_equal(again["q"], ARRAYS["q"])
    # What may change unseen is what nothing reads: times and attributes inside the archive.
    assert refused > 0.8 * len(whole)


def test_a_part_of_another_version_is_refused(tmp_path):
    path = saved_part(tmp_path)
    np.savez(path, header=np.array('{"format": 2, "texts": "hash"}'), **ARRAYS)
    with pytest.raises(InputError, match="cannot be read .*start over with --no-resume"):
        PartStore(tmp_path, {}).load("gender g", TEXTS)


def test_the_hash_of_texts_depends_on_tokens_and_their_order():
    first = [([1, 2], [3], [4])]
    assert texts_hash(first) == texts_hash([([1, 2], [3], [4])])
    assert len({texts_hash(t) for t in (first, [([1], [2, 3], [4])], [([3], [1, 2], [4])])}) == 3
