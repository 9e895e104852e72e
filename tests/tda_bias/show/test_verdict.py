"""Every word of a verdict comes about by the one rule, and only by it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.show.meaning import meaning, unsaid
from tda_bias.show.page import MAX_CARDS, card_outcomes
from tda_bias.show.verdict import (
    QUESTIONS,
    Bar,
    Outcome,
    balance_effect,
    corrected,
    lines_of,
    ordered,
    overall,
    share_effect,
    under_test,
)

CLEAR = Outcome(
    "says", "Gender", "beta", 0.5, 0.1, 0.9, "nats", p=0.01, clusters=8, effect=0.3,
    category="gender",
)  # fmt: skip
HEADS = Outcome(
    "heads", "Heads: gender", "heads", p=0.2, clusters=8, found=0, of=270, category="gender"
)


def remaining(outcomes):
    return [one for one in corrected(outcomes) if one.remains]


@pytest.mark.parametrize(
    ("change", "word", "verdict"),
    [
        ({}, "clear", "small, clear"),
        ({"effect": 0.5}, "clear", "medium, clear"),
        ({"effect": -0.8}, "clear", "large, clear"),
        ({"effect": math.nan}, "clear", "clear"),
        ({"p": 0.05}, "uncertain", "small, uncertain"),
        ({"clusters": 4}, "cannot say", "cannot say"),
        ({"p": math.nan}, "cannot say", "cannot say"),
        ({"impossible": True}, "cannot say", "cannot say"),
        ({"confounded": ("length",)}, "clear", "confounded: length"),
        ({"confounded": ("order",)}, "clear", "confounded: order"),
        ({"confounded": ("capability", "order")}, "clear", "confounded: capability, order"),
        ({"p": 0.5, "confounded": ("capability",)}, "uncertain", "confounded: capability"),
        ({"clusters": 4, "confounded": ("length",)}, "cannot say", "cannot say"),
    ],
)
def test_an_outcome_has_the_words_of_its_p_its_clusters_its_effect_and_its_controls(
    change, word, verdict
):
    one = replace(CLEAR, **change)
    assert (one.word, one.verdict) == (word, verdict)
    assert one.is_clear == (word == "clear" and "confounded" not in verdict)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "none found"),
        ({"found": 3, "p": 0.001}, "clear"),
        ({"impossible": True}, "cannot say"),
        ({"p": math.nan}, "cannot say"),
        ({"clusters": 2}, "none found"),  # heads are tested over contexts
    ],
)
def test_heads_are_found_or_not_or_could_not_have_been(change, verdict):
    assert replace(HEADS, **change).verdict == verdict


def test_the_words_are_the_same_in_a_terminal_and_as_json():
    line, values = CLEAR.line(), CLEAR.as_values()
    assert line.index("0.50 nats (0.10 to 0.90)") < line.index("small, clear")
    assert line.endswith(values["verdict"])
    assert (values["word"], values["size"], values["p"]) == ("clear", "small", 0.01)
    assert HEADS.as_values()["found"] == 0
    assert "0 of 270 heads" in HEADS.line()


def test_lines_stand_in_columns_and_an_interval_is_missed_only_where_clusters_lack():
    alone = replace(CLEAR, low=math.nan, high=math.nan, name="2 top heads ablated: target effect")
    lines = lines_of([CLEAR, alone])
    assert len({line.index("0.50 nats") for line in lines}) == 1
    assert len({line.index(CLEAR.verdict) for line in lines}) == 1
    assert alone.value_said == "0.50 nats"
    assert replace(alone, clusters=4).value_said == "0.50 nats (no interval)"


# -- the standardised form of shares --


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_shares_as_far_apart_have_the_same_variance_wherever_they_are(share, neutral):
    """The slope of h is one over the standard deviation of a share: 1 / sqrt(p (1 - p))."""
    step = 1e-6
    slope = (share_effect(share + step, neutral) - share_effect(share - step, neutral)) / (2 * step)
    assert slope == pytest.approx(1 / math.sqrt(share * (1 - share)), rel=1e-4)
    assert share_effect(neutral, neutral) == 0
    assert balance_effect(2 * share - 1) == pytest.approx(share_effect(share))


def test_what_is_no_share_has_no_standardised_form():
    assert math.isnan(share_effect(1.01))
    assert math.isnan(share_effect(math.nan))


# -- several outcomes --


def test_outcomes_stand_by_question_then_category_and_never_by_the_alphabet():
    names = [
        ("heads", "gender"),
        ("change", ""),
        ("says", ""),
        ("says", "race"),
        ("says", "gender"),
    ]
    given_ = [replace(CLEAR, question=q, category=c, name=f"{q} {c}") for q, c in names]
    assert [one.name for one in ordered(given_)] == [
        "says gender", "says race", "says ", "heads gender", "change ",
    ]  # fmt: skip


@given(st.lists(st.floats(0.001, 0.3), min_size=1, max_size=6))
def test_what_remains_is_holms_step_down_rule(pvalues):
    """Literally: from the smallest on, each below .05 over the number of those not yet passed."""
    outcomes = [replace(CLEAR, p=p) for p in pvalues]
    passed = 0
    for p in sorted(pvalues):
        if p * (len(pvalues) - passed) >= 0.05:
            break
        passed += 1
    assert (len(remaining(outcomes)), len(under_test(outcomes))) == (passed, len(pvalues))


def test_what_is_confounded_is_tested_and_does_not_remain_and_what_cannot_be_said_is_not():
    outcomes = [
        CLEAR,
        replace(CLEAR, confounded=("length",), p=0.001),
        replace(CLEAR, clusters=2),
        HEADS,
    ]
    assert (len(remaining(outcomes)), len(under_test(outcomes))) == (1, 3)
    after = "after Holm's correction for looking at"
    assert overall(outcomes) == f"Clear {after} 3 outcomes: Gender."
    nothing = f"Inconclusive: nothing is clear {after} 2 outcomes."
    assert overall([replace(CLEAR, p=0.5), outcomes[1]]) == nothing
    alone = [replace(CLEAR, p=0.04), replace(CLEAR, p=0.5)]
    assert overall(alone) == (
        f"{nothing} Looked at alone, Gender (p 0.0400, corrected 0.0800) would be."
    )
    assert overall([replace(CLEAR, clusters=2)]).startswith("Cannot say: ")
    assert overall([]) == ""


def test_beside_others_a_verdict_says_that_it_is_clear_alone():
    first, second = corrected([replace(CLEAR, p=0.04), replace(CLEAR, p=0.5)])
    assert (first.p_holm, second.p_holm) == (0.08, 0.5)
    assert (first.verdict_beside, second.verdict_beside) == (
        f"{CLEAR.verdict} alone", second.verdict,
    )  # fmt: skip
    [kept] = corrected([replace(CLEAR, p=0.04)])
    assert kept.remains
    assert kept.verdict_beside == kept.verdict
    [few] = corrected([replace(CLEAR, clusters=2)])
    assert math.isnan(few.p_holm)
    assert few.p_holm_said == ""
    # Correcting again changes nothing.
    assert corrected([first, second]) == [first, second]


def test_the_line_of_no_bias_is_named_in_the_unit_of_the_value():
    assert CLEAR.neutral_said == "0 nats: no bias; right of it for the stereotype"
    assert replace(CLEAR, signed=False).neutral_said == "0 nats: no bias"
    assert replace(CLEAR, question="change").neutral_said == "0 nats: no change"
    assert replace(CLEAR, unit="%", neutral=50).neutral_said.startswith("50 %: no bias")
    assert replace(CLEAR, unit="", neutral=0.235, is_bias=False).neutral_said == (
        "0.235: no difference"
    )


def test_six_outcomes_have_a_card_and_heads_and_changes_have_room_among_them():
    says = [replace(CLEAR, name=f"says {n}") for n in range(9)]
    heads = [replace(HEADS, name=f"heads {n}") for n in range(4)]
    change = [replace(CLEAR, question="change", name="change")]
    kept = [one.name for one in card_outcomes(ordered([*says, *heads, *change]))]
    assert kept == ["says 0", "says 1", "says 2", "heads 0", "heads 1", "change"]
    assert len(card_outcomes(ordered(says))) == MAX_CARDS
    many = [[replace(one, question=question) for one in says[:2]] for question in QUESTIONS]
    asked = [one.question for one in card_outcomes([one for some in many for one in some])]
    assert asked.count("says") == 2
    assert len(asked) == MAX_CARDS
    unsure = [replace(one, p=0.5) for one in says[:8]]
    assert "says 8" in [one.name for one in card_outcomes([*unsure, says[8]])]
    assert [one.name for one in card_outcomes(heads)] == [one.name for one in heads]
    assert card_outcomes([]) == []


# -- in sentences --


def test_three_sentences_say_what_is_clear_what_is_confounded_and_what_heads_show():
    crows = replace(CLEAR, name="CrowS-Pairs", category="", confounded=("length",))
    against = replace(CLEAR, name="Race", value=-0.5, category="race", effect=-0.9)
    unsure = replace(CLEAR, name="Profession", p=0.4, bars=[Bar("wording", 0.9)])
    clear, against = (replace(one, p=0.001) for one in (CLEAR, against))
    first, second, third = meaning("tiny", [clear, against, unsure, crows, HEADS])
    assert "large in Race (against the stereotype); small in Gender" in first
    assert "uncertain in Profession" in first
    assert "CrowS-Pairs" not in first
    assert "CrowS-Pairs" in second
    assert "longer and shorter" in second
    assert "No attention head is found to treat gender differently" in third
    [alone, wording] = meaning("tiny", [unsure])
    assert alone == "No bias of tiny is clear; it is uncertain in Profession."
    assert "90% (Profession)" in wording


def test_clear_in_sentences_is_what_remains_in_the_line_above_them():
    """One p of .03 among eight is no clear bias where 0 of 8 outcomes remain."""
    unsure = [replace(CLEAR, name=f"Set {n}", p=0.5) for n in range(7)]
    alone = replace(CLEAR, name="Winogender", p=0.03)
    assert remaining([alone, *unsure]) == []
    first, *_ = meaning("tiny", [alone, *unsure])
    assert first.startswith(
        "No bias of tiny is clear after correction; it is clear only if tested alone in Winogender,"
    )
    assert meaning("tiny", [alone]) == ["A bias of tiny is clear, and small in Winogender."]
    changed = replace(alone, question="change", name="Change: beta")
    others = [replace(one, question="change") for one in unsure]
    [said] = meaning("tiny", [changed, *others])
    assert said.startswith("Changed if tested alone, not after correction: beta by 0.50 nats")
    assert said.endswith("7 further outcomes are uncertain.")
    costly = replace(changed, confounded=("capability",))
    assert meaning("tiny", [costly])[0].startswith(
        "Changed, but so is the language: beta by 0.50 nats"
    )
    assert meaning("tiny", [replace(costly, p=0.6)]) == ["No outcome is measurably changed."]
    heads = replace(HEADS, found=3, p=0.03)
    assert "not after correction over outcomes" in meaning("tiny", [heads, *unsure])[-1]
    assert "not after" not in meaning("tiny", [heads])[0]


def test_tests_of_heads_have_a_sentence_by_what_chance_explains():
    def test(name, **change):
        return replace(CLEAR, question="tests", name=name, **change)

    kept = [test("A", p=0.001), test("B", p=0.04), test("C", p=0.5), test("D", clusters=2)]
    confounded = test("E", p=0.001, confounded=("capability",))
    assert meaning("tiny", [*kept, confounded])[-1] == (
        "Told from chance: A; only if tested alone: B; not told from chance: C; explained "
        "otherwise: E; too little to tell: D."
    )
    assert kept[0].neutral_said == "0 nats: chance alone"
    cards = card_outcomes(ordered([*(replace(CLEAR, name=str(n)) for n in range(6)), *kept]))
    assert [one.name for one in cards] == ["0", "1", "2", "3", "A", "B"]


def test_a_value_whose_sign_is_no_side_is_not_against_the_stereotype():
    against = replace(CLEAR, value=-0.5)
    assert "against the stereotype" in meaning("tiny", [against])[0]
    assert "against" not in meaning("tiny", [replace(against, signed=False)])[0]


def test_what_is_written_has_a_sentence_of_its_own_and_is_no_bias():
    writes = replace(CLEAR, name="Responses: gender", is_bias=False, effect=1.2)
    assert meaning("tiny", [writes]) == [
        "What tiny writes depends on the group (gender), which is no harm by itself."
    ]
    bias, writing = meaning("tiny", [CLEAR, replace(writes, p=0.5)])
    assert bias == "A bias of tiny is clear, and small in Gender."
    assert writing == "What tiny writes may or may not depend on the group (gender)."
    [few] = meaning("tiny", [replace(writes, clusters=3)])
    assert "too little to tell" in few


def test_each_of_several_models_has_a_sentence_of_its_own():
    def of(model, one, **change):
        return replace(one, model=model, name=f"{model}: {one.name}", **change)

    heads = [of("m1", HEADS), of("m2", replace(HEADS, found=2, p=0.001))]
    first, second, *_, last = meaning(
        "m1 and m2", [of("m1", CLEAR), of("m2", CLEAR, p=0.6), *heads]
    )
    assert first == "A bias of m1 is clear, and small in Gender."
    assert second == "No bias of m2 is clear; it is uncertain in Gender."
    assert "heads are found that treat gender of m2 differently" in last
    assert "no attention head is found to treat gender of m1" in last
    changes = [
        replace(CLEAR, question="change", name=f"{m}: Change: beta", model=m) for m in ("a", "b")
    ]
    [said] = meaning("a and b", changes)
    assert "beta of a by 0.50 nats" in said
    assert "beta of b by 0.50 nats" in said


def test_a_category_with_a_colon_keeps_its_name():
    odd = replace(HEADS, name="Heads: work: care")
    assert "to treat work: care differently" in meaning("tiny", [odd])[0]


def test_a_small_change_is_not_said_as_zero():
    small = replace(
        CLEAR, question="change", name="Change: beta", value=-0.003, low=-0.005, high=-0.0012
    )
    assert small.value_said == "-0.003 nats (-0.005 to -0.001)"
    assert "beta by -0.003 nats" in meaning("tiny", [small])[0]
    assert replace(small, high=0.4).value_said == "-0.00 nats (-0.01 to 0.40)"


def test_two_sentences_say_what_no_outcome_can():
    for outcomes, word in (
        ([CLEAR, HEADS], "cause"),
        ([replace(CLEAR, p=0.5)], "Uncertain is not none"),
        ([CLEAR], "Other texts"),
    ):
        first, second = unsaid(outcomes)
        assert "not the absence of bias" in first
        assert word in second


def test_every_value_of_an_outcome_can_be_written_as_json():
    from tda_bias.store.files import plain

    values = plain(replace(CLEAR, p=np.float64("nan"), found=None).as_values())
    assert values["p"] is None


def test_a_page_that_measures_what_is_written_does_not_say_that_it_does_not():
    said = Outcome("says", "Gender", "", p=0.01, clusters=9)
    written = Outcome("says", "Responses", "", p=0.01, clusters=9, is_bias=False)
    assert "generated text" in unsaid([said])[0]
    assert "generated text" not in unsaid([said, written])[0]
