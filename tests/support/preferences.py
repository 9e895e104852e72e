"""Preferences of an imagined model."""

from dataclasses import replace

import numpy as np

from pvf.preferences import Preferences
from pvf.record import PreferencesRecord, SourceRecord, WordsRecord
from pvf.templates import Template, load_templates
from pvf.words import load_classes, load_words
from tda_bias.runs.record import ModelRecord


def made_up(seed=0, *, n_x=5, n_contexts=3, words=("he", "him", "she"), class_of=(0, 0, 1)):
    """Preferences with random word probabilities, for tests that need no model."""
    rng = np.random.default_rng(seed)
    log_prob = np.log(rng.uniform(0.001, 0.2, (n_x, n_contexts, len(words))))
    record = PreferencesRecord(
        model=ModelRecord(name=f"model-{seed}", weights=f"hash-{seed}", parameters=10 + seed),
        words=WordsRecord(
            x=SourceRecord(name="made up", source="here"),
            y=SourceRecord(name="gender", source="here"),
            tokens_of_each={word: (1,) for word in words},
        ),
    )
    return Preferences(
        x=tuple(f"job{i}" for i in range(n_x)),
        templates=tuple(Template(f"The [X] v{c} that [Y]", c + 1.0) for c in range(n_contexts)),
        classes=("male", "female"),
        words=tuple(words),
        class_of=np.array(class_of),
        log_prob=log_prob,
        continued=np.zeros_like(log_prob),
        record=record,
    )


def as_published():
    """The same for the published occupations, templates and words of gender."""
    x, classes = load_words("occupations").words, load_classes("gender").classes
    words = [(word, place) for place, name in enumerate(classes) for word in classes[name][:3]]
    made = made_up(
        n_x=len(x),
        n_contexts=10,
        words=[word for word, _ in words],
        class_of=[place for _, place in words],
    )
    return replace(made, x=x, templates=tuple(load_templates("gender")), classes=tuple(classes))
