"""An edited model holds every weight of its original, bit for bit except the edited ones."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from tda_bias import InputError
from tda_bias.ablation.edits import edit_rule, stored_dtype, write_edited_model
from tda_bias.ablation.head_weights import head_slices
from tda_bias.models.attention import attention_layers
from tda_bias.models.checkpoint import checkpoint_of, save_changed
from tda_bias.models.load import load_language_model
from tda_bias.types import HeadId
from tests.support.models import tiny_hf_model

TEXTS = ["The nurse said that he knew", "she felt it"]
_TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
_IMAGE = {"hidden_size": 16, "intermediate_size": 16, "num_heads": 2}


def image_text(kind, tokenizer, folder: Path) -> Path:
    """A tiny model of images and texts with random weights, saved with a file for its images."""
    import transformers as tf

    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer) + 8}
    if kind == "qwen3_5":  # loaded for text it is its language model alone
        text = {
            **_TEXT,
            **size,
            "head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
        }
        text |= {f"linear_{name}_head_dim": 8 for name in ("key", "value")}
        text |= {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
        config = tf.Qwen3_5Config(
            text_config=text, vision_config={**_IMAGE, "depth": 1, "out_hidden_size": 32}
        )
        model = tf.Qwen3_5ForConditionalGeneration(config)
    else:
        text = {**_TEXT, **size, "head_dim": 8, "query_pre_attn_scalar": 8}
        image = {"hidden_size": 32, "intermediate_size": 16, "num_attention_heads": 2}
        image |= {"num_hidden_layers": 2, "image_size": 28, "patch_size": 14}
        config = tf.Gemma3Config(
            text_config=text,
            vision_config=image,
            mm_tokens_per_image=4,
            **{
                f"{name}_token_index": len(tokenizer) + n
                for n, name in enumerate(("image", "boi", "eoi"))
            },
        )
        model = tf.Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"size": 28}')
    return folder


def edited(name: Path, out: Path, how="zero"):
    dtype = stored_dtype(str(name))
    return write_edited_model(
        lambda: load_language_model(str(name), device="cpu", dtype=dtype),
        lambda: load_language_model(str(name), device="cpu", attention="eager"),
        [HeadId(1, 1)],
        edit_rule(how),
        out,
        probes=TEXTS,
        mean_over=TEXTS,
        about={"model": "base"},
    )


def tensors(folder):
    found = checkpoint_of(str(folder))
    return {key: found.tensor(key) for key in found.files}


def changes(before, after):
    """Names of the tensors that differ in a bit, all others being there in the same type."""
    assert set(before) <= set(after)
    return [
        key
        for key, value in before.items()
        if after[key].dtype != value.dtype
        or not torch.equal(after[key].view(torch.uint8), value.view(torch.uint8))
    ]


@pytest.mark.parametrize("kind", ["qwen3_5", "gemma3"])
@pytest.mark.parametrize("how", ["zero", "mean"])
def test_an_edited_model_of_images_and_texts_is_whole(subwords, tmp_path, kind, how):
    name = image_text(kind, subwords, tmp_path / "original")
    edited(name, tmp_path / "edited", how)
    before, after = tensors(name), tensors(tmp_path / "edited")
    (moved,) = changes(before, after)
    assert moved.endswith("layers.1.self_attn.o_proj.weight")
    assert "vision" not in moved
    if how == "zero":
        (columns,) = (before[moved] != after[moved]).any(0).nonzero(as_tuple=True)
        assert columns.tolist() == list(range(8, 16))
        assert set(before) == set(after)
    whole, loading = AutoModelForImageTextToText.from_pretrained(
        tmp_path / "edited", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert type(whole.config).__name__.startswith(kind[:4].title())
    assert (tmp_path / "edited" / "preprocessor_config.json").read_text() == '{"size": 28}'
    assert whole.config.text_config.attention_bias is (how == "mean")


def test_heads_of_a_model_of_images_and_texts_are_those_that_read_text(subwords, tmp_path):
    model = load_language_model(str(image_text("gemma3", subwords, tmp_path / "m")), device="cpu")
    assert [layer.n_heads for layer in attention_layers(model)] == [4, 4]
    assert {piece.parameter for piece in head_slices(model.hf_model, HeadId(1, 3))} == {
        f"model.language_model.layers.1.self_attn.{part}_proj.weight" for part in "qkvo"
    }


@pytest.mark.parametrize("form", ["named otherwise", "sharded", "pickled", "finer in parts"])
def test_what_is_not_loaded_stays(subwords, tmp_path, form):
    """Buffers, unused heads, names without a prefix, several files, some weights in single."""
    name = tmp_path / "original"
    model = tiny_hf_model("gpt2", len(subwords)).to(torch.bfloat16)
    model.save_pretrained(name, max_shard_size="20KB" if form == "sharded" else "1GB")
    subwords.save_pretrained(name)
    path = name / "model.safetensors"
    stored = load_file(path) if path.exists() else {}
    stored = {key: value.clone() for key, value in stored.items()}
    if form in ("named otherwise", "pickled"):
        stored = {key.removeprefix("transformer."): value for key, value in stored.items()}
        stored |= {"h.0.attn.bias": torch.ones(1, 1, 8, 8), "extra.head.weight": torch.ones(2, 3)}
    if form == "finer in parts":
        stored["transformer.ln_f.weight"] = torch.rand(32)  # of which bfloat16 has no more
    if form == "pickled":
        path.unlink()
        torch.save(stored, name / "pytorch_model.bin")
    elif stored:
        save_file(stored, path, metadata={"format": "pt"})
    edited(name, tmp_path / "edited", "scale=0.5")
    before, after = tensors(name), tensors(tmp_path / "edited")
    assert set(before) == set(after)
    (moved,) = changes(before, after)
    assert moved.endswith("h.1.attn.c_proj.weight")
    assert len({*checkpoint_of(str(tmp_path / "edited")).files.values()}) == (
        len({*checkpoint_of(str(name)).files.values()})
    )
    AutoModelForCausalLM.from_pretrained(tmp_path / "edited")


def test_a_part_that_cannot_be_put_back_is_refused(subwords, tmp_path):
    """Where the files keep a weight in another form than the model, its place is not known."""
    name = image_text("qwen3_5", subwords, tmp_path / "original")
    model = load_language_model(str(name), device="cpu")
    before = {key: value + 1 for key, value in model.hf_model.state_dict().items()}
    with pytest.raises(InputError, match=r"\(Qwen3_5Config\) has parts beside its language model"):
        save_changed(model, before, tmp_path / "out")


def test_an_added_bias_and_trained_weights_keep_their_type(subwords, tmp_path):
    name = tmp_path / "original"
    tiny_hf_model("gpt2", len(subwords)).to(torch.bfloat16).save_pretrained(name)
    subwords.save_pretrained(name)
    model = load_language_model(str(name), device="cpu")
    before = {key: value.clone() for key, value in model.hf_model.state_dict().items()}
    with torch.no_grad():
        model.hf_model.transformer.wte.weight.mul_(1.001)  # tied to the output
    (tmp_path / "out").mkdir()
    save_changed(model, before, tmp_path / "out")
    again = load_language_model(str(tmp_path / "out"), device="cpu", dtype="float32")
    assert again.weight_hash() == model.weight_hash()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"
