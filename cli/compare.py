"""``tdabias compare``: two models on one battery, two runs, or two sides of lm-eval's samples."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tda_bias.config import ARunEach, CompareConfig, WithCommas
from tda_bias.pairs.published import set_comes_from_hub
from tda_bias.show.terminal import say
from tda_bias.sources import HUB, text_comes_from_hub
from tda_bias.store.identity import Changes
from tda_bias.store.record import DataRecord
from tda_bias.store.run import content_hash, open_run
from tda_bias.triples import comes_from_hub
from tda_bias.types import InputError, RankBy
from unqover.bbq.readers import bbq_comes_from_hub

from .loading import Texts, language_model, reach_hub_for
from .options import Positional
from .run import Work
from .settings import (
    DtypeOption,
    KeptRunSettings,
    LimitOption,
    ModelName,
    Out,
    Several,
    TextOption,
    TwinsOption,
    folder_name,
    part_of,
    refuse_options,
)
from .spec import imported

if TYPE_CHECKING:
    from tda_bias.comparison.bbq_change import BBQChange
    from tda_bias.comparison.beta_agreement import BetaAgreement
    from tda_bias.comparison.head_maps import HeadsComparison
    from tda_bias.comparison.models import ModelComparison
    from tda_bias.comparison.samples import SampleComparison

# Options that two runs are compared by; those that neither runs nor models are refused for.
_OF_RUNS = {"category", "rank_by", "n_flips", "seed"}
_OF_BOTH = {"before", "after", "device", "batch_size", "out"}
_OF_SAMPLES = {"cluster_by"}
_WITH_MAPS = "goes with two runs of `tdabias heads`"


class CompareSettings(
    TwinsOption,
    TextOption,
    LimitOption,
    DtypeOption,
    CompareConfig,
    KeptRunSettings,
):
    """Options of ``tdabias compare``."""

    before: Annotated[ModelName, Positional()] = Field(
        description="Hub name, local folder, PEFT adapter or smollm2-135m; or a run of `tdabias "
        "heads`, `stereoset` or `bbq`; or a file or folder that `lm_eval run --log_samples` wrote."
    )
    after: Annotated[ModelName, Positional()] = Field(description="The other one of the same kind.")
    replicate: Annotated[tuple[ModelName, ...], Several] = Field(
        (),
        description="AFTER once more, from the same training with another seed; several times: "
        "intervals then also include their variation",
    )
    preset: Literal["smoke", "full"] = Field(
        "smoke",
        description="smoke (gender and samples, minutes) or full (everything)",
    )
    only: Annotated[tuple[str, ...], Several] = Field(
        (),
        description="only this: stereoset, intrasentence, crows, winobias, winogender, pvf, "
        "unqover, bbq, perplexity, blimp, divergence, pairs, respond (where named: it samples); "
        "may be given several times",
    )
    data: str = Field("stereoset", description="triples: stereoset (the hub), starter, or a file")
    pairs: str | None = Field(
        None, description="pairs too: crows, winobias, winogender, blimp, or a file of yours"
    )
    pairs_data: str | None = Field(
        None,
        description="where a named set of --pairs is read: packaged, hub, or its own file or "
        "folder (default: what ships, else the folder that TDABIAS_PAIRS names, else the hub)",
    )
    sentences: str = Field(
        "stereoset", description="StereoSet's intrasentence half: stereoset (the hub) or a file"
    )
    bbq: str | None = Field(
        None,
        description="BBQ: hub, or its file or folder (default: what TDABIAS_BBQ names, else the "
        "hub)",
    )
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this target of the triples (held-out ones); several times"
    )
    category: Annotated[str | None, ARunEach] = Field(
        None,
        description="of the triples and of the people of respond (default: the preset's), or of "
        "runs with several; several with commas, a run each",
    )
    rank_by: Annotated[RankBy, Changes.TABLES] = Field(
        "evidence", description="which map of two runs is compared"
    )
    cluster_by: str | None = Field(
        None,
        description="field of the documents of lm-eval's samples that those share which are no "
        "independent draws (default: every document by itself)",
    )
    fail_on: Annotated[tuple[Literal["guard", "bias"], ...], WithCommas, Changes.NOTHING] = Field(
        (),
        description="exit with 1 if this fails: guard (more quality is lost than allowed), bias (a "
        "primary outcome is farther from neutral, Holm p < .05); or both, with a comma",
    )
    out: Out = Field(None, description="folder for the files (default: runs/AFTER/compare-BEFORE)")

    @property
    def folder(self) -> Path:
        """Folder for the files."""
        name = f"compare-{folder_name(self.before)}"
        runs = not self.of_samples and self.of_runs
        inside = Path(self.after) if runs else Path("runs") / folder_name(self.after)
        return self.out or inside / name

    @property
    def unread(self) -> frozenset[str]:
        """Options of the other forms."""
        if self.of_samples:
            return frozenset(_of_models() | {"category", "rank_by"})
        return frozenset((_of_models() if self.of_runs else {"rank_by"}) | {"cluster_by"})

    @property
    def by_content(self) -> frozenset[str]:
        """Of runs and samples the tables count, wherever they are."""
        return frozenset({"before", "after"} if self.of_samples or self.of_runs else ())

    @property
    def form(self) -> str:
        """Which of the command's runs is meant."""
        if self.of_samples:
            return "compare samples"
        if not self.of_runs:
            return "compare"
        forms = {"stereoset": "compare beta", "bbq": "compare bbq"}
        return forms.get(open_run(self.before).command, "compare heads")

    def failures(self, result: Any) -> list[str]:
        """The guards and biases that failed, of those named by ``--fail-on``."""
        if not self.fail_on:
            return []

        from tda_bias.comparison.finding import failures

        return failures(result, self.fail_on)

    @property
    def of_samples(self) -> bool:
        """Sample files of lm-evaluation-harness are compared, not models or runs.

        Raises:
            InputError: if one side is such and the other is not, or an option goes with others.
        """
        sides = [_holds_samples(Path(name)) for name in (self.before, self.after)]
        if any(sides) and not all(sides):
            samples, other = (self.before, self.after)[:: 1 if sides[0] else -1]
            raise InputError(
                f"{samples} holds samples of lm-eval and {other} does not; give two files or "
                "folders that `lm_eval run --log_samples` wrote"
            )
        if all(sides):
            others = _of_models() | {"category", "rank_by"}
            refuse_options(self, others, "does not go with samples of lm-eval")
        else:
            refuse_options(self, {"cluster_by"}, "goes with samples of lm-eval")
        return all(sides)

    @property
    def of_runs(self) -> bool:
        """Finished runs are compared, not models.

        Raises:
            InputError: if one is a run and the other is not, or an option goes with the other kind.
        """
        runs = [(Path(name) / "run.json").is_file() for name in (self.before, self.after)]
        if any(runs) and not all(runs):
            run, model = (self.before, self.after)[:: 1 if runs[0] else -1]
            raise InputError(
                f"{run} is a run and {model} is not; give two models, or two runs of `tdabias "
                "heads`, `stereoset` or `bbq`"
            )
        if all(runs):
            refuse_options(self, _of_models(), "goes with two models, not with runs")
        else:
            refuse_options(self, {"rank_by"}, _WITH_MAPS)
        return all(runs)


def _of_models() -> set[str]:
    """Options that go with two models alone."""
    others = {*KeptRunSettings.model_fields, *_OF_RUNS, *_OF_BOTH, *_OF_SAMPLES}
    return set(CompareSettings.model_fields) - others


def _holds_samples(path: Path) -> bool:
    """Tell whether a file, or a folder that is no model and no run, holds samples of lm-eval."""
    if path.is_file():
        return path.suffix == ".jsonl"
    if not path.is_dir() or any((path / name).exists() for name in ("config.json", "run.json")):
        return False
    return next(path.rglob("samples_*.jsonl"), None) is not None


def models(settings: CompareSettings, _: None, work: Work) -> ModelComparison:
    """Measure two models alike."""
    from_hub = (
        comes_from_hub(settings.data)
        or comes_from_hub(settings.sentences, "intrasentence")
        or set_comes_from_hub("crows", None)
        or settings.pairs_data == HUB
        or bbq_comes_from_hub(settings.bbq, "en")
        or text_comes_from_hub(settings.text)
    )
    names = (settings.before, settings.after, *settings.replicate)
    for name in names:
        reach_hub_for(name, also=from_hub)

    from tda_bias.comparison.battery import battery
    from tda_bias.comparison.models import compare_models, not_measured_lines
    from tda_bias.models.load import read_config
    from tda_bias.plots.figures import plot_comparison
    from tda_bias.show.figures import print_style

    sources = {"data", "pairs", "pairs_data", "category", "sentences", "bbq", "text", "twins"}
    options = settings.model_dump(include={"preset", "only", *sources, "limit", "seed"})
    measures, not_measured = battery(**options, groups=settings.group)
    for line in not_measured_lines(not_measured):
        say(settings.console, line)
    for name in names:
        read_config(name)  # one that is not there is said before another is loaded
    before = work.model(settings.before)
    after, *replicates = (
        partial(language_model, name, settings, settings.console) for name in names[1:]
    )
    comparison = compare_models(
        before,
        after(),
        measures,
        replicates=replicates,
        not_measured=not_measured,
        config=part_of(settings, CompareConfig),
        unanswered="refuse" if settings.only else "leave_out",
        watch=lambda measure, model: work.progress(f"{measure} · {model}", "texts"),
        cache=work.cache,
    )
    with print_style():
        return work.saved(comparison, figures={"compare": plot_comparison(comparison)})


def runs(settings: CompareSettings) -> Texts:
    """Two runs of ``heads``, of ``stereoset`` or of ``bbq``, and what pins their content."""
    kinds = {
        "compare heads": "tda_bias.heads.result:HeadBias",
        "compare beta": "tda_bias.scores.stereoset_scores:StereoSetScores",
        "compare bbq": "unqover.bbq.result:BBQScores",
    }
    if settings.form != "compare heads":
        refuse_options(settings, {"rank_by"}, _WITH_MAPS)
    kind = imported(kinds[settings.form])
    loaded = [kind.load(run) for run in (settings.before, settings.after)]
    hashes = [str(content_hash(result.record)) for result in loaded]
    return Texts(loaded, DataRecord(source="runs", revision=" ".join(hashes)))


def heads(settings: CompareSettings, runs: Texts, work: Work) -> HeadsComparison:
    """Compare the maps of two runs of ``heads``."""
    from tda_bias.comparison.head_maps import compare_heads
    from tda_bias.plots.figures import plot_head_comparison
    from tda_bias.show.figures import print_style

    comparison = compare_heads(*runs.items, by=settings.rank_by, **_drawn(settings))
    names = (settings.before, settings.after)
    with print_style():
        drawn = {"compare": plot_head_comparison(comparison)}
        return work.saved(comparison, figures=drawn, runs=names)


def beta(settings: CompareSettings, runs: Texts, work: Work) -> BetaAgreement:
    """Compare the target effects of two runs of ``stereoset``."""
    from tda_bias.comparison.beta_agreement import compare_beta

    agreement = compare_beta(*runs.items, **_drawn(settings))
    return work.saved(agreement, runs=(settings.before, settings.after))


def bbq(settings: CompareSettings, runs: Texts, work: Work) -> BBQChange:
    """Compare the answers of two runs of ``bbq``."""
    from tda_bias.comparison.bbq_change import compare_bbq

    comparison = compare_bbq(*runs.items, **_drawn(settings))
    return work.saved(comparison, runs=(settings.before, settings.after))


def samples(settings: CompareSettings) -> Texts:
    """The scores of two sides, and what pins their content."""
    from tda_bias.comparison.sample_files import read_samples

    sides = [
        read_samples(side, cluster_by=settings.cluster_by)
        for side in (settings.before, settings.after)
    ]
    revision = " ".join(side.revision for side in sides)
    return Texts(sides, DataRecord(source="lm-eval samples", revision=revision))


def scores(settings: CompareSettings, sides: Texts, work: Work) -> SampleComparison:
    """Compare the scores that lm-eval logged of two models."""
    from tda_bias.comparison.samples import compare_samples

    config = part_of(settings, CompareConfig)
    found = compare_samples(*sides.items, cluster=settings.cluster_by or "document", config=config)
    return work.saved(found)


def _drawn(settings: CompareSettings) -> dict[str, Any]:
    how = {"n_resamples": settings.n_flips, "seed": settings.seed}
    return {"category": settings.category, **how}
