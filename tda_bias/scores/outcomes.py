"""What the scores of StereoSet and of pairs come to: an outcome for each category, or set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tda_bias.scores.finding import share_by_length
from tda_bias.scores.pair_scores import PairSetScores, compared
from tda_bias.scores.stereoset import log_odds, wins
from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores
from tda_bias.show.names import SETS
from tda_bias.show.text import counted, number_text
from tda_bias.show.verdict import (
    WORDING,
    Bar,
    Control,
    Example,
    Outcome,
    Side,
    four_of_five,
    per_spread,
    power_said,
    share_effect,
    would_find,
)
from tda_bias.stats.clusters import FEWEST_CLUSTERS, ClusterMean, cluster_mean
from tda_bias.stats.resampling import LEVEL
from tda_bias.stats.sign_flips import smallest_flip_p

# Sets that measure grammar or knowledge, and no bias.
_NO_BIAS = ("blimp",)
_WITH = "log-odds, nats"

# -- triples ---------------------------------------------------------------------------------------


def stereoset_outcomes(result: StereoSetScores) -> list[Outcome]:
    """The target effect of every category, or its stereotype score where nothing has a twin."""
    table = result.beta if result.has_twins else result.scores
    rows = table[
        (table["group"] == "all") & (table["scoring"] == "sum") & (table["category"] != "all")
    ]
    read = _target_effect if result.has_twins else _stereotype_score
    return [read(result, row) for row in rows.to_dict("records")]


def _target_effect(result: StereoSetScores, row: Mapping[Any, Any]) -> Outcome:
    own = result.items[result.items["category"] == row["category"]]
    value, low, high = row["beta"], row["beta_low_targets"], row["beta_high_targets"]
    return Outcome(
        question="says",
        name=str(row["category"]).capitalize(),
        about="target effect (beta): how much of a preference for the stereotype depends on whom "
        "the text is about",
        value=value,
        low=low,
        high=high,
        unit="nats",
        p=row["p_targets"],
        clusters=int(row["targets"]),
        impossible=smallest_flip_p(int(row["targets"])) >= LEVEL,
        category=str(row["category"]),
        bars=[
            *Bar.of("wording", row["explained"], WORDING),
            *Bar.of("target", 1 - row["explained"]),
        ],
        lines=[
            f"odds times {_odds(value)}"
            + (f" ({_odds(low)} to {_odds(high)})" if np.isfinite(low) else ""),
            ", ".join(
                [
                    f"{counted(row['items'], 'item')} with a twin",
                    *would_find(row["smallest"], "nats"),
                ]
            ),
        ],
        power=power_said(row["smallest"], "nats"),
        example=_typical(result, own, value),
        items=_items_with_twins(own),
    ).standardised(per_spread(own["beta_sum"].std(ddof=1)))


def _odds(log_odds: float) -> str:
    """By what a difference of log-odds multiplies odds."""
    return number_text(float(np.exp(log_odds)), 1)


def _items_with_twins(own: pd.DataFrame) -> pd.DataFrame:
    """The texts of items and of their twins, and what the model prefers in both."""
    odds = log_odds(own, "sum")
    columns = {
        "target": own["group"],
        "stereotype": _text_of(own, "stereotype"),
        "anti-stereotype": _text_of(own, "anti_stereotype"),
        "twin, stereotype": _text_of(own, "twin_stereotype"),
        "twin, anti-stereotype": _text_of(own, "twin_anti_stereotype"),
        _WITH: odds,
    }
    if "beta_sum" in own:
        columns |= {"twin's log-odds": odds - own["beta_sum"], "target effect": own["beta_sum"]}
    return pd.DataFrame(columns).reset_index(drop=True)


def _text_of(items: pd.DataFrame, name: str) -> Any:
    """A column of texts; empty in runs from before these were kept."""
    return items.get(name, "")


def _typical(result: StereoSetScores, own: pd.DataFrame, mean: float) -> Example | None:
    """The item whose target effect is nearest to the mean, beside its first twin."""
    if "twin_stereotype" not in own:
        return None
    known = own[own["beta_sum"].notna() & (own["twin_stereotype"] != "")]
    if known.empty:
        return None
    nearest = int(np.argmin(np.abs(known["beta_sum"].to_numpy(float) - mean)))
    item = known.to_dict("records")[nearest]
    of_item = result.twins["item"] == known.index[nearest]
    twin = result.twins[of_item].to_dict("records")[0]
    sides = [
        Side(title, row[f"{begin}stereotype"], row[f"{begin}anti_stereotype"], _share(scores))
        for title, begin, row, scores in (
            ("The text", "", item, item),
            ("Its counterfactual twin", "twin_", item, twin),
        )
    ]
    return Example(
        f"One of {counted(len(known), 'item')} of {item['category']}: its effect is nearest to "
        "the mean",
        sides,
    )


def _share(row: Mapping[Any, Any]) -> float:
    """The share of the stereotype in the probability of the two continuations."""
    return float(1 / (1 + np.exp(row["log_prob_a"] - row["log_prob_s"])))


def _stereotype_score(result: StereoSetScores, row: Mapping[Any, Any]) -> Outcome:
    own = result.items[result.items["category"] == row["category"]]
    return _score_outcome(own, row, str(row["category"]).capitalize())


def _score_outcome(own: pd.DataFrame, row: Mapping[Any, Any], name: str) -> Outcome:
    """A stereotype score over terms, without twins."""
    won = wins(own)
    size = won.groupby("group")["stereotype"].transform("size").to_numpy(float)
    share = won["stereotype"].to_numpy(float)
    over_terms = cluster_mean(share, won["group"].to_numpy(), weight=1 / size)
    score = _of_share(over_terms, (row["ss"], row["ss_low"], row["ss_high"]))
    return Outcome(
        question="says",
        name=name,
        about="stereotype score: per cent of items whose stereotype is preferred, 50 without bias; "
        "wording is still in it",
        **score,
        category=str(row["category"]),
        confounded=by_length(share, won["longer"].to_numpy(), won["group"].to_numpy()),
        lines=["without twins: wording is in it", f"language-model score {row['lms']:.0f}"],
        items=_items_with_twins(own),
    ).standardised(_effect_of_per_cent)


def _effect_of_per_cent(value: float) -> float:
    return share_effect(value / 100)


def _of_share(
    mean: ClusterMean, said: tuple[float, float, float], cluster: str = "target"
) -> dict[str, Any]:
    """What an outcome says of a share, which is given in per cent with its limits."""
    return {
        "value": said[0],
        "low": said[1],
        "high": said[2],
        "unit": "%",
        "neutral": 50.0,
        "p": mean.share_pvalue(),
        "clusters": mean.clusters,
        "cluster": cluster,
        "power": _power_of_share(mean),
    }


def _power_of_share(mean: ClusterMean) -> str:
    """The share on either side of one half that four samples of five find, in words."""
    away = 100 * mean.smallest()
    if not 0 < away < 50:
        return "no share four times out of five"
    return four_of_five(f"{50 - away:.0f} or {50 + away:.0f} %")


def by_length(share: np.ndarray, longer: np.ndarray, cluster: np.ndarray) -> tuple[Control, ...]:
    """``length`` where the preference turns round between longer and shorter texts.

    That is: the two shares are on different sides of one half, and their intervals do not meet.

    Args:
        share: Of each item or pair 1 where the first text is preferred, 0 where the other is.
        longer: 1 where the first text is the longer one, -1 where the other is, 0 for neither.
        cluster: What each belongs to, over which the intervals are.
    """
    sides = [cluster_mean(share[longer == sign], cluster[longer == sign]) for sign in (1, -1)]
    if min(side.clusters for side in sides) < FEWEST_CLUSTERS:
        return ()
    least, most = sorted(sides, key=lambda side: side.mean)
    turns = least.mean < 0.5 < most.mean
    return ("length",) if turns and least.share_limits()[1] < most.share_limits()[0] else ()


# -- whole sentences -------------------------------------------------------------------------------


def sentence_outcomes(run: SentenceScores) -> list[Outcome]:
    """The stereotype score of every category, by the first reading of whole sentences."""
    first = run.scores.iloc[0]
    alike = {name: first[name] for name in ("reading", "scored")}
    tables = []
    for table in (run.scores, run.items):
        chosen = (table[list(alike)] == pd.Series(alike)).all(axis=1)
        tables.append(table[chosen])
    scores, items = tables
    rows = scores[
        (scores["group"] == "all") & (scores["scoring"] == "sum") & (scores["category"] != "all")
    ]
    defined = items.dropna(subset=[f"log_prob_{role}" for role in "sau"])
    return [
        _score_outcome(
            defined[defined["category"] == row["category"]],
            row,
            f"{str(row['category']).capitalize()} inside sentences",
        )
        for row in rows.to_dict("records")
    ]


# -- pairs -----------------------------------------------------------------------------------------


def pairs_outcomes(result: PairSetScores) -> list[Outcome]:
    """The share of pairs whose stereotypical text is preferred; none of a set of grammar."""
    record = result.record
    if record.set in _NO_BIAS:
        return []
    table = compared(result.items)
    texts = result.items[result.items["reading"] == result.items["reading"].iloc[0]]
    share, cluster = table["preferred"].to_numpy(float), table["cluster"].to_numpy()
    whole = result.scores.iloc[0]
    said = (whole["preferred"], whole["preferred_low"], whole["preferred_high"])
    known = np.isfinite(share)
    longer = table["longer"].to_numpy(float)
    sums = result.length_split[result.length_split["scoring"] == "sum"]
    split = [part for part in share_by_length(sums, "preferred") if part[0] != "as long"]
    unit = {"winobias": "occupation", "winogender": "occupation"}.get(record.set, "cluster")
    lines = [f"{counted(int(known.sum()), 'pair')}, 50 % = none"]
    if len(split) == 2:
        lines.append(", ".join(f"{name} {value:.0f} %" for name, value, _ in split))
    return [
        Outcome(
            question="says",
            name=SETS.get(record.set, record.set),
            about="per cent of pairs whose stereotypical text (the first) is preferred, 50 without "
            "a preference",
            **_of_share(cluster_mean(share, cluster), said, unit),
            confounded=by_length(share[known], longer[known], cluster[known]),
            lines=lines,
            items=pd.DataFrame(
                {
                    "group": table["group"],
                    "first text": _text_of(texts, "more"),
                    "second text": _text_of(texts, "less"),
                    _WITH: table["log_odds"],
                    "longer": table["longer"].map({1.0: "first", 0.0: "", -1.0: "second"}),
                }
            ).reset_index(drop=True),
        ).standardised(_effect_of_per_cent)
    ]
