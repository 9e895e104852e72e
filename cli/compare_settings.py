"""What ``tdabias compare`` can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_RESAMPLES, MAX_SEED, InputError, RankBy

from .options import Positional
from .settings import Device, Dtype, FilePath, Name, RunSettings, Several, folder_name


class CompareSettings(RunSettings):
    """Everything ``tdabias compare`` can be told."""

    before: Annotated[Name, Positional()] = Field(
        description="Hub name, local folder, PEFT adapter or smollm2-135m; or a run of `tdabias "
        "heads`."
    )
    after: Annotated[Name, Positional()] = Field(description="The other one of the same kind.")
    replicate: Annotated[tuple[str, ...], Several] = Field(
        (),
        description="AFTER once more, from the same training with another seed; several times: "
        "intervals then also draw trainings",
    )
    preset: str = Field(
        "smoke",
        pattern="^(smoke|full)$",
        description="smoke (gender and samples, minutes) or full (everything)",
    )
    only: Annotated[tuple[str, ...], Several] = Field(
        (),
        description="only this: stereoset, intrasentence, crows, winobias, winogender, pvf, "
        "unqover, perplexity, blimp, divergence; may be given several times",
    )
    data: Name = Field("stereoset", description="triples: stereoset (the hub), starter, or a file")
    sentences: Name = Field(
        "stereoset", description="StereoSet's intrasentence half: stereoset (the hub) or a file"
    )
    crows: Name = Field("hub", description="CrowS-Pairs: hub, or its file or folder")
    blimp: Name | None = Field(
        None, description="BLiMP: hub, or its files (default: what ships, 20 pairs a paradigm)"
    )
    text: Name = Field(
        "wikitext2", description="neutral text: wikitext2 (the hub), a text file or its folder"
    )
    twins: Name = Field("auto", description="auto, none, or a file that `tdabias twins` wrote")
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this target of the triples (held-out ones); several times"
    )
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="triples of each target")
    category: str | None = Field(None, description="of runs with several")
    by: RankBy = Field("evidence", description="of runs: the map that is compared")
    device: Device = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps"
    )
    dtype: Dtype = Field("float32", description="type of the weights")
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    n_resamples: int = Field(
        2000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples of clusters"
    )
    n_flips: int = Field(
        9999, ge=99, le=MAX_RESAMPLES, description="exchanges of before and after, by clusters"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse measures that an earlier run finished")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/AFTER/compare-BEFORE)"
    )

    @property
    def folder(self) -> Path:
        """Where the files go."""
        name = f"compare-{folder_name(self.before)}"
        inside = Path(self.after) if self.of_runs else Path("runs") / folder_name(self.after)
        return self.out or inside / name

    @property
    def of_runs(self) -> bool:
        """Whether finished runs are compared, not models.

        Raises:
            InputError: if one is a run and the other is not, or runs have replicates.
        """
        runs = [(Path(name) / "run.json").is_file() for name in (self.before, self.after)]
        if any(runs) and not all(runs):
            run, model = (self.before, self.after)[:: 1 if runs[0] else -1]
            raise InputError(
                f"{run} is a run and {model} is not; give two models, or two runs of `tdabias "
                "heads`"
            )
        if all(runs) and self.replicate:
            raise InputError("`replicate` goes with models; of runs, two are compared")
        return all(runs)

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        if self.of_runs:
            return self.model_dump(mode="json", include={"category", "by", "n_flips", "seed"})
        left_out = {"device", "batch_size", "out", "overwrite", "format", "quiet", "resume"}
        return self.model_dump(mode="json", exclude=left_out)
