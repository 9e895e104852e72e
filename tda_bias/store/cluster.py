"""Parts of a run computed by the workers of a Dask cluster; this process alone saves them.

The parts of a loop reach the workers in one package, so that they share there what they share here.
What is large and can be made again, a model, is not in it: every worker makes its own, once, and
the package names it and what it is made of.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import pickle
import platform
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, TypeVar
from uuid import uuid4

import cloudpickle
import numpy as np
from dask.system import CPU_COUNT
from distributed import (
    Client,
    KilledWorker,
    Nanny,
    Scheduler,
    SpecCluster,
    WorkerPlugin,
    as_completed,
)
from distributed.comm import CommClosedError

from tda_bias.types import InputError

T = TypeVar("T")
Arrays = Mapping[str, np.ndarray]
# What must be the same here and there: numbers depend on it, or whether packages can be read.
_PACKAGES = ("tdabias", "torch", "transformers", "numpy")
_PATIENCE_SECONDS = 10  # for what a scheduler answers, or a worker is about to get


class Cluster:
    """The workers of a Dask cluster.

    ```python
    from functools import partial

    from tda_bias import load_language_model
    from tda_bias.models.language_model import named_parts
    from tda_bias.store.cache import Cache
    from tda_bias.store.cluster import connected

    load = partial(load_language_model, "smollm2-135m", device="cpu")
    model = load()
    with connected("local:2") as cluster:
        cluster.hold(model, load, names=named_parts, mark=type(model).weight_hash)
        cache = partial(Cache, folder, cluster=cluster)  # for any function that takes a cache
    ```

    Args:
        client: Connected to the scheduler.
        place: What the cluster was asked for as, for messages.
    """

    def __init__(self, client: Client, place: str) -> None:
        self._client, self._place = client, place
        self._given: list[str] = []
        self._names: dict[int, tuple[str, str]] = {}
        self._held: list[Any] = []  # what the names are of: an address may not be used again

    @property
    def n_workers(self) -> int:
        """Workers that are there now."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def hold(
        self,
        thing: T,
        make: Callable[[], T],
        *,
        names: Callable[[T], Mapping[str, Any]],
        mark: Callable[[T], str],
    ) -> None:
        """Have every worker make what this process has, so that it need not be sent.

        Args:
            thing: What this process has: a model.
            make: Makes it; may refer to what was held before.
            names: The thing and what it is made of, by name: the same names there as here.
            mark: Tells one from another: a hash of the weights.

        Raises:
            InputError: if a worker has another version of a package, cannot make it, or makes
                another one.
        """
        key = self._give(self._packed(make), names=names, mark=mark, expected=mark(thing))
        self._names |= {id(own): (key, name) for name, own in names(thing).items()}
        self._held.append(thing)

    def computed(
        self, parts: Mapping[str, Callable[[], Arrays]]
    ) -> Generator[tuple[str, Arrays], None, None]:
        """Names of parts and their arrays, as they are finished.

        A part whose worker is lost is computed by another one.

        Raises:
            InputError: as the parts do, if parts end their workers, or the scheduler is gone.
        """
        if not parts:
            return
        key = self._give(self._packed(list(parts.values())))
        futures = {
            self._client.submit(_computed, key, number, key=f"{name} {key}", pure=False): name
            for number, name in enumerate(parts)
        }
        try:
            for future, arrays in as_completed(futures, loop=self._client.loop, with_results=True):
                if future.cancelled():  # which only happens when its scheduler has gone
                    raise self._gone()
                yield futures[future], arrays
                future.release()
        except KilledWorker as error:
            part = error.task.removesuffix(f" {key}")
            raise InputError(
                f"{part} ended {error.allowed_failures + 1} workers of --cluster {self._place} one "
                "after the other (for want of memory?); finished parts are kept, the same command "
                "goes on"
            ) from None
        except OSError as error:
            # One of a part's own is told as such.
            if self._client.status == "running" and not isinstance(error, CommClosedError):
                raise
            raise self._gone() from None
        finally:
            self._client.cancel([future for future in futures if not future.done()])
            self._take_back(key)

    def close(self) -> None:
        """Take from the workers what they hold."""
        for key in self._given[::-1]:
            self._take_back(key)

    # -- what workers are given --

    def _packed(self, thing: Any) -> bytes:
        """What is held is named in it, everything else is whole."""
        file = io.BytesIO()
        _Packer(file, self._names).dump(thing)
        return file.getvalue()

    def _give(self, packed: bytes, **how: Any) -> str:
        given = Given(uuid4().hex[:12], packed, _versions(), **how)
        self._given.append(given.name)
        try:
            self._client.register_plugin(given)
        except (ImportError, AttributeError, pickle.PickleError) as error:
            raise InputError(
                f"a worker of --cluster {self._place} has no tdabias, or another version of it "
                f"({error}); install the same packages there"
            ) from None
        except OSError:
            # A worker has died meanwhile: the others have it, and who comes in its place gets it.
            if self._client.status != "running":
                raise self._gone() from None
        return given.name

    def _take_back(self, key: str) -> None:
        self._given.remove(key)
        if self._client.status == "running":
            with suppress(OSError):  # of a worker that has died meanwhile, which holds nothing
                self._client.unregister_worker_plugin(key)

    def _gone(self) -> InputError:
        return InputError(
            f"the scheduler of --cluster {self._place} has ended or cannot be reached; finished "
            "parts are kept, the same command goes on"
        )


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Packs an object, in which what has a name is left out and named."""

    def __init__(self, file: io.BytesIO, names: Mapping[int, tuple[str, str]]) -> None:
        super().__init__(file)
        self._names = names

    def persistent_id(self, thing: Any) -> tuple[str, str] | None:
        return self._names.get(id(thing))


# -- on a worker -----------------------------------------------------------------------------------

_given: dict[str, Given] = {}
_arrived = threading.Condition()
# A model is run by one thread at a time.
_alone = threading.RLock()


class Given(WorkerPlugin):  # type: ignore[misc]
    """What every worker is given, also one that comes later: a package, opened there once.

    ``names``, ``mark`` and ``expected`` are of what is held, as in ``Cluster.hold``.
    """

    def __init__(
        self,
        name: str,
        packed: bytes,
        versions: Mapping[str, str],
        *,
        names: Callable[[Any], Mapping[str, Any]] | None = None,
        mark: Callable[[Any], str] | None = None,
        expected: str | None = None,
    ) -> None:
        self.name, self._packed, self._versions = name, packed, versions
        self._names, self._mark, self._expected = names, mark, expected
        self._opened: list[Any] = []
        self._worker = ""

    async def setup(self, worker: Any) -> None:
        """Take it, and open it while the worker goes on to answer its scheduler."""
        self._worker = worker.address
        with _arrived:
            _given[self.name] = self
            _arrived.notify_all()
        await asyncio.to_thread(self.opened)

    def teardown(self, worker: Any) -> None:
        """Let go of it."""
        _given.pop(self.name, None)

    def opened(self) -> Any:
        """What was packed; of what is held, by name, what it is made of.

        Raises:
            InputError: as ``Cluster.hold``.
        """
        with _alone:
            if not self._opened:
                self._opened.append(self._open())
            return self._opened[0]

    def _open(self) -> Any:
        own = _versions()
        other = [name for name, known in self._versions.items() if own[name] != known]
        if other:
            there, here = (f"{other[0]} {by[other[0]]}" for by in (own, self._versions))
            raise InputError(f"the worker {self._worker} has {there}, this process {here}")
        content = _Unpacker(io.BytesIO(self._packed)).load()
        if self._names is None or self._mark is None:
            return content
        try:
            made = content()
        except InputError as error:
            raise InputError(f"on the worker {self._worker}: {error}") from error
        mark = self._mark(made)
        if mark != self._expected:
            raise InputError(
                f"the worker {self._worker} loads another model under that name (its weights have "
                f"the hash {mark[:12]}, here {str(self._expected)[:12]}); give it the same files"
            )
        return self._names(made)


class _Unpacker(pickle.Unpickler):
    """Opens what ``_Packer`` packed."""

    def persistent_load(self, place: tuple[str, str]) -> Any:
        key, name = place
        return _taken(key).opened()[name]


def _taken(key: str) -> Given:
    """What the worker was given, which may arrive after the first task of it."""
    with _arrived:
        if not _arrived.wait_for(lambda: key in _given, timeout=_PATIENCE_SECONDS):
            raise RuntimeError(f"the worker was never given {key}")
        return _given[key]


def _computed(key: str, number: int) -> Arrays:
    """The arrays of a part of a package."""
    given = _taken(key)
    with _alone:
        arrays: Arrays = given.opened()[number]()
        return arrays


def _versions() -> dict[str, str]:
    """Versions of what must be the same here and there."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, **{name: version(name) for name in _PACKAGES}}


# -- clusters --------------------------------------------------------------------------------------


# Ctrl-C reaches every process of a terminal; this one ends those that it has started.
_LEAVES_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"


@contextmanager
def connected(place: str, *, gpus: Sequence[str] = ()) -> Iterator[Cluster]:
    """A cluster by its place, for as long as the block runs.

    Args:
        place: ``local:4`` for so many processes of this machine, which share its processors; or the
            address of a scheduler, ``tcp://host:8786``.
        gpus: Names of GPUs as in ``CUDA_VISIBLE_DEVICES``; local processes take turns at one each.

    Raises:
        InputError: if no scheduler answers.
    """
    number = place.removeprefix("local:")
    with _local(int(number), gpus) if number.isdigit() else _remote(place) as client:
        cluster = Cluster(client, place)
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def _local(n: int, gpus: Sequence[str]) -> Iterator[Client]:
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, CPU_COUNT // n)))
    workers = {
        number: {
            "cls": Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": 0,  # none but the machine's
                "dashboard": False,
                "silence_logs": logging.CRITICAL,
                "preload": [_LEAVES_INTERRUPTS],
                "env": {
                    "OMP_NUM_THREADS": threads,
                    **({"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}),
                },
            },
        }
        for number in range(n)
    }
    here = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": Scheduler, "options": here}
    with (
        SpecCluster(workers, scheduler, silence_logs=logging.CRITICAL) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _remote(place: str) -> Iterator[Client]:
    try:
        client = Client(place, timeout=_PATIENCE_SECONDS, set_as_default=False, name="tdabias")
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:120]
        raise InputError(
            f"`cluster` {place}: no scheduler answers there ({reason}); start one with `dask "
            "scheduler`, or give local:N"
        ) from None
    with client:
        yield client
