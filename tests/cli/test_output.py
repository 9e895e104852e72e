"""Tables and sentences as they are printed."""

import pandas as pd
import pytest
from rich.table import Table

from tdabias_cli.output import print_lines, print_table, progress_bar, say, table_of
from tdabias_cli.settings import OutputSettings


@pytest.mark.parametrize("columns", ["40", "80", "300"])
def test_no_number_and_no_name_is_cut_in_a_narrow_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    values = {f"column{i}": [-5.71e-05 * (i + 1)] for i in range(9)}
    print_table(table_of(pd.DataFrame({"factors": ["professionals, x"], **values}), "a title"))
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "professionals" in shown
    for value in values.values():
        assert f"{value[0]:.3g}" in shown


def test_a_heading_is_whole_where_its_neighbours_have_more_to_say(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = Table("ranking", "choosing targets", "other targets", "log-perplexity", "p")
    table.add_row("importance", "0.97 to 0.12", "1.20 to 0.42 [0.10, 0.82]" * 2, "+0.0192", "0.190")
    print_table(table)
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "log-perplexity" in shown
    assert {len(line) for line in shown.splitlines()} == {80}


def test_a_table_is_as_wide_as_the_terminal_where_it_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    table = Table("a", "b")
    table.add_row("some words " * 12, "1")
    print_table(table)
    assert {len(line) for line in capsys.readouterr().out.splitlines()} == {60}


def test_names_in_square_brackets_are_printed(capsys):
    name = "a [bold] :smile: [/] model"
    print_lines(name, "x" * 300)
    assert capsys.readouterr().out == f"{name}\n{'x' * 300}\n"
    table = Table("model", title=name)
    table.add_row(name)
    print_table(table)
    assert capsys.readouterr().out.count(name) == 2


# -- on standard error --


@pytest.mark.parametrize(("quiet", "total"), [(False, 10), (False, None), (True, 10)])
def test_a_log_ends_with_all_that_was_done_and_quiet_is_quiet(quiet, total, capsys):
    settings = OutputSettings(quiet=quiet)
    with progress_bar(settings, "a [title]", "texts") as moved:
        for done in (0, 4, 10):
            moved(done, total)
        say(settings.console, "a [remark]")
    shown = capsys.readouterr().err
    assert ("10 texts" if total is None else "a [title]: 100%|") in shown or quiet
    assert ("\na [remark]\n" in shown) == (not quiet)
    assert "\r" not in shown
    assert shown.count("title") == (0 if quiet else 2)  # the first line and the last
