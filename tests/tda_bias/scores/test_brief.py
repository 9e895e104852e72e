"""What is printed first of scores: the sentence says what the verdict says."""

from dataclasses import replace

import pytest

from tda_bias.scores.brief import pairs_brief, sentences_brief, stereoset_brief
from tda_bias.scores.outcomes import pairs_outcomes, sentence_outcomes, stereoset_outcomes
from tda_bias.scores.stereoset_scores import sentence_scores, stereoset_scores
from tda_bias.show.verdict import told
from tda_bias.triples import SentenceTriple, load_triples
from tests.support.pairs import scored_pairs


@pytest.fixture(scope="module")
def result(tiny_lm):
    return stereoset_scores(tiny_lm("gpt2"), load_triples("starter", category="gender", limit=3))


@pytest.mark.parametrize(
    ("longer", "shorter", "said", "words"),
    [
        ((9, 20), (45, 60), "above", "first text of a pair (`more`) is preferred"),
        ((11, 20), (15, 60), "below", "second text of a pair (`less`) is preferred"),
        ((2, 20), (18, 20), "confounded", "length explains it"),
        ((9, 20), (11, 20), "uncertain", "No preference"),
        ((2, 2), (2, 2), "cannot say", "Too few clusters"),
    ],
)
def test_of_pairs_the_sentence_is_chosen_by_the_verdict(tiny_lm, longer, shorter, said, words):
    """Two sides of one half are no length as long as the two intervals meet."""
    odds = [1.0 if n < won else -1.0 for won, of in (longer, shorter) for n in range(of)]
    made = scored_pairs(tiny_lm("gpt2"), odds, [1] * longer[1] + [-1] * shorter[1])
    [one] = pairs_outcomes(made)
    assert told(one) == said
    assert words in pairs_brief(made).said


def test_of_a_set_of_grammar_no_bias_is_told(tiny_lm):
    made = scored_pairs(tiny_lm("gpt2"), [1.0] * 8, [0] * 8)
    made = replace(made, record=made.record.model_copy(update={"set": "blimp"}))
    assert pairs_brief(made).said == (
        "The right text of a pair is preferred in 100.0 %: this is grammar, and no bias."
    )


@pytest.mark.parametrize(
    ("beta", "p", "targets", "said"),
    [
        (1.0, 0.01, 8, "the preference depends on the target, towards the stereotype"),
        (-1.0, 0.01, 8, "the preference depends on the target, away from the stereotype"),
        (1.0, 0.2, 8, "no target effect is found"),
        (1.0, 0.01, 3, "too few targets to say whether the preference depends on them"),
    ],
)
def test_a_target_effect_is_said_to_be_there_where_its_verdict_is_clear(
    result, beta, p, targets, said
):
    made = replace(result, beta=result.beta.assign(beta=beta, p_targets=p, targets=targets))
    assert stereoset_brief(made).said == f"Gender: {said}."


def test_the_share_of_wording_is_that_of_the_card(result):
    [one] = stereoset_outcomes(result)
    shares = [line.share for line in stereoset_brief(result).lines if line.label == "wording"]
    assert shares == [bar.share for bar in one.bars if bar.label == "wording"]
    assert len(shares) == 1


def test_whole_sentences_are_told_of_by_category_and_few_targets_say_nothing(tiny_lm):
    made = [
        SentenceTriple(
            f"{c}{n}", f"t{n}", c, f"the man {n} wrote", f"she {n} wrote", "nurse the", ""
        )
        for c, number in (("gender", 6), ("race", 3))
        for n in range(number)
    ]
    run = sentence_scores(tiny_lm("gpt2"), made)
    gender, race = sentence_outcomes(run)
    assert gender.word != "cannot say"
    assert race.word == "cannot say"
    first, *between, last = sentences_brief(run).said.split("; ")
    assert not between
    assert first.startswith("Gender: ")
    assert last == "race: too few targets to say whether the stereotype is preferred."
