"""The one composition of the package that needs a model: words and templates to preferences."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np

from pvf.config import ScoreConfig
from pvf.preferences import Preferences, combined_forms, continued_words
from pvf.readers import MaskedReader, Progress, reader
from pvf.templates import Y_SLOT, Template
from pvf.word_forms import word_forms
from pvf.words import WordClasses, WordList
from tda_bias.models.load import LanguageModel
from tda_bias.models.record import model_record
from tda_bias.records.parts import texts_hash
from tda_bias.records.record import package_versions
from tda_bias.types import InputError

_log = logging.getLogger(__name__)


def score_preferences(
    model: LanguageModel,
    words: WordList,
    templates: Sequence[Template],
    classes: WordClasses,
    *,
    config: ScoreConfig | None = None,
    progress: Progress | None = None,
) -> Preferences:
    """Read the probability of every word of y in every template filled with every x.

    Args:
        model: Causal, masked, permutation or sequence-to-sequence language model, from
            ``tda_bias.load_language_model`` or ``load_model``.
        words: The words for x.
        templates: The contexts.
        classes: The words of y by class.
        config: Settings.
        progress: Called with the number of finished parts of the work and of all.

    Raises:
        InputError: if the model has no language-model head, a word cannot be written with its
            tokenizer, a class keeps no word, or a template does not suit the model.
    """
    config = config or ScoreConfig()
    model_reader = reader(model, config)
    masked = isinstance(model_reader, MaskedReader)
    for template in templates:
        if not masked and not template.text.endswith(Y_SLOT):
            raise InputError(
                f"`templates`: {model_reader.kind} model {model.name} does not see what follows "
                f"{Y_SLOT}; shorten {template.text!r}"
            )
    one_token = masked and config.masked_words == "one_token"
    forms = word_forms(model.tokenizer, classes, forms=config.forms, one_token=one_token)
    if forms.skipped:
        _log.info("%d words are not read: %s", len(forms.skipped), ", ".join(forms.skipped))
    start = time.perf_counter()
    reading = model_reader.read(words.words, templates, forms, progress)
    seconds = time.perf_counter() - start
    if not np.isfinite(reading.log_prob).all():
        raise InputError(f"`model` {model.name} gives undefined probabilities; use --dtype float32")
    log_prob, continued = combined_forms(reading.log_prob, reading.continued, forms.word_of)
    record = {
        "command": "pvf",
        "model": model_record(model, weights=model.weight_hash()),
        "kind": model_reader.kind,
        "read_config": config.model_dump(mode="json"),
        "words": {
            "x": {"name": words.name, "source": words.source},
            "y": {"name": classes.name, "source": classes.source},
            "shared_by_classes": list(classes.shared),
            "not_read": forms.skipped,
            "tokens_of_each": _n_tokens(forms.sequences, forms.words, forms.word_of),
            "tokens_of_x": _tokens_of_x(model, words.words),
            "continued": continued_words(forms.sequences, forms.words, forms.word_of.tolist()),
        },
        "prompts": {
            "number": len(reading.token_ids),
            "tokens": sum(map(len, reading.token_ids)),
            "hash": texts_hash([(ids,) for ids in reading.token_ids]),
            **reading.notes,
        },
        "packages": package_versions(),
        "seconds": seconds,
    }
    return Preferences(
        x=words.words,
        templates=tuple(templates),
        classes=tuple(classes.classes),
        words=forms.words,
        class_of=forms.class_of,
        log_prob=log_prob,
        continued=continued,
        record=record,
    )


def _tokens_of_x(model: LanguageModel, words: Sequence[str]) -> dict[str, int]:
    """Tokens that each x adds to a prompt: a covariate of whatever is compared over words."""
    before = len(model.tokenizer("The", add_special_tokens=False)["input_ids"])
    texts = [f"The {word}" for word in words]
    ids = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    return {word: len(own) - before for word, own in zip(words, ids, strict=True)}


def _n_tokens(
    sequences: Sequence[tuple[int, ...]], words: Sequence[str], word_of: np.ndarray
) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {word: [] for word in words}
    for sequence, number in zip(sequences, word_of, strict=True):
        found[words[number]].append(len(sequence))
    return found
