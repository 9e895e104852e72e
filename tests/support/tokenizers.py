"""A small byte-level tokenizer."""

from pathlib import Path


class Wrapped:
    """A tokenizer in another one's place, which may differ in what it does."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def __len__(self):
        return len(self._tokenizer)

    def __call__(self, *arguments, **options):
        return self._tokenizer(*arguments, **options)


def subwords_in(folder: Path):
    """A byte-level tokenizer that writes "he" and "she" in one token, "heiress" in several.

    From disk, because the bridge loads a tokenizer a second time from where it came from.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token=None))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    # As in RoBERTa: the space before it is part of it.
    mask = AddedToken("<mask>", lstrip=True)
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "</s>", "<pad>", mask, "<extra_id_0>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "The nurse said that he knew that she felt that he man woman he she The cook wrote " * 9
    raw.train_from_iterator([text], trainer)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": mask}
    PreTrainedTokenizerFast(tokenizer_object=raw, **names).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def trained(texts, *, form="<s> $A", whole_texts=False, bytes_=True, **of_model):
    """A byte-pair tokenizer of one's own texts; without ``bytes_`` it drops letters it never saw.

    ``whole_texts`` lets tokens span words; ``form`` says which special tokens stand around a text.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(**of_model))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    alphabet = []
    if bytes_:
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=False, use_regex=not whole_texts
        )
        raw.decoder, alphabet = decoders.ByteLevel(), pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(texts, trainer)
    raw.post_processor = processors.TemplateProcessing(
        single=form, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **names)


def uncased():
    """A WordPiece tokenizer without capitals and accents, to which other scripts are unknown."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = "the nurse cook said that he she was calm loud home came late . , cafe"
    words = [
        *words.split(),
        *"abcdefghijklmnopqrstuvwxyz",
        *(f"##{c}" for c in "abcdefghijklmnoprstuvwxyz"),
    ]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*special, *words]))}
    raw = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, sep_token="[SEP]", mask_token="[MASK]", **names
    )


def by_digits(text):
    """A byte-level tokenizer for which each digit, and the space before a number, is a token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([text], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="<s>")
