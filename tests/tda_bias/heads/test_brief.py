"""A run of heads at a glance: what is said when heads survive, none does, or none could."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from tda_bias.heads.brief import heads_brief
from tda_bias.heads.finding import heads_finding
from tda_bias.heads.outcomes import heads_outcomes
from tda_bias.heads.ranking_controls import smallest_p
from tda_bias.show.table import TableSpec

NONE = "No head is found to treat gender differently (dispersion test)."


@pytest.fixture
def run(heads_run):
    """A run none of whose heads survives correction."""
    table = heads_run.category.copy()
    table[[name for name in table if name.startswith(("p_max_", "q_"))]] = 0.5
    return replace(heads_run, category=table)


def with_smallest(result, value):
    controls = tuple(c.model_copy(update={"smallest_p": value}) for c in result.record.controls)
    return replace(result, record=result.record.model_copy(update={"controls": controls}))


def surviving(result, number):
    table = result.category.copy()
    of_category = np.flatnonzero(table["category"] == "gender")[:number]
    column = table.columns.get_loc(f"p_max_{result.columns('gender').tested}")
    table.iloc[of_category, column] = 0.01
    return replace(result, category=table)


def literal_smallest(sets):
    """Exchanges that give every group's |sum| as it is, among all there are."""
    rng, shares = np.random.default_rng(0), []
    for sizes in sets:
        values = [rng.normal(size=size) for size in sizes]
        sums = [
            abs(
                sum(
                    own[chosen] - np.delete(own, chosen).mean()
                    for own, chosen in zip(values, members, strict=True)
                )
            )
            for members in product(*map(range, sizes))
        ]
        shares.append(np.isclose(sums, sums[0]).mean())
    return float(np.prod(shares))


def group(sizes, n=0):
    versions = SimpleNamespace(members=[np.arange(size) for size in sizes])
    statistic = SimpleNamespace(n=n)
    return SimpleNamespace(versions=versions, has_twins=bool(sizes), statistic=statistic)


@pytest.mark.parametrize("sets", [[[2, 2], [2, 2]], [[2, 2, 2]], [[4, 4], [4]], [[2], [3, 2]]])
def test_the_smallest_p_is_the_share_of_exchanges_that_change_nothing(sets):
    assert smallest_p([group(sizes) for sizes in sets], 99_999) == pytest.approx(
        literal_smallest(sets)
    )


def test_without_twins_labels_are_exchanged_and_draws_bound_every_p():
    pairs = [group([], 2), group([], 3)]
    assert smallest_p(pairs, 9999) == pytest.approx(literal_smallest([[2, 2], [2, 2, 2]]))
    assert smallest_p(pairs, 4) == pytest.approx(1 / 5)


def test_where_none_survives_the_top_of_the_ranking_is_said_to_be_no_finding(run):
    brief = heads_brief(with_smallest(run, 0.001), "gender", top=2)
    assert brief.said == NONE
    assert "demonstration only" not in brief.title
    first, second = run.top(2, category="gender").to_dict("records")
    names = f"L{first['layer']}H{first['head']} L{second['layer']}H{second['head']}"
    assert list(brief.shown) == [f"Top of the ranking, not findings: {names}"]
    labels = [line.label for line in brief.lines]
    assert labels == ["p < .05", "after correction", "wording", "would have found", "reliability"]


def test_heads_that_survive_stand_in_a_table_with_what_they_do_not_show(run):
    brief = heads_brief(surviving(run, 3), "gender")
    assert brief.said == "3 heads are found to treat gender differently (dispersion test)."
    (table,) = brief.shown
    assert isinstance(table, TableSpec)
    assert len(table.records) == 3
    assert "ablation tests that" in brief.remarks[0]


@pytest.mark.parametrize(("smallest", "few"), [(0.25, True), (0.05, True), (0.04, False)])
def test_where_no_p_below_5_per_cent_is_possible_nothing_can_be_found(run, smallest, few):
    expected = f"Too few texts to find anything: no p below {smallest:.2g} is possible."
    made = with_smallest(run, smallest)
    assert made.said("gender") == (expected if few else NONE)
    whole = heads_finding(made, "gender")
    assert whole.result[0].startswith(f"{made.said('gender').removesuffix('.')} (8 heads of ")
    # Then neither chance nor an effect could have given any.
    assert (whole.power == ["With so few texts no head can be found."]) == few
    numbers = {line.label: line.rest for line in heads_brief(made, "gender").lines}
    assert ("none is possible" in numbers["p < .05"]) == few
    assert ("by chance" in numbers["p < .05"]) != few
    assert (numbers["would have found"] == "nothing: too few texts") == few


def test_heads_without_a_value_are_not_tested_and_said(run):
    assert not any("have no value" in line for line in heads_brief(run, "gender").remarks)
    controls = tuple(
        c.model_copy(update={"hot_spots_expected": 0.05 * 6}) for c in run.record.controls
    )
    made = replace(run, record=run.record.model_copy(update={"controls": controls}))
    said = "2 of 8 heads have no value in this test and are not tested."
    assert said in heads_brief(made, "gender").remarks
    assert heads_outcomes(made)[0].of == 6


def test_of_a_run_that_did_not_note_it_nothing_is_said_of_too_few_texts(run):
    assert with_smallest(run, None).said("gender") == NONE


def test_texts_that_ship_demonstrate_and_the_first_line_says_so(run):
    data = SimpleNamespace(source="starter", remarks=(), revision=None)
    starter = replace(run, record=run.record.model_copy(update={"data": data}))
    brief = heads_brief(starter, "gender")
    assert brief.title.endswith(" · demonstration only")
    assert not any("demonstrate the tool" in remark for remark in brief.remarks)


def test_a_result_and_its_ranking_say_in_python_what_was_found(run):
    single = with_smallest(run, 0.001)
    assert NONE in str(single)
    first = single.top(2, category="gender")
    printed = str(first).splitlines()
    assert printed[0].startswith("tiny-gpt2 · gender · 8 heads, ")
    assert printed[1:3] == [NONE, "The top of a ranking, not findings: none survives correction."]
    assert NONE in first._repr_html_()
    assert str(first.head(1)).splitlines()[0].split()[:2] == ["layer", "head"]
    survived = surviving(single, 8).top(2, category="gender")
    assert "not findings" not in str(survived)
