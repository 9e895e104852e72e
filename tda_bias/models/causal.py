"""Next-token log-probabilities of a causal model, over trees of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.batching import batches_of_similar_width, padded
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import log_probs, logits_at
from tda_bias.models.token_trees import Rows, TokenTree, read_places, separate_paths

if TYPE_CHECKING:
    pass

# Log-probabilities of a packed tree must equal those of its separate paths to this; single
# precision differs by some 1e-5, a token that sees too much or too little by far more.
PACKING_TOLERANCE = 1e-3


# Logits held at once: 64 million are 256 MB in single precision.
_LOGITS = 64_000_000


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
