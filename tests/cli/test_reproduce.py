from pathlib import Path

import pytest

from tda_bias.runs.settings import read_settings
from tdabias_cli.figures import ReproduceSettings
from tdabias_cli.heads import HeadsSettings

pytestmark = pytest.mark.thorough


def test_reproduce_writes_one_page_with_its_pictures_and_tables(reproduced):
    text = (reproduced / "README.md").read_text()
    pictures = [line.split("(")[1].rstrip(")") for line in text.splitlines() if line[:2] == "!["]
    assert len(pictures) == 13
    for picture in pictures:
        assert (reproduced / picture).is_file()
    assert "tdabias reproduce" in text
    assert "--model" in text
    assert "--limit 3" in text
    assert (reproduced / "tables" / "table4_religion.tex").is_file()
    assert (reproduced / "heads" / "example.npz").is_file()


def test_the_configuration_is_what_the_command_does_by_default():
    path = Path(__file__).parents[2] / "configs" / "paper_gpt2.yaml"
    reproduced = ReproduceSettings(model="gpt2").heads()
    written = HeadsSettings(**read_settings(path), out=reproduced.out)
    assert written == reproduced
    assert written.twins == "none"
