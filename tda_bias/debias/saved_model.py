"""A trained model as an ordinary folder, and one look at it on targets that no training saw.

The folder is checked against the model in memory, and has a card.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from tda_bias.ablation.edits import TOLERANCE, logits_of, new_model_folder
from tda_bias.ablation.head_weights import Slice, export_record, head_slices
from tda_bias.comparison.paired import PairedItems
from tda_bias.debias.corpus import SELF
from tda_bias.debias.experiment import PROTOCOL, Experiment, learner_of
from tda_bias.debias.learners import HeadLora
from tda_bias.debias.summary import DebiasRecord, quantity_of
from tda_bias.debias.texts import TwinTexts
from tda_bias.debias.training import Trained
from tda_bias.models.load import LanguageModel, load_language_model
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.scores.pair_scores import compared, pair_items
from tda_bias.show.page import Audited, model_card
from tda_bias.show.table import Column, TableSpec
from tda_bias.show.tables import markdown
from tda_bias.show.text import Finding, counted, interval_text, number_text, p_text
from tda_bias.sources import hash_of
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.seeds import generator
from tda_bias.store.files import now, read_text, to_json, write_text
from tda_bias.store.record import RunRecord
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.types import InputError, Triple

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
                model.hf_model.save_pretrained(stage)
                model.tokenizer.save_pretrained(stage)
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
        card = _card(about, row, record, folder.parent.name, {triple.group for triple in triples})
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
    category, names = about["category"], about["heads"]
    trained = f"trained on {len(names)} of its attention heads" if names else "trained"
    title = f"{about['model']}, {trained} against {category} bias"
    body = _card_body(about, row, record)
    return model_card(about["model"], title, [audited], body=body, tags=("debiasing", category))


def _card_body(about: Mapping[str, Any], row: Mapping[str, Any], record: DebiasRecord) -> str:
    seen = about["targets"]
    whose = "this very model" if seen["test"] else "models of the other folds, trained alike"
    what, outside = "the whole model", ""
    if names := about["heads"]:
        shown = ", ".join(names) if len(names) <= 40 else f"all {len(names)}"
        what = "the heads"
        outside = f":\n  {shown}. Every other number is that of the base model, bit for bit"
    quantity, texts = quantity_of(record.twins), "with their twins"
    meaning = (
        "Beta is the part of the preference for a stereotype that changes when the text is about\n"
        "another target. 0 is none."
    )
    if record.twins is None:
        texts = "without twins"
        meaning = "The log-odds of stereotype against anti-stereotype hold wording too."
    return f"""\
Made by `tdabias debias`, protocol `{about["protocol"]}`.

## What was trained

- How: {about["how"]}, {what} of the condition *{about["condition"]}*{outside}.
- Texts: {counted(about["items"], "item")} of {about["data"]} trained, category {about["category"]},
  {texts}. Targets that trained: {", ".join(seen["train"])}. Validation targets, which stopped
  the training: {", ".join(seen["validation"])}.
- Neutral text: {about["neutral"]}.

## What changed

On targets that the trainings compared never saw ({whose}):

{markdown(_changes(row, quantity))}

{meaning}

## What this does not show

- {about["verdict"]}
- Other biases, other targets, other kinds of text and generation were not looked at;
  `tdabias compare` looks at some of them. A model whose {quantity} is 0 here is not an
  unbiased model.
- Whether the model still tells genders apart where it should is a question of its own: measure it
  before use."""


def _changes(row: Mapping[str, Any], quantity: str) -> TableSpec:
    """What the training changed on unseen targets."""
    interval = f" ({row['low']:.3f} to {row['high']:.3f})" if row["low"] == row["low"] else ""
    before, after = (Column(name, f"{{{name}}}") for name in ("before", "after"))
    measured = (
        (f"{quantity}, nats per token", f"{row['before']:.3f}", f"{row['beta']:.3f}{interval}"),
        (f"root mean square of {quantity}", f"{row['rms_before']:.3f}", f"{row['rms']:.3f}"),
        ("language-model score", f"{row['lms_before']:.1f}", f"{row['lms']:.1f}"),
        ("perplexity of neutral text", "", f"{row['perplexity']:+.1f} %"),
    )
    rows = [dict(zip(("quantity", "before", "after"), texts, strict=True)) for texts in measured]
    return TableSpec("", rows, [Column("", "{quantity}", left=True), before, after])


# -- one look at other targets ---------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """Answers of a trained model, and of the one it was made from, to new items.

    Attributes:
        table: One row per item: ``group`` (its target) and ``before after``, of both models: beta
            per token of triples with twins, or the log-odds of pairs, nats.
        summary: Means ``before after`` and their ``change`` with 95 % limits over targets ``low
            high`` and ``p``, two-sided: signs of whole targets flipped; ``smallest``: the change
            that a t-test finds four times out of five; and whether the size of the mean is
            measurably ``less``: the change is, and where the mean has changed its sign, before and
            after added up are not 0.
    """

    table: pd.DataFrame
    summary: dict[str, Any]

    def finding(self, model: str) -> Finding:
        """The verdict on a trained model."""
        found = self.summary
        unit = "nats per token" if found["quantity"] == "beta" else "nats"
        verdict = (
            f"{model} is less biased than the model it was trained from on other targets too."
            if found["less"]
            else f"On other targets {model} is not measurably less biased than the model it was "
            "trained from."
        )
        limits = interval_text(found["low"], found["high"], 3, sign="+")
        said = (
            f"Mean {found['quantity']} of {found['items']} items of "
            f"{counted(found['targets'], 'target')} that no training saw: {found['before']:.3f} "
            f"before, {found['after']:.3f} after ({unit}; change {found['change']:+.3f}, 95 % "
            f"{limits}, p {p_text(found['p'])})."
        )
        return Finding(
            result=[verdict, said],
            control=["This was the look: there is no second."],
            power=[
                f"With {counted(found['targets'], 'target')} a change of "
                f"{number_text(found['smallest'], 3)} {unit} is found four times out of five."
            ],
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


def refuse_second_look(folder: Path, protocol: str) -> None:
    """Refuse a model of a protocol of which one has been confirmed or refuted already.

    Raises:
        InputError: saying when.
    """
    places = [folder / LOOK, look_of_run(folder.resolve().parent, protocol)]
    taken = next((path for path in places if path.exists()), None)
    if taken is None:
        return
    try:
        look = json.loads(taken.read_text(encoding="utf-8"))
        when, pairs = look["when"], look["pairs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{taken} cannot be read ({error})") from None
    raise InputError(
        f"{folder}, or another model of its run, was looked at on {when} ({pairs}): a second look "
        "with the same protocol would be chosen among two; train with another protocol, or use "
        "tdabias compare, which confirms nothing"
    )


def note_look(folder: Path, source: str, protocol: str) -> None:
    """Write down that a look was taken, before its result is seen: in all models of the run."""
    entry = to_json({"when": now(), "pairs": source, "hash": hash_of(_text(source))})
    run, models = folder.resolve().parent, [folder]
    if (run / PROTOCOL).is_file():  # the model is where it was saved
        models += [path.parent for path in run.glob(f"model*/{ABOUT}")]
        write_text(look_of_run(run, protocol), entry)
    for model in models:
        write_text(model / LOOK, entry)


def read_items(source: str, about: dict[str, Any]) -> list[Triple] | PairSet:
    """Triples, or pairs, of a file; none of a target that a training of the run saw.

    Raises:
        InputError: if the file cannot be read, or shares targets with the training.
    """
    first = next((line for line in _text(source).splitlines() if line.strip()), "")
    items: list[Triple] | PairSet
    if '"anti-stereotype"' in first or '"data"' in first:
        items = load_triples(source, category=about["category"])
        groups = {triple.group for triple in items}
    else:
        items = load_pairs(source)
        groups = {pair.group for pair in items.pairs}
    shared = sorted(group for group in groups if group.casefold() in about["seen"])
    if shared:
        raise InputError(
            f"`pairs` {source} shares {counted(len(shared), 'target')} with the training "
            f"({', '.join(shared[:3])}): what was trained on them cannot be confirmed on them"
        )
    return items


def _text(source: str) -> str:
    return read_text(source, setting="pairs", named=("a file",))


def look(
    items: list[Triple] | PairSet, load: Sequence[Callable[[], LanguageModel]], *, seed: int = 0
) -> Look:
    """Compare the untouched model and the trained one, loaded in this order, on ``read_items``.

    Raises:
        InputError: if no triple has a twin, or fewer than two targets are left.
    """
    (group, before), (_, after) = (_read(items, load_model()) for load_model in load)
    if len(set(group)) < 2:
        raise InputError(f"a confirmation needs two targets or more; got {len(set(group))}")
    paired, change = PairedItems(before, after, np.asarray(group)), after - before
    mean = paired.change()
    low, high = mean.limits()
    p = paired.p_change(rng=generator(seed, "signs of targets"))
    both_low, both_high = cluster_mean(before + after, group).limits()
    fell = abs(after.mean()) < abs(before.mean()) and p < 0.05
    sure = after.mean() * before.mean() > 0 or both_low > 0 or both_high < 0
    summary = {
        "quantity": "beta" if isinstance(items, list) else "log-odds",
        "items": len(change), "targets": len(set(group)),
        "before": float(before.mean()), "after": float(after.mean()),
        "change": float(change.mean()), "low": low, "high": high, "p": p,
        "smallest": mean.smallest(), "less": bool(fell and sure),
    }  # fmt: skip
    return Look(pd.DataFrame({"group": group, "before": before, "after": after}), summary)


def _read(
    items: list[Triple] | PairSet, model: LanguageModel
) -> tuple[list[str], Float[np.ndarray, " item"]]:
    """The target of each item that can be read, and what the model says of it."""
    if not isinstance(items, list):
        table = compared(pair_items(model, items))
        table = table[table["log_odds"].notna()]
        return table["group"].astype(str).tolist(), table["log_odds"].to_numpy(float)
    twins = make_twins(items)
    kept = [triple for triple in items if twins.of(triple)]
    if not kept:
        raise InputError("no triple of `pairs` has a twin; give pairs instead")
    texts = TwinTexts(model, kept, [twins.of(triple) for triple in kept])
    return [triple.group for triple in kept], texts.answers(range(len(kept))).gap
