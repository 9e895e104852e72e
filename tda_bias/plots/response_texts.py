"""Responses for the page of ``tdabias report``, shaded by how much the group moves each token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tda_bias.responses.result import Responses
from tda_bias.show.shaded import Piece, ShadedText, level, texts_html
from tda_bias.stats.seeds import generator
from tda_bias.store.run import Run

# Responses of each kind: those that carry most, and random ones.
_SHOWN = 4


def response_texts(run: Run) -> str:
    """A few responses as HTML: those whose effect is largest, and as many random ones."""
    result = run.load(Responses.load)
    table = result.responses
    most = table.sort_values("effect", ascending=False, kind="stable").head(_SHOWN)
    rest = table.drop(most.index)
    drawn = generator(0, "page", run.id).permutation(len(rest))[:_SHOWN]
    chosen = [("most", row) for row in most.to_dict("records")]
    chosen += [("random", row) for row in rest.iloc[sorted(drawn)].to_dict("records")]
    largest = max(value for _, row in chosen for value in row["moved"])
    lead = (
        "Shaded: tokens before which the next-token distribution about people of the other group "
        "is further away than about another person of the same group, without echo. Pointing at "
        "one shows the nats, and how much likelier the token is than about the other group."
    )
    texts = [_shaded(row, why, largest) for why, row in chosen]
    return texts_html(f"Responses ({len(texts)} of {len(table)})", lead, texts)


def _shaded(row: Mapping[Any, Any], why: str, largest: float) -> ShadedText:
    title = (
        f"{row['prompt']} about {row['person']} ({row['group']}), {why}: {row['effect']:+.2f} nats"
    )
    pieces = [
        Piece(text, level(moved, largest), f"{moved:+.3f} nats, log-ratio {ratio:+.2f}")
        for text, moved, ratio in zip(row["pieces"], row["moved"], row["log_ratio"], strict=True)
    ]
    return ShadedText(title, pieces)
