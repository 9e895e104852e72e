"""Loading: what boots, and what is refused."""

import json
import logging
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from tda_bias import load_triples
from tda_bias.models.load import LanguageModel, bridge_model, load_language_model, load_model
from tda_bias.scores.likelihood import triple_likelihoods
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model


def test_a_local_folder_is_loaded_and_hooked(tiny_folder):
    """With Hugging Face's tokenizer: the bridge reloads its own so that it may prepend a token."""
    model = load_model(str(tiny_folder), device="cpu")
    assert model.architecture == "GPT2LMHeadModel"
    assert model.attention == "causal"
    assert list(model.pattern_hooks.values()) == [0, 1]
    assert model.max_tokens == 128
    assert not model.hf_model.training
    assert model.tokenizer is not model.bridge.tokenizer
    assert model.tokenizer("The girl")["input_ids"][0] != model.tokenizer.bos_token_id


@pytest.mark.parametrize("kind", ["bert", "roberta", "t5", "bart"])
def test_encoders_are_bidirectional_also_those_before_a_decoder(tiny, kind):
    model = tiny(kind)
    assert model.attention == "bidirectional"
    prefix = "encoder_blocks." if kind in ("t5", "bart") else "blocks."
    assert all(name.startswith(prefix) for name in model.pattern_hooks)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("bert", "BertForMaskedLM"), ("bart", "BartForConditionalGeneration")],
)
def test_a_model_is_loaded_with_the_head_it_was_trained_with(tokenizer, tmp_path, kind, expected):
    tiny_hf_model(kind, len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert load_language_model(str(tmp_path), device="cpu").architecture == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "`dtype` must be one of float32, .*; got 'int8'"),
        ({"device": "abacus"}, "`device` must be auto, cpu, .*; got 'abacus'"),
        ({"device": "meta"}, "`device` must be .* and present; got 'meta'"),
        ({"device": "cuda:77"}, "`device` must be .* and present; got 'cuda:77'"),
    ],
)
def test_an_unknown_device_or_type_is_refused(tiny_folder, options, message):
    with pytest.raises(InputError, match=message):
        load_model(str(tiny_folder), **options)


@pytest.mark.parametrize(
    "name", ["x" * 3000, "a\0b", "", "no-such-owner/no-such-model", "EMPTY", "DAMAGED"]
)
def test_what_is_no_model_is_one_line(name, tiny_folder, tmp_path):
    if name == "DAMAGED":
        shutil.copytree(tiny_folder, tmp_path, dirs_exist_ok=True)
        (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(
        InputError, match="`model` must be a hub name, a local folder, a GGUF file or one"
    ) as e:
        load_model(str(tmp_path) if name.isupper() else name, device="cpu")
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 700


def test_half_precision_is_taken_with_a_warning(tiny_folder, caplog):
    with caplog.at_level(logging.WARNING, logger="tda_bias"):
        model = load_model(str(tiny_folder), device="cpu", dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    assert "float32 is safe" in caplog.text


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox"])
def test_hooks_change_neither_the_weight_hash_nor_the_number_of_parameters(tokenizer, kind):
    """GPT-2 and NeoX keep query, key and value in one matrix, of which the bridge makes copies."""
    hf_model = tiny_hf_model(kind, len(tokenizer))
    unhooked = LanguageModel(hf_model, tokenizer, "m")
    plain, parameters = unhooked.weight_hash(), unhooked.n_parameters
    hooked = bridge_model(hf_model, tokenizer, name="m")
    assert hooked.weight_hash() == plain
    assert hooked.n_parameters == parameters
    with torch.no_grad():
        next(hf_model.parameters()).add_(1)
    assert hooked.weight_hash() != plain


def test_random_parameters_of_a_missing_head_do_not_change_the_hash(tokenizer):
    hf_model = tiny_hf_model("bert", len(tokenizer))
    lacking = ("cls.predictions.transform.dense.weight",)
    model = LanguageModel(hf_model, tokenizer, "b", not_in_checkpoint=lacking)
    before, whole = model.weight_hash(), replace(model, not_in_checkpoint=()).weight_hash()
    hf_model.get_parameter(lacking[0]).data.add_(1.0)
    assert model.weight_hash() == before
    assert replace(model, not_in_checkpoint=()).weight_hash() != whole
    hf_model.bert.embeddings.word_embeddings.weight.data.add_(1.0)
    assert model.weight_hash() != before


def test_what_kind_a_model_is_loads_no_other_model():
    """Looking through transformers' lists imports a module for each of hundreds of models."""
    code = (
        "import sys\n"
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "from tda_bias.models.language_model import LanguageModel\n"
        "config = GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=8)\n"
        "assert LanguageModel(GPT2LMHeadModel(config), None, 'tiny').kind == 'causal'\n"
        "loaded = {name.split('.')[2] for name in sys.modules\n"
        "          if name.startswith('transformers.models.') and '.modeling_' in name}\n"
        "sys.exit(str(loaded - {'auto', 'gpt2'}) if loaded - {'auto', 'gpt2'} else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_checkpoint_that_asks_for_tuples_is_read_as_any_other(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "tuples")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "return_dict": False}))
    tuples, plain = (load_model(str(path), device="cpu") for path in (folder, tiny_folder))
    triples = load_triples("starter", category="gender", groups=["girl"], limit=2)
    found, expected = (triple_likelihoods(model, triples) for model in (tuples, plain))
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own.total, other.total)
