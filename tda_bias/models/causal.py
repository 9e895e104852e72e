"""Next-token log-probabilities of a causal model, over trees of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.batching import batches_of_similar_width, padded
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import refuse_undefined, token_log_probs
from tda_bias.models.token_trees import (
    Grid,
    Rows,
    TokenTree,
    below_each_other,
    separate_paths,
    whole_trees,
)
from tda_bias.progress import Progress

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
        tree: For each tree or path that is run, which tree it is; several may share a row.
        readings: For each of them, which of its tree's readings it makes.
    """

    inputs: dict[str, Any]
    places: Int[Tensor, " place"]
    place: Int[np.ndarray, " reading"]
    token: Int[np.ndarray, " reading"]
    tree: list[int]
    readings: list[Int[np.ndarray, " reading"]]

    @property
    def written(self) -> Int[Tensor, "row token"]:
        """The tokens at whose places logits are: the model's text, or its decoder's."""
        ids: Tensor = self.inputs.get("decoder_input_ids", self.inputs["input_ids"])
        return ids


class TreeReader:
    """Reads a causal model's next-token log-probabilities.

    Args:
        model: A causal language model.
        batch_size: Rows per forward pass at most; fewer where their logits would need more memory.
        packed: Whether a tree is run as one row; otherwise each of its paths is.
        why: How that was decided, for the record.

    Raises:
        InputError: if the model has no language-model head.
    """

    def __init__(
        self, model: LanguageModel, *, batch_size: int, packed: bool = False, why: str = ""
    ) -> None:
        model.require_language_head()
        self.packed = packed
        self.why = why
        self._model = model
        self._batch_size = batch_size

    def read(
        self,
        trees: Sequence[TokenTree],
        *,
        progress: Progress | None = None,
    ) -> list[Float[np.ndarray, " reading"]]:
        """Log-probabilities of every reading of every tree.

        Args:
            trees: The trees.
            progress: Called with the number of finished trees and of all.

        Raises:
            InputError: if a path is longer than the model's context, or a log-probability is NaN.
        """
        values = [np.full(len(tree.read_node), np.nan) for tree in trees]
        done, total = 0, sum(len(tree.read_node) for tree in trees)
        for tree_pass in self.passes(trees):
            for tree, which, read in zip(
                tree_pass.tree, tree_pass.readings, self.run(tree_pass), strict=True
            ):
                values[tree][which] = read
            done += len(tree_pass.place)
            if progress is not None:
                progress(done * len(trees) // total, len(trees))
        refuse_undefined(self._model, values)
        return values

    def passes(self, trees: Sequence[TokenTree]) -> Iterator[TreePass]:
        """The forward passes that together make every reading once.

        Raises:
            InputError: if a path is longer than the model's context.
        """
        return (self.pass_of(rows) for rows in self.plan(trees))

    def plan(self, trees: Sequence[TokenTree]) -> list[Rows]:
        """What stands in each pass; nothing is on the model's device yet.

        Raises:
            InputError: if a path is longer than the model's context.
        """
        self._model.check_length(max((int(tree.depth().max()) + 1 for tree in trees), default=0))
        whole = whole_trees(trees) if self.packed else separate_paths(trees)
        return [whole.only(chosen) for chosen in self._batches(whole.rows)]

    def run(self, tree_pass: TreePass) -> list[Float[np.ndarray, " reading"]]:
        """Log-probabilities of the readings of each tree or path of a pass."""
        values = token_log_probs(
            self._model.hf_model,
            tree_pass.inputs,
            tree_pass.places,
            tree_pass.place,
            tree_pass.token,
        )
        return np.split(values, np.cumsum([len(reading) for reading in tree_pass.readings])[:-1])

    def pass_of(self, part: Rows, grid: Grid | None = None) -> TreePass:
        """The pass that a part of a plan stands for, on the model's device.

        Args:
            part: What is run.
            grid: Where each of it stands, for packed trees; each in a row of its own if None.
        """
        device, rows = self._model.device, part.rows
        grid = grid or below_each_other(rows)
        if self.packed:
            given = self._tree_inputs(rows, grid)
        else:
            ids, mask = padded([row.tokens.tolist() for row in rows])
            given = {"input_ids": ids, "attention_mask": mask}
        places, which = grid.places(rows)
        return TreePass(
            inputs={name: value.to(device) for name, value in given.items()} | {"use_cache": False},
            places=torch.from_numpy(places).to(device),
            place=which,
            token=np.concatenate([row.read_token for row in rows]),
            tree=part.tree,
            readings=part.readings,
        )

    def _batches(self, rows: Sequence[TokenTree]) -> Iterator[list[int]]:
        most = _LOGITS // self._model.hf_model.config.get_text_config().vocab_size
        for batch in batches_of_similar_width([len(row) for row in rows], self._batch_size):
            start, logits = 0, 0
            for position, index in enumerate(batch):
                n_read = len(np.unique(rows[index].read_node))
                if logits and logits + n_read > most:
                    yield batch[start:position]
                    start, logits = position, 0
                logits += n_read
            yield batch[start:]

    def _tree_inputs(self, trees: Sequence[TokenTree], grid: Grid) -> dict[str, Tensor]:
        visible = np.repeat(np.eye(grid.width, dtype=bool)[None], grid.n_rows, axis=0)
        position = np.zeros((grid.n_rows, grid.width), dtype=np.int64)
        ids = np.zeros_like(position)
        for tree, row, column in zip(trees, grid.row, grid.column, strict=True):
            part = slice(column, column + len(tree))
            visible[row, part, part] = tree.visible()
            position[row, part] = tree.depth()
            ids[row, part] = tree.tokens
        dtype = self._model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype)
        mask.masked_fill_(torch.from_numpy(~visible), torch.finfo(dtype).min)
        return {
            "input_ids": torch.from_numpy(ids),
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
) -> TreeReader:
    """A reader whose passes hold as many texts, whether trees are rows or their paths are.

    Args:
        model: A causal language model.
        trees: What will be read, at least one.
        batch_size: Texts per forward pass.
        texts_per_tree: How many a tree stands for.
        share_prefix: ``auto``: run trees as rows where that is exact; ``never``.

    Raises:
        InputError: if the model has no language-model head or gives NaN.
    """
    if share_prefix == "never":
        return TreeReader(model, batch_size=batch_size, why="asked not to")
    packed, why = _packing(model, max(trees, key=len))
    rows = max(1, batch_size // texts_per_tree) if packed else batch_size
    return TreeReader(model, batch_size=rows, packed=packed, why=why)


def _packing(model: LanguageModel, tree: TokenTree) -> tuple[bool, str]:
    """Whether a tree as one row gives what its paths give, and how that was found out."""
    (separate,) = TreeReader(model, batch_size=len(tree)).read([tree])
    packed = TreeReader(model, batch_size=1, packed=True)
    try:
        together = np.concatenate(
            [np.concatenate(packed.run(tree_pass)) for tree_pass in packed.passes([tree])]
        )
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return False, f"the model does not take a tree as one row ({type(error).__name__})"
    difference = float(np.abs(together - separate).max())
    allowed = PACKING_TOLERANCE * (1.0 if model.dtype.itemsize > 2 else 100)
    return difference <= allowed, f"log-probabilities differ by {difference:.2g}"
