"""What ``tdabias debias`` can be told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from tda_bias.types import MAX_BATCH, MAX_COUNT, MAX_SEED, Category

from .settings import Device, FilePath, Name, Precision, SharedRunSettings

RANKINGS = (
    "evidence", "published", "importance", "effect", "mediation", "gates", "bottom", "file",
)  # fmt: skip
How = Literal["gates", "tune", "lora"]


class DebiasSettings(SharedRunSettings):
    """Everything ``tdabias debias`` can be told."""

    model: Name = Field(
        min_length=1, description="hub name, local folder, or smollm2-135m (needs no hub)"
    )
    category: Category = Field(description="gender, profession, race or religion")
    data: Name = Field(
        "stereoset", description="stereoset (the hub), starter, or a file of triples"
    )
    twins: Name = Field("auto", description="auto, none, or a file that `tdabias twins` wrote")
    preset: Literal["smoke", "paper"] = Field(
        "smoke",
        description="smoke (one fold, minutes) or paper (everything); the rest overrides it",
    )
    how: How = Field(
        "gates",
        description="what learns: gates (one number per head, folded into the weights), tune (the "
        "heads' weights), lora (an adapter on them)",
    )
    by: str | None = Field(
        None,
        description="rankings that choose heads, with commas: evidence, published, importance, "
        "effect, mediation, gates, bottom, file; random heads are drawn like the first",
    )
    heads: FilePath | None = Field(None, description="JSON file of heads, for the ranking file")
    top: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="heads that are chosen (default: a tenth)"
    )
    n_random: int | None = Field(None, ge=1, le=1000, description="random sets of heads")
    controls: bool | None = Field(
        None, description="also train the whole model, a placebo, and on neutral text alone"
    )
    folds: int | None = Field(None, ge=1, le=5, description="folds of targets that are run, of 5")
    epochs: int | None = Field(None, ge=1, le=100, description="passes over the training items")
    rates: int | None = Field(None, ge=1, le=3, description="learning rates that are tried")
    train_items: int | None = Field(
        None, ge=4, le=MAX_COUNT, description="items of a fold that train, at most"
    )
    check_items: int | None = Field(
        None, ge=4, le=MAX_COUNT, description="items of a fold that stop, and that test, at most"
    )
    loss: Literal["twins", "equalise"] = Field(
        "twins", description="twins (what changes with the target) or equalise (all differences)"
    )
    kl: float = Field(1.0, ge=0, le=1000, description="weight of the divergence from the original")
    save: str | None = Field(
        None,
        description="arm whose model is saved: a ranking of --by, or all (default: what does best "
        "on the targets that stop)",
    )
    text: Name = Field(
        "self",
        description="neutral text: self (the model's own), wikitext2 (the hub), or a text file",
    )
    limit: int | None = Field(None, ge=1, le=MAX_COUNT, description="triples of each target")
    precision: Precision = Field(
        "float32",
        description="of matrix products while training and checking: float32, or bfloat16, about "
        "twice as fast on many processors; what is learned and saved is float32",
    )
    device: Device = Field("auto", description="auto, cpu, cuda, cuda:N, mps")
    batch_size: int = Field(
        36, ge=1, le=MAX_BATCH, description="texts per forward pass where nothing is learned"
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    out: FilePath = Field(description="folder for the tables, the model and its card")
    resume: bool = Field(True, description="reuse trainings that are finished")

    @field_validator("by")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        names = [name.strip() for name in (value or "").split(",") if name.strip()]
        unknown = [name for name in names if name not in RANKINGS]
        if value is not None and (unknown or not names or len(set(names)) < len(names)):
            raise ValueError(f"must name rankings among {', '.join(RANKINGS)}; got {value!r}")
        return value and ",".join(names)

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        how = {"device", "batch_size", "resume", "shard"}
        left_out = {*how, "out", "overwrite", "format", "quiet"}
        return self.model_dump(mode="json", exclude=left_out)
