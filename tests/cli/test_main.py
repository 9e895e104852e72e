"""The program itself: what its help says."""

import re

import pytest

from tdabias_cli import settings
from tdabias_cli.main import run


@pytest.mark.parametrize(
    ("command", "of"),
    [
        (["heads"], settings.HeadsSettings),
        (["stereoset"], settings.StereoSetSettings),
        (["pvf"], settings.PvfSettings),
        (["unqover"], settings.UnqoverSettings),
    ],
)
def test_help_names_every_default(command, of, capsys, monkeypatch):
    """A value in square brackets would be taken for markup and vanish."""
    monkeypatch.setenv("COLUMNS", "300")
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    shown = re.sub(r"[\s│]+", " ", shown)
    for name, field in of.model_fields.items():
        if not field.is_required() and field.default not in (None, ()):
            option = f"--{(field.alias or name).replace('_', '-')}"
            assert option in shown
            assert f"(default: {field.default})" in shown, name
            assert (field.description or "") in shown, name


@pytest.mark.parametrize("command", ["ablate", "crossref", "export", "figures", "reproduce"])
def test_no_part_of_a_help_text_is_lost(command, capsys, monkeypatch):
    import inspect

    from tdabias_cli import ablate, crossref, export, figures, reproduce

    module = {m.__name__.split(".")[1]: m for m in (ablate, crossref, export, figures, reproduce)}
    monkeypatch.setenv("COLUMNS", "300")
    assert run([command, "--help"]) == 0
    shown = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    found = re.findall(r'help="([^"]+)"\)', inspect.getsource(module[command]))
    assert found or command == "reproduce"
    for text in found:
        assert text in shown
