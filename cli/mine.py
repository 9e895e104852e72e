"""``tdabias pvf mine``: context templates from a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pvf.config import Kind

from .loading import progress_bar

# Documents between two saves of an unfinished run.
_SAVE_EVERY = 50


def mine(
    corpus: Annotated[
        str,
        typer.Argument(
            help=".txt, .jsonl or .zst file, or a data set on the hub, NAME[:CONFIGURATION]"
        ),
    ],
    kind: Annotated[
        Kind, typer.Option(help="gender: The [X] said that [Y]; race: The [X], who said it, is [Y]")
    ] = "gender",
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV to write")] = Path("templates.csv"),
    pipeline: Annotated[
        str, typer.Option(help="English spaCy pipeline, by the name it is installed under")
    ] = "en_core_web_sm",
    documents: Annotated[
        int | None,
        typer.Option("--documents", "-n", min=1, help="random sample of so many (default: all)"),
    ] = None,
    field: Annotated[str, typer.Option(help="where the text is, in JSON Lines")] = "text",
    split: Annotated[str, typer.Option(help="of a data set")] = "train",
    min_count: Annotated[int, typer.Option(min=1, help="distinct sentences per template")] = 2,
    min_documents: Annotated[int, typer.Option(min=1, help="documents per template")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="of the sample")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="go on where an earlier run stopped")
    ] = True,
) -> None:
    """Mine context templates from a corpus, and compare them with the published ten."""
    if not Path(corpus).is_file():
        from .loading import use_cache_if_unreachable

        use_cache_if_unreachable()

    from pvf.corpora import documents as read_documents
    from pvf.mined import Mined, mined_table, overlap
    from pvf.mining import load_pipeline
    from pvf.mining import mine as mine_documents
    from pvf.templates import load_templates
    from tda_bias.records.files import write_csv

    nlp = load_pipeline(pipeline)
    meta = f"{nlp.lang}_{nlp.meta['name']} {nlp.meta['version']}"
    settings = {
        "corpus": corpus, "kind": kind, "documents": documents, "field": field, "split": split,
        "seed": seed, "pipeline": meta,
    }  # fmt: skip
    state = out.with_name(out.name + ".state.json")
    if not resume:
        state.unlink(missing_ok=True)
    mined = Mined.load(state, settings)
    source = read_documents(corpus, n=documents, field=field, split=split, seed=seed)
    console = Console(stderr=True)
    try:
        with progress_bar(console, f"mining {corpus}", "documents") as progress:

            def after(now: Mined) -> None:
                progress(now.done, documents)
                if now.done % _SAVE_EVERY == 0:
                    now.save(state, settings)

            mine_documents(nlp, source, kind=kind, mined=mined, after_document=after)
    except KeyboardInterrupt:
        typer.echo(
            f"Interrupted. {mined.done // _SAVE_EVERY * _SAVE_EVERY} documents are kept in "
            f"{state}; the same command goes on.",
            err=True,
        )
        raise typer.Exit(130) from None
    mined.save(state, settings)
    table = mined_table(mined, min_count=min_count, min_documents=min_documents)
    write_csv(out, table)
    typer.echo(
        f"{mined.done} documents, {mined.sentences} distinct sentences ({meta}): {len(table)} "
        f"templates with {int(table['count'].sum())} sentences, of {len(mined.counts)} candidates."
    )
    found = overlap(table, load_templates(kind))
    recall = ", ".join(f"{value:.0%} among the first {k}" for k, value in found.recall.items())
    typer.echo(
        f"Of the published ten: {recall}; {found.found} at all. Weighted Jaccard "
        f"{found.jaccard:.2f}; share of The [X] VERB that [Y]: {found.that_share:.0%}."
    )
    typer.echo(f"Files: {out} (for --templates), {state}")
