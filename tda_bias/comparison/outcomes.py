"""What a comparison comes to: of models, samples and two runs of BBQ what changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.comparison.bbq_change import BBQChange
from tda_bias.comparison.models import ModelComparison
from tda_bias.comparison.outcome import after_names
from tda_bias.comparison.samples import SampleComparison
from tda_bias.show.names import named
from tda_bias.show.text import counted, interval_text, number_text
from tda_bias.show.verdict import Outcome, per_spread, power_said
from tda_bias.stats.resampling import LEVEL, holm
from tda_bias.stats.sign_flips import smallest_flip_p

# Both have a table of changes, and items before and after.
_Compared = ModelComparison | SampleComparison


def comparison_outcomes(comparison: ModelComparison) -> list[Outcome]:
    """The change of every primary outcome of two models that was measured."""
    return _changes(comparison, named)


def samples_outcomes(comparison: SampleComparison) -> list[Outcome]:
    """The change of every task of lm-evaluation-harness, which has its own name."""
    return _changes(comparison, str)


def _changes(comparison: _Compared, name: Callable[[str], str]) -> list[Outcome]:
    table = comparison.table
    primary = table[table["primary"]].reset_index(drop=True)
    p = primary["p"].to_numpy(float)
    costs = bool((table["guard"] == "fail").any())
    return [
        _outcome(
            comparison,
            row,
            name(row["outcome"]),
            can_be_found=_smallest(comparison, row, p, place) < LEVEL,
            costs=costs,
        )
        for place, row in enumerate(primary.to_dict("records"))
        if row["change"] == row["change"]
    ]


def _smallest(
    comparison: _Compared,
    row: Mapping[Any, Any],
    p: Float[np.ndarray, " outcome"],
    place: int,
) -> float:
    """The smallest corrected p that an outcome could have had beside the others as they are."""
    own = p.copy()
    own[place] = smallest_flip_p(int(row["clusters"]), comparison.record.n_flips)
    return float(holm(own)[place])


def _outcome(
    comparison: _Compared, row: Mapping[Any, Any], name: str, *, can_be_found: bool, costs: bool
) -> Outcome:
    own = comparison.items[comparison.items["outcome"] == row["outcome"]]
    change = own[after_names(own)].mean(axis=1) - own["before"]
    spread = change.std(ddof=1) if len(change) > 1 else math.nan
    said = " to ".join(number_text(row[name]) for name in ("before", "after"))
    neutral = "" if math.isnan(row["neutral"]) else f", {row['neutral']:g} is neutral"
    return Outcome(
        question="change",
        name=f"Change: {name}",
        about=str(row["about"]) or "after less before",
        value=row["change"],
        low=row["low"],
        high=row["high"],
        unit=str(row["unit"]),
        p=row["p"],
        p_corrected=row["p_holm"],
        clusters=int(row["clusters"]),
        impossible=not can_be_found,
        cluster=str(row["cluster"]),
        is_bias=row["kind"] == "bias",
        # Less bias that is paid with language is no less bias of the same model.
        confounded=("capability",) if costs else (),
        lines=[
            f"{said}{neutral}",
            counted(int(row["items"]), "item"),
            *(["a guard fails: quality is lost"] if costs else []),
        ],
        power=_ruled_out(row),
        items=_items(own, change),
    ).standardised(per_spread(spread))


def _ruled_out(row: Mapping[Any, Any]) -> str:
    """Which changes the interval leaves out; empty where there is none."""
    if not math.isfinite(row["low"]):
        return ""
    return f"a change outside {interval_text(row['low'], row['high'], 3)} is ruled out"


def bbq_outcomes(comparison: BBQChange) -> list[Outcome]:
    """The change of the bias of ambiguous texts, s_AMB; nothing where none is shared."""
    rows = comparison.changes.set_index(["condition", "measure"]).to_dict("index")
    row, able = rows.get(("ambiguous", "s_AMB")), rows.get(("disambiguated", "accuracy"))
    if row is None:
        return []
    lines = [f"{number_text(row['before'], 3)} to {number_text(row['after'], 3)}"]
    if able is not None:
        lines.append(f"accuracy {able['change']:+.3f} where the text says who")
    templates = int(row["templates"])
    return [
        Outcome(
            question="change",
            name=f"Change: {named('bbq_s_AMB')}",
            about="BBQ, ambiguous: biased answers less those of the other person, after less "
            "before",
            value=row["change"],
            low=row["low"],
            high=row["high"],
            p=row["p"],
            clusters=templates,
            cluster="template",
            impossible=smallest_flip_p(templates, comparison.record.n_resamples) >= LEVEL,
            lines=lines,
            power=power_said(row["smallest"]),
        )
    ]


def _items(own: pd.DataFrame, change: pd.Series[float]) -> pd.DataFrame:
    kept = own[["item", "cluster", "before", *after_names(own)]]
    return kept.assign(change=change).reset_index(drop=True)
