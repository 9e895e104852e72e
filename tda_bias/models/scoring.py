"""Log-probabilities of tokens, for every kind of language model.

A ``Scorer`` runs trees of tokens, which ``requests`` makes of texts: whole trees as rows where a
causal model gives the same numbers as path by path, else every path as a row; the rows of masked
models; what a decoder writes after what its encoder reads; and for permutation models (XLNet) a
hidden place after each path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.language_model import LanguageModel, batches_of_similar_width, padded
from tda_bias.models.logits import refuse_undefined, token_log_probs
from tda_bias.models.requests import Request, as_trees, masked_row
from tda_bias.models.token_trees import (
    Grid,
    Rows,
    TokenTree,
    one_per_row,
    path_to,
    separate_paths,
    whole_trees,
)
from tda_bias.types import InputError, Progress

# Log-probabilities in a row with others, or in a batch, must equal those of a text alone to this;
# single precision differs by some 1e-5, a token that sees too much or too little by far more.
_TOLERANCE = 1e-3
# Logits held at once: 64 million are 256 MB in single precision.
LOGITS = 64_000_000

# The log-probabilities of a request's tokens, text by text.
TokenScores = tuple[Float[np.ndarray, " token"], ...]


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
        name = "decoder_input_ids" if "decoder_input_ids" in self.inputs else "input_ids"
        ids: Tensor = self.inputs[name]
        return ids


class Scorer:
    """Reads log-probabilities of tokens.

    A pass holds as many texts whether trees are rows or their paths are.

    Args:
        model: A causal, masked, permutation or sequence-to-sequence language model.
        batch_size: Texts per forward pass; fewer where their logits would need more memory.
        texts_per_tree: How many texts a tree stands for.
        share_prefix: Run trees of causal models as rows, where that is exact.

    Attributes:
        packed: Whether trees are run as rows; known after the first ``plan`` or reading.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        batch_size: int,
        texts_per_tree: int = 1,
        share_prefix: bool = True,
    ) -> None:
        model.require_language_head()
        self.packed = False
        self._model = model
        self._batch_size = batch_size
        self._texts_per_tree = texts_per_tree
        self._may_share = share_prefix and model.kind == "causal"
        # Lengths up to which sharing was tried: of a path, and of a tree.
        self._tried = 0, 0
        self._padding: bool | None = None
        self._looks_back = model.kind != "causal"

    def log_probs(
        self,
        trees: Sequence[TokenTree],
        sources: Sequence[Sequence[int]] = (),
        *,
        progress: Progress | None = None,
    ) -> list[Float[np.ndarray, " reading"]]:
        """Log-probabilities of every reading of every tree, nats.

        Of encoder-decoders ``sources`` are the token ids that the encoder reads for each tree.

        Raises:
            InputError: if a text is longer than the model's context, or a log-probability is NaN.
        """
        values = [np.full(len(tree.read_node), np.nan) for tree in trees]
        # A text none of whose tokens is read need not be run.
        chosen = [i for i, of_tree in enumerate(values) if len(of_tree)]
        done, total = 0, sum(map(len, values))
        of_chosen = [sources[i] for i in chosen] if sources else ()
        for tree_pass in self.passes([trees[i] for i in chosen], of_chosen):
            for tree, which, read in zip(
                tree_pass.tree, tree_pass.readings, self.run(tree_pass), strict=True
            ):
                values[chosen[tree]][which] = read
            done += len(tree_pass.place)
            if progress is not None:
                progress(done * len(trees) // total, len(trees))
        refuse_undefined(self._model, values)
        return values

    def read(
        self,
        requests: Sequence[Request],
        *,
        leading: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[TokenScores]:
        """Log-probabilities of the tokens that requests read, an array for each ``Request.read``.

        ``leading`` is as in ``as_trees``, whose errors and those of ``log_probs`` these are.
        """
        values = self.log_probs(
            *as_trees(self._model, requests, leading=leading), progress=progress
        )
        read = []
        for request, own in zip(requests, values, strict=True):
            ends = np.cumsum([len(places) for _, places in request.read])[:-1]
            read.append(tuple(np.split(own, ends)) if request.read else ())
        return read

    def passes(
        self, trees: Sequence[TokenTree], sources: Sequence[Sequence[int]] = ()
    ) -> Iterator[TreePass]:
        """The forward passes that together make every reading, and encode every source, once."""
        if not sources:
            yield from map(self.pass_of, self.plan(trees))
            return
        self._check_sources(trees, sources)
        per_pass = max(1, self._batch_size // self._texts_per_tree)
        for batch in batches_of_similar_width([len(source) for source in sources], per_pass):
            encoded, mask = _encoded(self._model, [sources[i] for i in batch])
            whole = self._rows([trees[i] for i in batch])
            for first in range(0, len(whole.rows), self._batch_size):
                rows = whole.only(range(len(whole.rows))[first : first + self._batch_size])
                one = _after_encoder(self._model, rows, encoded, mask)
                yield replace(one, tree=[batch[i] for i in rows.tree])

    def plan(self, trees: Sequence[TokenTree], sources: Sequence[Sequence[int]] = ()) -> list[Rows]:
        """Rows of each pass, from short to long; nothing is on the model's device yet."""
        if sources:
            self._check_sources(trees, sources)
        whole = self._rows(trees)
        widths = [len(row) for row in whole.rows]
        if sources:
            widths = [n + len(sources[tree]) for n, tree in zip(widths, whole.tree, strict=True)]
        return [whole.only(chosen) for chosen in self._batches(whole.rows, widths)]

    def pass_of(
        self, rows: Rows, grid: Grid | None = None, *, sources: Sequence[Sequence[int]] = ()
    ) -> TreePass:
        """The pass that a part of a plan stands for, on the model's device.

        ``grid`` says where packed trees stand, each in a row of its own if None. What the encoder
        of an encoder-decoder reads (``sources``) is encoded in the same pass.
        """
        model = self._model
        if sources:
            ids, mask = padded([sources[tree] for tree in rows.tree])
            return _decoder_pass(model, rows, {"input_ids": ids}, mask)
        if model.kind == "permutation":
            return _hidden_place_pass(model, rows)
        grid = grid or one_per_row(rows.rows)
        if self.packed:
            return _as_pass(model, _tree_inputs(model, rows.rows, grid), rows, grid)
        ids, mask = padded([row.tokens.tolist() for row in rows.rows])
        return _as_pass(model, {"input_ids": ids, "attention_mask": mask}, rows, grid)

    def run(self, tree_pass: TreePass) -> list[Float[np.ndarray, " reading"]]:
        """Log-probabilities of the readings of each tree or path of a pass."""
        return _run(self._model, tree_pass)

    # -- parts --

    def _rows(self, trees: Sequence[TokenTree]) -> Rows:
        if self._model.kind == "permutation":
            whole = _with_hidden_places(trees)
        else:
            # Rounding, as in `Computing`, would look like a text that is read differently.
            with torch.autocast(self._model.device.type, enabled=False):
                self._refuse_looking_ahead(trees)
                self.check_sharing(trees)
            whole = whole_trees(trees) if self.packed else separate_paths(trees)
        if not self.packed:
            self._model.check_length(max(map(len, whole.rows), default=0))
        return whole

    def _check_sources(self, trees: Sequence[TokenTree], sources: Sequence[Sequence[int]]) -> None:
        """Refuse texts that are too long, and a model that reads one differently in a batch.

        A text in a batch is compared with the same alone up to its first reading: FSMT's decoder
        sees what comes later where its encoder has run before, ProphetNet's always.
        """
        model = self._model
        model.check_length(max(map(len, sources)))
        short = min(range(len(sources)), key=lambda i: len(sources[i]))
        long = max(range(len(sources)), key=lambda i: len(sources[i]))
        chain = max(trees[short].paths()[0], key=len)
        model.check_length(len(chain))
        begin, which = _up_to_first_reading(chain)
        (alone,) = _run(
            model,
            _decoder_pass(
                model, whole_trees([begin]), {"input_ids": torch.tensor([sources[short]])},
                torch.ones(1, len(sources[short]), dtype=torch.long),
            ),
        )  # fmt: skip
        encoded, mask = _encoded(model, [sources[short], sources[long]])
        (together,) = _run(model, _after_encoder(model, whole_trees([chain]), encoded, mask))
        _refuse_difference(model, alone, together[which])

    def check_sharing(self, trees: Sequence[TokenTree]) -> None:
        """Find out whether trees as rows give what their paths give, unless that is known.

        Tried on the longest text and on the longest tree: in a row, attention that reaches only so
        far back would end too late in the one and too early in the other.
        """
        if not (self._may_share and trees):
            return
        length = [int(tree.depth().max()) + 1 for tree in trees]
        self._model.check_length(max(length))
        if max(length) <= self._tried[0] and max(map(len, trees)) <= self._tried[1]:
            return
        self._tried = max(max(length), self._tried[0]), max(*map(len, trees), self._tried[1])
        window = _attention_window(self._model)
        if window is not None and max(length) > window:
            self.packed = False
        else:
            largest = max(range(len(trees)), key=lambda i: (len(trees[i]), length[i], -i))
            longest = max(range(len(trees)), key=lambda i: (length[i], len(trees[i]), -i))
            tried = [trees[i] for i in sorted({largest, longest})]
            self._refuse_looking_ahead(tried)
            self.packed = _can_pack(self._model, tried)
        self._may_share = self.packed

    def _batches(self, rows: Sequence[TokenTree], widths: list[int]) -> Iterator[list[int]]:
        size = self._batch_size
        if self.packed:
            size = max(1, size // self._texts_per_tree)
        most = LOGITS // self._model.hf_model.config.get_text_config().vocab_size
        batches = batches_of_similar_width(widths, size)
        if self._model.kind == "masked" and self._padding_matters(rows):
            batches = [
                list(alike) for batch in batches for _, alike in groupby(batch, widths.__getitem__)
            ]
        for batch in batches:
            start, logits = 0, 0
            for position, index in enumerate(batch):
                n_read = len(np.unique(rows[index].read_node))
                if logits and logits + n_read > most:
                    yield batch[start:position]
                    start, logits = position, 0
                logits += n_read
            yield batch[start:]

    def _padding_matters(self, rows: Sequence[TokenTree]) -> bool:
        """Try if rows read differently beside a longer one, as without attention masks."""
        of_width = {len(row): row for row in rows}
        if len(of_width) == 1:
            return False
        if self._padding is None:
            # Funnel pools pairs of tokens, so the shortest row alone may not show it.
            widths = sorted(of_width)
            self._padding = not self._alike([of_width[n] for n in {*widths[:3], widths[-1]}])
        return self._padding

    def _alike(self, rows: list[TokenTree]) -> bool:
        """Tell whether each row alone reads as it does in a batch."""
        batch = whole_trees(rows)
        together = np.concatenate(self.run(self.pass_of(batch)))
        alone = [self.run(self.pass_of(batch.only([i])))[0] for i in range(len(rows))]
        return bool(np.abs(together - np.concatenate(alone)).max() <= _allowed(self._model))

    def _refuse_looking_ahead(self, trees: Sequence[TokenTree]) -> None:
        """Refuse a causal model that sees what comes later: CPM-Ant, a decoder as an encoder."""
        if self._looks_back or not trees:
            return
        self._looks_back = True
        chain = max(max(trees, key=lambda tree: int(tree.depth().max())).paths()[0], key=len)
        self._model.check_length(len(chain))
        begin, which = _up_to_first_reading(chain)
        rows = Rows([begin, chain], [0, 1], [which, np.arange(len(chain.read_node))])
        # As paths, whatever has been found out about trees.
        ids, mask = padded([row.tokens.tolist() for row in rows.rows])
        inputs = {"input_ids": ids, "attention_mask": mask}
        together = _run(self._model, _as_pass(self._model, inputs, rows, one_per_row(rows.rows)))
        first = {name: value[:1, : len(begin)] for name, value in inputs.items()}
        (alone,) = _run(
            self._model, _as_pass(self._model, first, rows.only([0]), one_per_row([begin]))
        )
        _refuse_difference(self._model, alone, together[0], together[1][which])


def _run(model: LanguageModel, tree_pass: TreePass) -> list[Float[np.ndarray, " reading"]]:
    values = token_log_probs(
        model.hf_model, tree_pass.inputs, tree_pass.places, tree_pass.place, tree_pass.token
    )
    return np.split(values, np.cumsum([len(reading) for reading in tree_pass.readings])[:-1])


def _as_pass(model: LanguageModel, inputs: dict[str, Any], rows: Rows, grid: Grid) -> TreePass:
    places, which = grid.places(rows.rows)
    there = {
        name: value.to(model.device) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }
    return TreePass(
        # Masked models take no such option.
        inputs=there if model.kind == "masked" else there | {"use_cache": False},
        places=torch.from_numpy(places).to(model.device),
        place=which,
        token=np.concatenate([row.read_token for row in rows.rows]),
        tree=rows.tree,
        readings=rows.readings,
    )


# -- causal models: trees as rows ------------------------------------------------------------------


def _can_pack(model: LanguageModel, trees: Sequence[TokenTree]) -> bool:
    """Try if trees as rows give what their paths give; some models do not take such rows."""
    difference = 0.0
    for tree in trees:
        alone = Scorer(model, batch_size=len(tree), share_prefix=False)
        alone._looks_back = True  # of the same text that is found out once
        (separate,) = alone.log_probs([tree])
        rows, grid = whole_trees([tree]), one_per_row([tree])
        try:
            row = _as_pass(model, _tree_inputs(model, [tree], grid), rows, grid)
            (together,) = _run(model, row)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
            return False
        difference = max(difference, float(np.abs(together - separate).max()))
    return difference <= _allowed(model)


def _allowed(model: LanguageModel) -> float:
    return _TOLERANCE * (100 if model.dtype.itemsize <= 2 else 1.0)


def _attention_window(model: LanguageModel) -> int | None:
    """Tokens that some layer sees at most, the last one included; None for all."""
    config = model.hf_model.config.get_text_config()
    window: int | None = getattr(config, "sliding_window", None)
    return window


def _tree_inputs(model: LanguageModel, trees: Sequence[TokenTree], grid: Grid) -> dict[str, Tensor]:
    """Trees in rows: every token sees its path alone, and its position is that in its path."""
    visible = np.repeat(np.eye(grid.width, dtype=bool)[None], grid.n_rows, axis=0)
    position = np.zeros((grid.n_rows, grid.width), dtype=np.int64)
    ids = np.zeros_like(position)
    for tree, row, column in zip(trees, grid.row, grid.column, strict=True):
        part = slice(column, column + len(tree))
        visible[row, part, part] = tree.visible()
        position[row, part] = tree.depth()
        ids[row, part] = tree.tokens
    mask = torch.zeros(visible.shape, dtype=model.dtype)
    mask.masked_fill_(torch.from_numpy(~visible), torch.finfo(model.dtype).min)
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": mask.unsqueeze(1),
        "position_ids": torch.from_numpy(position),
    }


# -- encoder-decoders ------------------------------------------------------------------------------


def _encoded(model: LanguageModel, sources: Sequence[Sequence[int]]) -> tuple[Any, Tensor]:
    """The encoder's output for sources, as it hands it on, and which of their places are real."""
    ids, mask = (part.to(model.device) for part in padded(sources))
    with torch.inference_mode():
        return model.hf_model.get_encoder()(input_ids=ids, attention_mask=mask), mask


def _after_encoder(model: LanguageModel, rows: Rows, encoded: Any, mask: Tensor) -> TreePass:
    """A pass of the decoder over chains, whose ``tree`` is the number of what was encoded."""
    source = torch.tensor(rows.tree, device=model.device)
    given = {"encoder_outputs": type(encoded)(last_hidden_state=encoded[0][source])}
    return _decoder_pass(model, rows, given, mask[source])


def _up_to_first_reading(chain: TokenTree) -> tuple[TokenTree, Int[np.ndarray, " reading"]]:
    """The beginning of a chain with what is read there, and which of its readings that are."""
    first = int(chain.read_node.min())
    which = np.flatnonzero(chain.read_node == first)
    begin = TokenTree(
        chain.tokens[: first + 1],
        chain.parent[: first + 1],
        chain.read_node[which],
        chain.read_token[which],
    )
    return begin, which


def _refuse_difference(
    model: LanguageModel,
    alone: Float[np.ndarray, " reading"],
    *others: Float[np.ndarray, " reading"],
) -> None:
    difference = max(float(np.abs(alone - other).max()) for other in others)
    # Half precision alone may come to more than what decides if rows are shared.
    if difference > (0.5 if model.dtype.itemsize <= 2 else _TOLERANCE):
        raise InputError(
            f"`model` {model.name} ({model.architecture}) reads a text differently in a batch than "
            f"alone: log-probabilities differ by {difference:.2g}; it cannot be scored"
        )


def _decoder_pass(
    model: LanguageModel, rows: Rows, encoder: dict[str, Any], mask: Tensor
) -> TreePass:
    """A pass of the decoder over chains, with what the encoder reads or has made of each source."""
    ids, own_mask = padded([row.tokens.tolist() for row in rows.rows])
    inputs = {**encoder, "attention_mask": mask}
    inputs |= {"decoder_input_ids": ids, "decoder_attention_mask": own_mask}
    return _as_pass(model, inputs, rows, one_per_row(rows.rows))


# -- permutation models ----------------------------------------------------------------------------


def _with_hidden_places(trees: Sequence[TokenTree]) -> Rows:
    """For every node that something is read after, its path and a place after it."""
    made = Rows([], [], [])
    for number, tree in enumerate(trees):
        for node in np.unique(tree.read_node):
            taken = np.flatnonzero(tree.read_node == node)
            path = tree.tokens[path_to(int(node), tree.parent)].tolist()
            made.rows.append(masked_row([*path, 0], len(path), tree.read_token[taken].tolist()))
            made.tree.append(number)
            made.readings.append(taken)
    return made


def _hidden_place_pass(model: LanguageModel, rows: Rows) -> TreePass:
    """XLNet: no token sees the last place of a row, whose token is asked for."""
    ids, mask = padded([row.tokens.tolist() for row in rows.rows])
    n, width = ids.shape
    last = mask.sum(1) - 1
    hidden, target = torch.zeros(n, width, width), torch.zeros(n, 1, width)
    hidden[torch.arange(n), :, last] = 1.0
    target[torch.arange(n), 0, last] = 1.0
    given = {"attention_mask": mask, "perm_mask": hidden, "target_mapping": target}
    inputs = {name: value.to(model.device, model.dtype) for name, value in given.items()}
    return TreePass(
        inputs={"input_ids": ids.to(model.device), **inputs},
        places=torch.arange(n, device=model.device),
        place=np.repeat(np.arange(n), [len(row.read_node) for row in rows.rows]),
        token=np.concatenate([row.read_token for row in rows.rows]),
        tree=rows.tree,
        readings=rows.readings,
    )
