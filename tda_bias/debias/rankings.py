"""Rankings of heads to train, each from the targets that choose and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.effects import watched
from tda_bias.ablation.head_weights import ranked_heads
from tda_bias.ablation.prune_curve import by_value, first_order_rankings
from tda_bias.config import HeadBiasConfig
from tda_bias.debias.protocol import Ranking
from tda_bias.debias.texts import TwinTexts
from tda_bias.heads.head_bias import head_bias
from tda_bias.models.attention import attention_layers
from tda_bias.models.language_model import padded, special_tokens_around
from tda_bias.models.load import LanguageModel, LoadedModel
from tda_bias.scores.texts import SplitTexts, split_triples
from tda_bias.twins import Twins
from tda_bias.types import HeadId, InputError

_ITEMS_PER_PASS = 6


def fold_orders(
    texts: TwinTexts,
    items: Int[np.ndarray, " item"],
    by: Sequence[Ranking],
    *,
    load: Callable[[], LoadedModel],
    seed: int = 0,
) -> dict[str, list[HeadId]]:
    """All heads in the order of each ranking that is computed from an untouched model.

    ``gates``, which is learned, and ``file``, which is given, are left to the caller. Others than
    those asked for may be there too, where they cost nothing more. Topology loads the model with
    hooks.

    Raises:
        InputError: as ``mediation``.
    """
    triples, twins = [texts.triples[i] for i in items], [texts.twins[i] for i in items]
    orders: dict[str, list[HeadId]] = {}
    if {"importance", "effect"} & set(by):
        ablator = Ablator(texts.model, triples, twins=twins if any(twins) else ())
        orders |= first_order_rankings(ablator)
    if {"evidence", "bottom", "published"} & set(by):
        pairs = tuple(pair for pair in zip(triples, twins, strict=True) if pair[1])
        config = HeadBiasConfig(n_permutations=99, seed=seed)
        run = head_bias(load(), triples, twins=Twins(pairs) if pairs else None, config=config)
        orders["evidence"] = ranked_heads(run, run.categories[0], by="evidence")
        orders["bottom"] = orders["evidence"][::-1]
        orders["published"] = ranked_heads(run, run.categories[0], by="metric")
    if "mediation" in by:
        mean = float(texts.answers(items.tolist()).gap.mean())
        orders["mediation"] = by_value(-np.sign(mean or 1.0) * mediation(texts, items))
    return orders


def mediation(texts: TwinTexts, items: Int[np.ndarray, " item"]) -> Float[np.ndarray, "layer head"]:
    """The change of an item's log-odds if one head wrote what it writes in the twin, nats.

    To first order (attribution patching): what the head writes in the twin minus what it writes in
    the triple, times the slope of the triple's log-odds. Only texts whose twin has as many tokens
    before and after the context's end count: there a place in one is the same place in the other.
    Each item's first twin is used; the mean is over the items whose tokens align, NaN for layers
    without attention.

    Raises:
        InputError: if no item's tokens align with its twin's.

    Source: Vig et al. 2020 (indirect effect); Nanda 2023 (its first-order estimate).
    """
    model, layers = texts.model, attention_layers(texts.model)
    with_twins = [int(i) for i in items if texts.twins[i]]
    own = split_triples(model, [texts.triples[i] for i in with_twins])
    twins = split_triples(model, [texts.twins[i][0] for i in with_twins])
    aligned = [pair for pair in zip(own, twins, strict=True) if _shape(pair[0]) == _shape(pair[1])]
    if not aligned:
        raise InputError(
            "mediation needs twins that have as many tokens as their triples; none has: choose "
            "heads in another way"
        )
    total = np.full((layers[-1].number + 1, layers[0].n_heads), np.nan)
    numbers = [layer.number for layer in layers]
    total[numbers] = 0
    for start in range(0, len(aligned), _ITEMS_PER_PASS):
        total[numbers] += _mediated(model, aligned[start : start + _ITEMS_PER_PASS])
    return total / len(aligned)


def _shape(split: SplitTexts) -> list[tuple[int, int]]:
    return [(len(ids), split.start) for ids in split.ids[:2]]


def _mediated(
    model: LanguageModel, pairs: Sequence[tuple[SplitTexts, SplitTexts]]
) -> Float[np.ndarray, "layer head"]:
    """The sum over some items; rows are s and a of every item, then of every twin."""
    leading = special_tokens_around(model.tokenizer)[0]
    texts = [(pair[side], role) for side in (0, 1) for pair in pairs for role in (0, 1)]
    ids, mask = padded([[*leading, *split.ids[role]] for split, role in texts])
    ids, mask = ids.to(model.device), mask.to(model.device)
    layers = attention_layers(model)
    hf_model: Any = model.hf_model
    with torch.enable_grad(), watched(hf_model, layers) as seen:
        logits = hf_model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        n = len(texts) // 2  # after them stand the twins
        log_probs = torch.log_softmax(logits[:n, :-1].float(), -1)
        chosen = log_probs.gather(-1, ids[:n, 1:, None])[..., 0]
        odds = chosen.new_zeros(())
        for row, (split, role) in enumerate(texts[:n]):
            first = len(leading) + split.start - 1
            last = len(leading) + len(split.ids[role]) - 1
            odds = odds + (1 - 2 * role) * chosen[row, first:last].sum()
        slopes = torch.autograd.grad(odds, seen[:-1])
    mediated = []
    for layer, z, slope in zip(layers, seen[:-1], slopes, strict=True):
        change = layer.by_head(z.detach()[n:] - z.detach()[:n]) * layer.by_head(slope[:n])
        real = mask[:n, :, None, None].to(change.device)
        mediated.append((change.double() * real).sum((0, 1, 3)).cpu().numpy())
    return np.stack(mediated)
