"""Reading a model: words and templates to preferences, for every kind of language model.

A word's probability is the product over its tokens. What prompts and words share ("baron" and
"baroness") is run once: ``tda_bias.models.scoring`` sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from pvf.config import ScoreConfig
from pvf.preferences import Preferences, PreferencesRecord, ReadRecord, SourceRecord, WordsRecord
from pvf.word_tokens import WORD_START, WordTokens, word_tokens
from pvf.words import Y_SLOT, Template, WordClasses, WordList
from tda_bias.models.language_model import model_record, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import (
    MaskedRows,
    Request,
    as_trees,
    gap_token,
    mask_token,
    require_kind,
    with_gaps,
)
from tda_bias.models.scored import Arrays, Block, cut, read_blocks
from tda_bias.models.scoring import Scorer
from tda_bias.models.token_trees import TokenTree
from tda_bias.store.cache import OpenCache, no_cache, texts_hash
from tda_bias.store.identity import identity
from tda_bias.types import InputError, Progress

# Words x that are saved together: a killed run loses no more than these.
_WORDS = 32
# A row of a forward pass holds prompts of one word and what may follow them, up to so many tokens:
# they share its beginning, and longer rows cost more attention than that saves.
_ROW = 64


def score_preferences(
    model: LanguageModel,
    words: WordList,
    templates: Sequence[Template],
    classes: WordClasses,
    *,
    config: ScoreConfig | None = None,
    cache: OpenCache = no_cache,
    progress: Progress | None = None,
) -> Preferences:
    """Read the probability of every word of y (``classes``) in every template filled with every x.

    Raises:
        InputError: if the model has no language-model head, a word cannot be written with its
            tokenizer or is written like another x, a class keeps no word, a template does not suit
            the model, or ``cache`` holds probabilities under other settings.
        ShareDone: where another process gathers.
    """
    config = config or ScoreConfig()
    reader = word_reader(model, words.words, templates, classes, config=config)
    listed = reader.listed
    _refuse_alike(model, words)
    weights = model.weight_hash()
    read = read_blocks(
        model,
        [reader.block(name, own) for name, own in cut("words", words.words, _WORDS)],
        identity={"format": 3, "kind": model.kind, **identity(config)},
        weights=weights,
        cache=cache,
        progress=progress,
    )
    log_prob, continued = (
        np.concatenate([arrays[name] for arrays in read]) for name in ("log_prob", "continued")
    )
    inputs = _inputs(model, words.words, templates)
    of_classes = chain.from_iterable(classes.classes.values())
    texts = [*words.words, *(template.text for template in templates), *of_classes]
    record = PreferencesRecord(
        model=model_record(model, weights=weights),
        remarks=model.special_remarks(texts),
        read_config=config,
        words=_words_record(model, words, templates, classes, listed),
        read=ReadRecord(
            x=words.words,
            templates=tuple((template.text, template.count) for template in templates),
            classes=listed[0].classes,
        ),
        prompts={
            "number": len(inputs),
            "tokens": sum(map(len, inputs)),
            "hash": texts_hash([(ids,) for ids in inputs]),
        },
    )
    return Preferences(log_prob, continued, record)


def word_reader(
    model: LanguageModel,
    words: Sequence[str],
    templates: Sequence[Template],
    classes: WordClasses,
    *,
    config: ScoreConfig | None = None,
) -> WordReader:
    """What reads the words of classes in templates, for words x like these; errors as above."""
    config = config or ScoreConfig()
    listed = _readable(model, config, words, templates, classes)
    return WordReader(model, config.batch_size, templates, listed)


def _refuse_alike(model: LanguageModel, words: WordList) -> None:
    """Refuse words x that the tokenizer does not know, or cannot tell apart."""
    first: dict[tuple[int, ...], str] = {}
    ids = model.token_ids([f"The {word} said" for word in words.words])
    for word, own in zip(words.words, map(tuple, ids), strict=True):
        if model.tokenizer.unk_token_id in own:
            fault = f"does not know {word!r}; leave it out"
        elif own in first:
            fault = f"writes {first[own]!r} and {word!r} alike; leave one out"
        else:
            first[own] = word
            continue
        raise InputError(
            f"`words` {words.name}: the tokenizer of `model` {model.name} {fault}, or use another "
            "model"
        )


def _words_record(
    model: LanguageModel,
    words: WordList,
    templates: Sequence[Template],
    classes: WordClasses,
    listed: Sequence[WordTokens],
) -> WordsRecord:
    of_each = [dict(zip(of.words, map(len, of.tokens), strict=True)) for of in listed]
    by_template = zip(templates, of_each, strict=True)
    return WordsRecord(
        x=SourceRecord(name=words.name, source=words.source),
        y=SourceRecord(name=classes.name, source=classes.source),
        shared_by_classes=classes.shared,
        not_read=listed[0].skipped,
        tokens_of_each=of_each[0],
        tokens_by_template={t.text: own for t, own in by_template if own != of_each[0]},
        tokens_of_x=_tokens_of_x(model, words.words),
        continued=tuple(sorted({pair for of in listed for pair in of.continued})),
    )


def _tokens_of_x(model: LanguageModel, words: Sequence[str]) -> dict[str, int]:
    """Tokens that each x adds to a prompt: a covariate of whatever is compared over words."""
    before = len(model.tokenizer("The", add_special_tokens=False)["input_ids"])
    texts = [f"The {word}" for word in words]
    ids = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    return {word: len(tokens) - before for word, tokens in zip(words, ids, strict=True)}


def _readable(
    model: LanguageModel,
    config: ScoreConfig,
    words: Sequence[str],
    templates: Sequence[Template],
    classes: WordClasses,
) -> list[WordTokens]:
    """The token sequences that a model of this kind can read, template by template."""
    require_kind(model, ("causal", "masked", "permutation", "seq2seq"), "words are read with")
    masked = model.kind == "masked"
    if masked:
        mask_token(model)
    for template in () if masked else templates:
        if not template.text.endswith(Y_SLOT):
            raise InputError(
                f"`templates`: {model.kind} model {model.name} does not see what follows "
                f"{Y_SLOT}; shorten {template.text!r}"
            )
    before = [WORD_START if template.joint else template.prompt(words[0]) for template in templates]
    listed = {
        text: word_tokens(
            model.tokenizer, classes, forms=config.forms, one_token=masked, before=text
        )
        for text in dict.fromkeys(before)
    }
    skipped = {word: why for of in listed.values() for word, why in of.skipped.items()}
    same = {text: of.without(skipped, classes) for text, of in listed.items()}
    return [same[text] for text in before]


# -- readings --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordTrees:
    """What a model reads for some words x in every template.

    Attributes:
        trees: Of tokens, as a ``Scorer`` runs them.
        sources: What the encoder of an encoder-decoder reads for each; else empty.
        together: Texts that a tree stands for.
        place: By template, where the readings of the tokens of all words y stand among those of all
            trees, tree after tree.
    """

    trees: list[TokenTree]
    sources: list[list[int]]
    together: int
    place: list[Int[np.ndarray, "x token"]]


@dataclass(frozen=True)
class WordReader:
    """Reads words of y in every template filled with some words x."""

    model: LanguageModel
    batch_size: int
    templates: Sequence[Template]
    listed: Sequence[WordTokens]  # of each template

    def block(self, name: str, words: Sequence[str]) -> Block:
        """Some words x, which are read and saved together."""
        depends_on: dict[str, Any] = {
            "words": list(words),
            "templates": [template.text for template in self.templates],
            "words of y": [list(sequence) for sequence in self.listed[0].tokens],
        }
        if not all(template.joint for template in self.templates):
            tokens = [[list(sequence) for sequence in of.tokens] for of in self.listed]
            depends_on["words of y by template"] = tokens
        size = len(words) * len(self.templates)
        return Block(name, size, lambda: depends_on, partial(self.read, words))

    def read(self, words: Sequence[str], progress: Progress) -> Arrays:
        """Log-probabilities of a block as they are saved."""
        asked = self.trees(words)
        scorer = Scorer(self.model, batch_size=self.batch_size, texts_per_tree=asked.together)
        read = scorer.log_probs(asked.trees, asked.sources, progress=progress)
        return self.of_words(asked, np.concatenate(read))

    def of_words(self, asked: WordTrees, values: Float[np.ndarray, " reading"]) -> Arrays:
        """``log_prob`` and ``continued``, as in ``Preferences``, from the readings of trees.

        Raises:
            InputError: if one is undefined.
        """
        if not np.isfinite(values).all():
            raise InputError(
                f"`model` {self.model.name} gives undefined probabilities; use --dtype float32"
            )
        of_templates = [
            listed.log_probs(values[place])
            for listed, place in zip(self.listed, asked.place, strict=True)
        ]
        log_prob, continued = (np.stack(of, axis=1) for of in zip(*of_templates, strict=True))
        return {"log_prob": log_prob, "continued": continued}

    def reading_slopes(
        self,
        asked: WordTrees,
        values: Float[np.ndarray, " reading"],
        log_prob: Float[np.ndarray, "x context word"],
        continued: Float[np.ndarray, "x context word"],
    ) -> Float[np.ndarray, " reading"]:
        """Derivatives by every reading of a number whose derivatives by what it gives are known."""
        slopes = np.zeros_like(values)
        for number, (listed, place) in enumerate(zip(self.listed, asked.place, strict=True)):
            own = listed.token_slopes(values[place], log_prob[:, number], continued[:, number])
            # A masked model reads a token at one place for several words.
            np.add.at(slopes, place, own)
        return slopes

    def inputs(self, words: Sequence[str]) -> list[list[int]]:
        """Token ids of every prompt, word by word: what a model (or its encoder) reads."""
        return _inputs(self.model, words, self.templates)

    def trees(self, words: Sequence[str]) -> WordTrees:
        """What the model reads for some words x."""
        return self._at_masks(words) if self.model.kind == "masked" else self._after_prompts(words)

    def _after_prompts(self, words: Sequence[str]) -> WordTrees:
        """Tokens of all words from left to right after the text before the slot."""
        model = self.model
        texts = _prompts(words, self.templates)
        prompts = _prompt_ids(model, words, self.templates)
        together = 1
        if model.kind == "causal":
            # Prompts of one word share its beginning; a large tree of words makes long rows of it.
            inner = max(
                len({s[:n] for s in of.tokens for n in range(1, len(s))}) for of in self.listed
            )
            together = max(1, min(len(self.templates), _ROW // (inner + 4)))
        requests = []
        for first in range(0, len(prompts), together):
            # The prompts themselves stand first in the tree: texts of which nothing is read, and
            # whose last token is therefore not run. Then every word after every one of them.
            batch = prompts[first : first + together]
            read_after = [
                (prompt, form)
                for number, prompt in enumerate(batch, start=first)
                for form in self.listed[number % len(self.templates)].tokens
            ]
            ids = [[*prompt, *form] for prompt, form in read_after]
            read = [range(len(prompt), len(prompt) + len(form)) for prompt, form in read_after]
            requests.append(
                Request(
                    tuple([*([*prompt, 0] for prompt in batch), *ids]),
                    tuple(enumerate(read, start=len(batch))),
                    context=len(batch[0]),
                    before=texts[first],
                )
            )
        trees, _ = as_trees(model, requests)
        sources = self.inputs(words) if model.kind == "seq2seq" else []
        sizes = [sum(map(len, of.tokens)) for of in self.listed]
        place = np.arange(len(words) * sum(sizes)).reshape(len(words), -1)
        return WordTrees(trees, sources, together, np.split(place, np.cumsum(sizes)[:-1], axis=1))

    def _at_masks(self, words: Sequence[str]) -> WordTrees:
        """The one token of every word at a mask in the slot's place."""
        model, mask, rows, places = self.model, mask_token(self.model), MaskedRows(), []
        for number, prompt in enumerate(self.inputs(words)):
            if prompt.count(mask) != 1:
                text = model.tokenizer.decode(prompt)
                raise InputError(f"the tokenizer does not find the mask in {text!r}")
            at = prompt.index(mask)
            listed = self.listed[number % len(self.templates)]
            places += [rows.add(prompt, at, token) for (token,) in listed.tokens]
        trees = rows.trees()
        starts = np.cumsum([0, *(len(tree.read_node) for tree in trees)])
        place = np.array([starts[row] + reading for row, reading in places])
        by_template = place.reshape(len(words), len(self.templates), -1)
        return WordTrees(trees, [], 1, list(np.moveaxis(by_template, 1, 0)))


def _inputs(
    model: LanguageModel, words: Sequence[str], templates: Sequence[Template]
) -> list[list[int]]:
    """Token ids of every prompt, word by word: what a model (or its encoder) reads."""
    if model.kind == "seq2seq":
        gap = gap_token(model)
        sources = [f"{t.prompt(word)}{t.joint}{gap}" for word in words for t in templates]
        return with_gaps(model, sources)
    if model.kind != "masked":
        leading, _ = special_tokens_around(model.tokenizer)
        return [[*leading, *ids] for ids in _prompt_ids(model, words, templates)]
    slot = model.tokenizer.mask_token
    texts = [t.filled(word).replace(Y_SLOT, slot) for word in words for t in templates]
    ids: list[list[int]] = model.tokenizer(texts)["input_ids"]
    return ids


def _prompt_ids(
    model: LanguageModel, words: Sequence[str], templates: Sequence[Template]
) -> list[list[int]]:
    """Token ids of every prompt, word by word, without special tokens."""
    texts = _prompts(words, templates)
    ids: list[list[int]] = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    for text, prompt in zip(texts, ids, strict=True):
        if not prompt:
            raise InputError(f"the tokenizer makes no token of the prompt {text!r}")
    return ids


def _prompts(words: Sequence[str], templates: Sequence[Template]) -> list[str]:
    return [template.prompt(word) for word in words for template in templates]
