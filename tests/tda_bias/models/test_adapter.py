"""PEFT adapters: merged into the base they name, refused where they do not fit it."""

import json
import shutil
import sys

import pytest
import torch

from tda_bias import InputError
from tda_bias.models.load import load_language_model
from tdabias_cli.main import run
from tests.support.models import tiny_hf_model

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


@pytest.fixture(scope="module")
def adapter(tiny_folder, tmp_path_factory):
    """A LoRA adapter with weights that matter, saved by peft."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    config = LoraConfig(
        r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False
    )
    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    get_peft_model(model, config).save_pretrained(folder)
    return folder


def broken(adapter, target, **changes):
    shutil.copytree(adapter, target)
    path = target / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return target


@pytest.mark.parametrize(("kind", "size"), [("gpt2", {"n_embd": 64}), ("llama", {})])
def test_an_adapter_of_another_base_is_refused(adapter, tokenizer, tmp_path, kind, size):
    base = tmp_path / "base"
    tiny_hf_model(kind, len(tokenizer), **size).save_pretrained(base)
    tokenizer.save_pretrained(base)
    elsewhere = broken(adapter, tmp_path / "a", base_model_name_or_path=str(base))
    with pytest.raises(InputError, match="this adapter does not fit its base .*base"):
        load_language_model(str(elsewhere), device="cpu")


def test_an_adapter_that_lacks_weights_is_refused(adapter, tmp_path):
    from safetensors.torch import load_file, save_file

    cut = broken(adapter, tmp_path / "cut")
    path = cut / "adapter_model.safetensors"
    weights = load_file(path)
    del weights[sorted(weights)[0]]
    save_file(weights, path)
    with pytest.raises(InputError, match="does not fit its base"):
        load_language_model(str(cut), device="cpu")
    path.unlink()
    with pytest.raises(InputError, match=r"adapter has no weights \(adapter_model.safetensors\)"):
        load_language_model(str(cut), device="cpu")


def test_an_edited_adapter_is_the_edited_merged_model(adapter, tmp_path, capsys):
    out = tmp_path / "edited"
    call = ["edit", "--model", str(adapter), "--head", "L1H3", "--how", "zero", "--out", str(out)]
    assert run(call) == 0, capsys.readouterr().err
    merged = load_language_model(str(adapter), device="cpu").hf_model.state_dict()
    edited = load_language_model(str(out), device="cpu").hf_model.state_dict()
    assert set(merged) == set(edited)
    changed = [name for name in merged if not torch.equal(merged[name], edited[name])]
    assert changed == ["transformer.h.1.attn.c_proj.weight"]


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (None, "names no base model"),
        (3, "names no base model"),
        ("{tmp_path}/nothing", "`model` .*/a is an adapter, and its base: .*nothing"),
        ("{tmp_path}/a", "names an adapter as its base"),
        ("{adapter}", "names an adapter as its base"),
    ],
)
def test_a_base_that_cannot_be_used_is_refused(adapter, tmp_path, monkeypatch, base, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if isinstance(base, str):
        base = base.format(tmp_path=tmp_path, adapter=adapter)
    folder = broken(adapter, tmp_path / "a", base_model_name_or_path=base)
    with pytest.raises(InputError, match=message):
        load_language_model(str(folder), device="cpu")


def test_without_peft_the_message_names_the_extra(adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"reading it needs peft: pip install 'tdabias\[lora\]"):
        load_language_model(str(adapter), device="cpu")


def test_the_merged_model_is_pefts_and_knows_its_base(adapter, tiny_folder):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    found = load_language_model(str(adapter), device="cpu")
    base = load_language_model(str(tiny_folder), device="cpu")
    theirs = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tiny_folder), adapter
    ).eval()
    ids = torch.arange(4, 20)[None]
    with torch.no_grad():
        expected, own, without = (m(ids).logits for m in (theirs, found.hf_model, base.hf_model))
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-4)
    assert (own - without).abs().max() > 0.01
    assert found.adapted == base.weight_hash()
    assert found.weight_hash() != base.weight_hash()
    assert set(found.hf_model.state_dict()) == set(base.hf_model.state_dict())
