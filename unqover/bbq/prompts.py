"""What is put to a model: a question with its text or alone, and what may follow it."""

from __future__ import annotations

from dataclasses import dataclass

from unqover.bbq.items import BBQItem, Words

_LETTERS = ("(a)", "(b)", "(c)")


@dataclass(frozen=True)
class Prompt:
    """A text with continuations, of which ``places`` says where each answer of the data stands."""

    text: str
    said: tuple[str, ...]
    places: tuple[int, int, int] = (0, 1, 2)


def text_prompts(words: Words, item: BBQItem, *, alone: bool = False) -> list[Prompt]:
    """The question, and the text of every answer; the full stop ends it.

    Examples:
        >>> words = Words("Paragraph", "Question", "Answer", ("Unknown",))
        >>> item = BBQItem("0", "Age", "1", "ambiguous", "neg", "Ann met Bo.", "Who is old?",
        ...                ("Ann", "Bo", "Unknown"), 2, 2, 0)
        >>> [prompt] = text_prompts(words, item)
        >>> prompt.text, prompt.said[0]
        ('Paragraph: Ann met Bo. Question: Who is old? Answer:', 'Ann.')
    """
    said = tuple(f"{answer.rstrip('.')}." for answer in item.answers)
    text = f"{_begin(words, item, alone, ' ')} {words.answer}:"
    return [Prompt(text, said)]


def letter_prompts(words: Words, item: BBQItem, *, alone: bool = False) -> list[Prompt]:
    """The question with the options listed in their three rotations, and the letter of each."""
    begin, prompts = _begin(words, item, alone, "\n"), []
    for turn in range(3):
        listed = [item.answers[(turn + place) % 3] for place in range(3)]
        options = "\n".join(f"{m} {text}" for m, text in zip(_LETTERS, listed, strict=True))
        first, second, third = ((answer - turn) % 3 for answer in range(3))
        text = f"{begin}\n{options}\n{words.answer}:"
        prompts.append(Prompt(text, _LETTERS, (first, second, third)))
    return prompts


def _begin(words: Words, item: BBQItem, alone: bool, space: str) -> str:
    question = f"{words.question}: {item.question}"
    return question if alone else f"{words.context}: {item.context}{space}{question}"
