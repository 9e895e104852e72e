"""The attention of one text, kept for the pictures that show how the statistic comes about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from tda_bias.records.files import atomic
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

    def save(self, folder: Path) -> None:
        """Write ``example.npz``, whole or not at all."""
        with atomic(folder / FILE) as path, path.open("wb") as file:
            np.savez_compressed(
                file,
                model=self.model,
                group=self.group,
                text=self.text,
                tokens=np.array(self.tokens),
                attention=self.attention,
                patterns=self.patterns,
            )

    @classmethod
    def load(cls, folder: str | Path) -> ExamplePattern:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder has no such file.
        """
        path = Path(folder) / FILE
        try:
            with np.load(path, allow_pickle=False) as saved:
                direction = str(saved["attention"])
                return cls(
                    model=str(saved["model"]),
                    group=str(saved["group"]),
                    text=str(saved["text"]),
                    tokens=tuple(saved["tokens"].tolist()),
                    attention="causal" if direction == "causal" else "bidirectional",
                    patterns=saved["patterns"],
                )
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"{folder} has no readable {FILE}; the same `tdabias heads` command makes it "
                "(finished groups are reused)"
            ) from error
