from pathlib import Path

import pytest

from tda_bias.runs.settings import read_settings
from tdabias_cli.heads import HeadsSettings
from tdabias_cli.main import run
from tdabias_cli.reproduce import ReproduceSettings

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory):
    """A run of the head paper on a tiny model, with its page."""
    out = tmp_path_factory.mktemp("reproduce")
    more = ["--data", "starter", "--limit", "3", "--n-resamples", "99", "--out", str(out)]
    assert run(["reproduce", "--model", str(tiny_folder), *more]) == 0
    return out


def test_without_a_model_it_is_one_line(capsys):
    assert run(["reproduce"]) == 2
    assert "`model` is missing; give --model" in capsys.readouterr().err


def test_reproduce_writes_one_page_with_its_pictures_and_tables(folder):
    text = (folder / "README.md").read_text()
    pictures = [line.split("(")[1].rstrip(")") for line in text.splitlines() if line[:2] == "!["]
    assert len(pictures) == 13
    for picture in pictures:
        assert (folder / picture).is_file()
    assert "tdabias reproduce" in text
    assert "--model" in text
    assert "--limit 3" in text
    assert (folder / "tables" / "table4_religion.tex").is_file()
    assert (folder / "heads" / "example.npz").is_file()


def test_the_configuration_is_what_the_command_does_by_default():
    path = Path(__file__).parents[2] / "configs" / "paper_gpt2.yaml"
    reproduced = ReproduceSettings(model="gpt2").heads()
    written = HeadsSettings(**read_settings(path), out=reproduced.out)
    assert written == reproduced
    assert written.twins == "none"
