"""What a confirmation comes to: whether heads, or less bias, are found again on other targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tda_bias.heads.confirmation import Confirmed
from tda_bias.heads.confirmation_finding import z_needed
from tda_bias.show.names import named
from tda_bias.show.table import with_head_names
from tda_bias.show.verdict import Outcome, four_of_five, per_spread, power_said
from tda_bias.stats.resampling import LEVEL
from tda_bias.stats.sign_flips import smallest_flip_p


def confirm_outcomes(result: Confirmed) -> list[Outcome]:
    """One outcome: of heads on half of the targets or on other data, or of a trained model."""
    if "chosen" in result.table:
        return [_on_other_half(result)]
    return [_on_other_data(result) if "z_other" in result.table else _of_model(result)]


def _named(begin: str, result: Confirmed) -> str:
    """The name with the category, which runs of earlier versions do not have."""
    category = result.summary.get("category")
    return f"{begin}: {category}" if category else begin


def _on_other_half(result: Confirmed) -> Outcome:
    found = result.summary
    by_location = found["by"] == "location"
    needed, reliability = (_number(found, name) for name in ("needed", "correlation"))
    neutral = 100 * _number(found, "all_heads" if by_location else "chance")
    return Outcome(
        question="tests",
        name=_named("Heads found again", result),
        about="per cent of the heads that rank first on half of the targets with p <= .05 on the "
        "other half",
        value=100 * _number(found, "replicated"),
        unit="%",
        neutral=neutral,
        p=_number(found, "p"),
        clusters=len(found["targets"]),
        impossible=not needed < 1,
        category=found.get("category", ""),
        lines=[
            f"{neutral:.1f} % {'of any heads' if by_location else 'by chance'}",
            *([f"Spearman of the halves {reliability:.2f}"] if math.isfinite(reliability) else []),
        ],
        limits=[] if found["twins"] else ["without twins: wording is in it"],
        power=f"p < .05 from {100 * needed:.1f} % found again" if needed < 1 else "",
        items=with_head_names(result.table),
    )


def _on_other_data(result: Confirmed) -> Outcome:
    found, table = result.summary, result.table
    smallest = _number(found, "smallest_p")
    return Outcome(
        question="tests",
        name=_named("Heads found on other data", result),
        about="heads that rank first in the run, after Holm's correction on other data",
        p=float(table["p_holm"].min()),
        clusters=int(found.get("targets", 0)),
        found=int(found["confirmed"]),
        of=len(table),
        # Holm's p of the first of them.
        impossible=smallest * len(table) >= LEVEL,
        category=found.get("category", ""),
        lines=[
            f"{int((table['p_other'] < LEVEL).sum())} with p < .05, {LEVEL * len(table):.1f} by "
            "chance"
        ],
        power=four_of_five(f"a z of {z_needed(len(table)):.1f} there"),
        items=with_head_names(table),
    )


def _of_model(result: Confirmed) -> Outcome:
    found, table = result.summary, result.table
    change = table["after"] - table["before"]
    of_beta = found["quantity"] == "beta"
    quantity, unit = ("beta", "nats per token") if of_beta else ("log_odds", "nats")
    targets = int(found["targets"])
    return Outcome(
        question="change",
        name=f"Change: {named(quantity)} on new targets",
        about="after the training less before it, on targets that no training saw",
        value=found["change"],
        low=_number(found, "low"),
        high=_number(found, "high"),
        unit=unit,
        p=_number(found, "p"),
        clusters=targets,
        impossible=smallest_flip_p(targets) >= LEVEL,
        lines=[
            f"{found['before']:.3f} to {found['after']:.3f}",
            "less biased" if found["less"] else "not measurably less biased",
        ],
        power=power_said(_number(found, "smallest"), unit),
        items=table.rename(columns={"group": "target"}).assign(change=change),
    ).standardised(per_spread(change.std(ddof=1)))


def _number(values: Mapping[str, Any], name: str) -> float:
    """A number of a summary, in which what is undefined, or not yet known then, is missing."""
    value = values.get(name)
    return math.nan if value is None else float(value)
