"""Edits that need no training: heads switched off, damped, or replaced by their mean, for good.

A head writes into the residual stream through its own columns of the output projection. Zero and
scale act on those alone, exactly, whether or not heads share keys and values. Mean puts what the
head writes on average into the projection's bias; an architecture without one can carry it only
where a switch of its configuration adds biases, and all others stay 0. What is saved is an ordinary
Hugging Face folder that loads without this package.
"""

from __future__ import annotations

import copy
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.ablation.removal import by_layer_of
from tda_bias.models.attention import AttentionLayer, attention_layers, attention_part, is_turned
from tda_bias.models.checkpoint import BIAS_SWITCH, save_changed
from tda_bias.models.hooks import (
    head_means,
    heads_changed,
    require_heads,
    require_separate_heads,
)
from tda_bias.models.language_model import model_record
from tda_bias.models.load import (
    DTYPES,
    LanguageModel,
    load_language_model,
    quantisation,
    read_config,
)
from tda_bias.show.audit import Audited, model_card
from tda_bias.show.text import Finding, counted
from tda_bias.store.files import temporary_name, to_json, write_errors
from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.types import HeadId, InputError

CARD = "README.md"
How = Literal["zero", "mean", "scale"]
# Logits of the saved and of the hooked model may differ by this in single precision, and where
# logits are above 20 (GPT-2's are near 100) by as much in proportion.
TOLERANCE = 1e-4
_PROPORTION = 5e-6
# Below this an edit counts as one that changed nothing.
_NO_CHANGE = 1e-9

Means = Mapping[HeadId, Float[Tensor, " d"]]


@dataclass(frozen=True)
class EditRule:
    """Rule for a head's output.

    ``zero``: it is set to 0; ``mean``: its mean over texts replaces it in every place; ``scale``:
    it is multiplied by ``factor``, which is 0 for the others.
    """

    how: How
    factor: float = 0.0

    def __str__(self) -> str:
        return f"scale={self.factor:g}" if self.how == "scale" else self.how


def edit_rule(text: str) -> EditRule:
    """A rule as it is written: ``zero``, ``mean``, ``scale=0.5``.

    Raises:
        InputError: if it is none of them, or its factor changes nothing or is no number.
    """
    if text in ("zero", "mean"):
        return EditRule("zero" if text == "zero" else "mean")
    name, _, number = text.partition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = math.nan
    if name != "scale" or not math.isfinite(factor):
        raise InputError(f"`how` must be zero, mean or scale=NUMBER; got {text!r}")
    if factor == 1:
        raise InputError("`how` scale=1 changes nothing; give another factor")
    return EditRule("scale", factor)


# -- what heads write on average -------------------------------------------------------------------


def mean_outputs(
    model: LanguageModel,
    heads: Sequence[HeadId],
    texts: Sequence[str],
    *,
    batch_size: int = 32,
) -> dict[HeadId, Float[Tensor, " d"]]:
    """Mean output of heads, before the output projection, over all places of texts.

    Special tokens are places, too.

    Raises:
        InputError: if there is no text, a text is too long, or a head does not exist.
    """
    if not texts:
        raise InputError("there is no text to take the mean over")
    layers = attention_layers(model)
    require_heads(model, layers, heads)
    ids = [list(row) for row in model.tokenizer(list(texts))["input_ids"]]
    means = head_means(model, layers, ids, batch_size=batch_size)
    of_layer = {layer.number: mean for layer, mean in zip(layers, means, strict=True)}
    return {head: of_layer[head.layer][head.head].clone() for head in heads}


# -- the edit --------------------------------------------------------------------------------------


@torch.no_grad()
def edit_heads(
    model: LanguageModel, heads: Sequence[HeadId], rule: EditRule, *, means: Means | None = None
) -> list[str]:
    """Change the weights of heads, in place, of a model without hooks.

    ``mean`` needs the ``means`` of every head, from ``mean_outputs``.

    Returns:
        Names of the changed parameters.

    Raises:
        InputError: if there is no head, the model does not have one of them, or ``mean`` cannot be
            carried by the architecture.
    """
    if not heads:
        raise InputError("there is no head to edit")
    layers = {layer.number: layer for layer in attention_layers(model)}
    require_heads(model, layers.values(), heads)
    if rule.how == "mean":
        _require_output_biases(model, list(layers.values()))
    changed: list[Tensor] = []
    for number, indices in by_layer_of(heads).items():
        projection: Any = layers[number].projection
        columns = {index: layers[number].columns(index) for index in indices}
        if rule.how == "mean":
            added = projection.bias.double()
            for index, part in columns.items():
                matrix = part.double().T if is_turned(projection) else part.double()
                added = added + matrix @ (means or {})[HeadId(number, index)].to(matrix)
            projection.bias.copy_(added.to(projection.bias))
            changed.append(projection.bias)
        for part in columns.values():
            part.copy_((part.double() * rule.factor).to(part))
        changed.append(projection.weight)
    ours = {id(parameter) for parameter in changed}
    return sorted(name for name, p in model.hf_model.named_parameters() if id(p) in ours)


def _require_output_biases(model: LanguageModel, layers: Sequence[AttentionLayer]) -> None:
    """Make sure that the output projections have biases, by the configuration where need be."""
    if all(getattr(layer.projection, "bias", None) is not None for layer in layers):
        return
    hf_model: Any = model.hf_model
    names = _biases_of_the_switch(model)
    gaining = [hf_model.get_submodule(name.removesuffix(".bias")) for name in names]
    if not all(any(layer.projection is module for module in gaining) for layer in layers):
        raise InputError(
            f"`how` mean: the output projections of a {model.architecture} have no bias, and no "
            "switch of its configuration adds one; use zero or scale"
        )
    for module in gaining:
        module.bias = nn.Parameter(module.weight.new_zeros(module.weight.shape[0]))
    setattr(hf_model.config.get_text_config(), BIAS_SWITCH, True)


def _biases_of_the_switch(model: LanguageModel) -> list[str]:
    """Biases that the architecture has once its configuration says so, if they are all it gains."""
    hf_model: Any = model.hf_model
    config = copy.deepcopy(hf_model.config)
    if getattr(config.get_text_config(), BIAS_SWITCH, None) is not False:
        return []
    setattr(config.get_text_config(), BIAS_SWITCH, True)
    with torch.device("meta"):
        names = set(type(hf_model)(config).state_dict())
    now = set(hf_model.state_dict())
    gained = sorted(names - now)
    biases = [n for n in gained if n.endswith(".bias") and attention_part(n.removesuffix(".bias"))]
    return gained if biases == gained and not now - names else []


# -- the same through hooks ------------------------------------------------------------------------


@contextmanager
def hooked_edit(
    model: LanguageModel, heads: Sequence[HeadId], rule: EditRule, *, means: Means | None = None
) -> Iterator[None]:
    """The model as if ``edit_heads`` had edited it, for whatever runs inside."""
    by_layer = by_layer_of(heads)

    def changed(z: Tensor, layer: AttentionLayer) -> Tensor:
        z = z.clone()
        for head in by_layer[layer.number]:
            if rule.how == "mean":
                z[:, :, head] = (means or {})[HeadId(layer.number, head)].to(z)
            else:
                z[:, :, head] *= rule.factor
        return z

    with heads_changed([own for own in attention_layers(model) if own.number in by_layer], changed):
        yield


@dataclass(frozen=True)
class EditCheck:
    """Comparison of the saved model with the hooked one.

    Logits differ by ``difference`` at most, of ``allowed`` (see ``TOLERANCE``; in half precision
    also the rounding of the weights); the edit changes them by ``effect`` at most.
    """

    difference: float
    allowed: float
    effect: float

    def __str__(self) -> str:
        return (
            "Read back from disk and compared with the hooked model: logits differ by at most "
            f"{self.difference:.1g} (allowed {self.allowed:.1g}); the edit moves them by up to "
            f"{self.effect:.2g}."
        )


def check_edit(
    edited: LanguageModel,
    original: LanguageModel,
    heads: Sequence[HeadId],
    rule: EditRule,
    texts: Sequence[str],
    *,
    means: Means | None = None,
) -> EditCheck:
    """Compare the logits of an edited model with those of the original under hooks.

    The original is in single precision.

    Raises:
        InputError: if the edit changed nothing, or the two differ by more than is allowed.
    """
    unit = torch.finfo(edited.dtype).eps if edited.dtype.itemsize < 4 else 0.0
    edited.hf_model.float()
    difference = effect = largest = 0.0
    for text in texts:
        ids = original.tokenizer(text, return_tensors="pt")["input_ids"]
        if edited.tokenizer(text)["input_ids"] != ids[0].tolist():
            raise InputError("the saved tokenizer reads texts in another way than the original")
        before = logits_of(original, ids)
        with hooked_edit(original, heads, rule, means=means):
            expected = logits_of(original, ids)
        after = logits_of(edited, ids)
        difference = max(difference, float((after - expected).abs().max()))
        effect = max(effect, float((after - before).abs().max()))
        largest = max(largest, float(before.abs().max()))
    rounding = 0.0 if rule.how == "zero" else 8 * unit * largest
    allowed = max(TOLERANCE, _PROPORTION * largest) + rounding
    check = EditCheck(difference, allowed, effect)
    named = ", ".join(map(str, heads))
    if not difference <= allowed:
        raise InputError(
            f"the edited model's logits differ by {difference:.2g} from those of the hooked one, "
            f"more than {allowed:.2g}: {rule} of {named} in a {original.architecture} is not "
            "what was asked for; nothing was kept"
        )
    if effect <= _NO_CHANGE:
        raise InputError(f"{rule} of {named} changes nothing in `model` {original.name}")
    return check


def logits_of(model: LanguageModel, ids: Tensor) -> Float[Tensor, "1 token vocabulary"]:
    """Logits of a text, in double precision on the CPU; an encoder-decoder also writes the text."""
    there = ids.to(model.device)
    inputs: dict[str, Any] = {"input_ids": there}
    if model.hf_model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = there
    with torch.inference_mode():
        logits: Tensor = model.hf_model(**inputs).logits
    return logits.double().cpu()


@dataclass(frozen=True)
class EditedModel:
    """A model that was written: changed parameters, and hashes of the weights before and after."""

    folder: Path
    architecture: str
    parameters: tuple[str, ...]
    weights: tuple[str, str]
    check: EditCheck


def stored_dtype(name: str) -> str:
    """The type that a model's weights are saved in: what an edit must not change.

    Raises:
        InputError: if the model cannot be found, or its weights are quantised.
    """
    config = read_config(name)
    quantised = quantisation(config)
    if quantised is not None:
        raise InputError(
            f"`model` {name}: its config.json says that its weights are quantised ({quantised}), "
            "and single heads of those cannot be edited; edit the model that they were made from"
        )
    stored = str(getattr(config, "dtype", None)).removeprefix("torch.")
    return stored if stored in DTYPES else "float32"


def refuse_existing(folder: Path) -> None:
    """Refuse to write a model where something is."""
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
    about: Mapping[str, Any],
) -> EditedModel:
    """Edit a model, save it, read it back, compare it with the hooked one, and only then name it.

    ``load`` gives the model without hooks in the type it is stored in, ``load_original`` once more
    in single precision; logits are compared on ``probes``. ``about`` are further entries of
    ``edit.json``: ``model``, as it is named in the card, ``repeat``, the command that makes it
    again, and more.

    Raises:
        InputError: if the folder exists or cannot be written, a head does not exist, the
            architecture cannot carry the edit, or the saved model is not what it should be.
    """
    refuse_existing(folder)
    original = load_original()
    original.require_language_head()
    require_separate_heads(original, attention_layers(original))
    edited = load()
    means = None
    if rule.how == "mean":
        means = mean_outputs(original, heads, mean_over, batch_size=batch_size)
    before = edited.weight_hash()
    parameters = tuple(edit_heads(edited, heads, rule, means=means))
    after, dtype = edited.weight_hash(), edited.dtype_name
    with new_model_folder(folder) as stage:
        save_changed(edited, original.hf_model.state_dict(), stage)
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
            **about,
        }
        (stage / "edit.json").write_text(to_json(record), encoding="utf-8")
        card = _card(record, check, model_record(saved, weights=after), folder)
        (stage / CARD).write_text(card, encoding="utf-8")
    return EditedModel(folder, original.architecture, parameters, (before, after), check)


def _card(record: Mapping[str, Any], check: EditCheck, model: ModelRecord, folder: Path) -> str:
    """The model card: what was changed, how that was checked, and what was not measured."""
    base, heads, how = str(record["model"]), record["heads"], record["how"]
    weights = record["weights"]
    found = Finding(
        result=[
            f"{how} of {', '.join(heads)} in {base}: "
            f"{counted(len(record['parameters']), 'parameter')} changed, all others bit for bit as "
            f"they were (weights {weights['before']} before, {weights['after']} after)."
        ],
        control=[str(check)],
        power=["Bias, quality and knowledge were not measured here."],
    )
    run = RunRecord(
        command="edit",
        model=model.model_copy(update={"name": base}),
        data=record.get("chosen_on"),  # the texts that named the heads
    )
    title = f"{base} with {counted(len(heads), 'attention head')} changed"
    repeat = str(record.get("repeat", ""))
    return model_card(base, title, [Audited(folder.name, run, [("", found)], repeat)])


@contextmanager
def new_model_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is asked for, which takes its name when the block is done."""
    folder = folder.absolute()
    stage = temporary_name(folder)
    try:
        with write_errors(folder):
            stage.mkdir(parents=True)
            yield stage
            refuse_existing(folder)
            os.rename(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
