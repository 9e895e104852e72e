"""Some architectures through the commands; on request all of them, as `make architectures`."""

import pytest

from tests.support.architectures import PAGE_PATH, SAMPLE, debias, main, names, row_of, tiny

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", SAMPLE)
def test_what_an_architecture_gives_is_what_the_page_says(name, subwords, tmp_path):
    row = row_of(name, subwords, tmp_path)
    assert str(row) in PAGE_PATH.read_text(encoding="utf-8").splitlines(), row.said
    assert all("\n" not in said and len(said) < 800 for said in row.said.values())


@pytest.mark.long
def test_what_every_architecture_gives_is_exact_or_refused():
    assert main(names()) == 0


@pytest.mark.parametrize("name", ["phi3", "dbrx", "falcon", "gpt_bigcode"])
def test_projections_that_hold_several_parts_are_cut_into_heads(name, subwords, tmp_path):
    tiny(name, len(subwords)).save_pretrained(tmp_path)
    subwords.save_pretrained(tmp_path)
    assert debias(str(tmp_path)) == "exact"
