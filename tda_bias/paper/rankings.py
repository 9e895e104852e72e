"""Rankings of heads that others published, against each other and against a run.

Published scores of single heads for the same model: causal mediation (Vig et al. 2020), knock-out
(FASP 2024), attention between topics (Attention Atlas 2026). All are oriented so that more means
that a head carries more. ``python -m tda_bias.paper.rankings FILE`` writes the page of results.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.runs.files import write_text
from tda_bias.runs.tables import markdown
from tda_bias.stats.resampling import generator, permutation_pvalue, standardised_ranks
from tda_bias.types import InputError, RankBy

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias

TOP = 10
_PAGE_RESAMPLES = 999
_DATA = files("tda_bias.data") / "published"


@dataclass(frozen=True)
class PublishedRankings:
    """Published scores of all heads of a model.

    Attributes:
        model: Its name.
        scores: Columns ``layer head`` and one per ranking; more means that a head carries more.
        titles: What the rankings are, by column.
        standard_errors: Of those whose source ran several seeds, by column.
    """

    model: str
    scores: pd.DataFrame
    titles: Mapping[str, str]
    standard_errors: Mapping[str, Float[np.ndarray, " head"]]


@cache
def _about() -> dict[str, Any]:
    about: dict[str, Any] = yaml.safe_load((_DATA / "rankings.yaml").read_text(encoding="utf-8"))
    return about


def published_models() -> list[str]:
    """Models with published scores of heads, as they are asked for."""
    return sorted(Path(str(path)).stem for path in _DATA.iterdir() if path.name.endswith(".csv"))


def published_rankings(model: str, *, filtered: bool | None = None) -> PublishedRankings:
    """The published rankings of a model's heads.

    Args:
        model: One of ``published_models``.
        filtered: Whether rankings from items that were chosen by their outcome are among them; if
            None, only where there are no others of their source.

    Raises:
        InputError: if there are none of the model.
    """
    if model not in published_models():
        raise InputError(
            f"`published` must be one of {', '.join(published_models())}; got {model!r}"
        )
    table = pd.read_csv(io.StringIO((_DATA / f"{model}.csv").read_text(encoding="utf-8")))
    known = {name: about for name, about in _about()["rankings"].items() if name in table}
    if filtered is None:
        unfiltered = {about["source"] for about in known.values() if not about.get("filtered")}
        known = {
            name: about
            for name, about in known.items()
            if not about.get("filtered") or about["source"] not in unfiltered
        }
    elif not filtered:
        known = {name: about for name, about in known.items() if not about.get("filtered")}
    scores = table[["layer", "head"]].copy()
    for name, about in known.items():
        scores[name] = about["sign"] * table[name]
    errors = {name: table[f"{name}_se"].to_numpy(float) for name in known if f"{name}_se" in table}
    titles = {name: about["title"] for name, about in known.items()}
    return PublishedRankings(model, scores, titles, errors)


# -- agreement -------------------------------------------------------------------------------------


def agreement(
    scores: pd.DataFrame,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    top: int = TOP,
    n_resamples: int = 9999,
    seed: int = 0,
) -> pd.DataFrame:
    """How far rankings of the same heads agree, with what chance gives.

    Args:
        scores: Columns ``layer head`` and one per ranking.
        pairs: Which rankings to compare; all with each other if None.
        top: So many heads from the top count as chosen.
        n_resamples: Permutations of heads.
        seed: Of the permutations.

    Returns:
        One row per pair: ``first second heads spearman p p_within_layers overlap chance
        p_overlap``. p is of the size of the correlation over permutations of all heads;
        ``p_within_layers`` exchanges heads of the same layer only, so that two rankings that agree
        about layers and not about heads get no small one. ``overlap`` is the number of heads in
        both tops, ``chance`` its mean for random rankings, ``p_overlap`` their share with as many
        or more.
    """
    names = [name for name in scores.columns if name not in ("layer", "head")]
    rows = []
    for first, second in pairs if pairs is not None else combinations(names, 2):
        both = scores[["layer", first, second]].dropna()
        layer = both["layer"].to_numpy()
        x, y = both[first].to_numpy(float), both[second].to_numpy(float)
        rng = generator(seed, first, second)
        rows.append(
            {
                "first": first,
                "second": second,
                "heads": len(both),
                **_correlation(x, y, layer, n_resamples, rng),
                **_overlap(x, y, min(top, len(both))),
            }
        )
    return pd.DataFrame(rows)


def _correlation(
    x: Float[np.ndarray, " head"],
    y: Float[np.ndarray, " head"],
    layer: Int[np.ndarray, " head"],
    n_resamples: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    first, second = standardised_ranks(x), standardised_ranks(y)
    rho = float(first @ second)
    if np.isnan(rho):
        return {"spearman": np.nan, "p": np.nan, "p_within_layers": np.nan}
    everywhere = rng.permuted(np.tile(first, (n_resamples, 1)), axis=1) @ second
    inside = np.tile(first, (n_resamples, 1))
    by_layers = 0.0  # what the layers' means alone give
    for number in np.unique(layer):
        places = np.flatnonzero(layer == number)
        inside[:, places] = rng.permuted(inside[:, places], axis=1)
        by_layers += first[places].sum() * second[places].mean()
    row = {"spearman": rho}
    nulls = {"p": (everywhere, 0.0), "p_within_layers": (inside @ second, by_layers)}
    for name, (null, centre) in nulls.items():
        count = np.sum(np.abs(null - centre) >= abs(rho - centre) - 1e-12)
        row[name] = float(permutation_pvalue(np.asarray(count), n_resamples, exact=False))
    return row


def _overlap(
    x: Float[np.ndarray, " head"], y: Float[np.ndarray, " head"], top: int
) -> dict[str, float]:
    chosen = [set(np.argsort(-values, kind="stable")[:top].tolist()) for values in (x, y)]
    shared = len(chosen[0] & chosen[1])
    return {
        "overlap": shared,
        "chance": top**2 / len(x),
        "p_overlap": float(stats.hypergeom.sf(shared - 1, len(x), top, top)),
    }


def reliability(model: str, *, n_resamples: int = 9999, seed: int = 0) -> pd.DataFrame:
    """How far published rankings of a model agree with themselves.

    Returns:
        One row per ranking that its source measured twice or with several seeds: ``ranking with
        heads spearman overlap chance seeds``. ``seeds`` is the share of the variance over heads
        that the seeds' standard errors leave, a lower bound, because what a seed does to all heads
        alike counts as error too; 0 where nothing is left.
    """
    published = published_rankings(model, filtered=True)
    rows: list[dict[str, Any]] = []
    for first, second in _about()["halves"]:
        if first in published.scores and second in published.scores:
            agreed = agreement(
                published.scores, [(first, second)], n_resamples=n_resamples, seed=seed
            )
            names = ("heads", "spearman", "overlap", "chance")
            kept: dict[str, Any] = {name: agreed[name].iloc[0] for name in names}
            titles = (published.titles[first], published.titles[second])
            rows.append({"ranking": titles[0], "with": titles[1], **kept, "seeds": np.nan})
    for name, errors in published.standard_errors.items():
        spread = published.scores[name].var()
        share = max(0.0, 1 - float(np.mean(errors**2)) / float(spread))
        about = {"ranking": published.titles[name], "with": "three seeds", "heads": len(errors)}
        rows.append({**about, "seeds": share})
    columns = ["ranking", "with", "heads", "spearman", "overlap", "chance", "seeds"]
    return pd.DataFrame(rows, columns=columns)


def against_published(
    run: HeadBias,
    model: str,
    *,
    by: RankBy | None = None,
    top: int = TOP,
    n_resamples: int = 9999,
    seed: int = 0,
) -> pd.DataFrame:
    """The maps of a run beside the published rankings of its model.

    Args:
        run: From ``tdabias heads``.
        model: One of ``published_models``.
        by: Which map of the run; that which ranks its heads if None.
        top: As in ``agreement``.
        n_resamples: As in ``agreement``.
        seed: As in ``agreement``.

    Returns:
        As ``agreement``, with ``category``: ``first`` is the map of the run,
        ``second`` the title of a published ranking.

    Raises:
        InputError: if there are no rankings of the model, or its heads are not the run's.
    """
    published, name = published_rankings(model), by or run.rank_by
    theirs = set(map(tuple, published.scores[["layer", "head"]].to_numpy().tolist()))
    tables = []
    for category in run.categories:
        ranked = run.top(10**9, category=category, by=by)[["layer", "head", "z"]]
        ours = set(map(tuple, ranked[["layer", "head"]].to_numpy().tolist()))
        if ours != theirs:
            raise InputError(
                f"`published` {model} has scores of {len(theirs)} heads, the run ranks "
                f"{len(ours)}: they are not of the same model"
            )
        both = ranked.rename(columns={"z": name}).merge(published.scores, on=["layer", "head"])
        pairs = [(name, title) for title in published.titles]
        agreed = agreement(both, pairs, top=top, n_resamples=n_resamples, seed=seed)
        agreed["second"] = agreed["second"].map(published.titles)
        tables.append(agreed.assign(category=category))
    return pd.concat(tables, ignore_index=True)


# -- the page --------------------------------------------------------------------------------------


def page() -> str:
    """``docs/results/rankings.md``: published rankings against each other."""
    published = published_rankings("gpt2")
    agreed = agreement(published.scores, n_resamples=_PAGE_RESAMPLES)
    letters = dict(zip(published.titles, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    chance = agreed["chance"].iloc[0]
    threshold = 1.96 / np.sqrt(len(published.scores) - 1)
    parts = [
        "# Published rankings of heads",
        "Several groups have scored every attention head of GPT-2 small for what it has to do with "
        "bias. Do they find the same heads? This page is made by `python -m "
        "tda_bias.paper.rankings docs/results/rankings.md` from numbers that ship with the package "
        "(`tda_bias/data/published`). `tdabias crossref RUN --published gpt2` puts a run of yours "
        "beside them.",
        _findings(published, agreed),
        "## Agreement",
        "Above the diagonal Spearman's correlation over 144 heads, below it how many of the top "
        f"{TOP} heads two rankings share. Chance: two random rankings share {chance:.1f}, and in "
        "95 % of cases at most 2; their correlation lies between "
        f"-{threshold:.2f} and {threshold:.2f}.",
        markdown(_matrix(published, agreed, letters)),
        "\n".join(f"- **{letters[name]}** {title}" for name, title in published.titles.items()),
        "## Reliability",
        "A ranking cannot agree with another one better than with itself. Where a source measured "
        "the same twice (other items), the two halves are compared; where it ran several seeds, "
        "the share of the variance over heads is given that is not noise of the seeds (a lower "
        "bound).",
        *(_reliability_of(model) for model in ("gpt2", "distilgpt2", "gpt2-medium")),
        "\n".join(f"- {fact}" for fact in _about()["facts"]),
        "## Sources",
        "\n".join(
            f"- {source['title']}. {source['repository']}, commit {source['commit']}. "
            f"{source['licence']}."
            for source in _about()["sources"].values()
        ),
        "The Attention Atlas scores how far attention differs between the topics gender, race, "
        "religion and profession, not between stereotype and anti-stereotype.",
    ]
    return "\n\n".join(parts) + "\n"


def _findings(published: PublishedRankings, agreed: pd.DataFrame) -> str:
    """The answer in one paragraph, in numbers."""
    source = {name: _about()["rankings"][name]["source"] for name in published.titles}
    bias = [n for n in published.titles if n.startswith(("vig_", "fasp_bias"))]
    among = agreed[agreed["first"].isin(bias) & agreed["second"].isin(bias)]
    across = among[among["first"].map(source) != among["second"].map(source)]
    within = among[among["first"].map(source) == among["second"].map(source)]
    small = int((across["p"] < 0.05).sum())
    shared, chance = across["overlap"].mean(), across["chance"].iloc[0]
    return (
        f"Between the two sources that score bias there are {len(across)} pairs of rankings. Their "
        f"mean correlation is {across['spearman'].mean():.2f}, {small} have p < .05 "
        f"({0.05 * len(across):.1f} expected by chance), and they share {shared:.1f} of {TOP} top "
        f"heads ({chance:.1f} by chance). Within a source the {len(within)} pairs have a mean "
        f"correlation of {within['spearman'].mean():.2f} and share {within['overlap'].mean():.1f}."
    )


def _matrix(
    published: PublishedRankings, agreed: pd.DataFrame, letters: Mapping[str, str]
) -> pd.DataFrame:
    names = list(published.titles)
    cells = {name: dict.fromkeys(names, "") for name in names}
    for row in agreed.to_dict("records"):
        cells[row["first"]][row["second"]] = f"{row['spearman']:.2f}"
        cells[row["second"]][row["first"]] = f"{row['overlap']:.0f}"
    table = pd.DataFrame([{letters[n]: cells[name][n] for n in names} for name in names])
    table.insert(0, "", [letters[name] for name in names])
    return table


def _reliability_of(model: str) -> str:
    table = reliability(model, n_resamples=_PAGE_RESAMPLES)
    table["overlap"] = [
        "" if n != n else f"{n:.0f} ({c:.1f} by chance)"
        for n, c in zip(table["overlap"], table["chance"], strict=True)
    ]
    for name in ("spearman", "seeds"):
        table[name] = ["" if value != value else f"{value:.2f}" for value in table[name]]
    return f"### {model}\n\n" + markdown(table.drop(columns="chance"))


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), page())
