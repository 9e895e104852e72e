"""Long runs go on where they were stopped, and take nothing that belongs to something else."""

import json
from functools import partial

import numpy as np
import pytest

from pvf.reading import WordReader, score_preferences
from pvf.words import WordList, load_classes, load_templates
from tda_bias import load_triples
from tda_bias.ablation.ablator import Ablator
from tda_bias.scores.stereoset_scores import stereoset_scores
from tda_bias.store.cache import Cache, no_cache
from tda_bias.types import HeadId, InputError

WORDS = WordList("many", "made up", tuple(f"cook{i}" for i in range(70)))


class StoppedError(Exception):
    pass


def headers(folder):
    """What saved parts say of themselves, by their names."""
    said = [json.loads(str(np.load(path)["header"])) for path in folder.glob("*.npz")]
    return {header["part"]: header for header in said}


# -- stereoset --


def test_parts_of_texts_are_named_and_depend_on_what_earlier_versions_wrote(tiny_lm, tmp_path):
    model, triples = tiny_lm(), load_triples("starter", category="gender", limit=2)
    stereoset_scores(model, triples, twins=None, cache=partial(Cache, tmp_path))
    (header,) = headers(tmp_path).values()
    assert header["part"] == f"triples 1 to {len(triples)}"
    assert header["identity"] == {
        "format": 3,
        "model": model.name,
        "weights": model.weight_hash(),
        "tokenizer": model.tokenizer_hash(),
        "dtype": "float32",
        "kind": "causal",
        "start": "tokenizer",
    }
    assert list(header["depends_on"]) == ["texts"]


# -- pvf --


@pytest.fixture
def read(tiny_lm, tmp_path):
    model, templates, classes = tiny_lm(), load_templates("gender")[:2], load_classes("pronouns")

    def score(words=WORDS, templates=templates, **options):
        options = {"cache": partial(Cache, tmp_path / "parts"), **options}
        return score_preferences(model, words, templates, classes, **options)

    return score


def test_a_stopped_reading_of_words_goes_on_and_gives_the_same(read, tmp_path):
    whole = read(cache=no_cache)

    def stop(done, total):
        if done > total / 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        read(progress=stop)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").glob("*.npz")}
    assert len(kept) in (1, 2)
    resumed = read()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    np.testing.assert_array_equal(resumed.log_prob, whole.log_prob)
    np.testing.assert_array_equal(resumed.continued, whole.continued)
    assert resumed.record.prompts == whole.record.prompts


def test_parts_of_words_are_named_and_depend_on_what_earlier_versions_wrote(
    read, tiny_lm, tmp_path
):
    read()
    found, model = headers(tmp_path / "parts"), tiny_lm()
    assert set(found) == {"words 1 to 32", "words 33 to 64", "words 65 to 70"}
    last = found["words 65 to 70"]
    assert last["identity"] == {
        "format": 3,
        "model": model.name,
        "weights": model.weight_hash(),
        "dtype": "float32",
        "kind": "causal",
        "forms": "word",
    }
    assert last["depends_on"]["words"] == [f"cook{i}" for i in range(64, 70)]
    assert list(last["depends_on"]) == ["words", "templates", "words of y"]


def test_parts_of_words_that_also_say_how_they_were_read_are_taken(read, monkeypatch):
    reads = WordReader.read
    with monkeypatch.context() as earlier:
        said = {"notes": np.array('{"share_prefix": true}')}
        earlier.setattr(WordReader, "read", lambda *given: {**reads(*given), **said})
        first = read()
    monkeypatch.setattr(WordReader, "read", pytest.fail)
    np.testing.assert_array_equal(read().log_prob, first.log_prob)


def test_words_of_another_list_or_other_templates_are_not_taken(read, tmp_path):
    read()
    others = WordList("others", "made up", tuple(f"nurse{i}" for i in range(70)))
    with pytest.raises(InputError, match="other words.*--no-resume"):
        read(words=others)
    with pytest.raises(InputError, match="other templates"):
        read(templates=load_templates("gender")[2:4])
    np.testing.assert_array_equal(
        read(words=others, cache=partial(Cache, tmp_path / "parts", resume=False)).log_prob,
        read(words=others, cache=no_cache).log_prob,
    )


# -- ablate --


@pytest.fixture
def triples():
    return load_triples("starter", category="gender", limit=2)


def kept(ablator, sets, cache):
    """The values of every batch of texts without each set of heads, kept as ``ablate`` does."""
    return list(cache.each(ablator.removals(sets)))


def test_values_without_some_heads_are_not_taken_for_others(tiny, triples, tmp_path):
    cache = Cache(tmp_path, {"weights": "w"})
    ablator = Ablator(tiny("gpt2"), triples)
    kept(ablator, [[], [HeadId(0, 1)]], cache)
    with pytest.raises(InputError, match="other heads.*--no-resume"):
        kept(ablator, [[], [HeadId(1, 2)]], cache)


def test_values_with_another_mean_replacement_are_not_taken(tiny, triples, tmp_path):
    """The means are over the unrelated texts of all triples, also of those in other batches."""
    from dataclasses import replace

    cache, model = Cache(tmp_path, {"weights": "w"}), tiny("gpt2")
    sets = [[], [HeadId(0, 1)]]
    kept(Ablator(model, triples, batch_size=3), sets, cache)
    last = replace(triples[-1], unrelated=triples[0].unrelated)
    with pytest.raises(InputError, match="other (replacement|texts)"):
        kept(Ablator(model, [*triples[:-1], last], batch_size=3), sets, cache)
    with pytest.raises(InputError, match="other replacement"):
        kept(Ablator(model, triples, batch_size=3, ablation="zero"), sets, cache)
