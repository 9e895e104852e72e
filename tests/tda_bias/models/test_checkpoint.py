"""Checkpoints: no code, all layers, a row of embeddings for every token."""

import json
import pickle
import shutil

import pytest
import torch
import transformers

from tda_bias.models.load import LanguageModel, load_language_model, load_model
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model

CODE = """
from pathlib import Path
Path({mark!r}).write_text("executed")
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
class Config(GPT2Config):
    model_type = {kind!r}
class Model(GPT2LMHeadModel):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy of the tiny model."""
    copied = tmp_path / "model"
    shutil.copytree(tiny_folder, copied)
    return copied


def change(file, **entries):
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, **entries}))


def with_code(folder, mark, *, kind, where="config.json"):
    """Name code in a folder that would leave a mark."""
    (folder / "evil.py").write_text(CODE.format(mark=str(mark), kind=kind))
    classes = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    if where == "config.json":
        change(folder / where, auto_map=classes, model_type=kind)
    else:
        change(
            folder / where,
            auto_map={"AutoTokenizer": ["evil.Tokenizer", None]},
            tokenizer_class="X",
        )


# -- code --


@pytest.mark.parametrize(
    ("kind", "where"),
    [("gpt2", "config.json"), ("unheard-of", "config.json"), ("gpt2", "tokenizer_config.json")],
)
def test_a_folder_that_names_code_is_refused_in_one_line(folder, tmp_path, kind, where):
    mark = tmp_path / "mark"
    with_code(folder, mark, kind=kind, where=where)
    with pytest.raises(InputError, match=rf"its {where} names Python code \(auto_map\)") as e:
        load_language_model(str(folder), device="cpu")
    assert "\n" not in str(e.value)
    assert not mark.exists()


def test_code_is_refused_by_transformers_too_where_no_folder_is_looked_at(
    folder, tmp_path, monkeypatch
):
    """As for a name on the hub: every loader is told not to trust."""
    mark = tmp_path / "mark"
    with_code(folder, mark, kind="unheard-of")
    monkeypatch.setattr("tda_bias.models.load._refuse_code_in_folder", lambda name: None)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(InputError, match="could not be loaded") as e:
        load_model(str(folder), device="cpu")
    assert "\n" not in str(e.value)
    assert not mark.exists()


def test_every_loader_is_told_not_to_trust(tiny_folder, monkeypatch):
    """Also those that the bridge calls."""
    told = []

    def spy(cls):
        original = cls.from_pretrained.__func__

        def from_pretrained(klass, *args, **options):
            told.append(options.get("trust_remote_code"))
            return original(klass, *args, **options)

        monkeypatch.setattr(cls, "from_pretrained", classmethod(from_pretrained))

    for cls in (transformers.AutoConfig, transformers.AutoTokenizer):
        spy(cls)
    spy(transformers.AutoModelForCausalLM)
    load_model(str(tiny_folder), device="cpu")
    assert len(told) >= 3
    assert set(told) == {False}


def test_kernels_from_the_hub_are_refused(folder):
    change(folder / "config.json", attn_implementation="someone/kernel")
    with pytest.raises(InputError, match=r"compiled code .*attn_implementation 'someone/kernel'"):
        load_language_model(str(folder), device="cpu")


class Evil:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (self.mark, "w"))


def test_pickled_weights_are_read_as_tensors_only(folder, tmp_path):
    mark = tmp_path / "mark"
    (folder / "model.safetensors").unlink()
    state = {"transformer.wte.weight": Evil(str(mark))}
    torch.save(state, folder / "pytorch_model.bin", pickle_module=pickle)
    with pytest.raises(InputError, match="could not be loaded") as e:
        load_model(str(folder), device="cpu")
    assert "\n" not in str(e.value)
    assert not mark.exists()


def test_pickled_tensors_load_and_safetensors_come_first(folder, tmp_path):
    expected = load_language_model(str(folder), device="cpu")
    state = dict(expected.hf_model.state_dict())
    torch.save({}, folder / "pytorch_model.bin")
    same = load_language_model(str(folder), device="cpu")
    assert same.weight_hash() == expected.weight_hash()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert load_language_model(str(folder), device="cpu").weight_hash() == expected.weight_hash()


# -- layers and embeddings --


@pytest.fixture
def saved(tokenizer, tmp_path):
    """Saves a tiny model without some of its parameters."""

    def make(kind, lacking=(), **changes):
        hf_model = tiny_hf_model(kind, len(tokenizer), **changes)
        state = {
            name: value.clone()
            for name, value in hf_model.state_dict().items()
            if not any(part in name for part in lacking)
        }
        hf_model.save_pretrained(tmp_path, state_dict=state)
        tokenizer.save_pretrained(tmp_path)
        return str(tmp_path)

    return make


@pytest.mark.parametrize(
    ("kind", "lacking"),
    [("gpt2", ".h.0.attn."), ("bert", ".layer.1."), ("t5", "encoder.bl")],
)
def test_a_checkpoint_that_lacks_layers_is_named_and_refused(saved, kind, lacking):
    folder = saved(kind, [lacking])
    with pytest.raises(InputError, match=r"its checkpoint lacks \d+ parameters \(.*is it complete"):
        load_model(folder, device="cpu")
    plain = load_language_model(folder, device="cpu")
    with pytest.raises(InputError, match="its checkpoint lacks"):
        plain.require_language_head()


def test_a_checkpoint_without_its_language_head_still_has_patterns(saved):
    model = load_model(saved("bert", ["cls."]), device="cpu")
    assert model.not_in_checkpoint
    model.require_body()
    with pytest.raises(InputError, match=r"has no language-model head \(cls\."):
        model.require_language_head()


def test_the_decoder_is_no_matter_for_the_patterns_of_the_encoder(saved):
    model = load_model(saved("t5", ["decoder.block.1."]), device="cpu")
    assert all(name.startswith("decoder.") for name in model.not_in_checkpoint)
    with pytest.raises(InputError, match="language-model head"):
        model.require_language_head()


def test_a_tokenizer_that_knows_more_tokens_than_the_model_is_refused(tokenizer, tmp_path):
    tiny_hf_model("gpt2", len(tokenizer) - 5).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"has embeddings for \d+ tokens, but its tokenizer knows"):
        load_model(str(tmp_path), device="cpu")


def test_weights_of_other_shapes_than_config_json_says_are_refused_by_name(folder):
    change(folder / "config.json", n_embd=64)
    message = (
        r"two models: transformer\.h\.0\.attn\.c_attn\.bias is \[96\] in the checkpoint, \[192\] "
        r"by config\.json \(28 parameters differ\)"
    )
    with pytest.raises(InputError, match=message):
        load_language_model(str(folder), device="cpu")


def test_a_padding_token_beyond_the_embedding_is_no_matter(tokenizer, tmp_path):
    """Many published models got one without a row for it; nothing here is padded with it."""
    import copy

    tiny_hf_model("gpt2", len(tokenizer)).save_pretrained(tmp_path)
    padded = copy.deepcopy(tokenizer)
    padded.add_special_tokens({"pad_token": "<padding>"})
    padded.save_pretrained(tmp_path)
    assert len(padded) == len(tokenizer) + 1
    load_model(str(tmp_path), device="cpu")


def test_all_answers_of_a_span_model_must_be_in_the_checkpoint(tokenizer):
    hf_model = tiny_hf_model("bert", len(tokenizer))
    model = LanguageModel(hf_model, tokenizer, "m", not_in_checkpoint=("qa_outputs.weight",))
    with pytest.raises(InputError, match="qa_outputs.weight is not in its checkpoint"):
        model.require_whole_checkpoint()


@pytest.mark.parametrize("method", ["fp8", "mxfp4", "made_up"])
def test_plain_weights_under_a_quantised_configuration_are_said_to_be_plain(
    subwords, tmp_path, caplog, method
):
    tiny_hf_model("llama", len(subwords)).save_pretrained(tmp_path)
    subwords.save_pretrained(tmp_path)
    change(tmp_path / "config.json", quantization_config={"quant_method": method})
    load_language_model(str(tmp_path), device="cpu")
    said = [record.message for record in caplog.records if record.name.startswith("tda_bias")]
    assert len(said) == 1
    assert f"says that its weights are quantised ({method}); they are read as" in said[0]
