"""The attention of one text, kept for the pictures that show how the statistic comes about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from tda_bias.runs.run import open_run
from tda_bias.runs.writing import adding_to_run
from tda_bias.types import Attention, InputError

FILE = "example.npz"


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
            run.arrays(FILE, self.to_arrays())

    @classmethod
    def load(cls, folder: str | Path) -> ExamplePattern:
        """The pattern of the run in a folder.

        Raises:
            InputError: if there is no run of ``tdabias heads``, it has no such file, or that is
                damaged.
        """
        run = open_run(folder, "heads")
        saved = run.arrays(FILE)
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
                f"{run.folder / FILE} holds no pattern of one text ({error}); {run.again}"
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
