"""Triples against their twins: how much of a preference is wording."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tda_bias.runs.figures import BLUE, GREY, ORANGE, plain_text
from tda_bias.types import InputError


@plain_text
def plot_items_against_twins(items: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Each item's log-odds against its twin's.

    On the dashed line a preference does not change with the target: it is wording. The distance
    from the line is beta, the part that is about the target.

    Args:
        items: The items of ``stereoset_scores`` with twins: columns ``log_prob_s log_prob_a
            logprob_s_twin logprob_a_twin``.
        ax: Where to draw; a new figure without it.

    Raises:
        InputError: if the items have no twins.
    """
    if "logprob_s_twin" not in items:
        raise InputError("the items have no twins; run `tdabias stereoset --twins auto`")
    ax = ax or plt.subplots(layout="constrained")[1]
    triple = (items["log_prob_s"] - items["log_prob_a"]).to_numpy(float)
    twin = (items["logprob_s_twin"] - items["logprob_a_twin"]).to_numpy(float)
    known = np.isfinite(triple) & np.isfinite(twin)
    triple, twin = triple[known], twin[known]
    limit = 1.05 * max(np.abs(triple).max(initial=1.0), np.abs(twin).max(initial=1.0))
    ax.plot([-limit, limit], [-limit, limit], color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    ax.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    ax.axvline(0, color=GREY, linewidth=0.4, zorder=0)
    above = triple > twin
    for chosen, colour, name in ((above, BLUE, "more for the target"), (~above, ORANGE, "less")):
        label = f"{name}: {int(chosen.sum())} of {len(triple)}"
        ax.scatter(twin[chosen], triple[chosen], s=7, color=colour, alpha=0.6, label=label, lw=0)
    ax.set_xlim(-limit, limit)
    ax.set_ylim(-limit, limit)
    ax.set_aspect("equal")
    ax.set_xlabel("the same text about another target:\nlog P(stereotype) - log P(anti-stereotype)")
    ax.set_ylabel("log P(stereotype) - log P(anti-stereotype), nats")
    r = float(np.corrcoef(twin, triple)[0, 1]) if len(triple) > 2 else float("nan")
    ax.set_title(
        f"r = {r:.3f}; triple {np.mean(triple):+.2f} (SD {np.std(triple, ddof=1):.1f}),\n"
        f"minus twin {np.mean(triple - twin):+.2f} (SD {np.std(triple - twin, ddof=1):.1f})",
        fontsize="small",
    )
    ax.legend(loc="upper left", fontsize="x-small", frameon=False)
    return ax
