"""PEFT adapters: merged into the base they name, refused where they do not fit it."""

import json
import shutil
import sys

import pytest
import torch

from tda_bias import InputError
from tda_bias.models.load import load_language_model
from tests.support.models import tiny_hf_model

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


@pytest.fixture
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


def test_an_adapter_of_another_base_is_refused_in_one_line(
    adapter, tokenizer, tmp_path, tiny_folder
):
    wider = tmp_path / "wider"
    tiny_hf_model("gpt2", len(tokenizer), n_embd=64).save_pretrained(wider)
    tokenizer.save_pretrained(wider)
    elsewhere = broken(adapter, tmp_path / "a", base_model_name_or_path=str(wider))
    with pytest.raises(InputError, match="this adapter does not fit its base .*wider"):
        load_language_model(str(elsewhere), device="cpu")
    llama = tmp_path / "llama"
    tiny_hf_model("llama", len(tokenizer)).save_pretrained(llama)
    tokenizer.save_pretrained(llama)
    elsewhere = broken(adapter, tmp_path / "b", base_model_name_or_path=str(llama))
    with pytest.raises(InputError, match="this adapter does not fit its base .*llama"):
        load_language_model(str(elsewhere), device="cpu")


def test_an_adapter_that_lacks_weights_is_refused(adapter, tmp_path):
    from safetensors.torch import load_file, save_file

    cut = broken(adapter, tmp_path / "cut")
    weights = load_file(cut / "adapter_model.safetensors")
    del weights[sorted(weights)[0]]
    save_file(weights, cut / "adapter_model.safetensors")
    with pytest.raises(InputError, match="does not fit its base"):
        load_language_model(str(cut), device="cpu")


@pytest.mark.parametrize("base", [None, "", 3])
def test_an_adapter_without_a_base_is_refused(adapter, tmp_path, base):
    nameless = broken(adapter, tmp_path / "c", base_model_name_or_path=base)
    with pytest.raises(InputError, match="names no base model"):
        load_language_model(str(nameless), device="cpu")


def test_a_base_that_is_not_there_and_a_loop_are_refused(adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    gone = broken(adapter, tmp_path / "d", base_model_name_or_path=str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="`model` must be a hub name"):
        load_language_model(str(gone), device="cpu")
    loop = broken(adapter, tmp_path / "e", base_model_name_or_path=str(tmp_path / "e"))
    with pytest.raises(InputError, match="names the adapter itself"):
        load_language_model(str(loop), device="cpu")
    other = broken(adapter, tmp_path / "f", base_model_name_or_path=str(tmp_path / "e"))
    with pytest.raises(InputError, match="names another adapter as its base"):
        load_language_model(str(other), device="cpu")


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
