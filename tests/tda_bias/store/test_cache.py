"""Finished parts: of something else or damaged they are refused; shared they come out the same."""

import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from tda_bias.store.cache import Cache, Part, texts_hash
from tda_bias.store.files import locked
from tda_bias.store.shares import Shard, shares
from tda_bias.types import InputError, ShareDone

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


def test_the_hash_of_texts_depends_on_tokens_and_their_order():
    first = [([1, 2], [3], [4])]
    assert texts_hash(first) == texts_hash([([1, 2], [3], [4])])
    assert len({texts_hash(t) for t in (first, [([1], [2, 3], [4])], [([3], [1, 2], [4])])}) == 3


# -- several processes --

NAMES = [f"part {number}" for number in range(12)]


def parts(computed: list[str] | None = None) -> list[Part]:
    """Parts whose numbers follow from their names."""

    def compute(number: int) -> dict[str, np.ndarray]:
        if computed is not None:
            computed.append(NAMES[number])
        return {"values": np.random.default_rng(number).random(1000)}

    return [
        Part(name, float(number % 5), lambda: {"texts": "t"}, partial(compute, number))
        for number, name in enumerate(NAMES)
    ]


def gathered(folder, computed: list[str] | None = None) -> list[list[float]]:
    cache = Cache(folder, {"model": "m"})
    return [arrays["values"].tolist() for arrays in cache.each(parts(computed))]


def shard(folder, index: int, count: int, computed: list[str] | None = None) -> None:
    cache = Cache(folder, {"model": "m"}, shard=Shard(index, count))
    with pytest.raises(ShareDone, match=f"Shard {index + 1}/{count} is done"):
        list(cache.each(parts(computed)))


# -- shards --


def test_processes_need_a_folder_to_share():
    with pytest.raises(ValueError, match="processes share the parts of a folder"):
        Cache(None, {}, shard=Shard(0, 2))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_shards_in_any_order_compute_every_part_once_and_the_same(tmp_path, order):
    computed: list[str] = []
    for index in order:
        shard(tmp_path / "shared", index, 3, computed)
    assert Counter(computed) == Counter(NAMES)
    assert gathered(tmp_path / "shared", computed) == gathered(None)
    assert len(computed) == len(NAMES)


def test_a_shard_that_stopped_goes_on_and_what_lacks_is_computed_by_whoever_gathers(tmp_path):
    shard(tmp_path, 0, 2)
    there = set(tmp_path.iterdir())
    next(iter(there)).unlink()
    computed: list[str] = []
    shard(tmp_path, 0, 2, computed)
    assert len(computed) == 1
    assert set(tmp_path.iterdir()) == there
    assert gathered(tmp_path, computed) == gathered(None)
    assert len(computed) == 1 + len(NAMES) - len(there)


def test_progress_is_the_cost_of_all_parts_or_of_those_of_a_share(tmp_path):
    told: list[tuple[int, int]] = []
    alone = Cache().each(parts(), progress=lambda *counts: told.append(counts))
    assert len(list(alone)) == len(NAMES)
    costs = [part.cost for part in parts()]
    assert told == [(done, sum(costs)) for done in accumulate(costs)]
    told.clear()
    cache = Cache(tmp_path, {"model": "m"}, shard=Shard(0, 3))
    with pytest.raises(ShareDone):
        list(cache.each(parts(), progress=lambda *counts: told.append(counts)))
    share = [costs[number] for number in shares(costs, 3)[0]]
    assert told == [(done, sum(share)) for done in accumulate(share)]


def test_a_shard_prepares_its_share_goes_on_and_makes_what_it_lacks(tmp_path):
    """What other parts are made of, as the rankings of ``debias``."""
    computed: list[str] = []
    cache = Cache(tmp_path, {"model": "m"}, shard=Shard(1, 2))
    cache.prepare(parts(computed))
    assert 0 < len(computed) < len(NAMES)
    own = set(computed)
    for part, expected in zip(parts(computed), gathered(None), strict=True):
        assert cache.get(part)["values"].tolist() == expected
    assert Counter(computed) == Counter(NAMES)
    assert set(computed[: len(own)]) == own
    Cache(tmp_path / "alone", {"model": "m"}).prepare(parts(computed))
    assert not (tmp_path / "alone").exists()


# -- several processes and one folder --

SHARD = """
import sys, time
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from tests.tda_bias.store.test_cache import parts
from tda_bias.store.files import locked
from tda_bias.store.cache import Cache, Part
from tda_bias.store.shares import Shard
from tda_bias.types import ShareDone

folder, index = Path(sys.argv[1]), int(sys.argv[2])

def slowly(part):
    def compute():
        print("computing", flush=True)
        time.sleep(float(sys.argv[4]))
        return part.compute()
    return Part(part.name, part.cost, part.depends_on, compute)

with locked(folder, f"{index + 1}-of-3"):
    cache = Cache(folder / "parts", {"model": "m"}, shard=Shard(index, 3))
    try:
        list(cache.each([slowly(part) for part in parts()]))
    except ShareDone:
        print("done", flush=True)
"""


def started(folder, index: int, seconds: float) -> subprocess.Popen:
    arguments = [str(folder), str(index), os.getcwd(), str(seconds)]
    return subprocess.Popen(
        [sys.executable, "-c", SHARD, *arguments], stdout=subprocess.PIPE, text=True
    )


def test_of_three_processes_at_once_one_is_killed_and_its_share_goes_on(tmp_path):
    processes = [started(tmp_path, index, 60 if index == 1 else 0) for index in range(3)]
    # A share that begins holds the whole for that moment: all three are past it.
    for process in processes:
        assert process.stdout.readline() == "computing\n"
    # Which share is met first depends on the moment, also whether its holder has said its name yet.
    with (
        pytest.raises(InputError, match=r"shard [1-3]/3 of .* is being computed by"),
        locked(tmp_path),
    ):
        pass
    with (
        pytest.raises(InputError, match=f"shard 2/3 of .* by process {processes[1].pid} on"),
        locked(tmp_path, "2-of-3"),
    ):
        pass
    os.kill(processes[1].pid, signal.SIGKILL)
    said = [process.communicate()[0] for process in processes]
    assert [text.endswith("done\n") for text in said] == [True, False, True]
    assert started(tmp_path, 1, 0).communicate()[0].endswith("done\n")
    computed: list[str] = []
    with locked(tmp_path):
        assert gathered(tmp_path / "parts", computed) == gathered(None)
    assert computed == []


def test_a_share_is_refused_while_somebody_writes_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("tda_bias.store.files._PATIENCE_SECONDS", 0.0)
    code = "import sys, time; from tda_bias.store.files import locked\n"
    code += "with locked(sys.argv[1]): print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    message = f"is being written by process {holder.pid}"
    with pytest.raises(InputError, match=message), locked(tmp_path, "1-of-2"):
        pass
    holder.kill()
    holder.communicate()
    with locked(tmp_path, "1-of-2"), locked(tmp_path, "2-of-2"):
        pass
