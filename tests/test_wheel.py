"""The wheel: what it holds, and that it works where nothing of the repository can be imported.

Everything runs offline: the wheel is built with the environment's setuptools, and the installed
program finds its dependencies in the environment's site-packages.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

REPOSITORY = Path(__file__).parents[1]
INSTALLED_AS = {"tda_bias": "tda_bias", "pvf": "pvf", "unqover": "unqover", "cli": "tdabias_cli"}
SOURCES = (*INSTALLED_AS, "pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy: a `build` folder left in the repository would leak old modules into the wheel."""
    copied = tmp_path_factory.mktemp("source")
    without_caches = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, copied / name, ignore=without_caches)
        else:
            shutil.copy(REPOSITORY / name, copied)
    return copied


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(made), str(source))
    [path] = made.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--target", str(folder), str(wheel))
    return folder


def pip(command: str, *arguments: str) -> None:
    call = [sys.executable, "-m", "pip", command, "--no-deps", "--no-index", "--quiet", *arguments]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """Standard output of Python without its `site` module: no `.pth` file leads to the sources."""
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib")])
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TDABIAS_"))}
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def declared_version() -> str:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]


def test_a_wheel_has_the_four_packages_at_its_top_and_nothing_else(wheel):
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert top == {*INSTALLED_AS.values(), f"tdabias-{declared_version()}.dist-info"}


def test_a_wheel_holds_every_file_of_the_packages_and_no_other(wheel, source):
    expected = {
        str(Path(package, path.relative_to(source / folder)))
        for folder, package in INSTALLED_AS.items()
        for path in (source / folder).rglob("*")
        if path.is_file()
    }
    assert {".py", ".yaml", ".jsonl", ".csv"} <= {Path(name).suffix for name in expected}
    assert {f"{package}/py.typed" for package in INSTALLED_AS.values()} <= expected
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in held if ".dist-info/" not in name} == expected


def test_an_installed_wheel_imports_nothing_from_the_repository(installed, tmp_path):
    names = sorted(INSTALLED_AS.values())
    code = f"import {', '.join(names)}; print(*(m.__file__ for m in ({', '.join(names)})))"
    files = run(installed, tmp_path, "-c", code).split()
    assert files == [str(installed / name / "__init__.py") for name in names]


def test_an_installed_wheel_ranks_heads_from_an_empty_folder(installed, tiny_folder, tmp_path):
    script = str(installed / "bin" / "tdabias")
    arguments = "--category gender --data starter -L 2 --n-permutations 99 --top 3 --out found"
    printed = run(
        installed, tmp_path, script, "heads", "--model", str(tiny_folder), *arguments.split()
    )
    assert "Too few texts to find anything" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"found"}
    record = json.loads((tmp_path / "found" / "run.json").read_text(encoding="utf-8"))
    assert "heads.csv" in record["files"]
    assert record["tdabias"] == declared_version()
