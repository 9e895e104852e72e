"""Effects of removing heads on what a model says: exact for chosen sets, estimated for every head.

A head is removed by replacing its output (before the output projection) with its mean over the
unrelated texts, or with zero. What changes is read from the same texts: the preference for the
stereotype, the part of it that is about the target (beta, against the twins), and the price in
language modelling. Of encoder-decoders, the heads are those of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from tda_bias.ablation.effects import FORWARD_AND_BACKWARD, HeadEffects
from tda_bias.ablation.readings import triple_readings
from tda_bias.models.attention import writes_to_the_stream
from tda_bias.models.load import LanguageModel
from tda_bias.models.scoring import TreePass
from tda_bias.scores.stereoset import language_wins, preferred
from tda_bias.store.cache import Cache, Part
from tda_bias.types import Ablation, HeadId, Precision, Triple

# Weight of each part of a text in the log-odds: stereotype, anti-stereotype, unrelated, context.
_SIGN = np.array([1.0, -1.0, 0.0, 0.0])


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
            "ss": 100 * float(np.mean(preferred(s, a))),
            "lms": 100 * float(np.mean(language_wins(s, a, u))),
            "log_ppl_unrelated": -float(u.sum() / tokens[2]),
        }
        if tokens[3]:
            values["log_ppl_context"] = -float(self.context.sum() / tokens[3])
        return values


@dataclass(frozen=True)
class FirstOrder:
    """First-order estimates for every head; NaN for layers without attention.

    A head's output is moved a small step toward what would replace it; the slope times the whole
    way is the estimate, from one backward pass per batch of texts.

    Attributes:
        effect: Change of the mean log-odds on removal, nats (attribution patching).
        beta: Change of the mean beta, the log-odds of triples minus that of their twins, over
            triples that have twins; NaN where none has.
        importance: Mean size of the change in the loss of all texts if the head's output were
            gated off, per item (Michel et al. 2019).
        direct: The part of ``effect`` that goes straight to the output, past all later layers, to
            first order (the direct effect in the sense of Vig et al. 2020). NaN where heads do not
            write to the residual stream as they are: after a normalisation, or in an encoder that
            a decoder reads.
    """

    effect: Float[np.ndarray, "layer head"]
    beta: Float[np.ndarray, "layer head"]
    importance: Float[np.ndarray, "layer head"]
    direct: Float[np.ndarray, "layer head"]


class Ablator(HeadEffects):
    """Runs a language model on triples with and without heads.

    Args:
        model: A causal, masked or sequence-to-sequence language model; faster without hooks.
        triples: The texts.
        twins: Per triple its twins, none or more; empty for no twins at all.
        ablation: ``mean`` over all places of the unrelated texts, or ``zero``.
        batch_size: Texts per forward pass.
        precision: Of matrix products while heads are removed. First-order estimates and means of
            heads are of single precision.

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
        self.triples, self.twins = triples, twins
        self.readings = triple_readings(model, triples, twins, batch_size=batch_size)
        super().__init__(
            model,
            self.readings.unrelated,
            ablation=ablation,
            batch_size=batch_size,
            precision=precision,
        )

    def only(self, chosen: Bool[np.ndarray, " triple"]) -> Ablator:
        """An ablator of some of the triples alone: means of heads are of their texts too."""
        places: list[int] = np.flatnonzero(chosen).tolist()
        return Ablator(
            self.model,
            [self.triples[i] for i in places],
            twins=[self.twins[i] for i in places] if self.twins else (),
            ablation=self.ablation,
            batch_size=self.batch_size,
            precision=self.precision,
        )

    # -- exact effects of sets of heads --

    def without(self, sets: Sequence[Sequence[HeadId]]) -> list[Outcomes]:
        """Outcomes without each set of heads; the empty set is the unchanged model.

        Raises:
            InputError: if a head does not exist, removing it changes nothing, or a log-probability
                is NaN.
        """
        return self.outcomes(sets, Cache().each(self.removals(sets)))

    def removals(self, sets: Sequence[Sequence[HeadId]]) -> list[Part]:
        """The parts that ``outcomes`` is made of, batch by batch of texts; see ``without``."""
        return self.removal_parts(self.readings, sets)

    def outcomes(
        self, sets: Sequence[Sequence[HeadId]], arrays: Iterable[Mapping[str, np.ndarray]]
    ) -> list[Outcomes]:
        """Outcomes without each set of heads, from the arrays of ``removals``."""
        return [self._outcomes(values) for values in self.readings.by_tree(arrays, len(sets))]

    def _outcomes(self, values: Sequence[Float[np.ndarray, " reading"]]) -> Outcomes:
        """Readings of all triples and twins, put together."""
        total, count = self.readings.sums(values)
        n, twin_of = self.readings.n_triples, self.readings.twin_of
        number = np.bincount(twin_of, minlength=n)
        sums = np.bincount(twin_of, total[n:, 0] - total[n:, 1], n)
        twins = np.divide(sums, number, out=np.full(n, np.nan), where=number > 0)
        return Outcomes(total[:n, :3], total[:n, 3], count[:n], twins)

    # -- first-order estimates for every head --

    def slope_parts(self) -> list[Part]:
        """The parts that ``first_order`` is made of, batch by batch of texts."""
        return self.readings.parts("slopes", self.about, self._slopes, times=FORWARD_AND_BACKWARD)

    def first_order(self, arrays: Iterable[Mapping[str, np.ndarray]] | None = None) -> FirstOrder:
        """Estimates for every head, from the arrays of ``slope_parts``; computed now if None."""
        if arrays is None:
            arrays = Cache().each(self.slope_parts())
        readings, layers = self.readings, self.layers
        total = np.zeros((3, len(readings.part), len(layers), layers[0].n_heads))
        for make, of_pass in zip(readings.passes, arrays, strict=True):
            for place, tree in enumerate(make().tree):
                total[:, tree] += of_pass["values"][:, place]
        n = readings.n_triples
        effect, loss, direct = total[:, :n]
        if not writes_to_the_stream(self.model, layers):
            direct = np.full_like(direct, np.nan)
        beta = _beta(effect, total[0, n:], readings.twin_of)
        estimates = effect.mean(0), beta, np.abs(loss).mean(0), direct.mean(0)
        return FirstOrder(*self.by_number(np.stack(estimates)))

    def _slopes(self, tree_pass: TreePass) -> Float[np.ndarray, "3 row layer head"]:
        """Effects on the log-odds and the loss of one pass, row by row, and the direct part."""
        texts = zip(tree_pass.tree, tree_pass.readings, strict=True)
        part = np.concatenate([self.readings.part[text][which] for text, which in texts])
        values, seen = self.read_with_gradients(tree_pass)
        sign = torch.from_numpy(_SIGN[part]).to(values)
        *odds, final = torch.autograd.grad((sign * values).sum(), seen, retain_graph=True)
        loss = torch.autograd.grad(-values.sum(), seen[:-1])
        estimates = torch.zeros(
            3, len(tree_pass.tree), len(self.layers), self.layers[0].n_heads, dtype=torch.float64
        )
        for index, layer in enumerate(self.layers):
            z, slope = (layer.by_head(x).detach() for x in (seen[index], odds[index]))
            change = self.change(index, z)
            estimates[0, :, index] = (change * slope).double().sum((1, 3)).cpu()
            estimates[1, :, index] = (z * layer.by_head(loss[index])).double().sum((1, 3)).cpu()
            written = layer.written(change).detach()
            if written.shape[1] == final.shape[1]:
                estimates[2, :, index] = (written * final[:, :, None]).double().sum((1, 3)).cpu()
        return estimates.numpy()


def _beta(
    effect: Float[np.ndarray, "triple layer head"],
    twins: Float[np.ndarray, "twin layer head"],
    twin_of: Int[np.ndarray, " twin"],
) -> Float[np.ndarray, "layer head"]:
    """Effect on triples minus the mean effect on their twins, over triples with twins."""
    number = np.bincount(twin_of, minlength=len(effect))
    if not number.any():
        return np.full(effect.shape[1:], np.nan)
    weight = (number > 0).astype(float)
    total = np.tensordot(weight, effect, 1) - np.tensordot(1 / number[twin_of], twins, 1)
    return np.asarray(total / weight.sum())
