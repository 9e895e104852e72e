"""A finding at a glance: its rows, where they break, and what other programs get of it."""

import io
import sys

import pytest

from tda_bias.show.brief import Brief, Line, bar, labelled
from tda_bias.show.output import Output, print_each
from tda_bias.show.table import Column, TableSpec
from tda_bias.show.terminal import print_lines
from tda_bias.show.text import Finding

LINES = [
    Line("p < .05", "26", "heads (13.5 by chance)"),
    Line("after correction", "0", "heads"),
    Line.of_share("wording", 0.79, "shared with the twins"),
    Line("would have found", "", "not known " * 12),
]


class Speaking:
    """How a command is told to speak."""

    def __init__(self, format="table", *, quiet=False, verbose=False):
        self.format, self.quiet, self.verbose = format, quiet, verbose


@pytest.fixture
def found():
    brief = Brief(["tiny", "gender"], "No head is found.", LINES, ["Top: L0H1"], ["A remark."])
    finding = Finding(result=["None of 8."], control=["Chance."], power=["Little."])
    return finding.led_by(brief).then("tdabias report runs/a")


def test_numbers_end_in_one_column_and_long_rows_go_on_under_them(found):
    title, blank, said, between, *rows = found.brief.head()
    assert (title, blank, said, between) == ("tiny · gender", "", "No head is found.", "")
    assert rows[0] == "  p < .05           26 heads (13.5 by chance)"
    assert rows[1] == "  after correction   0 heads"
    assert rows[2] == f"  wording           {bar(0.79)} 79 % shared with the twins"
    assert rows[3].startswith("  would have found     not known")
    assert rows[4].startswith(" " * rows[3].index("not") + "known")
    assert max(map(len, rows)) <= 80


@pytest.mark.parametrize(("share", "full"), [(0.0, 0), (0.5, 10), (0.74, 15), (1.0, 20)])
def test_a_bar_has_a_cell_for_each_twentieth(share, full):
    assert bar(share) == "█" * full + "░" * (20 - full)


@pytest.mark.parametrize("share", [-0.2, 1.3, float("nan")])
def test_what_is_no_share_of_a_whole_has_no_bar(share):
    assert Line.of_share("wording", share).share is None


def test_places_and_commands_stand_in_rows_and_stay_whole():
    long = "tdabias report " + "x" * 90
    assert labelled({"Files": "runs/a/ (a.csv)"}, ["tdabias heads", long]) == [
        "  Files  runs/a/ (a.csv)",
        "  Next   tdabias heads",
        f"         {long}",
    ]


def test_parts_and_tables_are_printed_when_they_are_asked_for(found, tmp_path, capsys):
    table = TableSpec("All heads", [{"head": "L0H1"}], [Column("head", "{head}")])
    made = Output(shown=[table], values={}, rows=None, finding=found, folder=tmp_path, files="a")
    made.print(Speaking())
    printed = capsys.readouterr().out
    assert printed.splitlines()[-5:] == [
        "  Top: L0H1",
        "  A remark.",
        "",
        f"  Files  {tmp_path}/ (a)",
        "  Next   tdabias report runs/a",
    ]
    assert "CONTROL" not in printed
    made.print(Speaking(verbose=True))
    printed = capsys.readouterr().out
    assert printed.index("No head is found.") < printed.index("RESULT") < printed.index("Files:")
    assert "│ L0H1 │" in printed


def test_without_a_sentence_the_parts_are_printed(capsys):
    finding = Finding(result=["None of 8."])
    Output(shown=[], values={}, rows=None, finding=finding).print(Speaking())
    assert capsys.readouterr().out == "RESULT   None of 8.\n"


def test_a_finding_read_from_its_values_prints_the_same(found):
    again = Finding.of_values(found.as_values())
    assert again.brief.said == found.brief.said
    assert again.as_values() == found.as_values()
    plain = Finding.of_values(Finding(result=["None of 8."]).as_values())
    assert (plain.result, plain.brief) == (["None of 8."], None)


def test_several_runs_are_printed_one_after_the_other(found, capsys):
    outputs = [(name, Output(shown=[], values={}, rows=None, finding=found)) for name in "ab"]
    assert print_each(iter(outputs), Speaking()) == []
    assert capsys.readouterr().out.count("No head is found.") == 2
    print_each(iter(outputs), Speaking(quiet=True))
    assert capsys.readouterr().out == ""


def test_bars_are_printed_where_the_terminal_has_no_such_characters(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print_lines(f"tiny · gender {bar(0.5)}")
    stream.flush()
    assert stream.buffer.getvalue() == b"tiny - gender ##########..........\n"
