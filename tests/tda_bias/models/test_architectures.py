"""Some architectures through the commands; on request all of them, as `make architectures`."""

import pytest

from tests.support.architectures import (
    PAGE_PATH,
    SAMPLE,
    Row,
    debias,
    grouped,
    main,
    names,
    on_page,
    row_of,
    tiny,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", SAMPLE)
def test_what_an_architecture_gives_is_what_the_page_says(name, subwords, tmp_path):
    row = row_of(name, subwords, tmp_path)
    said = on_page(name, PAGE_PATH.read_text(encoding="utf-8"))
    assert list(row.cells.values()) == said, row.said
    assert all("\n" not in said and len(said) < 800 for said in row.said.values())


def test_architectures_with_one_outcome_share_a_row_and_are_found_in_it():
    outcomes = {"xlnet": "refused", "falcon, new decoder": "exact", "falcon": "exact"}
    rows = [Row(name, {"patterns": "yes", "edit": edit}) for name, edit in outcomes.items()]
    page = grouped(rows)
    assert page.splitlines()[0] == "| yes | exact | falcon, new decoder; falcon |"
    assert {name: on_page(name, page)[1] for name in outcomes} == outcomes
    with pytest.raises(ValueError, match="unpack"):
        on_page("new decoder", page)


@pytest.mark.long
def test_what_every_architecture_gives_is_exact_or_refused():
    assert main(names()) == 0


@pytest.mark.parametrize("name", ["phi3", "dbrx", "falcon", "gpt_bigcode"])
def test_projections_that_hold_several_parts_are_cut_into_heads(name, subwords, tmp_path):
    tiny(name, len(subwords)).save_pretrained(tmp_path)
    subwords.save_pretrained(tmp_path)
    assert debias(str(tmp_path)) == "exact"
