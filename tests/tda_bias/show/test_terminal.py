"""Tables and sentences as they are printed."""

import sys

import pandas as pd
import pytest

from tda_bias.show.table import Column, TableSpec
from tda_bias.show.terminal import print_lines, print_table, program_here
from tda_bias.show.text import Finding


def table(*rows, title=""):
    """A table of texts, its headings in the first row."""
    headings, *texts = rows
    columns = [Column(name, f"{{{name}}}", left=True) for name in headings]
    return TableSpec(title, [dict(zip(headings, row, strict=True)) for row in texts], columns)


@pytest.mark.parametrize("columns", ["40", "80", "300"])
def test_no_number_and_no_name_is_cut_in_a_narrow_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    values = {f"column{i}": [-5.71e-05 * (i + 1)] for i in range(9)}
    print_table(TableSpec.of(pd.DataFrame({"factors": ["professionals, x"], **values}), "a title"))
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "professionals" in shown
    for value in values.values():
        assert f"{value[0]:.3g}" in shown


def test_a_heading_is_whole_where_its_neighbours_have_more_to_say(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    print_table(
        table(
            ("ranking", "choosing targets", "other targets", "log-perplexity", "p"),
            ("importance", "0.97 to 0.12", "1.20 to 0.42 [0.10, 0.82]" * 2, "+0.0192", "0.190"),
        )
    )
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "log-perplexity" in shown
    assert {len(line) for line in shown.splitlines()} == {80}


def test_a_table_is_as_wide_as_the_terminal_where_it_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    print_table(table(("a", "b"), ("some words " * 12, "1")))
    assert {len(line) for line in capsys.readouterr().out.splitlines()} == {60}


def test_names_in_square_brackets_are_printed(capsys):
    name = "a [bold] :smile: [/] model"
    print_lines(name, "x" * 300)
    assert capsys.readouterr().out == f"{name}\n{'x' * 300}\n"
    print_table(table(("model",), (name,), title=name))
    assert capsys.readouterr().out.count(name) == 2


def test_commands_are_printed_as_the_shell_here_finds_them(tmp_path, monkeypatch):
    script = tmp_path / "my venv" / "bin" / "tdabias"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    found = Finding(result=["Found."], next=["tdabias report runs/a"])
    monkeypatch.setattr(sys, "argv", [str(script), "heads"])
    monkeypatch.setenv("PATH", str(tmp_path))  # not activated
    assert program_here() == f"'{script}'"
    assert found.lines(program=program_here())[-1] == f"NEXT     '{script}' report runs/a"
    monkeypatch.setenv("PATH", str(script.parent))
    assert program_here() == "tdabias"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert program_here() == "tdabias"
