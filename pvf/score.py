"""The one composition of the package that needs a model: words and templates to preferences."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pvf.config import ScoreConfig
from pvf.preferences import Preferences, combined_forms, continued_words
from pvf.readers import Reading, check_readable, read_words
from pvf.record import PreferencesRecord, SourceRecord, WordsRecord
from pvf.templates import Y_SLOT, Template
from pvf.word_forms import WordForms, word_forms
from pvf.words import WordClasses, WordList
from tda_bias.models.load import LanguageModel
from tda_bias.models.record import model_record
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore, open_parts, texts_hash
from tda_bias.runs.work import ALONE, Job, Team
from tda_bias.types import InputError

_log = logging.getLogger(__name__)
# Words x that are saved together: a killed run loses no more than these.
_WORDS = 32


def score_preferences(
    model: LanguageModel,
    words: WordList,
    templates: Sequence[Template],
    classes: WordClasses,
    *,
    config: ScoreConfig | None = None,
    parts: Path | None = None,
    resume: bool = True,
    overwrite: bool = False,
    team: Team = ALONE,
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
        parts: Folder for finished parts, which a later call reuses; None keeps none.
        resume: Whether it may; else they are deleted first.
        overwrite: Whether parts under other settings are written over.
        team: The processes that share the parts.
        progress: Called with the number of finished prompts and of all.

    Raises:
        InputError: if the model has no language-model head, a word cannot be written with its
            tokenizer, a class keeps no word, a template does not suit the model, or ``parts``
            holds probabilities under other settings.
        ShareDone: where another process gathers.
    """
    config = config or ScoreConfig()
    check_readable(model)
    masked = model.kind == "masked"
    if not masked:
        _refuse_unseen_ends(templates, model)
    one_token = masked and config.masked_words == "one_token"
    forms = word_forms(model.tokenizer, classes, forms=config.forms, one_token=one_token)
    if forms.skipped:
        _log.info("%d words are not read: %s", len(forms.skipped), ", ".join(forms.skipped))
    weights = model.weight_hash()
    identity = _identity(model, weights, config)
    store = open_parts(parts, identity, resume=resume, overwrite=overwrite, team=team)
    start = time.perf_counter()
    blocks = list(_Blocks(model, config, templates, forms, store, progress).of(words.words))
    seconds = time.perf_counter() - start
    log_prob, continued = combined_forms(
        np.concatenate([block.log_prob for block in blocks]),
        np.concatenate([block.continued for block in blocks]),
        forms.word_of,
    )
    record = PreferencesRecord(
        model=model_record(model, weights=weights),
        kind=model.kind,
        read_config=config,
        words=_words_record(model, words, classes, forms),
        prompts=_prompts_record(blocks),
        seconds=seconds,
    )
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


def _refuse_unseen_ends(templates: Sequence[Template], model: LanguageModel) -> None:
    for template in templates:
        if not template.text.endswith(Y_SLOT):
            raise InputError(
                f"`templates`: {model.kind} model {model.name} does not see what follows {Y_SLOT}; "
                f"shorten {template.text!r}"
            )


# -- parts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Blocks:
    """Words in blocks, each read or found among the saved parts."""

    model: LanguageModel
    config: ScoreConfig
    templates: Sequence[Template]
    forms: WordForms
    store: PartStore
    progress: Progress | None

    def of(self, words: Sequence[str]) -> Iterator[Reading]:
        """The readings of some words after the others."""
        n, total = len(self.templates), len(words) * len(self.templates)
        blocks = [words[first : first + _WORDS] for first in range(0, len(words), _WORDS)]
        jobs, done = [], 0
        for block in blocks:
            progress = _within(self.progress, done * n, len(block) * n, total)
            jobs.append(
                Job(
                    f"words {done + 1} to {done + len(block)}",
                    len(block),
                    partial(self._depends_on, block),
                    partial(self._computed, block, progress),
                )
            )
            done += len(block)
        done = 0
        for block, arrays in zip(blocks, self.store.each(jobs), strict=True):
            done += len(block)
            if self.progress is not None:
                self.progress(done * n, total)
            yield _from_arrays(arrays)

    def _depends_on(self, block: Sequence[str]) -> dict[str, Any]:
        return {
            "words": list(block),
            "templates": [template.text for template in self.templates],
            "words of y": [list(sequence) for sequence in self.forms.sequences],
        }

    def _computed(self, block: Sequence[str], progress: Progress | None) -> dict[str, np.ndarray]:
        return _as_arrays(self._read(block, progress))

    def _read(self, block: Sequence[str], progress: Progress | None) -> Reading:
        reading = read_words(self.model, self.config, block, self.templates, self.forms, progress)
        if not np.isfinite(reading.log_prob).all():
            raise InputError(
                f"`model` {self.model.name} gives undefined probabilities; use --dtype float32"
            )
        return reading


def _within(progress: Progress | None, before: int, share: int, total: int) -> Progress | None:
    """Progress of a block of prompts as that of all."""
    if progress is None:
        return None
    tell: Progress = progress

    def within(done: int, of: int) -> None:
        tell(before + done * share // max(of, 1), total)

    return within


def _as_arrays(reading: Reading) -> dict[str, np.ndarray]:
    return {
        "log_prob": reading.log_prob,
        "continued": reading.continued,
        "tokens": np.array([token for ids in reading.token_ids for token in ids], dtype=np.int64),
        "lengths": np.array([len(ids) for ids in reading.token_ids], dtype=np.int64),
        "notes": np.array(json.dumps(reading.notes)),
    }


def _from_arrays(arrays: Mapping[str, np.ndarray]) -> Reading:
    ends = np.cumsum(arrays["lengths"])
    prompts = np.split(arrays["tokens"], ends[:-1])
    return Reading(
        log_prob=arrays["log_prob"],
        continued=arrays["continued"],
        token_ids=[ids.tolist() for ids in prompts],
        notes=json.loads(str(arrays["notes"])),
    )


def _words_record(
    model: LanguageModel, words: WordList, classes: WordClasses, forms: WordForms
) -> WordsRecord:
    return WordsRecord(
        x=SourceRecord(name=words.name, source=words.source),
        y=SourceRecord(name=classes.name, source=classes.source),
        shared_by_classes=tuple(classes.shared),
        not_read=forms.skipped,
        tokens_of_each=_n_tokens(forms.sequences, forms.words, forms.word_of),
        tokens_of_x=_tokens_of_x(model, words.words),
        continued=tuple(continued_words(forms.sequences, forms.words, forms.word_of.tolist())),
    )


def _prompts_record(blocks: Sequence[Reading]) -> dict[str, Any]:
    prompts = [ids for block in blocks for ids in block.token_ids]
    return {
        "number": len(prompts),
        "tokens": sum(map(len, prompts)),
        "hash": texts_hash([(ids,) for ids in prompts]),
        **_notes(blocks),
    }


def _notes(blocks: Sequence[Reading]) -> dict[str, Any]:
    """Notes on how prompts were run; where blocks differ, all of them."""
    notes: dict[str, list[Any]] = {}
    for block in blocks:
        for name, note in block.notes.items():
            if note not in notes.setdefault(name, []):
                notes[name].append(note)
    return {name: several[0] if len(several) == 1 else several for name, several in notes.items()}


def _identity(model: LanguageModel, weights: str, config: ScoreConfig) -> dict[str, Any]:
    """Everything that saved probabilities depend on, beside words and templates."""
    return {
        "model": model.name,
        "weights": weights,
        "dtype": model.dtype_name,
        "kind": model.kind,
        **config.model_dump(mode="json", exclude={"batch_size"}),
    }


def _tokens_of_x(model: LanguageModel, words: Sequence[str]) -> dict[str, int]:
    """Tokens that each x adds to a prompt: a covariate of whatever is compared over words."""
    before = len(model.tokenizer("The", add_special_tokens=False)["input_ids"])
    texts = [f"The {word}" for word in words]
    ids = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    return {word: len(tokens) - before for word, tokens in zip(words, ids, strict=True)}


def _n_tokens(
    sequences: Sequence[tuple[int, ...]], words: Sequence[str], word_of: np.ndarray
) -> dict[str, list[int]]:
    lengths: dict[str, list[int]] = {word: [] for word in words}
    for sequence, number in zip(sequences, word_of, strict=True):
        lengths[words[number]].append(len(sequence))
    return lengths
