"""``tdabias compare RUN RUN``: two rankings of heads side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tda_bias.runs.text import counted, number_text, p_text

from .output import Output
from .run_folder import run_folder
from .text import uncut_table

if TYPE_CHECKING:
    from tda_bias.comparison.head_maps import HeadsComparison

    from .compare_settings import CompareSettings

_SHOWN = 10


def compare_runs(settings: CompareSettings) -> Output:
    """Compare, save and say.

    Raises:
        InputError: if the runs cannot be compared, or the folder cannot be written.
    """
    from tda_bias.comparison.head_maps import compare_heads
    from tda_bias.heads.result import HeadBias
    from tda_bias.runs.record import DataRecord
    from tda_bias.runs.run import content_hash

    before, after = (HeadBias.load(name) for name in (settings.before, settings.after))
    hashes = [str(content_hash(run.record)) for run in (before, after)]
    data = DataRecord(source="runs", revision=" ".join(hashes))
    with run_folder(settings.folder, "compare", settings, data=data):
        comparison = compare_heads(
            before,
            after,
            category=settings.category,
            by=settings.by,
            n_resamples=settings.n_flips,
            seed=settings.seed,
        ).with_record(
            settings=settings.model_dump(mode="json"),
            data=data,
            runs=(settings.before, settings.after),
        )

        from tda_bias.plots.comparison import plot_head_comparison
        from tda_bias.runs.figures import print_style

        with print_style():
            comparison.save(settings.folder, figures={"compare": plot_head_comparison(comparison)})
    return output(comparison, settings.folder)


def output(comparison: HeadsComparison, folder: Path) -> Output:
    """The agreement, the heads that moved, and how to read both."""
    shown: list[Table | str] = [_agreement_table(comparison)]
    if comparison.record.matched:
        shown.append(_moved_table(comparison))
    return Output(
        shown=[*shown, *_lines(comparison, folder)],
        values={
            "folder": str(folder),
            "record": comparison.record.model_dump(),
            "agreement": comparison.agreement.to_dict("records"),
            "layers": comparison.layers.to_dict("records"),
            "heads": comparison.heads.to_dict("records"),
        },
        rows=comparison.heads if comparison.record.matched else comparison.agreement,
    )


def _agreement_table(comparison: HeadsComparison) -> Table:
    rows = [
        [
            row["over"],
            str(row["n"]),
            number_text(row["rho"]),
            f"{number_text(row['chance_low'])} to {number_text(row['chance_high'])}",
            p_text(row["p"]),
        ]
        for row in comparison.agreement.to_dict("records")
    ]
    record = comparison.record
    title = (
        f"{record.model.name} and {record.after.name} · {record.category} · agreement of "
        f"{record.by}"
    )
    return uncut_table(title, ("over", "n", "Spearman", "by chance (95 %)", "p"), rows, left=1)


def _moved_table(comparison: HeadsComparison) -> Table:
    ordered = comparison.heads.reindex(
        comparison.heads["z"].abs().sort_values(ascending=False).index
    )
    rows = [
        [
            f"L{row['layer']}H{row['head']}",
            *(number_text(row[name]) for name in ("before", "after", "change", "z")),
            p_text(row["p"]),
            p_text(row["p_holm"]),
        ]
        for row in ordered.head(_SHOWN).to_dict("records")
    ]
    headings = ("head", "before", "after", "change", "in noises", "p", "Holm")
    return uncut_table("Heads that moved most", headings, rows, left=1)


def _lines(comparison: HeadsComparison, folder: Path) -> Iterator[str]:
    record, heads = comparison.record, comparison.heads
    if record.matched:
        known = heads["p"].notna().sum()
        yield (
            f"Moved with p < .05: {(heads['p'] < 0.05).sum()} of {known} heads "
            f"({0.05 * known:.1f} by chance at most); more than the noise of the whole map (Holm): "
            f"{(heads['p_holm'] < 0.05).sum()}. Noise: both maps' standard deviations when labels "
            "are exchanged, added as if independent."
        )
    else:
        yield (
            f"The models have other shapes ({_shape(comparison, 'before')}, "
            f"{_shape(comparison, 'after')}): heads are not matched, layers are compared at the "
            "same relative depths."
        )
    reliable = [value for value in record.reliability if value is not None]
    if len(reliable) == 2:
        ceiling = max(0.0, reliable[0] * reliable[1]) ** 0.5
        yield (
            f"Reliability of the maps between halves of the contexts: {reliable[0]:.2f} and "
            f"{reliable[1]:.2f}; two runs of the same truth would agree to about {ceiling:.2f}."
        )
    if not record.same_texts:
        yield "The runs read other tokens: a difference may be the texts' or the tokenizers'."
    if record.same_weights:
        yield "Both runs are of the same weights: what differs is texts or settings."
    yield (
        "By chance: heads (or layers) exchanged at random; p is one-sided. Layers that lie side by "
        "side resemble each other, so that chance over layers is wider than the line says."
    )
    yield f"Files: {folder}/ (agreement.csv, layers.csv, heads.csv, compare.png, run.json)"


def _shape(comparison: HeadsComparison, model: str) -> str:
    return counted((comparison.layers["model"] == model).sum(), "layer")
