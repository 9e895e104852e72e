"""Shared fixtures: tiny models with random weights, a tiny tokenizer, the real model and data."""

import os
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pytest
import torch
from hypothesis import settings

from tda_bias.models import LanguageModel, LoadedModel, bridge_model, load_model
from tda_bias.triples import load_triples
from tda_bias.types import Triple

mpl.use("Agg")
# The same examples in every run; no deadline, because the first call of a library is slow.
settings.register_profile("tdabias", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("tdabias")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A word-level tokenizer over the starter triples; unknown words share one id.

    From disk, because the bridge loads a tokenizer a second time from where it came from.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    words = {w for t in load_triples("starter") for text in t.texts() for w in _words(text)}
    vocabulary = {w: i for i, w in enumerate(["<unk>", "<pad>", "<bos>", "<eos>", *sorted(words)])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<bos>"}
    made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", **special)
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def _words(text: str) -> list[str]:
    from tokenizers import pre_tokenizers

    return [word for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text)]


def tiny_hf_model(kind: str, vocabulary: int, **changes):
    """A two-layer, four-head model of any architecture, with weights large enough to matter."""
    import transformers as tf

    llama = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }
    grouped = {**llama, "num_key_value_heads": 2}
    gpt2 = {"vocab_size": vocabulary, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    opt = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }
    t5 = {"vocab_size": vocabulary, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
    t5 |= {"num_layers": 2, "decoder_start_token_id": 1}
    bart = {"vocab_size": vocabulary, "d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    bart |= {"encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 128}
    bart |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    distil = {"vocab_size": vocabulary, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    xlnet = {"vocab_size": vocabulary, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}
    bloom = {"vocab_size": vocabulary, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    table = {
        "gpt2": (tf.GPT2LMHeadModel, tf.GPT2Config, gpt2),
        "gpt_neox": (tf.GPTNeoXForCausalLM, tf.GPTNeoXConfig, llama),
        "llama": (tf.LlamaForCausalLM, tf.LlamaConfig, grouped),
        "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config, grouped),
        "gemma2": (tf.Gemma2ForCausalLM, tf.Gemma2Config, {**grouped, "head_dim": 8}),
        "mistral": (tf.MistralForCausalLM, tf.MistralConfig, grouped),
        "opt": (tf.OPTForCausalLM, tf.OPTConfig, opt),
        "bloom": (tf.BloomForCausalLM, tf.BloomConfig, bloom),
        "bert": (tf.BertForMaskedLM, tf.BertConfig, llama),
        "roberta": (tf.RobertaForMaskedLM, tf.RobertaConfig, llama),
        "t5": (tf.T5ForConditionalGeneration, tf.T5Config, t5),
        "bart": (tf.BartForConditionalGeneration, tf.BartConfig, bart),
        "distilbert": (tf.DistilBertForMaskedLM, tf.DistilBertConfig, distil),
        "albert": (tf.AlbertForMaskedLM, tf.AlbertConfig, {**llama, "embedding_size": 16}),
        "xlnet": (tf.XLNetLMHeadModel, tf.XLNetConfig, xlnet),
    }
    model_class, config_class, settings = table[kind]
    special = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 1}
    config = config_class(**{**special, **settings, **changes})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = model_class(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:  # sharp enough attention that a wrong mask cannot hide
            parameter.data.normal_(0, 0.3 if "embed" not in name and "wte" not in name else 1.0)
    return model.eval()


@pytest.fixture(scope="session")
def subwords(tmp_path_factory):
    """A byte-level tokenizer that writes "he" and "she" in one token, "heiress" in several."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token=None))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    mask = AddedToken("<mask>", lstrip=True)  # as in RoBERTa: the space before it is part of it
    special = ["<s>", "</s>", "<pad>", mask, "<extra_id_0>"]
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "The nurse said that he knew that she felt that he man woman he she The cook wrote " * 9
    raw.train_from_iterator([text], trainer)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    names["mask_token"] = AddedToken(
        "<mask>", lstrip=True
    )  # as in RoBERTa: the space is part of it
    made = PreTrainedTokenizerFast(tokenizer_object=raw, **names)
    folder = tmp_path_factory.mktemp("subwords")
    made.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def tiny_lm(subwords) -> Callable[..., LanguageModel]:
    """Tiny language models with random weights, by architecture name."""

    def make(kind: str = "gpt2", **changes) -> LanguageModel:
        special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
        hf_model = tiny_hf_model(kind, len(subwords), **{**special, **changes})
        return LanguageModel(hf_model, subwords, f"tiny-{kind}")

    return make


@pytest.fixture(scope="session")
def tiny(tokenizer) -> Callable[..., LoadedModel]:
    """Tiny bridged models by architecture name."""

    def make(kind: str = "gpt2", **changes) -> LoadedModel:
        hf_model = tiny_hf_model(kind, len(tokenizer), **changes)
        return bridge_model(hf_model, tokenizer, name=f"tiny-{kind}")

    return make


@pytest.fixture(scope="session")
def tiny_folder(tokenizer, tmp_path_factory) -> Path:
    """A tiny GPT-2 saved to disk, for everything that takes a model by path."""
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    tiny_hf_model("gpt2", len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def gender() -> list[Triple]:
    """The starter triples of two gender groups, six each."""
    return load_triples("starter", category="gender", groups=["girl", "boy"], limit=6)


@pytest.fixture(scope="session")
def stereoset() -> Path:
    """The real StereoSet development set as JSON Lines."""
    path = os.environ.get("TDABIAS_STEREOSET", "")
    if not path:
        pytest.skip("set TDABIAS_STEREOSET to StereoSet's intersentence half as JSON Lines")
    return Path(path)


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """The real SmolLM2-135M."""
    return load_model("smollm2-135m", device="cpu")
