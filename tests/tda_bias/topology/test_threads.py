"""Threads share work, and leave torch's threads as they were."""

import threading
import time

import pytest
import torch

from tda_bias.topology.persistence import in_threads


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_task_runs_once_with_a_single_thread_of_torch(threads):
    done, inside = [], []

    def task(number: int) -> None:
        inside.append(torch.get_num_threads())
        done.append(number)

    in_threads([lambda number=number: task(number) for number in range(30)])
    in_threads([])
    assert sorted(done) == list(range(30))
    assert inside == [1] * 30
    assert torch.get_num_threads() == threads


def test_an_error_drops_what_has_not_begun_and_leaves_no_thread(threads):
    begun, running = [], threading.active_count()

    def fail(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise ZeroDivisionError("the third")
        time.sleep(0.005)

    with pytest.raises(ZeroDivisionError, match="the third"):
        in_threads([lambda number=number: fail(number) for number in range(100)])
    assert len(begun) < 12
    assert threading.active_count() == running
    assert torch.get_num_threads() == threads
