"""A release: one version everywhere, dated changes, a wheel that holds what the package needs."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import date
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]


def version() -> str:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]


def test_the_version_is_the_same_in_every_file_and_its_changes_have_a_date():
    assert yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())["version"] == version()
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    found = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", text, re.MULTILINE)
    assert found[1] == version()
    assert date.fromisoformat(found[2]).year >= 2026


def test_a_release_is_published_only_where_the_repository_says_so_and_without_a_password():
    text = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["if"] == "vars.PUBLISH_TO_PYPI == 'yes'"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
    assert {"run": "make release"} in jobs["build"]["steps"]


@pytest.mark.thorough
def test_the_wheel_holds_every_module_and_file_of_data(tmp_path):
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("this is no clone: which files belong to it is not known")
    for name in tracked.stdout.splitlines():
        if (REPOSITORY / name).is_file():
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, tmp_path / "tree" / name)
    how = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *how, str(tmp_path / "tree")], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"tdabias-{version()}-")
    packages = ("tda_bias/", "pvf/", "unqover/", "cli/")
    expected = {
        re.sub(r"^cli/", "tdabias_cli/", name)
        for name in tracked.stdout.splitlines()
        if name.startswith(packages)
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
