import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvf.preferences import (
    Preferences,
    class_preferences,
    combined_forms,
    continued_words,
    same_prompts,
)
from tda_bias.types import InputError
from tests.support.preferences import made_up

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pvf_unqover.json").read_text())
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


def test_forms_of_a_class_count_once_each():
    case = CASES["pref_variants"]
    forms = [sorted(set(ids)) for ids in case["input"]["class_ids"]]
    probs = np.array([case["input"]["token_probs"][str(i)] for ids in forms for i in ids])
    word_of = np.array([k for k, ids in enumerate(forms) for _ in ids])
    log_prob, _ = combined_forms(np.log(probs), np.zeros(len(probs)), word_of)
    p, _ = class_preferences(np.exp(log_prob), np.array([0, 1]))
    np.testing.assert_allclose(p, case["expected"]["p"], atol=1e-10)


def test_a_word_of_several_tokens_is_a_product():
    from pvf.word_forms import word_tree

    tree = word_tree(((5, 6, 7), (5,), (8,)))
    probs = {(5,): 0.2, (8,): 0.3, (5, 6): 0.5, (5, 6, 7): 0.25}
    edges = np.log([probs[(5,)], probs[(5, 6)], probs[(5, 6, 7)], probs[(8,)]])
    log_prob, continued = tree.log_probs(edges)
    np.testing.assert_allclose(np.exp(log_prob), [0.2 * 0.5 * 0.25, 0.2, 0.3])
    np.testing.assert_allclose(continued, [0, 0.5, 0])


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1))
def test_every_sequence_is_the_product_along_its_own_edges(sequences):
    from pvf.word_forms import word_tree

    sequences = tuple(dict.fromkeys(sequences))
    tree = word_tree(sequences)
    paths = [()]
    for token, parent in zip(tree.tokens, tree.parent, strict=True):
        paths.append((*paths[parent + 1], int(token)))
    ends = [(*paths[n + 1], int(t)) for n, t in zip(tree.edge_node, tree.edge_token, strict=True)]
    assert len(set(ends)) == len(ends)
    for sequence, on_path, continues in zip(sequences, tree.on_path, tree.continues, strict=True):
        own = {ends[i] for i in np.flatnonzero(on_path)}
        assert own == {sequence[:n] for n in range(1, len(sequence) + 1)}
        longer = {s[: len(sequence) + 1] for s in sequences if s[: len(sequence)] == sequence}
        assert {ends[i] for i in np.flatnonzero(continues)} == longer - {sequence}


def test_words_that_continue_each_other_are_found():
    found = continued_words([(1,), (1, 2), (3,), (1, 2, 4)], ["a", "b", "c", "d"], [0, 1, 2, 3])
    assert found == [("a", "b"), ("a", "d"), ("b", "d")]


def test_a_saved_run_is_read_back_exactly(tmp_path):
    preferences = made_up()
    files = preferences.save(tmp_path)
    assert [file.name for file in files] == ["words.parquet", "preferences.parquet", "run.json"]
    found = Preferences.load(tmp_path)
    np.testing.assert_array_equal(found.log_prob, preferences.log_prob)
    np.testing.assert_array_equal(found.class_of, preferences.class_of)
    assert (found.x, found.templates, found.words) == (
        preferences.x,
        preferences.templates,
        preferences.words,
    )
    assert found.record.words == preferences.record.words
    assert found.record.model == preferences.record.model


def test_the_saved_class_table_holds_preferences_and_union_mass(tmp_path):
    import pandas as pd

    preferences = made_up()
    preferences.save(tmp_path)
    table = pd.read_parquet(tmp_path / "preferences.parquet")
    row = table[(table["x"] == "job2") & (table["template"] == "The [X] v1 that [Y]")].iloc[0]
    probs = np.exp(preferences.log_prob[2, 1])
    assert row["union_mass"] == pytest.approx(probs.sum())
    assert row["p_male"] == pytest.approx(probs[:2].sum() / probs.sum())


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no finished run of `tdabias pvf`"):
        Preferences.load(tmp_path)
    made_up().save(tmp_path)
    (tmp_path / "words.parquet").write_bytes(b"broken")
    with pytest.raises(InputError, match="words.parquet is not as the run wrote it.*run the same"):
        Preferences.load(tmp_path)


def with_words(preferences: Preferences, **entries) -> Preferences:
    return preferences.with_record(words=preferences.record.words.model_copy(update=entries))


def test_some_of_the_words_are_as_if_only_they_were_listed():
    preferences = made_up()
    alone = preferences.only(["he", "she"])
    probs = np.exp(preferences.log_prob[..., [0, 2]])
    np.testing.assert_allclose(alone.by_class().p, probs / probs.sum(-1, keepdims=True))


def test_the_geometric_mean_takes_the_root_of_the_number_of_tokens():
    preferences = with_words(made_up(), tokens_of_each={"he": (1,), "him": (2,), "she": (3,)})
    found = preferences.geometric_mean()
    np.testing.assert_allclose(found.word_probs, np.exp(preferences.log_prob / [1, 2, 3]))
    several = with_words(made_up(), tokens_of_each={"he": (1, 2), "him": (2,), "she": (3,)})
    with pytest.raises(InputError, match="'he' is written in several ways"):
        several.geometric_mean()


def test_words_that_were_not_read_are_refused():
    with pytest.raises(InputError, match="'it' was not read; read were 3 words such as he, him"):
        made_up().only(["he", "it"])
    with pytest.raises(InputError, match="must leave every class at least one word"):
        made_up().only(["he"])
    colliding = with_words(made_up(), continued=(("he", "she"),))
    with pytest.raises(InputError, match="must not hold both 'he' and 'she'"):
        colliding.only(["he", "she"])


def test_models_that_were_asked_different_things_are_not_compared():
    first, other = made_up(0), made_up(1)
    same_prompts({"a": first, "b": other})
    with pytest.raises(InputError, match="a and b cannot be compared"):
        same_prompts({"a": first, "b": replace(other, classes=("x", "y"))})
