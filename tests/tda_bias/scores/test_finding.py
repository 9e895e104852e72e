"""What the findings of scores say, and that they say nothing that is undefined."""

from dataclasses import replace

import pytest

from tda_bias.config import PairsConfig
from tda_bias.pairs import PairSet
from tda_bias.scores.finding import pairs_finding, stereoset_finding
from tda_bias.scores.pair_scores import pair_set_scores
from tda_bias.scores.stereoset_scores import stereoset_scores
from tda_bias.types import Triple
from tests.support.pairs import pair

TRIPLES = [
    Triple("man", "gender", "The man wrote.", "he was a cook", "she said a nurse", "the the the"),
    Triple("man", "gender", "The cook said the man", "wrote that", "felt she", "man the"),
    Triple("x", "race", "The nurse that he", "said the woman", "knew a", "the nurse he"),
]


def of_clusters(tiny_lm, n: int, preferred: int, kind: str = "gpt2", **options):
    """Scores of a pair per cluster, of which so many are preferred."""
    pairs = [
        pair("The cook said he", "The cook said she", id=str(i), group=str(i)) for i in range(n)
    ]
    result = pair_set_scores(
        tiny_lm(kind), PairSet("own", tuple(pairs), "f", None), config=PairsConfig(**options)
    )
    odds = [1.0] * preferred + [-1.0] * (n - preferred)
    odds *= result.items["reading"].nunique()
    return replace(result, items=result.items.assign(log_prob_more=odds, log_prob_less=0.0))


@pytest.mark.parametrize(
    ("n", "preferred", "found"),
    [
        # SD of 15 ones and 5 zeros .444, times the .660 SDs that a t-test of 20 finds.
        (20, 15, "With 20 clusters of pairs a share of 79 % is"),
        (3, 2, "With 3 clusters of pairs no share can be"),
        (8, 8, "With 8 clusters of pairs no share can be"),
        (1, 1, "With 1 cluster of pairs no share can be"),
    ],
)
def test_the_power_of_pairs_is_that_of_their_own_spread(tiny_lm, n, preferred, found):
    power = pairs_finding(of_clusters(tiny_lm, n, preferred)).power
    assert power == [f"{found} found four times out of five (t-test over clusters)."]


def test_the_interval_of_the_other_reading_has_the_confidence_of_the_run(tiny_lm):
    control = pairs_finding(of_clusters(tiny_lm, 5, 3, kind="bert", confidence=0.8)).control
    assert "(80%: " in control[-1]


def test_categories_with_too_few_twins_get_no_numbers_that_are_undefined(tiny_lm):
    found = stereoset_finding(stereoset_scores(tiny_lm("gpt2"), TRIPLES, placebos={}))
    assert found.result[0].startswith("Gender: the target effect (beta) is ")
    assert list(found.result[1:]) == ["Race: no item has a twin."]
    assert not any("variance" in line for line in found.control)  # r needs three items
    assert [line[:26] for line in found.power] == ["With 2 items a target effe"]
