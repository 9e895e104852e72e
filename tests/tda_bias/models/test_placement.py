"""Models in several places: the same numbers as in one."""

import json

import numpy as np
import pytest
import torch

from tda_bias import HeadBiasConfig, head_bias
from tda_bias.models.language_model import is_spread
from tda_bias.models.load import load_model, read_device_map
from tda_bias.scores.likelihood import TextReader
from tda_bias.scores.texts import Contrast
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model
from tests.support.patterns import made_up, read

GPT2 = {
    **dict.fromkeys(["transformer.wte", "transformer.wpe", "transformer.h.0", "lm_head"], "cpu"),
    **dict.fromkeys(["transformer.h.1", "transformer.ln_f"], "disk"),
}
ALL_ON_DISK = dict.fromkeys(["transformer", "lm_head"], "disk")
T5 = {
    **dict.fromkeys(["shared", "encoder.embed_tokens", "decoder", "lm_head"], "cpu"),
    **dict.fromkeys(["encoder.block.0", "encoder.final_layer_norm"], "cpu"),
    "encoder.block.1": "disk",
}
DISTILBERT = {
    **dict.fromkeys(["distilbert.embeddings", "distilbert.transformer.layer.0"], "cpu"),
    "distilbert.transformer.layer.1": "disk",
    **dict.fromkeys(["vocab_transform", "vocab_layer_norm", "vocab_projector"], "cpu"),
}
HEAD_ON_DISK = {**DISTILBERT, "vocab_projector": "disk"}


def written(folder, places: dict[str, str]) -> str:
    path = folder / "map.json"
    path.write_text(json.dumps(places))
    return str(path)


@pytest.fixture
def folder_of(tokenizer, tmp_path):
    def make(kind: str) -> str:
        tiny_hf_model(kind, len(tokenizer)).save_pretrained(tmp_path / kind)
        tokenizer.save_pretrained(tmp_path / kind)
        return str(tmp_path / kind)

    return make


# -- bad input --


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no names of parts"),
        ("[1, 2]", "holds no names of parts"),
        ("{transformer: moon}", "part 1 `transformer` must be on cpu, disk or a device"),
        ("{transformer: meta}", "must be on cpu, disk or a device"),
        ("{transformer: [cpu]}", "must be on cpu, disk or a device"),
        ("{a: b: c}", "`device_map` .* is not YAML"),
        ("wte: cpu\nwte: disk", "is not YAML .line 2.: the key `wte` stands there twice"),
    ],
)
def test_a_file_that_is_no_map_is_one_line(tmp_path, content, message):
    path = tmp_path / "map.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_device_map(str(path))
    assert "\n" not in str(error.value)


def test_a_device_and_a_map_are_one_too_many(folder_of):
    with pytest.raises(InputError, match="give `device` or `device_map`, not both; got 'cpu'"):
        load_model(folder_of("gpt2"), device="cpu", device_map="auto")


# -- the same as in one place --


@pytest.mark.parametrize(
    ("kind", "places"),
    [("gpt2", GPT2), ("gpt2", ALL_ON_DISK), ("t5", T5), ("distilbert", DISTILBERT)],
)
def test_patterns_of_a_model_that_is_partly_on_disk_are_the_same(
    kind, places, folder_of, tmp_path, tokenizer
):
    whole = load_model(folder_of(kind), device="cpu")
    spread = load_model(folder_of(kind), device_map=written(tmp_path, places))
    assert is_spread(spread.hf_model)
    assert not is_spread(whole.hf_model)
    assert spread.bridge is None
    assert any(p.device.type == "meta" for p in spread.hf_model.parameters())
    assert spread.weight_hash() == whole.weight_hash()
    triples = made_up(len(tokenizer))
    expected = read(whole, triples, batch_size=8, shared=False)
    found = read(spread, triples, batch_size=8, shared=False)
    for text in expected:
        torch.testing.assert_close(found[text], expected[text], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("kind", "places"), [("gpt2", ALL_ON_DISK), ("distilbert", HEAD_ON_DISK)])
def test_log_probabilities_are_the_same_where_the_output_head_is_on_disk(
    kind, places, tiny_lm, tmp_path
):
    whole, folder = tiny_lm(kind, tie_word_embeddings=False), str(tmp_path / kind)
    whole.hf_model.save_pretrained(folder)
    whole.tokenizer.save_pretrained(folder)
    texts = [Contrast(("The nurse said that he knew.", "The nurse said that she knew it."))]
    expected = TextReader(whole).read(texts)
    spread = load_model(folder, device_map=written(tmp_path, places))
    found = TextReader(spread).read(texts)
    assert list(found) == list(expected)
    for reading, [own] in expected.items():
        for values, of_spread in zip(own, found[reading][0], strict=True):
            np.testing.assert_allclose(of_spread, values, atol=1e-5)


def test_a_whole_run_is_the_same(folder_of, tmp_path, gender):
    folder, config = folder_of("gpt2"), HeadBiasConfig(n_permutations=99)
    whole, spread = (
        # In double precision: a head's value may be near 0, where single precision is felt.
        head_bias(
            load_model(folder, dtype="float64", **placed), gender[::3], twins=None, config=config
        )
        for placed in ({"device": "cpu"}, {"device_map": written(tmp_path, GPT2)})
    )
    assert (whole.record.model.patterns, spread.record.model.patterns) == (
        "transformer-lens", "eager",
    )  # fmt: skip
    np.testing.assert_allclose(
        spread.category_map("gender"), whole.category_map("gender"), rtol=1e-4, atol=2e-6
    )


@pytest.mark.parametrize("name", ["auto", "balanced"])
def test_where_everything_fits_a_model_is_in_one_place_and_hooked_as_ever(name, folder_of):
    model = load_model(folder_of("gpt2"), device_map=name)
    assert not is_spread(model.hf_model)
    assert model.bridge is not None
    assert model.weight_hash() == load_model(folder_of("gpt2")).weight_hash()
