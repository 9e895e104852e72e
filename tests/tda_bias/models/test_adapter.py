"""PEFT adapters: merged into the base they name, refused where they do not fit it."""

import json
import shutil
import sys
import warnings

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
def test_a_base_that_cannot_be_used_is_refused(adapter, tmp_path, base, message):
    if isinstance(base, str):
        base = base.format(tmp_path=tmp_path, adapter=adapter)
    folder = broken(adapter, tmp_path / "a", base_model_name_or_path=base)
    with pytest.raises(InputError, match=message):
        load_language_model(str(folder), device="cpu")


# -- vocabularies of an adapter's own --


def with_new_words(model, tokenizer, folder, *words, layers=True):
    """Save an adapter whose tokenizer knows more words than its base, and their weights or not."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoTokenizer

    torch.manual_seed(1)
    own = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    own.add_tokens(list(words))
    model.resize_token_embeddings(len(own))
    config = LoraConfig(
        r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False
    )
    adapted = get_peft_model(model, config).eval()
    adapted.save_pretrained(folder, save_embedding_layers=layers)
    own.save_pretrained(folder)
    return adapted, own


def test_an_adapters_own_tokenizer_and_new_words_are_read(tiny_folder, tokenizer, tmp_path):
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_folder)
    theirs, own = with_new_words(base, tokenizer, tmp_path / "a", "zyzzyva", "quux")
    found = load_language_model(str(tmp_path / "a"), device="cpu")
    assert len(found.tokenizer) == len(own) == len(tokenizer) + 2
    ids = found.tokenizer("the zyzzyva saw quux", return_tensors="pt")["input_ids"]
    assert (ids >= len(tokenizer)).sum() == 2
    with torch.no_grad():
        expected = theirs(ids).logits
        torch.testing.assert_close(found.hf_model(ids).logits, expected, rtol=0, atol=1e-4)


def test_new_words_that_an_adapter_has_no_weights_for_are_refused(tiny_folder, tokenizer, tmp_path):
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_folder)
    with_new_words(base, tokenizer, tmp_path / "a", "zyzzyva", layers=False)
    with pytest.raises(InputError, match="embeddings for .* tokens, but its tokenizer .*'zyzzyva'"):
        load_language_model(str(tmp_path / "a"), device="cpu")


def test_rows_of_an_output_head_that_an_adapter_lacks_are_refused(tokenizer, tmp_path):
    from safetensors.torch import load_file, save_file

    base = tiny_hf_model("llama", len(tokenizer), tie_word_embeddings=False)
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    base.name_or_path = str(tmp_path / "base")
    from peft import LoraConfig, get_peft_model

    base.resize_token_embeddings(len(tokenizer) + 3)
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"]))
    adapted.save_pretrained(tmp_path / "a", save_embedding_layers=True)
    assert load_language_model(str(tmp_path / "a"), device="cpu").hf_model.lm_head.out_features == (
        len(tokenizer) + 3
    )
    path = tmp_path / "a" / "adapter_model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if "lm_head" not in k}, path)
    with pytest.raises(InputError, match="no output weights of the others, which would be random"):
        load_language_model(str(tmp_path / "a"), device="cpu")


# -- kinds that cannot be merged --


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("PromptTuningConfig", {"num_virtual_tokens": 3}),
        ("PrefixTuningConfig", {"num_virtual_tokens": 3}),
        ("PromptEncoderConfig", {"num_virtual_tokens": 3}),
    ],
)
def test_an_adapter_that_adds_to_the_input_is_refused_before_its_base_is_read(
    tiny_folder, tmp_path, kind, settings
):
    import peft
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    config = getattr(peft, kind)(task_type="CAUSAL_LM", **settings)
    peft.get_peft_model(model, config).save_pretrained(tmp_path / "a")
    gone = broken(tmp_path / "a", tmp_path / "b", base_model_name_or_path="no/where")
    for folder in (tmp_path / "a", gone):
        with pytest.raises(InputError, match=r"kind P.* cannot be merged into its weights; give"):
            load_language_model(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("peft_type", "message"),
    [
        ("ADAPTION_PROMPT", "kind ADAPTION_PROMPT .* cannot be merged"),
        ("NEW", "names the kind 'NEW', unknown to peft"),
        (None, "names the kind None, unknown to peft"),
    ],
)
def test_kinds_of_adapters_are_refused_by_name(adapter, tmp_path, peft_type, message):
    folder = broken(adapter, tmp_path / "a", peft_type=peft_type)
    with pytest.raises(InputError, match=message):
        load_language_model(str(folder), device="cpu")


def test_an_adapter_on_one_of_two_tied_weights_is_refused(tokenizer, tmp_path):
    from peft import LoraConfig, get_peft_model

    base = tiny_hf_model("llama", len(tokenizer), tie_word_embeddings=True)
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    base.name_or_path = str(tmp_path / "base")
    config = LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft's, that tied weights change together
        get_peft_model(base, config).save_pretrained(tmp_path / "a")
    with pytest.raises(InputError, match="merged into its base this adapter answers otherwise"):
        load_language_model(str(tmp_path / "a"), device="cpu")


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
