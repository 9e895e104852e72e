"""Whatever happens to a file that a run leaves is one line that names it, and never a traceback."""

import json
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pvf.report import load_report
from tda_bias import HeadBias
from tda_bias.ablation.study import AblationStudy
from tda_bias.crossref.crossref import CrossReference, WordScores, target_finding
from tda_bias.plots.heads import caption
from tda_bias.runs.run import open_run
from tda_bias.scores.stereoset_scores import StereoSetScores
from tda_bias.types import InputError
from tests.support.damage import changed_records, damaged
from tests.support.runs import resealed
from unqover.answers import Answers
from unqover.bias import comparative, scores

pytestmark = pytest.mark.thorough


def use_heads(folder: Path) -> None:
    """Everything other commands take from a run of heads."""
    heads = HeadBias.load(folder)
    for category in heads.categories:
        heads.top(3, category=category)
        heads.survivors(category=category)
        heads.category_map(category)
        caption(heads, category, heads.rank_by)
    assert all(extra is not None for extra in (heads.example, heads.items, heads.nulls))
    assert heads.kept is None


def use_ablation(folder: Path) -> None:
    study = AblationStudy.load(folder)
    assert len(study.heads)


def use_crossref(folder: Path) -> None:
    target_finding(CrossReference.load(folder))


def use_answers(folder: Path) -> None:
    comparative(scores(Answers.load(folder).log_prob, "two_way"))
    WordScores.load(folder)


def use_preferences(folder: Path) -> None:
    with warnings.catch_warnings():  # intervals over numbers that somebody changed
        warnings.simplefilter("ignore")
        load_report(folder)
    WordScores.load(folder)


USED: dict[str, Callable[[Path], None]] = {
    "heads": use_heads,
    "ablate": use_ablation,
    "crossref": use_crossref,
    "stereoset": StereoSetScores.load,
    "pvf": use_preferences,
    "unqover": use_answers,
}
# Files that somebody looks at, and no command reads.
LOOKED_AT = (".png", ".svg", "heads.csv", "summary.csv", "variants.csv")
NOT_READ = {
    "unqover": ("groups.csv", "subjects.csv"),
    "stereoset": (),
}


def outcome(command: str, folder: Path, case: str) -> str:
    """What using a damaged run comes to: ``read``, or the one line that refuses it."""
    try:
        USED[command](folder)
    except InputError as error:
        line = str(error)
        assert "\n" not in line, case
        assert str(folder.parent) in line or "run.json" in line, f"{case}: {line}"
        return line
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    return "read"


def copied(every_run: dict[str, Path], command: str, to: Path) -> Path:
    """A copy of one run, with what lies inside, and with the run it was made from."""
    shutil.copytree(every_run["heads"].parent, to)
    return to / every_run[command].relative_to(every_run["heads"].parent)


def files_read(command: str, folder: Path) -> list[Path]:
    names = [n for n in open_run(folder).record.files or {} if not n.endswith(LOOKED_AT[:2])]
    skipped = (*(() if command == "ablate" else LOOKED_AT[2:]), *NOT_READ.get(command, ()))
    return [folder / name for name in names if name not in skipped]


@pytest.mark.parametrize("command", USED)
def test_every_damaged_file_is_noticed_and_named(every_run, command, tmp_path):
    folder, rng = copied(every_run, command, tmp_path / "runs"), np.random.default_rng(0)
    files = files_read(command, folder)
    assert files
    for path in files:
        whole = path.read_bytes()
        for what, content in damaged(whole, rng, flips=3):
            path.write_bytes(content)
            line = outcome(command, folder, f"{path.name}: {what}")
            assert f"{path.name} is not as the run wrote it" in line, what
            assert "run the same `tdabias " in line
        same_kind = sorted((tmp_path / "runs").rglob(f"*{path.suffix}"))
        path.write_bytes(next(p.read_bytes() for p in same_kind if p.read_bytes() != whole))
        assert path.name in outcome(command, folder, "another run's file")
        path.unlink()
        assert path.name in outcome(command, folder, "gone")
        path.write_bytes(whole)
    assert outcome(command, folder, "whole again") == "read"


@pytest.mark.parametrize("command", USED)
def test_a_record_with_other_entries_is_used_or_refused_in_one_line(every_run, command, tmp_path):
    folder, rng = copied(every_run, command, tmp_path / "runs"), np.random.default_rng(2)
    path = folder / "run.json"
    whole = path.read_text(encoding="utf-8")
    values = json.loads(whole)
    values.pop("checksum", None)
    seen = Counter[bool]()
    for what, changed in changed_records(values, rng, number=25):
        path.write_text(whole, encoding="utf-8")
        resealed(folder, lambda _, now=changed: now)
        seen[outcome(command, folder, what) == "read"] += 1
    assert seen[False] > 3
