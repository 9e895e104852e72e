"""Single heads of a model: the slices of weights that they are, in files, from runs, and drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from tda_bias.ablation.removal import by_layer_of
from tda_bias.models.attention import (
    attention_layers,
    attention_part,
    attention_weights,
    is_read,
    is_turned,
)
from tda_bias.models.language_model import LanguageModel
from tda_bias.models.load import auto_class, read_config
from tda_bias.stats.seeds import generator
from tda_bias.types import HeadId, InputError, RankBy

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel

    from tda_bias.heads.result import HeadBias

Part = Literal["q", "k", "v", "o"]


@dataclass(frozen=True)
class Slice:
    """A range of one parameter along one axis: rows are axis 0.

    ``shared_with`` are other heads of the layer that use the same range (grouped keys and values).
    """

    parameter: str
    part: Part
    axis: int
    start: int
    stop: int
    shared_with: tuple[int, ...] = ()

    def of(self, tensor: Tensor) -> Tensor:
        """The view of a tensor (parameter, gradient, mask) that this is."""
        return tensor.narrow(self.axis, self.start, self.stop - self.start)


def head_slices(hf_model: PreTrainedModel, head: HeadId) -> list[Slice]:
    """Slices of a head's weights: rows of q, k, v with their biases, columns of o.

    The bias of the output projection belongs to no head. The model has no hooks.

    Raises:
        InputError: if the model has no such head, or its attention is laid out in a way not known.
    """
    config = hf_model.config.get_text_config()
    n_heads = int(config.num_attention_heads)
    n_groups = int(getattr(config, "num_key_value_heads", None) or n_heads)
    named = _attention_parameters(hf_model)
    if head.layer not in named or not 0 <= head.head < n_heads:
        known = f"layers 0 to {max(named)} with heads 0 to {n_heads - 1}" if named else "none known"
        raise InputError(f"{head} does not exist in a {type(hf_model).__name__}: {known}")
    parameters = named[head.layer]
    slices: list[Slice] = []
    if ("o", "weight") in parameters:
        out = parameters["o", "weight"]
        axis = 0 if _is_turned(hf_model, out) else 1
        size = hf_model.get_parameter(out).shape[axis] // n_heads  # of a head's values
        slices.append(_slice(out, "o", axis, head.head, size))
        for (part, kind), name in sorted(parameters.items()):
            if part != "o":
                axis = 1 if kind == "weight" and _is_turned(hf_model, name) else 0
                total = hf_model.get_parameter(name).shape[axis]
                if part == "qkv":
                    slices += _of_queries_keys_values(hf_model, name, axis, total, size, head.head)
                elif part == "kv":
                    slices += _of_keys_values(name, total // n_heads, size, head.head)
                else:
                    rows = n_heads if part == "q" else n_groups
                    shared = _sharing(head.head, n_heads // rows)
                    place = head.head * rows // n_heads
                    slices.append(_slice(name, part, axis, place, total // rows, shared))
    sizes = {piece.stop - piece.start for piece in slices if piece.part in ("v", "o")}
    if {piece.part for piece in slices} != {"q", "k", "v", "o"} or len(sizes) != 1:
        raise InputError(
            f"a {type(hf_model).__name__} keeps its attention in a form that this version cannot "
            f"cut into single heads ({attention_weights(hf_model)}); other commands read it"
        )
    return slices


def _slice(
    name: str, part: Part, axis: int, place: int, size: int, shared: tuple[int, ...] = ()
) -> Slice:
    """The range at a place, where all have one size."""
    return Slice(name, part, axis, place * size, (place + 1) * size, shared)


def _sharing(head: int, per_group: int) -> tuple[int, ...]:
    """The other heads that use the same keys and values."""
    first = head // per_group * per_group
    return tuple(other for other in range(first, first + per_group) if other != head)


def _is_turned(hf_model: PreTrainedModel, parameter: str) -> bool:
    return is_turned(hf_model.get_submodule(parameter.rpartition(".")[0]))


def _of_queries_keys_values(
    hf_model: PreTrainedModel, name: str, axis: int, total: int, size: int, head: int
) -> list[Slice]:
    """A head's slices of one projection to queries, keys and values; none if its order is unknown.

    GPT-2, ModernBERT, Phi-3 and DBRX have all queries, then keys, then values. NeoX, BLOOM and
    Falcon go group by group: the queries that share a key and a value, the key, the value.
    """
    n_heads = int(hf_model.config.get_text_config().num_attention_heads)
    n_groups, odd = divmod(total // size - n_heads, 2)
    fits = total % size == 0 and not odd and n_groups > 0 and n_heads % n_groups == 0
    # CodeGen has an order of its own, for the devices that it was trained on.
    if not fits or hf_model.config.model_type == "codegen":
        return []
    per_group = n_heads // n_groups
    group = head // per_group
    if ".query_key_value." in name or hf_model.config.model_type == "gpt_bigcode":
        end = (group + 1) * (per_group + 2)
        places = (end - per_group - 2 + head % per_group, end - 2, end - 1)
    else:
        places = (head, n_heads + group, n_heads + n_groups + group)
    labels: tuple[Part, ...] = ("q", "k", "v")
    shared = _sharing(head, per_group)
    return [
        _slice(name, part, axis, place, size, () if part == "q" else shared)
        for part, place in zip(labels, places, strict=True)
    ]


def _of_keys_values(name: str, both: int, size: int, head: int) -> list[Slice]:
    """A head's keys and values where both come from what all heads share (DeepSeek)."""
    start, stop = head * both, (head + 1) * both
    return [Slice(name, "k", 0, start, stop - size), Slice(name, "v", 0, stop - size, stop)]


def _attention_parameters(hf_model: PreTrainedModel) -> dict[int, dict[tuple[Any, str], str]]:
    """Names of the parameters of self-attention, by layer, and by part and kind."""
    by_layer: dict[int, dict[tuple[Any, str], str]] = {}
    for name, _ in hf_model.named_parameters():
        module, _, kind = name.rpartition(".")
        part = attention_part(module)
        if part is not None and kind in ("weight", "bias") and is_read(part, hf_model):
            by_layer.setdefault(part.layer, {})[part.part, kind] = name
    return by_layer


def refuse_untrainable(name: str) -> None:
    """Refuse a model whose heads cannot be trained, by its configuration: no weight is loaded.

    A model whose configuration cannot be read is left to the loader, which says why.
    """
    try:
        config = read_config(name)
        with torch.device("meta"):
            skeleton = auto_class(config, "language").from_config(config)
    except Exception:  # of many kinds; the loader turns them into one line
        return
    layers = attention_layers(LanguageModel(skeleton, None, name))
    head_slices(skeleton, HeadId(layers[0].number, 0))


# -- files -----------------------------------------------------------------------------------------


def export_record(
    hf_model: PreTrainedModel,
    chosen: Sequence[Mapping[str, Any]],
    *,
    model: Mapping[str, Any],
    rule: Mapping[str, Any],
) -> dict[str, Any]:
    """Content of the file that ``tdabias edit --as slices`` writes.

    Of each chosen head ``layer head`` and what is known of it, the record of the model (without
    hooks), and how the heads were chosen.
    """
    heads = []
    for row in chosen:
        head = HeadId(int(row["layer"]), int(row["head"]))
        slices = [asdict(piece) for piece in head_slices(hf_model, head)]
        heads.append({"name": str(head), **row, "slices": slices})
    about = {key: model.get(key) for key in ("name", "revision", "architecture", "weights")}
    return {"format": "tdabias heads 1", "model": about, "rule": dict(rule), "heads": heads}


def heads_of_file(path: Path) -> tuple[list[HeadId], dict[str, Any]]:
    """The heads of a file that ``tdabias edit --as slices`` wrote, and what it says of their model.

    Raises:
        InputError: if it is none, or holds no head.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != "tdabias heads 1":
            raise KeyError("format")
        heads = [HeadId(int(row["layer"]), int(row["head"])) for row in record["heads"]]
    except OSError as error:
        raise InputError(f"`heads` {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"`heads` {path} is no file that `tdabias edit --as slices` wrote"
        ) from None
    if not heads:
        raise InputError(f"`heads` {path} holds no head")
    about = record.get("model")
    return heads, about if isinstance(about, dict) else {}


# -- heads of a run, and random ones ---------------------------------------------------------------


def ranked_heads(run: HeadBias, category: str, *, by: RankBy | None = None) -> list[HeadId]:
    """All heads of a run in the order of a map; the run's own ranking if None."""
    rows = run.top(None, category=category, by=by)
    return [HeadId(*map(int, place)) for place in rows[["layer", "head"]].to_numpy()]


def chosen_heads(
    run: HeadBias,
    category: str,
    *,
    by: RankBy,
    top: int,
    survivors: bool = False,
    random_seed: int | None = None,
) -> pd.DataFrame:
    """The top heads of a run by a map, or those that survive correction, and what it knows of them.

    With ``random_seed`` as many other heads of the same layers, drawn with it: a control.
    """
    if survivors:
        chosen = run.survivors(category=category, by=by)
        if chosen.empty:
            raise InputError(
                "no head of the run survives correction; without --survivors the top of the "
                "ranking is taken, which is then a ranking of noise"
            )
    else:
        chosen = run.top(top, category=category, by=by)
    if random_seed is None:
        return chosen
    places = chosen[["layer", "head"]].to_numpy(int).tolist()
    n_heads = run.category_map(category).shape[1]
    wanted = [HeadId(layer, head) for layer, head in places]
    (drawn,) = random_sets(wanted, n_heads, 1, rng=generator(random_seed))
    every = run.top(None, category=category, by=by).set_index(["layer", "head"])
    return every.loc[[(head.layer, head.head) for head in drawn]].reset_index()


def n_possible_sets(heads: Sequence[HeadId], n_heads: int, *, scarce: bool = False) -> int:
    """Number of different sets that ``random_sets`` draws from."""
    by_layer = by_layer_of(heads)
    others = _others(by_layer, n_heads, scarce)
    return math.prod(math.comb(len(others[n]), len(chosen)) for n, chosen in by_layer.items())


def _others(
    by_layer: Mapping[int, Collection[int]], n_heads: int, scarce: bool
) -> dict[int, list[HeadId]]:
    """Of each layer the heads that are not chosen; all of its heads where these are too few."""
    others = {}
    for layer, chosen in by_layer.items():
        too_few = scarce and n_heads - len(chosen) < len(chosen)
        others[layer] = [HeadId(layer, h) for h in range(n_heads) if too_few or h not in chosen]
    return others


def random_sets(
    heads: Sequence[HeadId],
    n_heads: int,
    n: int,
    *,
    rng: np.random.Generator,
    scarce: bool = False,
) -> list[tuple[HeadId, ...]]:
    """Different sets of as many other heads of the same layers, to compare a chosen set with.

    All of them where there are fewer than ``n``. With ``scarce`` a layer that has too few other
    heads gives its chosen ones too.

    Raises:
        InputError: if a layer has too few other heads.
    """
    by_layer = by_layer_of(heads)
    others = _others(by_layer, n_heads, scarce)
    for layer, theirs in by_layer.items():
        if len(others[layer]) < len(theirs):
            raise InputError(
                f"layer {layer} has {len(theirs)} chosen heads and {len(others[layer])} others, so "
                "there is no random set of the same layers; choose fewer with --top"
            )
    possible = n_possible_sets(heads, n_heads, scarce=scarce)
    if possible <= 2 * n:
        per_layer = [combinations(others[layer], len(by_layer[layer])) for layer in by_layer]
        every = [tuple(chain.from_iterable(parts)) for parts in product(*per_layer)]
        return [every[i] for i in rng.permutation(possible)[:n]]
    drawn: dict[tuple[HeadId, ...], None] = {}
    while len(drawn) < n:
        chosen = [
            others[layer][place]
            for layer, theirs in by_layer.items()
            for place in sorted(rng.choice(len(others[layer]), size=len(theirs), replace=False))
        ]
        drawn[tuple(chosen)] = None
    return list(drawn)
