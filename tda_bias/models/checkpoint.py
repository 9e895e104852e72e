"""Checks of a checkpoint: no code, all layers, a row of embeddings for every token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tda_bias.runs.text import counted
from tda_bias.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Files in which a model folder can name Python files of its own.
_WITH_CODE = ("config.json", "tokenizer_config.json")
# Settings that can name compiled code on the hub, as owner/repository.
_IMPLEMENTATIONS = ("_attn_implementation", "_experts_implementation")


def refuse_code_in_folder(source: str) -> None:
    """Refuse a local folder that names code of its own, before transformers can ask about it.

    Raises:
        InputError: naming the file.
    """
    for name in _WITH_CODE:
        try:
            content = json.loads((Path(source) / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue  # no folder, or a file that the loader itself will refuse
        if isinstance(content, dict) and "auto_map" in content:
            raise InputError(
                f"`model` {source}: its {name} names Python code (auto_map), which is never run; "
                "if transformers knows the architecture without it, delete that entry"
            )


def refuse_compiled_code(name: str, config: Any) -> None:
    """Refuse a configuration that asks for kernels from the hub.

    Raises:
        InputError: naming the setting.
    """
    for setting in _IMPLEMENTATIONS:
        value = getattr(config, setting, None)
        if isinstance(value, str) and "/" in value:
            raise InputError(
                f"`model` {name}: its configuration asks for compiled code from the hub "
                f"({setting.lstrip('_')} {value!r}), which is never run; delete that entry"
            )


def refuse_empty_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse what transformers makes where there is no tokenizer: one that knows no words.

    Raises:
        InputError: saying so.
    """
    special = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens}
    if len(set(tokenizer.get_vocab()) - special) < 2:
        raise InputError(
            f"`model` {name} has no tokenizer: its folder lacks tokenizer.json or its like; save "
            "the tokenizer there too"
        )


def refuse_small_embedding(
    name: str, hf_model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuse a tokenizer with tokens that the model has no embedding for.

    Tokens that texts do not hold unless they are spelt out (padding, added ones) do not count.

    Raises:
        InputError: naming one of them.
    """
    rows = getattr(hf_model.get_input_embeddings(), "num_embeddings", None)
    if rows is None:
        return
    added = set(tokenizer.get_added_vocab())
    used = {token: i for token, i in tokenizer.get_vocab().items() if token not in added}
    pairs = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    used |= {token: i for token, i in pairs if token != tokenizer.pad_token}
    lacking = sorted((index, token) for token, index in used.items() if index >= rows)
    if lacking:
        index, token = lacking[0]
        raise InputError(
            f"`model` {name} has embeddings for {rows} tokens, but its tokenizer knows more "
            f"({token!r} is number {index}): they do not belong together"
        )


def of_the_body(hf_model: PreTrainedModel, names: Iterable[str]) -> tuple[str, ...]:
    """Those of some parameters that attention patterns depend on: the encoder's, or the body's."""
    seq2seq = hf_model.config.is_encoder_decoder
    body = hf_model.get_encoder() if seq2seq else hf_model.base_model
    of_body = {id(value) for value in body.state_dict(keep_vars=True).values()}
    every = hf_model.state_dict(keep_vars=True)
    return tuple(name for name in names if name in every and id(every[name]) in of_body)


def refuse_other_shapes(
    name: str, mismatched: Iterable[tuple[str, Sequence[int], Sequence[int]]]
) -> None:
    """Refuse a checkpoint whose weights are not those of its configuration.

    Args:
        name: The model's.
        mismatched: Names of parameters, with their shapes in the checkpoint and in the model.

    Raises:
        InputError: if there are any.
    """
    differing = sorted((str(key), tuple(stored), tuple(built)) for key, stored, built in mismatched)
    if differing:
        key, stored, built = differing[0]
        raise InputError(
            f"`model` {name}: its weights and its config.json are of two models: {key} is "
            f"{list(stored)} in the checkpoint, {list(built)} by config.json "
            f"({counted(len(differing), 'parameter differs', 'parameters differ')})"
        )
