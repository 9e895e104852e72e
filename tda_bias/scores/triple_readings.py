"""What is read of triples and their twins, pass by pass, for every kind of language model.

Causal models: the tokens of the continuations and of the context. Masked models: the continuations'
tokens, each masked in turn. Encoder-decoders: the continuations in a gap behind the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.models.batching import batches_of_similar_width, padded, special_tokens_around
from tda_bias.models.causal import TreePass, reader_of
from tda_bias.models.load import LanguageModel
from tda_bias.models.token_trees import Rows, TokenTree, below_each_other, separate_paths
from tda_bias.scores.likelihood import (
    CONTEXT,
    MaskedRows,
    SplitTriple,
    continuation_tree,
    gap_texts,
    masked_rows,
    split_triples,
)
from tda_bias.types import ROLES, InputError, Triple

# Texts of a triple that a twin needs: the stereotype and the anti-stereotype.
_OF_A_TWIN = 2


@dataclass(frozen=True)
class TripleReadings:
    """Forward passes over triples, and what each of their readings belongs to.

    Attributes:
        n_triples: Number of triples; twins come behind them.
        part: Per triple and twin, what each of its readings belongs to: 0, 1 or 2 for a
            continuation in the order of ``ROLES``, 3 for the context.
        twin_of: The triple of each twin.
        passes: Makes each of the passes, those of the longest texts first: side by side, no thread
            then waits long for another at the end. ``TreePass.tree`` counts triples, then twins.
        tokens: How many tokens each pass runs, padding left out.
        packed: Whether a triple's texts are one row.
        unrelated: Token ids of the unrelated texts with all special tokens.
    """

    n_triples: int
    part: list[Int[np.ndarray, " reading"]]
    twin_of: Int[np.ndarray, " twin"]
    passes: list[Callable[[], TreePass]]
    tokens: list[int]
    packed: bool
    unrelated: list[list[int]]

    def sums(
        self, values: Sequence[Float[np.ndarray, " reading"]]
    ) -> tuple[Float[np.ndarray, "text part"], Int[np.ndarray, "text part"]]:
        """Log-probability and number of tokens of each part of each triple and twin.

        Args:
            values: Readings per triple and twin.
        """
        size = CONTEXT + 1
        pairs = list(zip(values, self.part, strict=True))
        total = np.array([np.bincount(part, own, size) for own, part in pairs])
        count = np.array([np.bincount(part, minlength=size) for part in self.part])
        return total, count


def triple_readings(
    model: LanguageModel,
    triples: Sequence[Triple],
    twins: Sequence[Sequence[Triple]],
    *,
    batch_size: int,
) -> TripleReadings:
    """What is to be read.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        triples: The texts.
        twins: Per triple its twins, none or more; empty for no twins at all.
        batch_size: Texts per forward pass.

    Raises:
        InputError: if the model is of another kind or has no language-model head, or a text does
            not fit.
    """
    model.require_language_head()
    if model.kind not in ("causal", "masked", "seq2seq"):
        raise InputError(
            f"`model` {model.name} is a {model.kind} language model; heads are removed from "
            "causal, masked and sequence-to-sequence ones"
        )
    if not triples:
        raise InputError("there is no triple to read")
    others = [twin for its_twins in twins for twin in its_twins]
    split = split_triples(model, [*triples, *others])
    split[len(triples) :] = [
        SplitTriple(twin.ids[:_OF_A_TWIN], twin.start[:_OF_A_TWIN])
        for twin in split[len(triples) :]
    ]
    leading, trailing = special_tokens_around(model.tokenizer)
    if model.kind == "causal":
        trailing = []
    unrelated = [triple.ids[ROLES.index("unrelated")] for triple in split[: len(triples)]]
    readings = TripleReadings(
        n_triples=len(triples),
        part=[],
        twin_of=np.repeat(np.arange(len(twins)), [len(its_twins) for its_twins in twins]),
        passes=[],
        tokens=[],
        packed=False,
        unrelated=[[*leading, *ids, *trailing] for ids in unrelated],
    )
    match model.kind:
        case "causal":
            planned = _causal(model, readings, split, leading, batch_size)
        case "masked":
            planned = _masked(model, readings, masked_rows(model, split), len(split), batch_size)
        case _:
            planned = _seq2seq(model, readings, [*triples, *others], split, batch_size)
    # They were planned from short to long.
    return replace(planned, passes=planned.passes[::-1], tokens=planned.tokens[::-1])


def _causal(
    model: LanguageModel,
    readings: TripleReadings,
    split: Sequence[SplitTriple],
    leading: Sequence[int],
    batch_size: int,
) -> TripleReadings:
    made = [
        continuation_tree(triple, leading, contexts=number < readings.n_triples)
        for number, triple in enumerate(split)
    ]
    trees = [tree for tree, _ in made]
    reader = reader_of(model, trees, batch_size=batch_size, texts_per_tree=3)
    planned = reader.plan(trees)
    return replace(
        readings,
        part=[part for _, part in made],
        passes=[partial(reader.pass_of, rows) for rows in planned],
        tokens=[sum(map(len, rows.rows)) for rows in planned],
        packed=reader.packed,
    )


# -- masked models ---------------------------------------------------------------------------------


def _masked(
    model: LanguageModel, readings: TripleReadings, made: MaskedRows, n: int, batch_size: int
) -> TripleReadings:
    lengths = [len(row) for row in made.rows]
    model.check_length(max(lengths))
    part: list[list[int]] = [[] for _ in range(n)]
    reading = []
    for triple, its_part in zip(made.triple, made.part, strict=True):
        reading.append(len(part[triple]))
        part[triple].append(its_part)
    batches = list(batches_of_similar_width(lengths, batch_size))
    return replace(
        readings,
        part=[np.array(parts) for parts in part],
        passes=[partial(_masked_pass, model, made, reading, batch) for batch in batches],
        tokens=[sum(lengths[i] for i in batch) for batch in batches],
    )


def _masked_pass(
    model: LanguageModel, made: MaskedRows, reading: Sequence[int], batch: Sequence[int]
) -> TreePass:
    ids, mask = padded([made.rows[i] for i in batch])
    places = torch.tensor([row * ids.shape[1] + made.places[i] for row, i in enumerate(batch)])
    device = model.device
    return TreePass(
        inputs={"input_ids": ids.to(device), "attention_mask": mask.to(device)},
        places=places.to(device),
        place=np.arange(len(batch)),
        token=np.array([made.tokens[i] for i in batch]),
        tree=[made.triple[i] for i in batch],
        readings=[np.array([reading[i]]) for i in batch],
    )


# -- encoder-decoders ------------------------------------------------------------------------------


def _seq2seq(
    model: LanguageModel,
    readings: TripleReadings,
    triples: Sequence[Triple],
    split: Sequence[SplitTriple],
    batch_size: int,
) -> TripleReadings:
    made = gap_texts(model, triples, split)
    longest = [len(source) for source in made.sources] + [len(tree) for tree in made.trees]
    model.check_length(max(longest))
    rows = separate_paths(made.trees)
    widths = [
        len(made.sources[tree]) + len(row) for tree, row in zip(rows.tree, rows.rows, strict=True)
    ]
    batches = list(batches_of_similar_width(widths, batch_size))
    return replace(
        readings,
        part=made.part,
        passes=[partial(_decoder_pass, model, made.sources, rows.only(batch)) for batch in batches],
        tokens=[sum(widths[i] for i in batch) for batch in batches],
    )


def _decoder_pass(model: LanguageModel, sources: Sequence[Sequence[int]], part: Rows) -> TreePass:
    chains: list[TokenTree] = part.rows
    ids, mask = padded([sources[tree] for tree in part.tree])
    written, written_mask = padded([chain.tokens.tolist() for chain in chains])
    places, which = below_each_other(chains).places(chains)
    given = {
        "input_ids": ids,
        "attention_mask": mask,
        "decoder_input_ids": written,
        "decoder_attention_mask": written_mask,
    }
    return TreePass(
        inputs={name: value.to(model.device) for name, value in given.items()}
        | {"use_cache": False},
        places=torch.from_numpy(places).to(model.device),
        place=which,
        token=np.concatenate([chain.read_token for chain in chains]),
        tree=part.tree,
        readings=part.readings,
    )
