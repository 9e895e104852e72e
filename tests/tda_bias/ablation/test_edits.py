"""Edited weights do what hooks on the heads do, and nothing else changes."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tda_bias.ablation import edits as edited_folder
from tda_bias.ablation.edits import (
    EditRule,
    check_edit,
    edit_heads,
    edit_rule,
    mean_outputs,
    stored_dtype,
    write_edited_model,
)
from tda_bias.ablation.head_weights import head_slices
from tda_bias.models.attention import attention_layers
from tda_bias.models.hooks import require_separate_heads
from tda_bias.models.load import LanguageModel, bridge_model, load_language_model
from tda_bias.types import HeadId, InputError
from tests.support.architectures import tiny
from tests.support.models import tiny_hf_model

# Architectures that TransformerLens hooks, and one that it does not.
HOOKED = [
    "gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "mistral", "opt", "bloom", "bert", "roberta",
    "t5", "bart", "distilbert",
]  # fmt: skip
# A mean has no place in these.
WITHOUT = ["qwen2", "mistral", "t5"]
HEADS = [HeadId(0, 0), HeadId(1, 2), HeadId(1, 3)]
ZERO = EditRule("zero")
TEXTS = ["The nurse said that he knew", "The cook wrote", "she felt it"]


def plain(kind, tokenizer, **changes):
    return LanguageModel(tiny_hf_model(kind, len(tokenizer), **changes), tokenizer, f"tiny-{kind}")


def hooked(kind, tokenizer):
    return bridge_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name=f"tiny-{kind}")


def logits(model, text):
    ids = model.tokenizer(text, return_tensors="pt")["input_ids"]
    more = {"decoder_input_ids": ids} if model.hf_model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model.hf_model(input_ids=ids, **more).logits


# -- what cannot be done --


@pytest.mark.parametrize("text", ["half", "scale", "scale=", "scale=x", "scale=nan", "zero=1", ""])
def test_a_rule_of_another_form_is_refused(text):
    with pytest.raises(InputError, match=r"`how` must be zero, mean or scale=NUMBER; got"):
        edit_rule(text)


def test_rules_are_read_and_written():
    assert [str(edit_rule(text)) for text in ("zero", "mean", "scale=0.5", "scale=-2")] == [
        "zero", "mean", "scale=0.5", "scale=-2",
    ]  # fmt: skip
    with pytest.raises(InputError, match="scale=1 changes nothing"):
        edit_rule("scale=1.0")


def test_heads_that_do_not_exist_are_refused(subwords):
    model = plain("gpt2", subwords)
    for head in (HeadId(2, 0), HeadId(0, 4)):
        with pytest.raises(InputError, match=f"{head} does not exist"):
            edit_heads(model, [HeadId(0, 1), head], ZERO)
    assert model.weight_hash() == plain("gpt2", subwords).weight_hash()
    with pytest.raises(InputError, match="there is no head to edit"):
        edit_heads(model, [], ZERO)
    with pytest.raises(InputError, match="there is no text to take the mean over"):
        mean_outputs(model, HEADS, [])


@pytest.mark.parametrize("kind", ["qwen2", "t5"])
def test_a_mean_that_the_architecture_cannot_carry_is_refused(subwords, kind):
    model = plain(kind, subwords)
    means = mean_outputs(model, HEADS, TEXTS)
    with pytest.raises(InputError, match="have no bias, and no switch of its configuration adds"):
        edit_heads(model, HEADS, EditRule("mean"), means=means)


# -- exactness --


@pytest.mark.parametrize("kind", HOOKED)
def test_edited_weights_do_what_hooks_do(subwords, kind):
    """The mean stands in the bias, where there is one or a switch of the configuration adds it."""
    original = plain(kind, subwords) if kind == "distilbert" else hooked(kind, subwords)
    means = mean_outputs(original, HEADS, TEXTS, batch_size=2)
    rules = [ZERO, EditRule("scale", -0.5)]
    for rule in rules if kind in WITHOUT else [*rules, EditRule("mean")]:
        edited = plain(kind, subwords)
        # One that stands twice is edited once.
        edit_heads(edited, [*HEADS, HEADS[0]], rule, means=means)
        check = check_edit(edited, original, HEADS, rule, TEXTS, means=means)
        assert check.difference <= 1e-4
        assert check.effect > 0.01


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "opt", "bloom", "bert"])
def test_nothing_changes_but_the_columns_of_the_heads(subwords, kind):
    """By the slices that `tdabias edit --as slices` writes."""
    edited, before = plain(kind, subwords), plain(kind, subwords)
    changed = edit_heads(edited, HEADS, EditRule("scale", 0.5))
    expected = dict(before.hf_model.named_parameters())
    with torch.no_grad():
        for head in HEADS:
            for one in head_slices(before.hf_model, head):
                if one.part == "o":
                    one.of(expected[one.parameter]).mul_(0.5)
    for name, parameter in edited.hf_model.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=0, atol=0, msg=name)
    fresh = dict(plain(kind, subwords).hf_model.named_parameters())
    moved = [n for n, p in edited.hf_model.named_parameters() if not torch.equal(p, fresh[n])]
    assert moved == changed


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_means_are_over_all_places_of_all_texts(subwords, kind):
    model = plain(kind, subwords)
    layer = attention_layers(model)[1]
    seen = []
    handle = layer.projection.register_forward_pre_hook(lambda _, a: seen.append(a[0][0]))
    for text in TEXTS:
        logits(model, text)
    handle.remove()
    rows = torch.cat(seen).double()  # every text by itself, nothing padded
    expected = rows.mean(0).unflatten(-1, (4, -1))[2]
    for batch_size in (1, 3):
        found = mean_outputs(model, [HeadId(1, 2)], TEXTS, batch_size=batch_size)[HeadId(1, 2)]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_wrong_slice_would_be_noticed(subwords):
    edited, original = plain("llama", subwords), hooked("llama", subwords)
    edit_heads(edited, [HeadId(0, 1)], ZERO)
    with pytest.raises(InputError, match="is not what was asked for; nothing was kept"):
        check_edit(edited, original, [HeadId(0, 2)], ZERO, TEXTS)


def test_an_edit_without_effect_is_refused(subwords):
    edited, original = plain("llama", subwords), plain("llama", subwords)
    for model in (edited, original):
        edit_heads(model, [HeadId(0, 1)], ZERO)
    with pytest.raises(InputError, match="zero of L0H1 changes nothing"):
        check_edit(edited, original, [HeadId(0, 1)], ZERO, TEXTS)


# -- where heads are --


# With eager attention more of them: tests/tda_bias/models/test_architectures.py.
@pytest.mark.parametrize(
    ("name", "attention"),
    [("gpt2", "eager"), ("gpt2", "sdpa"), ("gpt_neo", "eager"), ("ibert", "eager"),
     ("modernbert", "sdpa"), ("mpnet", "sdpa"), ("qwen3_next", "sdpa"), ("trocr", "eager")],
)  # fmt: skip
def test_what_a_head_reads_enters_the_projection_in_a_part_of_its_own(subwords, name, attention):
    model = LanguageModel(tiny(name, len(subwords)), subwords, name)
    model.hf_model.set_attn_implementation(attention)
    layers = attention_layers(model)
    assert [layer.number for layer in layers] == ([1, 3] if name == "qwen3_next" else [0, 1, 2, 3])
    require_separate_heads(model, layers)
    layers[0] = replace(layers[0], n_heads=2)
    with pytest.raises(InputError, match="reads in a part of its own"):
        require_separate_heads(model, layers[:1])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("diffllama", "does not hand on what each head of layer 0 reads"),
        ("longt5", "does not hand on what each head of layer 0 reads"),
        ("albert", "layers that share their weights, so a head of one layer cannot"),
        ("hrm_text", "several stacks of layers, so a layer's number does not name one"),
        ("fnet", "has no attention heads that could be changed"),
    ],
)
def test_heads_that_cannot_be_told_apart_are_not_edited(subwords, tmp_path, name, reason):
    tiny(name, len(subwords)).save_pretrained(tmp_path / "model")
    subwords.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match=reason):
        written(str(tmp_path / "model"), tmp_path / "edited", heads=[HeadId(0, 1)])
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# -- folders --


def saved(kind, subwords, tmp_path, dtype=torch.float32):
    folder = tmp_path / kind
    tiny_hf_model(kind, len(subwords)).to(dtype).save_pretrained(folder)
    subwords.save_pretrained(folder)
    return str(folder)


def written(name, folder, rule=ZERO, heads=HEADS):
    dtype, about = stored_dtype(name), {"model": "base", "from": "a test"}
    return write_edited_model(
        lambda: load_language_model(name, device="cpu", dtype=dtype),
        lambda: load_language_model(name, device="cpu", attention="eager"),
        heads,
        rule,
        folder,
        probes=TEXTS,
        mean_over=TEXTS,
        about=about,
    )


FRESH = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
before, after = (AutoModelForCausalLM.from_pretrained(name) for name in sys.argv[1:3])
assert AutoTokenizer.from_pretrained(sys.argv[2])("she felt it")["input_ids"]
assert "tda_bias" not in sys.modules
other = dict(after.named_parameters())
changed = {}
for name, parameter in before.named_parameters():
    columns = (parameter != other.pop(name)).nonzero()
    if len(columns):
        changed[name] = sorted(set(columns[:, 1].tolist()))
print(json.dumps([changed, sorted(other), str(after.dtype)]))
"""


def in_a_fresh_process(before, after, cwd):
    call = [sys.executable, "-c", FRESH, str(before), str(after)]
    done = subprocess.run(call, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_edited_folder_loads_with_plain_transformers(subwords, tmp_path):
    name = saved("llama", subwords, tmp_path)
    result = written(name, tmp_path / "edited")
    changed, new, _ = in_a_fresh_process(name, tmp_path / "edited", tmp_path)
    assert changed == {
        "model.layers.0.self_attn.o_proj.weight": list(range(8)),
        "model.layers.1.self_attn.o_proj.weight": list(range(16, 32)),
    }
    assert new == []
    assert result.parameters == tuple(sorted(changed))
    record = json.loads((tmp_path / "edited" / "edit.json").read_text())
    assert record["heads"] == ["L0H0", "L1H2", "L1H3"]
    assert (record["how"], record["from"]) == ("zero", "a test")
    assert record["weights"]["before"] != record["weights"]["after"]
    config = json.loads((tmp_path / "edited" / "config.json").read_text())
    assert "pruned_heads" not in config
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edited", "llama"]


def test_a_mean_edit_gives_the_configuration_its_biases(subwords, tmp_path):
    written(saved("llama", subwords, tmp_path), tmp_path / "edited", EditRule("mean"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "edited")
    assert model.config.attention_bias is True
    biases = {n: p.detach() for n, p in model.named_parameters() if n.endswith("proj.bias")}
    assert len(biases) == 8
    assert all(bool(p.any()) == ("o_proj" in n) for n, p in biases.items())


@pytest.mark.parametrize("rule", [ZERO, EditRule("mean")])
def test_half_precision_stays_half_precision(subwords, tmp_path, rule):
    name = saved("gpt2", subwords, tmp_path, torch.bfloat16)
    assert stored_dtype(name) == "bfloat16"
    result = written(name, tmp_path / "edited", rule)
    assert stored_dtype(str(tmp_path / "edited")) == "bfloat16"
    assert result.check.difference <= result.check.allowed


def test_a_quantised_model_is_refused_before_it_is_loaded(subwords, tmp_path):
    name = saved("llama", subwords, tmp_path)
    path = tmp_path / "llama" / "config.json"
    quantised = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantised}))
    with pytest.raises(
        InputError, match=r"weights are quantised \(bitsandbytes\).*cannot be edited"
    ):
        stored_dtype(name)


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_folders_of_other_architectures_are_read_back(subwords, tmp_path, kind):
    name = saved(kind, subwords, tmp_path)
    result = written(name, tmp_path / "edited", EditRule("scale", 0.5))
    assert result.check.difference <= 1e-4


def test_nothing_is_written_where_something_is_or_where_a_check_fails(
    subwords, tmp_path, monkeypatch
):
    name = saved("gpt2", subwords, tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="there exists; a model is written into a new folder"):
        written(name, tmp_path / "there")

    def another(model, heads, rule, *, means=None):
        return edit_heads(model, [HeadId(0, 3)], rule, means=means)

    monkeypatch.setattr(edited_folder, "edit_heads", another)
    with pytest.raises(InputError, match="nothing was kept"):
        written(name, tmp_path / "edited")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt2", "there"]


@pytest.mark.real
def test_the_edited_real_model_loads_with_plain_transformers(tmp_path):
    from tda_bias.models.packaged import SMOLLM2

    source = SMOLLM2.folder()
    heads = [HeadId(5, 3), HeadId(10, 0)]
    result = written("smollm2-135m", tmp_path / "edited", heads=heads)
    assert result.check.difference <= 1e-4
    changed, new, _ = in_a_fresh_process(source, tmp_path / "edited", tmp_path)
    assert new == []
    assert changed == {
        "model.layers.5.self_attn.o_proj.weight": list(range(3 * 64, 4 * 64)),
        "model.layers.10.self_attn.o_proj.weight": list(range(64)),
    }
