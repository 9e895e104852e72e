"""``tdabias heads``: the bias of every attention head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, number_text, p_text
from tda_bias.runs.work import ALONE, Team
from tda_bias.types import HeadId

from .heads_settings import UNTRAINED, HeadsSettings
from .loading import (
    hooked_model,
    interruptible,
    out_of_memory_in_one_line,
    progress_bar,
    remark_lines,
    texts_of,
)
from .options import command
from .output import Output
from .processes import is_main, stage, team_of
from .run_folder import parts_in, run_folder
from .text import table_of

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.heads.result import ControlsRecord, HeadBias
    from tda_bias.models.load import LoadedModel
    from tda_bias.twins import Twins
    from tda_bias.types import Triple


@command(HeadsSettings)
def heads(settings: HeadsSettings) -> None:
    """Rank a model's attention heads by how differently they hold stereotypes together."""
    if settings.dry_run:
        if is_main():
            dry_run(settings).print(settings.format, quiet=settings.quiet)
        return
    with interruptible("groups", settings.folder / "groups"):
        result = compute(settings, team=team_of(settings))
    output(result, settings.folder, settings.top).print(settings.format, quiet=settings.quiet)


def compute(settings: HeadsSettings, *, team: Team = ALONE) -> HeadBias:
    """Load the texts and the model, run, and save with where everything came from.

    Args:
        settings: What was asked for.
        team: The processes that share the groups.

    Raises:
        InputError: on anything that cannot be used, before the model is run where possible.
        ShareDone: where another process gathers.
    """
    console = Console(stderr=True, quiet=settings.quiet)
    triples, twins, data = texts_of(settings, console)
    folder = settings.folder
    with run_folder(folder, "heads", settings, data=data, team=team) as refuse_other_weights:
        model = hooked_model(
            settings.model,
            device=settings.device,
            dtype=settings.dtype,
            device_map=settings.device_map,
            console=console,
        )
        refuse_other_weights(model)

        def run(model: LoadedModel, folder: Path) -> HeadBias:
            result = _result(settings, model, folder, triples, twins, console, team)
            result = result.with_record(settings=settings.model_dump(mode="json"), data=data)
            result.save(folder)
            return result

        if not settings.untrained:
            return run(model, folder)
        with stage([]):
            run(model, folder)

        from tda_bias.heads.result import HeadBias
        from tda_bias.models.random_weights import initialised

        run(initialised(model, seed=settings.seed), folder / UNTRAINED)
        return HeadBias.load(folder)


def _result(
    settings: HeadsSettings,
    model: LoadedModel,
    folder: Path,
    triples: list[Triple],
    twins: Twins | None,
    console: Console,
    team: Team,
) -> HeadBias:
    from tda_bias.heads.head_bias import head_bias
    from tda_bias.heads.kept_patterns import example_pattern, kept_patterns

    with (
        progress_bar(console, f"{model.name} · {settings.named}", "texts") as progress,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        result = head_bias(
            model,
            triples,
            twins=twins,
            config=settings.analysis(),
            progress=progress,
            store=parts_in(folder / "groups", settings, team),
        )
    wanted = result.texts_to_keep(settings.keep_patterns)
    kept = kept_patterns(model, wanted, edges=settings.edges, batch_size=settings.batch_size)
    return result.with_example(example_pattern(model, triples[0])).with_kept(kept)


def dry_run(settings: HeadsSettings) -> Output:
    """Counts of triples, twins, texts and tokens per group, from the model's tokenizer.

    Raises:
        InputError: as ``compute``, before the model is run.
    """
    import pandas as pd

    from tda_bias.heads.texts import tokenized_groups

    console = Console(stderr=True, quiet=settings.quiet)
    triples, twins, _ = texts_of(settings, console)
    model = hooked_model(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        device_map=settings.device_map,
        console=console,
    )
    groups, left_out = tokenized_groups(model, triples, twins)
    rows = pd.DataFrame(
        [
            {
                "category": group.category,
                "group": group.group,
                "triples": len(group.contexts),
                "twins": len(group.twins),
                "texts": len(group.lengths),
                "tokens": int(group.lengths.sum()),
                "longest": int(group.lengths.max()),
            }
            for group in groups
        ]
    )
    counts = rows[["triples", "twins", "texts", "tokens"]].sum().to_dict()
    counts |= {"longest": int(rows["longest"].max()), "left_out": len(left_out)}
    return Output(
        shown=[
            table_of(rows, f"{model.name} · {settings.named} · texts that a run would read"),
            f"In all {counted(counts['triples'], 'triple')}, {counted(counts['twins'], 'twin')}, "
            f"{counted(counts['texts'], 'text')} of {counted(counts['tokens'], 'token')}, the "
            f"longest of {counts['longest']}; {counted(len(left_out), 'triple')} left out. Nothing "
            "was computed or saved.",
        ],
        values={"in_all": counts, "groups": rows.to_dict("records")},
        rows=rows,
    )


# -- what is printed -------------------------------------------------------------------------------


def saved(folder: Path, top: int) -> Output:
    """The output of a finished run.

    Raises:
        InputError: as ``HeadBias.load``.
    """
    from tda_bias.heads.result import HeadBias

    return output(HeadBias.load(folder), folder, top)


def output(result: HeadBias, folder: Path, top: int) -> Output:
    """The ranked heads and the controls of every category."""
    import pandas as pd

    shown: list[Table | str] = []
    rows, values = [], {}
    for name in result.categories:
        ranked = result.top(top, category=name)
        shown += [ranked_table(result, name, top)]
        shown += [*control_lines(result, name), *twin_lines(result, name)]
        shown += [*finding_lines(result, name), *untrained_lines(result, folder, name)]
        rows.append(ranked.assign(category=name)[["category", *ranked.columns]])
        values[name] = {
            "controls": result.controls(name),
            "heads": ranked.to_dict("records"),
            "survivors": result.survivors(category=name).to_dict("records"),
        }
    about = {"folder": str(folder), "model": result.record.model.model_dump()}
    return Output(
        shown=[*shown, *run_lines(result, folder)],
        values={**about, "categories": values},
        rows=pd.concat(rows),
    )


def _controls(result: HeadBias, category: str) -> ControlsRecord:
    return next(c for c in result.record.controls if c.category == category)


_UNIT = {"evidence": "evidence", "location": "evidence"}


def ranked_table(result: HeadBias, category: str, top: int) -> Table:
    """The ranked heads of one category."""
    ranking = {
        "evidence": "evidence of a difference in spread",
        "location": "evidence of a shift",
    }.get(result.rank_by, result.rank_by)
    if _controls(result, category).hot_spot_map.endswith("_twin"):
        ranking += ", triple minus twin"
    table = Table(
        "head",
        title=f"{result.record.model.name} · {category} · heads ranked by {ranking}",
        title_justify="left",
    )
    for heading in (_UNIT.get(result.rank_by, "mean z"), "hot-spot p", "max-z p", "q", "unstable"):
        table.add_column(heading, justify="right")
    for row in result.top(top, category=category).to_dict("records"):
        table.add_row(
            str(HeadId(row["layer"], row["head"])),
            f"{row['z']:.2f}",
            *(p_text(row[name]) for name in ("p", "p_max", "q")),
            "yes" if row["unstable"] else "",
        )
    return table


def control_lines(result: HeadBias, category: str) -> list[str]:
    """Chance, reliability and length: what the ranking must be held against."""
    c = _controls(result, category)
    return [
        f"Chance: {c.hot_spots_p05} of {c.heads} heads have a hot-spot p < .05 "
        f"({c.hot_spots_expected:.1f} expected); of {c.group_tests} tests per group, head "
        f"and dimension {c.group_tests_p05} have p < .05 ({c.group_tests_expected:.0f} "
        "expected).",
        f"Reliability of the map between random halves of the contexts: "
        f"{number_text(c.reliability)}; Spearman of the ranking with the map that exchanged labels "
        f"give on average: {number_text(c.null_map_correlation)} (what ranks without any effect).",
        f"Length: Spearman of S with the text-length statistic over {counted(c.groups, 'group')}: "
        f"{number_text(c.length_correlation_0)} (dimension 0), "
        f"{number_text(c.length_correlation_1)} (dimension 1).",
    ]


def twin_lines(result: HeadBias, category: str) -> list[str]:
    """Shares of the difference about the target and of wording; nothing without twins."""
    c = _controls(result, category)
    if c.twins is None:
        return []
    left, plain, beyond = c.twins.difference_left, c.location, c.twins.location
    share = c.twins.smallest_share
    power = (
        f"A head would have survived if its contexts had {share:.0%} of that difference in common."
        if share < 1
        else "With so few contexts no head could have survived."
    )
    return [
        f"Of the difference between stereotype and anti-stereotype texts, {left:.0%} of the "
        f"squares is left when twins are subtracted (wording and length are in both). Shift of all "
        f"contexts alike: with twins {beyond.p05} of {c.heads} heads have p < .05 "
        f"({beyond.expected:.1f} expected) and {beyond.p_max05} survive; without twins "
        f"{plain.p05} and {plain.p_max05}. Spearman of the two maps: "
        f"{number_text(c.twins.map_correlation)}. {power}",
    ]


def untrained_lines(result: HeadBias, folder: Path, category: str) -> list[str]:
    """Counts from random weights on the same texts; nothing if none were run."""
    from tda_bias.heads.result import HeadBias
    from tda_bias.stats.resampling import spearman_over_items

    if not (folder / UNTRAINED / "run.json").is_file():
        return []
    random = HeadBias.load(folder / UNTRAINED)
    if category not in random.categories or random.record.texts.hash != result.record.texts.hash:
        return []
    c = _controls(random, category)
    by = result.rank_by
    maps = [run.category_map(category, by=by).ravel() for run in (result, random)]
    text = (
        f"With random weights {c.hot_spots_p05} of {c.heads} heads have a hot-spot p < .05 and "
        f"{c.hot_spots_p_max05} survive"
    )
    if c.twins is not None:
        text += f"; shift with twins {c.twins.location.p05}"
    text += f"; shift without twins {c.location.p05}"
    return [
        f"{text}. Spearman of its map with this one's: {number_text(spearman_over_items(*maps))}."
    ]


def finding_lines(result: HeadBias, category: str) -> list[str]:
    """In plain words, what is left after correction."""
    c = _controls(result, category)
    lines = []
    if c.groups_too_small:
        lines.append(
            f"{c.groups_too_small} of {c.groups} groups have fewer than "
            f"{c.smallest_testable_group} triples: no test within them can reach p < .05."
        )
    survivors = result.survivors(category=category)
    if len(survivors):
        unit = _UNIT.get(result.rank_by, "mean z")
        lines.append(f"Hot spots that survive correction: {_named(survivors, unit)}.")
    # Without twins a shift is wording: it is no finding.
    shifted = c.twins is not None and c.twins.location.p_max05 and result.rank_by != "location"
    if shifted:
        of_shift = result.survivors(category=category, by="location")
        named = _named(of_shift[of_shift["p_max"] < 0.05], "evidence")
        lines.append(f"Heads whose shift, triple minus twin, survives correction: {named}.")
    within = c.groups_p_max05 + c.group_tests_q05
    if within:
        lines.append(
            f"Within groups, without twins: {c.groups_p_max05} of {c.groups} have a head with "
            f"max-z p < .05 ({0.05 * c.groups:.1f} expected by chance); {c.group_tests_q05} tests "
            "have q < .05."
        )
    elif survivors.empty and not shifted:
        lines.append(
            "Nothing survives correction for the number of heads: this run shows no head that "
            "treats stereotypes differently."
        )
    if survivors.empty and (within or shifted):
        lines.append("No hot spot of the category survives correction.")
    return lines


def _named(survivors: pd.DataFrame, unit: str) -> str:
    """The first ten of some heads, with how sure they are."""
    named = [
        f"{HeadId(s['layer'], s['head'])} ({unit} {s['z']:.2f}, max-z p {p_text(s['p_max'])}, "
        f"q {p_text(s['q'])})"
        for s in survivors.head(10).to_dict("records")
    ]
    more = f" and {len(survivors) - 10} more" if len(survivors) > 10 else ""
    return f"{', '.join(named)}{more}"


def run_lines(result: HeadBias, folder: Path) -> list[str]:
    """Warnings that belong to the whole run, and where the files are."""
    lines = []
    if result.record.config.pvalue == "paper":
        lines.append(
            "The published p-value is not calibrated: about half of all heads get p < .05 without "
            "any effect. Read it as a reproduction only."
        )
    if result.record.settings.get("pairs"):
        lines.append(
            "Pairs have no unrelated texts, so S, whose denominator is their spread, is undefined "
            "(NaN, with this reason in groups.csv); ranks, tests and location need none."
        )
    lines += remark_lines(result.record.data)
    checks = [group.row_sums for group in result.record.groups]
    failed = sorted({layer for check in checks for layer in check.failed})
    if failed:
        worst = max(check.worst for check in checks)
        lines.append(
            f"Attention rows of layers {', '.join(map(str, failed))} do not sum to 1 (off by up to "
            f"{worst:.2g}); run.json counts them."
        )
    left_out = result.record.texts.triples_left_out
    if left_out:
        triples = counted(len(left_out), "triple was", "triples were")
        lines.append(f"{triples} left out; run.json says which and why.")
    lines.append(f"Files: {folder}/ (heads.csv, groups.csv, heatmap.png, run.json, ...)")
    return lines
