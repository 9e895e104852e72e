"""Tables as columns of headings and cells."""

import pandas as pd
import pytest

from tda_bias.show.table import Column, TableSpec, groups_table, head_name, interval_of

NAN = float("nan")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("{r:n2}", "0.12"),
        ("{none:n2}", "undefined"),
        ("{p:p}", "0.0010"),
        ("{none:p}", "undefined"),
        ("{r:+.1f} ({n})", "+0.1 (3)"),
        (head_name, "L5H3"),
        (interval_of("r", "n"), "0.12 to 3.00"),
        (interval_of("r", "none"), "no interval"),
    ],
)
def test_a_cell_is_a_template_or_a_function_of_its_row(cell, text):
    row = {"r": 0.123, "none": NAN, "p": 0.001, "n": 3, "layer": 5, "head": 3}
    assert TableSpec("a title", [row], [Column("x", cell)]).cells() == [[text]]


def test_rows_are_records_or_a_data_frame():
    columns = [Column("a", "{a}"), Column("b", "{b:.1f}")]
    records = [{"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}]
    spec = TableSpec("", pd.DataFrame(records), columns)
    assert spec.headings == ["a", "b"]
    assert spec.cells() == TableSpec("", records, columns).cells() == [["1", "0.5"], ["2", "1.5"]]


def test_of_a_data_frame_words_begin_at_the_left_and_numbers_end_at_the_right():
    frame = pd.DataFrame({"{x}": ["a"], "n": [1000], "p": [-5.714e-05], "same": [True]})
    spec = TableSpec.of(frame)
    assert [column.left for column in spec.columns] == [True, False, False, True]
    assert spec.cells() == [["a", "1000", "-5.71e-05", "True"]]


def test_of_many_groups_a_few_are_printed_and_the_file_has_all():
    columns = [Column("group", "{group}", left=True)]
    rows = pd.DataFrame({"group": [f"g{i}" for i in range(14)]})
    table, more = groups_table("Groups", rows, columns, "groups.csv")
    assert len(table.cells()) == 12
    assert more == "2 further groups in groups.csv."
    assert groups_table("Groups", rows.head(0), columns, "groups.csv") == []
