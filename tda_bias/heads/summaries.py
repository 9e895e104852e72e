"""What is read of a pattern is a choice: the names of the summaries, and what takes patterns in.

Everything after the inner products of a group's texts is the same for all of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from math import comb
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.texts import TokenizedGroup
from tda_bias.heads.token_places import PlacesAsked, TokenPlaces
from tda_bias.store.hashes import text_hash
from tda_bias.topology.flag import MAX_TOKENS, FlagLandscapes, seconds_of_a_distance
from tda_bias.topology.gram import GroupSampler
from tda_bias.topology.vectors import DistanceSampler, Sampler, Vectors, VectorSampler
from tda_bias.types import Attention, HeadId, InputError


@dataclass(frozen=True)
class SummaryKind:
    """A summary of patterns.

    Attributes:
        said: What stands after the name of a ranking; nothing of the usual one.
        dims: Name of each dimension.
        places: Whether it reads where the target and the continuation stand.
        most_tokens: Texts of more are refused; None for no limit.
    """

    said: str
    dims: tuple[str, ...]
    places: PlacesAsked = "none"
    most_tokens: int | None = None


KINDS = {
    "graph": SummaryKind("", ("births", "deaths")),
    "graph-exact": SummaryKind(", exact distances", ("births", "deaths")),
    "flag": SummaryKind(", flag complexes", ("components", "cycles"), most_tokens=MAX_TOKENS),
    "flag-wasserstein": SummaryKind(
        ", Wasserstein distances of flag complexes",
        ("components", "cycles"),
        most_tokens=MAX_TOKENS,
    ),
    "attention": SummaryKind(
        ", attention to target and context",
        ("attention to the target", "attention to the context"),
        places="needed",
    ),
}


def kind_of(summary: str) -> SummaryKind:
    """The kind of a summary by its name; a function of the user's is read in one dimension."""
    return KINDS.get(summary) or SummaryKind(f", {summary}", ("values",), places="read")


def sampler_of(
    summary: str,
    n_tokens: Int[np.ndarray, " text"],
    places: Sequence[TokenPlaces],
    layers: Sequence[int],
    n_heads: int,
    *,
    attention: Attention,
    heads: Sequence[str] = (),
) -> Sampler:
    """What takes in the patterns of a group's texts.

    Args:
        summary: Its name.
        n_tokens: Tokens of every text.
        places: Where their words stand; empty for a summary that does not read it.
        layers: The model's numbers of its layers with attention.
        n_heads: Heads of a layer.
        attention: Direction of attention.
        heads: The heads to compare, where not all are.

    Raises:
        InputError: if a head that is asked for does not exist.
    """
    n_layers = len(layers)
    match summary:
        case "graph" | "graph-exact":
            return GroupSampler(n_tokens, n_layers=n_layers, attention=attention, summary=summary)
        case "flag-wasserstein":
            rows = rows_of(heads, layers, n_heads)
            return DistanceSampler(len(n_tokens), n_layers=n_layers, attention=attention, rows=rows)
        case "flag":
            read: Vectors = FlagLandscapes(attention)
        case "attention":
            read = AttentionPaid(places)
        case _:
            read = OwnSummary(summary, places)
    return VectorSampler(len(n_tokens), n_layers=n_layers, read=read)


def rows_of(heads: Sequence[str], layers: Sequence[int], n_heads: int) -> list[int]:
    """Places of heads among those of all layers.

    Raises:
        InputError: if one does not exist.
    """
    rows = []
    for head in map(HeadId.of, heads):
        if head.layer not in layers or head.head >= n_heads:
            raise InputError(
                f"`heads` {head} does not exist: the model has heads 0 to {n_heads - 1} in the "
                f"layers {', '.join(map(str, layers))}"
            )
        rows.append(list(layers).index(head.layer) * n_heads + head.head)
    return rows


def refuse_unfit_texts(
    groups: Sequence[TokenizedGroup], config: HeadBiasConfig, *, n_heads: int
) -> None:
    """Make sure, before the model runs, that a summary can be read of these texts.

    Raises:
        InputError: if a text is too long for it, or if distances of all heads are asked for, which
            would take too long.
    """
    kind = kind_of(config.summary)
    longest = max(int(group.lengths.max()) for group in groups)
    if kind.most_tokens is not None and longest > kind.most_tokens:
        raise InputError(
            f"`summary` {config.summary} takes texts of at most {kind.most_tokens} tokens; the "
            f"longest has {longest}; use --summary graph, or leave long texts out"
        )
    if config.summary == "flag-wasserstein" and not config.heads:
        minutes = minutes_of_distances(groups)
        raise InputError(
            f"`summary` flag-wasserstein takes about {minutes:.2g} minutes for a head on these "
            f"texts, and would take {minutes * n_heads:,.0f} for all {n_heads}: name the heads to "
            "compare, as --heads L5H3,L7H0"
        )


def minutes_of_distances(groups: Sequence[TokenizedGroup]) -> float:
    """What the distances of one head on all groups take on this machine, in minutes.

    A text of n tokens has n components, and about as many cycles at most.
    """
    pairs = sum(comb(len(group.lengths), 2) for group in groups)
    points = float(np.mean(np.concatenate([group.lengths for group in groups])))
    return 2 * pairs * seconds_of_a_distance(round(points)) / 60


# -- attention that is paid ------------------------------------------------------------------------


class AttentionPaid:
    """The plain rival: attention that the continuation pays, to the target and to its context.

    Dimension 0 is of the target's tokens, 1 of the context's other ones. Of each: the mean and the
    largest share that a token of the continuation pays to them together, and the entropy in nats of
    how the mean is spread over them.
    """

    dims = KINDS["attention"].dims
    scaled = True

    def __init__(self, places: Sequence[TokenPlaces]) -> None:
        self._places = places

    def __call__(
        self, patterns: Float[Tensor, "text head query key"], texts: Sequence[int]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean, maximum and entropy ``(text, head, 3)`` and the mean ``(text, head)``."""
        places = [self._places[text] for text in texts]
        paying = _mask([of_text.continuation for of_text in places], patterns)
        read = []
        for paid in (
            [of_text.target for of_text in places],
            [of_text.context & ~of_text.target for of_text in places],
        ):
            keys = _mask(paid, patterns)
            share = torch.einsum("thqk,tk->thq", patterns, keys)
            largest = share.masked_fill(paying[:, None] == 0, -torch.inf).amax(2)
            mean = torch.einsum("thqk,tq->thk", patterns, paying) * keys[:, None]
            mean = mean / paying.sum(1)[:, None, None]
            total = mean.sum(2)
            spread = mean / torch.where(total > 0, total, 1.0)[..., None]
            values = torch.stack([total, largest, torch.special.entr(spread).sum(2)], dim=2)
            read.append((values.cpu().numpy(), total.double().cpu().numpy()))
        return read


def _mask(tokens: Sequence[np.ndarray], like: Tensor) -> Float[Tensor, "text token"]:
    return torch.from_numpy(np.stack(tokens)).to(like)


# -- a function of the user's ----------------------------------------------------------------------

# Patterns (text, head, query, key) and the places of every text to values (text, head, value).
Function = Callable[[np.ndarray, Sequence[TokenPlaces]], Any]


class OwnSummary:
    """A function of the user's own, as ``module:function``.

    It gets patterns ``(text, head, query, key)`` of texts of one length, the heads of all layers
    one after the other, and a ``TokenPlaces`` for every text; it gives ``(text, head, value)``, as
    many values of every text.
    """

    dims = ("values",)
    scaled = False

    def __init__(self, name: str, places: Sequence[TokenPlaces]) -> None:
        self._name, self._places = name, places
        self._function = own_function(name)
        self._n_values: int | None = None

    def __call__(
        self, patterns: Float[Tensor, "text head query key"], texts: Sequence[int]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values ``(text, head, value)`` and their sum ``(text, head)``.

        Raises:
            InputError: if the function fails, or gives NaN or another shape.
        """
        places = [self._places[text] for text in texts]
        try:
            values = np.asarray(self._function(patterns.float().cpu().numpy(), places), dtype=float)
        except Exception as error:
            said = str(error).strip().split("\n")[0]
            raise InputError(
                f"`summary` {self._name} failed on patterns of the shape {tuple(patterns.shape)}: "
                f"{type(error).__name__}: {said}"
            ) from error
        expected = tuple(patterns.shape[:2])
        if values.ndim != 3 or values.shape[:2] != expected or not values.shape[2]:
            raise InputError(
                f"`summary` {self._name} must give values of the shape (text, head, value), here "
                f"{expected} and at least one value; got {values.shape}"
            )
        if not np.isfinite(values).all():
            raise InputError(f"`summary` {self._name} gives NaN or infinite values")
        self._n_values = self._n_values or values.shape[2]
        if values.shape[2] != self._n_values:
            raise InputError(
                f"`summary` {self._name} must give as many values of every text; got "
                f"{self._n_values} and {values.shape[2]}"
            )
        return [(values, values.sum(2))]


def own_function(name: str) -> Function:
    """The function of ``module:function``; modules of the working folder are found too.

    Raises:
        InputError: if there is no such module or function.
    """
    module_name, _, function_name = name.partition(":")
    with _working_folder():
        try:
            module = import_module(module_name)
        except ImportError as error:
            raise InputError(
                f"`summary` {name}: the module {module_name} cannot be imported ({error}); it must "
                "be installed, or a file of the folder you are in"
            ) from error
        except Exception as error:
            raise InputError(
                f"`summary` {name}: {module_name} fails when it is imported: "
                f"{type(error).__name__}: {error}"
            ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"`summary` {name}: {module_name} has no function {function_name}")
    return cast(Function, function)


@contextmanager
def _working_folder() -> Iterator[None]:
    """Modules of the working folder first, as ``python -m`` has it."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    invalidate_caches()  # the file may be younger than the last look into the folder
    try:
        yield
    finally:
        sys.path.remove(folder)


def source_hash(summary: str) -> str | None:
    """Hash of the module's source of a user's summary, None of the others: it makes the numbers.

    Raises:
        InputError: as ``own_function``.
    """
    if ":" not in summary:
        return None
    own_function(summary)
    file = getattr(sys.modules[summary.partition(":")[0]], "__file__", None)
    return text_hash(Path(file).read_bytes() if file else summary)
