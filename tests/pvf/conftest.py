"""A tokenizer that splits words, and tiny models of every kind that use it."""

from collections.abc import Callable

import pytest

from pvf.templates import Template
from pvf.words import WordClasses, WordList
from tda_bias.models import LanguageModel
from tests.conftest import tiny_hf_model


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


@pytest.fixture
def some_words() -> WordList:
    return WordList("some", "test", ("nurse", "cook", "software developer"))


@pytest.fixture
def some_templates() -> list[Template]:
    texts = ["The [X] said that [Y]", "The [X] wrote [Y]", "The [X], who knew the cook, felt [Y]"]
    return [Template(text, count) for text, count in zip(texts, (5, 3, 2), strict=True)]


@pytest.fixture
def some_classes() -> WordClasses:
    """Words of one token and of several; "he" is how "heiress" begins."""
    classes = {"male": ("he", "man", "monk"), "female": ("she", "heiress", "hers")}
    return WordClasses("some", "test", classes, ())
