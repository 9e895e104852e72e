"""Shares of the work, and which of them is a task's of Slurm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.store.shares import Shard, shares, slurm_share

NEITHER = {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}


def array(task: int, tasks: range) -> dict[str, str]:
    """What Slurm sets in a task of an array."""
    numbers = {"ID": task, "MIN": tasks[0], "MAX": tasks[-1], "STEP": tasks.step}
    numbers["COUNT"] = len(tasks)
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in numbers.items()}


def step(process: int, processes: int) -> dict[str, str]:
    """What srun sets in a process; sbatch around it has another number of tasks."""
    return {"SLURM_PROCID": str(process), "SLURM_STEP_NUM_TASKS": str(processes), **NEITHER}


# -- bad input --


@pytest.mark.parametrize("environment", [{}, NEITHER, {"SLURM_PROCID": "0"}])
def test_outside_of_arrays_and_srun_there_is_no_share(environment):
    with pytest.raises(ValueError, match="auto is for a task of a Slurm array .*as in 2/8"):
        slurm_share(environment)


def test_an_array_with_gaps_is_refused():
    gaps = array(3, range(1, 8)) | {"SLURM_ARRAY_TASK_COUNT": "3"}  # --array=1,3,7
    with pytest.raises(ValueError, match="array without gaps.* has 3 tasks from 1 to 7 by 1"):
        slurm_share(gaps)


# -- Slurm --


@given(
    first=st.integers(0, 20), count=st.integers(1, 40), stride=st.integers(1, 9),
    processes=st.integers(1, 5),
)  # fmt: skip
def test_tasks_of_any_array_and_its_steps_have_one_share_each(first, count, stride, processes):
    tasks = range(first, first + count * stride, stride)
    alone = [slurm_share(array(task, tasks)) for task in tasks]
    assert alone == [f"{place}/{count}" for place in range(1, count + 1)]
    inside = [
        slurm_share({**array(task, tasks), **step(process, processes)})
        for task in tasks
        for process in range(processes)
    ]
    assert inside == [f"{place + 1}/{count * processes}" for place in range(count * processes)]


def test_processes_of_srun_have_one_share_each():
    assert [slurm_share(step(process, 3)) for process in range(3)] == ["1/3", "2/3", "3/3"]
    assert Shard.named("3/4") == Shard(2, 4)


# -- shares --


@given(costs=st.lists(st.floats(0, 1e6), max_size=40), count=st.integers(1, 9))
def test_every_piece_belongs_to_one_share_and_none_is_much_larger(costs, count):
    spread = shares(costs, count)
    assert len(spread) == count
    assert sorted(piece for own in spread for piece in own) == list(range(len(costs)))
    loads = [sum(costs[piece] for piece in own) for own in spread]
    largest = max(costs, default=0.0)
    assert max(loads) <= min(loads) + largest * (1 + 1e-9)


def test_the_largest_pieces_come_first_and_equal_ones_in_their_order():
    assert shares([1, 5, 3, 3, 1], 2) == [[0, 1, 4], [2, 3]]
    assert shares([3, 3, 2, 2, 2], 2) == [[0, 2, 4], [1, 3]]
    assert shares([1.0] * 5, 3) == [[0, 3], [1, 4], [2]]
