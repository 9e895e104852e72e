"""Decisions and written responses about people of two groups, with and without heads.

What heads do to whole responses is read along those that the unchanged model wrote: nothing is
sampled again. See docs/method/respond.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from tda_bias.ablation.readings import Values, planned
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import require_kind
from tda_bias.models.token_trees import TokenTree, merge, path_to
from tda_bias.responses.again import Written, n_responses
from tda_bias.responses.echo import EchoClasses, echo_classes
from tda_bias.responses.effects import SIDES
from tda_bias.show.text import counted
from tda_bias.types import InputError

EFFECT, DECISION = "response_effect", "decision"
# The largest probability of names going on, so that something else is left.
_ALMOST_ONE = 1 - 1e-9


class RespondEffect:
    """Effect of the group on decisions and responses, as an outcome of removing heads.

    ``decision`` is the mean over prompts of the difference between the groups in the log-odds of
    the good answer, as ``respond`` prints it. ``response_effect`` is read along the responses that
    the unchanged model wrote: how much likelier each is about the other person of its own group
    than about those of the other one, echo left out, nats per response, mean over prompts. Of the
    unchanged model this estimates the response effect (twins minus placebos) from log-ratios.

    Args:
        model: A causal language model.
        written: Prompts with their people, and responses to them; see ``written_again``.
        batch_size: Texts per forward pass.

    Raises:
        InputError: if the model is of another kind, or there is neither a decision nor a response.
    """

    name = "respond"

    def __init__(
        self, model: LanguageModel, written: Sequence[Written], *, batch_size: int = 32
    ) -> None:
        require_kind(model, ("causal",), "responses are read from")
        self.written = written
        if not n_responses(written) and all(one.answers is None for one in written):
            raise InputError("there is neither a decision nor a response to be read")
        self._trees = _trees(model, written)
        self.readings = planned(
            model,
            [own.tree for own in self._trees],
            [],
            batch_size=batch_size,
            texts_per_tree=max(1, *(len(one.responses) for one in written)),
        )

    @property
    def names(self) -> list[str]:
        """The numbers that have slopes: of responses where there are any, and of decisions."""
        there = (n_responses(self.written) > 0, any(one.answers for one in self.written))
        return [name for name, some in zip((EFFECT, DECISION), there, strict=True) if some]

    @property
    def read(self) -> str:
        """Numbers of responses and of decisions that are read, in words."""
        n, decisions = n_responses(self.written), sum(bool(one.answers) for one in self.written)
        responses = f"{counted(n, 'response')} of the unchanged model"
        return f"{responses} and {counted(decisions, 'decision')}"

    def summary(self, values: Values) -> dict[str, float]:
        """The response effect, the difference of decisions, and the mass of both answers."""
        both = [(own, own.places(read)) for own, read in zip(self._trees, values, strict=True)]
        total = np.sum([own.weight @ places for own, places in both], axis=0)
        numbers = dict(zip((EFFECT, DECISION), map(float, total), strict=True))
        found = {name: numbers[name] for name in self.names}
        if DECISION in found:
            masses = [np.exp(places[own.is_answer]).sum() for own, places in both]
            found["decision_mass"] = float(np.sum(masses) / sum(own.decides for own in self._trees))
        return found

    def slopes(self, values: Values) -> dict[str, Values]:
        """Derivatives of the response effect and of decisions by every reading."""
        slopes = [own.slopes(read) for own, read in zip(self._trees, values, strict=True)]
        every = {EFFECT: [one[0] for one in slopes], DECISION: [one[1] for one in slopes]}
        return {name: every[name] for name in self.names}


@dataclass(frozen=True)
class _Tree:
    """What is read of a prompt about one person: responses about the others, and its answers.

    A *place* is a token of a response, or an answer. Its value is the log-probability of the class
    of counterparts that holds the token (of it alone where none does), given that no name goes on.

    Attributes:
        tree: The tokens.
        place: Of each reading, which place it belongs to.
        goes_on: Whether it is a token by which a name goes on.
        weight: Of each place in the response effect, and in the difference of decisions.
        is_answer: Whether a place is an answer.
    """

    tree: TokenTree
    place: Int[np.ndarray, " reading"]
    goes_on: Bool[np.ndarray, " reading"]
    weight: Float[np.ndarray, "number place"]
    is_answer: Bool[np.ndarray, " place"]

    @property
    def decides(self) -> bool:
        """Tell whether it holds answers."""
        return bool(self.is_answer.any())

    def _left(self, values: Float[np.ndarray, " reading"]) -> Float[np.ndarray, " place"]:
        """Probability that no name goes on."""
        on = np.zeros(len(self.is_answer))
        np.add.at(on, self.place[self.goes_on], np.exp(values[self.goes_on]))
        return 1 - np.minimum(on, _ALMOST_ONE)

    def places(self, values: Float[np.ndarray, " reading"]) -> Float[np.ndarray, " place"]:
        """The value of every place, from its readings."""
        total, said = np.full(len(self.is_answer), -np.inf), ~self.goes_on
        np.logaddexp.at(total, self.place[said], values[said])
        return np.asarray(total - np.log(self._left(values)))

    def slopes(self, values: Float[np.ndarray, " reading"]) -> Float[np.ndarray, "number reading"]:
        """Derivatives of the weighted sums of places by every reading."""
        left = self._left(values)
        said = self.places(values) + np.log(left)
        by_reading = np.exp(values) / np.where(
            self.goes_on, left[self.place], np.exp(said)[self.place]
        )
        return np.asarray(self.weight[:, self.place] * by_reading)


def _trees(model: LanguageModel, written: Sequence[Written]) -> list[_Tree]:
    """A tree for every prompt and person of whom something is read."""
    n_written = sum(bool(one.responses) for one in written)
    n_decisions = sum(one.answers is not None for one in written)
    trees = []
    for one in written:
        classes = echo_classes(model, one.names)
        for person in range(len(one.names)):
            maker = _Maker(one.asked.ids[person], classes)
            for response, weight in _weighted(one, person):
                maker.add_response(response, weight / max(n_written, 1))
            if one.answers is not None:
                maker.add_answers(one.answers, SIDES[0][person] / 2 / n_decisions)
            trees.append(maker.tree())
    return trees


def _weighted(one: Written, reader: int) -> list[tuple[tuple[int, ...], float]]:
    """Responses about the others than the reader, with their weights in the prompt's effect.

    A response about a person counts 1 as the other of that group reads it, and -1/2 as each of the
    other group does; all that are about a person count together as one of four.
    """
    number = np.bincount(one.whose, minlength=len(one.names))
    return [
        (ids, (1.0 if whose // 2 == reader // 2 else -0.5) / 4 / int(number[whose]))
        for ids, whose in zip(one.responses, one.whose, strict=True)
        if whose != reader
    ]


class _Maker:
    """Gathers what is read of a prompt about a person."""

    def __init__(self, prompt: Sequence[int], classes: EchoClasses) -> None:
        self._prompt, self._classes = list(prompt), classes
        self._of = dict(zip(classes.token.tolist(), classes.of.tolist(), strict=True))
        self._texts: list[list[int]] = []
        # Of each reading: its text, the token before it, itself, its place, whether it goes on.
        self._readings: list[tuple[int, int, int, int, bool]] = []
        self._weights: list[tuple[float, float]] = []
        self._answers: list[bool] = []

    def add_response(self, ids: Sequence[int], weight: float) -> None:
        """Read a response, whose places weigh so much in the response effect."""
        text = len(self._texts)
        self._texts.append([*self._prompt, *ids])
        for number, (token, going) in enumerate(
            zip(ids, self._classes.names_go_on(list(ids)), strict=True)
        ):
            if token not in going:  # else all of it is echo
                at = len(self._prompt) + number - 1
                self._add_place(text, at, self._class_of(token, going), going, (weight, 0.0))

    def add_answers(self, answers: Sequence[Sequence[int]], weight: float) -> None:
        """Read the answers behind the prompt: the good one, and the other."""
        text = len(self._texts)
        self._texts.append([*self._prompt, self._prompt[-1]])
        for tokens, sign in zip(answers, (1.0, -1.0), strict=True):
            self._add_place(text, len(self._prompt) - 1, tokens, (), (0.0, sign * weight), True)

    def _class_of(self, token: int, going: Sequence[int]) -> list[int]:
        if token not in self._of:
            return [token]
        return [one for one, of in self._of.items() if of == self._of[token] and one not in going]

    def _add_place(
        self,
        text: int,
        at: int,
        tokens: Sequence[int],
        going: Sequence[int],
        weight: tuple[float, float],
        answer: bool = False,
    ) -> None:
        place = len(self._weights)
        self._weights.append(weight)
        self._answers.append(answer)
        for goes_on, some in ((False, tokens), (True, going)):
            self._readings += [(text, at, token, place, goes_on) for token in some]

    def tree(self) -> _Tree:
        """The tree of all texts, whose readings are those that were added, in their order."""
        tokens, parent, ends = merge([text[:-1] for text in self._texts])
        paths = [path_to(int(end), parent) for end in ends]
        read = self._readings
        return _Tree(
            TokenTree(
                tokens,
                parent,
                np.array([paths[text][at] for text, at, *_ in read], np.int64),
                np.array([token for _, _, token, _, _ in read], np.int64),
            ),
            np.array([place for *_, place, _ in read], np.int64),
            np.array([goes_on for *_, goes_on in read], bool),
            np.array(self._weights, float).reshape(-1, 2).T,
            np.array(self._answers, bool),
        )
