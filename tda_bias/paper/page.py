"""One page that sets the head paper's values beside those of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tda_bias.heads.result import HeadBias
from tda_bias.paper.claims import claims, counts_of_tests
from tda_bias.paper.published import (
    TABLE_NUMBER,
    beside_published,
    extreme_groups,
    published,
    unlike_the_paper,
)
from tda_bias.runs.tables import markdown
from tda_bias.runs.text import counted, number_text
from tda_bias.types import STARTER_CAUTION, HeadId


def page(
    result: HeadBias, *, pictures: Mapping[str, Path], command: str, seconds: float, run_id: str
) -> str:
    """Markdown text.

    Args:
        result: A run of ``tdabias heads``.
        pictures: Paths of figures by their name in the catalogue, relative to the page.
        command: What was typed.
        seconds: Wall time of all of it.
        run_id: Of the run.
    """
    model = result.record.model.name
    parts = [
        f"# The head-topology paper on {model}",
        _about(result, command, seconds, run_id),
        f"**{survivors_line(result)}** The published p-value and metric are printed below because "
        "the paper used them; the p-value is not calibrated (see the end).",
        "## What the statistic is made of",
        _shown(pictures, ["fig2_pattern", "filtration", "fig1_step_function", "fig3_swap"]),
        "## Tables 1 to 4",
        _tables(result),
        "## Figures 4 to 9",
        _shown(
            pictures,
            [
                *(f"fig{n}_{c}" for n, c in enumerate(TABLE_NUMBER, start=4)),
                "fig8_means",
                "fig9_spreads",
            ],
        ),
        "## The paper's claims",
        *(f"- *{claim.paper}* Here: {claim.here}" for claim in claims(result)),
        "## What to hold it against",
        _controls(result),
        _shown(pictures, ["calibration", "length", "reliability"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(result: HeadBias, command: str, seconds: float, run_id: str) -> str:
    record, texts = result.record, result.record.texts
    n = [result.controls(category) for category in result.categories]
    source = published()["heads"]["source"]
    reasons = unlike_the_paper(result)
    same = (
        f"Unlike the paper: {'; '.join(reasons)}. The numbers are not expected to match, the "
        "paper's claims in words could."
        if reasons
        else "This is the paper's model; the texts are the same if the data set is."
    )
    if record.data is not None and record.data.source == "starter":
        same += f" {STARTER_CAUTION}"
    left_out = len(texts.triples_left_out)
    return (
        f"Source: {source}. {same}\n\n```\n{command}\n```\n\n"
        f"{counted(sum(c['triples'] for c in n), 'triple')} in "
        f"{counted(sum(c['groups'] for c in n), 'group')}"
        + (f" ({left_out} left out)" if left_out else "")
        + f", {counted(n[0]['heads'], 'head')}. Wall time {_minutes(seconds)}. Run `{run_id}`, "
        "weights "
        f"`{record.model.weights[:12]}`, {_versions(record.packages)}."
    )


def _versions(packages: Mapping[str, str]) -> str:
    shown = ("tdabias", "torch", "transformers", "transformer-lens")
    return ", ".join(f"{name} {packages[name]}" for name in shown if name in packages)


def _minutes(seconds: float) -> str:
    return (
        f"{int(seconds) // 60} min {int(seconds) % 60} s" if seconds >= 60 else f"{seconds:.0f} s"
    )


def survivors_line(result: HeadBias) -> str:
    """Heads that survive correction, by category."""
    named = []
    for category in result.categories:
        kept = result.survivors(category=category, by="relative").to_dict("records")
        heads = ", ".join(str(HeadId(row["layer"], row["head"])) for row in kept) or "none"
        named.append(f"{category}: {heads}")
    return (
        "Hot spots that survive correction for the number of heads (flips within contexts, "
        f"max-z p or q below .05, map of |relative|): {'; '.join(named)}."
    )


def _tables(result: HeadBias) -> str:
    parts = []
    for category in result.categories:
        number = TABLE_NUMBER[category]
        parts += [
            f"**Table {number}, {category}**: metric T over heads, the paper's groups.",
            markdown(beside_published(result, category)),
            "The two groups with the largest and the two with the smallest mean here; `unstable` "
            "counts heads whose unrelated texts hardly vary, where extreme values come from; the "
            "last column leaves them out:",
            markdown(extreme_groups(result, category)),
        ]
    return "\n\n".join(parts)


def _controls(result: HeadBias) -> str:
    lines = [
        "Tests per group, head and dimension with p < .05, without correction:",
        markdown(counts_of_tests(result)),
        "The published p-value gives about half of all heads p < .05 where there is no effect at "
        "all (first figure below); flips within contexts give 5 %.",
    ]
    for category in result.categories:
        c = result.controls(category)
        lines.append(
            f"- {category}: map reliability {number_text(c['reliability'])}; correlation with the "
            f"map that flipped labels give on average {number_text(c['null_map_correlation'])}; "
            f"Spearman of S with the length statistic {number_text(c['length_correlation_0'])} "
            f"(dimension 0) and {number_text(c['length_correlation_1'])} (dimension 1)."
        )
    lines.append(
        "None of this says that a head causes what a model says: `tdabias ablate` measures that. "
        "StereoSet's pairs are contested, and a geometry of attention is not a harm."
    )
    return "\n\n".join(lines)


def _shown(pictures: Mapping[str, Path], names: Sequence[str]) -> str:
    return "\n\n".join(
        f"![{name}]({pictures[name].as_posix()})" for name in names if name in pictures
    )
