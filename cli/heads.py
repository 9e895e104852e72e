"""``tdabias heads``: the bias of every attention head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.config import HeadBiasConfig
from tda_bias.records.text import number_text, p_text
from tda_bias.types import HeadId

from .loading import (
    hooked_model,
    interruptible,
    out_of_memory_in_one_line,
    progress_bar,
    reach_hub_for,
)
from .options import command, part_of
from .settings import FilePath, Format, TriplesSettings, model_folder
from .text import print_lines, print_table

if TYPE_CHECKING:
    from tda_bias.results.head_bias import HeadBias


class HeadsSettings(TriplesSettings, HeadBiasConfig):
    """Everything ``tdabias heads`` can be told."""

    top: int = Field(10, ge=1, description="heads to print")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/MODEL/CATEGORY)"
    )
    resume: bool = Field(True, description="reuse groups that an earlier run finished")
    format: Format = Field("table", description="what to print")

    @property
    def folder(self) -> Path:
        """Where the files go."""
        if self.out is not None:
            return self.out
        return Path("runs") / model_folder(self.model) / self.category

    def analysis(self) -> HeadBiasConfig:
        """The part that the library needs."""
        return part_of(self, HeadBiasConfig)


@command(HeadsSettings)
def heads(settings: HeadsSettings) -> None:
    """Rank a model's attention heads by how differently they hold stereotypes together."""
    with interruptible("groups", settings.folder / "groups"):
        result = compute(settings)
    result.save(settings.folder)
    if settings.format == "json":
        typer.echo(as_json(result, settings))
        return
    for name in result.categories:
        print_table(ranked_table(result, name, settings.top))
        print_lines(*control_lines(result, name), *finding_lines(result, name))
    print_lines(*run_lines(result, settings))


def compute(settings: HeadsSettings) -> HeadBias:
    """Load the texts and the model, run, and record where everything came from.

    Raises:
        InputError: on anything that cannot be used, before the model is run where possible.
    """
    reach_hub_for(settings.model, also=settings.data == "stereoset")

    from tda_bias.records.files import prepare_folder
    from tda_bias.records.parts import PartStore
    from tda_bias.triples import load_triples, source_revision

    triples = load_triples(
        settings.data, category=settings.category, groups=settings.group, limit=settings.limit
    )
    folder = settings.folder
    prepare_folder(folder)

    def store(identity: dict[str, Any]) -> PartStore:
        kept = PartStore(folder / "groups", identity)
        if not settings.resume:
            kept.clear()
        return kept

    console = Console(stderr=True)
    model = hooked_model(
        settings.model, device=settings.device, dtype=settings.dtype, console=console
    )

    from tda_bias.heads import head_bias
    from tda_bias.patterns.capture import example_pattern
    from tda_bias.patterns.example import FILE as EXAMPLE

    title = f"{settings.model} · {settings.category}"
    with (
        progress_bar(console, title, "texts") as progress,
        out_of_memory_in_one_line(model.device, settings.batch_size),
    ):
        result = head_bias(
            model, triples, config=settings.analysis(), progress=progress, store=store
        )
    if not (settings.resume and (folder / EXAMPLE).is_file()):
        example_pattern(model, triples[0]).save(folder)
    return result.with_record(
        settings=settings.model_dump(mode="json"),
        data={"source": settings.data, "revision": source_revision(settings.data)},
    )


# -- what is printed -------------------------------------------------------------------------------


def ranked_table(result: HeadBias, category: str, top: int) -> Table:
    """The ranked heads of one category."""
    name = result.record["model"]["name"]
    table = Table(
        "head",
        title=f"{name} · {category} · heads ranked by {result.rank_by}",
        title_justify="left",
    )
    for heading in ("mean z", "hot-spot p", "max-z p", "q", "unstable"):
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
    c = result.controls(category)
    return [
        f"Chance: {c['hot_spots_p05']} of {c['heads']} heads have a hot-spot p < .05 "
        f"({c['hot_spots_expected']:.1f} expected); of {c['group_tests']} tests per group, head "
        f"and dimension {c['group_tests_p05']} have p < .05 ({c['group_tests_expected']:.0f} "
        "expected).",
        f"Reliability of the map between random halves of the contexts: "
        f"{number_text(c['reliability'])}; Spearman with the map that flipped labels give on "
        f"average: {number_text(c['null_map_correlation'])} (what is reliable without any effect).",
        f"Length: Spearman of S with the text-length statistic over {c['groups']} groups: "
        f"{number_text(c['length_correlation_0'])} (dimension 0), "
        f"{number_text(c['length_correlation_1'])} (dimension 1).",
    ]


def finding_lines(result: HeadBias, category: str) -> list[str]:
    """In plain words, what is left after correction."""
    c = result.controls(category)
    lines = []
    if c["groups_too_small"]:
        lines.append(
            f"{c['groups_too_small']} of {c['groups']} groups have fewer than "
            f"{c['smallest_testable_group']} triples: no test within them can reach p < .05."
        )
    survivors = result.survivors(category=category).to_dict("records")
    if survivors:
        named = [
            f"{HeadId(s['layer'], s['head'])} (mean z {s['z']:.2f}, max-z p {p_text(s['p_max'])}, "
            f"q {p_text(s['q'])})"
            for s in survivors[:10]
        ]
        more = f" and {len(survivors) - 10} more" if len(survivors) > 10 else ""
        lines.append(
            f"Hot spots that survive correction: {', '.join(named)}{more}. A head is judged "
            "against its own values under flipped labels, so it need not stand high in the map."
        )
    within = c["groups_p_max05"] + c["group_tests_q05"]
    if within:
        lines.append(
            f"Within groups: {c['groups_p_max05']} of {c['groups']} have a head with max-z p < .05 "
            f"({0.05 * c['groups']:.1f} expected by chance); {c['group_tests_q05']} tests have "
            "q < .05."
        )
    elif not survivors:
        lines.append(
            "Nothing survives correction for the number of heads: this run shows no head that "
            "treats stereotypes differently."
        )
    if within and not survivors:
        lines.append("No hot spot of the category survives correction.")
    return lines


def run_lines(result: HeadBias, settings: HeadsSettings) -> list[str]:
    """Warnings that belong to the whole run, and where the files are."""
    lines = []
    if settings.pvalue == "paper":
        lines.append(
            "The published p-value is not calibrated: about half of all heads get p < .05 without "
            "any effect. Read it as a reproduction only."
        )
    if settings.data == "starter":
        lines.append("The starter triples demonstrate the tool; they do not measure a model.")
    checks = [group["row_sums"] for group in result.record["groups"]]
    failed = sorted({int(layer) for check in checks for layer in check["failed"]})
    if failed:
        worst = max(check["worst"] for check in checks)
        lines.append(
            f"Attention rows of layers {', '.join(map(str, failed))} do not sum to 1 (off by up to "
            f"{worst:.2g}); run.json counts them."
        )
    left_out = result.record["texts"]["triples_left_out"]
    if left_out:
        lines.append(f"{len(left_out)} triples were left out; run.json says which and why.")
    lines.append(f"Files: {settings.folder}/ (heads.csv, groups.csv, heatmap.png, run.json, ...)")
    return lines


def as_json(result: HeadBias, settings: HeadsSettings) -> str:
    """The ranked heads and controls of every category, for other programs."""
    from tda_bias.records.files import plain

    found = {
        "folder": str(settings.folder),
        "model": result.record["model"],
        "categories": {
            name: {
                "controls": result.controls(name),
                "heads": result.top(settings.top, category=name).to_dict("records"),
                "survivors": result.survivors(category=name).to_dict("records"),
            }
            for name in result.categories
        },
    }
    return json.dumps(plain(found), indent=2, allow_nan=False)
