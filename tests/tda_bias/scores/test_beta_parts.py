"""The parts of beta and its placebos, against sums written out token by token."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.config import StereoSetConfig
from tda_bias.scores.beta_parts import PARTS, changed_spans
from tda_bias.scores.stereoset_scores import StereoSetScores, stereoset_scores
from tda_bias.twins import Twins
from tda_bias.types import Triple
from tests.support.literal import causal_steps

TRIPLES = [
    Triple("man", "gender", "The man wrote.", "he was a man, cook", "she was nurse.", "the the"),
    Triple("man", "gender", "The nurse said.", "she felt he", "he wrote", "man the"),
    Triple("she", "gender", "The woman knew.", "she was the nurse", "a man felt", "wrote"),
    Triple("x", "race", "The nurse that he", "said the woman", "knew a", "the nurse he"),
]
SWAP = {"man": "woman", "woman": "man", "he": "she", "she": "he"}
OPTIONS = {"config": StereoSetConfig(seed=2)}


def swapped(text):
    return re.sub(r"\w+", lambda match: SWAP.get(match.group(), match.group()), text)


def twin_of(triple):
    names = ("context", "stereotype", "anti_stereotype")
    return replace(triple, **{name: swapped(getattr(triple, name)) for name in names})


def with_cook(triple, word="cook"):
    return replace(triple, context=triple.context.replace("The", f"The {word}"))


RACE = tuple(with_cook(TRIPLES[3], word) for word in ("woman", "man"))
TWINS = Twins(
    (
        (TRIPLES[0], (twin_of(TRIPLES[0]),)),
        (TRIPLES[2], (twin_of(TRIPLES[2]),)),
        (TRIPLES[3], RACE),
    )
)
PLACEBOS = {
    "synonym": Twins(tuple((triple, (with_cook(triple),)) for triple in TRIPLES[:2])),
    "role": Twins(((TRIPLES[2], (with_cook(TRIPLES[2]), with_cook(TRIPLES[2], "man"))),)),
}


@pytest.fixture(scope="module")
def model(tiny_lm):
    return tiny_lm("gpt2")


@pytest.fixture(scope="module")
def found(model):
    return stereoset_scores(model, TRIPLES, twins=TWINS, placebos=PLACEBOS, **OPTIONS)


def token_log_probs(model, text):
    """Every token of a text but the first: its log-probability and its last character."""
    encoded = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ends = [end for _, end in encoded["offset_mapping"]]
    return list(zip(causal_steps(model, encoded["input_ids"]), ends[1:], strict=True))


def literal(model, context, continuation, counts=lambda word: True):
    """Sum over the tokens of a continuation's words that count."""
    total, begin = 0.0, len(context) + 1
    for log_prob, end in token_log_probs(model, f"{context} {continuation}"):
        if end >= begin:  # a space may be a token of its own
            word = next(m for m in re.finditer(r"\S+", continuation) if begin + m.end() >= end)
            total += log_prob * bool(counts(word.group()))
    return total


def odds(model, context, triple, **options):
    return literal(model, context, triple.stereotype, **options) - literal(
        model, context, triple.anti_stereotype, **options
    )


@pytest.mark.parametrize("number", [0, 2])
def test_parts_are_those_of_the_four_texts_and_words_written_out(model, found, number):
    triple, twin = TRIPLES[number], twin_of(TRIPLES[number])
    row = found.items.iloc[number]
    texts = [[odds(model, c.context, x) for x in (triple, twin)] for c in (triple, twin)]

    def alone(word):
        return not set(re.findall(r"\w+", word)) & set(SWAP)

    expected = {
        "beta_sum": texts[0][0] - texts[1][1],
        "beta_context": texts[0][0] - texts[1][0],
        "beta_context_twin": texts[0][1] - texts[1][1],
        "beta_continuations": (texts[0][0] - texts[0][1] + texts[1][0] - texts[1][1]) / 2,
        "beta_interaction": texts[0][0] - texts[0][1] - texts[1][0] + texts[1][1],
        "beta_unchanged": odds(model, triple.context, triple, counts=alone)
        - odds(model, twin.context, twin, counts=alone),
        "context_difference": sum(p for p, _ in token_log_probs(model, triple.context))
        - sum(p for p, _ in token_log_probs(model, twin.context)),
    }
    expected["beta_swapped"] = expected["beta_sum"] - expected["beta_unchanged"]
    assert set(expected) == set(PARTS)
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, abs=1e-4), name


def test_where_continuations_stay_beta_is_the_contexts_and_the_mean_over_twins(model, found):
    row = found.items.iloc[3]
    own = odds(model, TRIPLES[3].context, TRIPLES[3])
    others = [odds(model, twin.context, twin) for twin in RACE]
    assert row["beta_context"] == pytest.approx(own - np.mean(others), abs=1e-4)
    for name in ("beta_context_twin", "beta_unchanged"):
        assert row[name] == pytest.approx(row["beta_sum"], abs=1e-5)
    for name in ("beta_continuations", "beta_interaction", "beta_swapped"):
        assert row[name] == pytest.approx(0, abs=1e-5)


def test_the_table_of_parts_holds_their_means(found):
    table = found.beta_parts.set_index(["category", "part"])
    own = found.items[(found.items["category"] == "gender") & found.items["beta_sum"].notna()]
    for part in PARTS:
        row = table.loc[("gender", part)]
        assert row["mean"] == pytest.approx(own[part].mean())
        assert (row["items"], row["targets"]) == (2, 2)


def test_a_model_that_is_not_causal_has_parts_but_no_context(tiny_lm):
    scored = stereoset_scores(tiny_lm("bert"), TRIPLES[:1], twins=TWINS, **OPTIONS)
    row = scored.items.iloc[0]
    assert np.isnan(row["context_difference"])
    texts = (row["beta_context"] + row["beta_context_twin"]) / 2 + row["beta_continuations"]
    assert texts == pytest.approx(row["beta_sum"], abs=1e-4)
    assert np.isfinite(row["beta_unchanged"])


@given(
    st.lists(st.sampled_from(["he", "she", "ran", "a.", "an"]), min_size=1, max_size=6).map(
        " ".join
    )
)
def test_a_text_has_no_changed_word_against_itself_and_only_changed_ones_against_none(text):
    assert changed_spans(text, text) == ([], [])
    own, other = changed_spans(text, "quite different")
    assert [text[a:b] for a, b in own] == text.split()
    assert len(other) == 2


# -- placebos --------------------------------------------------------------------------------------


def test_placebos_are_the_log_odds_minus_the_placebo_twins(model, found):
    def change(triple, *others):
        values = [odds(model, other.context, other) for other in others]
        return odds(model, triple.context, triple) - np.mean(values)

    synonym = change(TRIPLES[0], with_cook(TRIPLES[0]))
    both = [with_cook(TRIPLES[2]), with_cook(TRIPLES[2], "man")]
    # Item 1 has a placebo and no twin to compare it with.
    assert found.placebos[["placebo", "item"]].to_numpy().tolist() == [
        ["synonym", 0], ["role", 2], ["role", 2],
    ]  # fmt: skip
    table = found.placebo_beta[found.placebo_beta["scoring"] == "sum"]
    assert table[["kind", "choice"]].to_numpy().tolist() == [
        ["synonym", "all"], ["role", "all"], ["role", "1"], ["role", "2"],
    ]  # fmt: skip
    first = table.iloc[0]
    assert (first["items"], first["targets"]) == (1, 1)
    assert first["placebo"] == pytest.approx(synonym, abs=1e-4)
    beta = found.items.loc[0, "beta_sum"]
    assert first["difference"] == pytest.approx(beta - synonym, abs=1e-4)
    assert table.iloc[1]["placebo"] == pytest.approx(change(TRIPLES[2], *both), abs=1e-4)
    assert table.iloc[2]["placebo"] == pytest.approx(change(TRIPLES[2], both[0]), abs=1e-4)


def test_parts_and_placebos_are_saved_and_loaded(found, tmp_path):
    found.save(tmp_path)
    loaded = StereoSetScores.load(tmp_path)
    for name in ("beta_parts", "placebos", "placebo_beta"):
        pd.testing.assert_frame_equal(
            getattr(loaded, name), getattr(found, name), check_dtype=False
        )
    assert loaded.record.placebos["synonym"]["triples"] == 2
