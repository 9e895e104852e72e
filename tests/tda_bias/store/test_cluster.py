"""Workers of a cluster: each part once, also if a worker is lost; only this process saves."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from distributed import LocalCluster

from tda_bias.store import cluster as module
from tda_bias.store.cache import Cache, Part
from tda_bias.store.cluster import Cluster, connected
from tda_bias.types import InputError
from tests.support.processes import end_this_worker

NAMES = [f"part {number}" for number in range(12)]


@dataclass(eq=False)
class Model:
    """Something large, of which a worker has its own."""

    weight: float
    loaded_by: int

    def mark(self) -> str:
        """Tells models apart."""
        return str(self.weight)

    def __getstate__(self):
        raise AssertionError("it was sent")


def made(weight: float, log: Path | None = None) -> Model:
    if log is not None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
    return Model(weight, os.getpid())


def named(model: Model) -> dict[str, object]:
    return {"model": model}


def parts(log: Path, model: Model | None = None, dies: str = "") -> list[Part]:
    """Parts whose numbers follow from their names, and which write down who computes them."""

    def compute(number: int) -> dict[str, np.ndarray]:
        with log.open("a") as file:
            file.write(f"{NAMES[number]},{os.getpid()}\n")
        if number == 5 and dies:
            end_this_worker(dies)
        scale = 1.0 if model is None else model.weight
        return {"values": scale * np.random.default_rng(number).random(1000)}

    return [
        Part(name, 1.0, lambda: {"texts": "t"}, partial(compute, number))
        for number, name in enumerate(NAMES)
    ]


def values(arrays) -> list[list[float]]:
    return [own["values"].tolist() for own in arrays]


def lines(log: Path) -> list[list[str]]:
    return [line.split(",") for line in log.read_text().splitlines()]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.csv"


@pytest.fixture
def alone(log, tmp_path):
    """The numbers of one process."""
    return values(Cache().each(parts(tmp_path / "log of one")))


@pytest.fixture
def cluster(workers):
    with connected(workers.scheduler_address) as cluster:
        yield cluster


# -- bad input --


def test_a_worker_with_another_version_is_named(cluster, monkeypatch):
    monkeypatch.setattr(module, "_versions", lambda: {"Python": "3.1"})
    with pytest.raises(InputError, match=r"the worker tcp://.* has Python 3\..*, this process Pyt"):
        cluster.hold(made(2.0), partial(made, 2.0), names=named, mark=Model.mark)


def test_a_worker_with_another_model_is_named(cluster):
    message = "the worker tcp.* loads another model under that name .*hash 3.0, here 2.0"
    with pytest.raises(InputError, match=message):
        cluster.hold(made(2.0), partial(made, 3.0), names=named, mark=Model.mark)


def test_a_model_that_a_worker_cannot_load_is_said_with_the_worker(cluster):
    def fails():
        raise InputError("`model` m could not be loaded")

    with pytest.raises(InputError, match="on the worker tcp.*: `model` m could not be loaded"):
        cluster.hold(made(2.0), fails, names=named, mark=Model.mark)


def test_what_a_part_raises_is_raised_here(cluster):
    def fails():
        raise InputError("log-probabilities are NaN")

    with pytest.raises(InputError, match="log-probabilities are NaN"):
        list(cluster.computed({"part": fails}))


def test_a_file_that_a_part_cannot_write_is_no_lost_scheduler(cluster):
    def fails():
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        list(cluster.computed({"part": fails}))


def test_a_scheduler_that_ends_is_one_line():
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50) as local,
        connected(local.scheduler_address) as lost,
    ):
        assert lost.n_workers == 0
        finished = lost.computed({"part": dict})

        def close_when_asked():
            if local.scheduler.tasks:
                return local.close()
            return local.loop.call_later(0.05, close_when_asked)

        local.loop.add_callback(close_when_asked)
        with pytest.raises(
            InputError, match="the scheduler of --cluster tcp.* has ended or cannot"
        ):
            next(finished)


# -- parts --


def test_workers_give_the_numbers_of_one_process_and_only_this_one_saves(
    cluster, log, alone, tmp_path
):
    cache = Cache(tmp_path / "parts", {"model": "m"}, cluster=cluster)
    told: list[tuple[int, int]] = []
    assert values(cache.each(parts(log), progress=lambda *of: told.append(of))) == alone
    assert told == [(done, len(NAMES)) for done in range(1, len(NAMES) + 1)]
    assert Counter(name for name, _ in lines(log)) == Counter(NAMES)
    assert str(os.getpid()) not in {process for _, process in lines(log)}
    assert len(list((tmp_path / "parts").glob("*.npz"))) == len(NAMES)
    # What is saved is not computed again, here or there.
    next((tmp_path / "parts").glob("part-7-*")).unlink()
    assert values(cache.each(parts(log))) == alone
    assert Counter(name for name, _ in lines(log)) == Counter([*NAMES, "part 7"])


def test_each_worker_makes_a_model_once_and_it_is_not_sent(cluster, log, alone, tmp_path):
    made_by = tmp_path / "made"
    model = made(2.0)
    cluster.hold(model, partial(made, 2.0, made_by), names=named, mark=Model.mark)
    for _ in range(2):
        cache = Cache(tmp_path / "parts", {"model": "m"}, cluster=cluster, resume=False)
        found = values(cache.each(parts(log, model)))
        np.testing.assert_array_equal(found, 2 * np.array(alone))
    makers = made_by.read_text().split()
    assert len(makers) == len(set(makers)) == 2
    assert {process for _, process in lines(log)} <= set(makers)


def test_a_cache_inside_a_part_reads_what_is_saved_and_saves_nothing(cluster, log, tmp_path):
    cache = Cache(tmp_path / "parts", {"model": "m"}, cluster=cluster)
    inner, *_ = parts(log)
    outer = Part("outer", 1.0, dict, lambda: cache.get(inner))
    (first,) = values(cache.each([outer]))
    assert [path.name[:5] for path in (tmp_path / "parts").iterdir()] == ["outer"]
    assert values(cache.each([inner])) == [first]


def test_a_killed_worker_costs_only_what_it_held(cluster, log, alone, workers, tmp_path):
    cache = Cache(tmp_path / "parts", {"model": "m"}, cluster=cluster)
    assert values(cache.each(parts(log, dies="in part 5"))) == alone
    assert workers.n_ended("in part 5") == 1
    (dead,) = (path.name.rpartition("-")[2] for path in workers.folder.glob("in part 5-*"))
    times = Counter(name for name, _ in lines(log))
    assert set(times) == set(NAMES)
    again = {name for name, n in times.items() if n > 1}
    assert "part 5" in again
    assert again <= {name for name, process in lines(log) if process == dead}


@pytest.mark.thorough
def test_parts_that_end_one_worker_after_the_other_are_named(cluster, monkeypatch):
    def dies():
        os.kill(os.getpid(), 9)

    with pytest.raises(InputError, match="deadly ended 4 workers of --cluster .*one after the"):
        list(cluster.computed({"deadly": dies}))


def test_a_cluster_is_left_as_it_was_found(workers):
    workers.cluster.wait_for_workers(2)  # one that another test has killed comes back
    with connected(workers.scheduler_address) as cluster:
        assert _soon(lambda: cluster.n_workers, 2)
        cluster.hold(made(2.0), partial(made, 2.0), names=named, mark=Model.mark)
        assert _held_by_workers(cluster) > 0
    with connected(workers.scheduler_address) as cluster:
        assert _soon(lambda: _held_by_workers(cluster), 0)


def _soon(value: Callable[[], int], expected: int, seconds: float = 30) -> bool:
    """Whether a value becomes the expected one; workers are slow on a busy machine."""
    end = time.monotonic() + seconds
    while value() != expected and time.monotonic() < end:
        time.sleep(0.1)
    return value() == expected


def _held_by_workers(cluster: Cluster) -> int:
    return sum(cluster._client.run(lambda: len(module._given)).values())
