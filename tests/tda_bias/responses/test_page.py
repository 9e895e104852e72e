"""Responses on the page of ``report``: closed, escaped, and shaded by what the group moves."""

import re

import pytest

from tda_bias.config import RespondConfig
from tda_bias.plots.response_texts import response_texts
from tda_bias.responses.respond import respond
from tda_bias.show.shaded import Piece, ShadedText, texts_html
from tda_bias.store.run import open_run
from tests.support.responses import some_people, some_prompts, writing_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("respond") / "run"
    config = RespondConfig(samples=1, tokens=5, n_permutations=99)
    model = writing_model(by_group=True)
    respond(model, some_prompts(3, 1), some_people(), config=config).save(folder)
    return open_run(folder)


def test_responses_that_carry_most_and_random_ones_are_shown_on_opening_alone(run):
    html = response_texts(run)
    assert html.count("<details>") == 8
    assert "open" not in re.findall(r"<details[^>]*>", html)[0]
    assert html.count(", most:") == html.count(", random:") == 4
    effects = [float(found) for found in re.findall(r"most: ([+-][\d.]+) nats", html)]
    assert effects == sorted(effects, reverse=True)
    assert re.search(r'<mark class="m5" title="\+\d', html)
    assert "style=" not in html  # which the policy of the page would not let through


def test_a_text_is_escaped_and_keeps_its_pieces_in_order():
    pieces = [Piece("<b>"), Piece(" one\n", 2, 'a "hint"'), Piece(" two")]
    html = texts_html("T", "L", [ShadedText("<i>", pieces)])
    assert "&lt;i&gt;" in html
    assert (
        '<p class="response">&lt;b&gt;<mark class="m2" title="a &#34;hint&#34;"> one\n</mark> two'
        "</p>" in html
    )
