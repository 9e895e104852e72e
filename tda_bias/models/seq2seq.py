"""Log-probabilities of tokens in a gap of an encoder-decoder's text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tda_bias.models.batching import padded, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import refuse_undefined, token_log_probs
from tda_bias.models.token_trees import TokenTree, below_each_other, separate_paths
from tda_bias.types import InputError

_T5_GAP = "<extra_id_0>"


def gap_token(model: LanguageModel) -> str:
    """What stands for a gap in the encoder's text: T5's first sentinel, or the mask of BART.

    Raises:
        InputError: if the tokenizer has neither.
    """
    tokenizer = model.tokenizer
    if _T5_GAP in tokenizer.get_vocab():
        return _T5_GAP
    if tokenizer.mask_token is None:
        raise InputError(f"`model` {model.name}: its tokenizer has neither {_T5_GAP} nor a mask")
    return str(tokenizer.mask_token)


def begun(model: LanguageModel, text: Sequence[int]) -> list[int]:
    """What the decoder has written before the gap behind a text.

    T5 names the gap; models that restore the whole text (BART) repeat it.

    Raises:
        InputError: if the model's configuration has no decoder start.
    """
    start = model.hf_model.config.decoder_start_token_id
    if start is None:
        raise InputError(f"`model` {model.name}: its configuration has no decoder start")
    gap = gap_token(model)
    if gap == _T5_GAP:
        return [start, model.tokenizer.convert_tokens_to_ids(gap)]
    leading = [t for t in special_tokens_around(model.tokenizer)[0] if t != start]
    return [start, *leading, *text]


def decoded_log_probs(
    model: LanguageModel,
    sources: Sequence[Sequence[int]],
    trees: Sequence[TokenTree],
    *,
    batch_size: int,
) -> list[Float[np.ndarray, " reading"]]:
    """Readings of the decoder's trees, one per source; every source is encoded once.

    Args:
        model: An encoder-decoder.
        sources: Token ids for the encoder.
        trees: What the decoder has written, and what is read.
        batch_size: Decoder rows (paths) per forward pass.

    Raises:
        InputError: if a source is longer than the model's context, or a log-probability is NaN.
    """
    model.check_length(max(map(len, sources)))
    ids, mask = (part.to(model.device) for part in padded(sources))
    with torch.inference_mode():
        encoded = model.hf_model.get_encoder()(input_ids=ids, attention_mask=mask)[0]
    whole = separate_paths(trees)
    log_probs = [np.empty(len(tree.read_node)) for tree in trees]
    for first in range(0, len(whole.rows), batch_size):
        part = slice(first, first + batch_size)
        rows = torch.tensor(whole.tree[part], device=model.device)
        values = _decoded(model, encoded[rows], mask[rows], whole.rows[part])
        for tree, which, value in zip(whole.tree[part], whole.readings[part], values, strict=True):
            log_probs[tree][which] = value
    refuse_undefined(model, log_probs)
    return log_probs


def _decoded(
    model: LanguageModel, encoded: Tensor, mask: Tensor, chains: Sequence[TokenTree]
) -> list[Float[np.ndarray, " reading"]]:
    from transformers.modeling_outputs import BaseModelOutput

    ids, own_mask = padded([chain.tokens.tolist() for chain in chains])
    places, which = below_each_other(chains).places(chains)
    inputs = {
        "encoder_outputs": BaseModelOutput(last_hidden_state=encoded),
        "attention_mask": mask,
        "decoder_input_ids": ids.to(model.device),
        "decoder_attention_mask": own_mask.to(model.device),
        "use_cache": False,
    }
    token = np.concatenate([chain.read_token for chain in chains])
    where = torch.from_numpy(places).to(model.device)
    values = token_log_probs(model.hf_model, inputs, where, which, token)
    sizes = [len(chain.read_node) for chain in chains]
    return list(np.split(values, np.cumsum(sizes)[:-1]))
