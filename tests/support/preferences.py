"""Preferences of an imagined model."""

import numpy as np

from pvf.preferences import (
    Preferences,
    PreferencesRecord,
    ReadRecord,
    SourceRecord,
    WordsRecord,
)
from pvf.words import load_classes, load_templates, load_words
from tda_bias.store.record import ModelRecord


def made_up(seed=0, *, n_x=5, n_contexts=3, words=("he", "him", "she"), class_of=(0, 0, 1)):
    """Preferences with random word probabilities, for tests that need no model."""
    rng = np.random.default_rng(seed)
    log_prob = np.log(rng.uniform(0.001, 0.2, (n_x, n_contexts, len(words))))
    of_class = [
        tuple(w for w, k in zip(words, class_of, strict=True) if k == n)
        for n in sorted(set(class_of))
    ]
    record = PreferencesRecord(
        model=ModelRecord(name=f"model-{seed}", weights=f"hash-{seed}", parameters=10 + seed),
        words=WordsRecord(
            x=SourceRecord(name="made up", source="here"),
            y=SourceRecord(name="gender", source="here"),
            tokens_of_each=dict.fromkeys(words, 1),
        ),
        read=ReadRecord(
            x=tuple(f"job{i}" for i in range(n_x)),
            templates=tuple((f"The [X] v{c} that [Y]", c + 1.0) for c in range(n_contexts)),
            classes=dict(zip(("male", "female", *words[2:]), of_class, strict=False)),
        ),
    )
    return Preferences(log_prob, np.zeros_like(log_prob), record)


def renamed(preferences, *, x=None, templates=None, classes=None):
    """The same preferences for other words x, templates or names of classes."""
    read = preferences.record.read
    members = dict(zip(classes or read.classes, read.classes.values(), strict=True))
    told = templates and tuple((template.text, template.count) for template in templates)
    changed = {"x": x or read.x, "templates": told or read.templates, "classes": members}
    return preferences.with_record(read=read.model_copy(update=changed))


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
    return renamed(made, x=x, templates=load_templates("gender"), classes=tuple(classes))
