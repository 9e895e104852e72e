"""What sampled responses come to: a difference, which is no bias by itself."""

from dataclasses import replace

import numpy as np
import pytest

from tda_bias.config import RespondConfig
from tda_bias.responses.outcomes import respond_outcomes
from tda_bias.responses.respond import respond
from tda_bias.responses.result import HEADLINE
from tests.support.responses import some_people, some_prompts, writing_model


@pytest.fixture(scope="module")
def result():
    config = RespondConfig(samples=1, tokens=5, n_permutations=99)
    return respond(writing_model(by_group=True), some_prompts(5, 1), some_people(), config=config)


def with_row(result, **values):
    """The same run with other numbers of its response effect."""
    table = result.effects.copy()
    table.loc[table["measure"] == HEADLINE, list(values)] = list(values.values())
    return replace(result, effects=table)


def test_a_response_effect_is_a_difference_without_a_side_and_no_bias(result):
    [one] = respond_outcomes(result)
    assert not one.is_bias
    assert not one.signed
    assert one.value == result.effect(HEADLINE)["value"]


@pytest.mark.parametrize(
    ("twins", "placebos", "shares"),
    [(2.0, 1.0, [0.5]), (1.0, 1.5, []), (1.0, -0.1, []), (0.0, 0.0, []), (np.nan, 1.0, [])],
)
def test_a_card_draws_only_what_is_a_share(result, twins, placebos, shares):
    [one] = respond_outcomes(with_row(result, twins=twins, placebos=placebos))
    assert [bar.share for bar in one.bars] == shares


def test_a_card_says_nothing_of_an_effect_that_cannot_be_given(result):
    [one] = respond_outcomes(with_row(result, smallest=np.nan))
    assert not any("nan" in line for line in one.lines)
    [one] = respond_outcomes(with_row(result, smallest=0.5))
    assert "would find 0.50 nats" in one.lines
