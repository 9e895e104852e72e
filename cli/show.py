"""``tdabias show``: print a finished run again."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from tda_bias.types import MAX_COUNT

from .options import Positional, command
from .output import Output
from .settings import OutputSettings

if TYPE_CHECKING:
    from tda_bias.runs.run import Run


class ShowSettings(OutputSettings):
    """Settings of ``tdabias show``."""

    run: Annotated[Path, Positional()] = Field(description="Folder of a finished run.")
    top: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="rows of a ranking (default: the run's)"
    )


@command(ShowSettings)
def show(settings: ShowSettings) -> None:
    """Print a finished run again, from its folder and without the model."""
    from tda_bias.runs.run import open_run

    run = open_run(settings.run, *PRINTED)
    printed(run, top=settings.top or run.record.setting("top", 10)).print(settings)


def printed(run: Run, *, top: int = 10) -> Output:
    """Output of a run.

    Args:
        run: Of a command whose runs are printed again.
        top: Rows of a ranking.

    Raises:
        InputError: if a file is not as the run wrote it.
    """
    place = PRINTED[run.command]
    if run.command == "compare":
        place = _COMPARED.get(getattr(run.record, "compares", ""), place)
    result = _named(place.result)
    result = run.load(getattr(result, "load", result))
    made: Output = _named(place.output, package=__package__)(
        result, run.folder, *([top] if place.has_top else [])
    )
    return made


class _Printed(NamedTuple):
    """The loader and the printer of a kind of run, and whether rows are cut."""

    result: str
    output: str
    has_top: bool = False


def _named(place: str, package: str | None = None) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f".{module}" if package else module, package), name)


PRINTED = {
    "heads": _Printed("tda_bias.heads.result:HeadBias", "heads:output", True),
    "pvf": _Printed("pvf.report:load_report", "pvf:saved", True),
    "pvf risk": _Printed("pvf.report:load_report", "pvf:saved", True),
    "unqover": _Printed("unqover.answers:Answers", "unqover:saved", True),
    "ablate": _Printed("tda_bias.ablation.study:AblationStudy", "ablate:output"),
    "ablate curve": _Printed("tda_bias.ablation.prune_curve:PruneCurve", "ablate:curve_output"),
    "stereoset": _Printed("tda_bias.scores.stereoset_scores:StereoSetScores", "stereoset:output"),
    "stereoset intrasentence": _Printed(
        "tda_bias.scores.stereoset_scores:SentenceScores", "stereoset:sentences_output"
    ),
    "crossref": _Printed("tda_bias.crossref.crossref:CrossReference", "crossref:target_output"),
    "crossref items": _Printed(
        "tda_bias.crossref.item_crossref:ItemCrossReference", "crossref:item_output"
    ),
    "crossref published": _Printed(
        "tda_bias.paper.rankings:PublishedAgreement", "crossref:published_output"
    ),
    "debias": _Printed("tda_bias.debias.result:DebiasRun", "debias:output"),
    "pairs": _Printed("tda_bias.scores.pair_scores:PairSetScores", "pairs:output"),
    "confirm": _Printed("tda_bias.runs.run:open_run", "confirm:saved"),
    "compare": _Printed("tda_bias.comparison.models:ModelComparison", "compare:output"),
}
# Comparisons of two runs, by what they compare.
_COMPARED = {
    "heads": _Printed("tda_bias.comparison.head_maps:HeadsComparison", "compare:heads_output"),
    "beta": _Printed("tda_bias.comparison.beta_agreement:BetaAgreement", "compare:beta_output"),
}
