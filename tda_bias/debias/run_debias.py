"""A whole experiment: run, judged, and saved with the model that came out.

The model is an ordinary folder: checked against the one in memory, with its card.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from tda_bias.ablation.edits import TOLERANCE, logits_of, new_model_folder
from tda_bias.ablation.head_weights import Slice, export_record, head_slices
from tda_bias.debias import summary
from tda_bias.debias.corpus import SELF
from tda_bias.debias.experiment import (
    Experiment,
    Results,
    at_equal_entropy,
    learner_of,
    matching,
    named,
    run_experiment,
    trained_alone,
)
from tda_bias.debias.learners import HeadLora
from tda_bias.debias.protocol import RANDOM
from tda_bias.debias.result import DebiasRecord, DebiasRun, quantity_of
from tda_bias.debias.training import Trained
from tda_bias.models.language_model import model_record
from tda_bias.models.load import LanguageModel, load_language_model
from tda_bias.runs.files import to_json
from tda_bias.runs.page import Audited, model_card
from tda_bias.runs.record import DataRecord, RunRecord
from tda_bias.runs.result import writing_run
from tda_bias.runs.text import Finding, counted
from tda_bias.triples import triple_ids
from tda_bias.types import InputError, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a model folder says of its training: a card to read, and a record for `tdabias confirm`.
CARD, ABOUT, ADAPTER = "README.md", "debias.json", "adapter"
# And that `tdabias confirm` has looked at it, or at another model of its run.
LOOK = "look.json"
# So many texts show whether two models are the same.
_PROBES = 3


def run_debias(
    experiment: Experiment,
    folder: Path,
    *,
    category: str,
    data: DataRecord,
    settings: dict[str, Any],
    save: Sequence[str] = (),
    progress: Progress | None = None,
    draw: Callable[[pd.DataFrame, pd.DataFrame, str], Figure] | None = None,
) -> DebiasRun:
    """Run an experiment, save the model of the best condition or those asked for, and the run.

    Args:
        experiment: From ``fixed_experiment``.
        folder: Where to.
        category: Of the triples.
        data: Where these were read.
        settings: For the record.
        save: Conditions whose models are saved: of the first in ``model``, of another one in
            ``model-NAME``; without any that of the one chosen on validation targets. Of the random
            sets it is the first.
        progress: Called with steps done and all.
        draw: Draws conditions and frontier for the folder; last it is told their quantity.

    Raises:
        ShareDone: as ``run_experiment``.
        InputError: if a part cannot be read, or a folder cannot be written.
    """
    protocol, corpus = experiment.protocol, experiment.corpus
    about = model_record(corpus.model, weights=experiment.weights)
    results = run_experiment(experiment, progress, save=save)
    first, *others = save or [summary.recommended(results, protocol)]
    groups = [triple.group for triple in corpus.items.triples]
    matched = {
        condition: [at_equal_entropy(experiment, own) for own in trained]
        for condition, trained in results.items()
        if condition.name != RANDOM and all(own.trajectory.values for own in trained)
    }
    table = summary.conditions_table(results, groups, protocol, matched=matched)
    best, row, verdict = _judged(experiment, results, table, first)
    record = DebiasRecord(
        model=about,
        settings=settings,
        data=data,
        category=category,
        protocol=protocol,
        protocol_hash=experiment.identity,
        fixed=experiment.fixed,
        folds=[{"number": fold.number, **experiment.targets(fold)} for fold in experiment.folds],
        neutral=corpus.neutral.record(),
        matching=matching(experiment),
        recommended=first,
        unchanged=best.trajectory.best == 0,
        verdict=verdict,
        broken=tuple(summary.broken(results)),
        twins=experiment.twins,
    )
    for earlier in folder.glob("model-*"):
        if (earlier / ABOUT).is_file():
            shutil.rmtree(earlier)
    heads = save_debiased(experiment, best, record, row, folder / "model")
    for name in others:
        another, row, verdict = _judged(experiment, results, table, name)
        told = {"recommended": name, "verdict": verdict, "unchanged": not another.trajectory.best}
        about_it = record.model_copy(update=told)
        save_debiased(experiment, another, about_it, row, folder / f"model-{name}")
    run = DebiasRun(table, summary.frontier_table(results), record)
    reported = corpus.domain.report if corpus.domain is not None else {}
    of_others = {n: [triple.group for triple in items.triples] for n, items in reported.items()}
    with writing_run(folder, record) as files:
        files.table("conditions.csv", run.conditions)
        files.table("frontier.csv", run.frontier)
        files.table("trainings.csv", summary.trainings_table(results))
        ids = triple_ids(corpus.items.triples)
        files.table("items.parquet", summary.items_table(results, groups, ids))
        files.table("others.csv", summary.others_table(results, of_others))
        files.json("heads.json", heads)
        if draw is not None:
            files.figure("frontier", draw(run.conditions, run.frontier, quantity_of(record.twins)))
    return run


def _judged(
    experiment: Experiment, results: Results, table: pd.DataFrame, name: str
) -> tuple[Trained, dict[Any, Any], str]:
    """The training whose model is saved for a condition, and what its folds showed, in words too.

    Of random sets it is the first, which the table does not show alone.
    """
    condition = named(list(results), name)
    trained = trained_alone(experiment, condition, experiment.folds[-1])
    row = summary.condition_row(condition, results[condition], experiment.protocol)
    of_folds = sum(own.trajectory.best == 0 for own in results[condition])
    several = len(experiment.folds) > 1
    unchanged = of_folds if several else 0
    verdict = summary.verdict(
        row, table, experiment.protocol,
        quantity=quantity_of(experiment.twins), unchanged=unchanged,
    )  # fmt: skip
    if trained.trajectory.best == 0:
        verdict += " No check passed the guards: the model that is saved is the original."
    return trained, row, verdict


# -- the trained model -----------------------------------------------------------------------------


def look_of_run(run: Path, protocol: str) -> Path:
    """Path of the record that a run's models were confirmed; it outlives models saved again."""
    return run / f"look-{protocol}.json"


def save_debiased(
    experiment: Experiment,
    trained: Trained,
    record: DebiasRecord,
    row: Mapping[str, Any],
    folder: Path,
) -> dict[str, Any]:
    """Put what was learned into a model's weights, and write it as a folder that loads anywhere.

    The folder, in the place of an earlier run's, gets its name only when the model in it was read
    back and gives the same logits, and where heads learned everything outside their slices is bit
    for bit what it was. The model in memory stays as it was. ``row`` is of
    ``summary.conditions_table``.

    Returns:
        The content of ``heads.json``.

    Raises:
        InputError: if the folder cannot be written, holds something else, or does not give the
            same model back.
    """
    model, triples = experiment.corpus.model, experiment.corpus.items.triples
    heads, how = trained.training.heads, trained.training.condition.how
    source = experiment.corpus.neutral.source
    about = {
        "format": "tdabias debias 3",
        "protocol": experiment.identity,
        "model": model.name,
        "original": experiment.weights,
        "category": record.category,
        "data": record.data.source if record.data is not None else None,
        "items": len(trained.training.fold.train),
        "neutral": "written by the model itself" if source == SELF else source,
        "how": how,
        "condition": record.recommended,
        "heads": [str(head) for head in heads],
        "targets": experiment.targets(trained.training.fold),
        "verdict": record.verdict,
    }
    before = {name: value.clone() for name, value in model.hf_model.state_dict().items()}
    slices = {s for head in heads for s in head_slices(model.hf_model, head)}
    gates = trained.trajectory.values.get("gates")
    rows: list[dict[str, Any]] = [
        {"layer": head.layer, "head": head.head}
        | ({} if gates is None else {"gate": float(gates[place])})
        for place, head in enumerate(heads)
    ]
    rule = {"condition": record.recommended, "how": how, "protocol": experiment.identity}
    exported = export_record(model.hf_model, rows, model=record.model.model_dump(), rule=rule)
    own = learner_of(experiment, trained.training)
    with own:  # gives parameters their ``requires_grad`` back
        own.load(trained.trajectory.values)
        own.check()
    if folder.exists() and not (folder / ABOUT).is_file():
        raise InputError(f"{folder} holds something else; move it away, or choose another --out")
    replaced = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(replaced, ignore_errors=True)
    with new_model_folder(replaced) as stage:
        try:
            if isinstance(own, HeadLora):
                own.save(stage / ADAPTER)
            own.apply()
            model.hf_model.save_pretrained(stage)
            model.tokenizer.save_pretrained(stage)
        except OSError:
            raise
        except Exception as error:  # what writes tensors names a full disk in its own way
            raise InputError(
                f"cannot write {folder}: {error}; free space, then run again"
            ) from None
        if heads:
            _refuse_changes_outside(model.hf_model.state_dict(), before, slices)
        saved = load_language_model(str(stage), device=str(model.device), dtype=model.dtype_name)
        _refuse_other_logits(model, saved, [triple.texts()[0] for triple in triples[:_PROBES]])
        weights = saved.weight_hash()
        card = _card(about, row, record, folder.parent.name, {triple.group for triple in triples})
        (stage / CARD).write_text(card, encoding="utf-8")
        (stage / ABOUT).write_text(to_json({**about, "weights": weights}), encoding="utf-8")
        taken = look_of_run(folder.parent, experiment.identity)
        if taken.is_file():
            shutil.copy(taken, stage / LOOK)
    model.hf_model.load_state_dict(before)
    shutil.rmtree(folder, ignore_errors=True)
    replaced.rename(folder)
    return exported


def _refuse_changes_outside(
    now: Mapping[str, Tensor], before: Mapping[str, Tensor], slices: Set[Slice]
) -> None:
    """Raise AssertionError, naming a parameter, if others than numbers in the slices changed."""
    for name, value in now.items():
        different = value != before[name]
        for part in slices:
            if part.parameter == name:
                part.of(different).fill_(False)
        if bool(different.any()):
            raise AssertionError(f"{name} changed outside the chosen heads")


def _refuse_other_logits(model: LanguageModel, saved: LanguageModel, probes: Sequence[str]) -> None:
    for text in probes:
        ids = torch.tensor([model.tokenizer(text)["input_ids"]])
        first, second = (logits_of(loaded, ids) for loaded in (model, saved))
        difference = float((first - second).abs().max())
        if not difference <= max(TOLERANCE, 1e-5 * float(first.abs().max())):
            raise InputError(
                f"the saved model's logits differ by {difference:.2g} from those in memory; "
                "nothing was kept"
            )


def _card(
    about: Mapping[str, Any],
    row: Mapping[str, Any],
    record: DebiasRecord,
    name: str,
    groups: Set[str],
) -> str:
    """Text that tells a stranger on what the model was trained, what changed, and what did not."""
    run = RunRecord(
        command="debias", model=record.model, settings=record.settings, data=record.data
    )
    control = f"{record.protocol.n_random} sets of random heads."
    found = Finding(result=[record.verdict], control=[control])
    audited = Audited(name, run, [(record.category, found)], whom=", ".join(sorted(groups)))
    seen, category = about["targets"], about["category"]
    interval = f" ({row['low']:.3f} to {row['high']:.3f})" if row["low"] == row["low"] else ""
    whose = "this very model" if seen["test"] else "models of the other folds, trained alike"
    what, outside, trained = "the whole model", "", "trained"
    if names := about["heads"]:
        what = "the heads"
        kept = "Every other number is that of the base model, bit for bit"
        outside = f":\n  {_shortened(names)}. {kept}"
        trained = f"trained on {len(names)} of its attention heads"
    quantity = quantity_of(record.twins)
    texts = "with their twins"
    meaning = (
        "Beta is the part of the preference for a stereotype that changes when the text is about\n"
        "another target. 0 is none."
    )
    if record.twins is None:
        texts = "without twins"
        meaning = "The log-odds of stereotype against anti-stereotype hold wording too."
    body = f"""\
Made by `tdabias debias`, protocol `{about["protocol"]}`.

## What was trained

- How: {about["how"]}, {what} of the condition *{about["condition"]}*{outside}.
- Texts: {counted(about["items"], "item")} of {about["data"]} trained, category {category},
  {texts}. Targets that trained: {", ".join(seen["train"])}. Validation targets, which stopped
  the training: {", ".join(seen["validation"])}.
- Neutral text: {about["neutral"]}.

## What changed

On targets that the trainings compared never saw ({whose}):

| | before | after |
|---|---|---|
| {quantity}, nats per token | {row["before"]:.3f} | {row["beta"]:.3f}{interval} |
| root mean square of {quantity} | {row["rms_before"]:.3f} | {row["rms"]:.3f} |
| language-model score | {row["lms_before"]:.1f} | {row["lms"]:.1f} |
| perplexity of neutral text | | {row["perplexity"]:+.1f} % |

{meaning}

## What this does not show

- {about["verdict"]}
- Other biases, other targets, other kinds of text and generation were not looked at;
  `tdabias compare` looks at some of them. A model whose {quantity} is 0 here is not an
  unbiased model.
- Whether the model still tells genders apart where it should is a question of its own: measure it
  before use."""
    title = f"{about['model']}, {trained} against {category} bias"
    return model_card(about["model"], title, [audited], body=body, tags=("debiasing", category))


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 40 else f"all {len(names)}"
