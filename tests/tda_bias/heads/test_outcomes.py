"""What runs of heads come to: what is found, what is not, and what could not have been."""

from dataclasses import replace

import numpy as np
import pytest

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.heads.finding import heads_finding
from tda_bias.heads.outcomes import heads_outcomes
from tda_bias.show.meaning import meaning
from tda_bias.twins import make_twins


@pytest.fixture(scope="module")
def result(tiny):
    triples = load_triples("starter", category="gender", groups=["girl", "boy"], limit=6)
    twins = make_twins(load_triples("starter")).only(triples)
    return head_bias(tiny("gpt2"), triples, twins=twins, config=HeadBiasConfig(n_permutations=99))


def with_p(result, **columns):
    """The same run with other corrected p in its category's table."""
    return replace(result, category=result.category.assign(**columns))


NOTHING = dict.fromkeys(
    [f"{p}_{test}" for p in ("p", "p_max", "q") for test in ("relative_twin", "location_twin")], 0.5
)


def test_no_survivor_is_none_found_and_its_map_is_grey(result):
    [one] = heads_outcomes(with_p(result, **NOTHING))
    assert (one.word, one.found, one.of) == ("none found", 0, 8)
    assert one.verdict == "none found"
    assert not one.grid.survives.any()
    assert one.p == 0.5


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("p_max_relative_twin", 1),  # family-wise, of the ranking
        ("q_relative_twin", 1),  # FDR, of the ranking
        ("p_max_location_twin", 1),  # family-wise, of location
        ("q_location_twin", 0),  # no rule finds by it
    ],
)
def test_a_head_is_found_by_the_tests_that_the_finding_names(result, column, found):
    low = [0.5] * 5 + [0.01] + [0.5] * 2
    [one] = heads_outcomes(with_p(result, **NOTHING | {column: low}))
    assert (one.found, one.word) == (found, "clear" if found else "none found")
    survivors = [tuple(place) for place in np.argwhere(one.grid.survives)]
    assert survivors == [(1, 1)] * found  # the sixth of two layers of four


def test_as_many_heads_are_found_as_the_terminal_says(result):
    first, second = [0.01] + [0.5] * 7, [0.01, 0.01] + [0.5] * 6
    for columns in ({"p_max_relative_twin": first}, {"p_max_location_twin": second}):
        made = with_p(result, **NOTHING | columns)
        [one] = heads_outcomes(made)
        assert f"{one.found} head" in made.said("gender")
    [one] = heads_outcomes(none := with_p(result, **NOTHING))
    assert "No head is found" in none.said("gender")


def test_too_few_texts_to_find_anything_cannot_say(tiny):
    """Two groups of two contexts have 2^(1 + 1) exchanges that differ: no p below .25."""
    triples = load_triples("starter", category="gender", groups=["girl", "boy"], limit=2)
    twins = make_twins(load_triples("starter")).only(triples)
    run = head_bias(tiny("gpt2"), triples, twins=twins, config=HeadBiasConfig(n_permutations=99))
    [one] = heads_outcomes(with_p(run, **NOTHING))
    assert one.impossible
    assert one.verdict == "cannot say"


def test_the_items_are_the_texts_with_their_twins(result):
    [one] = heads_outcomes(result)
    assert len(one.items) == 12
    assert (one.items["twin, stereotype"] != "").all()


@pytest.mark.parametrize(("left", "shares"), [(0.4, [0.6]), (1.2, []), (np.nan, [])])
def test_wording_is_drawn_only_where_it_is_a_share(result, left, shares):
    [control] = result.record.controls
    made = control.model_copy(
        update={"twins": control.twins.model_copy(update={"difference_left": left})}
    )
    record = result.record.model_copy(update={"controls": [made]})
    [one] = heads_outcomes(replace(with_p(result, **NOTHING), record=record))
    assert [bar.share for bar in one.bars] == pytest.approx(shares)


def test_heads_without_twins_say_that_wording_is_in_what_is_found(tiny, result):
    triples = load_triples("starter", category="gender", groups=["girl", "boy"], limit=6)
    run = head_bias(tiny("gpt2"), triples, twins=None, config=HeadBiasConfig(n_permutations=99))
    [without], [with_them] = heads_outcomes(run), heads_outcomes(result)
    assert without.limits == ["without twins: wording is in it"]
    assert "wording is in it" in meaning("tiny", [without])[-1]
    assert with_them.limits == []
    assert "wording is in it" not in meaning("tiny", [with_them])[-1]
    assert (without.power, with_them.power) == tuple(
        heads_finding(one, "gender").power[0] for one in (run, result)
    )


def test_heads_that_were_named_say_that_no_others_were_tested(result):
    [control] = result.record.controls
    made = [control.model_copy(update={"negative_share": 0.1})]
    record = result.record.model_copy(update={"controls": made})
    [one] = heads_outcomes(replace(with_p(result, **NOTHING), record=record))
    assert one.limits == ["only the named heads were tested"]
    assert "only the named heads" in meaning("tiny", [one])[-1]
