"""Does removing a head change what the model says?

A head is removed by replacing its output (before the output projection) with its mean over the
unrelated texts, or with zero. What changes is read from the same texts: the preference for the
stereotype, the part of it that is about the target (beta, against the twins), and the price in
language modelling. Beside the exact effect of chosen heads stand first-order estimates for every
head (``first_order``).

Of encoder-decoders, the heads are those of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.ablation.first_order import FirstOrder, first_order, slopes
from tda_bias.ablation.removal import HeadRemover
from tda_bias.models.attention import attention_layers
from tda_bias.models.hooks import head_means
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import refuse_undefined
from tda_bias.models.precision import Precision
from tda_bias.models.scoring import TreePass
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore, texts_hash
from tda_bias.runs.work import Job
from tda_bias.scores.likelihood import TripleReadings, triple_readings
from tda_bias.types import HeadId, InputError, Triple

Ablation = Literal["mean", "zero"]
# A backward pass costs about two forward ones.
_READINGS_OF_A_GRADIENT = 3


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of a model on triples, per triple.

    Attributes:
        continuation: Log-probabilities of the continuations, in the order of ``ROLES``; of masked
            models pseudo-log-likelihoods.
        context: Log-probability of the context's tokens after the first; 0 of none.
        n_tokens: Numbers of tokens of the three continuations and of the context, which only causal
            models read.
        twin_log_odds: Mean log-odds of the triple's twins; NaN where it has none.
    """

    continuation: Float[np.ndarray, "triple role"]
    context: Float[np.ndarray, " triple"]
    n_tokens: Int[np.ndarray, "triple part"]
    twin_log_odds: Float[np.ndarray, " triple"]

    @property
    def log_odds(self) -> Float[np.ndarray, " triple"]:
        """Log P(stereotype) - log P(anti-stereotype), nats."""
        return np.asarray(self.continuation[:, 0] - self.continuation[:, 1])

    @property
    def beta(self) -> Float[np.ndarray, " triple"]:
        """Log-odds minus the mean log-odds of the twins, nats; NaN where there are none."""
        return np.asarray(self.log_odds - self.twin_log_odds)

    def summary(self) -> dict[str, float]:
        """Mean log-odds, beta, stereotype and language-model score, log-perplexities.

        Scores are over items, ties one half; ``log_ppl_unrelated`` and ``log_ppl_context`` are mean
        negative log-probabilities per token, nats. ``beta`` and ``log_ppl_context`` are there only
        where something of the kind was read.
        """
        s, a, u = self.continuation.T
        tokens = self.n_tokens.sum(0)
        values = {"log_odds": float(self.log_odds.mean())}
        if np.isfinite(self.twin_log_odds).any():
            values["beta"] = float(np.nanmean(self.beta))
        values |= {
            "ss": 50 * float(np.mean(np.sign(s - a) + 1)),
            "lms": 25 * float(np.mean(np.sign(s - u) + np.sign(a - u) + 2)),
            "log_ppl_unrelated": -float(u.sum() / tokens[2]),
        }
        if tokens[3]:
            values["log_ppl_context"] = -float(self.context.sum() / tokens[3])
        return values


class Ablator:
    """Runs a language model on triples with and without heads.

    Args:
        model: A causal, masked or sequence-to-sequence language model. It need not be hooked;
            without hooks it is faster.
        triples: The texts.
        twins: Per triple its twins, none or more; empty for no twins at all.
        ablation: ``mean`` over all places of the unrelated texts, or ``zero``.
        batch_size: Texts per forward pass.
        precision: Of matrix products while heads are removed; ``bfloat16`` is faster where the
            hardware has instructions for it. First-order estimates and means of heads are of
            single precision.

    Raises:
        InputError: if ``ablation`` is not known, the model is no such language model, is in another
            precision already or keeps its heads in a way that is not known, or a text does not fit.
    """

    def __init__(
        self,
        model: LanguageModel,
        triples: Sequence[Triple],
        *,
        twins: Sequence[Sequence[Triple]] = (),
        ablation: Ablation = "mean",
        batch_size: int = 32,
        precision: Precision = "float32",
    ) -> None:
        if ablation not in get_args(Ablation):
            raise InputError(f"`ablation` must be mean or zero; got {ablation!r}")
        self.model, self.ablation = model, ablation
        self.readings = triple_readings(model, triples, twins, batch_size=batch_size)
        self.layers = attention_layers(model)
        self.replacement: Float[Tensor, "layer head d"] | None = None
        if ablation == "mean":
            self.replacement = head_means(
                model, self.layers, self.readings.unrelated, batch_size=batch_size
            )
        self.precision = precision
        self._remover = HeadRemover(model, self.layers, self.replacement, precision=precision)

    @property
    def packed(self) -> bool:
        """Tell whether a triple's texts are run as one row."""
        return self.readings.packed

    @property
    def n_layers(self) -> int:
        """Layers with heads."""
        return len(self.layers)

    def check(self, heads: Sequence[HeadId]) -> None:
        """Refuse heads the model does not have.

        Raises:
            InputError: naming the first.
        """
        self._remover.check(heads)

    def removed(self, heads: Sequence[HeadId]) -> AbstractContextManager[None]:
        """The model without some heads, for whatever runs inside.

        Raises:
            InputError: if a head does not exist, or the output of a removed head was what replaced
                it in every place.
        """
        return self._remover.removed(heads)

    def parts(
        self, jobs: Sequence[Job], store: PartStore | None = None, progress: Progress | None = None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The arrays of jobs; saved ones as they are.

        Args:
            jobs: The parts, as ``removals`` and ``slope_parts`` give them.
            store: Where finished ones are kept; nowhere if None.
            progress: As ``PartStore.each`` calls it.
        """
        store = store or PartStore(None, {})
        return store.each(jobs, progress=progress)

    def without(
        self,
        sets: Sequence[Sequence[HeadId]],
        *,
        share: bool = True,
        store: PartStore | None = None,
        progress: Progress | None = None,
    ) -> list[Outcomes]:
        """Outcomes without each set of heads; the empty set is the unchanged model.

        Args:
            sets: Heads to remove together.
            share: Run once what sets share; False runs the whole model for each, for comparison.
            store: Where finished batches of texts are kept, for a run that is started again.
            progress: Called with tokens read and to read, each as often as there are sets.

        Raises:
            InputError: if a head does not exist, removing it changes nothing, or a log-probability
                is NaN.
        """
        jobs = self.removals(sets, share=share)
        return self.outcomes(sets, self.parts(jobs, store, progress))

    def removals(self, sets: Sequence[Sequence[HeadId]], *, share: bool = True) -> list[Job]:
        """The parts that ``outcomes`` is made of, batch by batch of texts; see ``without``."""
        for heads in sets:
            self.check(heads)
        about = {"heads": [[str(head) for head in heads] for heads in sets]}
        return self._jobs(
            "pass", about, lambda tree_pass: self.read(tree_pass, sets, share=share), len(sets)
        )

    def outcomes(
        self, sets: Sequence[Sequence[HeadId]], parts: Iterable[Mapping[str, np.ndarray]]
    ) -> list[Outcomes]:
        """Outcomes without each set of heads, from the parts of ``removals``."""
        readings = self.readings
        read = [[np.full(len(part), np.nan) for part in readings.part] for _ in sets]
        for make, arrays in zip(readings.passes, parts, strict=True):
            tree_pass = make()
            ends = np.cumsum([len(which) for which in tree_pass.readings])[:-1]
            for index, of_set in enumerate(arrays["values"]):
                split = np.split(of_set, ends)
                for text, which, value in zip(
                    tree_pass.tree, tree_pass.readings, split, strict=True
                ):
                    read[index][text][which] = value
        return [outcomes(readings, values) for values in read]

    def _jobs(
        self,
        name: str,
        about: Mapping[str, Any],
        read: Callable[[TreePass], Float[np.ndarray, "..."]],
        times: int,
    ) -> list[Job]:
        """One part per batch of texts, which is made when it is needed and not kept.

        Its cost is the number of tokens, as many ``times`` as the model reads them.
        """

        def depends_on(make: Callable[[], TreePass]) -> dict[str, Any]:
            return {"texts": self._texts_hash(make()), "packed": self.packed, **self.about, **about}

        return [
            Job(
                f"{name} {number}",
                float(tokens) * times,
                cache(partial(depends_on, make)),
                lambda make=make: {"values": read(make())},  # type: ignore[misc]
            )
            for number, (make, tokens) in enumerate(
                zip(self.readings.passes, self.readings.tokens, strict=True)
            )
        ]

    def read(
        self, tree_pass: TreePass, sets: Sequence[Sequence[HeadId]], *, share: bool = True
    ) -> Float[np.ndarray, "set reading"]:
        """The readings of one batch of texts without each set of heads; see ``without``."""
        values = self._remover.read(tree_pass, sets, share=share)
        refuse_undefined(self.model, values)
        return values

    @property
    def about(self) -> dict[str, Any]:
        """How heads are removed, as saved parts name it."""
        replacement = _hash_of(self.readings.unrelated) if self.ablation == "mean" else 0
        return {"replacement": replacement, "precision": self.precision}

    def slopes(self, tree_pass: TreePass) -> Float[np.ndarray, "3 row layer head"]:
        """Contribution of one batch of texts to the first-order estimates, row by row."""
        return slopes(self.model, self.layers, self.readings, self.replacement, tree_pass)

    def first_order(self, parts: Iterable[Mapping[str, np.ndarray]] | None = None) -> FirstOrder:
        """Estimates for every head; see ``FirstOrder``.

        Args:
            parts: Those of ``slope_parts``, where they are kept; computed now if None.
        """
        if parts is None:
            parts = self.parts(self.slope_parts())
        rows = (arrays["values"] for arrays in parts)
        return first_order(self.model, self.layers, self.readings, rows)

    def slope_parts(self) -> list[Job]:
        """The parts that ``first_order`` is made of, batch by batch of texts."""
        return self._jobs("slopes", {}, self.slopes, _READINGS_OF_A_GRADIENT)

    def _texts_hash(self, tree_pass: TreePass) -> str:
        """Of everything a pass reads, in order."""
        parts: list[Any] = [
            value.tolist() for value in tree_pass.inputs.values() if hasattr(value, "tolist")
        ]
        parts += [
            tree_pass.places.tolist(),
            tree_pass.place.tolist(),
            tree_pass.token.tolist(),
            tree_pass.tree,
        ]
        return texts_hash([tuple(parts)])


def outcomes(readings: TripleReadings, values: Sequence[Float[np.ndarray, " reading"]]) -> Outcomes:
    """Readings of all triples and twins, put together."""
    total, count = readings.sums(values)
    n = readings.n_triples
    odds = total[n:, 0] - total[n:, 1]
    number = np.bincount(readings.twin_of, minlength=n)
    twins = np.full(n, np.nan)
    there = number > 0
    twins[there] = (np.bincount(readings.twin_of, odds, n) / np.maximum(number, 1))[there]
    return Outcomes(total[:n, :3], total[:n, 3], count[:n], twins)


def _hash_of(texts: Sequence[Sequence[int]]) -> str:
    return texts_hash([(list(ids),) for ids in texts])


def change(summary: Mapping[str, float], base: Mapping[str, float]) -> dict[str, float]:
    """Change of each summary."""
    return {f"d_{name}": summary[name] - base[name] for name in base}
