"""Texts of an experiment: items, pairs that guard, texts of other categories, neutral text.

And what the untouched model predicts on them, which holds it where it is while it learns.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tda_bias.debias.protocol import Fold, Preset, Protocol, spread
from tda_bias.debias.texts import TwinTexts, divergence
from tda_bias.models.hooks import Computing, stopped_before
from tda_bias.models.language_model import padded, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import is_linear, log_probs_with_gradients, logits_at
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.pairs.pair import is_evaluation_only
from tda_bias.scores.perplexity import Windows, text_windows
from tda_bias.scores.texts import split_triples
from tda_bias.show.text import counted
from tda_bias.sources import NeutralText, load_neutral_text, of_environment
from tda_bias.stats.seeds import generator
from tda_bias.store.settings import given_as
from tda_bias.triples import Source, read_triples
from tda_bias.twins import Twins, make_twins, twins_in
from tda_bias.types import InputError, Triple

# Triples of other categories that hold the model, and of each category that test whether its own
# bias changed.
_LEARN, _REPORT = 96, 24
SELF = "self"
# Controls that compare texts with their twins.
_NEED_TWINS = {"placebo", "cda", "leace", "steering"}
_GENDER_AGREEMENT = "blimp_gender_agreement"
# Words that passages begin with, and passages that are written side by side.
_FIRST_WORDS, _SIDE_BY_SIDE = 2000, 80
# Neutral passages and texts of other categories in a step: these are a third as long.
_PASSAGES, _OTHERS = 4, 12


@dataclass(frozen=True)
class NeutralPassages:
    """Passages of neutral text in three parts that share no token.

    The divergence from the original is held down on ``learn``, the perplexity watched on ``watch``
    while training and reported on ``report``. The source is ``self`` for passages that the model
    wrote; the revision pins its content.
    """

    learn: Windows
    watch: Windows
    report: Windows
    source: str
    revision: str | None


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
    """All texts of an experiment, and the untouched model; there may be no other categories."""

    items: TwinTexts
    neutral: NeutralPassages
    domain: Domain | None = None
    pairs: Mapping[str, PairSet] = field(default_factory=dict)

    @property
    def model(self) -> LanguageModel:
        """The untouched model."""
        return self.items.model

    def reported_groups(self) -> dict[str, list[str]]:
        """Targets of the items of other categories that are reported, by category."""
        reported = self.domain.report if self.domain is not None else {}
        return {name: [t.group for t in items.triples] for name, items in reported.items()}


# -- texts by the names that settings give them ----------------------------------------------------


def training_source(data: str) -> Source[Triple]:
    """Triples of a source that may be trained on.

    Raises:
        InputError: if the data must not be trained on, or as ``read_triples``.
    """
    refuse_evaluation_only(data)
    return read_triples(data)


def training_texts(
    source: Source[Triple],
    category: str,
    *,
    limit: int | None,
    twins: str,
    controls: Collection[str],
) -> tuple[list[Triple], Twins | None, int]:
    """Triples that can be trained on.

    ``twins`` is ``auto``, ``none``, or a file; some controls need them.

    Returns:
        The triples, their twins, and how many are left out because they have none.

    Raises:
        InputError: if the category is ``all``, a control lacks twins, no triple has one, or as
            ``Source.chosen`` and ``load_twins``.
    """
    if category == "all":
        there = sorted({triple.category for triple in source.items})
        raise InputError(
            f"`category` must be one of {', '.join(there)}, because the others show what else "
            "training changes; got 'all'"
        )
    triples = source.chosen(category=category, limit=limit)
    made = twins_in(source.items, triples, twins)
    if made is None:
        if needing := sorted(_NEED_TWINS.intersection(controls)):
            raise InputError(
                f"`controls` {', '.join(needing)} need twins; give --twins, or --controls without "
                "them"
            )
        return triples, None, 0
    kept = [triple for triple in triples if made.of(triple)]
    if not kept:
        raise InputError(
            f"no triple of `data` {source.name} has a twin: {made.note or 'see tdabias twins'}"
        )
    return kept, made.only(kept), len(triples) - len(kept)


def other_categories(
    source: Source[Triple], category: str, *, limit: int | None
) -> list[tuple[Triple, Sequence[Triple]]]:
    """Triples of the categories that nothing is trained on, with their twins, where there are."""
    others = [triple for triple in source.chosen(limit=limit) if triple.category != category]
    made = make_twins(others)
    return [(triple, made.of(triple)) for triple in others]


def pair_sets(names: str | None, preset: Preset) -> dict[str, PairSet]:
    """Sets of minimal pairs by name: those of ``names`` (with commas, or ``none``), else BLiMP's.

    With the preset ``smoke`` there are none unless they are asked for.

    Raises:
        InputError: as ``load_pairs``, or if two have one name.
    """
    if names is not None:
        sources = [] if names == "none" else [name.strip() for name in names.split(",")]
    else:
        folder = of_environment(_GENDER_AGREEMENT)
        sources = ["blimp", *([str(folder)] if folder else [])] if preset == "full" else []
    found: dict[str, PairSet] = {}
    for source in sources:
        path = Path(source)
        name = path.name if path.is_dir() else path.stem
        if not name or name in found:
            raise InputError(
                "`pairs` must name sets, files or folders with commas between them, no two with "
                f"one name; got {names!r}"
            )
        paradigm = path.is_dir() or '"sentence_good"' in _first_line(path)
        with given_as("pairs"):
            found[name] = load_pairs("blimp", data=path) if paradigm else load_pairs(source)
    return found


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline(10_000)


def refuse_evaluation_only(source: str | Path) -> None:
    """Refuse data that is for evaluation only, by its name or by what it says.

    Raises:
        InputError: if it is CrowS-Pairs, in its own table or as JSON Lines.
    """
    path = Path(source)
    first = _first_line(path)
    by_content = "sent_more" in first or '"set": "crows' in first.replace('":"', '": "')
    if by_content or is_evaluation_only(path.stem):
        raise InputError(
            f"`data` {source} is CrowS-Pairs, which must not be trained on: its data "
            "statement says that it is for evaluation only; train on other texts and evaluate on "
            "these"
        )


# -- texts of other categories ---------------------------------------------------------------------


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
        tested = spread([own for own in triples if own[0].group in thirds[2] and own[1]], _REPORT)
        if tested:
            items, twins = [t for t, _ in tested], [its_twins[:1] for _, its_twins in tested]
            report[category] = TwinTexts(model, items, twins, batch_size=batch_size)
    learn, watch = spread(parts[0], _LEARN), spread(parts[1], n_watch)
    if not learn or not watch:
        return None
    leading = special_tokens_around(model.tokenizer)[0]
    texts = split_triples(model, [triple for triple, _ in learn])
    watched = TwinTexts(model, [t for t, _ in watch], [()] * len(watch), batch_size=batch_size)
    return Domain([[*leading, *ids] for text in texts for ids in text.ids], watched, report)


# -- neutral text ----------------------------------------------------------------------------------


def retention_text(source: str) -> NeutralText:
    """Read a neutral text that may be trained on.

    Raises:
        InputError: as ``load_neutral_text`` and ``refuse_evaluation_only``, about ``text``.
    """
    with given_as("text"):
        refuse_evaluation_only(source)
        return load_neutral_text(source)


def neutral_text(
    model: LanguageModel,
    source: str = SELF,
    *,
    n_learn: int = 96,
    n_watch: int = 32,
    width: int = 64,
    seed: int = 0,
) -> NeutralPassages:
    """Neutral text for a causal model: passages of so many tokens, as many to report as to watch.

    ``self`` are passages that the model itself writes, from which any model's divergence can be
    estimated without other texts; else the source is ``wikitext2`` or a text file.

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
    text = retention_text(source)
    n_leading = min(len(special_tokens_around(model.tokenizer)[0]), width - 2)
    whole = text_windows(model, text.text, width=width, stride=width - n_leading)
    if whole.of < sum(sizes.values()):
        raise InputError(
            f"the neutral text {source} gives {counted(whole.of, 'passage')} of {width} tokens; "
            f"{sum(sizes.values())} are needed, in three parts"
        )
    # Parts follow each other in the text: what is reported on lies far from what was learned.
    cuts = np.linspace(0, whole.of, 4).astype(int)
    rng = generator(seed)
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
            past = getattr(output, "past_key_values", None)
            # Drawn by one number each: `multinomial` draws one for each token of the vocabulary.
            chances = torch.softmax(output.logits[:, -1].double(), -1).cpu().cumsum(-1)
            place = chances[:, -1:] * torch.rand(len(rows), 1, dtype=torch.double, generator=rng)
            drawn = torch.searchsorted(chances, place, right=True).to(model.device)
            rows = torch.cat([rows, drawn], 1)
            last = rows if past is None else drawn  # a model without a cache reads all again
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


# -- the texts of every step -----------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """The texts of a step, as numbers: items, neutral passages, texts of other categories."""

    items: list[int]
    passages: list[int]
    domain: list[int]


def batches(corpus: Corpus, fold: Fold, protocol: Protocol) -> list[Batch]:
    """The texts of every step: the same for every condition of a fold."""
    rng = generator(protocol.seed, "batches", str(fold.number))
    rng_of_domain = generator(protocol.seed, "batches of other categories", str(fold.number))
    n_passages = len(corpus.neutral.learn.ids)
    n_domain = len(corpus.domain.learn) if corpus.domain is not None else 0
    drawn = []
    for _ in range(protocol.epochs):
        order = rng.permutation(fold.train)
        for part in np.array_split(order, protocol.batches(len(order))):
            passages = rng.choice(n_passages, min(_PASSAGES, n_passages), replace=False)
            size = min(_OTHERS, n_domain)
            domain = rng_of_domain.choice(max(1, n_domain), size, replace=False)
            drawn.append(Batch(part.tolist(), passages.tolist(), domain.tolist()))
    return drawn


# -- what holds the model where it is --------------------------------------------------------------


class Retention:
    """The divergence of a model from what it was, over texts that were read before it changed.

    The original's predictions are kept as the input of the output embeddings where these are all
    that follows, else as logits. Of output embeddings that will be trained too (``head_changes``)
    a copy is kept.
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
        self._kept: dict[int, Tensor] = {}

    def read(self, texts: Iterable[int] | None = None) -> Retention:
        """Read what the model, as it is now, predicts on some texts, or all; each only once."""
        wanted = range(len(self._ids)) if texts is None else texts
        # One at a time: rounding depends on the texts beside it, and processes that share the folds
        # read them in different company.
        for text in sorted(set(wanted).difference(self._kept)):
            self._kept[text] = self._read(self._ids[text])
        return self

    def divergence(self, texts: Sequence[int]) -> Float[Tensor, ""]:
        """KL(original || now), mean over the tokens of some texts that were read, nats."""
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
        for kept in self._kept.values():
            logits = kept if self._head is None else self._head(kept)
            log_probs = torch.log_softmax(logits.float() / temperature, -1)
            of_texts.append(-(log_probs.exp() * log_probs).sum(-1))
        return float(torch.cat(of_texts).double().mean())

    def next_token_loss(self, texts: Sequence[int]) -> Float[Tensor, ""]:
        """Mean negative log-probability of the next tokens of some texts, nats."""
        return next_token_loss(self._model, [self._ids[i] for i in texts])

    def _read(self, ids: Sequence[int]) -> Tensor:
        inputs, model = _inputs(self._model, [ids]), self._model.hf_model
        with torch.no_grad():
            if self._head is None:
                source: Tensor = model(**inputs).logits
            else:
                with stopped_before(model.get_output_embeddings()) as given:
                    model(**inputs)
                (source,) = given
        return source[0].clone()


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

    Neutral text and other categories are the same in every fold: what was ``read`` for another one
    is not read again.
    """
    model, domain, items = corpus.model, corpus.domain, fold.train.tolist()
    with Computing(model, protocol.precision).running():
        values = corpus.items.answers(items).relatedness
    relatedness = dict(zip(items, values.tolist(), strict=True))
    if read is None:
        neutral = Retention(model, corpus.neutral.learn.ids, head_changes=head_changes)
        others = Retention(model, domain.learn, head_changes=head_changes) if domain else None
    else:
        neutral, others = read.neutral, read.domain
    steps = batches(corpus, fold, protocol)
    neutral.read(text for step in steps for text in step.passages)
    if others is not None:
        others.read(text for step in steps for text in step.domain)
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
