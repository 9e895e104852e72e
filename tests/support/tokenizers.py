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
