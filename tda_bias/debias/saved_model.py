"""A trained model as an ordinary folder, checked against the model in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tda_bias.ablation.edits import TOLERANCE, logits_of, new_model_folder
from tda_bias.ablation.head_weights import Slice, export_record, head_slices
from tda_bias.debias.card import debias_card
from tda_bias.debias.experiment import Experiment, learner_of
from tda_bias.debias.learners import HeadLora
from tda_bias.debias.passages import SELF
from tda_bias.debias.summary import DebiasRecord
from tda_bias.debias.training import Trained
from tda_bias.models.checkpoint import save_changed
from tda_bias.models.load import LanguageModel, load_language_model
from tda_bias.store.files import to_json
from tda_bias.types import InputError

# What a model folder says of its training: a card to read, and a record for `tdabias confirm`.
CARD, ABOUT, ADAPTER = "README.md", "debias.json", "adapter"
# And that `tdabias confirm` has looked at it, or at another model of its run.
LOOK = "look.json"
# Where it puts what it found, unless told otherwise.
FOUND = "confirm"
# So many texts show whether two models are the same.
_PROBES = 3


def look_of_run(run: Path, protocol: str) -> Path:
    """Path of the record that a run's models were confirmed; it outlives models saved again."""
    return run / f"look-{protocol}.json"


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder to save a model in that holds anything but a model of an earlier run.

    Raises:
        InputError: if it does.
    """
    if folder.exists() and not (folder / ABOUT).is_file():
        raise InputError(f"{folder} holds something else; move it away, or choose another --out")


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
    for bit what it was. The model in memory stays as it was. ``row`` is the condition's.

    Returns:
        The content of ``heads.json``.

    Raises:
        InputError: if the folder cannot be written, does not give the same model back, or holds
            another model and what `tdabias confirm` found of it.
    """
    model, triples = experiment.corpus.model, experiment.corpus.items.triples
    heads = trained.training.heads
    about = _about(experiment, trained, record)
    before = {name: value.clone() for name, value in model.hf_model.state_dict().items()}
    slices = {s for head in heads for s in head_slices(model.hf_model, head)}
    exported = _exported(model, trained, about, record)
    replaced = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(replaced, ignore_errors=True)
    with new_model_folder(replaced) as stage:
        own, applied = learner_of(experiment, trained.training), False
        try:
            with own:  # gives parameters their ``requires_grad`` back
                own.load(trained.trajectory.values)
                own.check()
            with _being_written(folder):
                if isinstance(own, HeadLora):
                    own.save(stage / ADAPTER)
                own.apply()
                applied = True
                save_changed(model, before, stage)
            if heads:
                _refuse_changes_outside(model.hf_model.state_dict(), before, slices)
            device, dtype = str(model.device), model.dtype_name
            saved = load_language_model(str(stage), device=device, dtype=dtype)
            _refuse_other_logits(model, saved, [triple.texts()[0] for triple in triples[:_PROBES]])
        finally:
            if not applied:
                own.undo()
            model.hf_model.load_state_dict(before)
        weights = saved.weight_hash()
        groups = {triple.group for triple in triples}
        card = debias_card(about, row, record, folder.parent.name, groups)
        (stage / CARD).write_text(card, encoding="utf-8")
        (stage / ABOUT).write_text(to_json({**about, "weights": weights}), encoding="utf-8")
        taken = look_of_run(folder.parent, experiment.identity)
        if taken.is_file():
            shutil.copy(taken, stage / LOOK)
        if (folder / FOUND).is_dir():  # what was found cannot be found again
            if read_about(folder)["weights"] != weights:
                raise InputError(
                    f"{folder} holds another model, and what was confirmed of it; move it away, or "
                    "choose another --out"
                )
            shutil.copytree(folder / FOUND, stage / FOUND)
    shutil.rmtree(folder, ignore_errors=True)
    replaced.rename(folder)
    return exported


@contextmanager
def _being_written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # what writes tensors names a full disk in its own way
        raise InputError(f"cannot write {folder}: {error}; free space, then run again") from None


def _about(experiment: Experiment, trained: Trained, record: DebiasRecord) -> dict[str, Any]:
    """Entries of ``debias.json`` in the model's folder.

    Targets of the trainings that were compared count as seen: they chose the condition.
    """
    source = experiment.corpus.neutral.source
    compared: set[str] = set()
    for fold in experiment.folds:
        compared.update(*experiment.targets(fold).values())
    return {
        "format": "tdabias debias 3",
        "protocol": experiment.identity,
        "model": experiment.corpus.model.name,
        "original": experiment.weights,
        "category": record.category,
        "data": record.data.source if record.data is not None else None,
        "items": len(trained.training.fold.train),
        "neutral": "written by the model itself" if source == SELF else source,
        "how": trained.training.condition.how,
        "condition": record.recommended,
        "heads": [str(head) for head in trained.training.heads],
        "targets": experiment.targets(trained.training.fold) | {"compared": sorted(compared)},
        "verdict": record.verdict,
    }


def _exported(
    model: LanguageModel, trained: Trained, about: Mapping[str, Any], record: DebiasRecord
) -> dict[str, Any]:
    """Content of ``heads.json``: with the gates, where there are some."""
    gates = trained.trajectory.values.get("gates")
    rows: list[dict[str, Any]] = [
        {"layer": head.layer, "head": head.head}
        | ({} if gates is None else {"gate": float(gates[place])})
        for place, head in enumerate(trained.training.heads)
    ]
    rule = {name: about[name] for name in ("condition", "how", "protocol")}
    return export_record(model.hf_model, rows, model=record.model.model_dump(), rule=rule)


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


def read_about(folder: Path) -> dict[str, Any]:
    """The record that a model folder has of its training.

    Raises:
        InputError: if `tdabias debias` did not write it.
    """
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        seen = {str(t).casefold() for targets in about["targets"].values() for t in targets}
        if missing := {"protocol", "model", "original", "category", "weights"} - about.keys():
            raise KeyError(*missing)
        return about | {"seen": seen}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{folder} is no model that `tdabias debias` saved") from None
