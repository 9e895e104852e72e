"""Words, templates and classes for tiny models."""

import pytest

from pvf.words import Template, WordClasses, WordList


@pytest.fixture
def some_words() -> WordList:
    return WordList("some", "test", ("nurse", "cook", "software developer"))


@pytest.fixture
def some_templates() -> list[Template]:
    texts = ["The [X] said that [Y]", "The [X] wrote [Y]", "The [X], who knew the cook, felt [Y]"]
    return [Template(text, count) for text, count in zip(texts, (5, 3, 2), strict=True)]


@pytest.fixture
def some_classes() -> WordClasses:
    """Words of one token and of several; "he" is how "heiress" begins."""
    classes = {"male": ("he", "man", "monk"), "female": ("she", "heiress", "hers")}
    return WordClasses("some", "test", classes, ())
