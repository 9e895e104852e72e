"""Whatever happens to a file that a run leaves is one line that names it, and never a traceback."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pvf.report import load_report
from tda_bias import HeadBias
from tda_bias.ablation.study import AblationStudy
from tda_bias.crossref.crossref import CrossReference, WordScores
from tda_bias.scores.stereoset_scores import StereoSetScores
from tda_bias.store.run import open_run
from tda_bias.types import InputError
from tests.support.damage import damaged
from unqover.answers import Answers

pytestmark = pytest.mark.thorough


def use_heads(folder: Path) -> None:
    """Everything other commands take from a run of heads."""
    heads = HeadBias.load(folder)
    assert all(extra is not None for extra in (heads.example, heads.items, heads.nulls))
    assert heads.kept is None


def use_preferences(folder: Path) -> None:
    load_report(folder)
    WordScores.load(folder)


def use_answers(folder: Path) -> None:
    Answers.load(folder)
    WordScores.load(folder)


USED: dict[str, Callable[[Path], object]] = {
    "heads": use_heads,
    "ablate": AblationStudy.load,
    "crossref": CrossReference.load,
    "stereoset": StereoSetScores.load,
    "pvf": use_preferences,
    "unqover": use_answers,
}
# Files for people to look at, which no command reads.
LOOKED_AT = {
    "heads": ("heads.csv", "summary.csv"),
    "pvf": ("summary.csv", "variants.csv", "distributions.csv"),
    "unqover": ("groups.csv", "subjects.csv", "summary.csv"),
}


@pytest.mark.parametrize("command", USED)
def test_every_damaged_file_is_noticed_and_named(every_run, command, tmp_path):
    base = every_run["heads"].parent
    shutil.copytree(base, tmp_path / "runs")
    folder = tmp_path / "runs" / every_run[command].relative_to(base)
    names = [
        name
        for name in open_run(folder).record.files
        if not name.endswith((".png", ".svg")) and name not in LOOKED_AT.get(command, ())
    ]
    assert names
    for name in names:
        path, rng = folder / name, np.random.default_rng(0)
        whole = path.read_bytes()
        _, content = next(damaged(whole, rng, flips=1))
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"{name} is not as the run wrote it.*run the same"):
            USED[command](folder)
        path.write_bytes(whole)
    USED[command](folder)
