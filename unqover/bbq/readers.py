"""Where BBQ's items are read: a file, a folder, the hub.

Items whose target cannot be told, or whose right answer is not what the condition promises, are
left out by name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from tda_bias.sources import HUB, commit_of, hash_of, hub_split, text_of
from tda_bias.types import InputError
from unqover.bbq.forms import Language, Row, bbq_row, language_in_name, rows_of_text
from unqover.bbq.items import BBQItem, BBQSet, LeftOut

CATEGORIES = (
    "Age", "Disability_status", "Gender_identity", "Nationality", "Physical_appearance",
    "Race_ethnicity", "Race_x_SES", "Race_x_gender", "Religion", "SES", "Sexual_orientation",
)  # fmt: skip
_HUB = "heegyu/bbq"
# Where a language is read if nothing is said.
_VARIABLES = {"en": "TDABIAS_BBQ", "es": "TDABIAS_ESBBQ", "ca": "TDABIAS_ESBBQ"}
_VARIABLES |= {"ko": "TDABIAS_KOBBQ"}


def bbq_comes_from_hub(data: str | None, language: str) -> bool:
    """Tell whether the items are read from the hub."""
    return data == HUB or (data is None and language == "en" and not _of_environment(language))


def load_bbq(
    data: str | None = None,
    *,
    language: Language = "en",
    categories: Sequence[str] = (),
    limit: int | None = None,
) -> BBQSet:
    """The items of a file, of a folder's files of a language, or of the hub.

    Args:
        data: A file, a folder, or ``hub`` (BBQ in English). What ``TDABIAS_BBQ``,
            ``TDABIAS_ESBBQ`` or ``TDABIAS_KOBBQ`` names if left out, else the hub.
        language: Of the items.
        categories: Only these, in any case; all if empty.
        limit: At most so many items of each category, spread over templates.

    Raises:
        InputError: if there is no such file, a row does not fit, a category does not occur, the
            file is of another language, or no item has a single target.
    """
    given = data or _of_environment(language)
    if given is None and language != "en":
        variable = _VARIABLES.get(language)
        named = f", or name it in {variable}" if variable else ""
        raise InputError(
            f"`data` is missing: BBQ in the language {language!r} is read from its own files; give "
            f"--data PATH{named}"
        )
    if given in (None, HUB):
        if language != "en":
            raise InputError(f"`language` must be en for --data hub; got {language!r}")
        rows, source, revision = _of_hub(categories)
    else:
        rows, source, revision = _of_files(Path(str(given)), language, categories)
    return _set(rows, source, revision, language, categories).limited(limit)


def _set(
    rows: Sequence[Row], source: str, revision: str | None, language: str, asked: Sequence[str]
) -> BBQSet:
    items: list[BBQItem] = []
    left_out: list[LeftOut] = []
    seen: dict[tuple[str, str], str] = {}
    wanted = _wanted(asked, [row.category for row in rows], source)
    for row in rows:
        key = (row.category, row.id)
        if key in seen:
            raise InputError(
                f"{row.source}: the item {row.id} of {row.category} stands in {seen[key]} too"
            )
        seen[key] = row.source
        if row.category in wanted:
            made = row.item()
            if isinstance(made, LeftOut):
                left_out.append(made)
            else:
                items.append(made)
    if not items:
        raise InputError(
            f"`data` {source}: of none of {len(left_out)} items a single target can be told "
            f"({left_out[0].reason})"
        )
    kept = {(item.category, item.id) for item in items}
    others = frozenset(key for key in seen if key not in kept)
    return BBQSet(
        tuple(items), tuple(left_out), language, source, revision, others, chosen=bool(asked)
    )


def _wanted(asked: Sequence[str], there: Sequence[str], source: str) -> set[str]:
    names = list(dict.fromkeys(there))
    by_name = {name.casefold(): name for name in names}
    wanted = set()
    for category in asked:
        if category.casefold() not in by_name:
            close = get_close_matches(category.casefold(), [*by_name], n=1)
            meant = f"; did you mean {by_name[close[0]]}?" if close else ""
            raise InputError(
                f"`category` {category!r} does not occur in `data` {source}, which has "
                f"{', '.join(names)}{meant}"
            )
        wanted.add(by_name[category.casefold()])
    return wanted or set(names)


# -- files and the hub -----------------------------------------------------------------------------


def _of_environment(language: str) -> str | None:
    return os.environ.get(_VARIABLES.get(language, ""), "") or None


def _of_files(
    path: Path, language: Language, categories: Sequence[str]
) -> tuple[list[Row], str, str]:
    paths = _files(path, language, categories) if path.is_dir() else [path]
    rows: list[Row] = []
    texts = [text_of(one, named=(HUB,)) for one in paths]
    for one, text in zip(paths, texts, strict=True):
        rows += rows_of_text(text, str(one), language)
    return rows, str(path), hash_of(*texts)


def _files(folder: Path, language: Language, categories: Sequence[str]) -> list[Path]:
    """The files of a language in a folder or one below."""
    inside = sorted([*folder.glob("*"), *folder.glob("*/*")])
    found = [path for path in inside if _is_of(path, language)]
    if not found:
        raise InputError(
            f"`data` {str(folder)!r} has no file of BBQ in the language {language!r}; give the "
            "file itself, or another --language"
        )
    asked = {category.casefold() for category in categories}
    named = [path for path in found if _category_in_name(path, language).casefold() in asked]
    # A category that no file is named after may stand inside one.
    return named if len(named) == len(asked) > 0 else found


def _is_of(path: Path, language: Language) -> bool:
    """Tell by its name whether a file holds items of a language; published answers do not."""
    match path.suffix:
        case ".tsv":
            return language == "ko"
        case ".csv":
            return path.name.split(".")[0].endswith(f"_{language}")
        case ".jsonl":
            return _category_in_name(path, language) in CATEGORIES and (
                language == "en" or language_in_name(path) == language
            )
        case _:
            return False


def _category_in_name(path: Path, language: Language) -> str:
    return path.name.split(".")[0].removesuffix(f"_{language}")


def _of_hub(categories: Sequence[str]) -> tuple[list[Row], str, str | None]:
    """BBQ's own rows on the hub, a configuration for each category."""
    wanted = _wanted(categories, CATEGORIES, HUB)
    rows: list[Row] = []
    for name in (name for name in CATEGORIES if name in wanted):
        split = hub_split(_HUB, name, "test", instead="give --data PATH with BBQ's own files")
        rows += [bbq_row(row, f"{_HUB} {name} row {n}", "en") for n, row in enumerate(split)]
    return rows, HUB, commit_of(split)
