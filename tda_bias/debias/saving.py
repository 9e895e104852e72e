"""The trained model as an ordinary folder: checked against the one in memory, with its card."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from tda_bias.ablation.edits import TOLERANCE, new_model_folder
from tda_bias.ablation.head_weights import head_slices
from tda_bias.debias.learners import How, LoraLearner, learner
from tda_bias.models.load import LanguageModel, load_language_model
from tda_bias.runs.files import to_json
from tda_bias.runs.text import counted
from tda_bias.types import HeadId, InputError

CARD, ABOUT, ADAPTER = "README.md", "debias.json", "adapter"


@dataclass(frozen=True)
class SavedModel:
    """A model folder that ``save_debiased`` wrote.

    Attributes:
        folder: Where.
        weights: Hash of its weights.
        difference: Largest difference of a logit, read back from disk against in memory.
        changed: Numbers that are not what they were, all inside the heads' slices.
    """

    folder: Path
    weights: str
    difference: float
    changed: int


def save_debiased(
    model: LanguageModel,
    how: How,
    heads: Sequence[HeadId],
    values: Mapping[str, Tensor],
    folder: Path,
    *,
    card: str,
    about: dict[str, Any],
    probes: Sequence[str],
    seed: int = 0,
) -> SavedModel:
    """Put what was learned into a model's weights, and write it as a folder that loads anywhere.

    The folder gets its name only when the model in it was read back and gives the same logits, and
    everything outside the heads' slices is bit for bit what it was. The model in memory is changed.

    Args:
        model: The untouched model.
        how: The kind of learner.
        heads: The heads that did.
        values: Values of the learner.
        folder: Where to; one that an earlier run wrote there is replaced.
        card: Text of the model card.
        about: Content of ``debias.json``, which tells ``tdabias confirm`` the targets seen.
        probes: Texts on which logits are compared.
        seed: As in training, for ``lora``.

    Raises:
        InputError: if the folder cannot be written, holds something else, or does not give the
            same model back.
    """
    before = {name: value.clone() for name, value in model.hf_model.state_dict().items()}
    slices = {s for head in heads for s in head_slices(model.hf_model, head)}
    trained = learner(how, model, heads, seed=seed)
    trained.load(values)
    trained.check()
    _refuse_other_folder(folder)
    replaced = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(replaced, ignore_errors=True)
    with new_model_folder(replaced) as stage:
        try:
            if isinstance(trained, LoraLearner):
                trained.save(stage / ADAPTER)
            trained.apply()
            model.hf_model.save_pretrained(stage)
            model.tokenizer.save_pretrained(stage)
        except OSError:
            raise
        except Exception as error:  # what writes tensors names a full disk in its own way
            raise InputError(
                f"cannot write {folder}: {error}; free space, then run again"
            ) from None
        changed = _changed(model.hf_model.state_dict(), before, slices)
        saved = load_language_model(str(stage), device=str(model.device), dtype=model.dtype_name)
        difference = _difference(model, saved, probes)
        weights = saved.weight_hash()
        (stage / CARD).write_text(card, encoding="utf-8")
        (stage / ABOUT).write_text(to_json({**about, "weights": weights}), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    replaced.rename(folder)
    return SavedModel(folder, weights, difference, changed)


def _refuse_other_folder(folder: Path) -> None:
    if folder.exists() and not (folder / ABOUT).is_file():
        raise InputError(f"{folder} holds something else; move it away, or choose another --out")


def _changed(now: Mapping[str, Tensor], before: Mapping[str, Tensor], slices: set[Any]) -> int:
    """Count the numbers that changed, all of which must lie in the slices.

    Raises:
        AssertionError: naming a parameter in which others did.
    """
    total = 0
    for name, value in now.items():
        different = value != before[name]
        total += int(different.sum())
        for part in slices:
            if part.parameter == name:
                part.of(different).fill_(False)
        if bool(different.any()):
            raise AssertionError(f"{name} changed outside the chosen heads")
    return total


def _difference(model: LanguageModel, saved: LanguageModel, probes: Sequence[str]) -> float:
    worst = 0.0
    for text in probes:
        ids = torch.tensor([model.tokenizer(text)["input_ids"]], device=model.device)
        with torch.inference_mode():
            first, second = (
                loaded.hf_model(input_ids=ids).logits.double() for loaded in (model, saved)
            )
        largest = float(first.abs().max())
        worst = max(worst, float((first - second).abs().max()))
        if not worst <= max(TOLERANCE, 1e-5 * largest):
            raise InputError(
                f"the saved model's logits differ by {worst:.2g} from those in memory; nothing was "
                "kept"
            )
    return worst


def model_card(record: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Text that tells a stranger on what the model was trained, what changed, and what did not.

    Args:
        record: Entries of ``debias.json``.
        row: Of ``summary.conditions_table``, of the model's condition.
    """
    front = {
        "base_model": record["model"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["tdabias", "debiasing", record["category"]],
    }
    seen = record["targets"]
    interval = f" ({row['low']:.3f} to {row['high']:.3f})" if row["low"] == row["low"] else ""
    return "\n".join(
        [
            "---",
            yaml.safe_dump(front, sort_keys=False).strip(),
            "---",
            f"# {record['model']}, trained on {len(record['heads'])} of its attention heads "
            f"against {record['category']} bias",
            "",
            f"Made by `tdabias debias`, protocol `{record['protocol']}`.",
            "",
            "## What was trained",
            "",
            f"- How: {record['how']}, the heads of the condition *{record['condition']}*: "
            f"{_shortened(record['heads'])}. Every other number is that of the base model, bit for "
            "bit.",
            f"- Texts: {counted(record['items'], 'item')} of {record['data']} trained, category "
            f"{record['category']}, with their twins. Targets that trained: "
            f"{', '.join(seen['train'])}. Validation targets, which stopped the training: "
            f"{', '.join(seen['validation'])}.",
            f"- Neutral text: {record['neutral']}.",
            "",
            "## What changed",
            "",
            "On targets that the trainings compared never saw "
            f"({'this very model' if seen['test'] else 'models of the other folds, trained alike'}"
            "):",
            "",
            "| | before | after |",
            "|---|---|---|",
            f"| beta, nats per token | {row['before']:.3f} | {row['beta']:.3f}{interval} |",
            f"| root mean square of beta | {row['rms_before']:.3f} | {row['rms']:.3f} |",
            f"| language-model score | {row['lms_before']:.1f} | {row['lms']:.1f} |",
            f"| perplexity of neutral text | | {row['perplexity']:+.1f} % |",
            "",
            "Beta is the part of the preference for a stereotype that changes when the text is "
            "about another target. 0 is none.",
            "",
            "## What this does not show",
            "",
            f"- {record['verdict']}",
            "- Other biases, other targets, other kinds of text and generation were not looked at; "
            "`tdabias compare` looks at some of them. A model whose beta is 0 here is not an "
            "unbiased model.",
            "- Whether the model still tells genders apart where it should is a question of its "
            "own: measure it before use.",
            "",
        ]
    )


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 40 else f"all {len(names)}"
