"""Twenty architectures through the commands; `make architectures` tries all."""

import pytest

from tests.support.architectures import SAMPLE, row_of

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", SAMPLE)
def test_what_an_architecture_gives_is_exact_or_refused(name, subwords, tmp_path):
    row = row_of(name, subwords, tmp_path)
    assert not {"WRONG", "TRACEBACK"} & set(row.cells.values()), row.said
    assert all("\n" not in said and len(said) < 800 for said in row.said.values())
