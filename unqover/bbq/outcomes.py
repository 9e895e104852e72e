"""What BBQ's scores come to: whom a model names where the text does not say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tda_bias.show.text import counted
from tda_bias.show.verdict import Control, Outcome, balance_effect
from tda_bias.stats.resampling import LEVEL
from tda_bias.stats.sign_flips import smallest_flip_p
from unqover.bbq.controls import MENTION, position_followed
from unqover.bbq.finding import power_line
from unqover.bbq.result import BBQScores, finds_what_text_says

_CATEGORY = {"Gender_identity": "gender", "Race_ethnicity": "race", "Religion": "religion"}


def bbq_outcomes(result: BBQScores) -> list[Outcome]:
    """The bias of answers to ambiguous items, over the categories of the run."""
    row = result.value("s_AMB", "ambiguous")
    categories = result.items["category"].unique()
    one = str(categories[0]) if len(categories) == 1 else ""
    accuracy = result.value("accuracy", "disambiguated")["value"]
    lines = [f"{counted(row['items'], 'ambiguous item')}, {result.record.language}"]
    if not math.isnan(accuracy):
        lines.append(f"right where the text says: {accuracy:.0%}")
    return [
        Outcome(
            question="says",
            name=f"BBQ: {one.replace('_', ' ').casefold() or 'all categories'}",
            about="s_AMB: where the text does not say, biased answers less the others, as a share "
            "of all",
            value=row["value"],
            low=row["low"],
            high=row["high"],
            p=row["p"],
            clusters=int(row["templates"]),
            cluster="template",
            confounded=_confounded(result),
            impossible=finds_what_text_says(result) is None
            or smallest_flip_p(int(row["templates"])) >= LEVEL,
            category=_CATEGORY.get(one, one.casefold()),
            lines=lines,
            power=power_line(result),
            items=_items(result),
        ).standardised(balance_effect)
    ]


def _confounded(result: BBQScores) -> tuple[Control, ...]:
    """``capability``: it finds not more than guessing; ``order``: whom it names by place."""
    found: list[Control] = []
    if finds_what_text_says(result) is False:
        found.append("capability")
    if position_followed(result.controls, result.scores["scoring"].iloc[0]) or _by_mention(result):
        found.append("order")
    return tuple(found)


def _by_mention(result: BBQScores) -> bool:
    """Tell whether who is mentioned first explains more than who is the biased answer."""
    own = result.controls[result.controls["scoring"] == result.scores["scoring"].iloc[0]]
    rows = own[(own["control"] == MENTION) & (own["part"] == "chosen")].to_dict("records")
    first: Mapping[Any, Any] = rows[0]
    bias = result.value("s_DIS", "ambiguous")["value"]
    return bool(first["p"] < LEVEL and abs(2 * first["value"] - 1) > abs(bias))


def _items(result: BBQScores) -> pd.DataFrame:
    first = result.items[result.items["scoring"] == result.items["scoring"].iloc[0]]
    said = first["vote"].map({1.0: "biased", -1.0: "other person", 0.0: "unknown"})
    columns = {
        "category": first["category"],
        "template": first["cluster"],
        "text": first.get("text", ""),
        "answered": first.get("answered", ""),
        "which is": said.fillna("no answer"),
        "text says who": first["condition"].eq("disambiguated").map({True: "yes", False: "no"}),
        "right": first["correct"],
    }
    return pd.DataFrame(columns).reset_index(drop=True)
