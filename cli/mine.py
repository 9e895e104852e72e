"""``tdabias pvf mine``: context templates from a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rich.console import Console

from pvf.config import Kind
from tda_bias.runs.text import counted
from tda_bias.types import MAX_COUNT, InputError

from .loading import use_cache_if_unreachable
from .options import Positional, command
from .output import Output
from .progress import progress_bar
from .settings import OutputSettings, SeedOption
from .work import interruptible

if TYPE_CHECKING:
    from pvf.mining import Mined

# Documents between two saves of an unfinished run.
_SAVE_EVERY = 50


class MineSettings(SeedOption, OutputSettings):
    """Settings of ``tdabias pvf mine``."""

    corpus: Annotated[str, Positional()] = Field(
        description=".txt, .jsonl or .zst file, or a data set on the hub, NAME[:CONFIGURATION]"
    )
    kind: Kind = Field(
        "gender", description="gender: The [X] said that [Y]; race: The [X], who said it, is [Y]"
    )
    out: Path = Field(Path("templates.csv"), description="CSV to write")
    pipeline: str = Field(
        "en_core_web_sm",
        description="English spaCy pipeline, by the name it is installed under",
    )
    documents: int | None = Field(
        None, ge=1, le=1000 * MAX_COUNT, description="random sample of so many (default: all)"
    )
    field: str = Field("text", description="where the text is, in JSON Lines")
    split: str = Field("train", description="of a data set")
    min_count: int = Field(2, ge=1, le=MAX_COUNT, description="distinct sentences per template")
    min_documents: int = Field(1, ge=1, le=MAX_COUNT, description="documents per template")
    resume: bool = Field(True, description="go on where an earlier run stopped")


@command(MineSettings)
def mine(settings: MineSettings) -> None:
    """Mine context templates from a corpus, and compare them with the published ten."""
    from pvf.mining import mined_table, overlap
    from pvf.words import load_templates
    from tda_bias.runs.run import refuse_file_of_a_run
    from tda_bias.runs.tables import write_csv

    refuse_file_of_a_run(settings.out, setting="out")
    mined, pipeline, state = _mined(settings)
    table = mined_table(mined, min_count=settings.min_count, min_documents=settings.min_documents)
    write_csv(settings.out, table)
    said = [
        f"{counted(mined.done, 'document')}, {counted(mined.sentences, 'distinct sentence')} "
        f"({pipeline}): {len(table)} "
        f"templates with {counted(int(table['count'].sum()), 'sentence')}, of {len(mined.counts)} "
        "candidates."
    ]
    shared = overlap(table, load_templates(settings.kind))
    recall = ", ".join(f"{value:.0%} among the first {k}" for k, value in shared["recall"].items())
    said.append(
        f"Of the published ten: {recall}; {shared['found']} at all. Weighted Jaccard "
        f"{shared['jaccard']:.2f}; share of The [X] VERB that [Y]: {shared['that_share']:.0%}."
    )
    Output(
        shown=[*said, f"Files: {settings.out} (for --templates), {state}"],
        values={"file": str(settings.out), "documents": mined.done, **shared},
        rows=table,
    ).print(settings)


def _mined(settings: MineSettings) -> tuple[Mined, str, Path]:
    """Summary of mining: the pipeline with its version, and the file that keeps the state."""
    if not Path(settings.corpus).is_file():
        use_cache_if_unreachable()

    from pvf.mining import Mined, documents, load_pipeline
    from pvf.mining import mine as mine_documents

    nlp = load_pipeline(settings.pipeline)
    pipeline = f"{nlp.lang}_{nlp.meta['name']} {nlp.meta['version']}"
    sample = {"field", "split", "seed"}
    identity = {
        **settings.model_dump(include={"corpus", "kind", "documents", *sample}),
        "pipeline": pipeline,
    }
    state = settings.out.with_name(settings.out.name + ".state.json")
    if not settings.resume:
        state.unlink(missing_ok=True)
    mined = Mined.load(state, identity)
    source = documents(settings.corpus, n=settings.documents, **settings.model_dump(include=sample))

    def kept() -> int:
        return mined.done // _SAVE_EVERY * _SAVE_EVERY

    console = Console(stderr=True, quiet=settings.quiet)
    with (
        interruptible(kept, state, "document"),
        progress_bar(console, f"mining {settings.corpus}", "documents") as progress,
    ):

        def after(now: Mined) -> None:
            progress(now.done, settings.documents)
            if now.done % _SAVE_EVERY == 0:
                now.save(state, identity)

        mine_documents(nlp, source, kind=settings.kind, mined=mined, after_document=after)
    if not mined.done:
        raise InputError(f"{settings.corpus} holds no document: there is nothing to mine")
    mined.save(state, identity)
    return mined, pipeline, state
