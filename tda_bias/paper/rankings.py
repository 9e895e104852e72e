"""Rankings of heads that others published, against each other and against a run.

Published scores of single heads for the same model: causal mediation of pronouns (Vig et al. 2020),
ablation and the bias of generated text (FASP 2024), separation of topics by attention (Attention
Atlas 2026). All are oriented so that more means that a head carries more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml
from jaxtyping import Float

from tda_bias.config import CrossrefConfig
from tda_bias.crossref.rankings import TOP, agreement
from tda_bias.store.files import rows_of
from tda_bias.store.record import RunRecord
from tda_bias.store.result import Result
from tda_bias.store.run import content_hashes
from tda_bias.types import InputError, RankBy

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias

COMMAND = "crossref published"
_DATA = files("tda_bias.data") / "published"


@dataclass(frozen=True)
class PublishedRankings:
    """Published scores of all heads of a model.

    ``scores`` has the columns ``layer head`` and one per ranking; more means that a head carries
    more. The others are by column: what the rankings are, and the standard errors of those whose
    source ran several seeds.
    """

    scores: pd.DataFrame
    titles: Mapping[str, str]
    standard_errors: Mapping[str, Float[np.ndarray, " head"]]


@cache
def about_rankings() -> dict[str, Any]:
    """Titles, sources and facts of all published rankings."""
    about: dict[str, Any] = yaml.safe_load((_DATA / "rankings.yaml").read_text(encoding="utf-8"))
    return about


def published_models() -> list[str]:
    """Models with published scores of heads, as they are asked for."""
    return sorted(Path(str(path)).stem for path in _DATA.iterdir() if path.name.endswith(".csv"))


def published_rankings(model: str, *, filtered: bool = False) -> PublishedRankings:
    """The published rankings of a model's heads.

    Rankings from items that were chosen by their outcome are among them where there are no others
    of their source, or if ``filtered``.

    Raises:
        InputError: if there are none of the model.
    """
    if model not in published_models():
        raise InputError(
            f"`published` must be one of {', '.join(published_models())}; got {model!r}"
        )
    text = (_DATA / f"{model}.csv").read_text(encoding="utf-8")
    table = pd.DataFrame(rows_of(text, model, columns=("layer", "head"))).apply(pd.to_numeric)
    known = {name: about for name, about in about_rankings()["rankings"].items() if name in table}
    if not filtered:
        unfiltered = {about["source"] for about in known.values() if not about.get("filtered")}
        known = {
            name: about
            for name, about in known.items()
            if not about.get("filtered") or about["source"] not in unfiltered
        }
    signed = {name: about["sign"] * table[name] for name, about in known.items()}
    scores = table[["layer", "head"]].assign(**signed)
    errors = {name: table[f"{name}_se"].to_numpy(float) for name in known if f"{name}_se" in table}
    titles = {name: about["title"] for name, about in known.items()}
    return PublishedRankings(scores, titles, errors)


# -- as a finished run -----------------------------------------------------------------------------


class PublishedRecord(RunRecord):
    """Everything needed to repeat it; ``heads`` is the folder of the run, as it was given."""

    command: str = COMMAND
    heads: str | None = None
    published: str
    by: RankBy
    top: int
    n_resamples: int
    seed: int


_COLUMNS = {
    **dict.fromkeys(("category", "first", "second"), str),
    **dict.fromkeys(("heads", "overlap"), int),
    **dict.fromkeys(
        ("spearman", "by_layers", "chance", "p", "p_within_layers", "power_80", "p_overlap"), float
    ),
}


@dataclass(frozen=True, repr=False)
class PublishedAgreement(Result):
    """Agreement of a run's maps with published rankings.

    Attributes:
        agreement: As ``published_agreement``.
        record: Everything needed to repeat it.
    """

    COMMAND = COMMAND
    RECORD = PublishedRecord
    TABLES = (("agreement", "published.csv", _COLUMNS),)
    SHOWN = (("agreement of rankings", "agreement"),)

    agreement: pd.DataFrame
    record: PublishedRecord


def published_agreement(
    run: HeadBias,
    model: str,
    *,
    config: CrossrefConfig | None = None,
) -> PublishedAgreement:
    """The maps of a run beside the published rankings of its model's heads.

    Returns:
        A table as ``agreement``, with ``category``: ``first`` is the map of the run, ``second`` the
        title of a published ranking.

    Raises:
        InputError: if there are no rankings of the model, or its heads are not the run's.
    """
    config = config or CrossrefConfig()
    by, n_resamples, seed = config.rank_by, config.n_permutations, config.seed
    published, name = published_rankings(model), by or run.rank_by
    theirs = set(map(tuple, published.scores[["layer", "head"]].to_numpy().tolist()))
    tables = []
    for category in run.categories:
        ranked = run.top(None, category=category, by=by)[["layer", "head", "z"]]
        ours = set(map(tuple, ranked[["layer", "head"]].to_numpy().tolist()))
        if ours != theirs:
            raise InputError(
                f"`published` {model} has scores of {len(theirs)} heads, the run ranks "
                f"{len(ours)}: they are not of the same model"
            )
        both = ranked.rename(columns={"z": name}).merge(published.scores, on=["layer", "head"])
        pairs = [(name, title) for title in published.titles]
        agreed = agreement(both, pairs, n_resamples=n_resamples, seed=seed)
        agreed["second"] = agreed["second"].map(published.titles)
        tables.append(agreed.assign(category=category))
    return PublishedAgreement(
        pd.concat(tables, ignore_index=True),
        PublishedRecord(
            model=run.record.model,
            made_from=content_hashes({run.record.command: run.record}),
            published=model,
            by=name,
            top=TOP,
            n_resamples=n_resamples,
            seed=seed,
        ),
    )
