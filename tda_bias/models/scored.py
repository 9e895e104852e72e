"""What a model says to many requests, block by block: read once, saved, and taken up again.

``scored`` is for whoever asks for log-probabilities and wants them as they are. A reader that saves
what it makes of them (words, answers) gives its own ``Block``s to ``read_blocks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tda_bias.models.language_model import LanguageModel
from tda_bias.models.requests import Request
from tda_bias.models.scoring import Scorer, TokenScores
from tda_bias.store.cache import Counter, OpenCache, Part, no_cache, texts_hash
from tda_bias.types import Progress

T = TypeVar("T")
Arrays = Mapping[str, np.ndarray]
# By a name, the log-probabilities of each text's tokens, request by request.
Readings = dict[str, list[TokenScores]]


# -- requests --------------------------------------------------------------------------------------


def scored(
    model: LanguageModel,
    requests: Sequence[Request],
    *,
    name: str = "texts",
    block: int = 128,
    batch_size: int = 32,
    identity: Mapping[str, Any] | None = None,
    cache: OpenCache = no_cache,
    progress: Progress | None = None,
) -> list[TokenScores]:
    """Log-probabilities of the tokens that requests read, nats.

    What the texts of a request share is run once, where that is exact. A request's numbers do not
    depend on the others, on the batch size or on the process that reads it, but for rounding.

    ```python
    from tda_bias.models.requests import continuations
    from tda_bias.models.scored import scored

    asked = {
        "The nurse said that": ["he knew it.", "she knew it."],
        "The cook wrote that": ["he was a man.", "she was.", "it was."],
    }
    requests = continuations(model, list(asked), list(asked.values()))
    answers = scored(model, requests, name="questions")
    for of_question in answers:
        log_odds = of_question[0].sum() - of_question[1].sum()
    ```

    With ``cache=partial(Cache, folder)`` a stopped run goes on where it was.

    Args:
        model: A causal, masked, permutation or sequence-to-sequence language model.
        requests: What is read, as ``continuations`` makes it of texts.
        name: Of the saved parts: ``questions 1 to 128``.
        block: Requests that are saved together: a stopped run loses no more than these.
        batch_size: Texts per forward pass.
        identity: Whatever the numbers depend on beside the model, its tokenizer and the requests.
        cache: Opens the cache of finished parts.
        progress: Called with finished requests and all.

    Returns:
        For each request an array for each entry of ``Request.read``.

    Raises:
        InputError: if the model has no language-model head, a text is too long for it, a
            log-probability is NaN, or ``cache`` holds readings of something else.
        ShareDone: if the parts are shared by several processes and another one gathers.
    """
    blocks = [
        Block(title, len(own), partial(_depends_on, own), partial(_read, model, batch_size, own))
        for title, own in cut(name, requests, block)
    ]
    identity = {
        "format": 1,
        "tokenizer": model.tokenizer_hash(),
        "kind": model.kind,
        **(identity or {}),
    }
    read = read_blocks(model, blocks, identity=identity, cache=cache, progress=progress)
    return from_arrays(read).get("log_prob", [])


def _depends_on(requests: Sequence[Request]) -> dict[str, str]:
    texts: list[tuple[Any, ...]] = []
    for request in requests:
        places = [(text, [int(place) for place in own]) for text, own in request.read]
        texts.append((request.ids, places, request.context, request.before))
    return {"texts": texts_hash(texts)}


def _read(
    model: LanguageModel, batch_size: int, requests: Sequence[Request], progress: Progress
) -> Arrays:
    together = max(len(request.ids) for request in requests)
    scorer = Scorer(model, batch_size=batch_size, texts_per_tree=together)
    return as_arrays({"log_prob": scorer.read(requests, progress=progress)})


# -- blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """What is read together and saved as one part: a stopped run loses no more than that.

    Attributes:
        name: Of the part; every block of a run has another.
        size: How many things are read, as the progress counts them: texts, words, questions.
        depends_on: What its numbers depend on beside the identity of all blocks: what is read.
        read: Reads it, and tells how much of the whole is done.
        cost: The work beside other blocks, in any unit; ``size`` if None.
    """

    name: str
    size: int
    depends_on: Callable[[], Mapping[str, Any]]
    read: Callable[[Progress], Arrays]
    cost: float | None = None


def cut(name: str, asked: Sequence[T], size: int) -> Iterator[tuple[str, Sequence[T]]]:
    """Cut what is asked into blocks, each with its name: ``pairs 1 to 128``."""
    for first in range(0, len(asked), size):
        own = asked[first : first + size]
        yield f"{name} {first + 1} to {first + len(own)}", own


def read_blocks(
    model: LanguageModel,
    blocks: Sequence[Block],
    *,
    identity: Mapping[str, Any],
    weights: str | None = None,
    cache: OpenCache = no_cache,
    progress: Progress | None = None,
) -> list[Arrays]:
    """The arrays of every block, in order: as they are saved, else read now and saved.

    Args:
        model: The model that the blocks read.
        blocks: What is read; of several processes each reads its share.
        identity: What the numbers of every block depend on beside the model's name, its weights and
            the precision of its numbers.
        weights: Hash of the model's weights, where it is known already.
        cache: Opens the cache of finished parts.
        progress: Called with what is done and all there is, as ``Block.size`` counts.

    Raises:
        InputError: as the blocks' own readings, or if the cache holds readings of something else.
        ShareDone: if the parts are shared by several processes and another one gathers.
        ValueError: if two blocks have one name.
    """
    if len({block.name for block in blocks}) < len(blocks):
        raise ValueError("two blocks have one name, and would be saved in one file")
    of_model = {
        "model": model.name,
        "weights": weights or model.weight_hash(),
        "dtype": model.dtype_name,
    }
    kept = cache({**of_model, **identity})
    counter = Counter(sum(block.size for block in blocks), progress)
    parts = [
        Part(
            block.name,
            block.size if block.cost is None else block.cost,
            block.depends_on,
            partial(_counted, block, counter),
        )
        for block in blocks
    ]
    every, done = [], 0
    for block, arrays in zip(blocks, kept.each(parts), strict=True):
        every.append(arrays)
        done += block.size
        counter.reach(done)
    return every


def _counted(block: Block, counter: Counter) -> Arrays:
    """Read a block, and tell how far all blocks are."""
    before = counter.done

    def within(finished: int, total: int) -> None:
        counter.reach(before + block.size * finished // max(total, 1))

    arrays = block.read(within)
    counter.reach(before + block.size)
    return arrays


# -- what is saved ---------------------------------------------------------------------------------


def as_arrays(readings: Readings) -> dict[str, np.ndarray]:
    """Readings as they are saved: all tokens in a row, and how many each text has."""
    arrays: dict[str, np.ndarray] = {}
    for name, requests in readings.items():
        # With an empty one for requests that read nothing at all.
        arrays[name] = np.concatenate([np.empty(0), *(t for texts in requests for t in texts)])
        # A request may have fewer texts than others: a triple may lack its third.
        sizes = np.full((len(requests), max(map(len, requests))), -1)
        for row, texts in zip(sizes, requests, strict=True):
            row[: len(texts)] = [len(text) for text in texts]
        arrays[_sizes(name)] = sizes
    return arrays


def from_arrays(blocks: Sequence[Arrays]) -> Readings:
    """The readings of blocks one after the other, as far as all of them have them."""
    names = [name for name in (blocks[0] if blocks else ()) if _sizes(name) in blocks[0]]
    shared = [name for name in names if all(name in block for block in blocks)]
    readings: Readings = {name: [] for name in shared}
    for block in blocks:
        for name in shared:
            sizes = [[size for size in row if size >= 0] for row in block[_sizes(name)]]
            ends = np.cumsum([size for row in sizes for size in row])
            texts = iter(np.split(block[name], ends[:-1]))
            readings[name] += [tuple(next(texts) for _ in row) for row in sizes]
    return readings


def _sizes(name: str) -> str:
    return f"{name} tokens"
