"""Parts of something else, or damaged, are refused."""

from pathlib import Path

import numpy as np
import pytest

from tda_bias.runs.cache import Cache, Part, texts_hash
from tda_bias.types import InputError

ARRAYS = {"q": np.arange(3.0)}


TEXTS = {"texts": "hash"}


def part(name: str = "gender g", depends_on=TEXTS, *, saved: bool = False) -> Part:
    """A part with the numbers ``ARRAYS``; one that is ``saved`` must not be computed again."""

    def compute():
        assert not saved, "computed again"
        return ARRAYS

    return Part(name, 1.0, lambda: depends_on, compute)


def is_saved(cache: Cache, name: str = "gender g") -> bool:
    try:
        cache.get(part(name, saved=True))
    except AssertionError:
        return False
    return True


def saved_part(folder: Path, name: str = "gender g", **identity) -> Path:
    Cache(folder, identity).get(part(name))
    (path,) = [p for p in folder.glob("*.npz") if name.split()[-1] in p.name]
    return path


def test_a_part_is_given_back_as_it_was_saved(tmp_path):
    cache = Cache(tmp_path, {"model": "m"})
    assert not is_saved(cache, "gender a/b c")
    cache.get(part("gender a/b c"))
    again = Cache(tmp_path, {"model": "m"}).get(part("gender a/b c", saved=True))
    np.testing.assert_array_equal(again["q"], ARRAYS["q"])
    assert set(again) == {"q"}


def test_a_cache_without_a_folder_keeps_nothing():
    cache = Cache(None, {"model": "m"}, resume=False)
    cache.get(part())
    assert not is_saved(cache)


def test_parts_with_similar_names_do_not_share_a_file(tmp_path):
    cache = Cache(tmp_path, {})
    cache.get(part("race Cape Verde"))
    assert not is_saved(cache, "race Cape-Verde")


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
        Cache(tmp_path, identity).get(part(depends_on=depends_on))


def test_parts_of_something_else_are_computed_again_where_that_was_asked_for(tmp_path):
    saved_part(tmp_path, model="m")
    assert is_saved(Cache(tmp_path, {"model": "m"}, overwrite=True))
    assert not is_saved(Cache(tmp_path, {"model": "n"}, overwrite=True))


def test_a_cut_part_is_refused_and_can_be_cleared(tmp_path):
    path = saved_part(tmp_path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=f"{path.name} cannot be read .*--no-resume"):
        Cache(tmp_path, {}).get(part())
    assert not is_saved(Cache(tmp_path, {}, resume=False))


def test_another_parts_file_under_this_name_is_refused(tmp_path):
    here, other = saved_part(tmp_path, "gender girl"), saved_part(tmp_path, "gender boy")
    here.write_bytes(other.read_bytes())
    with pytest.raises(InputError, match="girl.*holds 'gender boy', not 'gender girl'; delete it"):
        Cache(tmp_path, {}).get(part("gender girl"))


def test_numbers_changed_behind_the_archives_own_checksums_are_noticed(tmp_path):
    path = saved_part(tmp_path)
    with np.load(path) as saved:
        header = saved["header"]
    np.savez(path, header=header, q=ARRAYS["q"] + 1e-12)
    with pytest.raises(InputError, match=f"{path.name} is not as it was saved"):
        Cache(tmp_path, {}).get(part())


def test_every_flipped_bit_is_noticed_or_without_effect(tmp_path):
    path = saved_part(tmp_path, model="m")
    cache, whole = Cache(tmp_path, {"model": "m"}), path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            again = cache.get(part(saved=True))
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
        Cache(tmp_path, {}).get(part())


def test_the_hash_of_texts_depends_on_tokens_and_their_order():
    first = [([1, 2], [3], [4])]
    assert texts_hash(first) == texts_hash([([1, 2], [3], [4])])
    assert len({texts_hash(t) for t in (first, [([1], [2, 3], [4])], [([3], [1, 2], [4])])}) == 3
