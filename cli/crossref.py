"""``tdabias crossref``: do targets that heads single out also show risk in what the model says?"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from rich.table import Table

from tda_bias.runs.text import counted, interval_text, number_text, p_text
from tda_bias.types import MAX_RESAMPLES, MAX_SEED, HeadId, InputError, RankBy

from .options import Positional, command
from .output import Finding, Output
from .run_folder import run_folder
from .settings import FilePath, Name, RunSettings, folder_name
from .text import uncut_table

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.crossref.crossref import CrossReference
    from tda_bias.crossref.item_crossref import ItemCrossReference
    from tda_bias.paper.published_run import PublishedAgreement


class CrossrefSettings(RunSettings):
    """Settings of ``tdabias crossref``."""

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    behaviour: Annotated[FilePath | None, Positional()] = Field(
        None,
        description="Folder that `tdabias pvf` or `tdabias unqover` wrote. With --items: that "
        "`tdabias stereoset` wrote. Not with --published.",
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
    items: bool = Field(
        False, description="item by item: heads against the preference of tdabias stereoset"
    )
    scoring: Literal["sum", "mean"] = Field(
        "sum", description="with --items: log-probabilities as sums, or means over tokens"
    )
    published: Name | None = Field(
        None,
        description="a model whose heads others have ranked, for example gpt2: the run's map "
        "beside their rankings",
    )
    n_resamples: int = Field(
        9999,
        ge=99,
        le=MAX_RESAMPLES,
        description="permutations of targets, with --items of items, with --published of heads",
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    out: FilePath | None = Field(
        None,
        description="folder for the files (default: RUN/crossref); with --items: RUN/items; with "
        "--published: RUN/published-MODEL",
    )

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        by_default = "items" if self.items else "crossref"
        if self.published is not None:
            by_default = f"published-{folder_name(self.published)}"
        return self.out or self.run / by_default

    @property
    def said(self) -> Path:
        """The run that says what the model says.

        Raises:
            InputError: if it is not given.
        """
        if self.behaviour is None:
            raise InputError(
                "give the folder that `tdabias pvf` or `tdabias unqover` wrote behind that of the "
                "heads (with --items: that of `tdabias stereoset`), or --published"
            )
        return self.behaviour

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run, and the runs that are compared."""
        files = {"behaviour", "stereoset", "published"}
        names = {"by", "match", "scoring", "n_resamples", "seed", *files}
        return self.model_dump(mode="json", include=names)


@command(CrossrefSettings)
def crossref(settings: CrossrefSettings) -> None:
    """Correlate, over StereoSet's targets, what heads do with what the model says."""
    if settings.published is not None:
        shown = by_published(settings, settings.published)
    else:
        shown = by_item(settings) if settings.items else by_target(settings)
    shown.print(settings)


def by_target(settings: CrossrefSettings) -> Output:
    """Over targets: what heads do with what the model says of their words.

    Raises:
        InputError: if the runs cannot be read or joined.
    """
    from tda_bias.crossref.crossref import cross_reference
    from tda_bias.crossref.targets import Said
    from tda_bias.heads.result import HeadBias
    from tda_bias.plots.behaviour import crossref_figures
    from tda_bias.scores.stereoset_scores import StereoSetScores

    with run_folder(settings.folder, "crossref", settings):
        scores = None if settings.stereoset is None else StereoSetScores.load(settings.stereoset)
        result = cross_reference(
            HeadBias.load(settings.run),
            Said.load(settings.said),
            stereoset=scores,
            by=settings.by,
            match=settings.match,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
        )
        result = result.with_record(
            heads=str(settings.run),
            behaviour=str(settings.behaviour),
            stereoset=None if settings.stereoset is None else str(settings.stereoset),
            settings=settings.model_dump(mode="json"),
        )
        result.save(settings.folder, figures=crossref_figures(result))
    return target_output(result, settings.folder)


def by_item(settings: CrossrefSettings) -> Output:
    """Over items: what heads do with the preference for the stereotype text.

    Raises:
        InputError: if the runs cannot be read or joined, or an option is for targets only.
    """
    for_targets = {"stereoset", "by", "match"} & settings.model_fields_set
    if for_targets:
        name = min(for_targets)
        raise InputError(f"`{name}` is about targets; leave --{name} out, or --items")

    from tda_bias.crossref.item_crossref import COMMAND, cross_reference_items
    from tda_bias.runs.run import open_run
    from tda_bias.scores.stereoset_scores import StereoSetScores

    with run_folder(settings.folder, COMMAND, settings):
        result = cross_reference_items(
            open_run(settings.run, "heads"),
            StereoSetScores.load(settings.said),
            scoring=settings.scoring,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
        )
        result = result.with_record(
            heads=str(settings.run),
            stereoset=str(settings.behaviour),
            settings=settings.model_dump(mode="json"),
        )
        result.save(settings.folder)
    return item_output(result, settings.folder)


# -- targets ---------------------------------------------------------------------------------------


def target_output(result: CrossReference, folder: Path) -> Output:
    """The strongest correlations, what survives, and what could have been found."""
    found = target_finding(result, folder)
    files = f"Files: {folder}/ (targets.csv, correlations.csv, head_map.csv, targets.png, ...)"
    names = ("targets", "correlations", "profiles")
    values = {name: getattr(result, name).to_dict("records") for name in names}
    about = {"folder": str(folder), "model": result.record.model.model_dump()}
    return Output(
        shown=[found, correlation_table(result), files],
        values={**about, "finding": found.as_values(), **values},
        rows=result.correlations,
    )


def correlation_table(result: CrossReference) -> Table:
    """The correlations with the smallest p."""
    from tda_bias.crossref.targets import match_counts

    about = f"{counted(len(result.targets), 'target')} ({match_counts(result.targets)})"
    shown = Table(title=f"{result.record.model.name} · {about}", title_justify="left")
    shown.add_column("quantity")
    shown.add_column("of heads")
    for heading in ("Spearman", "p", "95 % interval", "partial p", "q"):
        shown.add_column(heading, justify="right")
    for row in result.correlations.sort_values("p", kind="stable").head(8).to_dict("records"):
        interval = interval_text(row["low"], row["high"])
        cells = [f"{row['spearman']:.2f}", p_text(row["p"]), interval]
        shown.add_row(
            row["quantity"], row["summary"], *cells, p_text(row["p_partial"]), p_text(row["q"])
        )
    return shown


def covariate_line(table: pd.DataFrame) -> str:
    """Covariates that the partial correlations hold constant."""
    from tda_bias.crossref.target_tests import usable_covariates

    about = {
        "n_items": "number of items",
        "tokens": "tokens of the word",
        "zipf": "word frequency",
    }
    used = [about[name] for name in usable_covariates(table)]
    more = "" if "zipf" in table else " Word frequencies need pip install 'tdabias[frequency]'."
    return f"Partial p: without the ranks of {', '.join(used) or 'nothing'}.{more}"


def target_finding(result: CrossReference, folder: Path) -> Finding:
    """Finding over targets: survivors of correction, and power."""
    from tda_bias.crossref.rank_tests import power

    n = len(result.targets)
    needed = power(n)
    correlations = result.correlations
    surviving = correlations[correlations["q"] < 0.05]
    tested = int(correlations["p"].notna().sum())
    first = (
        f"{len(surviving)} of {tested} correlations over {counted(n, 'target')} have q (FDR) < .05."
        if len(surviving)
        else f"No link between what the heads do with a target and what the model says of it: none "
        f"of {tested} correlations over {counted(n, 'target')} survives correction (smallest q "
        f"{p_text(correlations['q'].min())})."
    )
    heads = []
    for name in result.quantities:
        single = result.head_map(name)
        kept = single.table[single.table["p_max"] < 0.05]
        named = ", ".join(f"L{r.layer}H{r.head}" for r in kept.itertuples()) or "none"
        heads.append(
            f"Heads whose |T| goes with {name} (family-wise p < .05): {named}; "
            f"{int((single.table['p'] < 0.05).sum())} with p < .05, "
            f"{number_text(single.shuffled.get('heads_p05'), 0)} with heads shuffled, "
            f"{number_text(single.shuffled.get('expected_p05'), 0)} expected."
        )
    profiles = result.profiles.to_dict("records")
    best = min(profiles, key=lambda row: row["p"] if row["p"] == row["p"] else 2.0)
    return Finding(
        result=[first],
        control=heads,
        power=[
            f"|rho| must reach {needed['significant']:.2f} for p < .05; a true rho of "
            f"{needed['power_80']:.2f} is found four times out of five."
        ],
        next=[f"tdabias report {quote(str(folder))}"],
        details=[
            covariate_line(result.targets),
            f"Profiles of heads (Mantel): smallest p {p_text(best['p'])} of {len(profiles)} tests "
            f"({best['quantity']}, {best['distance']}, rho {best['rho']:.2f}).",
        ],
    )


# -- items -----------------------------------------------------------------------------------------

_WAYS = {
    "raw": "published",
    "length": "less length",
    "twins": "less twins",
}
_SETS = {0: "births", 1: "deaths"}


def item_output(result: ItemCrossReference, folder: Path) -> Output:
    """Output of the comparison item by item."""
    found = item_finding(result, folder)
    return Output(
        shown=[found, item_table(result), f"Files: {folder}/ (heads.csv, summary.csv, run.json)"],
        values={
            "folder": str(folder),
            "finding": found.as_values(),
            "model": result.record.model.model_dump(),
            "summary": result.summary.to_dict("records"),
        },
        rows=result.summary,
    )


def item_table(result: ItemCrossReference) -> Table:
    """How many heads go with the preference, in each way to compare."""
    rows = [
        [
            row["category"],
            _WAYS[row["way"]],
            f"{row['measure']} of {_SETS[row['dim']]}",
            *(str(row[name]) for name in ("n", "heads", "p05")),
            f"{row['expected']:.1f}",
            str(row["family_wise"]),
            number_text(row["largest"]),
            str(HeadId(int(row["layer"]), int(row["head"]))) if row["heads"] else "",
        ]
        for row in result.summary.to_dict("records")
    ]
    headings = ["category", "compared", "of heads", "items", "heads", "p < .05", "expected"]
    headings += ["family-wise", "largest rho", "at"]
    title = f"{result.record.model.name} · heads against log-odds or beta, item by item"
    return uncut_table(title, headings, rows, left=3)


def item_finding(result: ItemCrossReference, folder: Path) -> Finding:
    """Number of heads that follow the target effect, and the power to find one."""
    summary = result.summary
    with_twins = "twins" in set(summary["way"])
    lines, power = [], []
    for category, rows in summary.groupby("category", sort=False):
        ways = {way: of_way for way, of_way in rows.groupby("way", sort=False)}
        if with_twins:
            of_twins = ways["twins"]
            heads = int(of_twins["family_wise"].max())
            said = f"{counted(heads, 'head')} follow" if heads else "No head is found to follow"
            lines.append(
                f"{str(category).capitalize()}: {said} the target effect (beta) of items"
                f"{' after correction' if heads else ''}; largest rho "
                f"{_largest(of_twins):.2f}."
            )
        raw = ways["raw"]
        lines.append(
            f"{str(category).capitalize()}, without twins: up to {int(raw['family_wise'].max())} "
            f"heads go with the log-odds after correction (largest rho {_largest(raw):.2f})."
        )
        left = result.record.left_out.get(str(category), 0)
        items = counted(left, "item of the heads is", "items of the heads are")
        apart = f" {items} not in the other run." if left else ""
        power.append(
            f"{str(category).capitalize()}: with {counted(rows['n'].min(), 'item')} a true rho of "
            f"{rows['smallest'].max():.2f} of a single head is found four times out of five; "
            f"among all heads {rows['needed'].max():.2f} is needed.{apart}"
        )
    control = (
        "A head that goes with the log-odds may follow wording or length alone; one that does so "
        "with twins on both sides follows the target."
        if with_twins
        else "Without twins in both runs, wording and target cannot be told apart."
    )
    return Finding(
        result=lines,
        control=[control],
        power=power,
        next=[f"tdabias report {quote(str(folder))}"],
        details=["Items are exchanged within targets."],
    )


def _largest(rows: pd.DataFrame) -> float:
    """The largest correlation by its size, with its sign."""
    return float(max(rows["largest"].tolist(), key=abs))


def by_published(settings: CrossrefSettings, model: str) -> Output:
    """Over heads: the run's map against rankings that others published.

    Raises:
        InputError: if the run cannot be read, there are no rankings of the model, or an option is
            for other comparisons.
    """
    others = {"behaviour", "stereoset", "match", "items", "scoring"} & settings.model_fields_set
    if others:
        raise InputError(f"`{min(others)}` is not read with --published; leave one of them out")

    from tda_bias.heads.result import HeadBias
    from tda_bias.paper.published_run import COMMAND, published_agreement

    with run_folder(settings.folder, COMMAND, settings):
        result = published_agreement(
            HeadBias.load(settings.run),
            model,
            by=settings.by,
            n_resamples=settings.n_resamples,
            seed=settings.seed,
        )
        result = result.with_record(
            heads=str(settings.run), settings=settings.model_dump(mode="json")
        )
        result.save(settings.folder)
    return published_output(result, settings.folder)


# -- what is printed -------------------------------------------------------------------------------


def published_output(result: PublishedAgreement, folder: Path) -> Output:
    """Output of the agreement with published rankings, with chance."""
    found = published_finding(result, folder)
    return Output(
        shown=[found, published_table(result), f"Files: {folder}/ (published.csv)"],
        values={
            "folder": str(folder),
            "finding": found.as_values(),
            "model": result.record.model.model_dump(),
            "published": result.record.published,
            "agreement": result.agreement.to_dict("records"),
        },
        rows=result.agreement,
    )


def published_table(result: PublishedAgreement) -> Table:
    """Spearman over heads and the heads that two tops share, ranking by ranking."""
    rows = [
        [
            row["category"],
            row["second"],
            number_text(row["spearman"]),
            *(p_text(row[name]) for name in ("p", "p_within_layers")),
            f"{row['overlap']} ({row['chance']:.1f})",
            p_text(row["p_overlap"]),
        ]
        for row in result.agreement.to_dict("records")
    ]
    record = result.record
    title = f"{record.model.name} · {record.by} beside published rankings of {record.published}"
    headings = ["category", "published", "Spearman", "p", "p within layers"]
    headings += [f"of top {record.top} (chance)", "p"]
    return uncut_table(title, headings, rows)


def published_finding(result: PublishedAgreement, folder: Path) -> Finding:
    """Number of published rankings that a run agrees with."""
    table, record = result.agreement, result.record
    small = int((table["p_within_layers"] < 0.05).sum())
    control = [
        "p exchanges all heads; p within layers those of the same layer only: rankings that agree "
        "about layers and not about heads get no small one.",
        "How far published rankings agree with each other and with themselves: "
        "docs/results/rankings.md.",
    ]
    if result.is_of_other_name:
        control.append(
            f"The run's model is called {record.model.name}: scores of {record.published}'s heads "
            "say nothing of another model's."
        )
    return Finding(
        result=[
            f"{small} of {len(table)} correlations with published rankings of {record.published} "
            f"have p < .05 within layers ({0.05 * len(table):.1f} expected by chance); mean "
            f"Spearman {number_text(table['spearman'].mean())}."
        ],
        control=control,
        next=[f"tdabias report {quote(str(folder))}"],
    )
