"""One call for a model's scores: every number is that of its function; files; twins."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.config import StereoSetConfig
from tda_bias.models.load import LanguageModel
from tda_bias.scores.beta import beta_table, with_beta
from tda_bias.scores.beta_parts import PARTS
from tda_bias.scores.likelihood import triple_likelihoods
from tda_bias.scores.stereoset import item_table, length_split, scores
from tda_bias.scores.stereoset_scores import StereoSetScores, stereoset_scores
from tda_bias.store.cache import Cache
from tda_bias.store.record import DataRecord
from tda_bias.triples import load_triples, triple_ids
from tda_bias.twins import PLACEBOS, Twins, make_placebos, make_twins
from tda_bias.types import InputError, Triple
from tests.support.literal import causal_steps
from tests.support.tokenizers import Wrapped

TRIPLES = [
    Triple("he", "gender", "The man wrote.", "he was a cook", "she said a nurse", "the the the"),
    Triple("he", "gender", "The cook said that he", "wrote a man", "felt she", "man the"),
    Triple("she", "gender", "The woman knew.", "she was the nurse", "he felt", "wrote wrote"),
    Triple("x", "race", "The nurse that he", "said the woman", "knew a", "the nurse he"),
]
OPTIONS = {"config": StereoSetConfig(seed=2)}  # of the exchanges


def other(triple, word):
    return replace(triple, group=word, context=triple.context.replace("The", f"The {word}"))


TWINS = Twins(
    pairs=(
        (TRIPLES[0], (other(TRIPLES[0], "cook"),)),
        (TRIPLES[2], (other(TRIPLES[2], "man"), other(TRIPLES[2], "nurse"))),
        (TRIPLES[3], (other(TRIPLES[3], "woman"),)),
    ),
    excluded={TRIPLES[1]: "no gendered word"},
    made={"source": "here"},
)


@pytest.fixture(scope="module")
def model(tiny_lm):
    return tiny_lm("gpt2")


@pytest.fixture(scope="module")
def found(model):
    return stereoset_scores(model, TRIPLES, twins=TWINS, placebos={}, **OPTIONS)


@pytest.fixture(scope="module")
def plain(model):
    return stereoset_scores(model, TRIPLES, twins=None, **OPTIONS)


def test_without_triples_there_is_nothing_to_score(model):
    with pytest.raises(InputError, match="there is no item to score"):
        stereoset_scores(model, [])


def test_without_twins_every_table_is_that_of_its_function(model, plain):
    items = item_table(TRIPLES, triple_likelihoods(model, TRIPLES))
    texts = ["stereotype", "anti_stereotype"]
    pd.testing.assert_frame_equal(plain.items.drop(columns=["id", *texts]), items)
    assert plain.items["id"].tolist() == triple_ids(TRIPLES)
    assert plain.items[texts].to_numpy().tolist() == [list(t.texts()[:2]) for t in TRIPLES]
    pd.testing.assert_frame_equal(plain.scores, scores(items))
    pd.testing.assert_frame_equal(plain.length_split, length_split(items))
    assert not plain.has_twins
    assert plain.beta.empty
    assert plain.record.twins is None


def test_twins_add_columns_and_tables_and_change_nothing_else(model, found, plain):
    pd.testing.assert_frame_equal(found.items[list(plain.items)], plain.items, atol=1e-5)
    assert found.twins["item"].tolist() == [0, 2, 2, 3]
    flat = [twin for _, twins in TWINS for twin in twins]
    each = triple_likelihoods(model, flat)
    np.testing.assert_allclose(
        found.twins[["log_prob_s", "log_prob_a"]], [one.total[:2] for one in each], atol=1e-5
    )
    np.testing.assert_array_equal(
        found.twins[["tokens_s", "tokens_a"]], [list(map(len, one.tokens[:2])) for one in each]
    )
    with_twins = with_beta(plain.items, found.twins)
    pd.testing.assert_frame_equal(found.items[list(with_twins)], with_twins, atol=1e-5)
    pd.testing.assert_frame_equal(found.beta, beta_table(found.items, found.twins, seed=2))
    assert found.items["twins"].tolist() == [1, 0, 2, 1]
    firsts = [TWINS.of(triple)[:1] for triple in TRIPLES]
    expected = ["".join(twin.texts()[0] for twin in first) for first in firsts]
    assert found.items["twin_stereotype"].tolist() == expected
    assert found.record.twins["excluded"] == {"no gendered word": 1}


def test_twins_of_other_triples_are_passed_over(model, found):
    fewer = stereoset_scores(model, TRIPLES[:1], twins=TWINS, placebos={}, **OPTIONS)
    assert fewer.record.twins["twins"] == 1
    assert fewer.items["beta_sum"].iloc[0] == pytest.approx(
        found.items["beta_sum"].iloc[0], abs=1e-4
    )
    without = stereoset_scores(model, TRIPLES[1:2], twins=TWINS, placebos={}, **OPTIONS)
    assert not without.has_twins
    assert without.record.twins["excluded"] == {"no gendered word": 1}


def test_twins_and_placebos_are_made_unless_there_shall_be_none(model):
    triples = [Triple("mother", "gender", "The mother wrote.", "he was a cook", "she felt", "man")]
    placebos = {name: make_placebos(triples, name) for name in PLACEBOS}
    made = stereoset_scores(model, triples)
    given = stereoset_scores(model, triples, twins=make_twins(triples), placebos=placebos)
    assert made.has_twins
    assert list(made.record.placebos) == ["synonym", "role"]
    pd.testing.assert_frame_equal(made.items, given.items)
    assert not stereoset_scores(model, triples, twins=None).record.placebos


# -- resumed ---------------------------------------------------------------------------------------


def cache_in(folder):
    return lambda identity: Cache(folder, identity)


def test_a_stopped_run_goes_on_and_gives_the_same(model, tmp_path, monkeypatch):
    monkeypatch.setattr("tda_bias.scores.likelihood._BLOCK", 3)
    options = {"twins": TWINS, "placebos": {}, "cache": cache_in(tmp_path), **OPTIONS}
    whole = stereoset_scores(model, TRIPLES, **{**options, "cache": cache_in(tmp_path / "whole")})

    def stop(done, total):
        if done > 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stereoset_scores(model, TRIPLES, progress=stop, **options)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert len(kept) == 2
    seen = []
    again = stereoset_scores(model, TRIPLES, progress=lambda *done: seen.append(done), **options)
    assert seen[:2] == [(3, 8), (6, 8)]
    assert seen[-1] == (8, 8)
    assert kept.items() <= {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.npz")}.items()
    for name in ("items", "scores", "twins", "beta"):
        pd.testing.assert_frame_equal(getattr(whole, name), getattr(again, name), check_exact=True)


def test_readings_of_other_texts_or_another_model_are_not_taken(model, tiny_lm, tmp_path):
    stereoset_scores(model, TRIPLES[:3], twins=None, cache=cache_in(tmp_path), **OPTIONS)
    with pytest.raises(InputError, match="other texts"):
        stereoset_scores(model, TRIPLES[1:], twins=None, cache=cache_in(tmp_path), **OPTIONS)
    with pytest.raises(InputError, match="model was 'tiny-gpt2', now 'tiny-bert'"):
        stereoset_scores(
            tiny_lm("bert"), TRIPLES[:3], twins=None, cache=cache_in(tmp_path), **OPTIONS
        )


class OtherStart(Wrapped):
    """A tokenizer with another start token."""

    bos_token_id = 1


def test_readings_through_another_tokenizer_are_not_taken(model, tmp_path):
    """The token ids of the texts alone do not tell: special tokens stand around them."""
    stereoset_scores(model, TRIPLES[:3], twins=None, cache=cache_in(tmp_path), **OPTIONS)
    other = LanguageModel(model.hf_model, OtherStart(model.tokenizer), model.name)
    with pytest.raises(InputError, match=r"settings \(tokenizer was '\w+', now '\w+'\)"):
        stereoset_scores(other, TRIPLES[:3], twins=None, cache=cache_in(tmp_path), **OPTIONS)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("twins", [False, True])
def test_what_is_saved_is_loaded_again(found, plain, twins, tmp_path):
    result = found if twins else plain
    result = result.with_record(data=DataRecord(source="here"), settings={"category": "all"})
    paths = result.save(tmp_path)
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}
    assert ("beta.csv" in {path.name for path in paths}) == twins
    loaded = StereoSetScores.load(tmp_path)
    for name in ("items", "scores", "length_split", "twins", "beta"):
        pd.testing.assert_frame_equal(
            getattr(loaded, name), getattr(result, name), check_dtype=name != "beta"
        )
    assert loaded.record.data.source == "here"
    assert loaded.record.texts == result.record.texts
    assert repr(loaded) == repr(result)


@pytest.mark.real
def test_beta_of_the_real_model_is_that_of_unbatched_passes(smollm2, stereoset):
    triples = load_triples(stereoset, category="gender")
    twins = make_twins(triples).only(triples[::80])

    def odds(triple):
        texts = triple.texts()[:2]
        return np.subtract(
            *(sum(causal_steps(smollm2, smollm2.tokenizer(text)["input_ids"])) for text in texts)
        )

    items = stereoset_scores(smollm2, triples[::80], twins=twins, placebos={}).items
    expected = [odds(t) - np.mean([odds(twin) for twin in twins.of(t)]) for t in triples[::80]]
    np.testing.assert_allclose(items["beta_sum"], expected, atol=2e-4)


@pytest.mark.real
@pytest.mark.long
def test_most_of_smollm2s_preference_in_gender_is_wording(smollm2, stereoset):
    """What the project was built on: measured first by other code, and with other twins."""
    found = stereoset_scores(smollm2, load_triples(stereoset, category="gender"), placebos={})
    items = found.items
    odds = items["log_prob_s"] - items["log_prob_a"]
    per_token = items["log_prob_s"] / items["tokens_s"] - items["log_prob_a"] / items["tokens_a"]
    assert (odds.mean(), odds.std()) == pytest.approx((3.98, 15.2), rel=0.01)
    assert (per_token.mean(), per_token.std()) == pytest.approx((0.176, 1.16), rel=0.01)
    rows = found.beta[found.beta["group"] == "all"].set_index("scoring")
    assert rows.loc["sum", "beta"] == pytest.approx(0.70, abs=0.1)
    assert items["beta_sum"].std() == pytest.approx(2.5, abs=0.3)
    assert rows.loc["sum", "ss_twin"] == pytest.approx(65, abs=3)
    assert rows.loc["sum", "r"] == pytest.approx(0.986, abs=0.005)
    assert rows.loc["mean", "beta"] == pytest.approx(0.083, abs=0.01)
    assert rows.loc["mean", "r"] == pytest.approx(0.965, abs=0.005)
    assert (rows["p"] < 0.002).all()
    means = found.beta_parts.set_index("part")["mean"]
    expected = [0.667, 0.633, 0.034, 0.390, 0.120, 0.412, 0.271, -0.30]
    np.testing.assert_allclose(means[list(PARTS)], expected, atol=0.002)
