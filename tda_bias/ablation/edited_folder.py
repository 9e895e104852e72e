"""An edited model as an ordinary Hugging Face folder, checked before it gets its name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tda_bias.ablation.edits import EditCheck, EditRule, check_edit, edit_heads, mean_outputs
from tda_bias.models.checkpoint import refuse_code_in_folder
from tda_bias.models.load import DTYPES, LanguageModel, load_language_model
from tda_bias.models.packaged import local_source
from tda_bias.runs.files import make_folder, temporary_name, to_json, write_errors
from tda_bias.types import HeadId, InputError

EDIT = "edit.json"


@dataclass(frozen=True)
class EditedModel:
    """What ``write_edited_model`` wrote.

    Attributes:
        folder: Where.
        parameters: Names of the changed parameters.
        weights: Hash of the weights before and after.
        check: How the model in the folder compares with the hooked one.
    """

    folder: Path
    parameters: tuple[str, ...]
    weights: tuple[str, str]
    check: EditCheck


def stored_dtype(name: str) -> str:
    """The type that a model's weights are saved in: what an edit must not change.

    Raises:
        InputError: if the model cannot be found.
    """
    from transformers import AutoConfig

    refuse_code_in_folder(name)
    source = local_source(name)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # the hub's and the readers' errors are of many kinds
        raise InputError(f"`model` {name} could not be found ({type(error).__name__})") from error
    stored = str(getattr(config, "dtype", None)).removeprefix("torch.")
    return stored if stored in DTYPES else "float32"


def refuse_existing(folder: Path) -> None:
    """Refuse to write a model where something is.

    Raises:
        InputError: if the folder exists.
    """
    if folder.exists():
        raise InputError(
            f"`out` {folder} exists; a model is written into a new folder: choose another name"
        )


def write_edited_model(
    load: Callable[[], LanguageModel],
    load_original: Callable[[], LanguageModel],
    heads: Sequence[HeadId],
    rule: EditRule,
    folder: Path,
    *,
    probes: Sequence[str],
    mean_over: Sequence[str] = (),
    batch_size: int = 32,
    about: dict[str, Any] | None = None,
) -> EditedModel:
    """Edit a model, save it, read it back, compare it with the hooked one, and only then name it.

    Args:
        load: Gives the model without hooks, in the type it is stored in; it is edited in place.
        load_original: Gives it once more, in single precision and hooked where its architecture
            can be.
        heads: The heads.
        rule: What becomes of their output.
        folder: A folder that does not exist.
        probes: Texts on which logits are compared.
        mean_over: Texts over which the mean is taken, for ``mean``.
        batch_size: Texts per forward pass, for ``mean``.
        about: Further entries of ``edit.json``, which lies in the folder and is read by nobody.

    Raises:
        InputError: if the folder exists or cannot be written, a head does not exist, the
            architecture cannot carry the edit, or the saved model is not what it should be.
    """
    refuse_existing(folder)
    original, edited = load_original(), load()
    edited.require_language_head()
    means = None
    if rule.how == "mean":
        means = mean_outputs(original, heads, mean_over, batch_size=batch_size)
    before = edited.weight_hash()
    parameters = tuple(edit_heads(edited, heads, rule, means=means))
    after, dtype = edited.weight_hash(), edited.dtype_name
    with new_model_folder(folder) as stage:
        edited.hf_model.save_pretrained(stage)
        edited.tokenizer.save_pretrained(stage)
        del edited
        saved = load_language_model(
            str(stage), device=str(original.device), dtype=dtype, attention="eager"
        )
        if saved.weight_hash() != after or saved.not_in_checkpoint:
            raise InputError(
                f"the weights of a {saved.architecture} are not read back from disk as they were "
                "saved; nothing was kept"
            )
        check = check_edit(saved, original, heads, rule, probes, means=means)
        record = {
            "format": "tdabias edit 1",
            "heads": [str(head) for head in dict.fromkeys(heads)],
            "how": str(rule),
            "parameters": parameters,
            "weights": {"before": before, "after": after},
            "check": asdict(check),
            **(about or {}),
        }
        (stage / EDIT).write_text(to_json(record), encoding="utf-8")
    return EditedModel(folder, parameters, (before, after), check)


@contextmanager
def new_model_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is asked for, which takes its name when the block is done."""
    folder = folder.absolute()
    stage = temporary_name(folder)
    try:
        with write_errors(folder):
            make_folder(stage)
            yield stage
            refuse_existing(folder)
            os.rename(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
