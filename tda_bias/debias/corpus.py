"""Texts of an experiment: items, neutral text, texts of other categories, pairs that guard.

And what the untouched model predicts on them, which holds it where it is while it learns.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tda_bias.debias.loss import divergence
from tda_bias.debias.protocol import Fold, Protocol
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.hooks import Computing, stopped_before
from tda_bias.models.language_model import padded, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import is_linear, log_probs_with_gradients, logits_at
from tda_bias.pairs.pair import PairSet
from tda_bias.runs.text import counted
from tda_bias.scores.perplexity import Windows, text_windows
from tda_bias.scores.texts import split_triples
from tda_bias.sources import load_neutral_text
from tda_bias.stats.resampling import generator
from tda_bias.types import InputError, Triple

T = TypeVar("T")
# Triples of other categories that hold the model, and of each category that test whether its own
# bias changed.
_LEARN, _REPORT = 96, 24
SELF = "self"
# Words that passages begin with, passages that are written side by side, and that are read so.
_FIRST_WORDS, _SIDE_BY_SIDE, _BATCH = 2000, 32, 8


@dataclass(frozen=True)
class NeutralPassages:
    """Passages of neutral text in three parts that share no token.

    Attributes:
        learn: What the divergence from the original is held down on.
        watch: What the perplexity is watched on while training.
        report: What it is reported on.
        source: ``self`` for passages that the model wrote, else where the text was read.
        revision: What pins its content.
    """

    learn: Windows
    watch: Windows
    report: Windows
    source: str
    revision: str | None

    def record(self) -> dict[str, Any]:
        """The source, and the number of passages of each part."""
        return {
            "source": self.source, "revision": self.revision, "width": self.learn.width,
            "learn": len(self.learn.ids), "watch": len(self.watch.ids),
            "report": len(self.report.ids),
        }  # fmt: skip


@dataclass(frozen=True)
class Domain:
    """Triples of other categories, in three parts that share no target.

    Attributes:
        learn: Token ids of whole texts, on which the divergence from the original is held down.
        watch: Items that count in the language-model score while training.
        report: Items with a twin by category, to see whether other biases changed.
    """

    learn: list[list[int]]
    watch: TwinTexts
    report: Mapping[str, TwinTexts]


@dataclass(frozen=True)
class Corpus:
    """All texts of an experiment.

    Attributes:
        items: Items with twins, and the untouched model.
        neutral: Neutral text in three parts.
        domain: Texts of other categories; None where the data has none.
        pairs: Minimal pairs by name; how many are preferred rightly may fall by a point.
    """

    items: TwinTexts
    neutral: NeutralPassages
    domain: Domain | None = None
    pairs: Mapping[str, PairSet] = field(default_factory=dict)

    @property
    def model(self) -> LanguageModel:
        """The model."""
        return self.items.model


def domain_texts(
    model: LanguageModel,
    others: Sequence[tuple[Triple, Sequence[Triple]]],
    *,
    n_watch: int = 48,
    batch_size: int = 32,
    seed: int = 0,
) -> Domain | None:
    """Texts of other categories, given with their twins: each category's targets in three parts.

    Of the second part at most ``n_watch`` triples count in the language-model score.
    """
    parts: list[list[tuple[Triple, Sequence[Triple]]]] = [[], []]
    report: dict[str, TwinTexts] = {}
    for category in sorted({triple.category for triple, _ in others}):
        triples = [own for own in others if own[0].category == category]
        targets = sorted({triple.group for triple, _ in triples})
        order = generator(seed, "other categories", category).permutation(len(targets))
        thirds = [{targets[i] for i in part} for part in np.array_split(order, 3)]
        for part, third in zip(parts, thirds[:2], strict=True):
            part += [own for own in triples if own[0].group in third]
        tested = _spread([own for own in triples if own[0].group in thirds[2] and own[1]], _REPORT)
        if tested:
            items, twins = [t for t, _ in tested], [its_twins[:1] for _, its_twins in tested]
            report[category] = TwinTexts(model, items, twins, batch_size=batch_size)
    learn, watch = _spread(parts[0], _LEARN), _spread(parts[1], n_watch)
    if not learn or not watch:
        return None
    leading = special_tokens_around(model.tokenizer)[0]
    texts = split_triples(model, [triple for triple, _ in learn])
    watched = TwinTexts(model, [t for t, _ in watch], [()] * len(watch), batch_size=batch_size)
    return Domain([[*leading, *ids] for text in texts for ids in text.ids], watched, report)


def _spread(items: Sequence[T], at_most: int) -> list[T]:
    """At most so many items, evenly over all."""
    places = np.linspace(0, len(items) - 1, min(at_most, len(items))).round().astype(int)
    return [items[int(i)] for i in places]


# -- neutral text ----------------------------------------------------------------------------------


def neutral_text(
    model: LanguageModel,
    source: str = SELF,
    *,
    n_learn: int = 96,
    n_watch: int = 32,
    width: int = 64,
    seed: int = 0,
) -> NeutralPassages:
    """Neutral text for a model.

    Args:
        model: A causal language model.
        source: ``self``: passages that the model itself writes, from which any model's divergence
            can be estimated without other texts; or ``wikitext2``, or a text file.
        n_learn: Passages to learn from.
        n_watch: Passages to watch, and as many to report on.
        width: Tokens of a passage.
        seed: Of what is written or drawn.

    Raises:
        InputError: if the text cannot be read, or is too short for three parts.
    """
    sizes = {"learn": n_learn, "watch": n_watch, "report": n_watch}
    if source == SELF:
        parts, ids = {}, written_passages(model, sum(sizes.values()), width, seed=seed)
        for name, n in sizes.items():
            rows, ids = tuple(map(tuple, ids[:n])), ids[n:]
            parts[name] = Windows(rows, (1,) * n, 0, width, width, n)
        return NeutralPassages(**parts, source=SELF, revision=f"seed {seed}")
    text = load_neutral_text(source)
    n_leading = min(len(special_tokens_around(model.tokenizer)[0]), width - 2)
    whole = text_windows(model, text.text, width=width, stride=width - n_leading)
    if whole.of < sum(sizes.values()):
        raise InputError(
            f"the neutral text {source} gives {counted(whole.of, 'passage')} of {width} tokens; "
            f"{sum(sizes.values())} are needed, in three parts"
        )
    # Parts follow each other in the text: what is reported on lies far from what was learned.
    cuts = np.linspace(0, whole.of, 4).astype(int)
    rng = np.random.default_rng(seed)
    parts = {}
    for (name, n), a, b in zip(sizes.items(), cuts, cuts[1:], strict=False):
        drawn = np.sort(rng.choice(np.arange(a, b), min(n, b - a), replace=False))
        parts[name] = replace(
            whole,
            ids=tuple(whole.ids[i] for i in drawn),
            first=tuple(whole.first[i] for i in drawn),
        )
    return NeutralPassages(**parts, source=text.source, revision=text.revision)


@torch.inference_mode()
def written_passages(model: LanguageModel, n: int, width: int, *, seed: int = 0) -> list[list[int]]:
    """Passages that a causal model writes: token by token, drawn from its own probabilities.

    Each begins with a capitalised word of its vocabulary, so that no two need be alike.

    Raises:
        InputError: if the vocabulary has too few such words.
    """
    model.check_length(width)
    rng = torch.Generator().manual_seed(seed)
    words = _first_words(model)[:_FIRST_WORDS]
    begin = [words[int(i)] for i in torch.randint(len(words), (n,), generator=rng)]
    hf_model: Any = model.hf_model
    written = []
    for start in range(0, n, _SIDE_BY_SIDE):
        rows = torch.tensor(begin[start : start + _SIDE_BY_SIDE], device=model.device)[:, None]
        last, past = rows, None
        for _ in range(width - 1):
            output = hf_model(input_ids=last, past_key_values=past, use_cache=True)
            past = output.past_key_values
            chances = torch.softmax(output.logits[:, -1].double(), -1).cpu()
            last = torch.multinomial(chances, 1, generator=rng).to(model.device)
            rows = torch.cat([rows, last], 1)
        written += rows.tolist()
    return written


def _first_words(model: LanguageModel) -> list[int]:
    special = set(model.tokenizer.all_special_ids)
    vocabulary = sorted(model.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    plain = [(token.strip("Ġ▁ "), number) for token, number in vocabulary if number not in special]
    capitalised = [i for word, i in plain if word.isascii() and word.isalpha() and word.istitle()]
    if len(capitalised) < 2:
        raise InputError(
            f"`text` self: {model.name} has no capitalised words in its vocabulary to begin "
            "passages with; give a text file"
        )
    return capitalised


# -- what holds the model where it is --------------------------------------------------------------


class Retention:
    """The divergence of a model, which is not yet changed, from what it was, over some texts.

    The original's predictions are kept as the input of the output embeddings where these are all
    that follows (one row of the model's width per token), else as logits. Of output embeddings
    that will be trained too (``head_changes``) a copy is kept.
    """

    def __init__(
        self,
        model: LanguageModel,
        texts: Sequence[Sequence[int]],
        *,
        head_changes: bool = False,
    ) -> None:
        self._model = model
        self._ids = [list(text) for text in texts]
        head: Any = model.hf_model.get_output_embeddings()
        inputs = _inputs(model, self._ids[:1])
        place = torch.zeros(1, dtype=torch.long, device=model.device)
        self._head: nn.Module | None = None
        if is_linear(model.hf_model, inputs, place):
            self._head = copy.deepcopy(head).requires_grad_(False) if head_changes else head
        self._kept: list[Tensor] = []
        for start in range(0, len(self._ids), _BATCH):
            self._kept += self._read(head, self._ids[start : start + _BATCH])

    def __len__(self) -> int:
        return len(self._ids)

    def divergence(self, texts: Sequence[int]) -> Float[Tensor, ""]:
        """KL(original || now), mean over the tokens of some texts, nats."""
        kept = torch.cat([self._kept[i] for i in texts])
        if self._head is not None:
            with torch.no_grad():
                kept = self._head(kept)
        inputs = _inputs(self._model, [self._ids[i] for i in texts])
        places = _real_places(inputs)
        now = logits_at(self._model.hf_model, inputs, places, gradients=True)
        return divergence(kept, now)

    @torch.no_grad()
    def entropy(self, temperature: float = 1.0) -> float:
        """Mean entropy of what was predicted, nats per token, of logits over a temperature."""
        of_texts = []
        for kept in self._kept:
            logits = kept if self._head is None else self._head(kept)
            log_probs = torch.log_softmax(logits.float() / temperature, -1)
            of_texts.append(-(log_probs.exp() * log_probs).sum(-1))
        return float(torch.cat(of_texts).double().mean())

    def next_token_loss(self, texts: Sequence[int]) -> Float[Tensor, ""]:
        """Mean negative log-probability of the next tokens of some texts, nats."""
        return next_token_loss(self._model, [self._ids[i] for i in texts])

    def _read(self, head: nn.Module, ids: Sequence[Sequence[int]]) -> list[Tensor]:
        inputs = _inputs(self._model, ids)
        with torch.no_grad():
            if self._head is None:
                source: Tensor = self._model.hf_model(**inputs).logits
            else:
                with stopped_before(head) as given:
                    self._model.hf_model(**inputs)
                (source,) = given
        real = inputs["attention_mask"].bool()
        return [source[row][real[row]].clone() for row in range(len(ids))]


@dataclass(frozen=True)
class Held:
    """Predictions of the untouched model on neutral text, other categories and training items."""

    neutral: Retention
    domain: Retention | None
    relatedness: Mapping[int, float]


def held_by(
    corpus: Corpus,
    fold: Fold,
    protocol: Protocol,
    *,
    head_changes: bool = False,
    read: Held | None = None,
) -> Held:
    """Read what the untouched model predicts; with a copy of output embeddings that will change.

    Neutral text and other categories are the same in every fold: they are taken from what was
    ``read`` for another one.
    """
    model, domain, items = corpus.model, corpus.domain, fold.train.tolist()
    with Computing(model, protocol.precision).running():
        values = corpus.items.answers(items).relatedness
    relatedness = dict(zip(items, values.tolist(), strict=True))
    if read is not None:
        return replace(read, relatedness=relatedness)
    neutral = Retention(model, corpus.neutral.learn.ids, head_changes=head_changes)
    others = Retention(model, domain.learn, head_changes=head_changes) if domain else None
    return Held(neutral, others, relatedness)


def next_token_loss(model: LanguageModel, texts: Sequence[Sequence[int]]) -> Float[Tensor, ""]:
    """Mean negative log-probability of the next tokens of texts (ids), nats, with gradients."""
    inputs = _inputs(model, texts)
    place = np.delete(np.arange(sum(map(len, texts))), np.cumsum([len(ids) for ids in texts]) - 1)
    following = np.array([token for ids in texts for token in ids[1:]])
    read = log_probs_with_gradients(model.hf_model, inputs, _real_places(inputs), place, following)
    return -read.mean()


def _real_places(inputs: Mapping[str, Tensor]) -> Int[Tensor, " token"]:
    """Places of tokens that are no padding, text by text."""
    return inputs["attention_mask"].flatten().nonzero()[:, 0]


def _inputs(model: LanguageModel, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    ids, mask = padded(texts)
    device = model.device
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "use_cache": False}
