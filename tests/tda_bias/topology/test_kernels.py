"""Where machine code is kept, and that processes do not disturb each other."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

from tda_bias.topology.gram import gram_matrices

COMPILE = """if True:
    import numpy as np
    from tda_bias.topology.kernels import kernels
    split = kernels(np.dtype(np.float32)).split_edges
    edges, births = np.array([[1, 2, 2]], np.int32), np.array([[1, 2]], np.int32)
    deaths = np.zeros((1, 1), np.int32)
    split(edges, births, births.copy(), 0, deaths, 0)
    assert deaths[0, 0] == 2
    print(sum(split.stats.cache_hits.values()), split.stats.cache_path)
"""


def start(**environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMPILE],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> list[str]:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out.split()


def test_of_processes_that_start_together_one_compiles(tmp_path):
    started = [start(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    hits, folders = zip(*(outcome(process) for process in started), strict=True)
    assert sorted(hits) == ["0", "1"]
    assert all(folder.startswith(str(tmp_path)) for folder in folders)
    assert not list(tmp_path.rglob("*.tmp.*"))


def test_without_a_folder_that_can_be_written_it_works_all_the_same():
    # None of the places where Numba looks exists for code that is no notebook's.
    assert outcome(start(NUMBA_CACHE_LOCATOR_CLASSES="IPythonCacheLocator")) == ["0", "None"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_texts", "rows"), [(2, 1), (5, 3), (9, 2)])
def test_long_step_functions_are_summed_in_pieces(dtype, n_texts, rows, monkeypatch):
    rng = np.random.default_rng(n_texts)
    sizes = rng.integers(1, 3000, n_texts)
    offsets = np.concatenate([[0], np.cumsum(sizes)]) + 4
    values = np.full((rows, offsets[-1] + 3), np.nan, dtype)  # what lies around is not read
    for start, stop in pairwise(offsets):
        values[:, start:stop] = np.sort(rng.random((rows, stop - start)), axis=1)
    n_steps = int(sizes.max())
    monkeypatch.setattr("tda_bias.topology.gram._TASK_STEPS", 700)
    monkeypatch.setattr("tda_bias.topology.gram._BLOCK_ELEMENTS", 900)
    ours = gram_matrices(values, offsets, n_steps)
    reference = gram_matrices(torch.from_numpy(values), offsets, n_steps)
    np.testing.assert_allclose(ours[0], reference[0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(ours[1], reference[1], rtol=1e-13)


def test_small_input_does_not_load_the_compiler():
    code = """if True:
        import sys
        import numpy as np
        from tda_bias.topology.persistence import births_deaths
        births_deaths(np.ones((4, 9, 9)))
        assert "numba" not in sys.modules
        births_deaths(np.ones((500, 9, 9)))
        assert "numba" in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)
