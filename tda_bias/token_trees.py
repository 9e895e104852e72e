"""Next-token log-probabilities over token sequences that share beginnings.

Prompts that differ in one word, and the words that may follow them, share most of their tokens.
Such sequences are a tree of tokens, and a causal model's prediction at a node depends on the path
from the root to it alone. Where a model allows it exactly, a whole tree is run as one row, every
token once, blind to all but its own path; else every path is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.batches import batches_of_similar_width, padded
from tda_bias.models import LanguageModel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Log-probabilities of a packed tree must equal those of its separate paths to this; single
# precision differs by some 1e-5, a token that sees too much or too little by far more.
PACKING_TOLERANCE = 1e-3
# Logits held at once: 64 million are 256 MB in single precision.
_LOGITS = 64_000_000
_CACHED_ROWS = 16


@dataclass(frozen=True)
class TokenTree:
    """Token sequences with common beginnings, and what to read from them.

    Attributes:
        tokens: Token ids; a node comes after its parent.
        parent: Index of each node's parent; -1 for a first token.
        read_node: Nodes after which something is read, one per reading.
        read_token: The token whose probability is read there.
    """

    tokens: Int[np.ndarray, " node"]
    parent: Int[np.ndarray, " node"]
    read_node: Int[np.ndarray, " reading"]
    read_token: Int[np.ndarray, " reading"]

    def __len__(self) -> int:
        return len(self.tokens)

    def depth(self) -> Int[np.ndarray, " node"]:
        """Position of each node in its path, from 0."""
        depth = np.zeros(len(self), dtype=np.int64)
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                depth[node] = depth[parent] + 1
        return depth

    def visible(self) -> np.ndarray:
        """``(node, node)``: which nodes each node sees, its path and itself."""
        seen = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                seen[node] |= seen[parent]
        return seen

    def paths(self) -> tuple[list[TokenTree], list[Int[np.ndarray, " reading"]]]:
        """The tree as chains, one per leaf that something is read on the way to.

        Returns:
            The chains, and for each the indices of the readings it takes over; together they hold
            every reading once.
        """
        leaf = np.arange(len(self))
        for node in range(len(self) - 1, -1, -1):
            if self.parent[node] >= 0:
                leaf[self.parent[node]] = leaf[node]
        depth = self.depth()
        chains, readings = [], []
        for end in np.unique(leaf):
            taken = np.flatnonzero(leaf[self.read_node] == end)
            if not len(taken):
                continue
            path = path_to(int(end), self.parent)
            chains.append(
                TokenTree(
                    tokens=self.tokens[path],
                    parent=np.arange(len(path)) - 1,
                    read_node=depth[self.read_node[taken]],
                    read_token=self.read_token[taken],
                )
            )
            readings.append(taken)
        return chains, readings


def path_to(node: int, parent: Int[np.ndarray, " node"]) -> list[int]:
    """The nodes from the first token to a node, both included."""
    path = [node]
    while parent[path[-1]] >= 0:
        path.append(int(parent[path[-1]]))
    return path[::-1]


@dataclass(frozen=True)
class Rows:
    """Trees or paths of trees that are rows of forward passes.

    Attributes:
        rows: What stands in each row.
        tree: Index of the tree each belongs to.
        readings: For each row, which of its tree's readings it makes.
    """

    rows: list[TokenTree]
    tree: list[int]
    readings: list[Int[np.ndarray, " reading"]]


def separate_paths(trees: Sequence[TokenTree]) -> Rows:
    """Every path of every tree as a row of its own."""
    found = Rows([], [], [])
    for number, tree in enumerate(trees):
        chains, taken = tree.paths()
        found.rows.extend(chains)
        found.readings.extend(taken)
        found.tree.extend([number] * len(chains))
    return found


def read_places(
    rows: Sequence[TokenTree], width: int
) -> tuple[Int[np.ndarray, " place"], Int[np.ndarray, " reading"]]:
    """The distinct places read in rows of a width, and which of them each reading is."""
    flat = [row.read_node + index * width for index, row in enumerate(rows)]
    places, which = np.unique(np.concatenate(flat), return_inverse=True)
    return places, which


def merge(sequences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences as nodes of one tree.

    Returns:
        Tokens and parents of the nodes, and the last node of each sequence.
    """
    index: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    ends = []
    for sequence in sequences:
        node = -1
        for token in sequence:
            key = (node, token)
            if key not in index:
                index[key] = len(tokens)
                tokens.append(token)
                parents.append(node)
            node = index[key]
        ends.append(node)
    return np.array(tokens, dtype=np.int64), np.array(parents), np.array(ends)


def special_tokens_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Special tokens that a tokenizer puts in front of a text and behind it; none for many."""
    bare = tokenizer("that", add_special_tokens=False)["input_ids"]
    full = tokenizer("that")["input_ids"]
    start = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
    return list(full[:start]), list(full[start + len(bare) :])


@dataclass(frozen=True)
class TreePass:
    """One forward pass over trees or paths of trees.

    Attributes:
        inputs: What goes into the model.
        places: ``(row, token)`` places whose logits are needed, as indices row by row.
        place: For each reading, row after row, which of them.
        token: And the token read there.
        tree: The tree of each row.
        readings: For each row, which of its tree's readings it makes.
    """

    inputs: dict[str, Any]
    places: Int[Tensor, " place"]
    place: Int[np.ndarray, " reading"]
    token: Int[np.ndarray, " reading"]
    tree: list[int]
    readings: list[Int[np.ndarray, " reading"]]


class TreeReader:
    """Reads a causal model's next-token log-probabilities.

    Args:
        model: A causal language model.
        batch_size: Trees per forward pass at most; fewer where their logits would need more memory.

    Raises:
        InputError: if the model has no language-model head.
    """

    def __init__(self, model: LanguageModel, *, batch_size: int) -> None:
        model.require_language_head()
        self._model = model
        self._batch_size = batch_size

    def packing(self, trees: Sequence[TokenTree]) -> tuple[bool, str]:
        """Whether trees can be run as one row each, tried on the widest one.

        Returns:
            The answer, and the measured difference or the model's objection.
        """
        widest = max(trees, key=len)
        separate = self.read([widest], packed=False)[0]
        try:
            together = self.read([widest], packed=True)[0]
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return False, f"the model does not take a tree as one row ({type(error).__name__})"
        difference = float(np.abs(together - separate).max())
        allowed = difference <= PACKING_TOLERANCE * (1.0 if self._model.dtype.itemsize > 2 else 100)
        return allowed, f"log-probabilities differ by {difference:.2g}"

    def read(
        self,
        trees: Sequence[TokenTree],
        *,
        packed: bool,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Float[np.ndarray, " reading"]]:
        """Log-probabilities of every reading of every tree.

        Args:
            trees: The trees.
            packed: Run each as one row; else every path by itself.
            progress: Called with the number of finished trees and of all.

        Raises:
            InputError: if a path is longer than the model's context.
        """
        found = [np.full(len(tree.read_node), np.nan) for tree in trees]
        done = 0
        for one in self.passes(trees, packed=packed):
            for tree, which, values in zip(one.tree, one.readings, self.run(one), strict=True):
                found[tree][which] = values
            done += sum(map(len, one.readings))
            if progress is not None:
                total = sum(len(tree.read_node) for tree in trees)
                progress(done * len(trees) // total, len(trees))
        return found

    def passes(self, trees: Sequence[TokenTree], *, packed: bool) -> Iterator[TreePass]:
        """The forward passes that together make every reading once.

        Raises:
            InputError: if a path is longer than the model's context.
        """
        self._model.check_length(max((int(tree.depth().max()) + 1 for tree in trees), default=0))
        if packed:
            every = [np.arange(len(tree.read_node)) for tree in trees]
            whole = Rows(list(trees), list(range(len(trees))), every)
        else:
            whole = separate_paths(trees)
        for chosen in self._batches(whole.rows):
            part = Rows(
                [whole.rows[i] for i in chosen],
                [whole.tree[i] for i in chosen],
                [whole.readings[i] for i in chosen],
            )
            yield self._pass(part, packed=packed)

    def run(self, one: TreePass) -> list[Float[np.ndarray, " reading"]]:
        """Log-probabilities of the readings of each row of a pass."""
        logits = logits_at(self._model.hf_model, one.inputs, one.places)
        values = log_probs(logits, one.place, one.token)
        return np.split(values, np.cumsum([len(own) for own in one.readings])[:-1])

    def _batches(self, rows: Sequence[TokenTree]) -> Iterator[list[int]]:
        most = _LOGITS // self._model.hf_model.config.get_text_config().vocab_size
        for batch in batches_of_similar_width([len(row) for row in rows], self._batch_size):
            start, logits = 0, 0
            for position, index in enumerate(batch):
                own = len(np.unique(rows[index].read_node))
                if logits and logits + own > most:
                    yield batch[start:position]
                    start, logits = position, 0
                logits += own
            yield batch[start:]

    def _pass(self, part: Rows, *, packed: bool) -> TreePass:
        device, rows = self._model.device, part.rows
        ids, mask = padded([row.tokens.tolist() for row in rows])
        width = ids.shape[1]
        given = self._tree_inputs(rows, width) if packed else {"attention_mask": mask}
        given["input_ids"] = ids
        places, which = read_places(rows, width)
        return TreePass(
            inputs={name: value.to(device) for name, value in given.items()} | {"use_cache": False},
            places=torch.from_numpy(places).to(device),
            place=which,
            token=np.concatenate([row.read_token for row in rows]),
            tree=part.tree,
            readings=part.readings,
        )

    def _tree_inputs(self, rows: Sequence[TokenTree], width: int) -> dict[str, Tensor]:
        visible = np.repeat(np.eye(width, dtype=bool)[None], len(rows), axis=0)
        position = np.zeros((len(rows), width), dtype=np.int64)
        for index, row in enumerate(rows):
            visible[index, : len(row), : len(row)] = row.visible()
            position[index, : len(row)] = row.depth()
        dtype = self._model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype)
        mask.masked_fill_(torch.from_numpy(~visible), torch.finfo(dtype).min)
        return {
            "attention_mask": mask.unsqueeze(1),
            "position_ids": torch.from_numpy(position),
        }


def reader_of(
    model: LanguageModel,
    trees: Sequence[TokenTree],
    *,
    batch_size: int,
    texts_per_tree: int,
    share_prefix: str = "auto",
) -> tuple[TreeReader, bool, str]:
    """A reader whose passes hold as many texts, whether trees are rows or their paths are.

    Args:
        model: A causal language model.
        trees: What will be read, at least one.
        batch_size: Texts per forward pass.
        texts_per_tree: How many a tree stands for.
        share_prefix: ``auto``: run trees as rows where that is exact; ``never``.

    Returns:
        The reader, whether to run trees as rows, and why.
    """
    together = TreeReader(model, batch_size=max(1, batch_size // texts_per_tree))
    packed, why = together.packing(trees) if share_prefix == "auto" else (False, "asked not to")
    return (together if packed else TreeReader(model, batch_size=batch_size)), packed, why


def logits_at(
    hf_model: Any,
    inputs: Mapping[str, Any],
    places: Int[Tensor, " place"],
    *,
    gradients: bool = False,
) -> Float[Tensor, "place vocabulary"]:
    """Logits at chosen places only; those of all others are never computed.

    Args:
        hf_model: A language model with output embeddings.
        inputs: What goes into it, on the device of ``places``.
        places: Indices into the batch's (row, token) places, row by row.
        gradients: Keep what a backward pass needs.

    Returns:
        In single precision at least.
    """
    with torch.inference_mode(not gradients), _only(hf_model.get_output_embeddings(), places):
        logits: Tensor = hf_model(**inputs).logits[0]
    return logits.float() if logits.dtype.itemsize < 4 else logits


def log_probs(
    logits: Float[Tensor, "row vocabulary"],
    row: Int[np.ndarray, " reading"],
    token: Int[np.ndarray, " reading"],
) -> Float[np.ndarray, " reading"]:
    """Log-probabilities of tokens in the distributions that rows of logits stand for."""
    # A few rows at a time stay in the processor's cache: several times faster on a CPU.
    parts = torch.split(logits, _CACHED_ROWS)
    normaliser = torch.cat([torch.logsumexp(part, dim=-1) for part in parts])
    which = torch.from_numpy(row).to(logits.device)
    chosen = logits[which, torch.from_numpy(token).to(logits.device)]
    return np.asarray((chosen - normaliser[which]).double().cpu().numpy())


@contextmanager
def _only(head: torch.nn.Module, places: Tensor) -> Iterator[None]:
    """Let the output embeddings see chosen places only, as one row."""

    def choose(_: torch.nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden, *rest = arguments
        return (hidden.flatten(0, 1)[places].unsqueeze(0), *rest)

    handle = head.register_forward_pre_hook(choose)
    try:
        yield
    finally:
        handle.remove()
