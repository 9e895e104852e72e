"""What is asked of a model at once, what it answers, and what every way to ask has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Int

from unqover.classes import Attribute, Subject
from unqover.config import AskConfig, Negation
from unqover.wording import Template


@dataclass(frozen=True)
class Instance:
    """Two subjects in one template, in one order, asked about some attributes.

    Attributes:
        template: The template.
        mentioned: The subjects in the order of mention.
        candidates: The same two as x1 and x2.
        attributes: What is asked.
    """

    template: Template
    mentioned: tuple[Subject, Subject]
    candidates: tuple[Subject, Subject]
    attributes: Sequence[Attribute]

    @property
    def context(self) -> str:
        """The sentence that mentions both."""
        return self.template.context(*self.mentioned)


@dataclass(frozen=True)
class Asked:
    """What a reader found for one instance.

    Attributes:
        log_prob: ``(attribute, polarity, subject)``: the attribute, then its denial.
        n_tokens: ``(attribute, polarity, subject)`` tokens of the subject's name.
        mass: ``(attribute, polarity)`` probability that the answer is one of the two; for cloze,
            that the sentence begins with one of them.
    """

    log_prob: Float[np.ndarray, "attribute polarity subject"]
    n_tokens: Int[np.ndarray, "attribute polarity subject"]
    mass: Float[np.ndarray, "attribute polarity"]


class Asker(Protocol):
    """One way to ask a model."""

    how: str

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """Log-probabilities of both subjects for every question of every instance."""
        ...

    @property
    def notes(self) -> dict[str, Any]:
        """How texts were run, for the record; known after the first call."""
        ...


def polarities(config: AskConfig) -> tuple[Negation | None, Negation | None]:
    """The attribute itself, and how it is denied."""
    return None, config.negation
