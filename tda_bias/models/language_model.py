"""A Hugging Face language model and its tokenizer, and token ids in batches for it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from tda_bias.show.text import counted
from tda_bias.store.hashes import bytes_hash, text_hash
from tda_bias.store.record import ModelRecord
from tda_bias.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Settings of tokenizers with which a text is written differently each time: byte-pair encoding
# drops merges, a unigram model draws among the likeliest splits.
_AT_RANDOM = ("dropout", "alpha", "nbest_size")
_log = logging.getLogger(__name__)
# What the bridge puts between the names of a part and of what it wraps.
WRAPPED = "_original_component"
Kind = Literal["causal", "masked", "permutation", "seq2seq", "span"]
# A forward pass costs about as much on top as running so many more tokens.
_PASS_COST = 40


@dataclass(frozen=True, repr=False)
class LanguageModel:
    """A Hugging Face model with the tokenizer its texts go through.

    A tokenizer that splits words at random, as in training, no longer does; that is said.

    Attributes:
        hf_model: The model, on its device, in evaluation mode.
        tokenizer: The tokenizer as Hugging Face loads it.
        name: What the model was asked for as.
        revision: The hub's commit, where it is known.
        not_in_checkpoint: Parameters that the checkpoint lacks and that are therefore random.
        adapted: Hash of the weights before an adapter was merged into them; None without one.
    """

    hf_model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str | None = None
    not_in_checkpoint: tuple[str, ...] = ()
    adapted: str | None = None

    def __post_init__(self) -> None:
        _settle(self.tokenizer, self.name)

    def __repr__(self) -> str:
        shown = f"{self.architecture}, {self.n_parameters:,} parameters, {self.dtype_name}"
        return f"<{type(self).__name__} {self.name}: {shown}, {self.device}>"

    @property
    def device(self) -> torch.device:
        """Device of the inputs."""
        return device_of_inputs(self.hf_model)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        kind: torch.dtype = next(self.hf_model.parameters()).dtype
        return kind

    @property
    def dtype_name(self) -> str:
        """The same as it is written on the command line."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def architecture(self) -> str:
        """Class name of the Hugging Face model."""
        return type(self.hf_model).__name__

    @property
    def kind(self) -> Kind:
        """The way its output probabilities are read."""
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_QUESTION_ANSWERING_MAPPING

        if _is_listed(self.hf_model, MODEL_FOR_QUESTION_ANSWERING_MAPPING):
            return "span"
        if self.hf_model.config.is_encoder_decoder:
            return "seq2seq"
        if self.hf_model.config.model_type == "xlnet":
            return "permutation"
        # XLM has one class for both.
        if not getattr(self.hf_model.config, "causal", True):
            return "masked"
        return "causal" if _is_listed(self.hf_model, MODEL_FOR_CAUSAL_LM_MAPPING) else "masked"

    @property
    def n_parameters(self) -> int:
        """Number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.hf_model.parameters())

    @property
    def max_tokens(self) -> int | None:
        """The longest text the model takes, in tokens; None where nothing limits it."""
        config = self.hf_model.config
        names = ("max_position_embeddings", "n_positions", "n_ctx")
        limits = [value for name in names if (value := getattr(config, name, None) or 0) > 0]
        limits.append(self.tokenizer.model_max_length)
        embeddings = getattr(self.hf_model.base_model, "embeddings", None)
        places: Any = getattr(embeddings, "position_embeddings", None)
        padding: int | None = getattr(places, "padding_idx", None)
        # RoBERTa counts places from the one after the padding's.
        if places is not None and padding is not None:
            limits.append(places.weight.shape[0] - padding - 1)
        longest = min(limits)
        return None if longest > 10**9 else int(longest)

    def check_length(self, n_tokens: int) -> None:
        """Refuse a prompt that does not fit.

        Raises:
            InputError: if it is longer than the model's context.
        """
        if self.max_tokens is not None and n_tokens > self.max_tokens:
            raise InputError(
                f"a prompt has {n_tokens} tokens, `model` {self.name} takes {self.max_tokens}; "
                "nothing is truncated, shorten it"
            )

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts without special tokens."""
        if not texts:
            return []
        read = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)
        ids: list[list[int]] = read["input_ids"]
        return ids

    def special_remarks(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Sentence on texts that hold special tokens, which act as such; none where none does."""
        spelled = {*self.tokenizer.all_special_tokens} - {self.tokenizer.unk_token}
        holding = [text for text in dict.fromkeys(texts) if any(t in text for t in spelled)]
        special = {self.tokenizer.convert_tokens_to_ids(token) for token in spelled}
        held = [special.intersection(own) for own in self.token_ids(holding)]
        n = sum(map(bool, held))
        if not n:
            return ()
        names = ", ".join(self.tokenizer.convert_ids_to_tokens(sorted(set[int]().union(*held))))
        return (
            f"{counted(n, 'text holds', 'texts hold')} special tokens of the tokenizer ({names}), "
            "which act as such: they are read as these tokens, beside those that stand around "
            "every text.",
        )

    def tokenizer_hash(self) -> str:
        """Hash of what a tokenizer gives a model beside a text: vocabulary, special tokens."""
        tokenizer = self.tokenizer
        special = (*special_tokens_around(tokenizer), tokenizer.bos_token_id)
        about = (*special, tokenizer.mask_token_id, sorted(tokenizer.get_vocab().items()))
        return text_hash(json.dumps(about))

    def weight_hash(self) -> str:
        """Hash of all parameters by name and value: the same for the same weights only.

        What the checkpoint lacks is random at every loading, and takes no part.
        """
        return bytes_hash(self._weight_bytes())

    def _weight_bytes(self) -> Iterator[bytes | memoryview]:
        """Names and values of the parameters that the checkpoint has."""
        every = self.hf_model.state_dict()
        # Where such a parameter is tied to others, all of them are random.
        lacking = set(self.not_in_checkpoint)
        random = {
            parameter.data_ptr()
            for name, parameter in every.items()
            if name.replace(f".{WRAPPED}", "") in lacking
        }
        for name, parameter in weights(self.hf_model):
            if parameter.data_ptr() in random - {0}:
                continue
            yield name.encode()
            raw = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            yield raw.numpy().data

    def require_body(self) -> None:
        """Refuse a checkpoint whose attention patterns would come from random parameters.

        Raises:
            InputError: naming some of them.
        """
        if not self.not_in_checkpoint:
            return
        seq2seq = self.hf_model.config.is_encoder_decoder
        body = self.hf_model.get_encoder() if seq2seq else self.hf_model.base_model
        of_body = {id(value) for value in body.state_dict(keep_vars=True).values()}
        every = self.hf_model.state_dict(keep_vars=True)
        lacking = [n for n in self.not_in_checkpoint if n in every and id(every[n]) in of_body]
        if lacking:
            more = ", ..." if len(lacking) > 2 else ""
            raise InputError(
                f"`model` {self.name}: its checkpoint lacks {counted(len(lacking), 'parameter')} "
                f"({', '.join(lacking[:2])}{more}), which would be random; is it complete?"
            )

    def require_whole_checkpoint(self) -> None:
        """Refuse a checkpoint whose outputs, of any kind, would come from random parameters.

        Raises:
            InputError: naming some of them.
        """
        self.require_body()
        if self.not_in_checkpoint:
            raise InputError(
                f"`model` {self.name}: {self.not_in_checkpoint[0]} is not in its checkpoint, so "
                "its answers would be random"
            )

    def require_language_head(self) -> None:
        """Refuse a checkpoint whose output probabilities would come from random parameters.

        Raises:
            InputError: if the model has no output embeddings, or some parameters were not in the
                checkpoint.
        """
        self.require_body()
        lacking = self.not_in_checkpoint
        if self.hf_model.get_output_embeddings() is None or lacking:
            example = f" ({lacking[0]} is not in the checkpoint)" if lacking else ""
            raise InputError(
                f"`model` {self.name} has no language-model head{example}; its output "
                "probabilities would be random; give a causal, masked or sequence-to-sequence "
                "language model"
            )


def _settle(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Switch off what makes a tokenizer write the same text differently each time.

    Raises:
        InputError: if that cannot be switched off.
    """
    splits = f"`model` {name}: its tokenizer splits words at random"
    if (getattr(tokenizer, "sp_model_kwargs", None) or {}).get("enable_sampling"):
        raise InputError(
            f"{splits} (enable_sampling of sp_model_kwargs in tokenizer_config.json); take that out"
        )
    splitter = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    for setting in _AT_RANDOM:
        value = getattr(splitter, setting, None)
        if value:
            setattr(splitter, setting, None)
            _log.warning("%s (%s %s), which is switched off", splits, setting, value)


def model_record(model: LanguageModel, *, weights: str) -> ModelRecord:
    """The model as it was run; ``weights`` is its ``weight_hash``."""
    return ModelRecord(
        name=model.name,
        architecture=model.architecture,
        revision=model.revision,
        weights=weights,
        dtype=model.dtype_name,
        device=str(model.device),
        parameters=model.n_parameters,
        tokenizer=type(model.tokenizer).__name__,
        vocabulary=len(model.tokenizer),
    )


def _is_listed(model: PreTrainedModel, mapping: Any) -> bool:
    """Tell whether a mapping of transformers has a model's class, without importing others."""
    listed = mapping.get(type(model.config), ())
    return type(model) in (listed if isinstance(listed, tuple) else (listed,))


def named_parts(model: LanguageModel) -> dict[str, object]:
    """A model and what it is made of, by name: the same names wherever it is loaded."""
    named: dict[str, object] = {"model": model, "tokenizer": model.tokenizer}
    for name in ("hf_model", "bridge"):
        whole = getattr(model, name, None)
        if whole is not None:
            every = chain(whole.named_modules(), whole.named_parameters())
            named |= {f"{name} {path}": own for path, own in every}
    return named


def is_spread(hf_model: PreTrainedModel) -> bool:
    """Tell whether parts of a model are on several devices, or are brought to one when run."""
    places = {str(place) for place in (getattr(hf_model, "hf_device_map", None) or {}).values()}
    return len(places) > 1 or "disk" in places


def device_of_inputs(hf_model: PreTrainedModel) -> torch.device:
    """Device of a model's inputs."""
    for parameter in hf_model.parameters():
        if parameter.device.type != "meta":
            place: torch.device = parameter.device
            return place
    # Everything is brought in when it is run: hooks put it where inputs are.
    return torch.device("cpu")


def weights(hf_model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer in the order of names, wherever it is; one at a time."""
    from accelerate.utils import align_module_device

    for name, value in sorted(hf_model.state_dict().items()):
        if value.device.type != "meta":
            yield name, value
            continue
        module, _, attribute = name.rpartition(".")
        part = hf_model.get_submodule(module)
        with align_module_device(part, "cpu"):
            yield name, getattr(part, attribute).detach()


# -- token ids -------------------------------------------------------------------------------------


def common_prefix(*sequences: Sequence[int] | Sequence[str]) -> int:
    """Number of first elements, tokens as a rule, that sequences share."""
    length = 0
    for tokens in zip(*sequences, strict=False):
        if len(set(tokens)) > 1:
            break
        length += 1
    return length


def batches_of_similar_width(widths: list[int], most: int) -> list[list[int]]:
    """Rows of similar width together: the cheapest cut of their sorted list, padding included."""
    order = sorted(range(len(widths)), key=widths.__getitem__)
    cost, start = [0.0], [0]
    for end in range(1, len(order) + 1):
        widest = widths[order[end - 1]]
        options = [
            (cost[first] + widest * (end - first) + _PASS_COST, first)
            for first in range(max(0, end - most), end)
        ]
        best, first = min(options)
        cost.append(best)
        start.append(first)
    batches, end = [], len(order)
    while end:
        batches.append(order[start[end] : end])
        end = start[end]
    return batches[::-1]


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "row token"], Tensor]:
    """Token ids padded on the right, and which places are real."""
    length = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(length.max()), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return ids, (torch.arange(ids.shape[1]) < length[:, None]).long()


def special_tokens_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Special tokens that a tokenizer puts before and after a text; none for many.

    They are read off a text that becomes tokens, none of them special: of a tokenizer that writes
    no English, one of its own words.

    Raises:
        InputError: if the tokenizer writes no such text.
    """
    special = set(tokenizer.all_special_ids)
    for text in _texts_of(tokenizer):
        bare = list(tokenizer(text, add_special_tokens=False)["input_ids"])
        full = list(tokenizer(text)["input_ids"])
        places = [i for i in range(len(full)) if bare and full[i : i + len(bare)] == bare]
        if places and special.isdisjoint(bare):
            return full[: places[0]], full[places[0] + len(bare) :]
    raise InputError("the tokenizer writes no text: none of its words becomes tokens again")


def _texts_of(tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Texts, of which a tokenizer can write some: English, then its own words one by one."""
    yield "that"
    for token in range(len(tokenizer)):
        yield tokenizer.decode([token])
