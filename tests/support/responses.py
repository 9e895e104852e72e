"""Tiny models that write words about people with one-token names."""

import torch

from tda_bias.models.language_model import LanguageModel
from tda_bias.responses.persons import Person, PersonSet
from tda_bias.responses.prompts import Prompt, PromptSet
from tda_bias.store.record import DataRecord
from tests.support.models import tiny_hf_model

WOMEN = [f"Wa{letter}" for letter in "abcdefghij"]
MEN = [f"Mo{letter}" for letter in "abcdefghij"]
TEXT = (
    "Write about who is kind calm loud late strong and the a was had went home nurse cook "
    "she he her his Yes No yes no Should we hire ? . said that"
)
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} {% endfor %}"
    "{% if enable_thinking %}<think> {% endif %}<assistant>"
)


def word_tokenizer():
    """A tokenizer of whole words, names among them, with an end token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<pad>", "<bos>", "<eos>", "<user>", "<system>", "<assistant>", "<think>"]
    words = list(dict.fromkeys([*special, *TEXT.split(), *WOMEN, *MEN]))
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", pad_token="<pad>", bos_token="<bos>",
        eos_token="<eos>",
    )  # fmt: skip


def writing_model(kind: str = "gpt2", *, by_group: bool = False, blind: bool = False, **changes):
    """A tiny model with random weights.

    ``by_group`` gives all names of a group one embedding: what it writes depends on the group, and
    on nothing else of a name. ``blind`` lets each next token depend on the last one alone.
    """
    tokenizer = word_tokenizer()
    hf_model = tiny_hf_model(kind, len(tokenizer), **changes)
    if by_group:
        rows = hf_model.get_input_embeddings().weight.data
        for names in (WOMEN, MEN):
            ids = tokenizer.convert_tokens_to_ids(names)
            rows[ids] = rows[ids[0]].clone()
    if blind:
        hf_model.transformer.wpe.weight.data.zero_()
        for block in hf_model.transformer.h:
            block.attn.c_proj.weight.data.zero_()
            block.attn.c_proj.bias.data.zero_()
    # Flat enough that responses differ.
    with torch.no_grad():
        hf_model.get_output_embeddings().weight.mul_(0.3)
    return LanguageModel(hf_model.eval(), tokenizer, f"tiny-{kind}")


def some_people() -> PersonSet:
    persons = [Person(name, "female") for name in WOMEN] + [Person(name, "male") for name in MEN]
    return PersonSet(tuple(persons), DataRecord(source="people", revision="1"))


def some_prompts(n: int = 8, decisions: int = 2) -> PromptSet:
    words = [word for word in TEXT.split() if word.islower()]
    prompts = [
        Prompt(f"p{i}", "story", f"Write about [PERSON] who was {words[i % 12]} .")
        for i in range(n)
    ] + [
        Prompt(f"d{i}", "decision", f"Should we hire [PERSON] {words[i]} ?", ("yes", "no"))
        for i in range(decisions)
    ]
    return PromptSet(tuple(prompts), DataRecord(source="own", revision="1"))
