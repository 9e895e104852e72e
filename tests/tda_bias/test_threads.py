"""Threads share work, keep its order, and leave torch's threads as they were."""

import threading
import time

import pytest
import torch

from tda_bias.threads import each_in_threads, in_threads


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_items(threads):
    def slower_first(item: int) -> int:
        time.sleep(0.01 if item == 0 else 0.0)
        return item**2

    assert list(each_in_threads(slower_first, range(20))) == [i**2 for i in range(20)]
    assert list(each_in_threads(slower_first, [])) == []


def test_torch_has_a_single_thread_in_each_and_its_threads_again_afterwards(threads):
    inside = list(each_in_threads(lambda _: torch.get_num_threads(), range(6)))
    assert inside == [1] * 6
    assert torch.get_num_threads() == threads


def test_an_error_is_raised_in_its_turn_and_what_has_not_begun_is_dropped(threads):
    begun = []

    def fail(item: int) -> int:
        begun.append(item)
        if item == 2:
            raise ZeroDivisionError("the third")
        time.sleep(0.005)
        return item

    results = each_in_threads(fail, range(100))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError, match="the third"):
        next(results)
    assert len(begun) < 12
    assert torch.get_num_threads() == threads


def test_whoever_stops_taking_results_leaves_no_thread_and_torch_as_it_was(threads):
    before = threading.active_count()
    results = each_in_threads(lambda item: item, range(50))
    assert next(results) == 0
    results.close()
    assert threading.active_count() == before
    assert torch.get_num_threads() == threads


def test_only_so_many_results_wait(threads):
    begun = []
    results = each_in_threads(begun.append, range(50), ahead=4)
    next(results)
    time.sleep(0.05)
    assert len(begun) <= 4 + 1
    results.close()


def test_tasks_run_once_each(threads):
    done = []
    in_threads([lambda i=i: done.append(i) for i in range(30)])
    assert sorted(done) == list(range(30))
