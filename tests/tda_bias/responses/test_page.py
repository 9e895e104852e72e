"""Responses on the page of ``report``: closed, escaped, and shaded by what the group moves."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.config import RespondConfig
from tda_bias.plots.response_texts import response_texts
from tda_bias.plots.responses import FIGURES, responses_figure
from tda_bias.responses.respond import respond
from tda_bias.responses.result import Responses
from tda_bias.show.figures import drawings
from tda_bias.show.shaded import Piece, ShadedText, texts_html
from tda_bias.store.run import open_run
from tests.support.canvas import unseen
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


def test_the_figure_has_every_kind_with_its_interval_and_the_words_of_each_group(run):
    result = run.load(Responses.load)
    (one,) = drawings([run], FIGURES)
    effects, _ = one.figure.axes
    labels = [label.get_text() for label in effects.get_yticklabels()]
    assert labels[0] == "all (4)"
    assert len(labels) == result.prompts["kind"].nunique() + 1
    dots = [line for line in effects.lines if line.get_marker() == "o" and len(line.get_xdata())]
    drawn = [float(line.get_xdata()[0]) for line in dots]
    of_headline = result.effects[result.effects["measure"] == "without echo"]
    assert drawn == pytest.approx(list(of_headline["value"]))
    ratios = [*np.linspace(0.9, 0.1, 9), *np.linspace(-0.1, -0.3, 3)]
    made_up = pd.DataFrame({"word": list("abcdefghijkl"), "log_ratio": ratios, "q": 0.01})
    many = replace(result, words=made_up.assign(echo=False))
    figure = responses_figure(many)
    shown = [text.get_text() for text in figure.axes[1].texts]
    assert shown == list("abcdefg") + list("jkl")
    assert unseen(figure) == unseen(one.figure) == []
    none = replace(result, words=result.words.assign(q=1.0))
    (said,) = responses_figure(none).axes[1].texts
    assert said.get_text() == "no word has q < .05"
