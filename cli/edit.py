"""``tdabias edit``: a model without some heads, as a folder that loads anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator
from rich.console import Console

from tda_bias.runs.text import counted
from tda_bias.types import MAX_BATCH, MAX_COUNT, HeadId, InputError, RankBy

from .loading import (
    hooked_model,
    language_model,
    model_of,
    out_of_memory_in_one_line,
    reach_hub_for,
)
from .options import Positional, command
from .output import Output
from .settings import Device, FilePath, Name, OutputSettings, Several

if TYPE_CHECKING:
    from tda_bias.ablation.edits import EditedModel
    from tda_bias.models.load import LanguageModel

_HEAD = re.compile(r"L(\d{1,4})H(\d{1,4})", re.IGNORECASE)
# So many texts show whether two models are the same, and as many are enough.
_PROBES = 3


class EditSettings(OutputSettings):
    """Settings of ``tdabias edit``."""

    run: Annotated[FilePath | None, Positional()] = Field(
        None, description="Folder that `tdabias heads` wrote: its top heads are edited."
    )
    how: str = Field(
        description="zero (heads write nothing), mean (they write their mean over texts), or "
        "scale=0.5 (half of it; any number)"
    )
    out: FilePath = Field(description="folder for the edited model; it must not exist")
    model: Name | None = Field(
        None,
        description="hub name, local folder, or smollm2-135m (default: that of the run or of the "
        "file of heads)",
    )
    head: Annotated[tuple[str, ...], Several] = Field(
        (), description="a head, as L5H3; may be given several times"
    )
    heads: FilePath | None = Field(None, description="JSON file that `tdabias export` wrote")
    top: int = Field(10, ge=1, le=MAX_COUNT, description="heads from the top of the run's ranking")
    category: str | None = Field(None, description="of a run with several")
    by: RankBy | None = Field(None, description="the map that ranks (default: the run's)")
    data: Name | None = Field(
        None,
        description="triples whose unrelated texts the mean is over (default: the run's, else "
        "starter)",
    )
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    device: Device = Field(
        "auto", description="auto (a GPU where there is one), cpu, cuda, cuda:N, mps"
    )

    @field_validator("head")
    @classmethod
    def _looks_like_a_head(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _HEAD.fullmatch(name):
                raise ValueError(f"must look like L5H3 (layer 5, head 3, from 0); got {name!r}")
        return value


@command(EditSettings)
def edit(settings: EditSettings) -> None:
    """Switch off, damp or average heads for good; the model loads with plain transformers."""
    from tda_bias.ablation.edits import edit_rule, refuse_existing

    rule = edit_rule(settings.how)
    refuse_existing(settings.out)
    chosen = _chosen(settings)

    from tda_bias.ablation.edits import stored_dtype, write_edited_model
    from tda_bias.triples import load_triples

    probes = [t.texts()[0] for t in load_triples("starter")[:_PROBES]]
    texts: list[str] = []
    if rule.how == "mean":
        from tda_bias.triples import comes_from_hub

        reach_hub_for(chosen.model, also=comes_from_hub(chosen.data))
        triples = load_triples(chosen.data, category=chosen.category, groups=chosen.groups)
        texts = [triple.texts()[2] for triple in triples]
    console = Console(stderr=True, quiet=settings.quiet)
    dtype = stored_dtype(chosen.model)

    def load() -> LanguageModel:
        return language_model(chosen.model, device=settings.device, dtype=dtype, console=console)

    def load_original() -> LanguageModel:
        return _hooked_if_possible(chosen, settings.device, console)

    with out_of_memory_in_one_line(settings.device, settings.batch_size):
        written = write_edited_model(
            load,
            load_original,
            chosen.heads,
            rule,
            settings.out,
            mean_over=texts,
            batch_size=settings.batch_size,
            probes=probes,
            about={"model": chosen.model, "from": chosen.source, "mean_over": chosen.data},
        )
    output(written, chosen, str(rule)).print(settings)


@dataclass(frozen=True)
class Chosen:
    """The heads that are asked for, and where they come from.

    Attributes:
        heads: The heads.
        model: Whose they are.
        source: What named them.
        weights: Hash of the weights of the model they were found in, where that is known.
        data: Texts behind a mean.
        category: Of those.
        groups: Of those.
    """

    heads: Sequence[HeadId]
    model: str
    source: str
    weights: str | None = None
    data: str = "starter"
    category: str = "all"
    groups: Sequence[str] = field(default_factory=tuple)


def _chosen(settings: EditSettings) -> Chosen:
    ways = {"--head": settings.head, "--heads": settings.heads, "a run": settings.run}
    given = [name for name, value in ways.items() if value]
    if len(given) != 1:
        said = " and ".join(given) if given else "none"
        raise InputError(f"heads come from --head, from --heads FILE or from a run; got {said}")
    if settings.run is not None:
        return _of_run(settings, settings.run)
    data = settings.data or "starter"
    if settings.heads is not None:
        heads, about = _of_file(settings.heads)
        model = settings.model or about.get("name")
        if not model:
            raise InputError(f"{settings.heads} names no model; give --model")
        return Chosen(heads, str(model), str(settings.heads), about.get("weights"), data)
    if settings.model is None:
        raise InputError("`model` is missing; give --model")
    parsed = [_HEAD.fullmatch(name) for name in settings.head]
    heads = [HeadId(int(match[1]), int(match[2])) for match in parsed if match]
    return Chosen(heads, settings.model, "the command line", None, data)


def _of_run(settings: EditSettings, run: Path) -> Chosen:
    from tda_bias.heads.result import HeadBias

    heads = HeadBias.load(run)
    category = settings.category or heads.categories[0]
    rows = heads.top(settings.top, category=category, by=settings.by).to_dict("records")
    about = heads.record.model
    data, groups = settings.data, ()
    if data is None and heads.record.settings.get("pairs"):
        data = "starter"  # pairs have no unrelated texts that a mean could be over
    elif data is None:
        data = str(heads.record.data.source) if heads.record.data is not None else "starter"
        groups = heads.record.told("group", ())
    return Chosen(
        heads=[HeadId(int(row["layer"]), int(row["head"])) for row in rows],
        model=settings.model or model_of(heads.record),
        source=f"{run}, category {category}",
        weights=about.weights,
        data=data,
        category="all" if heads.record.settings.get("pairs") else category,
        groups=groups,
    )


def _of_file(path: Path) -> tuple[list[HeadId], dict[str, Any]]:
    from tda_bias.ablation.head_weights import read_export

    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"`heads` {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"`heads` {path} is no file that `tdabias export` wrote") from None
    heads = read_export(record)
    if not heads:
        raise InputError(f"`heads` {path} holds no head")
    about = record.get("model")
    return heads, about if isinstance(about, dict) else {}


def _hooked_if_possible(chosen: Chosen, device: str, console: Console) -> LanguageModel:
    """The original in single precision, hooked by TransformerLens where that knows it."""
    from tda_bias.models.load import load_language_model

    try:
        return hooked_model(chosen.model, device=device, dtype="float32", console=console)
    except InputError as error:
        if "cannot hook" not in str(error):
            raise
    return load_language_model(chosen.model, device=device, attention="eager")


def output(written: EditedModel, chosen: Chosen, how: str) -> Output:
    """Output of an edit, in every format."""
    import pandas as pd

    heads = list(dict.fromkeys(chosen.heads))
    values = {
        "folder": str(written.folder),
        "model": chosen.model,
        "from": chosen.source,
        "how": how,
        "heads": [str(head) for head in heads],
        "parameters": list(written.parameters),
        "weights": list(written.weights),
        "check": asdict(written.check),
    }
    rows = [{"layer": head.layer, "head": head.head, "how": how} for head in heads]
    return Output(lines(written, chosen, how), values, pd.DataFrame(rows))


def lines(written: EditedModel, chosen: Chosen, how: str) -> list[str]:
    """Summary of an edit: the change, its check, and how the model is loaded."""
    named = ", ".join(str(head) for head in dict.fromkeys(chosen.heads))
    sentences = [
        f"{how} of {named} ({chosen.source}) in {chosen.model}: "
        f"{counted(len(written.parameters), 'parameter')} changed, all others bit for bit as they "
        "were.",
        f"Read back from disk and compared with the hooked model ({written.check.through}): logits "
        f"differ by at most {written.check.difference:.1g} (allowed {written.check.allowed:.1g}); "
        f"the edit moves them by up to {written.check.effect:.2g}.",
    ]
    if chosen.weights not in (None, written.weights[0]):
        sentences.append(
            "The heads were found in a model with other weights: whether they do the same here is "
            "not known."
        )
    sentences.append(f"Model: {written.folder}/ (load it with transformers, tdabias is not needed)")
    return sentences
