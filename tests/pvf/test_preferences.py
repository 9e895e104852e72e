import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvf.preferences import Preferences, class_preferences
from pvf.word_tokens import WordTokens
from tda_bias.types import InputError
from tests.support.golden import GOLDEN
from tests.support.preferences import made_up

CASES = {case["id"]: case for case in GOLDEN["preference_cases"]}


@pytest.mark.parametrize("name", [name for name, c in CASES.items() if "word_probs" in c["input"]])
def test_class_preferences_are_the_reference_ones(name):
    case = CASES[name]
    groups = case["input"]["word_probs"]
    probs = np.array([value for group in groups for value in group.values()])
    class_of = np.array([k for k, group in enumerate(groups) for _ in group])
    p, mass = class_preferences(probs, class_of, aggregate=case["input"].get("aggregate", "sum"))
    np.testing.assert_allclose(p, case["expected"]["p"], atol=1e-10)
    assert mass == pytest.approx(probs.sum())
    assert (mass == 0) == case["expected"].get("zero_mass", False)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1))
def test_a_word_is_the_product_of_its_tokens_and_knows_what_continues_it(sequences):
    sequences = tuple(dict.fromkeys(sequences))
    n = len(sequences)
    words = WordTokens({"all": tuple(map(str, range(n)))}, sequences, {})
    rng = np.random.default_rng(0)
    # A token has one probability behind one beginning.
    prob = {s[: k + 1]: rng.uniform(0.1, 0.9) for s in sequences for k in range(len(s))}
    values = np.log([prob[s[: k + 1]] for s in sequences for k in range(len(s))])
    log_prob, continued = words.log_probs(values)
    for word, own in enumerate(sequences):
        product = np.prod([prob[own[: k + 1]] for k in range(len(own))])
        assert log_prob[word] == pytest.approx(np.log(product))
        longer = {
            s[: len(own) + 1] for s in sequences if len(s) > len(own) and s[: len(own)] == own
        }
        assert continued[word] == pytest.approx(sum(prob[one] for one in longer))


def test_a_saved_run_is_read_back_exactly(tmp_path):
    preferences = made_up()
    preferences.save(tmp_path)
    found = Preferences.load(tmp_path)
    np.testing.assert_array_equal(found.log_prob, preferences.log_prob)
    np.testing.assert_array_equal(found.class_of, preferences.class_of)
    assert (found.record.read, found.record.words, found.record.model) == (
        preferences.record.read,
        preferences.record.words,
        preferences.record.model,
    )
    table = pd.read_parquet(tmp_path / "words.parquet").set_index(["x", "template", "word"])
    row = table.loc[("job2", "The [X] v1 that [Y]", "him")]
    assert (row["log_prob"], row["class"]) == (preferences.log_prob[2, 1, 1], "male")


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no finished run of `tdabias pvf`"):
        Preferences.load(tmp_path)
    made_up().save(tmp_path)
    (tmp_path / "words.parquet").write_bytes(b"broken")
    with pytest.raises(InputError, match="words.parquet is not as the run wrote it.*run the same"):
        Preferences.load(tmp_path)


def test_pronouns_alone_are_as_if_only_they_were_listed():
    preferences = made_up()
    alone = preferences.pronouns_alone()
    probs = np.exp(preferences.log_prob[..., [0, 2]])
    np.testing.assert_allclose(alone.by_class().p, probs / probs.sum(-1, keepdims=True))
    assert alone.pronouns_alone() is None
    assert made_up(words=("he", "she", "it")).pronouns_alone() is None  # of one class


def test_the_geometric_mean_takes_the_root_of_the_number_of_tokens():
    preferences = made_up()
    tokens = {"he": 1, "him": 2, "she": 3}
    words = preferences.record.words.model_copy(update={"tokens_of_each": tokens})
    found = preferences.with_record(words=words).geometric_mean()
    np.testing.assert_allclose(found.word_probs, np.exp(preferences.log_prob / [1, 2, 3]))
