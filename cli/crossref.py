"""``tdabias crossref``: do targets that heads single out also show risk in what the model says?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from tda_bias.records.text import p_text
from tda_bias.types import MAX_RESAMPLES, MAX_SEED, InputError, RankBy

from .options import Positional, command
from .settings import FilePath
from .text import print_lines, print_table

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.behaviour.crossref import HeadMap
    from tda_bias.results.head_bias import HeadBias


class CrossrefSettings(BaseModel):
    """Everything ``tdabias crossref`` can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    behaviour: Annotated[FilePath, Positional()] = Field(
        description="Folder that `tdabias pvf` or `tdabias unqover` wrote."
    )
    stereoset: FilePath | None = Field(
        None, description="folder that `tdabias stereoset` wrote: adds its per-target score"
    )
    by: RankBy | None = Field(
        None, description="which combined value of a head is T (default: the run's)"
    )
    match: Literal["exact", "near", "weak"] = Field(
        "exact", description="how loosely an occupation may stand for a target"
    )
    n_resamples: int = Field(9999, ge=99, le=MAX_RESAMPLES, description="permutations of targets")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    out: FilePath | None = Field(None, description="folder for the files (default: RUN/crossref)")


@command(CrossrefSettings)
def crossref(settings: CrossrefSettings) -> None:
    """Correlate, over StereoSet's targets, what heads do with what the model says."""
    import numpy as np
    import pandas as pd

    from tda_bias.behaviour.crossref import correlations, head_map, head_vectors
    from tda_bias.behaviour.rank_tests import mantel
    from tda_bias.results.head_bias import HeadBias

    heads = HeadBias.load(settings.run)
    by = settings.by or heads.rank_by
    n_resamples, seed = settings.n_resamples, settings.seed
    table, quantities, bridge = _joined(
        heads, settings.behaviour, settings.stereoset, by, settings.match
    )
    found = correlations(
        table, [*quantities, *bridge], n_resamples=n_resamples, rng=np.random.default_rng([seed, 0])
    )
    if bridge:
        direct = correlations(
            table, quantities, bridge, n_resamples=n_resamples, rng=np.random.default_rng([seed, 1])
        )
        found = pd.concat([found, direct], ignore_index=True)
    keys, values, columns = head_vectors(heads.combined, by=by)
    order = [_place(keys, row) for row in table[["category", "target"]].to_dict("records")]
    values, category = values[order], list(table["category"])
    maps, profiles = {}, []
    for number, name in enumerate([*quantities, *bridge]):
        rng = np.random.default_rng([seed, 2 + number])
        own = table[name].to_numpy(float)
        options: dict[str, Any] = {"n_resamples": n_resamples, "rng": rng}
        maps[name] = head_map(values, columns, own, category, name=name, **options)
        for distance in ("cosine", "spearman"):
            test = mantel(values, own, category, distance=distance, **options)
            profiles.append({"quantity": name, "distance": distance, **test})
    folder = settings.out or settings.run / "crossref"
    record = {
        "command": "crossref",
        "heads": str(settings.run),
        "behaviour": str(settings.behaviour),
        "by": by,
        "stereoset": None if settings.stereoset is None else str(settings.stereoset),
        **settings.model_dump(include={"match", "n_resamples", "seed"}),
        "model": heads.record["model"]["name"],
        "mantel": profiles,
        "shuffled_heads": {name: m.shuffled for name, m in maps.items()},
    }
    _save(folder, table, found, maps, record)
    _print(table, found, maps, profiles, heads.record["model"]["name"])
    print_lines(f"Files: {folder}/ (targets.csv, correlations.csv, head_map.csv, targets.png, ...)")


def _joined(
    heads: HeadBias, behaviour: Path, stereoset: Path | None, by: RankBy, match: str
) -> tuple[pd.DataFrame, list[str], list[str]]:
    """The table over targets, and the names of its quantities and of StereoSet's own."""
    import pandas as pd

    from tda_bias.behaviour.crossref import head_summaries
    from tda_bias.behaviour.targets import joined, same_model, signed_quantity, with_frequency

    record = _record(behaviour, "tdabias pvf", "tdabias unqover")
    same_model(heads.record, record)
    try:
        by_x = pd.read_csv(behaviour / "by_x.csv")
    except OSError:
        raise InputError(
            f"{behaviour} has no by_x.csv; `tdabias pvf risk {behaviour}` makes it"
            if record["command"] == "pvf"
            else f"{behaviour} has no by_x.csv; run `tdabias unqover` again"
        ) from None
    signed = signed_quantity(by_x.columns)
    quantities = ["r", "r_p", "r_v", signed]
    summaries = head_summaries(heads.table, heads.combined, by=by)
    kept = ["x", *quantities, *(["tokens"] if "tokens" in by_x else [])]
    table = with_frequency(joined(summaries, by_x[kept], match=match))
    if stereoset is None:
        return table, quantities, []
    same_model(heads.record, _record(stereoset, "tdabias stereoset"))
    items = pd.read_parquet(stereoset / "items.parquet")
    items["log_odds"] = items["log_prob_s"] - items["log_prob_a"]
    per_target = items.groupby(["category", "group"])["log_odds"].mean().reset_index()
    per_target = per_target.rename(columns={"group": "target"})
    per_target["abs_log_odds"] = per_target["log_odds"].abs()
    both = table.merge(per_target, on=["category", "target"], how="left")
    if both["log_odds"].isna().any():
        lacking = both["target"][both["log_odds"].isna()].iloc[0]
        raise InputError(f"{stereoset} has no items of {lacking!r}; run it on the same category")
    return both, quantities, ["log_odds", "abs_log_odds"]


def _record(folder: Path, *commands: str) -> dict[str, Any]:
    wanted = " or ".join(f"`{command}`" for command in commands)
    try:
        record: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{folder} holds no finished run of {wanted}") from None
    if f"tdabias {record.get('command')}" not in commands:
        raise InputError(f"{folder} is no run of {wanted}")
    return record


def _place(keys: pd.DataFrame, row: dict[Any, Any]) -> int:
    same = (keys["category"] == row["category"]) & (keys["target"] == row["target"])
    return int(same.to_numpy().argmax())


def _save(
    folder: Path,
    table: pd.DataFrame,
    found: pd.DataFrame,
    maps: dict[str, HeadMap],
    record: dict[str, Any],
) -> None:
    import pandas as pd
    from matplotlib.figure import Figure

    from tda_bias.behaviour.targets import signed_quantity
    from tda_bias.plots.behaviour import plot_correlation_map, plot_targets
    from tda_bias.records.figures import write_figure
    from tda_bias.records.files import to_json, write_csv, write_text

    heads = pd.concat([m.table.assign(quantity=name) for name, m in maps.items()])
    for name, content in (("targets", table), ("correlations", found), ("head_map", heads)):
        write_csv(folder / f"{name}.csv", content)
    figures = {"targets": Figure(figsize=(9.0, 4.0), layout="constrained")}
    signed = signed_quantity(table.columns)
    for ax, quantity in zip(figures["targets"].subplots(1, 2), ("r", signed), strict=True):
        plot_targets(table, quantity, "mean_abs_T", ax=ax)
    figures["head_map"] = Figure(figsize=(5.4, 5.6), layout="constrained")
    plot_correlation_map(maps["r"], n=len(table), ax=figures["head_map"].subplots())
    for name, figure in figures.items():
        write_figure(folder, name, figure)
    write_text(folder / "run.json", to_json(record))


# -- what is printed -------------------------------------------------------------------------------


def _print(
    table: pd.DataFrame,
    found: pd.DataFrame,
    maps: dict[str, HeadMap],
    profiles: list[dict[str, Any]],
    model: str,
) -> None:
    from tda_bias.behaviour.rank_tests import power
    from tda_bias.behaviour.targets import match_counts

    n = len(table)
    shown = Table(title=f"{model} · {n} targets ({match_counts(table)})", title_justify="left")
    shown.add_column("quantity")
    shown.add_column("of heads")
    for heading in ("Spearman", "p", "95 % interval", "partial p", "q"):
        shown.add_column(heading, justify="right")
    for row in found.sort_values("p", kind="stable").head(8).to_dict("records"):
        interval = f"{row['low']:.2f} to {row['high']:.2f}"
        cells = [f"{row['spearman']:.2f}", p_text(row["p"]), interval]
        shown.add_row(
            row["quantity"], row["summary"], *cells, p_text(row["p_partial"]), p_text(row["q"])
        )
    print_table(shown)
    print_lines(_covariate_line(table), *_lines(found, maps, profiles, power(n), n))


def _covariate_line(table: pd.DataFrame) -> str:
    """What the partial correlations are free of."""
    from tda_bias.behaviour.crossref import usable_covariates

    about = {
        "n_items": "number of items",
        "tokens": "tokens of the word",
        "zipf": "word frequency",
    }
    used = [about[name] for name in usable_covariates(table)]
    more = "" if "zipf" in table else " Word frequencies need pip install 'tdabias[frequency]'."
    return f"Partial p: without the ranks of {', '.join(used) or 'nothing'}.{more}"


def _lines(
    found: pd.DataFrame,
    maps: dict[str, HeadMap],
    profiles: list[dict[str, Any]],
    power: dict[str, float],
    n: int,
) -> list[str]:
    lines = [
        f"Power: with {n} targets |rho| must reach {power['significant']:.2f} for p < .05; a true "
        f"rho of {power['power_80']:.2f} is found four times out of five.",
    ]
    surviving, tested = found[found["q"] < 0.05], int(found["p"].notna().sum())
    lines.append(
        f"{len(surviving)} of {tested} correlations have q < .05."
        if len(surviving)
        else f"Nothing survives correction among {tested} correlations: this join shows no "
        "link between what the heads do with a target and what the model says of it."
    )
    for name, own in maps.items():
        heads = own.table[own.table["p_max"] < 0.05]
        named = ", ".join(f"L{r.layer}H{r.head}" for r in heads.itertuples()) or "none"
        lines.append(
            f"Heads whose |T| goes with {name} (family-wise p < .05): {named}; "
            f"{int((own.table['p'] < 0.05).sum())} with p < .05, {own.shuffled['heads_p05']:.0f} "
            f"with heads shuffled, {own.shuffled['expected_p05']:.0f} expected."
        )
    best = min(profiles, key=lambda row: row["p"] if row["p"] == row["p"] else 2.0)
    lines.append(
        f"Profiles of heads (Mantel): smallest p {p_text(best['p'])} of {len(profiles)} tests "
        f"({best['quantity']}, {best['distance']}, rho {best['rho']:.2f})."
    )
    return lines
