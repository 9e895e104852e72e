"""Patterns kept for people to look at: all of one text, and a few heads' on a few texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.texts import ContextTexts, tokenize
from tda_bias.runs.run import Run, open_run
from tda_bias.runs.writing import RunWriter, adding_to_run
from tda_bias.types import Attention, Edges, HeadId, InputError, Triple

if TYPE_CHECKING:
    from tda_bias.models.load import LoadedModel

EXAMPLE = "example.npz"
TABLE, ARRAYS = "patterns.parquet", "patterns.npz"
# A text of more tokens makes a picture that nobody can read, and a file of a megabyte.
MAX_TOKENS = 64
ROLES = ("stereotype", "anti-stereotype", "twin stereotype", "twin anti-stereotype")
COLUMNS: dict[str, type] = {
    **dict.fromkeys(("category", "id", "role", "text", "tokens"), str),
    **dict.fromkeys(("layer", "head", "length"), int),
}


@dataclass(frozen=True)
class ExamplePattern:
    """Every head's pattern on one text.

    Attributes:
        model: Name of the model.
        group: Group of the text.
        text: The text.
        tokens: Its tokens as they are read.
        attention: Direction of the attention.
        patterns: One matrix per head, rows summing to 1.
    """

    model: str
    group: str
    text: str
    tokens: tuple[str, ...]
    attention: Attention
    patterns: Float[np.ndarray, "layer head query key"]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays by name."""
        return {
            "model": np.array(self.model),
            "group": np.array(self.group),
            "text": np.array(self.text),
            "tokens": np.array(self.tokens),
            "attention": np.array(self.attention),
            "patterns": self.patterns,
        }

    def save(self, folder: str | Path) -> None:
        """Add the pattern to the run in a folder.

        Raises:
            InputError: if there is no run, or the folder cannot be written.
        """
        with adding_to_run(folder) as run:
            run.arrays(EXAMPLE, self.to_arrays())

    @classmethod
    def load(cls, folder: str | Path) -> ExamplePattern:
        """The pattern of the run in a folder.

        Raises:
            InputError: if there is no run of ``tdabias heads``, it has no such file, or that is
                damaged.
        """
        run = open_run(folder, "heads")
        saved = run.arrays(EXAMPLE)
        try:
            direction = str(saved["attention"])
            example = cls(
                model=str(saved["model"]),
                group=str(saved["group"]),
                text=str(saved["text"]),
                tokens=tuple(str(token) for token in saved["tokens"]),
                attention="causal" if direction == "causal" else "bidirectional",
                patterns=saved["patterns"],
            )
            example.check()
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{run.folder / EXAMPLE} holds no pattern of one text ({error}); {run.again}"
            ) from error
        return example

    def check(self) -> None:
        """Make sure that there is one square pattern per head, over the tokens.

        Raises:
            ValueError: if not.
        """
        n = len(self.tokens)
        if n < 2 or self.patterns.ndim != 4 or self.patterns.shape[2:] != (n, n):
            raise ValueError(f"{n} tokens with patterns of shape {self.patterns.shape}")
        if 0 in self.patterns.shape or not np.isfinite(self.patterns).all():
            raise ValueError("patterns are missing or undefined")


def example_pattern(model: LoadedModel, triple: Triple) -> ExamplePattern:
    """The patterns of a triple's stereotype text.

    Raises:
        InputError: if the text is too long for the model.
    """
    tokens = tokenize(model.tokenizer, [triple], max_tokens=model.max_tokens, roles=("stereotype",))
    (batch,) = PatternReader(model, batch_size=1).read(tokens)
    ids = tokens[0].ids[0]
    return ExamplePattern(
        model=model.name,
        group=triple.group,
        text=triple.texts()[0],
        tokens=tuple(model.tokenizer.decode([token]).strip() for token in ids),
        attention=model.attention,
        patterns=batch.patterns[0].float().cpu().numpy(),
    )


# -- the heads and texts that matter most ----------------------------------------------------------


@dataclass(frozen=True)
class PatternText:
    """A text whose pattern is wanted, and of which head.

    Attributes:
        category: Of the ranking that the head stands in.
        head: The head.
        id: What names the item; see ``triples.triple_ids``.
        role: Which of the item's texts, one of ``ROLES``.
        text: The text.
    """

    category: str
    head: HeadId
    id: str
    role: str
    text: str


@dataclass(frozen=True)
class KeptPatterns:
    """Patterns, one per row of a table.

    Attributes:
        table: ``category layer head id role text tokens length``; tokens as a JSON list.
        patterns: Of every row ``(query, key)``, half precision, as the run read them.
    """

    table: pd.DataFrame
    patterns: Sequence[np.ndarray]

    @classmethod
    def of(
        cls,
        wanted: Sequence[PatternText],
        tokens: Sequence[Sequence[str]],
        patterns: Sequence[np.ndarray],
    ) -> KeptPatterns:
        """From texts, their tokens as they are read, and their patterns."""
        rows = [
            {
                "category": text.category,
                "layer": text.head.layer,
                "head": text.head.head,
                "id": text.id,
                "role": text.role,
                "text": text.text,
                "tokens": json.dumps(list(read)),
                "length": len(read),
            }
            for text, read in zip(wanted, tokens, strict=True)
        ]
        # Without a row no column knows its kind.
        table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
        return cls(table, [np.asarray(pattern, dtype=np.float16) for pattern in patterns])

    def write(self, run: RunWriter) -> None:
        """Add the table and the patterns, end to end, to a run that is being written."""
        flat = [pattern.ravel() for pattern in self.patterns]
        run.table(TABLE, self.table)
        run.arrays(ARRAYS, {"patterns": np.concatenate(flat or [np.zeros(0, np.float16)])})

    @classmethod
    def read(cls, run: Run) -> KeptPatterns:
        """Read the files of ``write``.

        Raises:
            InputError: if the run has none, or a file is not as it was written.
        """
        table, flat = run.table(TABLE, COLUMNS), run.arrays(ARRAYS)["patterns"]
        length = table["length"].to_numpy(int)
        ends = np.cumsum(length**2)
        if len(flat) != (ends[-1] if len(ends) else 0):
            raise InputError(
                f"{run.folder / ARRAYS} does not hold the patterns of {TABLE}; {run.again}"
            )
        parts = np.split(flat, ends[:-1]) if len(ends) else []
        patterns = [part.reshape(n, n) for part, n in zip(parts, length, strict=True)]
        return cls(table, patterns)


def kept_patterns(
    model: LoadedModel,
    wanted: Sequence[PatternText],
    *,
    edges: Edges = "attention",
    batch_size: int = 8,
) -> KeptPatterns:
    """The patterns of heads on texts; each text is run once, however many heads want it.

    Texts of more than ``MAX_TOKENS`` tokens are left out.

    Args:
        model: The model.
        wanted: Which texts, and whose patterns on them; a head's layer counts hooked layers.
        edges: As in ``PatternReader``.
        batch_size: Texts per forward pass.
    """
    words = list(dict.fromkeys(asked.text for asked in wanted))
    read = model.tokenizer(words, verbose=False)["input_ids"] if words else []
    both = zip(words, read, strict=True)
    ids = {text: tokens for text, tokens in both if 0 < len(tokens) <= MAX_TOKENS}
    needed: dict[str, list[HeadId]] = {}
    for asked in wanted:
        if asked.text in ids:
            needed.setdefault(asked.text, []).append(asked.head)
    patterns: dict[tuple[str, HeadId], np.ndarray] = {}
    texts = list(needed)
    reader = PatternReader(model, batch_size=batch_size, edges=edges)
    for batch in reader.read([ContextTexts((ids[text],), 0) for text in texts]):
        for row, (number, n) in enumerate(
            zip(batch.text.tolist(), batch.length.tolist(), strict=True)
        ):
            for head in needed[texts[number]]:
                pattern = batch.patterns[row, head.layer, head.head, :n, :n]
                patterns[texts[number], head] = pattern.half().cpu().numpy()
    kept = [asked for asked in wanted if asked.text in ids]
    return KeptPatterns.of(
        kept,
        [[model.tokenizer.decode([token]).strip() for token in ids[asked.text]] for asked in kept],
        [patterns[asked.text, asked.head] for asked in kept],
    )
