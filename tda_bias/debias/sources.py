"""What may be trained on."""

from __future__ import annotations

from pathlib import Path

from tda_bias.pairs.pair import is_evaluation_only
from tda_bias.types import InputError


def refuse_evaluation_only(source: str | Path) -> None:
    """Refuse data that is for evaluation only, by its name or by what it says.

    Raises:
        InputError: if it is CrowS-Pairs, in its own table or as JSON Lines.
    """
    path = Path(source)
    names = [str(source), path.stem, *path.parts]
    first = ""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = lines.readline(10_000)
    by_content = "sent_more" in first or '"set": "crows' in first.replace('":"', '": "')
    if by_content or any(is_evaluation_only(name) for name in names):
        raise InputError(
            f"`data` {source} is CrowS-Pairs, which must not be trained on: its data statement "
            "says that it is for evaluation only; train on other texts and evaluate on these"
        )
