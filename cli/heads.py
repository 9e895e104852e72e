"""``tdabias heads``: the bias of every attention head."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted, number_text, p_text
from tda_bias.runs.work import ALONE, Team
from tda_bias.types import HeadId

from .heads_settings import UNTRAINED, HeadsSettings
from .loading import (
    data_option,
    hooked_model,
    interruptible,
    out_of_memory_in_one_line,
    progress_bar,
    remark_lines,
    texts_of,
)
from .options import command
from .output import Finding, Output
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
            dry_run(settings).print(settings)
        return
    with interruptible("groups", settings.folder / "groups"):
        result = compute(settings, team=team_of(settings))
    output(result, settings.folder, settings.top).print(settings)


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

    shown: list[Finding | Table | str] = []
    rows, values = [], {}
    for name in result.categories:
        ranked, found = result.top(top, category=name), finding(result, folder, name)
        shown += [found, ranked_table(result, name, top)]
        rows.append(ranked.assign(category=name)[["category", *ranked.columns]])
        values[name] = {
            "finding": found.as_values(),
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


def ranked_table(result: HeadBias, category: str, top: int) -> Table:
    """The ranked heads of one category."""
    table = Table(
        "head",
        title=f"{result.record.model.name} · {category} · heads ranked by {_ranking(result)}",
        title_justify="left",
    )
    unit = "z" if result.rank_by in _TESTS else "mean z"
    for heading in (unit, "p", "p (family-wise)", "q (FDR)", "unstable"):
        table.add_column(heading, justify="right")
    for row in result.top(top, category=category).to_dict("records"):
        table.add_row(
            str(HeadId(row["layer"], row["head"])),
            f"{row['z']:.2f}",
            *(p_text(row[name]) for name in ("p", "p_max", "q")),
            "yes" if row["unstable"] else "",
        )
    return table


# Rankings that are z-values of a test, and the test.
_TESTS = {"evidence": "dispersion test", "location": "location test"}


def _ranking(result: HeadBias) -> str:
    """Name of the ranking, and whether twins are subtracted."""
    of_twins = all(c.hot_spot_map.endswith("_twin") for c in result.record.controls)
    return f"{_TESTS.get(result.rank_by, result.rank_by)}{', triple minus twin' * of_twins}"


def finding(result: HeadBias, folder: Path, category: str) -> Finding:
    """The finding of a category: heads after correction, controls, power, what to do next."""
    c = _controls(result, category)
    return Finding(
        result=_result_lines(result, c),
        control=_control_lines(result, folder, c),
        power=_power_lines(c),
        next=_next_lines(result, folder, category),
        details=_detail_lines(c),
    )


def _result_lines(result: HeadBias, c: ControlsRecord) -> list[str]:
    ranked = result.top(10**9, category=c.category)
    survivors = result.survivors(category=c.category)
    read = f"{c.heads} heads, {counted(c.triples, 'triple')}"
    if len(survivors):
        first = (
            f"{len(survivors)} of {counted(c.heads, 'head')} of {result.record.model.name} treat "
            f"{c.category} differently after correction ({read}): {_named(survivors)}."
        )
        first += " This does not say that they cause what the model says: ablation tests that."
    else:
        first = (
            f"No head of {result.record.model.name} is found to treat {c.category} differently "
            f"({read})."
        )
    lines = [
        first,
        f"Smallest corrected p: {p_text(ranked['q'].min())} (FDR), "
        f"{p_text(ranked['p_max'].min())} (family-wise). Uncorrected: {c.hot_spots_p05} heads with "
        f"p < .05; {c.hot_spots_expected:.1f} expected by chance. ({_ranking(result).capitalize()}"
        ")",
    ]
    shift = c.twins.location if c.twins is not None and result.rank_by != "location" else None
    if shift is not None and shift.p_max05:
        of_shift = result.survivors(category=c.category, by="location")
        named = _named(of_shift[of_shift["p_max"] < 0.05])
        lines.append(f"Location test, triple minus twin: these survive correction: {named}.")
    if c.groups_p_max05 + c.group_tests_q05:
        lines.append(
            f"Within single groups (dispersion test without twins): {c.groups_p_max05} of "
            f"{c.groups} groups have a head with family-wise p < .05 ({0.05 * c.groups:.1f} "
            "expected by chance); "
            f"{counted(c.group_tests_q05, 'test')} with q < .05."
        )
    return lines


def _control_lines(result: HeadBias, folder: Path, c: ControlsRecord) -> list[str]:
    if c.twins is not None:
        left, plain, beyond = c.twins.difference_left, c.location, c.twins.location
        lines = [
            f"{1 - left:.0%} of the squared difference in attention between stereotype and "
            "anti-stereotype texts is shared with the same texts about another target "
            "(counterfactual twins): wording.",
            f"Location test: {plain.p05} heads with p < .05 without twins ({plain.p_max05} survive "
            f"correction), {beyond.p05} with twins ({beyond.p_max05} survive; "
            f"{beyond.expected:.1f} expected by chance).",
        ]
    else:
        lines = ["No twins: wording and length are in every difference of this run."]
    lines.append(
        f"Reliability of the ranking between random halves of the contexts: "
        f"{number_text(c.reliability)}."
    )
    return [*lines, *_untrained_lines(result, folder, c)]


def _untrained_lines(result: HeadBias, folder: Path, c: ControlsRecord) -> list[str]:
    """The same network with random weights on the same texts; nothing if none was run."""
    from tda_bias.heads.result import HeadBias
    from tda_bias.stats.resampling import spearman_over_items

    if not (folder / UNTRAINED / "run.json").is_file():
        return []
    random = HeadBias.load(folder / UNTRAINED)
    if c.category not in random.categories or random.record.texts.hash != result.record.texts.hash:
        return []
    of_random = _controls(random, c.category)
    maps = [run.category_map(c.category, by=result.rank_by).ravel() for run in (result, random)]
    return [
        f"Untrained control: {of_random.hot_spots_p05} of {of_random.heads} heads with p < .05, "
        f"{of_random.hot_spots_p_max05} survive correction; Spearman of its map with this one's: "
        f"{number_text(spearman_over_items(*maps))}."
    ]


def _power_lines(c: ControlsRecord) -> list[str]:
    if c.twins is None:
        return ["Not known without twins."]
    share = c.twins.smallest_share
    if share < 1:
        return [
            f"A head would have survived the location test if its contexts shared {share:.0%} of "
            "the difference that is left with twins; for the dispersion test no such number is "
            "known."
        ]
    return ["With so few contexts no head could have survived the location test."]


def _next_lines(result: HeadBias, folder: Path, category: str) -> list[str]:
    model, settings = result.record.model.name, result.record.settings
    lines = []
    if not settings.get("pairs"):
        data = data_option(result.record)
        lines.append(f"tdabias stereoset --model {quote(model)} --category {category}{data}")
    if len(result.survivors(category=category)):
        lines.append(f"tdabias ablate {quote(str(folder))}{_of_several(result, category)}")
    lines.append(f"tdabias report {quote(str(folder))}")
    return lines


def _of_several(result: HeadBias, category: str) -> str:
    return f" --category {category}" if len(result.categories) > 1 else ""


def _detail_lines(c: ControlsRecord) -> list[str]:
    lines = []
    if c.groups_too_small:
        lines.append(
            f"{c.groups_too_small} of {c.groups} groups have fewer than "
            f"{c.smallest_testable_group} triples: no test within them can reach p < .05."
        )
    lines += [
        f"Of {c.group_tests} tests per group, head and dimension {c.group_tests_p05} have p < .05 "
        f"({c.group_tests_expected:.0f} expected by chance).",
        "Spearman of the ranking with the mean map under exchanged labels: "
        f"{number_text(c.null_map_correlation)} (this part of a ranking needs no effect).",
        f"Spearman of S with the text-length statistic over {counted(c.groups, 'group')}: "
        f"{number_text(c.length_correlation_0)} (dimension 0), "
        f"{number_text(c.length_correlation_1)} (dimension 1).",
    ]
    if c.twins is not None:
        lines.append(
            "Spearman of the location maps with and without twins: "
            f"{number_text(c.twins.map_correlation)}."
        )
    return lines


def _named(survivors: pd.DataFrame) -> str:
    """The first five of some heads."""
    named = [
        f"{HeadId(s['layer'], s['head'])} (z {s['z']:.2f}, family-wise p {p_text(s['p_max'])})"
        for s in survivors.head(5).to_dict("records")
    ]
    more = f" and {len(survivors) - 5} more" if len(survivors) > 5 else ""
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
