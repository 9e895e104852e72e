"""Items in BBQ's form about hands, and answerers of every kind; folders of the real data."""

import json
import os
from pathlib import Path

import pytest

from unqover.bbq.items import BBQItem, BBQSet

# Each data set's folder; tests without it are skipped.
FOLDERS = {
    name: os.environ.get(name, "") for name in ("TDABIAS_BBQ", "TDABIAS_ESBBQ", "TDABIAS_KOBBQ")
}
_PEOPLE = ("left", "right")


def bbq_folder(name: str = "TDABIAS_BBQ") -> Path:
    """The folder of one of the published sets; skips where it is not known."""
    if not FOLDERS[name]:
        pytest.skip(f"set {name} to the folder of that set's files")
    return Path(FOLDERS[name])


def rows(templates: int = 6, category: str = "Hands", unknown: str = "Not known") -> list[dict]:
    """Two scenes of every template, each with both texts and both questions.

    The left-handed person is the target; answers change places from scene to scene.
    """
    made = []
    for template in range(templates):
        for order in range(2):
            first, second = _PEOPLE if order == 0 else _PEOPLE[::-1]
            context = f"A {first}-handed cook and a {second}-handed cook met in room {template}."
            places = [[0, 1, 2], [2, 0, 1], [1, 2, 0]][(template + order) % 3]
            texts = [f"The {_PEOPLE[0]}-handed one", f"The {_PEOPLE[1]}-handed one", unknown]
            labels = [[_PEOPLE[0], "leftHanded"], [_PEOPLE[1], "rightHanded"], [unknown, "unknown"]]
            said = {place: number for number, place in enumerate(places)}
            for polarity, question in (("neg", "Who fell?"), ("nonneg", "Who stood?")):
                for condition in ("ambig", "disambig"):
                    clear = condition == "disambig"
                    # Who fell is the first in one half of the templates.
                    fell = (template // 2 + order) % 2
                    right = (fell if polarity == "neg" else 1 - fell) if clear else 2
                    more = f" The {_PEOPLE[fell]}-handed one fell." if clear else ""
                    row = {
                        "example_id": len(made),
                        "question_index": str(template + 1),
                        "question_polarity": polarity,
                        "context_condition": condition,
                        "category": category,
                        "answer_info": {f"ans{p}": labels[said[p]] for p in range(3)},
                        "additional_metadata": {"stereotyped_groups": ["left handed"]},
                        "context": context + more,
                        "question": question,
                        **{f"ans{p}": texts[said[p]] for p in range(3)},
                        "label": places[right],
                    }
                    made.append(row)
    return made


def write_rows(folder: Path, *more: dict, name: str = "Hands.jsonl", **how) -> Path:
    """A file of such items."""
    path = folder / name
    lines = [*rows(**how), *more]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


def item(**changes) -> BBQItem:
    """An ambiguous item; its fields may be changed."""
    given = {
        "id": "0", "category": "Hands", "template": "1", "condition": "ambiguous",
        "polarity": "neg", "context": "A left-handed cook met a right-handed cook.",
        "question": "Who fell?", "answers": ("The left one", "The right one", "Not known"),
        "label": 2, "unknown": 2, "target": 0, "first": 0,
    }  # fmt: skip
    return BBQItem(**{**given, **changes})


def of_items(items, **changes) -> BBQSet:
    """A set of items."""
    given = {"left_out": (), "language": "en", "source": "made up", "revision": None}
    return BBQSet(items=tuple(items), **{**given, **changes})
